"""Finds what the stored values of a program depend on: loop variables, where that is all; or the
actor.

loaded from                                             depends on
    read-only memory, memory not written meanwhile      variables of the address and the mask
    private memory, memory that others write            the actor
a register after a loop that wrote it
    over threads or work-items                          the actor: each ran other iterations
    of any other kind                                   all but the loop's variable
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .. import program as p
from ..program import Instr

__all__ = ["Depends", "Memory", "depends"]

Depends = frozenset[str] | None
"""Names of the variables that a value is a function of; None: it also depends on the
actor that computes it.
"""


@dataclass(frozen=True, slots=True)
class Memory:
    """Loads that read the same in every actor: ``stable`` ones, by identity, and those of
    ``read_only`` buffers.

    Loops of kind ``actors`` give every actor other iterations.
    """

    stable: frozenset[int]
    read_only: frozenset[str]
    actors: Literal["thread", "local"]


def depends(body: tuple[Instr, ...], memory: Memory) -> dict[int, Depends]:
    """By the identity of a store, what the value it stores depends on."""
    found = _Values(memory)
    found.block(body)
    return found.stores


class _Values:
    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.values: dict[int, Depends] = {}
        self.registers: dict[str, Depends] = {}
        self.stores: dict[int, Depends] = {}

    def block(self, body: tuple[Instr, ...]) -> None:
        for i in body:
            if isinstance(i, p.For):
                self._for(i)
            elif isinstance(i, p.If):
                self._if(i)
            elif isinstance(i, p.Write):
                self.registers[i.name] = self.values[i.value]
            elif isinstance(i, p.Store):
                self.stores[id(i)] = _both(
                    self.stores.get(id(i), frozenset()), self.values[i.value]
                )
            elif isinstance(i, p.MatMul | p.MatLoad):  # of what other items hold
                self.values |= dict.fromkeys(i.ids)
            elif isinstance(i, p.Shuffle):
                self.values[i.id] = None
            elif isinstance(i, p.Valued):
                self.values[i.id] = self._value(i)

    def _value(self, i: Instr) -> Depends:
        if isinstance(i, p.Load):
            if i.buffer not in self.memory.read_only and id(i) not in self.memory.stable:
                return None
            return _both(i.offset.names(), frozenset() if i.mask is None else self.values[i.mask])
        if isinstance(i, p.Position):
            return i.index.names()
        if isinstance(i, p.Test):
            return i.valid.names()
        if isinstance(i, p.Read):
            return self.registers.get(i.name)
        if isinstance(i, p.Number):
            return frozenset()
        used = (
            i.args
            if isinstance(i, p.Compute)
            else (i.mask, i.yes, i.no)
            if isinstance(i, p.Select)
            else None
        )
        if used is None:
            assert isinstance(i, p.Convert | p.Splat | p.Fold)  # all others have no value
            used = (i.arg,)
        found: Depends = frozenset()
        for a in used:
            found = _both(found, self.values[a])
        return found

    def _for(self, i: p.For) -> None:
        stops = frozenset[str]().union(*(s.names() for s in i.stops))
        written = _written(i.body)
        while True:  # each round adds names, or the actor: it ends
            start = dict(self.registers)
            self.block(i.body)
            self.registers = {
                n: _both(start[n], d) if n in start else d for n, d in self.registers.items()
            }
            if self.registers == start:
                break
        shared_out = i.kind in ("local", self.memory.actors)
        for name in written:
            left = self.registers[name]
            self.registers[name] = None if left is None or shared_out else left - {i.var} | stops

    def _if(self, i: p.If) -> None:
        before = dict(self.registers)
        self.block(i.body)
        yes, self.registers = self.registers, before
        self.block(i.orelse)
        for name in _written(i.body) | _written(i.orelse):
            either = _both(yes.get(name, frozenset()), self.registers.get(name, frozenset()))
            self.registers[name] = _both(either, i.valid.names())


def _written(body: tuple[Instr, ...]) -> set[str]:
    return {i.name for i in p.walk(body) if isinstance(i, p.Write)}


def _both(a: Depends, b: Depends) -> Depends:
    return None if a is None or b is None else a | b
