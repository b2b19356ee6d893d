"""A model of cycles for products by work-items, one multiply-add at a time: how many results an
item should hold, and how many items a group should have.

    an item makes rows x columns results, a group of tall x wide items a block of them

    term     the slowest of
               products           rows * columns a work-item / fmas, and a slot of a scheduler for
                                  each, for each row and for each vector of columns that is loaded
               shared memory      a row at a time for the whole warp, 16 bytes of columns an item
               the last cache     (block's rows + columns) * size / l2_bytes_per_cycle

The rest is that of ``cycles.py``: steps, barriers, groups that run at a time, turns. Facts are the
target's; it compares blocks of one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from tunegrad.ir.target import Target

from .cycles import BANK_BYTES, FEED, SPARE_REGISTERS, Pace, Problem, paced

__all__ = ["ItemBlock", "best_item_block"]

_SCHEDULERS = 4
"""Warps of which a unit starts an instruction in a cycle, on every architecture since 7.0."""
_EACH, _WIDE, _TALL = (8, 4, 2, 1), (32, 16, 8, 4), (32, 16, 8, 4, 2, 1)
_DEPTHS, _SLOTS = (32, 16, 8, 4), (3, 2, 1)
_GROUP_ITEMS = (64, 128, 256)


@dataclass(frozen=True, slots=True)
class ItemBlock:
    """The work of a group: results of an item, items along them, terms a step, and steps in shared
    memory at a time.
    """

    rows: int
    columns: int
    tall: int
    wide: int
    depth: int
    slots: int

    @property
    def items(self) -> int:
        return self.tall * self.wide

    @property
    def registers(self) -> int:
        """Of an item: sums, the operands of a term, and what else there is."""
        return self.rows * self.columns + self.rows + self.columns + SPARE_REGISTERS

    @property
    def extents(self) -> tuple[int, int]:
        """Results of a group along m and along n."""
        return self.rows * self.tall, self.columns * self.wide


def best_item_block(p: Problem, nbytes: int, target: Target) -> ItemBlock | None:
    """The block of the fewest cycles that the target can run; None where the target does not say
    what its units have, or the product has too few results for a group.

    ``nbytes`` are those of all operands and results, once: the batch of a convolution shares its
    filters. An item has several vectors of columns only in blocks that divide them.
    """
    if not (target.unit_items and target.unit_registers and target.memory_bytes_per_cycle):
        return None
    slots = _SLOTS if target.copies_ahead else (1,)
    vector = target.lanes(4)
    found = [
        ItemBlock(r, c, t, w, d, s)
        for r, c, t, w, d, s in product(_EACH, _EACH, _TALL, _WIDE, _DEPTHS, slots)
        if t * w in _GROUP_ITEMS
        and t <= -(-p.m // r)
        and w <= -(-p.n // c)
        and (c <= vector or p.n % (c * w) == 0)
        and (d < p.k or d == _DEPTHS[-1])
        and d * r >= w  # every item copies an element of each operand
        and d * c >= t
        and s <= max(1, -(-p.k // d))
    ]
    fitting = [b for b in found if _together(b, p, target)]
    floor = nbytes / target.memory_bytes_per_cycle
    timed = [(_cycles(b, p, target), b) for b in fitting]

    def cost(x: tuple[float, ItemBlock]) -> tuple[float, float, float]:
        """Of those that are as fast, the one that reads least of the last cache."""
        found, (rows, columns) = x[0], x[1].extents
        return max(floor, found), found, 1 / rows + 1 / columns

    return min(timed, key=cost)[1] if timed else None


def _cycles(b: ItemBlock, p: Problem, target: Target) -> float:
    """Cycles of the busiest unit where memory is fast enough."""
    rows, columns = b.extents
    groups = p.batch * -(-p.m // rows) * -(-p.n // columns)
    warps = -(-b.items // target.warp)
    vectors = -(-b.columns // target.lanes(4))
    each = b.rows * b.columns
    started = warps * (each + b.rows + vectors) / _SCHEDULERS
    fmas = target.fmas_per_cycle * target.lanes(4)
    beside = target.warp * target.vector_bytes / BANK_BYTES
    moved = (rows + columns) * b.depth * p.size
    pace = Pace(
        multiplied=b.depth * max(each * warps * target.warp / fmas, started),
        read=b.depth * warps * (b.rows + vectors * beside),
        arrives=moved / target.l2_bytes_per_cycle,
        stored=rows * columns * p.stored / target.l2_bytes_per_cycle,
        fed=warps / FEED,
    )
    return paced(groups, -(-p.k // b.depth), b.slots, _together(b, p, target), pace, target)


def _together(b: ItemBlock, p: Problem, target: Target) -> int:
    """Groups that run on one unit at a time; 0 where one does not fit.

    Rows of a copy have an element to spare.
    """
    rows, columns = b.extents
    shared = b.slots * b.depth * (rows + columns + 2) * p.size
    if shared > target.shared_bytes or b.registers > target.regs_per_item:
        return 0
    return min(
        target.unit_items // b.items,
        target.unit_registers // (b.registers * b.items),
        (target.unit_shared_bytes or target.shared_bytes) // shared,
    )
