"""Indices, addresses and conditions as LLVM IR, built outside in.

The part of an offset that an outer loop decides is computed in that loop, so LLVM has nothing to
hoist.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import DType
from tunegrad.ir.index import Atom, Element, FloorDiv, Index, Valid, Var
from tunegrad.ir.program import Alloc, Buffer, Position, Program, Test, VType
from tunegrad.ir.target import Target

from .llvm_tiles import Tiles
from .llvm_values import memory_type

__all__ = ["Indices", "Scope"]


@dataclass(slots=True)
class Scope:
    """A loop body (or the function): where addresses that depend on its variable are computed."""

    lines: list[str]
    cache: dict[object, str]


class Indices(Tiles):
    """Turns indices into text; ``depth`` and ``vars`` are of the loops that are open."""

    def __init__(self, program: Program, target: Target | None) -> None:
        super().__init__(target)
        self.program = program
        self.scopes: list[Scope] = []
        self.depth: dict[str, int] = {}
        self.vars: dict[str, str] = {}
        buffers: list[Buffer | Alloc] = [*program.params, *program.allocs]
        self.pointer = {b.name: f"%b{i}" for i, b in enumerate(buffers)}
        self.dtypes = {b.name: b.dtype for b in buffers}

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
        """The sum of the terms, outer loops' first; each partial sum lives in the loop that decides
        it.
        """
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
