"""Convolutions between copies: images channels last, windows in rows, bytes as floats."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as combinations
from math import prod

from tunegrad.lazy import dataclass

from ..dtypes import F32, I8, I8X4, I32, U8, U8X4, DType
from ..expr import Apply, Cast, Const, Expr, Load, Op, Value, loads_in, names_of, rebuild
from ..fusion.axes import merge_axes
from ..index import Index, Range, Valid, as_index
from ..kernel import Axis, Kernel, Param, Reduce, Stage, Store, products_summed

# ---- channels last
#
# Channels last: a convolution on a tensor of the caller's, between two copies that change the
# layout.
#
#     Y[o, y, x] = epilogue(sum over c, r, s of X[c, y+r, x+s] * W[o, c, r, s])
#         -->
#     X'[y, x, c] = X[c, y, x]
#     Y'[y, x, o] = epilogue(sum over c, r, s of X'[y+r, x+s, c] * W[o, c, r, s])
#     Y[o, y, x]  = Y'[y, x, o]
#
# Only what is not channels-last already is copied. Between kernels of a model no copy is needed:
# fusion stores such temporaries channels-last in the first place.


_LEAST_CHANNELS = 8


@dataclass(frozen=True, slots=True)
class ChannelsLast:
    """The kernels, in order; ``before`` and ``after`` are None where no copy is needed.

    The parameters of ``before`` are (X', X), of ``after`` (Y, Y'). Those of ``kernel`` are the
    direct kernel's, in order, with the ones at places ``x`` and ``y`` in the other layout.
    """

    before: Kernel | None
    kernel: Kernel
    after: Kernel | None
    x: int
    y: int


def channels_last(kernel: Kernel) -> ChannelsLast | None:
    """The parts for a dense sum of products with constant weights; None where it is no such kernel,
    or has its channels last already.
    """
    found = products_summed(kernel)
    if found is None or len(kernel.stores) != 1 or not kernel.stores[0].valid.always:
        return None
    (reduce, left, right), store = found, kernel.stores[0]
    left, right = (e.x if isinstance(e, Cast) and e.x.dtype.is_half else e for e in (left, right))
    for x, w in ((left, right), (right, left)):
        if not isinstance(x, Load) or not isinstance(w, Load):
            return None
        if kernel.param(w.param).role == "const" and kernel.param(x.param).role == "in":
            channel, output = _channel_dim(kernel, reduce, x, w), _output_dim(kernel, store, x, w)
            if channel is not None and output is not None:
                return _parts(kernel, (x, channel), (store, output))
    return None


def _channel_dim(kernel: Kernel, reduce: Reduce, x: Load, w: Load) -> int | None:
    """The dimension of the input that a reduce axis of the weights indexes alone.

    The last one where it has so few channels that nothing is gained by moving them.
    """
    names = {a.name: a.extent for a in reduce.axes}
    found = [d for d, i in enumerate(x.index) if i.key in names and any(i == j for j in w.index)]
    if len(found) != 1:
        return None
    if names[x.index[found[0]].key] < _LEAST_CHANNELS:
        return len(x.index) - 1
    return found[0] if kernel.param(x.param).layout.is_row_major else None


def _output_dim(kernel: Kernel, store: Store, x: Load, w: Load) -> int | None:
    """The dimension of the output that the weights' own shared axis indexes alone."""
    inputs = set().union(*(i.names() for i in x.index))
    own = {a.name for a in kernel.axes} & {i.key for i in w.index} - inputs
    found = [d for d, i in enumerate(store.index) if i.key in own]
    if len(own) != 1 or len(found) != 1 or not kernel.param(store.param).layout.is_row_major:
        return None
    return found[0]


