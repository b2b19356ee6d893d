"""Program to LLVM IR text, for a CPU.

    define void @NAME(ptr %buffers, ptr %workspace, i64 %tid, ptr %team)    one call a thread

loads the buffer pointers, carves the scratch out of the workspace and calls the body, whose
pointers are all ``noalias``, but for an output that may lie over an input, and that input. Vectors
are explicit. Addresses are built outside in: the part of an offset that an outer loop decides is
computed in that loop, so LLVM has nothing to hoist. A register is the value last written to it, or
a phi where paths meet.

    step of the lanes  0                1           -1           2 .. 4       any other
    a load is          a scalar, splat  one vector  one, turned  vectors and  one for each lane
                                                                 shuffles

Loads whose lanes are far apart but that together read neighbours are transposed in registers
(``llvm_transpose``).
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

from tunegrad.errors import InternalError
from tunegrad.ir import program as ir
from tunegrad.ir.dtypes import BOOL, F32, I64, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.index import Atom, Element, FloorDiv, Index, Valid, Var, as_index
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass

from . import llvm_operations
from .llvm_tiles import Tiles
from .llvm_values import (
    LlvmValues,
    literal,
    ltype,
    mask_type,
    memory_type,
    runs_of,
    scalar_type,
    shuffle_mask,
    suffix_of,
    transposition,
)
from .math import FUNCTIONS, definitions

_COMPARE = {
    Op.LT: ("olt", "slt", "ult"), Op.EQ: ("oeq", "eq", "eq"), Op.NE: ("une", "ne", "ne")
}  # fmt: skip
"""Of floats, of integers with a sign, of those without (bools among them)."""

_STEPPING = frozenset((Op.ROUND, Op.ADD, Op.SUB))
"""Operations that quantise, and take off what was added."""

ALIGN = 64
"""Bytes that parameters and scratch are aligned to, at least."""

_NEAR = 4096
"""Bytes within which accesses under one condition share the choice of an address, and that the
steps of a loop are apart from its first one at the most, for which it is chosen.
"""

_ADDING = frozenset((Op.FMA, Op.DOT2_ADD, Op.DOT4_ADD, Op.DOT2I_ADD))
"""Operations that add a product to a sum."""

_STARTS = 8
"""Addresses that are begun before a loop, at most: half of a core's registers for them."""

_NEIGHBOURS = 4
"""Loads from one address that LLVM puts side by side, at most."""

_SHUFFLED = (2, 3, 4)
"""Steps between lanes at which whole vectors and shuffles cost less than a load for each lane."""


@dataclass(slots=True)
class Scope:
    """A loop body (or the function): where addresses that depend on its variable are computed, and
    the lines right before the loop.
    """

    lines: list[str]
    cache: dict[object, str]
    ahead: list[str]
    begun: dict[object, str]
    runs: dict[object, tuple[int, int]]


_NO_REGISTERS = frozenset(
    (
        ir.Compute,
        ir.Load,
        ir.Read,
        ir.Splat,
        ir.Number,
        ir.Store,
        ir.Convert,
        ir.Fold,
        ir.Select,
        ir.Position,
        ir.Test,
        ir.TileConfig,
        ir.TileZero,
        ir.TileLoad,
        ir.TileMul,
        ir.TileStore,
    )
)
"""Instructions that write and declare no register, and hold none that do; most are."""


@dataclass(frozen=True, slots=True)
class Held:
    """The value in a register here, of an LLVM type."""

    type: str
    value: str


_STAGGER = 192
"""Bytes between scratch buffers, so that equal offsets of two of them do not share a cache set."""


