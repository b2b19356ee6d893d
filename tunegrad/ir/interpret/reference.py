"""The float64 reference of a kernel: the same computation with every float in f64, inputs as they
are.

    v0 = add over ra in f32: mul(p1[a, ra], p2[ra, b])
    store p0[a, b] = max(v0, 0.0)
        -->
    v0 = add over ra in f64: mul(f64(p1[a, ra]), f64(p2[ra, b]))
    store p0[a, b] = max(v0, 0.0)                                   with p0 in f64

Casts to f16 and bf16 stay, and so do roundings to tf32: the model asks for them. Products of bf16
pairs are written out.
"""

from __future__ import annotations

from dataclasses import replace

from ..dtypes import F32, F64, DType
from ..expr import Apply, Cast, Const, Expr, IndexValue, Inside, Load, Op, Value
from ..kernel import Kernel, Reduce, Stage, Store

__all__ = ["in_float64", "unrounded"]


def unrounded(k: Kernel) -> Kernel:
    """``k`` with what it stores in 16 bits as it is before it is rounded to them, in f32.

    store p0[a, b] = bf16(v0)  -->  store p0[a, b] = v0         with p0 in f32
    """
    stages = tuple(_bare(s) for s in k.stages)
    pairs = zip(stages, k.stages, strict=True)
    bare = {s.param for s, before in pairs if s is not before and isinstance(s, Store)}
    params = tuple(replace(p, dtype=F32) if p.name in bare else p for p in k.params)
    return replace(k, params=params, stages=stages) if bare else k


def _bare(s: Stage) -> Stage:
    if isinstance(s, Reduce) or not isinstance(s.expr, Cast):
        return s
    x = s.expr
    return replace(s, expr=x.x) if x.dtype.is_half and x.x.dtype == F32 else s


def in_float64(k: Kernel) -> Kernel:
    """``k`` computed and stored in f64 (where it is floating point); inputs and layouts
    unchanged.
    """
    stages: list[Stage] = []
    outputs = {p.name: p.dtype for p in k.outputs}
    memo: dict[int, Expr] = {}
    for s in k.stages:
        expr = _wide(s.expr, memo)
        if isinstance(s, Reduce):
            stages.append(replace(s, expr=expr, dtype=_wide_type(s.dtype)))
        else:
            if outputs[s.param].is_float and expr.dtype != F64:
                expr = _to_f64(expr)
            stages.append(replace(s, expr=expr))
    params = tuple(
        replace(p, dtype=F64) if p.role == "out" and p.dtype.is_float else p for p in k.params
    )
    return replace(k, params=params, stages=tuple(stages), name=f"{k.name} in f64")


def _product(half: Op, pairs: tuple[Expr, ...]) -> Expr:
    """One of the two products of a DOT2, exactly."""
    return Apply(Op.MUL, tuple(Cast(Apply(half, (p,), F32), F64) for p in pairs), F64)


def _wide_type(dtype: DType) -> DType:
    return F64 if dtype.is_float else dtype


def _to_f64(x: Expr) -> Expr:
    """f16 and bf16 go through f32, the one type they convert to."""
    if x.dtype == F64:
        return x
    if x.dtype.is_half:
        x = Cast(x, F32)
    return Cast(x, F64)


def _to_f32(x: Expr) -> Expr:
    """The operand of a rounding to fewer bits: f64 is narrowed to f32 first."""
    return Cast(x, F32) if x.dtype == F64 else x


def _wide(x: Expr, memo: dict[int, Expr]) -> Expr:
    found = memo.get(id(x))
    if found is None:
        found = memo[id(x)] = _widened(x, memo)
    return found


def _widened(x: Expr, memo: dict[int, Expr]) -> Expr:
    if isinstance(x, Load):
        return _to_f64(x) if x.dtype.is_float else x
    if isinstance(x, Const | Value | IndexValue):
        return replace(x, dtype=_wide_type(x.dtype))
    if isinstance(x, Inside):
        return x
    if isinstance(x, Apply) and x.op is Op.DOT2:
        low, high = (_product(half, x.args) for half in (Op.LOW, Op.HIGH))
        return Apply(Op.ADD, (low, high), F64)
    if isinstance(x, Apply) and x.op is Op.TF32:
        rounded = x.args[0] if isinstance(x.args[0], Load) else _to_f32(_wide(x.args[0], memo))
        return Cast(Apply(x.op, (rounded,), F32), F64)
    if isinstance(x, Apply) and (x.op is Op.PAIR or x.dtype.is_pair):
        return x
    if isinstance(x, Apply):
        return Apply(x.op, tuple(_wide(a, memo) for a in x.args), _wide_type(x.dtype))
    inner = _wide(x.x, memo)
    if x.dtype.is_half:
        return _to_f64(Cast(_to_f32(inner), x.dtype))
    target = _wide_type(x.dtype)
    return inner if inner.dtype == target else Cast(inner, target)
