"""One realised tensor as a kernel: index expressions pushed from its elements down to buffers.

    out = relu(sum(window(pad(x)) * w, c kh kw) + b)            out axes o h w
      store out[o, h, w] = max(add(v0, b[o]), 0)
      v0 = sum over c kh kw: mul(x[c, h+kh-1, w+kw-1 if 0<=h+kh-1<H & 0<=w+kw-1<W], w[o, c, kh, kw])

``Draft`` is such a kernel before its parameters have layouts. ``CutError`` names a node that must
have memory before the kernel is legal: a reduction nested in another one, or one that would be
computed again for every point of an axis that it does not depend on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from math import frexp, isfinite
from typing import Any, cast

import numpy as np

from tunegrad.errors import InternalError
from tunegrad.lazy import dataclass

from .. import dtypes
from ..expr import (
    PRODUCTS,
    Apply,
    Cast,
    Const,
    Expr,
    IndexValue,
    Inside,
    Load,
    Op,
    Value,
    names_of,
    rebuild,
    rebuilder,
    substituting,
)
from ..graph import MOVEMENT, GraphOp, Node
from ..index import ALWAYS, Index, Range, Valid, as_index, element
from ..interpret import numeric
from ..kernel import Axis, Kernel, Param, Reduce, Stage, Store, identity
from . import axes as kernel_axes

# ---- attention
#
# Attention as one kernel: where a graph has it, and what its kernel looks like.
#
#     launch scores  (S, Q, K)      S[b, i, j] = scale * sum over k of Q[b, i, k] * K[b, j, k]
#     launch softmax (P, S)         P[b, i, j] = exp(S[b, i, j] - max) / sum
#     launch product (Y, P, V)      Y[b, i, e] = sum over j of P[b, i, j] * V[b, j, e]
#         -->
#     launch attention (Y, Q, K, V) axis b, i
#         v0[j] = sum over k of Q[b, i, k] * K[b, j, k]           a row: the scores of one query
#         v1 = max over j of scale * v0[j]
#         v2 = sum over j of exp(scale * v0[j] - v1)
#         v3[e] = sum over j of exp(scale * v0[j] - v1) * V[b, j, e]
#         Y[b, i, e] = v3[e] / v2
#
# Maximum, sum and weighted sum are three reductions over one row, which no memory outside the
# kernel holds. Scores of a mask, of causal queries and of a bias are computed where the row is
# read. What divides every term of a sum alike divides the sum: one operation an element of Y, not
# of P.


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
        return any(
            isinstance(x, Value) and x.stage in first for x in kernel_axes.distinct_leaves(s.expr)
        )

    return (
        [r.rows > 0 for r in k.reduces] == [True, False, False, True]
        and (top.op, total.op) == (Op.MAX, Op.ADD)
        and sums_products(scores)
        and sums_products(values)
        and not any(isinstance(x, Value) for x in kernel_axes.distinct_leaves(scores.expr))
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
    """True if an expression is made of results with one value a point, and of numbers."""
    leaves = tuple(kernel_axes.distinct_leaves(x))
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
    placed = substituting(env)

    def leaf(y: Expr) -> Expr:
        if isinstance(y, Value):
            at = (*y.index, *(a.index for a in more[y.stage]))
            return Value(y.stage, y.dtype, tuple(i.substitute(env) for i in at))
        return placed(y)

    return rebuilder(leaf)(x)


# ---- drafts


_ZERO_STAYS = (Op.SQRT, Op.TANH, Op.ERF, Op.SIN, Op.TAN, Op.ABS, Op.FLOOR, Op.ROUND, Op.TF32)


def literal(value: float | int | bool, dtype: dtypes.DType) -> Const:
    """The constant as the Python type that ``dtype`` calls for, rounded to what it can hold."""
    array = numeric.convert(np.asarray(value), dtype)
    return Const(array.item(), dtype.compute)


def apply_op(op: Op, args: tuple[Expr, ...], dtype: dtypes.DType) -> Expr:
    """``op`` on ``args``, simplified; ``dtype`` is the result's compute type.

    Each rule keeps every bit of the result.

    op(Const ...)            -> Const          cast(cast(x: f16 -> f32) -> f16) -> x
    x * 1, x / 1             -> x              x / 2^k -> x * 2^-k
    where(Const, a, b)       -> a or b         where(c, true, false) -> c
    inside(u) and inside(v)  -> inside(u & v)  where(inside(v), x, 0) -> x  when x is 0 outside v
    """
    if all(isinstance(a, Const) for a in args):
        arrays = [np.asarray(a.value, a.dtype.numpy) for a in args if isinstance(a, Const)]
        return Const(numeric.compute(op, *arrays).astype(dtype.numpy).item(), dtype)
    if op is Op.MUL and any(_is(a, 1) for a in args):
        return args[1] if _is(args[0], 1) else args[0]
    if op is Op.DIV and isinstance(args[1], Const):
        return _divided(args[0], args[1])
    if op is Op.WHERE:
        return _where(args[0], args[1], args[2])
    if op is Op.AND and isinstance(args[0], Inside) and isinstance(args[1], Inside):
        return inside(args[0].valid & args[1].valid)
    if op is Op.AND and dtype.is_bool and any(_is(a, True) for a in args):
        return args[1] if _is(args[0], True) else args[0]
    return Apply(op, args, dtype)


def _is(x: Expr, value: float | bool) -> bool:
    return isinstance(x, Const) and x.value == value


def _divided(x: Expr, by: Const) -> Expr:
    """x / 1 -> x;  x / 2^k -> x * 2^-k"""
    value = float(by.value)
    if value == 1.0:
        return x
    if (
        value
        and isfinite(value)
        and abs(frexp(value)[0]) == 0.5
        and 2.0**-100 < abs(value) < 2.0**100
    ):
        return Apply(Op.MUL, (x, Const(1.0 / value, by.dtype)), by.dtype)
    return Apply(Op.DIV, (x, by), by.dtype)


def _where(c: Expr, a: Expr, b: Expr) -> Expr:
    """where(true, a, b) -> a;  where(c, true, false) -> c;  where(c, a, a) -> a"""
    if isinstance(c, Const):
        return a if c.value else b
    if a is b:
        return a
    if _is(a, True) and _is(b, False) and a.dtype.is_bool:
        return c
    return Apply(Op.WHERE, (c, a, b), a.dtype)


def cast_to(x: Expr, dtype: dtypes.DType) -> Expr:
    """``x`` as ``dtype``, which may be a stored type (f16, bf16)."""
    if x.dtype == dtype:
        return x
    if isinstance(x, Const) and not dtype.is_half:
        return literal(x.value, dtype)
    if isinstance(x, Cast) and x.dtype == dtypes.F32 and x.x.dtype == dtype and dtype.is_half:
        return x.x
    return Cast(cast_to(x, dtypes.F32) if dtype.is_half else x, dtype)


def as_compute(x: Expr) -> Expr:
    """``x`` in the type that arithmetic on it happens in."""
    return cast_to(x, x.dtype.compute)


def inside(valid: Valid) -> Expr:
    """The condition as an expression."""
    return Const(not valid.never, dtypes.BOOL) if valid.always or valid.never else Inside(valid)


def index_value(index: Index, dtype: dtypes.DType) -> Expr:
    """An index as a number."""
    return literal(index.const, dtype) if index.is_const else IndexValue(index, dtype)


def masked(valid: Valid, x: Expr) -> Expr:
    """where(inside(valid), x, 0), for an ``x`` whose loads are masked by ``valid`` already.

    A pad of a pad is one: where(inside(u), where(inside(v), x, 0), 0) -> where(inside(u & v), x,
    0). That 0 is the constant: a load is 0 outside ``u`` alone.
    """
    if valid.always or _vanishes(x):
        return x
    zero = literal(0, x.dtype)
    if valid.never:
        return zero
    if (
        isinstance(x, Apply)
        and x.op is Op.WHERE
        and isinstance(x.args[0], Inside)
        and isinstance(x.args[2], Const)
        and _vanishes(x.args[2])
    ):
        return masked(valid & x.args[0].valid, x.args[1])
    return _where(inside(valid), x, zero)


def _vanishes(x: Expr) -> bool:
    """True if ``x`` is +0 when all its loads are."""
    if isinstance(x, Load):
        return not x.valid.always
    if isinstance(x, Const):
        return x.value == 0 and not str(x.value).startswith("-")
    if isinstance(x, Cast):
        return _vanishes(x.x)
    if not isinstance(x, Apply):
        return False
    if x.op in _ZERO_STAYS:
        return _vanishes(x.args[0])
    if x.op in (Op.PAIR, Op.LOW, Op.HIGH, Op.QUAD):
        return all(_vanishes(a) for a in x.args)
    if x.op in (Op.ADD, Op.SUB, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR):
        return _vanishes(x.args[0]) and _vanishes(x.args[1])
    if x.op is Op.MUL:
        a, b = x.args
        return (_vanishes(a) and (_vanishes(b) or _positive(b))) or (_vanishes(b) and _positive(a))
    if x.op is Op.WHERE:
        return _vanishes(x.args[1]) and _vanishes(x.args[2])
    return False


def _positive(x: Expr) -> bool:
    return isinstance(x, Const) and x.value > 0 and isfinite(x.value)


ZERO = as_index(0)


def source_index(node: Node, index: tuple[Index, ...]) -> tuple[tuple[Index, ...], Valid]:
    """The source index that a movement node reads for ``index``, and where it reads anything.

    PERMUTE(order)  out[i_0, ...] = in[...]  with in index order[d] = i_d
    EXPAND          the source's extent-1 dimensions are read at 0
    SHRINK, FLIP    begin + i, extent - 1 - i
    WINDOW          o*stride + k*dilation, k being the last index
    PAD             i - lo, valid where 0 <= i - lo < extent
    RESHAPE         row-major offset, then // and %, dimension group by dimension group
    """
    op, arg, src = node.op, cast(Any, node.arg), node.srcs[0]
    if op is GraphOp.RESHAPE:
        return _reshaped(index, node.shape, src.shape), ALWAYS
    if op is GraphOp.EXPAND:
        return tuple(ZERO if s == 1 else i for i, s in zip(index, src.shape, strict=True)), ALWAYS
    if op is GraphOp.PERMUTE:
        return _permuted(index, arg), ALWAYS
    if op is GraphOp.SHRINK:
        return tuple(i + begin for i, (begin, _) in zip(index, arg, strict=True)), ALWAYS
    if op is GraphOp.FLIP:
        return tuple(src.shape[d] - 1 - i if d in arg else i for d, i in enumerate(index)), ALWAYS
    if op is GraphOp.WINDOW:
        dim, _, stride, dilation = arg
        *rest, k = index
        return tuple(
            i * stride + k * dilation if d == dim else i for d, i in enumerate(rest)
        ), ALWAYS
    moved = [i - lo for i, (lo, _) in zip(index, arg, strict=True)]
    limits = (Range(i, 0, s) for i, s, w in zip(moved, src.shape, arg, strict=True) if w != (0, 0))
    return tuple(moved), Valid(limits)


@dataclass(frozen=True, slots=True)
class Place:
    """An element of a node: its index, and the views that lead there from an index above.

    A view and its inverse cancel, also where elementwise work is between them: the index is the one
    above both, whatever divisions the first one has made of it.
    """

    index: tuple[Index, ...]
    shape: tuple[int, ...]
    op: GraphOp | None = None
    order: tuple[int, ...] = ()
    """Of a PERMUTE: dimension ``d`` of ``above`` is dimension ``order[d]`` here."""
    above: Place | None = None

    def below(self, node: Node) -> tuple[Place, Valid]:
        """The place in the source of a movement node, and where it reads anything."""
        op, shape = node.op, node.srcs[0].shape
        start, order = self, cast(tuple[int, ...], node.arg) if op is GraphOp.PERMUTE else ()
        if op in (GraphOp.RESHAPE, GraphOp.PERMUTE) and self.op is op and self.above is not None:
            start, order = self.above, tuple(order[d] for d in self.order) if order else ()
            if order == tuple(range(len(order))) and start.shape == shape:
                return start, ALWAYS
        if op is GraphOp.RESHAPE:
            return Place(_reshaped(start.index, start.shape, shape), shape, op, (), start), ALWAYS
        if op is GraphOp.PERMUTE:
            return Place(_permuted(start.index, order), shape, op, order, start), ALWAYS
        index, valid = source_index(node, self.index)
        return Place(index, shape), valid


def reshape_groups(a: Sequence[int], b: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Dimensions of two shapes of one size, paired into the smallest groups of equal products.

    Extents of 1 belong to no group; shapes of size 0 are one group.
    """
    da = [d for d, s in enumerate(a) if s != 1]
    db = [d for d, s in enumerate(b) if s != 1]
    if any(a[d] == 0 for d in da):
        return [(da, db)]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(da) or j < len(db):
        ga, gb = [da[i]], [db[j]]
        pa, pb = a[da[i]], b[db[j]]
        i, j = i + 1, j + 1
        while pa != pb:
            if pa < pb:
                ga.append(da[i])
                pa *= a[da[i]]
                i += 1
            else:
                gb.append(db[j])
                pb *= b[db[j]]
                j += 1
        groups.append((ga, gb))
    return groups


