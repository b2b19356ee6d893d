"""LLVM IR of single operations: arithmetic, folds over lanes, conversions."""

from __future__ import annotations

from math import nan

from tunegrad.ir.dtypes import I64
from tunegrad.ir.expr import Op
from tunegrad.ir.program import Compute, Convert, Fold, VType
from tunegrad.ir.target import Target

from .llvm_convert import converted, of_pairs, pair_of
from .llvm_floats import of_floats
from .llvm_integers import of_integers
from .llvm_quads import dot_of_quads, quad_of
from .llvm_values import LlvmValues, literal, ltype, scalar_type, suffix_of
from .math import definitions

__all__ = ["Ops"]

_COMPARE = {
    Op.LT: ("olt", "slt", "ult"), Op.EQ: ("oeq", "eq", "eq"), Op.NE: ("une", "ne", "ne")
}  # fmt: skip
"""Of floats, of integers with a sign, of those without (bools among them)."""
_MATH = frozenset((Op.EXP, Op.LOG, Op.LOG2, Op.TANH, Op.ERF, Op.SIN, Op.COS, Op.POW))


class Ops(LlvmValues):
    """Turns operations into text."""

    def __init__(self, target: Target | None) -> None:
        super().__init__(target)
        self._fma: dict[tuple[str, int], tuple[str, str]] = {}

    def compute(self, i: Compute) -> None:
        names = self.names
        args = [names[a] for a in i.args]
        if i.op in (Op.DOT4, Op.DOT4_ADD):
            kinds = self.types[i.args[0]].dtype, self.types[i.args[1]].dtype
            self.bind(i.id, i.vtype, dot_of_quads(self, args, kinds, i.vtype.lanes))
            return
        self.names[i.id], self.types[i.id] = self._apply(i.op, args, self.types[i.args[0]]), i.vtype

    def _sum_of_products(self, a: list[str], s: VType) -> str:
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

    def _apply(self, op: Op, a: list[str], s: VType) -> str:
        if op is Op.FMA and s.dtype.is_float:
            return self._sum_of_products(a, s)
        ty = ltype(s)
        if op in _COMPARE:
            kind = _COMPARE[op][0 if s.dtype.is_float else 1 if s.dtype.signed else 2]
            return self.named(
                f"{'fcmp' if s.dtype.is_float else 'icmp'} {kind} {ty} {a[0]}, {a[1]}"
            )
        if op in _MATH:
            return self._math(op, a, s)
        if op is Op.PAIR:
            return pair_of(self, a, s)
        if op is Op.QUAD:
            return quad_of(self, a, s)
        if s.dtype.is_pair:
            return of_pairs(self, op, a, s.lanes)
        if s.dtype.is_float:
            return of_floats(self, op, a, s)
        return of_integers(self, op, a, s)

    def _math(self, op: Op, a: list[str], s: VType) -> str:
        found = definitions(op, s.dtype, s.lanes, self.avx512)
        for d in found:
            self.defined[d.name] = d.text
            self.declared.update(line.removeprefix("declare ") for line in d.declared)
        return self.named(
            f"call {ltype(s)} @{found[-1].name}({', '.join(f'{ltype(s)} {x}' for x in a)})"
        )

    def fold(self, i: Fold) -> None:
        s = self.types[i.arg]
        if s.lanes == 1:
            self.bind(i.id, i.vtype, self.value(i.arg))
            return
        ty, one = ltype(s), scalar_type(s.dtype)
        suffix = suffix_of(one, s.lanes)
        if s.dtype.is_float and i.op in (Op.ADD, Op.MUL):
            name = f"llvm.vector.reduce.{'fadd' if i.op is Op.ADD else 'fmul'}.{suffix}"
            start = literal(-0.0 if i.op is Op.ADD else 1.0, VType(s.dtype))
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

    def _extreme_of(self, i: Fold, s: VType, suffix: str) -> None:
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
            i.id, i.vtype, f"select i1 {some}, {one} {literal(nan, VType(s.dtype))}, {one} {chosen}"
        )

    def convert(self, i: Convert) -> None:
        self.bind(i.id, i.vtype, converted(self, self.value(i.arg), self.types[i.arg], i.vtype))

    def from_i64(self, value: str, t: VType) -> str:
        return converted(self, value, VType(I64), t)