def _parts(
    kernel: Kernel, source: tuple[Load, int], target: tuple[Store, int]
) -> ChannelsLast | None:
    (x, channel), (store, output) = source, target
    old_x, old_y = kernel.param(x.param), kernel.param(store.param)
    move_x = channel != len(old_x.shape) - 1
    move_y = output != len(old_y.shape) - 1
    if not (move_x or move_y):
        return None
    if move_x and any(leaf.param == x.param and leaf is not x for leaf in loads_in(store.expr)):
        return None
    new_x = _moved(old_x, channel) if move_x else old_x
    new_y = _moved(old_y, output) if move_y else old_y

    def leaf(e: Expr) -> Expr:
        if move_x and isinstance(e, Load) and e.param == x.param:
            return replace(e, index=_last(e.index, channel))
        return e

    stages: list[Stage] = []
    for s in kernel.stages:
        expr = rebuild(s.expr, leaf)
        if isinstance(s, Store):
            stages.append(
                replace(s, expr=expr, index=_last(s.index, output) if move_y else s.index)
            )
        else:
            stages.append(replace(s, expr=expr))
    params = tuple({x.param: new_x, store.param: new_y}.get(p.name, p) for p in kernel.params)
    axes = tuple(sorted(kernel.axes, key=lambda a: _stored_at(stages, a.name)))
    made = replace(
        kernel, params=params, stages=tuple(stages), axes=axes, name=f"{kernel.name} channels last"
    )
    names = [p.name for p in kernel.params]
    before = _copy(new_x, old_x, channel, to_last=True) if move_x else None
    after = _copy(old_y, new_y, output, to_last=False) if move_y else None
    x_at, y_at = names.index(x.param), names.index(store.param)
    return ChannelsLast(before, merge_axes(made).canonical(), after, x_at, y_at)


def _stored_at(stages: list[Stage], axis: str) -> int:
    """Dimension of the store's index that holds an axis: shared ones, outermost first."""
    store = next(s for s in stages if isinstance(s, Store))
    return next((d for d, i in enumerate(store.index) if axis in i.names()), 0)


def _last(index: tuple[Index, ...], dim: int) -> tuple[Index, ...]:
    return (*index[:dim], *index[dim + 1 :], index[dim])


def _moved(p: Param, dim: int) -> Param:
    shape = (*p.shape[:dim], *p.shape[dim + 1 :], p.shape[dim])
    return Param.dense(p.name, p.dtype, shape, p.role)


def _copy(to: Param, source: Param, dim: int, to_last: bool) -> Kernel:
    """``to`` gets ``source`` with dimension ``dim`` moved to the end, or back from there."""
    axes = tuple(Axis(f"d{i}", e) for i, e in enumerate(to.shape))
    index = tuple(a.index for a in axes)
    moved = (*index[:dim], index[-1], *index[dim:-1]) if to_last else _last(index, dim)
    dtype: DType = source.dtype
    store = Store("to", index, Load("source", moved, dtype))
    params = (
        Param.dense("to", dtype, to.shape, "out"),
        Param.dense("source", dtype, source.shape, "in"),
    )
    made = Kernel(
        params,
        axes,
        (store,),
        name=f"to {'channels last' if to_last else 'channels first'} {to.shape}",
    )
    return merge_axes(made).canonical()


# ---- windows in rows
#
# A convolution of words as a product of matrices: what a window reads lies in a row.
#
#     v = sum over r, s, c of dot4(X[2*y+r, 2*x+s, c], W[o, c, r, s])
#         -->
#     X'[y, x, r, s, c] = X[2*y+r, 2*x+s, c]              zero where the image ends
#     v = sum over k of dot4(X'[m, k], W[o, ..k])         m = (y, x), k = (r, s, c)
#
# Tile registers then have rows of several rows of the image, and terms of several places of the
# window: the same sum, of as many zeros more as make k whole steps of a tile. Where one row of the
# image fills tiles, a place of the copy is of the window's columns alone:
#
#         X'[i, x, s, c] = X[i, 2*x+s, c]                     zero where the image ends
#     v = sum over r, k of dot4(X'[2*y+r, x, k], W[o, ..k])   k = (s, c)
#
# so that the copy of a large image is not as many times as large as the window has rows.


_STEP = 16
"""Words that a tile adds at a time, and its rows."""


