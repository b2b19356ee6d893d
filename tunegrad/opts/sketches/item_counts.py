"""How many work-items a GPU sketch uses along a loop: powers of two that fit group and work."""

from __future__ import annotations

from collections.abc import Sequence

from tunegrad.ir.target import Target

__all__ = ["GROUP_ITEMS", "TERMS", "each_counts", "item_counts", "nearest", "powers"]

GROUP_ITEMS = 256
"""Work-items of a default group: what every OpenCL GPU has, eight warps that hide their waits."""

TERMS = 4
"""Terms of a reduction that each work-item should have: with fewer, combining takes longer."""


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
