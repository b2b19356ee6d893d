"""Dtypes that each scalar operation takes and gives: one table for graphs and kernels."""

from __future__ import annotations

from collections.abc import Sequence

from .dtypes import BF16, BF16X2, BOOL, F32, I8, I8X4, I32, U8, U8X4, DType
from .expr import Op

__all__ = ["fold_takes", "result_type"]

_FLOAT_ONLY = frozenset(
    (Op.EXP, Op.LOG, Op.LOG2, Op.SQRT, Op.RECIP, Op.TANH, Op.ERF, Op.SIN, Op.COS, Op.DIV, Op.FMA)
)
_INT_ONLY = frozenset((Op.SHL, Op.SHR))
_NUMBERS = frozenset(
    (Op.NEG, Op.ABS, Op.FLOOR, Op.ADD, Op.SUB, Op.MUL, Op.POW, Op.FLOORDIV, Op.MOD)
)
_BITS = frozenset((Op.NOT, Op.AND, Op.OR, Op.XOR))


def result_type(op: Op, args: Sequence[DType]) -> DType | None:
    """The dtype of ``op`` on arguments of these dtypes; None where the operation is not defined on
    them.
    """
    if len(args) != op.arity:
        return None
    if op is Op.WHERE:
        return args[1] if args[0].is_bool and args[1] == args[2] else None
    if op is Op.DOT2_ADD:
        return F32 if tuple(args) == (BF16X2, BF16X2, F32) else None
    if op in (Op.DOT4, Op.DOT4_ADD):
        return I32 if args[0].is_quad and args[1].is_quad and (*args[2:],) in ((), (I32,)) else None
    if any(a != args[0] for a in args):
        return None
    if op is Op.QUAD:
        return {I8: I8X4, U8: U8X4}.get(args[0])
    if op is Op.PAIR:
        return BF16X2 if args[0] in (F32, BF16) else None
    if op in (Op.LOW, Op.HIGH, Op.DOT2):
        return F32 if args[0] == BF16X2 else None
    if op is Op.TF32:
        return F32 if args[0] == F32 else None
    kind = args[0].category
    if (
        kind in ("pair", "quad")
        or (op in _FLOAT_ONLY and kind != "float")
        or (op in _INT_ONLY and kind != "int")
        or (op in _NUMBERS and kind == "bool")
        or (op in _BITS and kind == "float")
    ):
        return None
    return BOOL if op.compares else args[0]


def fold_takes(op: Op, dtype: DType) -> bool:
    """True if a reduction can fold values of ``dtype`` with ``op``: bool has max (any) and min
    (all) only.
    """
    if op not in (Op.ADD, Op.MUL, Op.MAX, Op.MIN):
        return False
    return not dtype.is_bool or op in (Op.MAX, Op.MIN)
