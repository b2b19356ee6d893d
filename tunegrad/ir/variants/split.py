"""Split: a long reduction with few results as partial results, which cores share, and a second
kernel that folds them.

    v0 = sum over r: f(r, o)
    store Y[o] = g(v0, o)
        -->
    v0 = sum over r': f((c*R + r')*Q + q, o)          for c in P chunks, q in Q lanes
    store T[c, q, o] = v0                             T[o, c] where rows of the input are reduced

    v0 = sum over k: T[k, o]                          k: all pairs of c and q
    v1 = sum over t: f(P*R*Q + t, o)                  where P*R*Q rows are not all
    store Y[o] = g(v0 + v1, o)

Chunks are contiguous: each core reads on its own. Q is more than one where neighbouring results are
neighbours in memory and are too few to fill vectors: (2^24, 4) summed over its rows has Q = 16, and
runs of 64 numbers. The terms are added in another order, as any schedule may do inside one kernel.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from tunegrad.lazy import dataclass

from ..expr import Apply, Cast, Expr, Load, Op, Value, leaves, loads_in, rebuild
from ..fusion.axes import merge_axes, params_of, rewritten
from ..index import as_index
from ..kernel import Axis, Kernel, Param, Reduce, Store, products_summed

CHUNKS = (64, 512)
"""Partial results for each result: enough for many cores, and for uneven ones."""

_MOST_POINTS = 256

_MOST_ROWS = 64
"""Results, at most: neighbouring ones, and ones that long rows each give."""

_LEAST_TERMS = 1 << 15

_LEAST_CHUNK = 1 << 13
"""Terms of one result, and of one chunk where there are more chunks than the fewest."""

_RUN = 64

_VECTOR = 16
"""Neighbouring numbers that a step of a chunk reads, and a divisor: four vectors of 16."""

_ALIGNED = 128

_LONG = 2048


@dataclass(frozen=True, slots=True)
class Split:
    """The kernels.

    Their parameters are those of the direct kernel at the places in ``reads`` and ``finish_args``.

    The first parameter of ``partial`` is T, which ``reads`` leaves out; in ``finish_args`` None
    stands for it.
    """

    partial: Kernel
    finish: Kernel
    reads: tuple[int, ...]
    finish_args: tuple[int | None, ...]


def splits_of(kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """(chunks, lanes) of the splits that can pay; none for many results or short reductions."""
    if not _matches(kernel):
        return ()
    terms = prod(a.extent for a in kernel.reduces[0].axes)
    most = _MOST_ROWS if reads_rows(kernel) else _MOST_POINTS
    if kernel.points > most or terms < _LEAST_TERMS:
        return ()
    lanes = _lanes(kernel)
    return tuple(
        (c, lanes) for c in CHUNKS if c == CHUNKS[0] or terms * kernel.points >= c * _LEAST_CHUNK
    )


def reads_rows(kernel: Kernel) -> bool:
    """True if the loads of the first reduction walk memory number by number along an axis."""
    reduce = kernel.reduces[0]
    offsets = [
        kernel.param(x.param).layout.offset(x.index)
        for x in leaves(reduce.expr)
        if isinstance(x, Load)
    ]
    return any(all(i.coefficient(a.name) in (0, 1) for i in offsets) for a in reduce.axes)


def split(kernel: Kernel, chunks: int, lanes: int = 1) -> Split | None:
    """The two kernels for about ``chunks`` chunks; None unless it is a reduction and stores."""
    if not _matches(kernel):
        return None
    k = kernel.canonical()
    reduce = k.reduces[0]
    axis = _axis(reduce, chunks * lanes)
    alone = len(reduce.axes) == 1
    chunks = min(chunks, axis.extent) if alone else _divisor(axis.extent, chunks)
    lanes = min(lanes, axis.extent // chunks) if alone and not reads_rows(k) else 1
    rows = axis.extent // (chunks * lanes)
    rows -= rows % _ALIGNED if alone and lanes == 1 and rows >= _LONG else 0
    outermost = not reads_rows(k)
    partial = partial_of(k, reduce, axis, (chunks, rows, lanes), outermost)
    finish = finish_of(k, reduce, axis, (chunks * lanes, rows), outermost)
    name = f"{chunks}x{lanes}" if lanes > 1 else f"{chunks}"
    return _halves(kernel, k, partial, finish, name, merged=lanes > 1)


def _halves(
    kernel: Kernel, k: Kernel, partial: Kernel, finish: Kernel, parts: str, *, merged: bool = False
) -> Split:
    """Both kernels of ``k``, the canonical form of ``kernel``, and where their parameters are."""
    places = {p.name: i for i, p in enumerate(k.params)}
    first = (merge_axes(partial) if merged else partial).canonical()
    return Split(
        replace(first, name=f"{kernel.name} in {parts}"),
        replace(finish.canonical(), name=f"{kernel.name} of {parts}"),
        tuple(places[p.name] for p in partial.params[1:]),
        tuple(places.get(p.name) for p in finish.params),
    )


def _matches(kernel: Kernel) -> bool:
    """One reduction, then stores at the shared points."""
    first, *rest = kernel.stages
    return isinstance(first, Reduce) and all(isinstance(s, Store) and not s.axes for s in rest)


def _axis(reduce: Reduce, parts: int) -> Axis:
    """The reduce axis that is cut: the outermost that gives every chunk a row, else the longest."""
    return next(
        (a for a in reduce.axes if a.extent >= parts), max(reduce.axes, key=lambda a: a.extent)
    )


def _divisor(extent: int, near: int) -> int:
    """The divisor of ``extent`` nearest to ``near``; ``near`` if none is within a factor of two."""
    found = [d for d in range(max(1, near // 2), min(extent, 2 * near) + 1) if extent % d == 0]
    return min(found, key=lambda d: abs(d - near), default=min(near, extent))


def _lanes(kernel: Kernel) -> int:
    """Number of rows side by side in a run of about ``_RUN`` numbers; 1 where a row is no run of
    the results.

    Every load must read the same run: a dense block over shared axes, the reduction's axis directly
    outside it.
    """
    reduce = kernel.reduces[0]
    loads = loads_in(reduce.expr)
    if len(reduce.axes) != 1 or not loads:
        return 1
    (axis,) = reduce.axes
    widths = {_width(kernel, x, axis) for x in loads}
    width = widths.pop()
    if widths or not 1 < width < _RUN:
        return 1
    return max(1 << (_RUN // width).bit_length() - 1, _VECTOR // gcd(width, _VECTOR))


def _width(kernel: Kernel, x: Load, axis: Axis) -> int:
    """Numbers of a row: the step of the reduction's axis, if shared axes walk a dense block."""
    if not x.valid.always or not kernel.param(x.param).layout.is_row_major:
        return 0
    offset = kernel.param(x.param).layout.offset(x.index)
    steps = sorted((offset.coefficient(a.name) or 0, a.extent) for a in kernel.axes if a.extent > 1)
    width = 1
    for step, extent in steps:
        if step != width:
            return 0
        width *= extent
    return width if offset.coefficient(axis.name) == width else 0


