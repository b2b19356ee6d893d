"""Counts of a program: its floating-point operations, its carried registers."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from .expr import Op
from .program import (
    Compute,
    Fold,
    For,
    If,
    Instr,
    Pipeline,
    Program,
    Read,
    Register,
    Select,
    TileMul,
    Write,
    walk,
)

__all__ = [
    "carried_registers",
    "executed_flops",
]

_FLOPS = {Op.FMA: 2, Op.DOT2: 3, Op.DOT2_ADD: 4, Op.LOW: 0, Op.HIGH: 0, Op.TF32: 0}

_MAX_STEPS = 200_000
"""Blocks that are visited, at most: loops whose bodies do not depend on them are multiplied,
the others are run.
"""


def executed_flops(program: Program) -> int | None:
    """Operations of one run, all lanes and all threads: arithmetic and selections count 1, FMA 2,
    DOT2_ADD 4, a fold 1.

    None for a program of work-items, and for one whose conditions take too long to follow.

    for a in 5:
        if a < 4:  fma f32x16       4 times 2 x 16 operations, of masked lanes too
    """
    if program.local != 1:
        return None
    try:
        return _Counter().block(program.body, {}, program.threads)
    except _TooManyError:
        return None


class _TooManyError(Exception):
    """More blocks than are worth visiting."""


class _Counter:
    """Remembers what a block costs under the loop variables that its conditions mention.

    Mutable.
    """

    def __init__(self) -> None:
        self._names: dict[int, frozenset[str]] = {}
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self._steps = 0

    def block(self, body: tuple[Instr, ...], env: Mapping[str, int], team: int) -> int:
        """Operations of a block; ``team`` threads run it, each the whole of it."""
        key = id(body), tuple(env[name] for name in sorted(self.names(body)))
        if key not in self._known:
            self._steps += 1
            if self._steps > _MAX_STEPS:
                raise _TooManyError
            self._known[key] = sum(self._one(i, env, team) for i in body)
        return self._known[key]

    def names(self, body: tuple[Instr, ...]) -> frozenset[str]:
        """Variables of loops outside that decide what runs in a block."""
        if id(body) not in self._names:
            found: frozenset[str] = frozenset()
            for i in body:
                if isinstance(i, For):
                    found |= self.names(i.body) - {i.var}
                    found |= {name for stop in i.stops for name in stop.names()}
                elif isinstance(i, If):
                    found |= self.names(i.body) | self.names(i.orelse)
                    found |= i.valid.names()
            self._names[id(body)] = found
        return self._names[id(body)]

    def _one(self, i: Instr, env: Mapping[str, int], team: int) -> int:
        match i:
            case Compute() if i.vtype.dtype.is_float:
                return _FLOPS.get(i.op, 1) * i.vtype.lanes * team
            case Select() if i.vtype.dtype.is_float:
                return i.vtype.lanes * team
            case Fold() if i.vtype.dtype.is_float:
                return team
            case TileMul(_, _, _, unit) if not unit.takes_bytes:
                return _FLOPS[Op.DOT2_ADD] * prod(unit.shape) * team
            case For():
                return self._loop(i, env, team)
            case If():
                return self.block(i.body if i.valid.holds(env) else i.orelse, env, team)
            case _:
                return 0

    def _loop(self, i: For, env: Mapping[str, int], team: int) -> int:
        trips = max(0, min(stop.evaluate(env) for stop in i.stops))
        # the iterations of a thread loop are shared out: together its threads run each of them once
        inside = max(1, team // i.count) if i.kind == "thread" else team
        if i.var not in self.names(i.body):
            return trips * self.block(i.body, env, inside) if trips else 0
        return sum(self.block(i.body, {**env, i.var: value}, inside) for value in range(trips))


_WORD = 4


def carried_registers(program: Program) -> int:
    """The most registers of 32 bits that one serial loop carries; a compiler needs more.

    for k in 64:           c0 to c7 are read and written by each iteration,
      c0 = c0 + a0 * b0    so all of them are alive while it runs: 8 registers
      ...
    """
    words = {
        i.name: -(-i.vtype.lanes * i.vtype.dtype.itemsize // _WORD)
        for i in walk(program.body)
        if isinstance(i, Register)
    }
    return max((sum(words.get(n, 0) for n in c) for c in _carried(program.body)), default=0)


def _carried(body: tuple[Instr, ...]) -> list[frozenset[str]]:
    """For every serial loop, the variables that are declared outside of it and read and written
    inside.
    """
    found: list[frozenset[str]] = []
    for i in body:
        if isinstance(i, If):
            found += _carried(i.body) + _carried(i.orelse)
        elif isinstance(i, For | Pipeline):
            inside = i.copies + i.body if isinstance(i, Pipeline) else i.body
            found += _carried(inside)
            if isinstance(i, Pipeline) or i.kind == "serial":
                all_of = list(walk(inside))
                own = {x.name for x in all_of if isinstance(x, Register)}
                read = {x.name for x in all_of if isinstance(x, Read)}
                written = {x.name for x in all_of if isinstance(x, Write)}
                found.append(frozenset((read & written) - own))
    return found
