"""Products: an operand is read again for every row of the register tile: GEMM and convolution.

Large operands are met in panels that caches hold: a block of the reduction, and of the rows where
even the panel of the lanes leaves a core's own caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..analysis import Access
from .idea import Idea, nearest
from .operands import in_order
from .registers import products_ranked
from .windows import WINDOW, taps_of

__all__ = ["K_BLOCK", "Products"]

K_BLOCK = 256
"""Steps of a product whose operands are met at once."""

_LARGE_L2 = 2 << 20
"""A core's second cache that holds panels of twice as many steps.

Partial sums then go through memory half as often.
"""


@dataclass(frozen=True, slots=True)
class Products(Idea):
    """The tile that computes longest on what it reads, over panels that stay in caches."""

    def tiles(self) -> Sequence[tuple[int, int]]:
        """(rows, vectors), ranked by the time of a full sweep in multiply-adds of a vector."""
        o, t = self.operands, self.operands.target
        crowded = any(self._of_rows(x) and not x.depends(o.lane.name) for x in o.streamed)
        ways = t.streams if crowded else o.rows
        far = t.vector_bytes * t.fmas_per_cycle / t.l2_bytes_per_cycle
        return products_ranked(o.rows, o.vectors, t.registers, ways, self._near_vectors(), far)

    def row_block(self, sizes: Sequence[int]) -> int:
        """Rows that stay in the second cache, where the panel of the lanes does not."""
        steps, l2_bytes = self._block(), self.operands.target.l2_bytes
        return nearest(sizes, l2_bytes // (3 * 4 * steps)) if steps and self._split() else 0

    def reduce_block(self, sizes: Sequence[int]) -> int:
        """The steps of a panel, where that is a choice."""
        steps = self._block()
        return sizes.index(steps) if steps in sizes else 0

    @property
    def taps(self) -> tuple[str, ...]:
        """Of a padded window."""
        return taps_of(self.operands)

    @property
    def pads(self) -> bool:
        """Branching around the conditions costs less than copying an image with its padding.

        For a core with two multiply-adds a cycle, only where the taps that decide are written out.
        """
        o = self.operands
        return o.target.fmas_per_cycle > 1 and not self.taps and o.longest.extent > WINDOW

    def _near_vectors(self) -> int:
        """Vectors across a tile whose panel of the lanes' operand the first cache holds.

        As many as there are where the second cache keeps up, with one multiply-add a cycle; and
        where taps are masked: a window's rows read the same inputs again, and many rows in a tile
        would put padding into most tiles.
        """
        o = self.operands
        if o.target.fmas_per_cycle == 1 or any(x.masked for x in o.found):
            return o.target.registers
        blocked = o.steps >= 2 * K_BLOCK and len(o.streamed) > 1
        steps = self._panel(self._leaves_l2()) if blocked else o.steps
        return o.target.l1_bytes // (4 * o.width * steps)

    def _block(self) -> int:
        """The block of the longest reduce axis, 0 for none."""
        o = self.operands
        far = [x for x in o.streamed if not in_order(x, self.run, o.longest)]
        if o.steps < 2 * K_BLOCK or (len(far) <= 1 and not o.skinny):
            return 0
        return self._panel(self._split())

    def _panel(self, split: bool) -> int:
        return 2 * K_BLOCK if split and self.operands.target.l2_bytes >= _LARGE_L2 else K_BLOCK

    def _split(self) -> bool:
        """True if a block of rows stays in the second cache, and each reads the panel again."""
        return not self.operands.skinny and self._leaves_l2()

    def _leaves_l2(self) -> bool:
        """True if a panel of the lanes does not stay in the second cache while all rows meet it.

        With one multiply-add a cycle a core asks for no more than the last cache gives.
        """
        o = self.operands
        lanes = any(x.depends(o.lane.name) for x in o.streamed)
        met = lanes and any(self._of_rows(x) for x in o.streamed)
        large = 4 * K_BLOCK * o.lane.extent >= o.target.l2_bytes
        return o.target.fmas_per_cycle > 1 and met and large

    def _of_rows(self, x: Access) -> bool:
        return self.operands.row is not None and x.depends(self.operands.row.name)