def partial_of(
    k: Kernel, reduce: Reduce, axis: Axis, shape: tuple[int, int, int], outermost: bool
) -> Kernel:
    """T[chunk, lane, o] = the fold of every ``lanes``-th row of a chunk; T[o, chunk] where chunks
    are not the outermost axis.
    """
    chunks, rows, lanes = shape
    chunk, row, lane = Axis("chunk", chunks), Axis("row", rows), Axis("lane", lanes)
    at = (chunk.index * rows + row.index) * lanes + lane.index
    alone = replace(k, stages=(reduce,))
    used, looked_up = params_of(alone)
    inputs = [p for p in k.params if p.name in used]
    params = {p.name: p for p in inputs}
    plain = _plain(reduce.expr) and not looked_up
    flat = lanes > 1 and plain and all(p.layout.is_row_major for p in inputs)
    body = rewritten(
        alone, {axis.name: at}, {axis.name: (row,)},
        (lambda name, index: (params[name].layout.offset(index),)) if flat else None,
    )  # fmt: skip
    if flat:
        inputs = [Param.dense(p.name, p.dtype, (p.size,), p.role) for p in inputs]
    shared = (chunk, *((lane,) if lanes > 1 else ()), *k.axes) if outermost else (*k.axes, chunk)
    out = Param.dense("partial", reduce.dtype, tuple(a.extent for a in shared), "out")
    store = Store("partial", tuple(a.index for a in shared), Value(reduce.name, reduce.dtype))
    return Kernel((out, *inputs), shared, (*body.stages, store))


