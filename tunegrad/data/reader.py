"""Batches by their number: which samples one has, and those samples stacked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import DataError
from tunegrad.trees import leaves, mapped

from .batches import columns, laid_out, plain
from .shuffle import permuted
from .sources import Arrays, Items, Stream, sampling

Take = Callable[[Any, int], Any]
"""Arrays of a layout, over memory of so many bytes."""


@dataclass(frozen=True, slots=True)
class Reader:
    """All that says which batches there are; any worker makes the same one of a number."""

    source: Arrays | Items | Stream
    batch_size: int
    shuffle: bool
    seed: int
    drop_last: bool
    collate: Callable[[list[Any]], Any] | None

    @property
    def batches(self) -> int | None:
        """Batches of an epoch; None where a stream says when it ends."""
        n = self.source.length
        return (
            n if n is None else n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        )

    def indices(self, epoch: int, number: int) -> NDArray[np.int64]:
        """The samples of a batch, int64."""
        assert self.source.length is not None
        begin = number * self.batch_size
        places = np.arange(begin, min(begin + self.batch_size, self.source.length))
        if not self.shuffle:
            return places
        return permuted(places, self.source.length, self.seed, epoch)

    def read(self, epoch: int, number: int, take: Take) -> Any:
        """The batch of this number in memory that ``take`` gives.

        Raises DataError for a sample that can not be read, or does not fit the others.
        """
        indices = self.indices(epoch, number)
        if isinstance(self.source, Arrays) and self.collate is None:
            batch = take(*laid_out(self.source.rows(len(indices))))
            self.source.read(indices, batch)
            return batch
        assert not isinstance(self.source, Stream)
        samples = []
        for i in indices.tolist():
            sampling(self.seed, epoch, i)
            try:
                samples.append(self.source.sample(i))
            except Exception as error:
                raise _failure(error, (i,)) from error
            finally:
                sampling()
        return self._stacked(samples, indices.tolist(), take)

    def stream(self, epoch: int, first: int, take: Take) -> Iterator[Any]:
        """The batches of a stream from number ``first`` on: samples before it are read and
        dropped.
        """
        assert isinstance(self.source, Stream)
        at = 0
        samples = self._counted(epoch, self.source.begin())
        for _ in islice(samples, first * self.batch_size):
            at += 1
        while chunk := list(islice(samples, self.batch_size)):
            if self.drop_last and len(chunk) < self.batch_size:
                return
            yield self._stacked(chunk, range(at, at + len(chunk)), take)
            at += len(chunk)

    def _counted(self, epoch: int, samples: Iterator[Any]) -> Iterator[Any]:
        at = 0
        while True:
            sampling(self.seed, epoch, at)
            try:
                sample = next(samples)
            except StopIteration:
                return
            except Exception as error:
                raise _failure(error, (at,)) from error
            finally:
                sampling()
            yield sample
            at += 1

    def _stacked(self, samples: list[Any], indices: Sequence[int], take: Take) -> Any:
        try:
            if self.collate is None:
                found = columns(samples, indices)
                batch = take(*laid_out(found))
                for column, out in zip(leaves(found), leaves(batch), strict=True):
                    column.into(out)
                return batch
            made = mapped(self.collate(samples), lambda x: plain(x, "what collate gives"))
            batch = take(*laid_out(made))
            for array, out in zip(leaves(made), leaves(batch), strict=True):
                out[...] = array
        except Exception as error:
            raise _failure(error, tuple(indices)) from error
        return batch


def _failure(error: Exception, samples: tuple[int, ...]) -> DataError:
    few = ", ".join(map(str, samples[:8])) + (", ..." if len(samples) > 8 else "")
    what = f"sample {few}" if len(samples) == 1 else f"the batch of samples {few}"
    return DataError(f"loader: {what}: {type(error).__name__}: {error}", samples)
