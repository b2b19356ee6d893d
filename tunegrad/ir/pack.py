"""Packs: constants that a program reads in an order of its own, copied so when a model is
loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import InternalError

from .dtypes import DType
from .index import Index, Valid

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
        return prod(self.extents)

    def view(self, source: NDArray[np.generic]) -> NDArray[np.generic] | None:
        """The packed array, of shape ``extents``, as a view of the flat ``source`` buffer; None
        where it is none.
        """
        steps = self._steps()
        if steps is None or not self.valid.always:
            return None
        return _strided(source, self.offset.const, self.extents, steps)

    def _steps(self) -> list[int] | None:
        """Distances in the source between neighbours along each variable; None where one is not one
        number, or backwards.
        """
        steps = [self.offset.coefficient(v) for v in self.variables]
        counts = [s for s in steps if s is not None and s >= 0]
        return counts if len(counts) == len(steps) else None

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
        steps = self._steps()
        if steps is not None and keep.size <= _PARTS:
            to = flat.reshape(self.extents)
            _copy_valid(to, keep, source, self.offset.const, steps, assign or _assign)
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
        assign(to, _strided(source, start, to.shape, steps))
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


def _strided(
    source: NDArray[np.generic], start: int, shape: Sequence[int], steps: Sequence[int]
) -> NDArray[np.generic]:
    """``source[start + i*steps[0] + j*steps[1] ..]`` as an array over ``i, j, ..``.

    Raises InternalError where an element is outside of the source.
    """
    last = start + sum(s * (n - 1) for s, n in zip(steps, shape, strict=True))
    if start < 0 or last >= source.size:
        raise InternalError(f"pack: elements {start} to {last} of a constant of {source.size}")
    strides = [s * source.itemsize for s in steps]
    return np.lib.stride_tricks.as_strided(source[start:], shape, strides, writeable=False)
