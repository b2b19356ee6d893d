"""Ideas for kinds of kernels: the best guess at each decision of the tiles sketch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tunegrad.ir.kernel import Axis

from .operands import Operands

__all__ = ["Idea", "nearest"]


@dataclass(frozen=True, slots=True)
class Idea(ABC):
    """Best guesses for kernels of one kind; where nothing is said, for any kernel.

    ``run`` is the axis of the lanes where it fills vectors, and registers hold all of it; it is
    None until the tile is known. Guesses are places in the options that they are given.
    """

    operands: Operands
    run: Axis | None = None

    @abstractmethod
    def tiles(self) -> Sequence[tuple[int, int]]:
        """(rows, vectors) of the register tile, best first."""

    def lane_block(self, sizes: Sequence[int]) -> int:  # noqa: ARG002  # an idea may look at them
        """The cache block of the lanes."""
        return 0

    def row_block(self, sizes: Sequence[int]) -> int:  # noqa: ARG002
        """The cache block of the rows."""
        return 0

    def reduce_block(self, sizes: Sequence[int]) -> int:  # noqa: ARG002
        """The block of the longest reduce axis; 0 is none."""
        return 0

    def order(self, forms: Sequence[str]) -> str:  # noqa: ARG002
        """The order of the outer loops: lanes outermost where they have much to read."""
        o = self.operands
        weights = (x for x in o.found if x.depends(o.lane.name) and x.role == "const")
        most = max((x.nbytes for x in weights), default=0)
        return "lanes" if o.skinny or most > o.target.l2_bytes // 2 else "rows"

    @property
    def taps(self) -> tuple[str, ...]:
        """Short reduce axes that are written out: with the row, they decide what is padding."""
        return ()

    @property
    def pads(self) -> bool:
        """True if an image is copied with its padding first."""
        return False


def nearest(sizes: Sequence[int], want: int) -> int:
    """The place of the size that is nearest to ``want``."""
    return min(range(len(sizes)), key=lambda i: abs(sizes[i] - want))
