"""Counts the registers that an item can not do without: those that a loop carries from one
iteration to the next.

for k in 64:           c0 to c7 are read and written by each iteration,
  c0 = c0 + a0 * b0    so all of them are alive while it runs: 8 registers
  ...
"""

from __future__ import annotations

from .program import For, If, Instr, Pipeline, Program, Read, Register, Write, walk

__all__ = ["carried_registers"]

_WORD = 4


def carried_registers(program: Program) -> int:
    """The most registers of 32 bits that one serial loop carries; a compiler needs more."""
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
