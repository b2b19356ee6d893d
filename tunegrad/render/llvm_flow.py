"""Loops and branches as LLVM IR. A register is the value last written to it, or a phi where paths
meet.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from tunegrad.errors import InternalError
from tunegrad.ir.index import Index
from tunegrad.ir.program import (
    Compute,
    Convert,
    Fold,
    For,
    If,
    Instr,
    Load,
    Number,
    Position,
    Program,
    Read,
    Register,
    Select,
    Splat,
    Store,
    Test,
    TileConfig,
    TileLoad,
    TileMul,
    TileStore,
    TileZero,
    Write,
)
from tunegrad.ir.target import Target

from .llvm_index import Indices, Scope

__all__ = ["Flow", "Held"]

_NO_REGISTERS = frozenset(
    (
        Compute,
        Load,
        Read,
        Splat,
        Number,
        Store,
        Convert,
        Fold,
        Select,
        Position,
        Test,
        TileConfig,
        TileZero,
        TileLoad,
        TileMul,
        TileStore,
    )
)
"""Instructions that write and declare no register, and hold none that do; most are."""


@dataclass(frozen=True, slots=True)
class Held:
    """The value in a register here, of an LLVM type."""

    type: str
    value: str


class Flow(Indices):
    """Turns loops and branches into text; a subclass has the instructions in them."""

    def __init__(self, program: Program, target: Target | None) -> None:
        super().__init__(program, target)
        self.out: list[str | list[str]] = []
        self.registers: dict[str, Held] = {}
        self.writes: dict[int, tuple[str, ...]] = {}
        self.label = "entry"

    @abstractmethod
    def block(self, body: tuple[Instr, ...]) -> None:
        """Appends the instructions of a body."""

    def emit(self, text: str) -> None:
        self.out.append(f"  {text}")

    def start(self, label: str) -> None:
        self.out.append(f"{label}:")
        self.label = label

    def loop(self, f: For) -> None:
        limit = self._minimum(f.stops)
        start, stop = "0", limit
        if f.kind == "thread" and f.count > 1:
            start, stop = self._share(f, limit)
        elif f.kind == "local":
            raise InternalError(
                f"program {self.program.name}: loop {f.var} over work-items on a CPU"
            )
        sure = f.kind == "serial" and all(s.lo > 0 for s in f.stops)
        n = self.number()
        head, end = f"loop{n}", f"end{n}"
        skipped, carried = self.label, self._carried(f.body)
        if not sure:
            guard = self.fresh()
            self.emit(f"{guard} = icmp slt i64 {start}, {stop}")
            self.emit(f"br i1 {guard}, label %pre{n}, label %{end}")
            self.start(f"pre{n}")
        before = self.label
        self.emit(f"br label %{head}")
        self.start(head)
        v, following = f"%v{n}", f"%n{n}"
        latch = f"latch{n}"
        self.emit(f"{v} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        phis: list[str] = []
        pre: list[str] = []
        self.out += (phis, pre)
        for name, held in carried.items():
            self.registers[name] = Held(held.type, self.fresh())
        begun = {name: self.registers[name] for name in carried}
        self.scopes.append(Scope(pre, {}))
        saved = self.vars.get(f.var), self.depth.get(f.var)
        self.vars[f.var], self.depth[f.var] = v, len(self.scopes) - 1
        self.block(f.body)
        self.scopes.pop()
        if saved[0] is not None and saved[1] is not None:
            self.vars[f.var], self.depth[f.var] = saved[0], saved[1]
        else:
            del self.vars[f.var], self.depth[f.var]
        self.emit(f"br label %{latch}")
        self.start(latch)
        self.emit(f"{following} = add nuw nsw i64 {v}, 1")
        self.emit(f"%c{n} = icmp slt i64 {following}, {stop}")
        self.emit(f"br i1 %c{n}, label %{head}, label %{end}")
        self.start(end)
        for name, held in carried.items():
            last = self.registers[name]
            phis.append("  " + _phi(begun[name], (held.value, before), (last.value, latch)))
            if not sure:
                self.registers[name] = met = Held(held.type, self.fresh())
                self.emit(_phi(met, (held.value, skipped), (last.value, latch)))

    def _carried(self, body: tuple[Instr, ...]) -> dict[str, Held]:
        """The registers that a body writes and did not declare, and what they hold now."""
        return {name: self.registers[name] for name in self._writes(body)}

    def _writes(self, body: tuple[Instr, ...]) -> tuple[str, ...]:
        """The registers that a body writes and did not declare, looked for once: every loop around
        it asks again.
        """
        found = self.writes.get(id(body))
        if found is None:
            own: set[str] = set()
            names: dict[str, None] = {}
            for i in body:
                if type(i) in _NO_REGISTERS:
                    continue
                if isinstance(i, Write):
                    if i.name not in own:
                        names[i.name] = None
                elif isinstance(i, Register):
                    own.add(i.name)
                elif isinstance(i, For):
                    names.update((n, None) for n in self._writes(i.body) if n not in own)
                elif isinstance(i, If):
                    inner = (*self._writes(i.body), *self._writes(i.orelse))
                    names.update((n, None) for n in inner if n not in own)
            found = self.writes[id(body)] = tuple(names)
        return found

    def _minimum(self, stops: tuple[Index, ...]) -> str:
        total = self.index(stops[0])
        for s in stops[1:]:
            name = self.fresh()
            self.declared.add("i64 @llvm.smin.i64(i64, i64)")
            self.emit(f"{name} = call i64 @llvm.smin.i64(i64 {total}, i64 {self.index(s)})")
            total = name
        return total

    def _share(self, f: For, limit: str) -> tuple[str, str]:
        t = self._atom_of_thread(f.inner, f.count)
        names = [self.fresh() for _ in range(5)]
        self.emit(f"{names[0]} = mul i64 {limit}, {t}")
        self.emit(f"{names[1]} = sdiv i64 {names[0]}, {f.count}")
        self.emit(f"{names[2]} = add i64 {t}, 1")
        self.emit(f"{names[3]} = mul i64 {limit}, {names[2]}")
        self.emit(f"{names[4]} = sdiv i64 {names[3]}, {f.count}")
        return names[1], names[4]

    def _atom_of_thread(self, inner: int, count: int) -> str:
        scope = self.scopes[0]
        q = self.cached(scope, ("tid/", inner), f"udiv i64 %tid, {inner}") if inner > 1 else "%tid"
        return self.cached(scope, ("tid%", q, count), f"urem i64 {q}, {count}")

    def branch(self, i: If) -> None:
        n = self.number()
        cond = self.condition(i.valid)
        other = f"else{n}" if i.orelse else f"fi{n}"
        self.emit(f"br i1 {cond}, label %then{n}, label %{other}")
        carried = self._carried(i.body) | self._carried(i.orelse)
        missed = self.label
        self.start(f"then{n}")
        self.block(i.body)
        yes, taken = self.label, {name: self.registers[name] for name in carried}
        self.registers.update(carried)
        self.emit(f"br label %fi{n}")
        if i.orelse:
            self.start(f"else{n}")
            self.block(i.orelse)
            missed = self.label
            self.emit(f"br label %fi{n}")
        self.start(f"fi{n}")
        for name, held in taken.items():
            met, no = Held(held.type, self.fresh()), self.registers[name]
            self.emit(_phi(met, (held.value, yes), (no.value, missed)))
            self.registers[name] = met


def _phi(to: Held, first: tuple[str, str], second: tuple[str, str]) -> str:
    """Two paths meet: each with its value and the block that it comes from."""
    (a, here), (b, there) = first, second
    return f"{to.value} = phi {to.type} [ {a}, %{here} ], [ {b}, %{there} ]"
