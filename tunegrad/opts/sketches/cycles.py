"""Models of cycles for products on a GPU: the block of the output that a group should make, by a
matrix unit (``Block``) or by work-items (``ItemBlock``).

    a group makes block_m x block_n results in steps of block_k
    a unit of the device has  blocks = ceil(groups / units)  of them to make, some at a time

    step     a barrier, and the slowest of
                              products           block_m * block_n * block_k / fmas
                              shared memory      what its warps load / 128 bytes
                              the last cache     (block_m + block_n) * block_k / l2_bytes_per_cycle
    block    steps * step, and what it writes
    kernel   all blocks of a unit, and the latencies of a beginning and an end for each turn of
             groups that fit a unit together; not faster than memory

It has no constant that was fitted: facts are those of the target, and latencies are orders of
magnitude (500 cycles to memory, some 40 for a barrier and the loads after it). It compares blocks
of one kernel, and says nothing of kernels of different kinds.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from tunegrad.ir.target import MatrixUnit, Target
from tunegrad.lazy import dataclass

BANK_BYTES = 128
"""Bytes that a unit reads of its shared memory in a cycle."""

_LATENCY, _BARRIER = 500, 40
"""Cycles to memory, and of a barrier with what follows it, about."""

SPARE_REGISTERS = 40
"""Of a work-item, for addresses and loops: what ptxas takes besides sums and fragments."""

FEED = 8
"""Warps that keep a unit's four multipliers busy: one of two loads while the other multiplies."""


@dataclass(frozen=True, slots=True)
class Problem:
    """``batch`` products of m x n results over k terms, of ``size`` bytes an operand and
    ``stored`` a result. ``spare``: bytes that each term of a step has more in shared memory, so
    that its neighbours lie in banks of their own.
    """

    batch: int
    m: int
    n: int
    k: int
    size: int
    stored: int
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """The work of a group: ``warps`` along m and n, ``tiles`` of the unit a warp, terms a step, and
    steps in shared memory at a time.
    """

    tiles: tuple[int, int]
    warps: tuple[int, int]
    depth: int
    slots: int

    def extents(self, unit: MatrixUnit) -> tuple[int, int]:
        """Results of a group along m and along n."""
        rows, columns, _ = unit.shape
        return rows * self.tiles[0] * self.warps[0], columns * self.tiles[1] * self.warps[1]

    def items(self, unit: MatrixUnit) -> int:
        return unit.items * self.warps[0] * self.warps[1]

    def registers(self, unit: MatrixUnit) -> int:
        """Of a work-item: sums, the fragments of one step of the unit, and what else there is."""
        m, n = self.tiles
        wide = 2 if unit.dtypes[1] == "f64" else 1
        held = m * unit.highs * unit.steps + n * unit.steps
        return wide * (m * n * unit.highs * unit.pair + held) + SPARE_REGISTERS

    def shared_bytes(self, unit: MatrixUnit, size: int, spare: int = 0) -> int:
        return self.slots * self.depth * (sum(self.extents(unit)) * size + spare)


def blocks_by_cycles(
    problem: Problem, unit: MatrixUnit, target: Target, slots: Iterable[int]
) -> list[Block]:
    """Blocks that the target can run, those first that take the fewest cycles by the model."""
    depth = unit.shape[2]
    # what does not run ahead goes through registers, and 32 tiles spilled there
    most = 32 if target.copies_ahead else 16
    tiles = [t for t in product((1, 2, 4), (1, 2, 4, 8)) if t[0] * t[1] <= most]
    warps = [w for w in product((1, 2, 4), (1, 2, 4)) if w[0] * w[1] <= 8]
    depths = [d for d in (depth, 2 * depth, 4 * depth) if d <= max(depth, problem.k)]
    found = [Block(t, w, d, s) for t in tiles for w in warps for d in depths for s in slots]
    fitting = [b for b in found if _fits(b, problem, unit, target)]
    # where memory sets the pace of several, units have the more to spare the less they do
    return sorted(
        fitting,
        key=lambda b: (cycles(b, problem, unit, target), _unit_cycles(b, problem, unit, target)),
    )


