"""Arithmetic as C text: on whole vectors where the language has it, else on each lane."""

from __future__ import annotations

from tunegrad.errors import InternalError
from tunegrad.ir import program as p
from tunegrad.ir.dtypes import DType
from tunegrad.ir.expr import Op

from .c_arithmetic import HELPED, wraps
from .c_values import CValues

__all__ = ["COperations"]

_INFIX = {
    Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/", Op.LT: "<", Op.EQ: "==", Op.NE: "!=",
    Op.AND: "&", Op.OR: "|", Op.XOR: "^",
}  # fmt: skip
_CALLS = frozenset(
    (Op.EXP, Op.LOG, Op.LOG2, Op.SQRT, Op.TANH, Op.ERF, Op.SIN, Op.COS, Op.FLOOR, Op.POW, Op.FMA)
)
_HELPERS = frozenset((Op.PAIR, Op.LOW, Op.HIGH, Op.DOT2, Op.DOT2_ADD, Op.TF32, Op.QUAD))
_DOTS = (Op.DOT4, Op.DOT4_ADD)
_LANEWISE = _HELPERS | {*_DOTS, Op.LT, Op.EQ, Op.NE, Op.WHERE, Op.NOT, Op.FLOORDIV, Op.MOD}


class COperations(CValues):
    """Prints operations."""

    def compute(self, i: p.Compute) -> None:
        work = self.types[i.args[-1]]
        whole = ""
        if (
            self.is_vector(i.vtype)
            and i.op not in _LANEWISE
            and all(self.is_vector(self.types[a]) for a in i.args)
        ):
            whole = self._vector(i.op, [f"v{a}" for a in i.args], work.dtype, work.lanes)
        if i.op in _DOTS:
            self.define(i.id, i.vtype, lambda k: self._dot4(i, k))
            return
        self.define(
            i.id,
            i.vtype,
            lambda k: self.scalar(i.op, [self.lane(a, k) for a in i.args], work.dtype),
            whole,
        )

    def _dot4(self, i: p.Compute, k: int) -> str:
        """One lane of a sum of products of bytes: what its factors are is in the helper's name."""
        kinds = "_".join(self.types[a].dtype.name for a in i.args[:2])
        self.used.add(f"dot4_{kinds}")
        total = self.lane(i.args[2], k) if i.op is Op.DOT4_ADD else "0"
        factors = ", ".join(self.lane(a, k) for a in i.args[:2])
        return f"tg_dot4_{kinds}({factors}, {total})"

    def _vector(self, op: Op, args: list[str], dtype: DType, lanes: int) -> str:
        """``op`` on whole vectors, '' where it has no such text."""
        if op in (Op.MAX, Op.MIN):
            return self.dialect.vector_max(op, args[0], args[1]) if dtype.is_float else ""
        if not dtype.is_float and op in (Op.ABS, *HELPED):
            return ""
        return self.scalar(op, args, dtype, lanes)

    def _wrapped(self, op: Op, args: list[str], dtype: DType, lanes: int) -> str:
        """A sum or product by numbers without a sign, which wrap around; of u16 by those of u32."""
        d, word = self.dialect, "u64" if dtype.bits == 64 else "u32"
        u, c = d.values[word], d.values[dtype.name]
        if lanes > 1:
            u, c = d.vector(u, lanes), d.vector(c, lanes)
        elif dtype.bits == 16:
            return f"({c})(({u}){args[0]} {_INFIX[op]} ({u}){args[1]})"
        if op is Op.NEG:
            return d.reinterpret(c, f"-{d.reinterpret(u, args[0])}")
        a, b = (d.reinterpret(u, x) for x in args)
        return d.reinterpret(c, f"{a} {_INFIX[op]} {b}")

    def scalar(self, op: Op, args: list[str], dtype: DType, lanes: int = 1) -> str:
        """``op`` on scalars of ``dtype``, or on vectors of them."""
        if wraps(op, dtype) and not self.dialect.wraps:
            return self._wrapped(op, args, dtype, lanes)
        if op in HELPED and not (op is Op.POW and dtype.is_float):
            self.used.add(f"{op}_{dtype}")
            return f"tg_{op}_{dtype}({', '.join(args)})"
        if op in _INFIX:
            return f"({args[0]} {_INFIX[op]} {args[1]})"
        if op in _CALLS and not (op is Op.FLOOR and dtype.is_int):
            return f"{self.dialect.function(op, dtype)}({', '.join(args)})"
        match op:
            case Op.NEG:
                return f"(-{args[0]})"
            case Op.FLOOR:
                return args[0]
            case Op.NOT:
                return f"(!{args[0]})" if dtype.is_bool else f"(~{args[0]})"
            case Op.RECIP:
                return f"({self.literal(1.0, dtype)} / {args[0]})"
            case Op.WHERE:
                return f"({self.choice(*args)})"
            case Op.ABS if dtype.is_float:
                return f"{self.dialect.function('fabs', dtype)}({args[0]})"
            case Op.MAX | Op.MIN if dtype.is_bool:
                return f"({args[0]} {'|' if op is Op.MAX else '&'} {args[1]})"
            case _ if op in (Op.MAX, Op.MIN, Op.ABS) or op in _HELPERS:
                self.used.add(f"{op}_{dtype}")
                return f"tg_{op}_{dtype}({', '.join(args)})"
            case _:
                raise InternalError(f"{self.dialect.name} has no text for {op} on {dtype}")
