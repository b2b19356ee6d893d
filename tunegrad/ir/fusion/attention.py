"""Attention as one kernel: where a graph has it, and what its kernel looks like.

    launch scores  (S, Q, K)      S[b, i, j] = scale * sum over k of Q[b, i, k] * K[b, j, k]
    launch softmax (P, S)         P[b, i, j] = exp(S[b, i, j] - max) / sum
    launch product (Y, P, V)      Y[b, i, e] = sum over j of P[b, i, j] * V[b, j, e]
        -->
    launch attention (Y, Q, K, V) axis b, i
        v0[j] = sum over k of Q[b, i, k] * K[b, j, k]           a row: the scores of one query
        v1 = max over j of scale * v0[j]
        v2 = sum over j of exp(scale * v0[j] - v1)
        v3[e] = sum over j of exp(scale * v0[j] - v1) * V[b, j, e]
        Y[b, i, e] = v3[e] / v2

Maximum, sum and weighted sum are three reductions over one row, which no memory outside the kernel
holds. Scores of a mask, of causal queries and of a bias are computed where the row is read. What
divides every term of a sum alike divides the sum: one operation an element of Y, not of P.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..expr import Apply, Const, Expr, IndexValue, Inside, Load, Op, Value, rebuilder
from ..index import Index
from ..kernel import Axis, Kernel, Reduce, Stage
from .axes import distinct_leaves

__all__ = ["is_attention", "rows_divided", "sums_divided_last", "sums_products"]


def sums_products(r: Reduce) -> bool:
    """True if a reduction adds up products of floats."""
    return r.op is Op.ADD and r.dtype.is_float and isinstance(r.expr, Apply) and r.expr.op is Op.MUL


def is_attention(k: Kernel) -> bool:
    """True for attention: a row of products, its maximum, a sum of exponentials, and a row of
    products again that reads the first one.
    """
    if len(k.reduces) != 4 or len(k.stores) != 1:
        return False
    scores, top, total, values = k.reduces
    first = {scores.name}

    def reads_row(s: Stage) -> bool:
        return any(isinstance(x, Value) and x.stage in first for x in distinct_leaves(s.expr))

    return (
        [r.rows > 0 for r in k.reduces] == [True, False, False, True]
        and (top.op, total.op) == (Op.MAX, Op.ADD)
        and sums_products(scores)
        and sums_products(values)
        and not any(isinstance(x, Value) for x in distinct_leaves(scores.expr))
        and all(map(reads_row, (top, total, values)))
    )


def sums_divided_last(k: Kernel) -> Kernel:
    """Sums of products without the factors that are the same for all of their terms; readers of a
    sum multiply or divide it by them.

    v3 = add over j: mul(mul(f(j), recip(v2)), g(j))    -->    v3 = add over j: mul(f(j), g(j))
    store Y = v3                                               store Y = mul(v3, recip(v2))
    """
    later: dict[str, list[tuple[Op, Expr]]] = {}
    stages: list[Stage] = []
    for s in k.stages:
        s = replace(s, expr=_multiplied(s.expr, later))
        if isinstance(s, Reduce) and sums_products(s):
            found = _factors(s.expr)
            kept = [x for op, x in found if op is Op.MUL and not _is_constant(x)]
            moved = [(op, x) for op, x in found if _is_constant(x)]
            if moved and len(kept) == 2 and len(kept) + len(moved) == len(found):
                later[s.name] = moved
                s = replace(s, expr=Apply(Op.MUL, (kept[0], kept[1]), s.dtype))
        stages.append(s)
    return replace(k, stages=tuple(stages)) if later else k


def _factors(x: Expr) -> list[tuple[Op, Expr]]:
    """Parts of a product, each with the operation by which it is in it."""
    if isinstance(x, Apply) and x.op is Op.MUL:
        return [f for a in x.args for f in _factors(a)]
    if isinstance(x, Apply) and x.op is Op.DIV:
        return [*_factors(x.args[0]), (Op.DIV, x.args[1])]
    return [(Op.MUL, x)]


def _is_constant(x: Expr) -> bool:
    """True if an expression is made of results that are one value for each point, and numbers
    beside them.
    """
    leaves = tuple(distinct_leaves(x))
    return any(isinstance(y, Value) for y in leaves) and all(
        isinstance(y, Const) or (isinstance(y, Value) and not y.index) for y in leaves
    )


def _multiplied(x: Expr, later: Mapping[str, list[tuple[Op, Expr]]]) -> Expr:
    def leaf(y: Expr) -> Expr:
        if isinstance(y, Value):
            for op, factor in later.get(y.stage, ()):
                y = Apply(op, (y, factor), factor.dtype)
        return y

    return rebuilder(leaf)(x) if later else x


def rows_divided(k: Kernel, needs: Mapping[str, set[str]], shared: set[str]) -> Kernel:
    """``k`` with only ``shared`` axes shared: a reduction that needs more of them has a row along
    those, and stores have them as their own.

    ``needs`` are the shared axes so far that each reduction depends on.
    """
    more = {r.name: [a for a in k.axes if a.name in needs[r.name] - shared] for r in k.reduces}
    stages: list[Stage] = []
    for s in k.stages:
        env: dict[str, Index] = {}
        extra: list[Axis] = []
        if isinstance(s, Reduce):
            extra = [Axis(f"{s.name}_{a.name}", a.extent) for a in more[s.name]]
            env = {a.name: b.index for a, b in zip(more[s.name], extra, strict=True)}
        expr = _placed(s.expr, env, more)
        if isinstance(s, Reduce):
            axes = (*s.row, *extra, *s.folds)
            stages.append(replace(s, axes=axes, expr=expr, rows=s.rows + len(extra)))
        else:
            own = tuple(a for a in k.axes if a.name not in shared)
            stages.append(replace(s, expr=expr, axes=(*own, *s.axes)))
    return replace(k, axes=tuple(a for a in k.axes if a.name in shared), stages=tuple(stages))


def _placed(x: Expr, env: Mapping[str, Index], more: Mapping[str, list[Axis]]) -> Expr:
    """An expression over a stage's own names of axes; rows that have grown are read along those."""

    def leaf(y: Expr) -> Expr:
        if isinstance(y, Value):
            at = (*y.index, *(a.index for a in more[y.stage]))
            return Value(y.stage, y.dtype, tuple(i.substitute(env) for i in at))
        if isinstance(y, Load):
            at = tuple(i.substitute(env) for i in y.index)
            return Load(y.param, at, y.dtype, y.valid.substitute(env))
        if isinstance(y, IndexValue):
            return IndexValue(y.index.substitute(env), y.dtype)
        return Inside(y.valid.substitute(env)) if isinstance(y, Inside) else y

    return rebuilder(leaf)(x)
