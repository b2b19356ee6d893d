"""The mask of LLVM's ``shufflevector`` as text."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["shuffle_mask"]


def shuffle_mask(places: Iterable[int | None]) -> str:
    """The constant vector that says, lane by lane, which lane of the two operands is taken; None
    takes any value.

    shuffle_mask([1, 0, None])  ->  "<3 x i32> <i32 1, i32 0, i32 poison>"
    """
    lanes = [f"i32 {'poison' if place is None else place}" for place in places]
    return f"<{len(lanes)} x i32> <{', '.join(lanes)}>"
