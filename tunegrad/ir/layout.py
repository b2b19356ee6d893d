"""Layouts: maps from the logical index of an element to its offset.

A layout is a row-major list of parts. Part ``(dim, step, extent)`` is the digit ``index[dim] //
step % extent``; the digits of all parts are the coordinates of a dense row-major array. Examples
for a logical shape (N, C, H, W):

    row major        (0,1,N) (1,1,C) (2,1,H) (3,1,W)
    channels last    (0,1,N) (2,1,H) (3,1,W) (1,1,C)
    C blocked by 16  (0,1,N) (1,16,C/16) (2,1,H) (3,1,W) (1,1,16)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import InternalError, ShapeError
from tunegrad.lazy import dataclass

from .dtypes import DType
from .index import Index, Valid, as_index


@dataclass(frozen=True, slots=True)
class Part:
    """One digit of a layout: ``index[dim] // step % extent``."""

    dim: int
    step: int
    extent: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A bijection from indices of ``shape`` into ``[0, size)``, with gaps where a blocked extent is
    padded up.
    """

    shape: tuple[int, ...]
    parts: tuple[Part, ...]

    @staticmethod
    def row_major(shape: Sequence[int]) -> Layout:
        """The layout of a contiguous numpy array."""
        return Layout.permuted(shape, tuple(range(len(shape))))

    @staticmethod
    def permuted(shape: Sequence[int], order: Sequence[int]) -> Layout:
        """Dimensions stored in ``order``, the last contiguous; (0, 2, 3, 1) is channels-last."""
        return Layout(tuple(shape), tuple(Part(d, 1, shape[d]) for d in order))

    @property
    def size(self) -> int:
        """Elements of memory, padding included."""
        return prod(p.extent for p in self.parts)

    @property
    def is_row_major(self) -> bool:
        return len(self.parts) == len(self.shape) and all(
            p.dim == d and p.step == 1 and p.extent == extent
            for d, (p, extent) in enumerate(zip(self.parts, self.shape, strict=True))
        )

    def verify(self) -> None:
        """Raise ShapeError unless different indices have different offsets."""
        for d, extent in enumerate(self.shape):
            step = 1
            for p in sorted(
                (p for p in self.parts if p.dim == d), key=lambda p: (p.step, p.extent)
            ):
                if p.step != step or p.extent < min(1, extent):
                    break
                step *= p.extent
            else:
                if step >= extent:
                    continue
            raise ShapeError(
                f"layout {self}: the parts of dimension {d} do not tell its {extent} positions "
                "apart"
            )
        if any(not 0 <= p.dim < len(self.shape) for p in self.parts):
            raise ShapeError(
                f"layout {self}: it has parts of dimensions that shape {self.shape} does not have"
            )

    def offset(self, index: Sequence[Index]) -> Index:
        """The offset, in elements, of a logical index."""
        total, stride = as_index(0), 1
        for p in reversed(self.parts):
            total = total + self.digit(index, p) * stride
            stride *= p.extent
        return total

    def digit(self, index: Sequence[Index], part: Part) -> Index:
        """The coordinate of one part; below 0 or past its extent for an index out of the shape."""
        digit = index[part.dim]
        if part.step > 1:
            digit = digit // part.step
        return digit % part.extent if part.step * part.extent < self.shape[part.dim] else digit

    def pack(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """A flat array of ``size`` elements holding ``array`` in this layout, padding zeroed."""
        if array.shape != self.shape:
            raise InternalError(
                f"layout of shape {self.shape} can not pack an array of shape {array.shape}"
            )
        if self.is_row_major:
            return array.reshape(-1).copy()
        flat = np.zeros(self.size, array.dtype)
        flat[self._offsets()] = array.reshape(-1)
        return flat

    def unpack(self, flat: NDArray[np.generic]) -> NDArray[np.generic]:
        """The array of ``shape`` that ``flat`` holds in this layout."""
        return flat[self._offsets()].reshape(self.shape)

    def _offsets(self) -> NDArray[np.int64]:
        total = np.zeros(self.shape, np.int64)
        stride = 1
        for p in reversed(self.parts):
            line = np.arange(self.shape[p.dim], dtype=np.int64) // p.step % p.extent * stride
            total += line.reshape([-1 if d == p.dim else 1 for d in range(len(self.shape))])
            stride *= p.extent
        return total.reshape(-1)

    def __str__(self) -> str:
        if self.is_row_major:
            return "row"
        return " ".join(self._digit(p) for p in self.parts)

    def _digit(self, p: Part) -> str:
        if p.step == 1:
            whole = 0 <= p.dim < len(self.shape) and p.extent <= self.shape[p.dim]
            return f"{p.dim}" if whole else f"{p.dim}:{p.extent}"
        return f"{p.dim}/{p.step}:{p.extent}"


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
        """The packed array, of shape ``extents``, as a view of the flat ``source``, or None."""
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
        if steps is not None and keep.size <= max(_PARTS, self.size // _PART):
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


_PARTS, _PART = 4096, 512
"""Conditions of more distinct elements than this are looked at one by one, unless each of them is
that of so many copied ones: a part of an array takes as long to copy as they do to pick.
"""


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
