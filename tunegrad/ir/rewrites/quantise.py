"""Products of a tensor and a constant, of bytes: the graph that a quantised file says.

    before                                     after
    %0 = map max %x 0      f32[8,64]           %0 = map max %x 0          f32[8,64]
                                               %1 = clamp(round(%0 / s) + z, 0, 255)    u8[8,64]
                                               %2 = (f32(%1) - z) * s     f32[8,64]
    %w = const w           f32[64,32]          %w = f32(const i8[64,32]) * t[1,32]
    %3 = sum(%0 * %w)      f32[8,32]           %3 = sum(%2 * %w)          f32[8,32]
    %4 = %0 + ..                               %4 = %2 + ..

By hand: x = 0.5, 1.0, 2.0 with s = 2/255, z = 0 is 64, 128, 255 (0.5019, 1.0039, 2.0); w = -1, 0.5
with t = 1/127 is -127, 64 (round(63.5) is even).

This is the form of ``QuantizeLinear`` and ``DequantizeLinear`` around a product, so the rule of
``packed_dots`` makes a product of integers of it, and what rounds is the epilogue of the kernel
before. Every reader of a tensor reads the bytes, a residual too, so that only bytes are stored; but
the tensor itself where its elements are multiplied so often that a second copy costs little, as in
encoders. Products that are kept in f32 read that, too. A maximum of bytes is the byte of the
maximum, since rounding keeps the order: where only a pooling reads a tensor, that is bytes in the
same steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, cast

import numpy as np

from tunegrad.lazy import dataclass

from .. import graph as g
from ..dtypes import F32, I8, U8
from ..expr import Op
from ..graph import VIEWS, ConstData, GraphOp, Node, topological
from ..interpret.numeric import Array
from .packed_dots import dimension
from .sums import Moves, applied, chain, is_known, sum_of_products

_OFTEN = 1024
"""Products of each element from which on the tensor itself is stored for other readers, too: eight
bytes that are written and read are a tenth of their time.
"""
_STEPS = 255
_MOST_WEIGHT = 127
_LEAST_SCALE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class Product:
    """A sum of products of a tensor's elements, moved, and a constant's.

    ``along``: the dimension of the tensor and that of the constant that are folded together, None
    where there is no such pair. ``free``: dimensions of the constant that no fold reaches.
    """

    sum: Node
    tensor: Node
    moves: Moves
    weight: Node
    weight_moves: Moves
    along: tuple[int, int] | None
    free: tuple[int, ...]

    @property
    def name(self) -> str:
        """The constant's name; empty for one without."""
        return cast(ConstData, self.weight.arg).name.removesuffix(" (folded)")

    def of(self, tensor: Node, weight: Node) -> Node:
        """The same sum of another tensor and another constant."""
        factors = applied(tensor, self.moves), applied(weight, self.weight_moves)
        first = chain(self.sum.srcs[0].srcs[0])[0] is self.weight
        product = g.elementwise(Op.MUL, *(factors[::-1] if first else factors))
        return g.reduce(Op.ADD, product, cast(Any, self.sum.arg)[1])


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers that bytes stand for: ``(byte - zero) * step``, times ``factors[i]`` at position
    i of a dimension where there are any.
    """

    step: float
    zero: int
    factors: tuple[float, ...] = ()

    @staticmethod
    def of(low: float, high: float, factors: tuple[float, ...] = ()) -> Scale:
        """The steps of 255 from ``low`` to ``high``, widened to zero, which is one of the bytes."""
        low, high = min(low, 0.0), max(high, 0.0)
        step = float(np.float32(max((high - low) / _STEPS, _LEAST_SCALE)))
        return Scale(step, round(min(max(-low / step, 0.0), _STEPS)), factors)

    def bytes_of(self, x: Array) -> Array:
        """Numbers as bytes: to the nearest, ties to even, saturated."""
        at = np.rint(x / np.float32(self.step)) + np.float32(self.zero)
        return np.clip(at, 0, _STEPS).astype(np.uint8)

    def numbers_of(self, codes: Array) -> Array:
        """The numbers that bytes stand for."""
        return (codes.astype(np.float32) - np.float32(self.zero)) * np.float32(self.step)


def find_products(outputs: tuple[Node, ...]) -> tuple[Product, ...]:
    """The products of a folded graph that can be of bytes, sources first.

    Each is an f32 sum of products of a tensor that is read repeatedly (a convolution, a linear
    layer) and a constant of at least two dimensions.
    """
    known: dict[Node, bool] = {}
    found = (_product(n, known) for n in topological(outputs))
    return tuple(p for p in found if p is not None)


def _product(n: Node, known: dict[Node, bool]) -> Product | None:
    summed = sum_of_products(n) if n.dtype == F32 else None
    if summed is None:
        return None
    product, axes = summed
    parts = [chain(s) for s in product.srcs]
    fixed = [is_known(base, known) for base, _ in parts]
    if fixed not in ([True, False], [False, True]):
        return None
    weight, weight_moves = parts[fixed.index(True)]
    tensor, moves = parts[fixed.index(False)]
    if tensor.op is GraphOp.REDUCE and moves and moves[0].op is GraphOp.RESHAPE:
        whole = _wide(moves[0].shape) == _wide(tensor.shape)  # without the places that were folded
        tensor, moves = (moves[0], moves[1:]) if whole else (tensor, moves)
    spread = any(m.op in (GraphOp.EXPAND, GraphOp.WINDOW) for m in moves)
    wide = sum(extent > 1 for extent in weight.shape) > 1
    if weight.op is not GraphOp.CONST or not (spread and wide and product.size):
        return None
    if tensor.dtype != F32 or weight.dtype != F32:
        return None
    places = {a: dimension(weight, weight_moves, a, 1) for a in range(len(product.shape))}
    folded = {places[a] for a in axes}
    free = {d for a, d in places.items() if d is not None and a not in axes} - folded
    views = next((k for k, m in enumerate(moves) if m.op not in VIEWS), len(moves))
    order = sorted(axes, key=lambda a: -product.shape[a])
    for k in range(views + 1):  # heads side by side are one dimension after some views only
        at, rest = moves[k - 1] if k else tensor, moves[k:]
        for d, e in ((dimension(at, rest, a, 1), places[a]) for a in order):
            if d is not None and e is not None and at.shape[d] == weight.shape[e]:
                return Product(n, at, rest, weight, weight_moves, (d, e), tuple(sorted(free)))
    return Product(n, tensor, moves, weight, weight_moves, None, tuple(sorted(free)))


def weight_in_bytes(p: Product, factors: Sequence[float] = ()) -> tuple[Array, Array]:
    """The constant of a product as i8, and the scales that these are multiplied by: one for each
    position of its free dimensions, of extent 1 in the others.

    ``factors`` of the tensor are multiplied into the constant.
    """
    values = cast(ConstData, p.weight.arg).array.astype(np.float32)
    if factors and p.along is not None:
        values = values * _along(np.asarray(factors, np.float32), p.along[1], values.ndim)
    folded = tuple(d for d in range(values.ndim) if d not in p.free)
    most = np.abs(values).max(folded, keepdims=True)
    scale = np.maximum(most / np.float32(_MOST_WEIGHT), np.float32(_LEAST_SCALE))
    codes = np.clip(np.rint(values / scale), -_MOST_WEIGHT, _MOST_WEIGHT)
    return codes.astype(np.int8), scale.astype(np.float32)


def quantised(
    outputs: tuple[Node, ...],
    products: Sequence[Product],
    scales: Mapping[Node, Scale],
    kept: Set[Node] = frozenset(),
) -> tuple[Node, ...]:
    """The same outputs with ``products`` of the bytes that ``scales`` say of their tensors, but
    those whose sums are ``kept``. Outputs that are such tensors stay as they are.
    """
    of = {p.sum: p for p in products if p.sum not in kept}
    wanted = {p.tensor for p in of.values()}
    axes = {p.tensor: p.along[0] for p in of.values() if p.along is not None}
    staying = {p.sum: p for p in products if p.sum in kept}
    readers = Counter(s for n in topological(outputs) for s in {*n.srcs})
    readers.update(outputs)
    often = _multiplied_often(of.values())
    scales = dict(scales)
    for n in tuple(wanted):
        of_windows = _pooled(n, readers)
        if of_windows is not None and not scales[n].factors and of_windows not in wanted:
            scales[of_windows] = scales[n]
            wanted.add(of_windows)
    raw: dict[Node, Node] = {}
    read: dict[Node, Node] = {}
    factor: dict[Node, Node] = {}
    for n in topological(outputs):
        if n in of:
            p, s = of[n], scales[of[n].tensor]
            made = p.of(factor[p.tensor], _constant(p, s.factors))
        elif n in staying:
            made = staying[n].of(raw[staying[n].tensor], raw[staying[n].weight])
        else:
            made = g.with_sources(n, tuple(read[s] for s in n.srcs))
        raw[n] = read[n] = made
        if n in wanted:
            s, axis = scales[n], axes.get(n, 0)
            codes = _codes(made, s, axis)
            factor[n] = _numbers(codes, s)
            read[n] = made if n in often else _whole(factor[n], s, axis)
    return tuple(raw[o] for o in outputs)


def switched(
    outputs: tuple[Node, ...],
    products: Sequence[Product],
    scales: Mapping[Node, Scale],
    flags: Node,
) -> tuple[Node, ...]:
    """The same outputs with each product of the numbers that bytes stand for where its flag is
    true, computed in f32: one program that compares products. ``flags``: a truth for each.

    A tensor is read so by all others if any of its products does.
    """
    of = {p.sum: (i, p) for i, p in enumerate(products)}
    often = _multiplied_often(products)
    raw: dict[Node, Node] = {}
    read: dict[Node, Node] = {}
    near: dict[Node, Node] = {}

    def chosen(at: Sequence[int], yes: Node, no: Node) -> Node:
        rank = len(no.shape)
        found = [g.reshape(g.shrink(flags, ((i, i + 1),)), (1,) * rank) for i in at]
        any_of = found[0]
        for f in found[1:]:
            any_of = g.elementwise(Op.OR, any_of, f)
        return g.elementwise(Op.WHERE, g.expand(any_of, no.shape), yes, no)

    for n in topological(outputs):
        if n in of:
            i, p = of[n]
            s = scales[p.tensor]
            weight = _constant(p, s.factors)
            if s.factors and p.along is not None:  # the tensor's own are multiplied back
                by = g.const(
                    _along(np.asarray(s.factors, np.float32), p.along[1], len(weight.shape)), F32
                )
                weight = g.elementwise(Op.DIV, weight, g.expand(by, weight.shape))
            weight = chosen([i], weight, p.weight)
            made = p.of(chosen([i], near[p.tensor], raw[p.tensor]), weight)
        else:
            made = g.with_sources(n, tuple(read[s] for s in n.srcs))
        raw[n] = read[n] = made
        if n in scales:
            s = scales[n]
            mine = [(i, p) for i, p in of.values() if p.tensor is n]
            axis = next((p.along[0] for _, p in mine if p.along is not None), 0)
            near[n] = _whole(_numbers(_codes(made, s, axis), s), s, axis)
            read[n] = made if n in often else chosen([i for i, _ in mine], near[n], made)
    return tuple(raw[o] for o in outputs)


def _multiplied_often(products: Iterable[Product]) -> frozenset[Node]:
    """The tensors of linear layers whose elements are factors of so many products; images are in
    bytes, since their errors average out over positions.
    """
    uses: Counter[Node] = Counter()
    images: set[Node] = set()
    for p in products:
        uses[p.tensor] += p.sum.srcs[0].size // p.tensor.size
        if any(m.op is GraphOp.WINDOW for m in p.moves):
            images.add(p.tensor)
    return frozenset(t for t, count in uses.items() if count >= _OFTEN and t not in images)


def _whole(x: Node, s: Scale, axis: int) -> Node:
    """Numbers with the factors of their channels."""
    if not s.factors:
        return x
    by = g.const(_along(np.asarray(s.factors, np.float32), axis, len(x.shape)), F32)
    return g.elementwise(Op.MUL, x, g.expand(by, x.shape))


def _wide(shape: tuple[int, ...]) -> list[int]:
    return [extent for extent in shape if extent > 1]


def _pooled(n: Node, readers: Counter[Node]) -> Node | None:
    """The tensor of whose windows this is the maximum, where nothing else reads it; else None."""
    if n.op is GraphOp.RESHAPE and readers[n.srcs[0]] == 1:
        n = n.srcs[0]
    if n.op is not GraphOp.REDUCE or cast(Any, n.arg)[0] is not Op.MAX:
        return None
    path = [n.srcs[0]]
    if path[0].op is GraphOp.MAP and path[0].arg is Op.WHERE:
        path.append(path[0].srcs[1])
    base, moves = chain(path[-1])
    path += [base, *moves]
    return base if base.op is GraphOp.MAP and all(readers[x] == 1 for x in path) else None


def _constant(p: Product, factors: Sequence[float]) -> Node:
    codes, scale = weight_in_bytes(p, factors)
    name = p.name
    wide = g.cast(g.const(codes, I8, name), F32)
    return g.elementwise(Op.MUL, wide, g.expand(g.const(scale, F32, name), wide.shape))


def _codes(x: Node, s: Scale, axis: int) -> Node:
    """Bytes of a tensor. Scales are constants in memory, so that layers share their kernels."""
    if s.factors:
        by = g.const(
            _along(np.float32(1.0) / np.asarray(s.factors, np.float32), axis, len(x.shape)), F32
        )
        x = g.elementwise(Op.MUL, x, g.expand(by, x.shape))
    y = g.elementwise(Op.ROUND, g.elementwise(Op.DIV, x, _everywhere(np.float32(s.step), x.shape)))
    if s.zero:
        y = g.elementwise(Op.ADD, y, g.cast(_byte(s.zero, x.shape), F32))
    y = g.elementwise(Op.MAX, y, g.full(0.0, x.shape, F32))
    y = g.elementwise(Op.MIN, y, g.full(float(_STEPS), x.shape, F32))
    return g.cast(y, U8)


def _numbers(codes: Node, s: Scale) -> Node:
    y = g.cast(codes, F32)
    if s.zero:
        y = g.elementwise(Op.SUB, y, g.cast(_byte(s.zero, y.shape), F32))
    return g.elementwise(Op.MUL, y, _everywhere(np.float32(s.step), y.shape))


def _byte(zero: int, shape: tuple[int, ...]) -> Node:
    one = g.const(np.full((1,) * len(shape), zero, np.uint8), U8)
    return g.expand(one, shape)


def _everywhere(value: np.float32, shape: tuple[int, ...]) -> Node:
    return g.expand(g.const(np.full((1,) * len(shape), value, np.float32), F32), shape)


def _along(values: Array, axis: int, rank: int) -> Array:
    return values.reshape(tuple(-1 if d == axis else 1 for d in range(rank)))
