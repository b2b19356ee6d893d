"""Facts of a program for a cost model: a few dozen numbers, most of them logarithms to base 2.

    for k0 in 4:                    level 2: bytes touched inside, 2nd extent
        for m in 16:                level 1: bytes touched inside, innermost extent
            fma f32x16 x 12         work, vector share, instructions of the hot block
            load f32x16 x 2         bytes loaded, work per byte

Levels are counted from the inside, along the nest that does most of the work. All is read off the program's text:
conditions count as taken, and a loop as long as its extent. The choice of facts follows Zheng et al., "Ansor",
OSDI 2020, appendix B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tunegrad.ir.program import Compute, For, If, Instr, Load, Program, Read, Select, Store, Write

__all__ = ["program_features"]

LEVELS = 5
"""Loops, from the inside, whose extent and working set are given."""


@dataclass(frozen=True, slots=True)
class _Access:
    """A load or store, and the loops around it that move it: (position in the nest, extent)."""

    buffer: str
    offset: str
    bytes_: int
    moved_by: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Tally:
    """What is added up over the whole program. Mutable. ``hot`` is the nest that does most work so far."""

    work: float = 0.0
    vector_work: float = 0.0
    loaded_bytes: float = 0.0
    stored_bytes: float = 0.0
    moves: float = 0.0
    masked: float = 0.0
    instructions: int = 0
    hot_work: float = -1.0
    hot: tuple[For, ...] = ()
    hot_size: int = 0
    accesses: list[tuple[tuple[For, ...], _Access]] = field(default_factory=list)


def program_features(program: Program) -> Mapping[str, float]:
    """Named numbers of a program; the same names for every program."""
    tally = _Tally()
    _count(program.body, (), 1.0, program.threads * program.local, tally)
    extents = {a.name: a.size * a.dtype.itemsize for a in program.allocs}
    found = {
        "log_work": _log(tally.work),
        "vector_share": tally.vector_work / tally.work if tally.work else 0.0,
        "log_loaded_bytes": _log(tally.loaded_bytes),
        "log_stored_bytes": _log(tally.stored_bytes),
        "log_work_per_byte": _log(tally.work) - _log(tally.loaded_bytes + tally.stored_bytes),
        "log_moves_per_work": _log(tally.moves) - _log(tally.work),
        "masked_share": tally.masked / max(1.0, tally.loaded_bytes + tally.stored_bytes),
        "instructions": float(tally.instructions),
        "hot_instructions": float(tally.hot_size),
        "depth": float(len(tally.hot)),
        "threads": float(program.threads),
        "log_scratch_bytes": _log(float(sum(extents.values()))),
        "packs": float(len(program.packs)),
        "idle_share": _idle(program),
    }
    for level, (extent, nbytes) in enumerate(_levels(tally), 1):
        found[f"log_extent{level}"] = _log(float(extent))
        found[f"log_bytes{level}"] = _log(float(nbytes))
    return found


def _log(value: float) -> float:
    return math.log2(1.0 + value)


def _count(body: tuple[Instr, ...], nest: tuple[For, ...], runs: float, team: int, tally: _Tally) -> None:
    """Add up one block that runs ``runs`` times on each of ``team`` threads."""
    work, size = 0.0, 0
    for i in body:
        tally.instructions += 1
        size += 1
        match i:
            case For():
                inside = max(1, team // i.count) if i.kind == "thread" else team
                _count(i.body, (*nest, i), runs * i.extent, inside, tally)
            case If():
                _count(i.body, nest, runs, team, tally)
                _count(i.orelse, nest, 0.0, team, tally)
            case Compute() | Select():
                lanes = i.vtype.lanes * (2 if len(i.args) == 3 else 1) if isinstance(i, Compute) else i.vtype.lanes
                work += runs * team * lanes
                tally.vector_work += runs * team * lanes if i.vtype.lanes > 1 else 0.0
            case Load() | Store():
                _touch(i, nest, runs * team, tally)
            case Read() | Write():
                tally.moves += runs * team
            case _:
                pass
    tally.work += work
    if work > tally.hot_work:
        tally.hot_work, tally.hot, tally.hot_size = work, nest, size


def _touch(i: Load | Store, nest: tuple[For, ...], runs: float, tally: _Tally) -> None:
    nbytes = i.vtype.lanes * i.vtype.dtype.itemsize
    if isinstance(i, Load):
        tally.loaded_bytes += runs * nbytes
    else:
        tally.stored_bytes += runs * nbytes
    tally.masked += runs * nbytes if i.mask is not None else 0.0
    names = i.offset.names()
    moved_by = tuple((at, loop.extent) for at, loop in enumerate(nest) if loop.var in names)
    tally.accesses.append((nest, _Access(i.buffer, i.offset.key, nbytes, moved_by)))


def _levels(tally: _Tally) -> Iterator[tuple[int, int]]:
    """(extent, bytes touched inside) of each loop of the hot nest from the inside; (1, the outermost's) beyond it."""
    nbytes = 0
    for level in range(LEVELS):
        at = len(tally.hot) - 1 - level
        if at < 0:
            yield 1, nbytes
            continue
        loop = tally.hot[at]
        different: dict[tuple[str, str], int] = {}
        for nest, access in tally.accesses:
            if len(nest) > at and nest[at] is loop:
                inside = math.prod(extent for position, extent in access.moved_by if position >= at)
                different[access.buffer, access.offset] = access.bytes_ * inside
        nbytes = sum(different.values())
        yield loop.extent, nbytes


def _idle(program: Program) -> float:
    """The part of the team's time that the outermost shared loop leaves unused, by its extent."""
    for i in program.body:
        if isinstance(i, For) and i.kind == "thread" and i.count > 1:
            return 1.0 - i.extent / (i.count * math.ceil(i.extent / i.count))
    return 0.0