def windows(kernel: Kernel) -> ChannelsLast | None:
    """The parts for a sum of products of words of an image, channels last, and constant weights;
    None for any other kernel, or where the window is one place.
    """
    found = products_summed(kernel, Op.DOT4) or products_summed(kernel, Op.DOT2)
    if found is None or len(kernel.stores) != 1 or kernel.overwritten:
        return None
    reduce, *factors = found
    roles = {kernel.param(f.param).role: f for f in factors if isinstance(f, Load)}
    if roles.keys() != {"in", "const"} or not roles["const"].valid.always:
        return None
    x, w = roles["in"], roles["const"]
    source, inner = kernel.param(x.param), {a.name: a for a in reduce.axes}
    own = [a for a in kernel.axes if a.name in names_of(x)]
    read = [leaf.param for s in kernel.stages for leaf in loads_in(s.expr)]
    channel = x.index[-1].key
    if (
        not own
        or sum(a.extent > 1 for a in reduce.axes) < 2  # a window and channels
        or inner.keys() != {n for i in w.index for n in i.names()} & inner.keys()
        or not inner.keys() <= names_of(x)
        or any(a.name in names_of(w) for a in own)
        or read.count(x.param) != 1
        or not source.layout.is_row_major
        or (channel in inner and inner[channel].extent != source.shape[-1])
    ):
        return None
    last = [inner[channel]] if channel in inner else []
    order = [*(a for a in reduce.axes if a.name != channel), *last]
    copied, places, k_axes = x, [a.index for a in own], list[Axis]()
    apart = _rows_apart(x, own, order) if len(order) - len(last) > 1 else None
    if apart is not None:
        y, by, row = apart
        lines = Axis(row.name, by * (own[y].extent - 1) + row.extent)
        env = {own[y].name: as_index(0), row.name: lines.index}
        copied = replace(
            x, index=tuple(i.substitute(env) for i in x.index), valid=x.valid.substitute(env)
        )
        places[y], own[y], k_axes = own[y].index * by + row.index, lines, [row]
        order.remove(row)
    extents = _whole([a.extent for a in order])
    count = prod(extents)
    rows = Param.dense(x.param, x.dtype, (*(a.extent for a in own), count), "in")
    k = Axis("k", count)
    place, step = dict[str, Index](), count
    for a, extent in zip(order, extents, strict=True):
        step //= extent
        place[a.name] = k.index // step % extent
    spare = [(a, e) for a, e in zip(order, extents, strict=True) if e > a.extent]
    within = Valid(Range(place[a.name], 0, a.extent) for a, _ in spare)
    read_x = Load(x.param, (*places, k.index), x.dtype)
    read_w = Load(w.param, tuple(i.substitute(place) for i in w.index), w.dtype, within)
    assert isinstance(reduce.expr, Apply)
    terms = tuple(read_x if f is x else read_w for f in factors)
    total = replace(reduce, axes=(*k_axes, k), expr=replace(reduce.expr, args=terms))
    stages: tuple[Stage, ...] = tuple(total if s is reduce else s for s in kernel.stages)
    params = tuple(rows if p.name == x.param else p for p in kernel.params)
    made = replace(kernel, params=params, stages=stages, name=f"{kernel.name} of windows")
    at = [p.name for p in kernel.params]
    before = _in_rows(source, rows, copied, own, list(zip(order, extents, strict=True)))
    store = at.index(kernel.stores[0].param)
    return ChannelsLast(before, merge_axes(made).canonical(), None, at.index(x.param), store)


