"""Constants that a program reads in another order than the model has them: filled once, when it is
loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import InternalError

from ..dtypes import DType
from ..index import Index, Valid

__all__ = ["Pack"]

Assign = Callable[[NDArray[np.generic], NDArray[np.generic]], None]


@dataclass(frozen=True, slots=True)
class Pack:
    """A constant staged at load: element ``v`` (row-major over ``extents``) of ``name`` is
    ``source[offset]``, or zero.

    ``offset`` and ``valid`` are over the variables ``variables``, one per extent.
    """

    name: str
    source: str
    dtype: DType
    variables: tuple[str, ...]
    extents: tuple[int, ...]
    offset: Index
    valid: Valid

    @property
    def size(self) -> int:
        total = 1
        for e in self.extents:
            total *= e
        return total

    def run(
        self,
        source: NDArray[np.generic],
        into: NDArray[np.generic] | None = None,
        assign: Assign | None = None,
    ) -> NDArray[np.generic]:
        """The packed flat array, from the flat ``source`` buffer; ``into``, where that is given, is
        filled with it.

        ``assign(to, values)`` copies large parts, strided ones on either side; without it numpy
        does.
        """
        flat = np.empty(self.size, source.dtype) if into is None else into
        shape = (1,) * len(self.extents)
        env: dict[str, NDArray[np.int64]] = {}
        for i, (v, e) in enumerate(zip(self.variables, self.extents, strict=True)):
            env[v] = np.arange(e, dtype=np.int64).reshape((*shape[:i], e, *shape[i + 1 :]))
        keep = np.full(shape, not self.valid.never)
        for r in self.valid:
            at = np.asarray(r.index.evaluate(env))  # type: ignore[arg-type]
            keep = keep & (at >= r.lo) & (at < r.hi)
        steps = [self.offset.coefficient(v) for v in self.variables]
        counts = [s for s in steps if s is not None and s >= 0]
        if len(counts) == len(steps) and keep.size <= _PARTS:
            _copy_valid(
                flat.reshape(self.extents),
                keep,
                source,
                self.offset.const,
                counts,
                assign or _assign,
            )
        else:
            offset = np.asarray(self.offset.evaluate(env))  # type: ignore[arg-type]
            picked = source[offset if self.valid.always else np.where(keep, offset, 0)]
            flat.reshape(self.extents)[...] = (
                picked if self.valid.always else np.where(keep, picked, 0)
            )
        return flat


def _assign(to: NDArray[np.generic], values: NDArray[np.generic]) -> None:
    to[...] = values


_PARTS = 4096
"""Conditions of more distinct elements than this are looked at one by one."""


def _copy_valid(
    to: NDArray[np.generic],
    keep: NDArray[np.bool_],
    source: NDArray[np.generic],
    start: int,
    steps: list[int],
    assign: Assign,
) -> None:
    """``to[i, j, ..] = source[start + i*steps[0] + ..]`` where ``keep``, broadcast to ``to``, is
    true; else zero.

    Where it is neither true nor false everywhere, the dimension that moves furthest is taken apart.
    """
    if not keep.any():
        to[...] = 0
    elif keep.all():
        last = start + sum(s * (n - 1) for s, n in zip(steps, to.shape, strict=True))
        if start < 0 or last >= source.size:
            raise InternalError(f"pack: elements {start} to {last} of a constant of {source.size}")
        strides = [s * source.itemsize for s in steps]
        assign(
            to, np.lib.stride_tricks.as_strided(source[start:], to.shape, strides, writeable=False)
        )
    else:
        d = max((d for d, n in enumerate(keep.shape) if n > 1), key=lambda d: steps[d])
        whole = np.asarray(np.moveaxis(keep, d, 0).reshape(to.shape[d], -1).all(axis=1))
        ends = [0, *(np.flatnonzero(whole[1:] != whole[:-1]) + 1).tolist(), to.shape[d]]
        for lo, hi in pairwise(ends):
            # what holds for a whole run is copied at once; the rest one by one, so that the
            # condition gets simpler
            for a, b in [(lo, hi)] if whole[lo] else [(i, i + 1) for i in range(lo, hi)]:
                part = (slice(None),) * d + (slice(a, b),)
                _copy_valid(to[part], keep[part], source, start + a * steps[d], steps, assign)
