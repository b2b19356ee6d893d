"""Loader: epochs of batches, and the position in them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from tunegrad.errors import ConfigError

from .batches import Slabs, over
from .reader import Reader
from .sources import Stream, source_of
from .workers import Direct, Epoch, Processes, Threads, Workers, streamed


class AheadOptions(TypedDict, total=False):
    """Of a ``Loader``: batches that are made before they are asked for."""

    workers: int
    processes: bool
    prefetch: int


@dataclass(frozen=True, slots=True)
class _Ahead:
    workers: int = 1
    processes: bool = False
    prefetch: int = 2


class Loader:
    """Batches of samples. Each loop over it is one epoch.

    ``data`` is one of these:

    - an array, the name of a ``.npy`` file (which is mapped, not read), or a tuple or dict of such,
      of as many rows each: a sample is a row of each
    - an object with ``__getitem__`` and ``__len__``: samples are numbers, arrays, or tuples, lists
      and dicts of them
    - an iterable of samples, or a function that gives one: read in its order

    A batch has the structure of a sample, with arrays of ``batch_size`` rows (the last one may have
    less, or is left out by ``drop_last``) in the samples' dtypes: bytes of images stay bytes.
    ``collate`` takes the list of a batch's samples and gives the arrays itself.

    ``shuffle``: another order in each epoch, by ``seed`` (>= 0) and the epoch. ``workers`` threads,
    or with ``processes`` as many processes, make ``prefetch`` batches each ahead of the caller; 0
    has the caller make them. The batches are the same for any number of them.

    An array of a batch is the caller's for as long as the caller keeps it, and then its memory is
    used for another batch. It is aligned and contiguous, so that programs on the CPU read it where
    it lies.

    ``state()`` is the position after the batches that were handed out. ``Loader(..., state=)``
    continues there: its first loop gives the rest of that epoch.

    Raises ConfigError for settings that do not fit each other and for a state of another loader,
    ShapeError for arrays of other numbers of rows; while it is iterated, DataError for a sample
    that can not be read, with its index and traceback, and for a worker process that died.
    """

    def __init__(
        self,
        data: Any,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        collate: Callable[[list[Any]], Any] | None = None,
        state: Mapping[str, Any] | None = None,
        **ahead: Unpack[AheadOptions],
    ) -> None:
        made = _Ahead(**ahead)
        workers, processes, prefetch = made.workers, made.processes, made.prefetch
        for name, value, least in (
            ("batch_size", batch_size, 1), ("seed", seed, 0), ("workers", workers, 0),
            ("prefetch", prefetch, 1),
        ):  # fmt: skip
            if type(value) is not int or value < least:
                raise ConfigError(f"loader: {name} is {value!r}; it must be an integer >= {least}")
        source = source_of(data)
        if isinstance(source, Stream):
            if shuffle:
                raise ConfigError(
                    "loader: an iterable has one order; shuffle needs data with a length and an "
                    "index"
                )
            if processes or workers > 1:
                raise ConfigError(
                    "loader: an iterable is read by one thread; several workers and processes need "
                    "data with a length and an index"
                )
        if processes and not workers:
            raise ConfigError("loader: processes=True needs workers >= 1, got 0")
        self._reader = Reader(source, batch_size, shuffle, seed, drop_last, collate)
        self._workers, self._prefetch, self._processes = workers, prefetch, processes
        self._slabs = Slabs()
        self._slabs_of = os.getpid()
        self._idle: Processes | None = None
        self._epoch, self._batch, self._begun = 0, 0, False
        if state is not None:
            self._continue(state)

    @property
    def epoch(self) -> int:
        """The number of the epoch that is running; between two, of the next one."""
        return self._epoch

    def __len__(self) -> int:
        """Batches of an epoch. Raises TypeError for data without a length."""
        batches = self._reader.batches
        if batches is None:
            raise TypeError("loader: an iterable says when it ends, and not before")
        return batches

    def state(self) -> dict[str, Any]:
        """The position, and what it is a position of: numbers and truths, as JSON has them."""
        return {"epoch": self._epoch, "batch": self._batch, **self._identity()}

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch, also after a loop that was left before its end."""
        if self._begun:
            self._epoch, self._batch = self._epoch + 1, 0
        self._begun = True
        return _Pass(self._make, self._given, self._epoch, self._batch)

    def close(self) -> None:
        """End idle worker processes; a further epoch starts others."""
        idle, self._idle = self._idle, None
        if idle is not None:
            idle.stop()

    def _identity(self) -> dict[str, Any]:
        r = self._reader
        return {
            "length": r.source.length, "batch_size": r.batch_size, "shuffle": r.shuffle,
            "seed": r.seed, "drop_last": r.drop_last,
        }  # fmt: skip

    def _continue(self, state: Mapping[str, Any]) -> None:
        mine = self._identity()
        for name in ("epoch", "batch", *mine):
            if name not in state:
                raise ConfigError(f"loader: the state has no {name!r}")
            if name in mine and state[name] != mine[name]:
                raise ConfigError(
                    f"loader: the state is of a loader with {name}={state[name]!r}, this one has "
                    f"{name}={mine[name]!r}"
                )
        epoch, batch = state["epoch"], state["batch"]
        last = self._reader.batches
        for name, value in (("epoch", epoch), ("batch", batch)):
            if type(value) is not int or value < 0 or (name == "batch" and value > (last or value)):
                raise ConfigError(f"loader: the state's {name} is {value!r}")
        self._epoch, self._batch = epoch, batch

    def _make(self, epoch: int, first: int) -> Workers:
        """Makers of the batches of an epoch from number ``first`` on."""
        if self._slabs_of != os.getpid():  # a forked child, whose threads are gone
            self._slabs, self._slabs_of, self._idle = Slabs(), os.getpid(), None
        reader, slabs = self._reader, self._slabs
        ahead = self._workers * self._prefetch
        last = reader.batches

        def take(layout: Any, nbytes: int) -> Any:
            return over(layout, slabs.take(nbytes))

        if last is None:
            make = streamed(reader.stream(epoch, first, take))
        else:
            numbers = range(first, last)

            def make(number: int) -> Any:
                return reader.read(epoch, number, take) if number in numbers else None

            if self._processes:
                idle, self._idle = self._idle, None
                if idle is None:
                    idle = Processes(reader, self._workers)
                return Epoch(idle, epoch, numbers, ahead, self._finished)
        return Threads(make, first, self._workers, ahead) if self._workers else Direct(make)

    def _finished(self, processes: Processes) -> None:
        self._idle = processes

    def _given(self, epoch: int, batches: int) -> None:
        """A pass handed out its batches up to a number; -1: all, and it has ended."""
        if epoch == self._epoch and self._begun:
            self._batch = batches
            if batches < 0:
                self._epoch, self._batch, self._begun = epoch + 1, 0, False


