"""Counts of work-items that a GPU sketch uses along a loop: powers of two that fit group and
work.
"""

from __future__ import annotations

from collections.abc import Sequence

from tunegrad.ir.target import Target

__all__ = [
    "GROUP_ITEMS",
    "TERMS",
    "each_counts",
    "item_counts",
    "nearest",
    "powers",
    "row_items",
    "wide_counts",
]

GROUP_ITEMS = 256
"""Work-items of a default group: what every OpenCL GPU has, eight warps that hide their waits."""

TERMS = 4
"""Terms of a reduction that each work-item should have: with fewer, combining takes longer."""

_WIDE_TERMS = 16
"""The same where a warp exchanges its shares: four loads of four elements each in flight."""


def powers(most: int) -> list[int]:
    """1, 2, 4 ... up to ``most``."""
    return [1 << i for i in range(most.bit_length()) if 1 << i <= most]


def item_counts(target: Target, extent: int, taken: int = 1) -> list[int]:
    """Counts for a loop of ``extent`` beside ``taken`` other items, most first; never empty."""
    most = target.max_local // max(1, taken)
    return [n for n in powers(most)[::-1] if n < 2 * extent] or [1]


def each_counts(extent: int) -> list[int]:
    """Outputs of one work-item along an axis, most first."""
    return [n for n in (8, 4, 2, 1) if n <= extent]


def nearest(counts: Sequence[int], wanted: int) -> int:
    """The position of the largest count up to ``wanted``, most first; else that of the least."""
    return next((i for i, n in enumerate(counts) if n <= wanted), len(counts) - 1)


def row_items(target: Target, extent: int) -> int:
    """Work-items that a default schedule has share out a reduction of ``extent`` terms: whole warps
    where there are some, as many as leave each what its registers hold; else as many as have a few
    terms each.
    """
    if target.warp > 1 and extent >= target.warp:
        wanted, most = max(target.warp, extent // _WIDE_TERMS), target.max_local
    else:
        wanted, most = max(2, extent // TERMS), GROUP_ITEMS
    return max(n for n in powers(most) if n <= wanted)


def wide_counts(target: Target, extent: int, items: int, itemsize: int) -> tuple[list[int], int]:
    """Neighbouring terms that a work-item may take at once, and which count a default schedule has:
    a load of as many bytes as one may have, where warps exchange shares. ``itemsize`` 0: nothing
    lies side by side.
    """
    width = target.lanes(itemsize) if itemsize else 1
    if width < 2 or extent < items * width:
        return [1], 0
    return [1, width], int(target.warp > 1 and extent % width == 0)