def _alloc_bytes(a: ir.Alloc) -> int:
    return -(-a.size * a.dtype.itemsize // ALIGN) * ALIGN + _STAGGER


def workspace_bytes(program: ir.Program) -> int:
    """Bytes of scratch that one launch needs: team buffers once, thread buffers per thread."""
    return sum(
        _alloc_bytes(a) * (program.threads if a.space == "thread" else 1) for a in program.allocs
    )


def render_llvm(program: ir.Program, target: Target | None = None) -> str:
    """The LLVM IR module of a program; deterministic.

    Without a target it is one that every target can compile.
    """
    return _Renderer(program, target).module()


class _Renderer(LlvmValues):
    """The text of one program: its body, and the values, addresses and blocks so far."""

    def __init__(self, program: ir.Program, target: Target | None) -> None:
        super().__init__(target)
        self.program = program
        self.scopes: list[Scope] = []
        self.depth: dict[str, int] = {}
        self.vars: dict[str, str] = {}
        buffers: list[ir.Buffer | ir.Alloc] = [*program.params, *program.allocs]
        self.pointer = {b.name: f"%b{i}" for i, b in enumerate(buffers)}
        self.dtypes = {b.name: b.dtype for b in buffers}
        self.out: list[str | list[str]] = []
        self.registers: dict[str, Held] = {}
        self.vectors = target.registers if target is not None else 1 << 20
        self.writes: dict[int, tuple[str, ...]] = {}
        self.label = "entry"
        self._fma: dict[tuple[str, int], tuple[str, str]] = {}
        self.streams, self.zeros = False, 0
        self.tests: dict[str, Valid] = {}
        self.free, self.fmas = self.vectors, 0
        over = program.overwritten
        self.aliased = frozenset((*over, *over.values()))
        self.read_only = frozenset(
            b.name for b in program.params if b.role != "out" and b.name not in over
        )
        self.tiles = Tiles(program, target, self, self.address)
        self._handlers = self._handled()

    # -- module

    def module(self) -> str:
        p = self.program
        name = p.name
        buffers: list[ir.Buffer | ir.Alloc] = [*p.params, *p.allocs]
        pre: list[str] = []
        self.scopes.append(Scope(pre, {}, [], {}, {}))
        self.out.append(pre)
        self.block(p.body)
        body = "\n".join([x if isinstance(x, str) else "\n".join(x) for x in self.out if x])
        args = ", ".join(
            [
                *(
                    f"ptr {'' if b.name in self.aliased else 'noalias '}nocapture "
                    f"{self.pointer[b.name]}"
                    for b in buffers
                ),
                "i64 %tid",
                "ptr %team",
            ]
        )
        spills = 2 * len(self.registers) > self.vectors
        kept = ' "stackrealign"' if spills else ""  # else they may span two cache lines
        text = [
            f"define internal void @{name}.body({args}) noinline nounwind{kept} {{",
            "entry:",
            "  %sink = alloca <64 x i8>, align 64",
            *self.tiles.prologue(),
            body,
            *self.tiles.epilogue(),
            *(["  fence seq_cst"] if self.streams else []),
            "  ret void",
            "}",
            *self._wrapper(buffers),
            "declare void @tg_barrier(ptr)",
            *self._zeros(),
            *self.tiles.constants(),
            *(f"declare {d}" for d in sorted(self.declared)),
            *(self.defined[k] for k in sorted(self.defined)),
            *(["!0 = !{i32 1}"] if self.streams else []),
        ]
        return "\n".join(text) + "\n"

    def _zeros(self) -> list[str]:
        """What loads of padding read, where there are some."""
        kind = f"[{self.zeros} x i8] zeroinitializer, align {ALIGN}"
        return [f"@tg.zero = private unnamed_addr constant {kind}"] if self.zeros else []

    def _wrapper(self, buffers: list[ir.Buffer | ir.Alloc]) -> list[str]:
        p = self.program
        lines = [
            f"define void @{p.name}(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) nounwind {{",
        ]
        names, offset = [], 0
        for i, b in enumerate(buffers):
            if isinstance(b, ir.Buffer):
                lines.append(f"  %a{i} = getelementptr ptr, ptr %buffers, i64 {i}")
                lines.append(f"  %p{i} = load ptr, ptr %a{i}")
            elif b.space == "thread":
                lines.append(f"  %o{i} = mul i64 %tid, {_alloc_bytes(b)}")
                lines.append(f"  %q{i} = add i64 %o{i}, {offset}")
                lines.append(f"  %p{i} = getelementptr i8, ptr %workspace, i64 %q{i}")
                offset += _alloc_bytes(b) * p.threads
            else:
                lines.append(f"  %p{i} = getelementptr i8, ptr %workspace, i64 {offset}")
                offset += _alloc_bytes(b)
            names.append(f"ptr %p{i}")
        args = ", ".join([*names, "i64 %tid", "ptr %team"])
        return [*lines, f"  call void @{p.name}.body({args})", "  ret void", "}"]

    def block(self, body: tuple[ir.Instr, ...]) -> None:
        groups = runs_of(body, self.read_only)
        if not groups:
            handlers = self._handlers
            for i in body:
                handlers[type(i)](i)
            return
        together = {load.id: group for group in groups for load in group}
        for i in body:
            if isinstance(i, ir.Load) and i.id in together:
                if i.id not in self.names:
                    self.transposed(together[i.id])
            else:
                self.instr(i)

    def instr(self, i: ir.Instr) -> None:
        self._handlers[type(i)](i)

    def _handled(self) -> dict[type, Callable[[Any], None]]:
        """The method that emits each type of instruction."""
        return {
            ir.Compute: self.compute, ir.Load: self.load, ir.Read: self._read,
            ir.Write: self._write, ir.Splat: self._splat, ir.Store: self.store,
            ir.Register: self._register, ir.Number: self._number, ir.For: self.loop,
            ir.If: self.branch, ir.Convert: self.convert, ir.Fold: self.fold,
            ir.Select: self._select, ir.Position: self.position, ir.Test: self.test,
            ir.Barrier: self._barrier, ir.TileConfig: self.tiles.config,
            ir.TileZero: self.tiles.zero, ir.TileLoad: self.tiles.load,
            ir.TileMul: self.tiles.multiply, ir.TileStore: self.tiles.store,
        }  # fmt: skip

    def _read(self, i: ir.Read) -> None:
        self.names[i.id], self.types[i.id] = self.registers[i.name].value, i.vtype

    def _write(self, i: ir.Write) -> None:
        self.registers[i.name] = Held(ltype(i.vtype), self.names[i.value])

    def _splat(self, i: ir.Splat) -> None:
        self.bind(i.id, i.vtype, self.splat(self.value(i.arg), i.vtype))

    def _register(self, i: ir.Register) -> None:
        self.registers[i.name] = Held(ltype(i.vtype), "poison")

    def _number(self, i: ir.Number) -> None:
        self.bind(i.id, i.vtype, literal(i.value, i.vtype))

    def _select(self, i: ir.Select) -> None:
        kind, mask = ltype(i.vtype), f"{mask_type(i.vtype.lanes)} {self.value(i.mask)}"
        self.define(
            i.id, i.vtype, f"select {mask}, {kind} {self.value(i.yes)}, {kind} {self.value(i.no)}"
        )

    def _barrier(self, _: ir.Barrier) -> None:
        if self.program.threads > 1:
            self.emit("call void @tg_barrier(ptr %team)")

    # -- loops, branches and registers

    def emit(self, text: str) -> None:
        self.out.append(f"  {text}")

    def start(self, label: str) -> None:
        self.out.append(f"{label}:")
        self.label = label

    def loop(self, f: ir.For) -> None:
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
        ahead: list[str] = []
        self.out.append(ahead)
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
        self.scopes.append(Scope(pre, {}, ahead, {}, {}))
        free, self.free = self.free, self.vectors - len(carried)
        saved = self.vars.get(f.var), self.depth.get(f.var)
        self.vars[f.var], self.depth[f.var] = v, len(self.scopes) - 1
        self.block(f.body)
        self.free = free
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

    def _carried(self, body: tuple[ir.Instr, ...]) -> dict[str, Held]:
        """The registers that a body writes and did not declare, and what they hold now."""
        return {name: self.registers[name] for name in self._writes(body)}

    def _writes(self, body: tuple[ir.Instr, ...]) -> tuple[str, ...]:
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
                if isinstance(i, ir.Write):
                    if i.name not in own:
                        names[i.name] = None
                elif isinstance(i, ir.Register):
                    own.add(i.name)
                elif isinstance(i, ir.For):
                    names.update((n, None) for n in self._writes(i.body) if n not in own)
                elif isinstance(i, ir.If):
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

    def _share(self, f: ir.For, limit: str) -> tuple[str, str]:
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

    def branch(self, i: ir.If) -> None:
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

    # -- indices and conditions

    def _depth(self, atom: Atom) -> int:
        if isinstance(atom, Var):
            return self.depth.get(atom.name, 0)
        return max((self.depth.get(n, 0) for n in atom.num.names()), default=0)

    def index(self, x: Index) -> str:
        """The i64 value of an index."""
        if not x.terms:
            return str(x.const)
        base = self._terms(x)
        if not x.const:
            return base
        scope = self.scopes[max(self._depth(a) for a, _ in x.terms)]
        return self.cached(scope, ("const", base, x.const), f"add i64 {base}, {x.const}")

    def cached(self, scope: Scope, key: object, code: str) -> str:
        found = scope.cache.get(key)
        if found is None:
            found = scope.cache[key] = self.fresh()
            scope.lines.append(f"  {found} = {code}")
        return found

    def _terms(self, x: Index) -> str:
        """The sum of the terms, outer loops' first; partial sums live where they are decided."""
        ordered = sorted(x.terms, key=lambda t: self._depth(t[0]))
        total = ""
        for atom, c in ordered:
            scope = self.scopes[self._depth(atom)]
            value = self._atom(atom)
            if c != 1:
                value = self.cached(scope, ("mul", value, c), f"mul nsw i64 {value}, {c}")
            total = (
                self.cached(scope, ("add", total, value), f"add nsw i64 {total}, {value}")
                if total
                else value
            )
        return total

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Var):
            if atom.name not in self.vars:
                raise InternalError(
                    f"program {self.program.name}: variable {atom.name} is not in scope"
                )
            return self.vars[atom.name]
        if isinstance(atom, Element):
            return self._element(atom)
        shift = max(0, -(atom.num.lo // atom.den))
        num = atom.num + shift * atom.den
        scope = self.scopes[self._depth(atom)]
        value = self.index(num)
        if isinstance(atom, FloorDiv):
            q = self.cached(scope, ("div", value, atom.den), f"udiv i64 {value}, {atom.den}")
            return self.cached(scope, ("sub", q, shift), f"sub i64 {q}, {shift}") if shift else q
        return self.cached(scope, ("rem", value, atom.den), f"urem i64 {value}, {atom.den}")

    def _element(self, e: Element) -> str:
        """An integer from memory as an index: wrapped once, then clamped."""
        scope, dtype = self.scopes[self._depth(e)], self.dtypes[e.buffer]
        at = self.index(e.num)

        def step(code: str) -> str:
            return self.cached(scope, code, code)

        if not e.inside:
            within = step(f"icmp ult i64 {at}, {e.size}")
            at = step(f"select i1 {within}, i64 {at}, i64 0")
        kind = memory_type(dtype)
        pointer = step(f"getelementptr {kind}, ptr {self.pointer[e.buffer]}, i64 {at}")
        value = step(f"load {kind}, ptr {pointer}, align {dtype.itemsize}")
        if dtype.bits < 64:
            value = step(f"{'sext' if dtype.signed else 'zext'} {kind} {value} to i64")
        if dtype.signed:
            back = step(f"add i64 {value}, {e.den}")
            below = step(f"icmp slt i64 {value}, 0")
            value = step(f"select i1 {below}, i64 {back}, i64 {value}")
            self.declared.add("i64 @llvm.smax.i64(i64, i64)")
            value = step(f"call i64 @llvm.smax.i64(i64 {value}, i64 0)")
        self.declared.add("i64 @llvm.umin.i64(i64, i64)")
        return step(f"call i64 @llvm.umin.i64(i64 {value}, i64 {e.hi})")

    def address(self, buffer: str, offset: Index) -> str:
        """A pointer to ``buffer[offset]``."""
        scope = self.scopes[-1]
        key = ("address", buffer, offset.terms)
        base = scope.cache.get(key)
        if base is None:
            base = scope.cache[key] = self._base(buffer, offset)
        if not offset.const:
            return base
        name = self.fresh()
        self.emit(
            f"{name} = getelementptr i8, ptr {base}, i64 "
            f"{offset.const * self.dtypes[buffer].itemsize}"
        )
        return name

    def _address_if(self, mask: str, buffer: str, offset: Index) -> str:
        """A pointer to ``buffer[offset]`` where the mask is true, else into zeros.

        Accesses of a basic block that are near to each other choose once. What the innermost loop
        does not decide is chosen before it, as far as there are zeros for its steps.
        """
        size = self.dtypes[buffer].itemsize
        near = offset.const % (_NEAR // size)
        self.zeros = max(self.zeros, _NEAR + ALIGN)
        key = ("or zero", self.label, mask, buffer, offset.terms, offset.const - near)
        cache = self.scopes[-1].cache
        if key not in cache:
            cache[key] = self._chosen_ahead(mask, buffer, offset + -near) or self.named(
                f"select i1 {mask}, ptr {self.address(buffer, offset + -near)}, ptr @tg.zero"
            )
        return self.named(f"getelementptr i8, ptr {cache[key]}, i64 {near * size}")

    def _chosen_ahead(self, mask: str, buffer: str, offset: Index) -> str:
        """The same address, chosen before the innermost loop, which moves it, where that adds up
        and decides nothing; else "".

            for k:  p = select(mask, &buffer[a + k], zeros)        zeros of 1
            -->
            q = select(mask, &buffer[a], zeros)                    zeros of as many as k takes
            for k:  p = &q[k]
        """
        dtype, valid = self.dtypes[buffer], self.tests.get(mask)
        if valid is None or self.free == self.vectors or self._decides(valid):
            return ""
        steps = self._steps(offset)
        moved = steps.hi * dtype.itemsize
        if not 0 <= steps.lo <= moved <= _NEAR:
            return ""
        self.zeros = max(self.zeros, _NEAR + ALIGN + moved)
        start = self._ahead(
            ("or zero", valid, buffer, offset - steps),
            lambda: self.named(
                f"select i1 {self.condition(valid)}, ptr {self.address(buffer, offset - steps)}, "
                "ptr @tg.zero"
            ),
        )
        return self._moved(start, steps, dtype) if start else ""

    def _moved(self, start: str, steps: Index, dtype: DType) -> str:
        """A pointer that the innermost loop moves."""
        terms = list(steps.terms)
        return self._step(start, terms, len(self.scopes) - 1, dtype) if terms else start

    def _decides(self, valid: Valid) -> bool:
        """True if the innermost loop is in a condition."""
        return any(self._steps(r.index).terms for r in valid)

    def _steps(self, x: Index) -> Index:
        """The terms of an index that the innermost loop moves."""
        depth = len(self.scopes) - 1
        return Index(tuple(t for t in x.terms if self._depth(t[0]) == depth), 0)

    def _ahead(self, key: object, emit: Callable[[], str]) -> str:
        """What is emitted right before the innermost loop, once; "" where others have the registers
        for addresses.
        """
        scope, here = self.scopes[-1], self.out
        if key not in scope.begun and len(scope.begun) < _STARTS:
            self.out = []
            scope.begun[key] = emit()
            scope.ahead += [line for line in self.out if isinstance(line, str)]
            self.out = here
        return scope.begun.get(key, "")

    def _apart(self, buffer: str, offset: Index) -> str:
        """The same as ``address`` where a loop's sums leave few registers: from a start of its own
        for each step that is written out, whose vectors come one multiply-add apart. LLVM puts four
        loads from one start side by side, those of the next steps, too, and spills what it has no
        registers for.
        """
        steps = self._steps(offset) if self.free <= _NEIGHBOURS else None
        if not steps or not steps.terms:
            return self.address(buffer, offset)
        runs, key = self.scopes[-1].runs, (buffer, offset.terms)
        begun, last = runs.get(key, (offset.const, self.fmas))
        if self.fmas > last + 1:
            begun = offset.const
        runs[key] = begun, self.fmas
        near = offset.const - begun
        first = offset - (steps + near)
        start = self._ahead(("start", buffer, first), lambda: self.address(buffer, first))
        if not start:
            return self.address(buffer, offset)
        moved = self._moved(start, steps, self.dtypes[buffer])
        nbytes = near * self.dtypes[buffer].itemsize
        return self.named(f"getelementptr i8, ptr {moved}, i64 {nbytes}") if near else moved

    def _base(self, buffer: str, offset: Index) -> str:
        """A pointer to ``buffer[offset]``, but for the constant of the offset."""
        dtype = self.dtypes[buffer]
        base = self.pointer[buffer]
        if offset.terms:
            ordered = sorted(offset.terms, key=lambda t: self._depth(t[0]))
            depth = -1
            group: list[tuple[Atom, int]] = []
            for atom, c in ordered:
                d = self._depth(atom)
                if d != depth and group:
                    base = self._step(base, group, depth, dtype)
                    group = []
                depth = d
                group.append((atom, c))
            base = self._step(base, group, depth, dtype)
        return base

    def _step(self, base: str, group: list[tuple[Atom, int]], depth: int, dtype: DType) -> str:
        terms = tuple(sorted(group, key=lambda t: t[0].key))
        scope = self.scopes[depth]
        value = self._terms(Index(terms, 0))
        return self.cached(
            scope,
            ("gep", base, value),
            f"getelementptr {memory_type(dtype)}, ptr {base}, i64 {value}",
        )

    def condition(self, valid: Valid) -> str:
        """A conjunction of ranges as an i1."""
        if valid.never or valid.always:
            return "true" if valid.always else "false"
        total = ""
        for r in valid:
            shifted = self.index(r.index + -r.lo)
            name = self.fresh()
            self.emit(f"{name} = icmp ult i64 {shifted}, {r.hi - r.lo}")
            if total:
                both = self.fresh()
                self.emit(f"{both} = and i1 {total}, {name}")
                name = both
            total = name
        return total

    def position(self, i: ir.Position) -> None:
        lanes, dtype = i.vtype.lanes, i.vtype.dtype
        if lanes == 1:
            self.bind(i.id, i.vtype, self.from_i64(self.index(i.index), i.vtype))
            return
        values = [self.index(i.index.at({i.lane: lane})) for lane in range(lanes)]
        scalars = [self.from_i64(v, ir.VType(dtype)) for v in values]
        self.bind(i.id, i.vtype, self.assemble(scalars, dtype, lanes))

    def test(self, i: ir.Test) -> None:
        if i.lanes == 1:
            self.bind_bool(i.id, 1, self._tested(i.valid))
            return
        shared = [r for r in i.valid if r.index.coefficient(i.lane) == 0]
        apart = [r for r in i.valid if r.index.coefficient(i.lane) != 0]
        if not shared or not apart:
            self.bind_bool(i.id, i.lanes, self._lane_test(i.valid, i.lane, i.lanes))
            return
        whole, each = self._tested(Valid(shared)), self._lane_test(Valid(apart), i.lane, i.lanes)
        splat = self.splat(whole, ir.VType(BOOL, i.lanes))
        both = self.named(f"and <{i.lanes} x i1> {splat}, {each}")
        self.shared[both] = whole, each
        self.bind_bool(i.id, i.lanes, both)

    def _tested(self, valid: Valid) -> str:
        """A condition, of which is remembered what it says."""
        name = self.condition(valid)
        self.tests[name] = valid
        return name

    def _lane_test(self, valid: Valid, lane: str, lanes: int) -> str:
        """A conjunction of ranges as an i1 of each lane."""
        held: list[Valid] = []
        affine = all(r.index.coefficient(lane) is not None for r in valid)
        for n in range(lanes):
            v = valid.at({lane: n})
            if v.ranges and affine:
                return self._vector_test(valid, lane, lanes)
            held.append(v)
        if all(v.always or v.never for v in held):
            return "<" + ", ".join(f"i1 {self.condition(v)}" for v in held) + ">"
        return self.assemble_bits([self.condition(v) for v in held])

    def _vector_test(self, valid: Valid, lane: str, lanes: int) -> str:
        total = ""
        for r in valid:
            step = r.index.coefficient(lane) or 0
            base = self.index(r.index.at({lane: 0}) + -r.lo)
            whole = self.splat_i64(base, lanes)
            steps = "<" + ", ".join(f"i64 {step * n}" for n in range(lanes)) + ">"
            at, held = self.fresh(), self.fresh()
            self.emit(f"{at} = add <{lanes} x i64> {whole}, {steps}")
            limit = "<" + ", ".join([f"i64 {r.hi - r.lo}"] * lanes) + ">"
            self.emit(f"{held} = icmp ult <{lanes} x i64> {at}, {limit}")
            if total:
                both = self.fresh()
                self.emit(f"{both} = and <{lanes} x i1> {total}, {held}")
                held = both
            total = held
        return total

    # -- memory

    def load(self, i: ir.Load) -> None:
        dtype, lanes = i.vtype.dtype, i.vtype.lanes
        step = i.offset.coefficient(i.lane) if i.lane else 0
        if lanes == 1 or step == 0:
            if i.prefetch:
                self.prefetch(self.address(i.buffer, i.offset), i.prefetch)
            self.bind(i.id, i.vtype, self._splat_load(i, lanes))
        elif step == 1:
            offset = i.offset.at({i.lane: 0})
            if i.prefetch:
                self.prefetch(self.address(i.buffer, offset), i.prefetch)
            mask = None if i.mask is None else self.value(i.mask)
            raw = self.load_vector(i.buffer, offset, dtype, lanes, mask)
            self.bind(i.id, i.vtype, self.from_memory(raw, i.vtype))
        elif step == -1:
            self.bind(i.id, i.vtype, self.from_memory(self._backwards(i), i.vtype))
        elif step is not None and step in _SHUFFLED:
            self.bind(i.id, i.vtype, self.from_memory(self._strided(i, step), i.vtype))
        else:
            self.bind(i.id, i.vtype, self.from_memory(self._gather(i), i.vtype))

    def _splat_load(self, i: ir.Load, lanes: int) -> str:
        dtype = i.vtype.dtype
        offset = i.offset.at({i.lane: 0}) if i.lane else i.offset
        if lanes > 1 and i.mask is not None:
            raws = [self._lane_load(i, offset, lane) for lane in range(lanes)]
            return self.from_memory(self.assemble(raws, dtype, lanes), i.vtype)
        mask = None if i.mask is None else self.value(i.mask)
        raw = self.load_scalar(i.buffer, offset, dtype, mask)
        value = self.from_memory(raw, ir.VType(dtype))
        return value if lanes == 1 else self.splat(value, i.vtype)

    def _lane_load(self, i: ir.Load, offset: Index, lane: int) -> str:
        mask = (
            None if i.mask is None else self.extract_mask(self.value(i.mask), i.vtype.lanes, lane)
        )
        return self.load_scalar(i.buffer, offset, i.vtype.dtype, mask)

    def _gather(self, i: ir.Load) -> str:
        offsets = [i.offset.at({i.lane: lane}) for lane in range(i.vtype.lanes)]
        raws = [self._lane_load(i, offset, lane) for lane, offset in enumerate(offsets)]
        return self.assemble(raws, i.vtype.dtype, i.vtype.lanes)

    def _backwards(self, i: ir.Load) -> str:
        """Neighbours, the last one first."""
        dtype, lanes = i.vtype.dtype, i.vtype.lanes
        turned = list(range(lanes - 1, -1, -1))
        mask = None if i.mask is None else self.spread_mask(self.value(i.mask), list(turned))
        kind = f"<{lanes} x {memory_type(dtype)}>"
        raw = self.load_vector(i.buffer, i.offset.at({i.lane: lanes - 1}), dtype, lanes, mask)
        return self.named(f"shufflevector {kind} {raw}, {kind} poison, {shuffle_mask(turned)}")

    def _strided(self, i: ir.Load, step: int) -> str:
        """Lanes ``step`` elements apart: whole vectors, of which a shuffle keeps what is wanted.

        The last vector ends at the last lane's element, so that nothing beyond it is read.
        """
        dtype, lanes = i.vtype.dtype, i.vtype.lanes
        kind = f"<{lanes} x {memory_type(dtype)}>"
        offset = i.offset.at({i.lane: 0})
        starts = [min(part * lanes, (lanes - 1) * (step - 1)) for part in range(step)]
        part_of = [
            next(k for k, at in enumerate(starts) if at <= lane * step < at + lanes)
            for lane in range(lanes)
        ]
        mask = None if i.mask is None else self.value(i.mask)
        total, filled = "poison", 0
        for part, start in enumerate(starts):
            wanted = {lane * step - start: lane for lane in range(lanes) if part_of[lane] == part}
            if not wanted:
                continue
            some = (
                None
                if mask is None
                else self.spread_mask(mask, [wanted.get(j) for j in range(lanes)])
            )
            raw = self.load_vector(i.buffer, offset + as_index(start), dtype, lanes, some)
            places = [
                lane if lane < filled else lanes + lane * step - start for lane in range(lanes)
            ]
            kept = [at if lane < filled + len(wanted) else None for lane, at in enumerate(places)]
            total = self.named(f"shufflevector {kind} {total}, {kind} {raw}, {shuffle_mask(kept)}")
            filled += len(wanted)
        return total

    def transposed(self, group: tuple[ir.Load, ...]) -> None:
        """Loads of neighbours whose lanes are far apart: a run for each lane, transposed."""
        n, dtype, lanes = len(group), group[0].vtype.dtype, group[0].vtype.lanes
        offset = group[0].offset
        rows = []
        for lane in range(lanes):
            start = offset.at({group[0].lane: lane})
            rows.append(self.load_vector(group[0].buffer, start, dtype, n, None))
        one = memory_type(dtype)
        vectors = [
            self._joined([rows[lane] for lane in range(j, lanes, n)], one, n) for j in range(n)
        ]
        kind = f"<{lanes} x {one}>"
        for stage in transposition(n, lanes):
            vectors = [
                self.named(
                    f"shufflevector {kind} {vectors[a]}, {kind} {vectors[b]}, "
                    f"{shuffle_mask(picked)}"
                )
                for a, b, picked in stage
            ]
        for load, vector in zip(group, vectors, strict=True):
            self.bind(load.id, load.vtype, self.from_memory(vector, load.vtype))

    def _joined(self, parts: list[str], one: str, width: int) -> str:
        """Vectors of ``width``, a power of two of them, one after the other."""
        while len(parts) > 1:
            kind = f"<{width} x {one}>"
            pairs = zip(parts[::2], parts[1::2], strict=True)
            places = shuffle_mask(range(2 * width))
            parts = [
                self.named(f"shufflevector {kind} {a}, {kind} {b}, {places}") for a, b in pairs
            ]
            width *= 2
        return parts[0]

    def store(self, i: ir.Store) -> None:
        dtype, lanes = i.vtype.dtype, i.vtype.lanes
        raw = self.to_memory(self.value(i.value), i.vtype)
        mask = None if i.mask is None else self.value(i.mask)
        if lanes == 1:
            self.store_scalar(self.address(i.buffer, i.offset), raw, dtype, mask)
        elif i.offset.coefficient(i.lane) == 1:
            base = i.offset.at({i.lane: 0})
            address = self.address(i.buffer, base)
            # an offset in whole vectors, so it is aligned where the parameter is
            whole = base.const % lanes == 0 and all(c % lanes == 0 for _, c in base.terms)
            if (
                i.stream
                and mask is None
                and whole
                and not dtype.is_bool
                and lanes * dtype.itemsize <= ALIGN
            ):
                self._store_past(i.buffer, address, raw, dtype, lanes)
            else:
                self.store_vector(address, raw, dtype, lanes, mask)
        else:
            for lane in range(lanes):
                address = self.address(i.buffer, i.offset.at({i.lane: lane}))
                piece = self.fresh()
                self.emit(
                    f"{piece} = extractelement <{lanes} x {memory_type(dtype)}> {raw}, i32 {lane}"
                )
                held = None if mask is None else self.extract_mask(mask, lanes, lane)
                self.store_scalar(address, piece, dtype, held)

    def _store_past(self, buffer: str, address: str, raw: str, dtype: DType, lanes: int) -> None:
        """A non-temporal store of one vector where the buffer is aligned, and a common one
        elsewhere: a part of a joined buffer may begin at any element.
        """
        self.streams = True
        pointer, scope, n = self.pointer[buffer], self.scopes[0], self.number()
        place = self.cached(scope, (buffer, "place"), f"ptrtoint ptr {pointer} to i64")
        low = self.cached(scope, (buffer, "low"), f"and i64 {place}, {ALIGN - 1}")
        aligned = self.cached(scope, (buffer, "aligned"), f"icmp eq i64 {low}, 0")
        self.emit(f"br i1 {aligned}, label %past{n}, label %near{n}")
        self.start(f"past{n}")
        self.emit(
            f"store <{lanes} x {memory_type(dtype)}> {raw}, ptr {address}, "
            f"align {lanes * dtype.itemsize}, !nontemporal !0"
        )
        self.emit(f"br label %stored{n}")
        self.start(f"near{n}")
        self.store_vector(address, raw, dtype, lanes, None)
        self.emit(f"br label %stored{n}")
        self.start(f"stored{n}")

    # -- accesses of lanes

    def load_scalar(self, buffer: str, offset: Index, dtype: DType, mask: str | None) -> str:
        """One element; where the mask is false, the zero that stands at a fixed address."""
        address = (
            self.address(buffer, offset) if mask is None else self._address_if(mask, buffer, offset)
        )
        name = self.fresh()
        self.emit(f"{name} = load {memory_type(dtype)}, ptr {address}, align {dtype.itemsize}")
        return name

    def load_vector(
        self, buffer: str, offset: Index, dtype: DType, lanes: int, mask: str | None
    ) -> str:
        """Neighbours; where the mask is false, zeros.

        What a mask asks of all lanes alike chooses the address: of a masked load without lanes
        beyond a buffer, where no page is, the processor takes hundreds of cycles.
        """
        t = f"<{lanes} x {memory_type(dtype)}>"
        if mask in self.shared and lanes * dtype.itemsize <= ALIGN:
            whole, mask = self.shared[mask]
            address = self._address_if(whole, buffer, offset)
        else:
            address = self._apart(buffer, offset)
        name = self.fresh()
        if mask is None:
            self.emit(f"{name} = load {t}, ptr {address}, align {dtype.itemsize}")
        else:
            suffix = suffix_of(memory_type(dtype), lanes)
            args = [
                ("ptr", address),
                ("i32", str(dtype.itemsize)),
                (f"<{lanes} x i1>", mask),
                (t, "zeroinitializer"),
            ]
            self.declared.add(
                f"{t} @llvm.masked.load.{suffix}.p0(ptr, i32 immarg, <{lanes} x i1>, {t})"
            )
            listed = ", ".join(f"{a} {v}" for a, v in args)
            self.emit(f"{name} = call {t} @llvm.masked.load.{suffix}.p0({listed})")
        return name

    def store_scalar(self, address: str, raw: str, dtype: DType, mask: str | None) -> None:
        if mask is not None:
            address = self._sunk(mask, address)
        self.emit(f"store {memory_type(dtype)} {raw}, ptr {address}, align {dtype.itemsize}")

    def store_vector(
        self, address: str, raw: str, dtype: DType, lanes: int, mask: str | None
    ) -> None:
        """Neighbours, where the mask is true.

        What a mask asks of all lanes alike chooses the address: a masked store without lanes takes
        hundreds of cycles where no page may be written, as beyond a buffer.
        """
        t = f"<{lanes} x {memory_type(dtype)}>"
        if mask in self.shared and lanes * dtype.itemsize <= ALIGN:
            whole, mask = self.shared[mask]
            address = self._sunk(whole, address)
        if mask is None:
            self.emit(f"store {t} {raw}, ptr {address}, align {dtype.itemsize}")
            return
        single = _single_lane(mask)
        if (
            single is not None
        ):  # LLVM 22 stores too many bytes of a truncated vector under a constant mask of one lane
            one = memory_type(dtype)
            piece = self.named(f"extractelement {t} {raw}, i32 {single}")
            self.emit(
                f"store {one} {piece}, ptr {self._lane_address(address, one, single)}, align "
                f"{dtype.itemsize}"
            )
            return
        suffix = suffix_of(memory_type(dtype), lanes)
        self.declared.add(
            f"void @llvm.masked.store.{suffix}.p0({t}, ptr, i32 immarg, <{lanes} x i1>)"
        )
        self.emit(
            f"call void @llvm.masked.store.{suffix}.p0({t} {raw}, ptr {address}, i32 "
            f"{dtype.itemsize}, "
            f"<{lanes} x i1> {mask})"
        )

    def _sunk(self, mask: str, address: str) -> str:
        """The address where the mask is true, else one that nothing reads."""
        chosen = f"%sunk{self.number()}"
        self.emit(f"{chosen} = select i1 {mask}, ptr {address}, ptr %sink")
        return chosen

    def _lane_address(self, address: str, one: str, lane: int) -> str:
        return (
            address if lane == 0 else self.named(f"getelementptr {one}, ptr {address}, i64 {lane}")
        )

    def from_memory(self, raw: str, t: ir.VType) -> str:
        """A loaded element as a value: bytes become bools."""
        if not t.dtype.is_bool:
            return raw
        name = self.fresh()
        kind = "i8" if t.lanes == 1 else f"<{t.lanes} x i8>"
        zero = "0" if t.lanes == 1 else "zeroinitializer"
        self.emit(f"{name} = icmp ne {kind} {raw}, {zero}")
        return name

    def to_memory(self, value: str, t: ir.VType) -> str:
        if not t.dtype.is_bool:
            return value
        name = self.fresh()
        kind = "i8" if t.lanes == 1 else f"<{t.lanes} x i8>"
        self.emit(f"{name} = zext {ltype(t)} {value} to {kind}")
        return name

    # -- operations

    def compute(self, i: ir.Compute) -> None:
        names = self.names
        self.fmas += i.op in _ADDING
        args = [names[a] for a in i.args]
        if i.op in (Op.DOT4, Op.DOT4_ADD):
            kinds = self.types[i.args[0]].dtype, self.types[i.args[1]].dtype
            self.bind(i.id, i.vtype, llvm_operations.dot_of_quads(self, args, kinds, i.vtype.lanes))
            return
        if i.op in (Op.DOT2I, Op.DOT2I_ADD):
            self.bind(i.id, i.vtype, llvm_operations.dot_of_halves(self, args, i.vtype.lanes))
            return
        if i.op in (Op.EVEN, Op.ODD):
            made = llvm_operations.halves_of(self, args[0], self.types[i.args[0]], i.op is Op.ODD)
            self.bind(i.id, i.vtype, made)
            return
        self.names[i.id], self.types[i.id] = self._apply(i.op, args, self.types[i.args[0]]), i.vtype

    def _sum_of_products(self, a: list[str], s: ir.VType) -> str:
        """The operation of most instructions: its text is made of the same parts each time."""
        key = s.dtype.name, s.lanes
        parts = self._fma.get(key)
        if parts is None:
            ty = ltype(s)
            name = f"llvm.fmuladd.{suffix_of(scalar_type(s.dtype), s.lanes)}"
            self.declared.add(f"{ty} @{name}({ty}, {ty}, {ty})")
            parts = self._fma[key] = f"call {ty} @{name}({ty} ", f", {ty} "
        call, comma = parts
        return self.named(f"{call}{a[0]}{comma}{a[1]}{comma}{a[2]})")

    def _apply(self, op: Op, a: list[str], s: ir.VType) -> str:
        if op is Op.FMA and s.dtype.is_float:
            return self._sum_of_products(a, s)
        ty = ltype(s)
        if op in _COMPARE:
            kind = _COMPARE[op][0 if s.dtype.is_float else 1 if s.dtype.signed else 2]
            return self.named(
                f"{'fcmp' if s.dtype.is_float else 'icmp'} {kind} {ty} {a[0]}, {a[1]}"
            )
        if op in FUNCTIONS:
            return self._math(op, a, s)
        if op is Op.PAIR:
            return llvm_operations.pair_of(self, a, s)
        if op is Op.QUAD:
            return llvm_operations.quad_of(self, a, s)
        if s.dtype.is_pair:
            return llvm_operations.of_pairs(self, op, a, s.lanes)
        if s.dtype.is_float:
            made = llvm_operations.of_floats(self, op, a, s)
            stepping = s.lanes in self.nearest and s.dtype == F32 and op in _STEPPING
            return llvm_operations.with_steps(self, op, a, s, made) if stepping else made
        return llvm_operations.of_integers(self, op, a, s)

    def _math(self, op: Op, a: list[str], s: ir.VType) -> str:
        found = definitions(op, s.dtype, s.lanes, self.avx512)
        for d in found:
            self.defined[d.name] = d.text
            self.declared.update(line.removeprefix("declare ") for line in d.declared)
        return self.named(
            f"call {ltype(s)} @{found[-1].name}({', '.join(f'{ltype(s)} {x}' for x in a)})"
        )

    def fold(self, i: ir.Fold) -> None:
        s = self.types[i.arg]
        if s.lanes == 1:
            self.bind(i.id, i.vtype, self.value(i.arg))
            return
        ty, one = ltype(s), scalar_type(s.dtype)
        suffix = suffix_of(one, s.lanes)
        if s.dtype.is_float and i.op in (Op.ADD, Op.MUL):
            name = f"llvm.vector.reduce.{'fadd' if i.op is Op.ADD else 'fmul'}.{suffix}"
            start = literal(-0.0 if i.op is Op.ADD else 1.0, ir.VType(s.dtype))
            self.declared.add(f"{one} @{name}({one}, {ty})")
            self.define(
                i.id,
                i.vtype,
                f"call reassoc {one} @{name}({one} {start}, {ty} {self.value(i.arg)})",
            )
            return
        if s.dtype.is_float:
            self._extreme_of(i, s, suffix)
            return
        if s.dtype.is_bool:
            kind = "or" if i.op in (Op.ADD, Op.MAX) else "and"
        else:
            sign = "s" if s.dtype.signed else "u"
            kind = str(i.op) if i.op in (Op.ADD, Op.MUL) else f"{sign}{i.op}"
        self.define(
            i.id,
            i.vtype,
            self.call(one, f"llvm.vector.reduce.{kind}.{suffix}", [(ty, self.value(i.arg))]),
        )

    def _extreme_of(self, i: ir.Fold, s: ir.VType, suffix: str) -> None:
        """The largest or least lane, compared as if there was no NaN; NaN where there is one."""
        ty, one, mask, value = (
            ltype(s),
            scalar_type(s.dtype),
            f"<{s.lanes} x i1>",
            self.value(i.arg),
        )
        name = f"llvm.vector.reduce.{'fmax' if i.op is Op.MAX else 'fmin'}.{suffix}"
        self.declared.add(f"{one} @{name}({ty})")
        chosen = self.named(f"call nnan nsz {one} @{name}({ty} {value})")
        nans = self.named(f"fcmp uno {ty} {value}, {value}")
        some = self.named(self.call("i1", f"llvm.vector.reduce.or.v{s.lanes}i1", [(mask, nans)]))
        self.define(
            i.id,
            i.vtype,
            f"select i1 {some}, {one} {literal(nan, ir.VType(s.dtype))}, {one} {chosen}",
        )

    def convert(self, i: ir.Convert) -> None:
        self.bind(
            i.id,
            i.vtype,
            llvm_operations.converted(self, self.value(i.arg), self.types[i.arg], i.vtype),
        )

    def from_i64(self, value: str, t: ir.VType) -> str:
        return llvm_operations.converted(self, value, ir.VType(I64), t)


def _single_lane(mask: str) -> int | None:
    """The only lane of a constant mask."""
    lanes = mask.removeprefix("<").removesuffix(">").split(", ") if mask.startswith("<") else []
    held = [i for i, lane in enumerate(lanes) if lane == "i1 true"]
    return held[0] if len(held) == 1 and lanes.count("i1 false") == len(lanes) - 1 else None


def _phi(to: Held, first: tuple[str, str], second: tuple[str, str]) -> str:
    """Two paths meet: each with its value and the block that it comes from."""
    (a, here), (b, there) = first, second
    return f"{to.value} = phi {to.type} [ {a}, %{here} ], [ {b}, %{there} ]"