class _Pass(Iterator[Any]):
    """One epoch of a Loader. Threads that share it take turns: each batch goes to one of them."""

    def __init__(
        self, make: Callable[[int, int], Workers], given: Callable[[int, int], None],
        epoch: int, first: int,
    ) -> None:  # fmt: skip
        self._make, self._given, self._epoch, self._number = make, given, epoch, first
        self._made: Workers | None = None
        self._ended = False
        self._pid = os.getpid()
        self._turn = threading.Lock()

    def __next__(self) -> Any:
        if self._pid != os.getpid():  # workers are the parent's, and so may be a turn
            self._made, self._pid, self._turn = None, os.getpid(), threading.Lock()
        with self._turn:
            return self._following()

    def _following(self) -> Any:
        if self._ended:
            raise StopIteration
        try:
            if self._made is None:
                self._made = self._make(self._epoch, self._number)
            batch = self._made.get(self._number)
        except BaseException:
            self.close()
            raise
        if batch is None:
            self.close()
            self._given(self._epoch, -1)
            raise StopIteration
        self._number += 1
        self._given(self._epoch, self._number)
        return batch

    def close(self) -> None:
        """End it: workers stop."""
        self._ended = True
        made, self._made = self._made, None
        if made is not None and self._pid == os.getpid():
            made.close()

    def __del__(self) -> None:
        self.close()
