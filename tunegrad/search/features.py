"""Facts of a schedule for a cost model, read off its loop tree: a tenth of what lowering it would
take.

    for a0 in 8 on threads:          outside: regions entered, share of the team that idles
        for ra in 256:               levels, from the inside: trips, and the bytes touched inside
                                     against the caches
            # registers: 6 x 2 x 16v
            v0 += p1[a, ra] * ...    the register tile: lanes, loads for each multiply-add,
                                     contiguous or strided

    for a0 in 8 on groups:           with work-items: how many groups there are, and items of one
        for a1 in 64 local:

The facts mean the same for every kernel, so that one model learns from all kernels of a device.
They are of the stage that does most work, the others are only counted. Names and choice follow
Zheng et al., "Ansor", OSDI 2020, appendix B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tunegrad.ir.expr import Load
from tunegrad.ir.index import Index
from tunegrad.ir.kernel import Kernel, Reduce, Store, loads
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, accumulators

__all__ = ["tree_features"]

LEVELS = 4
"""Loops, from the inside, whose trips and working set are given."""

_Steps = tuple[dict[str, int], ...]
"""For each dimension of an array: by how much an iteration of each loop moves along it."""


@dataclass(frozen=True, slots=True)
class _Access:
    """A parameter read or written in the stage that matters, by the loops of the tree."""

    param: str
    itemsize: int
    steps: _Steps
    read: bool

    def elements(self, loops: Sequence[Loop]) -> float:
        """Number of elements that ``loops`` touch together; a window that overlaps itself counts
        once.
        """
        found = 1.0
        for steps in self.steps:
            moved = [(steps[x.name], x.extent) for x in loops if x.name in steps]
            span = 1 + sum(step * (extent - 1) for step, extent in moved)
            found *= min(span, math.prod(extent for _, extent in moved))
        return found

    def stride(self, loop: Loop) -> int:
        """Elements between neighbours along a loop: 0 where it does not move, large in any
        dimension but the last.
        """
        if any(loop.name in steps for steps in self.steps[:-1]):
            return 1 << 10
        return self.steps[-1].get(loop.name, 0) if self.steps else 0

    def moved_by(self, loop: Loop) -> bool:
        return any([loop.name in steps for steps in self.steps])  # noqa: C419  # two or three of them


def tree_features(tree: LoopTree) -> Mapping[str, float]:
    """Named numbers of a schedule, most of them logarithms to base 2; the same names for every
    kernel of a target. Those of groups are there for targets with work-items.
    """
    kernel, target = tree.kernel, tree.target
    main = max(range(len(kernel.stages)), key=lambda i: _work(kernel, i))
    accesses = tuple(_accesses(tree, main))
    own = tree.own(main)
    serial = (*tree.outer, *(x for x in own if not x.kind.is_register and x.stage == main))
    registers = (*tree.shared_registers, *(x for x in own if x.kind.is_register))
    lane = tree.lane_loop(main)
    lanes = lane.extent if lane is not None else 1
    tile = math.prod(x.extent for x in registers)
    moved = sum(
        math.prod(x.extent for x in registers if a.moved_by(x) and x is not lane)
        for a in accesses
        if a.read
    )
    found = {
        "log_flops": _log(kernel.flops),
        "log_flops_per_byte": _log(kernel.flops / max(1, kernel.unique_bytes)),
        "stages": float(len(kernel.stages)),
        "reduces": float(isinstance(kernel.stages[main], Reduce)),
        "lanes": float(lanes),
        "group": float(lane is not None and lane.kind is LoopKind.GROUP),
        "reduced_lanes": float(lane is not None and lane.reduce),
        "log_tile": _log(tile),
        "log_vectors": _log(tile / lanes),
        "accumulators": float(accumulators(tree, main)) / target.registers,
        "log_reduced": _log(math.prod(x.extent for x in registers if x.reduce)),
        "log_loads_per_work": _log(moved) - _log(tile / lanes),
        "contiguous": float(sum(lane is not None and a.stride(lane) == 1 for a in accesses)),
        "strided": float(sum(lane is not None and a.stride(lane) > 1 for a in accesses)),
        "stored_stride": _log(
            max((a.stride(lane) for a in accesses if not a.read), default=0) if lane else 0
        ),
        "log_regions": _log(math.prod(x.extent for x in tree.outer)),
        "partials": _log(math.prod(x.extent for x in tree.partial)),
        "depth": float(len(serial)),
        "threads": float(math.prod(x.count for x in serial if x.kind is LoopKind.THREAD)),
        "idle": _idle(serial),
        "thread_at": float(
            next((i for i, x in enumerate(serial) if x.kind is LoopKind.THREAD), -1)
        ),
        "waste": _waste(tree),
        "staged": float(len(tree.staged)),
        "packed_at_load": float(sum(s.at == "load" for s in tree.staged)),
        "log_staged_bytes": _log(sum(_staged(tree, accesses, s.param, s.at) for s in tree.staged)),
        "kept": float(len(tree.kept)),
        "streamed": float(len(tree.streamed)),
        "prefetched": float(len(tree.prefetched)),
        "other_lanes": float(
            sum(tree.lane_loop(i) is not None for i in range(len(kernel.stages)) if i != main)
        ),
    }
    touched = _touched(accesses, registers, serial)
    for level in range(LEVELS):
        loop = serial[-1 - level] if level < len(serial) else None
        found[f"log_bytes{level}"] = _log(sum(touched[min(level, len(serial))]))
        found[f"log_trips{level}"] = _log(loop.extent if loop is not None else 0)
        found[f"reduce{level}"] = float(loop.reduce) if loop is not None else -1.0
    for cache, nbytes in (("l1", target.l1_bytes), ("l2", target.l2_bytes)):
        found[f"log_missed_{cache}"] = _missed(accesses, serial, touched, nbytes)
    return found | _groups(tree) if target.has_work_items else found


def _groups(tree: LoopTree) -> dict[str, float]:
    """Division of the work on a GPU: a kernel of few groups leaves units idle, one of few items a
    group leaves lanes idle.
    """
    groups = math.prod(x.extent for x in tree.loops if x.kind is LoopKind.THREAD)
    return {"log_items": _log(tree.items), "log_groups": _log(groups)}


def _touched(
    accesses: Sequence[_Access], registers: Sequence[Loop], serial: Sequence[Loop]
) -> list[list[float]]:
    """Bytes of each access inside the registers, then inside the innermost serial loop as well, and
    so on.
    """
    # As ``_Access.elements`` has it, but each loop widens what is inside it.
    spans = [[1] * len(a.steps) for a in accesses]
    counts = [[1] * len(a.steps) for a in accesses]
    found: list[list[float]] = []
    for loops in (registers, *((x,) for x in reversed(serial))):
        for x in loops:
            for a, span, count in zip(accesses, spans, counts, strict=True):
                for dim, steps in enumerate(a.steps):
                    step = steps.get(x.name)
                    if step is not None:
                        span[dim] += step * (x.extent - 1)
                        count[dim] *= x.extent
        found.append(
            [
                math.prod(map(min, span, count), start=1.0) * a.itemsize
                for a, span, count in zip(accesses, spans, counts, strict=True)
            ]
        )
    return found


def _log(value: float) -> float:
    return math.log2(1.0 + value)


def _work(kernel: Kernel, stage: int) -> int:
    """Points of a stage, a reduction first among equals."""
    s = kernel.stages[stage]
    return 2 * kernel.points * math.prod(a.extent for a in s.axes) + isinstance(s, Reduce)


def _accesses(tree: LoopTree, stage: int) -> Iterator[_Access]:
    """Reads and writes of a stage; a reduction also writes what the kernel stores, once it is
    through.
    """
    s = tree.kernel.stages[stage]
    itemsizes = {p.name: p.dtype.itemsize for p in tree.kernel.params}
    axes = dict(tree.index)
    seen: set[Load] = set()
    for owner, x in loads(tree.kernel):
        if owner is s and x not in seen:
            seen.add(x)
            yield _Access(
                x.param, itemsizes[x.param], tuple(_steps(axes, i) for i in x.index), read=True
            )
    for other in tree.kernel.stages:
        if isinstance(other, Store) and (other is s or isinstance(s, Reduce)):
            yield _Access(
                other.param,
                itemsizes[other.param],
                tuple(_steps(axes, i) for i in other.index),
                read=False,
            )


def _steps(axes: Mapping[str, Index], index: Index) -> dict[str, int]:
    found: dict[str, int] = {}
    for axis in index.names():
        by = abs(index.coefficient(axis) or 1)
        along = axes.get(axis)
        if along is not None:
            for name in along.names():
                found[name] = by * abs(along.coefficient(name) or 1)
    return found


def _idle(serial: Sequence[Loop]) -> float:
    """The part of the team's time that shared loops leave unused, by their extents."""
    used = 1.0
    for x in serial:
        if x.kind is LoopKind.THREAD and x.count > 1:
            used *= x.extent / (x.count * math.ceil(x.extent / x.count))
    return 1.0 - used


def _waste(tree: LoopTree) -> float:
    """Extent covered beyond the real one, where tiles do not divide, in log units."""
    return sum(math.log2(tree.nominal(a.name) / a.extent) for a in tree.kernel.all_axes())


def _staged(tree: LoopTree, accesses: Sequence[_Access], param: str, at: str) -> float:
    inside = tree.inside(at)
    return max((a.elements(inside) * a.itemsize for a in accesses if a.param == param), default=0.0)


def _missed(
    accesses: Sequence[_Access],
    serial: Sequence[Loop],
    touched: Sequence[Sequence[float]],
    nbytes: int,
) -> float:
    """Bytes brought into a cache, in log units: what the largest nest that fits touches, for each
    time it is run.
    """
    fits = 0
    while fits < len(serial) and sum(touched[fits + 1]) <= nbytes:
        fits += 1
    outer = serial[: len(serial) - fits]
    total = 0.0
    for a, inside in zip(accesses, touched[fits], strict=True):
        again = len(outer)
        while again and not a.moved_by(outer[again - 1]):
            again -= 1  # it stays where it is while the next loop runs
        total += inside * math.prod([x.extent for x in outer[:again]])
    return _log(total)
