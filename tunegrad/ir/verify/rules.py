"""The ground that the rules of programs share: a scope, values by their ids, and the message of a
broken rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Never

from tunegrad.errors import VerifyError

from .. import program as p
from ..dtypes import DType
from ..index import Index, Valid
from ..program import Instr, Program, VType
from ..target import Target
from .prove import Facts

__all__ = ["Rules", "Scope", "describe"]


def describe(instr: Instr) -> str:
    """The instruction as the program prints it, without its body."""
    return Program("", (), (), (), (instr,)).text.splitlines()[1].strip()


@dataclass(slots=True)
class Scope:
    """Names that are visible in one block: it copies its parent's tables, so leaving a block
    forgets.
    """

    types: dict[int, VType] = field(default_factory=dict)
    tests: dict[int, Valid] = field(default_factory=dict)
    registers: dict[str, VType] = field(default_factory=dict)
    extents: dict[str, int] = field(default_factory=dict)
    loops: tuple[p.For, ...] = ()
    facts: Facts = ()
    divergent: frozenset[str] = frozenset()
    alone: str = ""
    dead: bool = False
    ahead: bool = False
    tiles: tuple[int, ...] = ()

    def inner(self) -> Scope:
        return Scope(
            dict(self.types), dict(self.tests), dict(self.registers), dict(self.extents),
            self.loops, self.facts, self.divergent, self.alone, self.dead, self.ahead,
            self.tiles,
        )  # fmt: skip


class Rules(ABC):
    """One program, what was seen of it so far, and what every rule asks. Mutable."""

    def __init__(self, program: Program, target: Target | None, grouped: bool) -> None:
        self.program, self.target, self.grouped = program, target, grouped
        self.buffers: dict[str, tuple[DType, int, bool]] = {}
        self.ids: set[int] = set()
        self.written: set[str] = set()
        self.unproved: list[Instr] = []

    @abstractmethod
    def _block(self, body: tuple[Instr, ...], s: Scope) -> None:
        """Check every instruction of a block."""

    def _broken(self, what: Instr | str, why: str) -> Never:
        place = what if isinstance(what, str) else f"`{describe(what)}`"
        raise VerifyError(f"program {self.program.name}: {place}: {why}")

    def _use(self, i: Instr, value: int, s: Scope) -> VType:
        t = s.types.get(value)
        if t is None:
            self._broken(i, f"%{value} is not defined before it, in its block or around it")
        return t

    def _same(self, i: Instr, what: str, have: VType, want: VType) -> None:
        if have != want:
            self._broken(i, f"{what} is {have}, not {want}")

    def _lanes(self, i: Instr, have: VType, lanes: int) -> None:
        if have.lanes != lanes:
            self._broken(i, f"the argument has {have.lanes} lanes, not {lanes}")

    def _names(self, i: Instr, index: Index, s: Scope, lane: str = "", lanes: int = 1) -> None:
        """Every variable is in scope, and means the range that its loop or lane gives it; what is
        read from memory is read from an input of integers.
        """
        for e in index.elements():
            known = self.buffers.get(e.buffer)
            if known is None or known[2] or not known[0].is_int or known[1] != e.size:
                self._broken(i, f"{e}: {e.buffer} is not an input of {e.size} integers")
        if lane and lane in s.extents:
            self._broken(i, f"its lane variable {lane} is the variable of a loop around it")
        for v in index.variables():
            extent = lanes if v.name == lane else s.extents.get(v.name)
            if extent is None:
                self._broken(i, f"{v.name} is not a loop around it, nor its lane variable")
            if (v.lo, v.hi) != (0, extent - 1):
                self._broken(i, f"{v.name} runs over [0, {extent}), not [{v.lo}, {v.hi + 1})")