def _permuted(index: tuple[Index, ...], order: tuple[int, ...]) -> tuple[Index, ...]:
    moved = [ZERO] * len(index)
    for d, o in enumerate(order):
        moved[o] = index[d]
    return tuple(moved)


def _reshaped(
    index: tuple[Index, ...], shape: tuple[int, ...], src: tuple[int, ...]
) -> tuple[Index, ...]:
    result = [ZERO] * len(src)
    if 0 in shape:
        return tuple(result)
    for outer, inner in reshape_groups(shape, src):
        if len(outer) == len(inner) == 1:
            result[inner[0]] = index[outer[0]]
            continue
        offset, stride = ZERO, 1
        for d in reversed(outer):
            offset = offset + index[d] * stride
            stride *= shape[d]
        for place, d in enumerate(reversed(inner)):
            last = place == len(inner) - 1
            result[d] = offset if last else offset % src[d]
            offset = offset if last else offset // src[d]
    return tuple(result)


def interleaves(chain: Sequence[Node]) -> bool:
    """True if a dimension of the first of these views mixes several dimensions of the last."""
    if 0 in chain[-1].shape:
        return False
    parts = [[(d, s)] for d, s in enumerate(chain[-1].shape)]
    for view in reversed(chain[:-1]):
        if view.op is GraphOp.PERMUTE:
            parts = [parts[d] for d in cast(tuple[int, ...], view.arg)]
        elif view.op is GraphOp.RESHAPE:
            left = [x for dim in parts for x in dim if x[1] != 1][::-1]
            parts = [_taken(left, size) for size in view.shape]
        elif view.op is GraphOp.WINDOW:
            parts.append([])
    return any(len({d for d, _ in dim}) > 1 for dim in parts)


