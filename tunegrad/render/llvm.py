"""Program to LLVM IR text, for a CPU.

    define void @NAME(ptr %buffers, ptr %workspace, i64 %tid, ptr %team)  one call per thread of the
    team

loads the buffer pointers, carves the scratch out of the workspace and calls the body, whose
pointers are all ``noalias``. Vectors are explicit. Addresses are built outside in: the part of an
offset that an outer loop decides is computed in that loop, so LLVM has nothing to hoist. A register
is the value last written to it, or a phi where paths meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import DType
from tunegrad.ir.index import Atom, Element, FloorDiv, Index, Valid, Var
from tunegrad.ir.program import (
    Alloc,
    Barrier,
    Buffer,
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
    VType,
    Write,
    walk,
)
from tunegrad.ir.target import Target

from .llvm_memory import ALIGN
from .llvm_ops import literal, ltype, memory_type
from .llvm_tiles import Tiles
from .llvm_transpose import runs_of

__all__ = ["render_llvm", "workspace_bytes"]

_STAGGER = 192
"""Bytes between scratch buffers, so that equal offsets of two of them do not share a cache set."""


def _alloc_bytes(a: Alloc) -> int:
    return -(-a.size * a.dtype.itemsize // ALIGN) * ALIGN + _STAGGER


def workspace_bytes(program: Program) -> int:
    """Bytes of scratch that one launch needs: team buffers once, thread buffers per thread."""
    return sum(
        _alloc_bytes(a) * (program.threads if a.space == "thread" else 1) for a in program.allocs
    )


def render_llvm(program: Program, target: Target | None = None) -> str:
    """The LLVM IR module of a program; deterministic.

    Without a target it is one that every target can compile.
    """
    if target is None:
        return _Renderer(program).module()
    return _Renderer(program, target.avx512, target.bf16_dot, target.amx).module()


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


@dataclass(slots=True)
class _Scope:
    """A loop body (or the function): where addresses that depend on its variable are computed."""

    lines: list[str]
    cache: dict[object, str]


@dataclass(frozen=True, slots=True)
class _Held:
    """What a register holds here: a value of an LLVM type."""

    type: str
    value: str


class _Renderer(Tiles):
    def __init__(
        self, program: Program, avx512: bool = False, bf16_dot: bool = False, amx: bool = False
    ) -> None:
        super().__init__(avx512, bf16_dot, amx)
        self.program = program
        self.out: list[str | list[str]] = []
        self.scopes: list[_Scope] = []
        self.depth: dict[str, int] = {}
        self.vars: dict[str, str] = {}
        self.registers: dict[str, _Held] = {}
        self.writes: dict[int, tuple[str, ...]] = {}
        self.label = "entry"
        self.read_only = frozenset(b.name for b in program.params if b.role != "out")
        for i in walk(program.body):
            if isinstance(i, TileConfig):
                found = self.configurations
                found.setdefault(i.rows, f"@tg.tiles.{len(found)}")
        self._handlers = self._handled()

    # -- module

    def module(self) -> str:
        p = self.program
        name = p.name
        buffers: list[Buffer | Alloc] = [*p.params, *p.allocs]
        self.pointer = {b.name: f"%b{i}" for i, b in enumerate(buffers)}
        self.dtypes = {b.name: b.dtype for b in buffers}
        pre: list[str] = []
        self.scopes.append(_Scope(pre, {}))
        self.out.append(pre)
        self.block(p.body)
        body = "\n".join([x if isinstance(x, str) else "\n".join(x) for x in self.out if x])
        args = ", ".join(
            [
                *(f"ptr noalias nocapture {self.pointer[b.name]}" for b in buffers),
                "i64 %tid",
                "ptr %team",
            ]
        )
        text = [
            f"define internal void @{name}.body({args}) noinline nounwind {{",
            "entry:",
            "  %sink = alloca <64 x i8>, align 64",
            *self.prologue(),
            body,
            *self.epilogue(),
            *(["  fence seq_cst"] if self.streams else []),
            "  ret void",
            "}",
            *self._wrapper(buffers),
            "declare void @tg_barrier(ptr)",
            "@tg.zero = private unnamed_addr constant [64 x i8] zeroinitializer, align 64",
            *self.constants(),
            *(f"declare {d}" for d in sorted(self.declared)),
            *(self.defined[k] for k in sorted(self.defined)),
            *(["!0 = !{i32 1}"] if self.streams else []),
        ]
        return "\n".join(text) + "\n"

    def _wrapper(self, buffers: list[Buffer | Alloc]) -> list[str]:
        p = self.program
        lines = [
            f"define void @{p.name}(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) nounwind {{",
        ]
        names, offset = [], 0
        for i, b in enumerate(buffers):
            if isinstance(b, Buffer):
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

    def emit(self, text: str) -> None:
        self.out.append(f"  {text}")

    def start(self, label: str) -> None:
        self.out.append(f"{label}:")
        self.label = label

    # -- index arithmetic

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
        return self._cached(scope, ("const", base, x.const), f"add i64 {base}, {x.const}")

    def _cached(self, scope: _Scope, key: object, code: str) -> str:
        found = scope.cache.get(key)
        if found is None:
            found = scope.cache[key] = self.fresh()
            scope.lines.append(f"  {found} = {code}")
        return found

    def _terms(self, x: Index) -> str:
        """The sum of the terms, outer loops' first; each partial sum lives in the loop that decides
        it.
        """
        ordered = sorted(x.terms, key=lambda t: self._depth(t[0]))
        total = ""
        for atom, c in ordered:
            scope = self.scopes[self._depth(atom)]
            value = self._atom(atom)
            if c != 1:
                value = self._cached(scope, ("mul", value, c), f"mul nsw i64 {value}, {c}")
            total = (
                self._cached(scope, ("add", total, value), f"add nsw i64 {total}, {value}")
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
            q = self._cached(scope, ("div", value, atom.den), f"udiv i64 {value}, {atom.den}")
            return self._cached(scope, ("sub", q, shift), f"sub i64 {q}, {shift}") if shift else q
        return self._cached(scope, ("rem", value, atom.den), f"urem i64 {value}, {atom.den}")

    def _element(self, e: Element) -> str:
        """An integer from memory as an index: wrapped once, then clamped."""
        scope, dtype = self.scopes[self._depth(e)], self.dtypes[e.buffer]
        at = self.index(e.num)

        def step(code: str) -> str:
            return self._cached(scope, code, code)

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
        return self._cached(
            scope,
            ("gep", base, value),
            f"getelementptr {memory_type(dtype)}, ptr {base}, i64 {value}",
        )

    # -- blocks

    def block(self, body: tuple[Instr, ...]) -> None:
        groups = runs_of(body, self.read_only)
        if not groups:
            handlers = self._handlers
            for i in body:
                handlers[type(i)](i)
            return
        together = {load.id: group for group in groups for load in group}
        for i in body:
            if isinstance(i, Load) and i.id in together:
                if i.id not in self.names:
                    self.transposed(together[i.id])
            else:
                self.instr(i)

    def instr(self, i: Instr) -> None:
        self._handlers[type(i)](i)

    def _handled(self) -> dict[type, Callable[[Any], None]]:
        """What emits an instruction, by its type."""
        return {
            Compute: self.compute, Load: self.load, Read: self._read, Write: self._write,
            Splat: self._splat,
            Store: self.store, Register: self._register, Number: self._number, For: self.loop,
            If: self.branch,
            Convert: self.convert, Fold: self.fold, Select: self._select, Position: self.position,
            Test: self.test,
            Barrier: self._barrier, TileConfig: self.tile_config, TileZero: self.tile_zero,
            TileLoad: self.tile_load, TileMul: self.tile_mul, TileStore: self.tile_store,
        }  # fmt: skip

    def _read(self, i: Read) -> None:
        self.names[i.id], self.types[i.id] = self.registers[i.name].value, i.vtype

    def _write(self, i: Write) -> None:
        self.registers[i.name] = _Held(ltype(i.vtype), self.names[i.value])

    def _splat(self, i: Splat) -> None:
        self.bind(i.id, i.vtype, self.splat(self.value(i.arg), i.vtype))

    def _register(self, i: Register) -> None:
        self.registers[i.name] = _Held(ltype(i.vtype), "poison")

    def _number(self, i: Number) -> None:
        self.bind(i.id, i.vtype, literal(i.value, i.vtype))

    def _select(self, i: Select) -> None:
        kind, mask = ltype(i.vtype), f"{_mask_type(i.vtype.lanes)} {self.value(i.mask)}"
        self.define(
            i.id, i.vtype, f"select {mask}, {kind} {self.value(i.yes)}, {kind} {self.value(i.no)}"
        )

    def _barrier(self, _: Barrier) -> None:
        if self.program.threads > 1:
            self.emit("call void @tg_barrier(ptr %team)")

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
            self.registers[name] = _Held(held.type, self.fresh())
        begun = {name: self.registers[name] for name in carried}
        self.scopes.append(_Scope(pre, {}))
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
                self.registers[name] = met = _Held(held.type, self.fresh())
                self.emit(_phi(met, (held.value, skipped), (last.value, latch)))

    def _carried(self, body: tuple[Instr, ...]) -> dict[str, _Held]:
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
        q = self._cached(scope, ("tid/", inner), f"udiv i64 %tid, {inner}") if inner > 1 else "%tid"
        return self._cached(scope, ("tid%", q, count), f"urem i64 {q}, {count}")

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
            met, no = _Held(held.type, self.fresh()), self.registers[name]
            self.emit(_phi(met, (held.value, yes), (no.value, missed)))
            self.registers[name] = met

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

    # -- positions and tests

    def position(self, i: Position) -> None:
        lanes, dtype = i.vtype.lanes, i.vtype.dtype
        if lanes == 1:
            self.bind(i.id, i.vtype, self.from_i64(self.index(i.index), i.vtype))
            return
        values = [self.index(i.index.at({i.lane: lane})) for lane in range(lanes)]
        scalars = [self.from_i64(v, VType(dtype)) for v in values]
        self.bind(i.id, i.vtype, self.assemble(scalars, dtype, lanes))

    def test(self, i: Test) -> None:
        if i.lanes == 1:
            self.bind_bool(i.id, 1, self.condition(i.valid))
            return
        held: list[Valid] = []
        for lane in range(i.lanes):
            v = i.valid.at({i.lane: lane})
            if v.ranges and self._affine(i):
                self.bind_bool(i.id, i.lanes, self._vector_test(i))
                return
            held.append(v)
        if all(v.always or v.never for v in held):
            self.bind_bool(
                i.id, i.lanes, "<" + ", ".join(f"i1 {self.condition(v)}" for v in held) + ">"
            )
            return
        self.bind_bool(i.id, i.lanes, self.assemble_bits([self.condition(v) for v in held]))

    def _affine(self, i: Test) -> bool:
        return all(r.index.coefficient(i.lane) is not None for r in i.valid)

    def _vector_test(self, i: Test) -> str:
        total = ""
        for r in i.valid:
            step = r.index.coefficient(i.lane) or 0
            base = self.index(r.index.at({i.lane: 0}) + -r.lo)
            whole = self.splat_i64(base, i.lanes)
            steps = "<" + ", ".join(f"i64 {step * lane}" for lane in range(i.lanes)) + ">"
            at, held = self.fresh(), self.fresh()
            self.emit(f"{at} = add <{i.lanes} x i64> {whole}, {steps}")
            limit = "<" + ", ".join([f"i64 {r.hi - r.lo}"] * i.lanes) + ">"
            self.emit(f"{held} = icmp ult <{i.lanes} x i64> {at}, {limit}")
            if total:
                both = self.fresh()
                self.emit(f"{both} = and <{i.lanes} x i1> {total}, {held}")
                held = both
            total = held
        return total


def _phi(to: _Held, first: tuple[str, str], second: tuple[str, str]) -> str:
    """Two paths meet: each with its value and the block that it comes from."""
    (a, here), (b, there) = first, second
    return f"{to.value} = phi {to.type} [ {a}, %{here} ], [ {b}, %{there} ]"


def _mask_type(lanes: int) -> str:
    """The LLVM type of a mask."""
    return "i1" if lanes == 1 else f"<{lanes} x i1>"