def _fits(b: Block, p: Problem, unit: MatrixUnit, target: Target) -> bool:
    registers = b.registers(unit)
    if b.slots > max(1, -(-p.k // b.depth)):
        return False
    return (
        b.items(unit) <= target.max_local
        and b.shared_bytes(unit, p.size, p.spare) <= target.shared_bytes
        and registers <= (target.regs_per_item or registers)
        and registers * b.items(unit) <= (target.unit_registers or registers * b.items(unit))
    )


def cycles(b: Block, p: Problem, unit: MatrixUnit, target: Target) -> float:
    """Time of a kernel of such blocks, in cycles of a unit of the device."""
    memory = p.batch * ((p.m * p.k + p.k * p.n) * p.size + p.m * p.n * p.stored)
    floor = memory / target.memory_bytes_per_cycle if target.memory_bytes_per_cycle else 0.0
    return max(_unit_cycles(b, p, unit, target), floor)


def _unit_cycles(b: Block, p: Problem, unit: MatrixUnit, target: Target) -> float:
    """Cycles of the busiest unit where memory is fast enough."""
    rows, columns = b.extents(unit)
    groups = p.batch * -(-p.m // rows) * -(-p.n // columns)
    steps, warps = -(-p.k // b.depth), b.warps[0] * b.warps[1]
    loaded = (b.tiles[0] * unit.shape[0] + b.tiles[1] * unit.shape[1]) * b.depth * p.size
    read = warps * loaded / BANK_BYTES
    # one step alone is not staged: every warp loads what it multiplies
    moved = (rows + columns) * b.depth * p.size if steps > 1 else read * BANK_BYTES
    pace = Pace(
        multiplied=rows * columns * b.depth / (unit.fmas or 1),
        read=read,
        arrives=moved / target.l2_bytes_per_cycle,
        stored=rows * columns * p.stored / target.l2_bytes_per_cycle,
        fed=warps / FEED,
    )
    return paced(groups, steps, b.slots, resident(b, p, unit, target), pace, target)


@dataclass(frozen=True, slots=True)
class Pace:
    """Cycles of a unit that one step of a group takes: products, reads of shared memory, what comes
    from the last cache; and what the group writes at its end. ``fed``: how much of the multipliers
    its warps keep busy.
    """

    multiplied: float
    read: float
    arrives: float
    stored: float
    fed: float


def paced(groups: int, steps: int, slots: int, fitting: int, pace: Pace, target: Target) -> float:
    """Cycles of the busiest unit for its groups, of which ``fitting`` run at a time."""
    blocks = -(-groups // target.threads)
    together = min(blocks, max(1, fitting))
    multiplied = pace.multiplied / min(1.0, together * pace.fed)
    if slots > 1:  # a step is awaited unless others are in flight or run meanwhile
        step = max(multiplied, pace.read, pace.arrives, _LATENCY / ((slots - 1) * together))
    else:
        step = max(multiplied, pace.read) + pace.arrives + _LATENCY / together
    step += _BARRIER / together
    turns = -(-blocks // together)
    return blocks * (steps * step + pace.stored) + turns * 2 * _LATENCY


def resident(b: Block, p: Problem, unit: MatrixUnit, target: Target, more: int = 0) -> int:
    """Groups that run on a unit at a time, beside ``more`` bytes of shared memory; or 0."""
    shared = b.shared_bytes(unit, p.size, p.spare) + more
    items, registers = b.items(unit), b.registers(unit)
    if shared > target.shared_bytes:
        return 0
    limits = (
        (target.unit_items or items) // items,
        (target.unit_registers or registers * items) // (registers * items),
        (target.unit_shared_bytes or target.shared_bytes) // shared,
    )
    return min(limits)


_SCHEDULERS = 4
"""Warps of which a unit starts an instruction in a cycle, on every architecture since 7.0."""

_EACH, _WIDE, _TALL = (8, 4, 2, 1), (32, 16, 8, 4), (32, 16, 8, 4, 2, 1)

_DEPTHS, _SLOTS = (32, 16, 8, 4), (3, 2, 1)

_GROUP_ITEMS = (64, 128, 256)


@dataclass(frozen=True, slots=True)
class ItemBlock:
    """The work of a group: results of an item, items along them, terms a step, steps at a time."""

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

        an item makes rows x columns results, a group of tall x wide items a block of them

    term     the slowest of
               products           rows * columns a work-item / fmas, and a slot of a scheduler for
                                  each, for each row and for each vector of columns that is loaded
               shared memory      a row at a time for the whole warp, 16 bytes of columns an item
               the last cache     (block's rows + columns) * size / l2_bytes_per_cycle

    The rest is that of ``cycles.py``: steps, barriers, groups that run at a time, turns. Facts are
    the target's; it compares blocks of one kernel.
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