def _plain(x: Expr) -> bool:
    return all(leaf.valid.always for leaf in leaves(x) if isinstance(leaf, Load))


def finish_of(
    k: Kernel, reduce: Reduce, axis: Axis, shape: tuple[int, int], outermost: bool
) -> Kernel:
    """The fold of T and of the rows that are in no chunk, then the stores."""
    parts, rows = shape
    part, rest = Axis("part", parts), Axis("rest", axis.extent - parts * rows)
    axes = (part, *k.axes) if outermost else (*k.axes, part)
    source = Param.dense("partial", reduce.dtype, tuple(a.extent for a in axes), "in")
    index = tuple(a.index for a in axes)
    total: Expr = Value(reduce.name, reduce.dtype)
    stages: list[Reduce | Store] = [
        replace(reduce, axes=(part,), expr=Load("partial", index, reduce.dtype))
    ]
    if rest.extent:
        at = as_index(parts * rows) + rest.index
        (tail,) = rewritten(
            replace(k, stages=(reduce,)), {axis.name: at}, {axis.name: (rest,)}
        ).reduces
        stages.append(replace(tail, name="last"))
        total = Apply(reduce.op, (total, Value("last", reduce.dtype)), reduce.dtype)

    def leaf(x: Expr) -> Expr:
        return total if isinstance(x, Value) else x

    stages += [replace(s, expr=rebuild(s.expr, leaf)) for s in k.stores]
    made = replace(k, params=(*k.params, source), stages=tuple(stages))
    used, _ = params_of(made)
    return replace(made, params=tuple(p for p in made.params if p.name in used))


PARTS = (2, 4, 8, 16)

_LEAST_TERMS_OF_K = 256
"""Terms of a part: fewer are added up in less time than a second launch takes."""

_STEP = 16
"""Terms of a part of the axis that is cut are a multiple of these: matrix units have no tails."""


def splits_of_k(kernel: Kernel) -> tuple[int, ...]:
    """Into how many parts the sum of a product can be split; none for another kernel."""
    if not _is_product(kernel):
        return ()
    (reduce,) = kernel.reduces
    terms, extent = prod(a.extent for a in reduce.axes), _longest_axis(reduce).extent
    return tuple(p for p in PARTS if terms // p >= _LEAST_TERMS_OF_K and extent % (p * _STEP) == 0)


def split_k(kernel: Kernel, parts: int) -> Split:
    """The two kernels for one of ``splits_of_k``.

        v0 = sum over k: a(m, k) * b(k, n)
        store Y[m, n] = g(v0, m, n)
            -->
        v0 = sum over k': a(m, p*K/P + k') * b(p*K/P + k', n)         for p in P parts
        store T[p, m, n] = v0

        v0 = sum over p: T[p, m, n]
        store Y[m, n] = g(v0, m, n)

    Both are ordinary kernels. Parts are the outermost axis of the first one, so that results lie
    side by side as they did, and a matrix unit multiplies them as it did; T holds sums in the dtype
    in which they are added. The second one adds the parts of a result in one order, whatever ran
    first: equal inputs give equal bits. Every part has the same number of terms.
    """
    k = kernel.canonical()
    (reduce,) = k.reduces
    axis = _longest_axis(reduce)
    rows = axis.extent // parts
    partial = partial_of(k, reduce, axis, (parts, rows, 1), outermost=True)
    finish = finish_of(k, reduce, axis, (parts, rows), outermost=True)
    return _halves(kernel, k, partial, finish, f"{parts}")


def _longest_axis(reduce: Reduce) -> Axis:
    return max(reduce.axes, key=lambda a: a.extent)


def _is_product(kernel: Kernel) -> bool:
    """One sum of products of two loads, and stores at the shared points."""
    found = products_summed(kernel)
    if found is None or not found[0].dtype.is_float:
        return False
    a, b = map(_uncast, found[1:])
    return isinstance(a, Load) and isinstance(b, Load) and a != b


def _uncast(x: Expr) -> Expr:
    """The expression that is widened, or rounded to tf32."""
    if isinstance(x, Apply) and x.op is Op.TF32:
        return x.args[0]
    return x.x if isinstance(x, Cast) else x
