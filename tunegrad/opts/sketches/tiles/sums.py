"""Sums: reductions that read each operand once: pooling, sums of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..tiling import balance
from .idea import Idea
from .operands import in_order
from .products import K_BLOCK
from .registers import tiles

__all__ = ["Sums"]

_VECTORS = 4
"""Vectors of the best tile. More rows in registers save nothing, as nothing is read again."""

_LONG = 64
"""Steps of a reduction, at most, that are no column."""


@dataclass(frozen=True, slots=True)
class Sums(Idea):
    """One row of vectors; of long columns, all the lanes of a few rows before the next ones.

    Memory wants whole rows, and a core's prefetcher follows a few at once.
    """

    def tiles(self) -> Sequence[tuple[int, int]]:
        """(rows, vectors), first one row of some vectors."""
        o = self.operands
        every = tiles(o.rows, o.vectors, o.target.registers)
        return sorted(every, key=lambda t: (t[0] != 1, abs(t[1] - _VECTORS), t[0]))

    def lane_block(self, sizes: Sequence[int]) -> int:
        """Columns that give each thread the same share, and whose sums the first cache holds."""
        if not self._columns():
            return 0
        o = self.operands
        fits = [i for i, n in enumerate(sizes) if n > 0 and 4 * n <= o.target.l1_bytes // 2]
        shares = {i: -(-o.lane.extent // sizes[i]) for i in fits}
        even = [i for i in fits if balance(shares[i], o.target.threads) > 0.99]
        return max(even or fits or [0], key=lambda i: sizes[i])

    def reduce_block(self, sizes: Sequence[int]) -> int:
        """As many rows as are added at once, where there are columns; else what caches hold."""
        o, streams = self.operands, self.operands.target.streams
        if streams in sizes and self._columns():
            return sizes.index(streams)
        long = o.steps >= 2 * K_BLOCK and K_BLOCK in sizes
        far = [x for x in o.streamed if not in_order(x, self.run, o.longest)]
        return sizes.index(K_BLOCK) if long and far else 0

    def order(self, forms: Sequence[str]) -> str:
        """Blocks of columns outermost, where there are any."""
        return "apart" if "apart" in forms and self._columns() else Idea.order(self, forms)

    def _columns(self) -> bool:
        """True if long columns of something large are summed."""
        o = self.operands
        large = [x for x in o.found if x.nbytes > o.target.l2_bytes and x.stride(o.lane.name) == 1]
        long = [a for a in o.reduces if a.extent > _LONG]
        return any(not in_order(x, self.run, a) for x in large for a in long)