def _rows_apart(x: Load, own: list[Axis], order: list[Axis]) -> tuple[int, int, Axis] | None:
    """The axis of the image's rows by its place, the step from one to the next, and the axis of
    the window's rows, where the copy is of columns alone; None where it is of whole windows: where
    a row leaves more than an eighth of its tiles empty, or columns alone need more zeros.
    """
    if len(own) < 2 or -(-own[-1].extent // _STEP) * _STEP * 8 > own[-1].extent * 9:
        return None
    reads = [*x.index, *(r.index for r in x.valid)]
    terms = prod(_whole([a.extent for a in order]))
    for row in order:
        more = row.extent * prod(_whole([a.extent for a in order if a is not row])) > terms
        for at, y in enumerate(own[:-1]):
            along = [i for i in reads if {y.name, row.name} & i.names()]
            by = along[0].coefficient(y.name) if along else None
            if by and not more and all((i - y.index * by - row.index).is_const for i in along):
                return at, by, row
    return None


def _whole(extents: list[int]) -> list[int]:
    """The extents, as little longer as makes their product whole steps; channels stay if others
    will do.
    """
    found = map(list, combinations(*((e, e + 1) for e in extents)))
    whole = [c for c in found if prod(c) % _STEP == 0]
    more = [*extents[:-1], -(-extents[-1] // _STEP) * _STEP]
    return min([*whole, more], key=lambda c: (prod(c), c[-1]))


def _in_rows(
    source: Param, rows: Param, x: Load, own: list[Axis], order: list[tuple[Axis, int]]
) -> Kernel:
    """``rows`` gets what each window reads of ``source``."""
    index, valid = x.index, x.valid
    if len(order) > 1 and order[-1][1] < _STEP and (flat := _flat(source, x, order)) is not None:
        source, index, valid, order = flat
    inner = [Axis(a.name, e) for a, e in order]
    at, step = as_index(0), prod(e for _, e in order)
    for a in inner:
        step //= a.extent
        at = at + a.index * step
    longer = {a.name: a.index for a in inner}
    spare = Valid(Range(longer[a.name], 0, a.extent) for a, e in order if e > a.extent)
    value = Load("source", tuple(i.substitute(longer) for i in index), x.dtype,
                 valid.substitute(longer) & spare)  # fmt: skip
    made = Kernel(
        (replace(rows, name="to", role="out"), replace(source, name="source", role="in")),
        (*own, *inner),
        (Store("to", (*(a.index for a in own), at), value),),
        name=f"windows of {source.shape} in rows",
    )
    return merge_axes(made).canonical()


def _flat(
    source: Param, x: Load, order: list[tuple[Axis, int]]
) -> tuple[Param, tuple[Index, ...], Valid, list[tuple[Axis, int]]] | None:
    """The image, its index, the condition and the axes with pixels and their channels as one: few
    channels are no vector, those of neighbours are. None where neighbours lie apart, and where the
    image is one row of words.
    """
    if len(x.index) < 2:
        return None
    (place, most), (channel, count) = order[-2:]
    name, row = place.name, x.index[-2]
    reads = [i for i in (*x.index, *(r.index for r in x.valid)) if name in i.names()]
    if (
        count != channel.extent
        or any(i.coefficient(name) != 1 for i in reads)
        or sum(name in i.names() for i in x.index) != 1
        or name not in row.names()
        or x.index[-1] != channel.index
        or channel.name in x.valid.names()
    ):
        return None
    both, extent = Axis(name, place.extent * count), source.shape[-2] * count

    def wide(i: Index) -> Index:
        return i.substitute({name: as_index(0)}) * count + both.index

    ranges = [
        Range(wide(r.index), r.lo * count, r.hi * count) if name in r.index.names() else r
        for r in x.valid
    ]
    merged = Param.dense(source.name, source.dtype, (*source.shape[:-2], extent), source.role)
    return merged, (*x.index[:-2], wide(row)), Valid(ranges), [*order[:-2], (both, most * count)]


# ---- wider numbers
#
# A sum of products of bytes as one of floats, or of numbers of 16 bits: of a computed tensor, in
# words of four bytes, and of constant weights.
#
#     v = sum over c, r, s in i32 of dot4(X[y+r, x+s, c], W[o, c, r, s])
#     Y[y, x, o] = epilogue(f32(v - z[o]))
#         -->
#     X'[y, x, j*C + c] = f32(byte j of X[y, x, c])       byte j: dot4 with a one at place j
#     v' = sum over r, s, c in f32 of X'[y+r, x+s, c] * W'[r, s, c, o]
#     Y[y, x, o] = epilogue(v' - f32(z[o]))
#
# Sums of floats are exact below 2^24, above they round as those of the file's own meaning do. That
# sum may be Winograd's, which multiplies a quarter as often; it is f32 arithmetic, as for a file
# without bytes. A sum that the kernel needs as an integer has no such variant. Neither has one that
# may pass 2^31, where integers wrap around. Weights with a zero point of their own take sums of the
# image off as well, a tensor of integers.
#
#     X'[y, x, h*C + c] = bytes h and h + 2 of X[y, x, c] in 16 bits each       even, odd
#     v = sum over r, s, c in i32 of dot2i(X'[y+r, x+s, c], W'[r, s, c, o])
#
# is the same sum, which wraps around as it does, whatever it is read for. Where no instruction
# multiplies bytes, they become such halves in the product itself, again for each result; here once.


_MOST_TERMS, _MOST_WITH_SUMS = 1 << 16, 1 << 14
"""Products of a sum, at most: of 255 x 128 each, it is below 2^31, as is a zero point's part; less
sums of the image, four such numbers are, whatever their signs."""


@dataclass(frozen=True, slots=True)
class Widened:
    """The kernels, in order, and where their tensors are.

    The parameters of ``before`` are (X', X). Those of ``kernel`` are the direct kernel's, in order,
    with X' and W' at places ``x`` and ``w``. ``w_dims`` are the dimensions of W of outputs, of
    words, and of the window's places in the order of W', whose shape is ``weights``.
    """

    before: Kernel
    kernel: Kernel
    x: int
    w: int
    w_dims: tuple[int, ...]
    weights: tuple[int, ...]


def floats(kernel: Kernel) -> Widened | None:
    """The parts of a product of bytes with constant weights; None for any other kernel."""
    found = _bytes_multiplied(kernel)
    if found is None:
        return None
    read = [kernel.param(leaf.param) for s in kernel.stages for leaf in loads_in(s.expr)]
    sums = any(p.dtype == I32 and p.role == "in" for p in read)
    terms = Op.QUAD.arity * prod(a.extent for a in found[0].axes)
    if terms > (_MOST_WITH_SUMS if sums else _MOST_TERMS):
        return None
    return _widened(kernel, *found, F32)


def halves(kernel: Kernel) -> Widened | None:
    """The same of a sum of products of numbers of 16 bits."""
    found = _bytes_multiplied(kernel)
    return None if found is None else _widened(kernel, *found, I32)


def _bytes_multiplied(kernel: Kernel) -> tuple[Reduce, Load, Load, int, str] | None:
    """The sum of products of bytes by constant weights: with the image, the weights, the image's
    dimension of words, behind its last one where they are single ones, and the outputs' axis.
    """
    if len(kernel.reduces) != 1 or any(s.axes for s in kernel.stores):
        return None
    (reduce,) = kernel.reduces
    if not isinstance(reduce.expr, Apply) or reduce.expr.op is not Op.DOT4 or reduce.rows:
        return None
    loads = {kernel.param(a.param).role: a for a in reduce.expr.args if isinstance(a, Load)}
    if loads.keys() != {"in", "const"} or not loads["const"].valid.always:
        return None
    x, w = loads["in"], loads["const"]
    read = [leaf.param for s in kernel.stages for leaf in loads_in(s.expr)]
    outer, inner = {a.name for a in kernel.axes}, {a.name: a.extent for a in reduce.axes}
    names = [i.key for i in w.index]
    outputs = [n for n in names if n in outer]
    shape = kernel.param(x.param).shape
    words = [d for d, i in enumerate(x.index) if inner.get(i.key) == shape[d]]
    if (
        len(outputs) != 1
        or sorted(names) != sorted([*outputs, *inner])
        or outputs[0] in names_of(x)
        or read.count(x.param) != 1
        or read.count(w.param) != 1
    ):
        return None
    if not words:
        return reduce, x, w, len(shape), outputs[0]
    at = max(words, key=shape.__getitem__)
    channel = x.index[at].key
    if channel in x.valid.names() or any(
        channel in i.names() for d, i in enumerate(x.index) if d != at
    ):
        return None
    return reduce, x, w, at, outputs[0]


def _widened(
    kernel: Kernel, reduce: Reduce, x: Load, w: Load, at: int, output: str, dtype: DType
) -> Widened | None:
    """With products in f32, or of halves in i32."""
    single, on_floats = at == len(x.index), dtype == F32
    channel = "words" if single else x.index[at].key
    names = [*(i.key for i in w.index), *([channel] if single else [])]
    window = [n for n in names if n not in (channel, output)]
    extents = {channel: 1} | {a.name: a.extent for a in (*kernel.axes, *reduce.axes)}
    wide = Axis(channel, (Op.QUAD.arity if on_floats else 2) * extents[channel])
    source = kernel.param(x.param)
    image = Param.dense(
        x.param, dtype, (*source.shape[:at], wide.extent, *source.shape[at + 1 :]), "in"
    )
    shape = (*(extents[n] for n in window), wide.extent, extents[output])
    weights = Param.dense(w.param, dtype, shape, "const")
    axes = [*(Axis(n, extents[n]) for n in window), wide, Axis(output, extents[output])]
    place = [a.index for a in axes]
    index = (*x.index, wide.index) if single else x.index
    terms = (Load(x.param, index, dtype, x.valid), Load(w.param, tuple(place), dtype))
    total = Reduce(
        reduce.name,
        Op.ADD,
        (*(Axis(n, extents[n]) for n in window), wide),
        Apply(Op.MUL if on_floats else Op.DOT2I, terms, dtype),
        dtype,
    )
    stages: list[Stage] = []
    for s in kernel.stages:
        expr: Expr | None = total.expr if s is reduce else s.expr
        if s is not reduce and on_floats:
            expr = _of_floats(s.expr, reduce.name)
        if expr is None:
            return None
        stages.append(total if isinstance(s, Reduce) else replace(s, expr=expr))
    swapped = {x.param: image, w.param: weights}
    made = replace(
        kernel,
        params=tuple(swapped.get(p.name, p) for p in kernel.params),
        stages=tuple(stages),
        name=f"{kernel.name} on floats" if on_floats else f"{kernel.name} in halves",
    )
    params = [p.name for p in kernel.params]
    return Widened(
        _bytes_apart(source, image, at, kernel.name),
        made.canonical(),
        params.index(x.param),
        params.index(w.param),
        tuple(names.index(n) for n in (output, channel, *window)),
        shape,
    )


def _of_floats(x: Expr, total: str) -> Expr | None:
    """An expression of a sum of integers in terms of that sum in floats; None where it is read
    otherwise than as a float, less another integer.
    """
    memo: dict[int, Expr | None] = {}

    def summed(e: Expr) -> Expr | None:
        if isinstance(e, Value) and e.stage == total:
            return Value(total, F32)
        if isinstance(e, Apply) and e.op is Op.SUB and (left := summed(e.args[0])) is not None:
            rest = visit(e.args[1])
            return None if rest is None else Apply(Op.SUB, (left, Cast(rest, F32)), F32)
        return None

    def visit(e: Expr) -> Expr | None:
        if id(e) not in memo:
            memo[id(e)] = made(e)
        return memo[id(e)]

    def made(e: Expr) -> Expr | None:
        if isinstance(e, Cast):
            if e.dtype == F32 and e.x.dtype == I32 and (found := summed(e.x)) is not None:
                return found
            inner = visit(e.x)
            return None if inner is None else Cast(inner, e.dtype)
        if isinstance(e, Apply):
            args = [visit(a) for a in e.args]
            kept = tuple(a for a in args if a is not None)
            return Apply(e.op, kept, e.dtype) if len(kept) == len(args) else None
        return None if isinstance(e, Value) and e.stage == total else e

    return visit(x)


def _bytes_apart(source: Param, image: Param, at: int, name: str) -> Kernel:
    """``image`` gets the bytes of words as floats: first bytes of all words, then second ones; or
    the two halves of words, of first and third bytes before the others.
    """
    axes = tuple(Axis(f"d{i}", e) for i, e in enumerate(source.shape))
    index = tuple(a.index for a in axes)
    word = Load(source.name, index, source.dtype)
    other, count = (I8 if source.dtype.of == U8 else U8), Op.QUAD.arity
    parts: list[Expr] = [Apply(op, (word,), I32) for op in (Op.EVEN, Op.ODD)]
    if image.dtype == F32:
        ones = (tuple(Const(int(i == j), other) for i in range(count)) for j in range(count))
        chosen = (Apply(Op.QUAD, one, _word_of(other)) for one in ones)
        parts = [Cast(Apply(Op.DOT4, (word, one), I32), F32) for one in chosen]
    stores = []
    for j, part in enumerate(parts):
        place = (*index, as_index(j))
        if at < len(index):
            place = (*index[:at], index[at] + j * source.shape[at], *index[at + 1 :])
        stores.append(Store("to", place, part))
    made = Kernel(
        (replace(image, name="to", role="out"), replace(source, role="in")),
        axes,
        tuple(stores),
        name=f"bytes as {'floats' if image.dtype == F32 else 'halves'} of {name}",
    )
    return merge_axes(made).canonical()


def _word_of(dtype: DType) -> DType:
    return I8X4 if dtype == I8 else U8X4
