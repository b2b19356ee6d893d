"""Layouts: maps from the logical index of an element to its offset.

A layout is a row-major list of parts. Part ``(dim, step, extent)`` is the digit ``index[dim] //
step % extent``; the digits of all parts are the coordinates of a dense row-major array. Examples
for a logical shape (N, C, H, W):

    row major        (0,1,N) (1,1,C) (2,1,H) (3,1,W)
    channels last    (0,1,N) (2,1,H) (3,1,W) (1,1,C)
    C blocked by 16  (0,1,N) (1,16,C/16) (2,1,H) (3,1,W) (1,1,16)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import InternalError, ShapeError

from .index import Index, as_index

__all__ = ["Layout", "Part"]


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
        """Dimensions stored in ``order``, the last one contiguous; (0, 2, 3, 1) is
        channels-last.
        """
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
        """The coordinate of one part; below 0 or above its extent where the index is outside the
        shape.
        """
        digit = index[part.dim]
        if part.step > 1:
            digit = digit // part.step
        return digit % part.extent if part.step * part.extent < self.shape[part.dim] else digit

    def pack(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """A flat array of ``size`` elements holding ``array`` (of ``shape``) in this layout,
        padding zeroed.
        """
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