def _taken(left: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """The next parts (dimension, extent) that make up ``size``, from the end of a list; what is
    left of the last of them goes back.
    """
    found = []
    while size > 1 and left:
        d, extent = left.pop()
        if extent > size:
            left.append((d, extent // size))
            extent = size
        found.append((d, extent))
        size = -(-size // extent)
    return found


MAX_NESTED = 96
"""Operations inside one another in one expression, at most, those that pad and those that round to
16 bits included: texts are read to a depth of 100. The rules stay far below it.
"""


class CutError(Exception):
    """The kernel is not legal while ``node`` has no memory."""

    def __init__(self, node: Node) -> None:
        super().__init__(f"{node} needs memory")
        self.node = node


@dataclass(frozen=True, slots=True)
class Draft:
    """A kernel before layouts: ``reads`` maps parameter names to nodes; ``inlined`` are the nodes
    it computes, and elements of the parameters in ``looked_up`` are indices.

    It stores ``node`` and its ``siblings``, each in a parameter of its own.
    """

    node: Node
    kernel: Kernel
    reads: dict[str, Node]
    inlined: tuple[Node, ...]
    looked_up: frozenset[str]
    siblings: tuple[Node, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that it stores, sources first."""
        return (self.node, *self.siblings)

    @property
    def writes(self) -> dict[str, Node]:
        """The stored nodes by parameter names."""
        return {_stored_name(i): n for i, n in enumerate(self.nodes)}


def _stored_name(i: int) -> str:
    return f"out{i or ''}"


def draft_kernel(root: Node, buffers: Set[Node], *, rows: bool = False) -> Draft:
    """The kernel that computes ``root``, reading inputs, constants and the nodes in ``buffers``.

    ``rows``: a reduction nested in another one is a row of the kernel, and the kernel has to be
    attention. Raises CutError.
    """
    return draft_kernels((root,), buffers, rows=rows)


def draft_kernels(roots: tuple[Node, ...], buffers: Set[Node], *, rows: bool = False) -> Draft:
    """One kernel that computes several nodes of equal extents, sources first.

    A node reads another one of them as if that had no memory. Raises CutError where it is read at
    another point, which would compute it twice.
    """
    b = _Builder(roots, buffers, rows)
    axes = tuple(Axis(f"o{d}", s) for d, s in enumerate(roots[0].shape) if s != 1)
    stores, params = [], []
    for i, root in enumerate(roots):
        name, at = _stored_name(i), _point(root, axes)
        stores.append(Store(name, at.index, b.stored(root, at)))
        params.append(Param.dense(name, root.dtype, root.shape, "out"))
    whole, reads = _factors_apart(
        Kernel((*params, *b.params.values()), axes, (*_read(b.reduces, stores), *stores)), b.reads
    )
    kernel = kernel_axes.split_axes(whole)
    if rows:
        divided = _with_rows(kernel)
        if not is_attention(divided):
            raise CutError(b.stage_nodes[kernel.reduces[0].name])
    else:
        divided = _divide_axes(kernel, b.stage_nodes)
    used, looked_up = kernel_axes.params_of(divided)
    kept = tuple(p for p in divided.params if p.name in used)
    reads = {name: node for name, node in reads.items() if name in used}
    inlined = tuple(b.inlined.values())
    return Draft(roots[0], replace(divided, params=kept), reads, inlined, looked_up, roots[1:])


def _read(reduces: Sequence[Reduce], stores: Sequence[Store]) -> tuple[Reduce, ...]:
    """The reductions that the stores need: another one is what a literal 0 was multiplied by."""
    left, wanted, found = [s.expr for s in stores], set[str](), list[Reduce]()
    for reduce in reversed(reduces):
        while left:
            wanted |= kernel_axes.stages_read(left.pop())
        if reduce.name in wanted:
            left.append(reduce.expr)
            found.append(reduce)
    return tuple(reversed(found))


def _point(root: Node, axes: tuple[Axis, ...]) -> Place:
    """The element of a node at a point of all axes. Raises InternalError for other extents."""
    if [s for s in root.shape if s != 1] != [a.extent for a in axes]:
        raise InternalError(f"{root} has no element for each point of {axes}")
    left = iter(axes)
    return Place(tuple(ZERO if s == 1 else next(left).index for s in root.shape), root.shape)


class _Builder:
    def __init__(self, roots: tuple[Node, ...], buffers: Set[Node], rows: bool) -> None:
        self.roots, self.buffers, self.rows = frozenset(roots), buffers, rows
        self.stored_at: dict[Node, tuple[Index, ...]] = {}
        """The indices of the roots that are stored by now."""
        self.made: dict[tuple[int, tuple[Index, ...]], Reduce] = {}
        """The rows by what they are of."""
        self.params: dict[Node, Param] = {}
        self.reads: dict[str, Node] = {}
        self.reduces: list[Reduce] = []
        self.stage_nodes: dict[str, Node] = {}
        self.inlined: dict[int, Node] = {}
        self.memo: dict[tuple[int, tuple[Index, ...], Valid], Expr] = {}
        self.depth = 0

    def stored(self, root: Node, place: Place) -> Expr:
        """The element of a root at a place, in the type of its memory; later roots may read there
        what is stored, before it is rounded.
        """
        value = self.emit(root, place, ALWAYS)
        self.stored_at[root] = place.index
        return cast_to(value, root.dtype)

    def emit(self, node: Node, place: Place, valid: Valid) -> Expr:
        """The element of ``node`` at a place, in its compute type (or as loaded); zero in a PAD."""
        pads: list[Valid] = []
        while True:
            if self._is_buffer(node):
                break
            if node in self.stored_at and (self.stored_at[node] != place.index or not valid.always):
                raise CutError(node)
            if node.op is GraphOp.CONTIGUOUS:
                node = node.srcs[0]
                continue
            if node.op is GraphOp.GATHER:
                self.inlined.setdefault(id(node), node)
                index = self._gathered(node, place.index)
                node = node.srcs[0]
                place = Place(index, node.shape)
                continue
            if node.op not in MOVEMENT:
                break
            self.inlined.setdefault(id(node), node)
            place, condition = place.below(node)
            node = node.srcs[0]
            if condition.never:
                return literal(0, node.dtype)
            if not condition.always:
                valid = valid & condition
                pads.append(condition)
        self.depth += len(pads)
        expr = literal(0, node.dtype) if valid.never else self._element(node, place, valid)
        self.depth -= len(pads)
        for condition in reversed(pads):
            expr = masked(condition, expr)
        return expr

    def _is_buffer(self, node: Node) -> bool:
        if node.op in (GraphOp.INPUT, GraphOp.CONST):
            return True
        return node in self.buffers and node not in self.roots

    def _element(self, node: Node, place: Place, valid: Valid) -> Expr:
        key = (id(node), place.index, valid)
        found = self.memo.get(key)
        if found is None:
            if self.depth >= MAX_NESTED and node.srcs and not self._is_buffer(node):
                raise CutError(node)
            deep = 1 + (node.op is GraphOp.MAP and node.dtype.is_half)
            self.depth += deep
            found = self.memo[key] = self._compute(node, place, valid)
            self.depth -= deep
        return found

    def _compute(self, node: Node, place: Place, valid: Valid) -> Expr:
        index = place.index
        if self._is_buffer(node):
            return self._load(node, index, valid)
        self.inlined.setdefault(id(node), node)
        op, arg = node.op, cast(Any, node.arg)
        if op is GraphOp.FULL:
            return literal(arg[2], node.dtype)
        if op is GraphOp.IOTA:
            return as_compute(cast_to(index_value(index[arg], node.dtype.compute), node.dtype))
        if op is GraphOp.CAST:
            return as_compute(cast_to(as_compute(self.emit(node.srcs[0], place, valid)), arg))
        if op is GraphOp.MAP:
            args = tuple(as_compute(self.emit(s, place, valid)) for s in node.srcs)
            return apply_op(arg, args, node.dtype.compute)
        return self._reduce(node, place, valid)

    def _gathered(self, node: Node, index: tuple[Index, ...]) -> tuple[Index, ...]:
        """Index at which a GATHER reads its first source: along its dimension, at positions that
        are an index themselves, or at an element of a buffer.

        Raises CutError where its index is in no buffer yet.
        """
        x, base = node.srcs
        dim, at = cast(int, node.arg), index
        if x.shape[dim] == 1:
            return (*index[:dim], ZERO, *index[dim + 1 :])
        passed: list[Node] = []
        position = _position(base, index, passed)
        if position is not None and -x.shape[dim] <= position.lo and position.hi < 0:
            position = position + x.shape[dim]
        if position is not None and position.lo >= 0 and position.hi < x.shape[dim]:
            self.inlined.update((id(n), n) for n in passed)
            return (*index[:dim], position, *index[dim + 1 :])
        while not self._is_buffer(base):
            if base.op is GraphOp.CONTIGUOUS:
                base = base.srcs[0]
            elif base.op in MOVEMENT and base.op is not GraphOp.PAD:
                self.inlined.setdefault(id(base), base)
                at, _ = source_index(base, at)
                base = base.srcs[0]
            else:
                raise CutError(base)
        offset = ZERO
        for i, extent in zip(at, base.shape, strict=True):
            offset = offset * extent + i
        found = element(self._param(base).name, offset, base.size, x.shape[dim])
        return (*index[:dim], found, *index[dim + 1 :])

    def _load(self, node: Node, index: tuple[Index, ...], valid: Valid) -> Expr:
        if node.op is GraphOp.CONST and all(i.is_const for i in index):
            valid = ALWAYS  # the same number everywhere: what it makes is masked
        return Load(self._param(node).name, index, node.dtype, valid)

    def _param(self, node: Node) -> Param:
        """The parameter that reads a buffer."""
        param = self.params.get(node)
        if param is None:
            role = "const" if node.op is GraphOp.CONST else "in"
            param = self.params[node] = Param.dense(
                f"n{len(self.params)}", node.dtype, node.shape, cast(Any, role)
            )
            self.reads[param.name] = node
        return param

    def _reduce(self, node: Node, place: Place, valid: Valid) -> Expr:
        index = place.index
        op, dims = cast(tuple[Op, tuple[int, ...]], node.arg)
        src, acc = node.srcs[0], node.dtype.compute
        wide = [d for d in dims if src.shape[d] != 1]
        if any(src.shape[d] == 0 for d in wide):
            return Const(identity(op, acc), acc)
        if not wide:
            return as_compute(self.emit(src, place, valid))
        inner = [d for d, i in enumerate(index) if any(not n.startswith("o") for n in i.names())]
        if not valid.always or (inner and not self.rows):
            raise CutError(node)
        if inner:
            return self._row(node, index, inner, wide)
        number = len(self.stage_nodes)
        self.stage_nodes[f"v{number}"] = node
        axes = tuple(Axis(f"r{number}_{d}", src.shape[d]) for d in wide)
        at = list(index)
        for axis, d in zip(axes, wide, strict=True):
            at[d] = axis.index
        expr = as_compute(self.emit(src, Place(tuple(at), src.shape), ALWAYS))
        self.reduces.append(Reduce(f"v{number}", op, axes, cast_to(expr, acc), acc))
        return Value(f"v{number}", acc)

    def _row(self, node: Node, index: tuple[Index, ...], inner: list[int], wide: list[int]) -> Expr:
        """An element of a row: a reduction along the dimensions in which its place depends on
        another one's axes. All its readers read the same row.
        """
        op, acc = cast(tuple[Op, tuple[int, ...]], node.arg)[0], node.dtype.compute
        key = id(node), tuple(ZERO if d in inner else i for d, i in enumerate(index))
        row = self.made.get(key)
        if row is None:
            src, number = node.srcs[0], len(self.stage_nodes)
            name = f"v{number}"
            self.stage_nodes[name] = node
            axes = {d: Axis(f"r{number}_{d}", src.shape[d]) for d in (*inner, *wide)}
            at = tuple(axes[d].index if d in axes else i for d, i in enumerate(index))
            expr = cast_to(as_compute(self.emit(src, Place(at, src.shape), ALWAYS)), acc)
            row = Reduce(name, op, tuple(axes.values()), expr, acc, len(inner))
            self.made[key] = row
            self.reduces.append(row)
        return Value(row.name, acc, tuple(index[d] for d in inner))


def _position(n: Node, at: tuple[Index, ...], passed: list[Node]) -> Index | None:
    """The integer that ``n`` is at an index, as an index; None where it depends on memory.

    ``passed`` is given the nodes that it is computed by. No value leaves the range of its type.
    """
    if not n.dtype.is_int:
        return None
    op, arg = n.op, cast(Any, n.arg)
    found: Index | None = None
    if op is GraphOp.FULL:
        found = as_index(arg[2])
    elif op is GraphOp.IOTA:
        found = at[arg]
    elif op is GraphOp.CONTIGUOUS or op is GraphOp.CAST:
        found = _position(n.srcs[0], at, passed)
    elif op in MOVEMENT and op is not GraphOp.PAD:
        found = _position(n.srcs[0], source_index(n, at)[0], passed)
    elif op is GraphOp.MAP and arg in (Op.ADD, Op.SUB, Op.MUL):
        a, b = (_position(s, at, passed) for s in n.srcs)
        if a is not None and b is not None:
            if arg is not Op.MUL:
                found = a + b if arg is Op.ADD else a - b
            elif a.is_const or b.is_const:
                found = a * b.const if b.is_const else b * a.const
    if found is None or found.lo < n.dtype.least or found.hi > n.dtype.greatest:
        return None
    passed.append(n)
    return found


def _factors_apart(kernel: Kernel, reads: dict[str, Node]) -> tuple[Kernel, dict[str, Node]]:
    """A tensor whose elements meet others of its own in a sum of products, as two parameters.

        v0 = add over k: mul(x[i, k], x[j, k])    -->    v0 = add over k: mul(x[i, k], y[j, k])

    Both are the same memory. A copy in registers or a cache holds one parameter, and each factor
    needs its own: scores of attention from one fused projection are a product like any other.
    """
    params, reads = list(kernel.params), dict(reads)
    stages: list[Stage] = []
    for s in kernel.stages:
        if isinstance(s, Reduce) and s.op is Op.ADD and isinstance(s.expr, Apply):
            for name in _met_by_itself(s.expr):
                old = kernel.param(name)
                new = replace(old, name=f"n{len(params) - 1}")
                params.append(new)
                reads[new.name] = reads[name]
                s = replace(s, expr=_renamed(s.expr, name, new.name))
        stages.append(s)
    return replace(kernel, params=tuple(params), stages=tuple(stages)), reads


def _met_by_itself(x: Apply) -> list[str]:
    """The parameters that both factors of a product read, each at its own indices."""
    if x.op not in PRODUCTS:
        return []
    left, right = (
        {leaf for leaf in kernel_axes.distinct_leaves(a) if isinstance(leaf, Load)} for a in x.args
    )
    if left & right:
        return []
    return sorted({load.param for load in left} & {load.param for load in right})


def _renamed(x: Apply, old: str, new: str) -> Apply:
    """A product whose second factor reads parameter ``new`` in the place of ``old``."""

    def leaf(y: Expr) -> Expr:
        return replace(y, param=new) if isinstance(y, Load) and y.param == old else y

    return Apply(x.op, (x.args[0], rebuild(x.args[1], leaf)), x.dtype)


def _with_rows(kernel: Kernel) -> Kernel:
    """The axes that all reductions depend on are shared; what depends on more has a row."""
    needs: dict[str, set[str]] = {}
    outputs = {a.name for a in kernel.axes}
    for r in kernel.reduces:
        needs[r.name] = expr_names(r.expr, needs) & outputs
    shared = set.intersection(outputs, *needs.values())
    return sums_divided_last(rows_divided(kernel, needs, shared))


def _divide_axes(kernel: Kernel, nodes: dict[str, Node]) -> Kernel:
    """Output axes that no reduction depends on become each store's own.

    Raises CutError for a reduction that depends on fewer axes than another.
    """
    if not kernel.reduces:
        return kernel
    needs: dict[str, set[str]] = {}
    outputs = {a.name for a in kernel.axes}
    for r in kernel.reduces:
        used = expr_names(r.expr, needs)
        needs[r.name] = used & outputs
    shared = set().union(*needs.values())
    for r in kernel.reduces:
        if needs[r.name] != shared:
            raise CutError(nodes[r.name])
    own = tuple(a for a in kernel.axes if a.name not in shared)
    first, *others = kernel.stores
    stores = [replace(first, axes=own), *(_with_own(s, own, i) for i, s in enumerate(others, 1))]
    axes = tuple(a for a in kernel.axes if a.name in shared)
    return Kernel(kernel.params, axes, (*kernel.reduces, *stores))


def _with_own(store: Store, own: tuple[Axis, ...], number: int) -> Store:
    """A store over axes of its own, which have names of their own."""
    axes = tuple(Axis(f"{a.name}_{number}", a.extent) for a in own)
    env = {a.name: new.index for a, new in zip(own, axes, strict=True)}
    index = tuple(i.substitute(env) for i in store.index)
    return replace(store, index=index, expr=rebuild(store.expr, substituting(env)), axes=axes)


def expr_names(x: Expr, values: dict[str, set[str]]) -> set[str]:
    """Axes an expression depends on, also through the reductions in ``values``."""
    found: set[str] = set()
    for leaf in kernel_axes.distinct_leaves(x):
        found |= names_of(leaf)
        if isinstance(leaf, Value):
            found |= values[leaf.stage]
    return found
