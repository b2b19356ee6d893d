"""Sums of products of small numbers, packed in words: pairs of bf16, fours of bytes; and factors
rounded to tf32.

    sum over k: f32(a[m, k]) * f32(b[k, n])    -->    sum over k': dot2(a2[m, k'], b2[k', n])
    sum over k: i32(a[m, k]) * i32(b[k, n])    -->    sum over k': dot4(a4[m, k'], b4[k', n])
    sum over k: a[m, k] * b[k, n]              -->    sum over k: tf32(a)[m, k] * tf32(b)[k, n]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any, cast

from tunegrad.errors import InternalError
from tunegrad.lazy import dataclass

from .. import graph as g
from ..dtypes import BF16, F32, I8, I32, U8, DType
from ..expr import Op
from ..folding import values_of
from ..graph import MOVEMENT, VIEWS, ConstData, GraphOp, Node, Step, topological
from ..target import Target
from .sums import Moves, Repeats, applied, chain, is_known, rewritten, sum_of_products, with_factors


def dimension(base: Node, moves: Moves, axis: int, count: int) -> int | None:
    """The dimension of ``base`` that is ``axis`` after the movements, all of it or the inner part
    of where it is split into words of ``count``; None where there is none.
    """
    for d, extent in enumerate(base.shape):
        at: tuple[int, int] | None = d, extent
        for m in moves:
            at = _after(m, *at, count) if at is not None else None
        if extent >= 2 and at is not None and at[0] == axis:
            return d
    return None


def in_words(base: Node, d: int, op: Op, *, stored: bool = False) -> Node:
    """``base`` with neighbours along ``d`` in one word, by ``op``, in memory; what is missing of
    the last word is zero.

    ``stored``: numbers are stored before, one by one. So they are where sums are behind them: two
    sums in one kernel, of even and of odd neighbours, would be no product of matrices any more.
    """
    count = op.arity
    if stored or any(n.op is GraphOp.REDUCE for n in topological((base,))):
        base = g.contiguous(base)
    rest = -base.shape[d] % count
    whole = g.pad(base, tuple((0, rest if i == d else 0) for i in range(len(base.shape))))
    shape = whole.shape
    split = g.reshape(whole, (*shape[:d], shape[d] // count, count, *shape[d + 1 :]))
    parts = []
    for part in range(count):
        limits = tuple(
            (part, part + 1) if i == d + 1 else (0, e) for i, e in enumerate(split.shape)
        )
        made = g.shrink(split, limits)
        parts.append(g.reshape(made, (*shape[:d], shape[d] // count, *shape[d + 1 :])))
    return g.contiguous(g.elementwise(op, *parts))


def worded(x: Node, moves: Moves, at: int, extent: int, count: int) -> Node:
    """The movements of a chain, on its base in words along dimension ``at`` of that extent.

    moves(base)                  base [.., d, ..]      what a factor of a sum of products is
        -->
    moves(words)                 words[.., i, ..] = word(base[.., n*i, ..], ..), n neighbours each

    The movements leave the dimension whole, or split it so that its inner part is words of the
    whole, and it becomes the axis of a sum: the channels of a convolution, the inner extent of a
    matrix product, one head's part of the features.
    """
    for m in moves:
        arg = cast(Any, m.arg)
        found = _after(m, at, extent, count)
        if found is None:
            raise InternalError(f"{m!r} does not keep dimension {at}")
        after, extent = found
        shape = (*m.shape[:after], -(-extent // count), *m.shape[after + 1 :])
        if m.op is GraphOp.RESHAPE:
            x = g.reshape(x, shape)
        elif m.op is GraphOp.EXPAND:
            x = g.expand(x, shape)
        elif m.op is GraphOp.PERMUTE:
            x = g.permute(x, arg)
        elif m.op is GraphOp.PAD:
            x = g.pad(x, arg)
        elif m.op is GraphOp.SHRINK:
            x = g.shrink(
                x, tuple((0, x.shape[at]) if i == at else limit for i, limit in enumerate(arg))
            )
        elif m.op is GraphOp.FLIP:
            x = g.flip(x, arg)
        else:
            x = g.window(x, *arg)
        at = after
    return x


def _after(m: Node, at: int, extent: int, count: int) -> tuple[int, int] | None:
    """Place and extent of a dimension after a movement that leaves it whole, or splits it."""
    arg = cast(Any, m.arg)
    if m.op is GraphOp.PERMUTE:
        return cast(tuple[int, ...], arg).index(at), extent
    if m.op is GraphOp.RESHAPE:
        return _reshaped(m.srcs[0].shape, m.shape, at, count)
    whole = {GraphOp.PAD: (0, 0), GraphOp.SHRINK: (0, extent)}
    moved = (
        (m.op in whole and arg[at] != whole[m.op])
        or (m.op is GraphOp.FLIP and at in arg)
        or (m.op is GraphOp.WINDOW and at == arg[0])
    )
    return None if moved else (at, extent)


def _reshaped(
    before: tuple[int, ...], after: tuple[int, ...], at: int, count: int
) -> tuple[int, int] | None:
    """The dimension with as many elements behind it: with the same extent, or a part of it whose
    words are words of the whole.
    """
    behind = prod(before[at + 1 :])
    for d, extent in enumerate(after):
        part = extent % count == 0 and before[at] % extent == 0
        if prod(after[d + 1 :]) == behind and extent > 1 and (extent == before[at] or part):
            return d, extent
    return None


def pair_dots(
    outputs: tuple[Node, ...], *, inputs: bool = False, steps: list[Step] | None = None
) -> tuple[Node, ...]:
    """The same outputs with products of bf16 tensors summed in pairs; a graph without any keeps its
    nodes.

    ``inputs``: one factor may be an f32 input, which is rounded where its pairs are made.

    sum over k: f32(a[m, k]) * f32(b[k, n])
        -->
    a2[m, k'] = pair(a[m, 2k'], a[m, 2k'+1])    kernels of their own; of constants, computed at load
    b2[k', n] = pair(b[2k', n], b[2k'+1, n])
    sum over k': dot2(a2[m, k'], b2[k', n])     an odd k is padded with a zero

    Both operands are bf16 before any movement (or one is an f32 input that may be rounded, in a
    model that is asked to be bf16), the sum is in f32, and one of its axes is a whole dimension of
    both, or the inner part of one that is split: the channels of a convolution, the inner extent of
    a matrix product, one head's part of the features. Pairs lie in one word, so that everything
    else sees a product of 32-bit elements. An operand that every product reads but once is paired
    only where that costs nothing, as of a constant. Other sums stay as they are.
    """
    fixed: dict[Node, bool] = {}
    return rewritten(outputs, lambda n: _paired_sum(n, fixed, inputs), steps)


def _paired_sum(n: Node, fixed: dict[Node, bool], inputs: bool) -> Node | None:
    """The sum ``n`` in pairs, or None where it is none of bf16 products."""
    found = sum_of_products(n) if n.dtype == F32 else None
    if found is None:
        return None
    product, axes = found
    operands = [c for c in map(_chain, product.srcs) if c is not None]
    wide = [base for base, _ in operands if base.dtype != BF16]
    if len(operands) < 2 or len(wide) > inputs:
        return None
    operands = [(g.cast(base, BF16), moves) for base, moves in operands]
    if any(base.size >= product.size and not is_known(base, fixed) for base, _ in operands):
        return None
    for axis in sorted(axes, key=lambda a: -product.shape[a]):
        dims = [dimension(base, moves, axis, 2) for base, moves in operands]
        if product.shape[axis] >= 2 and all(d is not None for d in dims):
            pairs = [
                worded(in_words(base, d, Op.PAIR), moves, d, base.shape[d], 2)
                for (base, moves), d in zip(operands, dims, strict=True)
                if d is not None
            ]
            return g.reduce(Op.ADD, g.elementwise(Op.DOT2, *pairs), axes)
    return None


def _chain(x: Node) -> tuple[Node, tuple[Node, ...]] | None:
    """The bf16 tensor (or f32 input) that ``x`` is, widened and moved; and the movements, the last
    one last.
    """
    moves: list[Node] = []
    while x.op in MOVEMENT or x.op is GraphOp.CAST:
        if x.op is GraphOp.CAST:
            if (x.dtype, x.srcs[0].dtype) == (F32, BF16):
                return x.srcs[0], tuple(reversed(moves))
            return None
        moves.append(x)
        x = x.srcs[0]
    is_input = x.op is GraphOp.INPUT and x.dtype == F32
    return (x, tuple(reversed(moves))) if is_input else None


_BYTES = (I8, U8)

_MOST_SCALE = 2.0**96
"""The bound of constant scales: a sum, which is below 2^31, times one below it is finite."""


_EXACT = 1 << 24
"""Integers up to here are floats, so that sums of floats below it are exact."""


def quad_dots(
    outputs: tuple[Node, ...],
    target: Target,
    steps: list[Step] | None = None,
    *,
    floats: bool = False,
) -> tuple[Node, ...]:
    """The same outputs with products of bytes summed in fours, as the target multiplies them; a
    graph without any keeps its nodes. ``floats``: also products of bytes that are dequantised.

        sum over k: i32(a[m, k]) * i32(b[k, n])                         a u8, b i8
            -->
        a4[m, k'] = quad(a[m, 4k'], .., a[m, 4k'+3])      kernels of their own, or constants made at
        b4[k', n] = quad(b[4k', n], .., b[4k'+3, n])      load; a partial last four ends in zeros
        sum over k': dot4(a4[m, k'], b4[k', n])

        sum over k: (i32(a[m, k]) - z[m]) * i32(b[k, n])                a i8, b i8 and constant
            -->
        sum over k': dot4(a4[m, k'], b4[k', n]) - (z[m] + 128) * sum over k: b[k, n]
                                                        a4 of u8(a + 128), the last sum at load

        sum over k: (f32(a[m, k]) - z) * s * (f32(b[k, n]) * t[n])              with ``floats``
            -->
        f32(sum over k: (i32(a[m, k]) - i32(z)) * i32(b[k, n])) * s * t[n]      and that in fours

    Sums of integers wrap around, so both sides are equal in every order, bit by bit, and nothing
    has to be declared. A sum of dequantised bytes rounds each term; the sum of integers, which is
    kept below 2^31, is rounded once. Vectors multiply unsigned by signed numbers (VNNI), so a
    factor of the wrong kind is moved by 128 if the other one is constant. Padding, which is the
    zero point, is moved with its factor. If a constant fits bytes only less some number, that
    number times ``sum over k: i32(a[m, k]) - z[m]`` is added.
    """
    known: dict[Node, bool] = {}

    def rule(n: Node) -> Node | None:
        if floats and n.dtype == F32:
            return _dequantised_sum(n, known, target)[0]
        return _sum_in_fours(n, known, target)

    return rewritten(outputs, rule, steps)


@dataclass(frozen=True, slots=True)
class _Factor:
    """``i32(moves(base))``, less ``zero`` with the movements that come ``after`` that.

    ``whole`` is what these are the movements of.
    """

    base: Node
    moves: Moves
    zero: Node | None = None
    after: Moves = ()
    whole: Node | None = None


def _sum_in_fours(n: Node, known: dict[Node, bool], target: Target) -> Node | None:
    """The sum ``n`` in fours, or None where it is none of bytes, or the target has no such."""
    found = sum_of_products(n) if n.dtype == I32 else None
    if found is None:
        return None
    product, axes = found
    if not product.size:
        return None
    order = sorted(product.srcs, key=lambda x: is_known(x, known))
    a, b = (_factor(x, known) for x in order)
    if a is None or b is None or is_known(order[0], known):
        return None
    fixed = is_known(order[1], known)
    turned = not fixed and b.base.size < a.base.size
    if turned:  # the first one may have to be moved
        a, b, order = b, a, order[::-1]
    if a.base.size >= product.size or (b.base.size >= product.size and not fixed):
        return None
    shift = _shift(a.base.dtype, b.base.dtype, fixed, target)
    if shift is None or not (fixed or _is_plain(b.zero, b.after)):
        return None
    if a.zero is not None and _pads(a.after):
        moved = _padded(a, shift) if _fits(a.zero, a.base.dtype, known) else None
    else:
        moved = _shifted(a, shift)
    if moved is None:
        return None
    left, right = (b, moved) if turned else (moved, b)
    made = _dot(left, right, product, axes)
    if made is None:
        return None
    if shift or moved.zero is not None:
        total = g.full(shift, n.shape, I32)
        if moved.zero is not None:
            zero = _at_results(moved.zero, moved.after, product, axes)
            if zero is None:
                return None
            total = g.elementwise(Op.ADD, zero, total)
        made = _less(made, total, g.reduce(Op.ADD, g.cast(applied(b.base, b.moves), I32), axes))
    if b.zero is not None:
        made = _less(made, _everywhere(b.zero, n.shape), g.reduce(Op.ADD, order[0], axes))
    return made


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A factor ``moves(f32(number) * scale)``; ``number`` in i32, of ``most`` at the most."""

    number: Node
    scale: Node
    moves: Moves
    most: int

    @property
    def whole(self) -> Node:
        return applied(self.number, self.moves)


def bytes_refused(
    outputs: tuple[Node, ...], target: Target, *, floats: bool
) -> Iterator[tuple[str, str]]:
    """The sums of products of dequantised bytes that ``quad_dots`` leaves on floats: the name of
    the constant factor, and the rule that refuses.
    """
    known: dict[Node, bool] = {}
    order = topological(outputs)
    if not any(n.dtype in _BYTES for n in order):
        return
    for n in order:
        if n.dtype != F32 or (found := sum_of_products(n)) is None:
            continue
        why = _dequantised_sum(n, known, target)[1]
        if any(_scaled(x, known) is not None for x in found[0].srcs):
            if not target.multiplies_bytes:
                why = "the processor multiplies no bytes"
            elif not floats:
                why = "strict numerics keep the sum of floats"
        if why:
            held = [m for x in found[0].srcs if is_known(x, known) for m in topological((x,))]
            constants = [m for m in held if m.op is GraphOp.CONST]
            largest = max(constants, key=lambda m: m.size, default=None)
            yield (
                "a product of two computed tensors" if largest is None
                else cast(ConstData, largest.arg).name
            ), why  # fmt: skip


def _dequantised_sum(n: Node, known: dict[Node, bool], target: Target) -> tuple[Node | None, str]:
    """The f32 sum ``n`` of products of dequantised bytes as one of integers, or None; and the rule
    by which it is none in fours, "" where a factor has no bytes.
    """
    found = sum_of_products(n)
    if found is None or not found[0].size:
        return None, ""
    product, axes = found
    a, b = (_scaled(x, known) for x in product.srcs)
    if a is None or b is None:
        return None, "" if a is b else "one factor is of bytes, the other one of floats"
    terms = prod(product.shape[i] for i in axes)
    if terms * a.most * b.most > I32.greatest:
        return None, f"a sum of {terms} products may pass 2^31"
    left, right = (_at_results(f.scale, f.moves, product, axes) for f in (a, b))
    if left is None or right is None:
        return None, "a scale changes along the sum"
    if not all(_is_small(f.scale, known) for f in (a, b)):
        return None, f"a scale is {_MOST_SCALE:g} or more"
    whole = g.reduce(Op.ADD, g.elementwise(Op.MUL, a.whole, b.whole), axes)
    made, why = _sum_in_fours(whole, known, target), ""
    if made is None:
        why = "no axis of its sum lies in words of four bytes in both factors"
        if terms * a.most * b.most > _EXACT:
            return None, why
        factors = (applied(_as_floats(f.number), f.moves) for f in (a, b))
        made = g.reduce(Op.ADD, g.elementwise(Op.MUL, *factors), axes)
    return g.elementwise(Op.MUL, g.elementwise(Op.MUL, g.cast(made, F32), left), right), why


def _as_floats(number: Node) -> Node:
    """Widened bytes, or a difference of such, as floats."""
    base, moves = chain(number)
    if base.op is GraphOp.CAST and base.dtype == I32:
        return applied(g.cast(base.srcs[0], F32), moves)
    return applied(g.elementwise(cast(Op, base.arg), *map(_as_floats, base.srcs)), moves)


def _is_small(scale: Node, known: dict[Node, bool]) -> bool:
    """True unless a constant scale makes products with sums infinite, and terms' are not."""
    if not is_known(scale, known):
        return True
    return bool((abs(values_of(chain(scale)[0])) < _MOST_SCALE).all())


def _scaled(x: Node, known: dict[Node, bool]) -> _Scaled | None:
    """A factor of bytes that are dequantised: less a zero point, times a scale, and moved."""
    base, moves = chain(x)
    if base.op is not GraphOp.MAP or base.arg is not Op.MUL:
        return None
    for number, scale in (base.srcs, base.srcs[::-1]):
        inner, before = chain(number)
        if inner.op is GraphOp.MAP and inner.arg is Op.SUB:
            parts = [_widened(y) for y in inner.srcs]
        else:
            parts = [_widened(inner)]
        if any(p is None for p in parts):
            continue
        ints = [p for p in parts if p is not None]
        kinds = [chain(p)[0].srcs[0].dtype for p in ints]
        number, most = ints[0], max(kinds[0].greatest, -kinds[0].least)
        if len(ints) > 1 and not (is_known(ints[1], known) and not values_of(ints[1]).any()):
            number = g.elementwise(Op.SUB, *ints)
            most = max(kinds[0].greatest - kinds[1].least, kinds[1].greatest - kinds[0].least)
        return _Scaled(applied(number, before), scale, moves, most)
    return None


def _widened(x: Node) -> Node | None:
    """Bytes that were made f32, and moved, in i32 instead; None for other numbers."""
    base, moves = chain(x)
    if base.op is not GraphOp.CAST or base.srcs[0].dtype not in _BYTES:
        return None
    return applied(g.cast(base.srcs[0], I32), moves)


def _less(x: Node, by: Node, sums: Node) -> Node:
    return g.elementwise(Op.SUB, x, g.elementwise(Op.MUL, by, sums))


def _factor(x: Node, known: dict[Node, bool]) -> _Factor | None:
    """A factor of bytes, widened and moved, less a zero point; or a constant that bytes hold."""
    base, moves = chain(x)
    if base.op is GraphOp.CAST and base.srcs[0].dtype in _BYTES:
        inner, before = chain(base.srcs[0])
        return _Factor(inner, before + moves)
    if is_known(base, known):
        return _constant(base, moves)
    if base.op is not GraphOp.MAP or base.arg is not Op.SUB:
        return None
    of = _factor(base.srcs[0], known)
    if of is None or of.zero is not None:
        return None
    zero = base.srcs[1]
    if is_known(zero, known) and not values_of(zero).any():
        return _Factor(of.base, of.moves + moves)
    return _Factor(of.base, of.moves + moves, zero, moves, base)


def _constant(n: Node, moves: Moves) -> _Factor | None:
    """A constant as bytes, less a number; None where bytes do not hold it."""
    array = values_of(n)
    least, most = int(array.min()), int(array.max())
    for dtype in _BYTES:
        if dtype.least <= least and most <= dtype.greatest:
            return _Factor(g.const(array.astype(dtype.numpy), dtype), moves)
    if most - least > U8.greatest or _pads(moves):  # what pads it is 0, and not less the number
        return None
    zero = I8.least - least
    return _Factor(g.const((array + zero).astype(I8.numpy), I8), moves, g.full(zero, (), I32))


def _shift(a: DType, b: DType, fixed: bool, target: Target) -> int | None:
    """By how much the first factor is moved; None where no instruction multiplies the two.

    ``fixed``: the second one is constant, so that what is moved costs nothing.
    """
    if a != b and target.multiplies_bytes:
        return 0
    if target.multiplies_any_bytes and not (fixed and target.vnni):
        return 0
    return (128 if a == I8 else -128) if target.vnni else None


def _is_plain(zero: Node | None, after: Moves) -> bool:
    """True without a zero point, or for one number, which nothing pads."""
    return zero is None or (_is_one(zero) and not _pads(after))


def _shifted(a: _Factor, shift: int) -> _Factor | None:
    """A factor moved by 128 or -128, to the other type; None where padding is not its own."""
    if not shift:
        return a
    front = a.moves[: _pads(a.moves)]
    if _spreads(front):
        return None
    x = g.cast(applied(a.base, front), U8)
    x = g.elementwise(Op.XOR, x, g.full(128, x.shape, U8))
    return replace(a, base=g.cast(x, _kind(a, shift)), moves=a.moves[len(front) :])


def _padded(a: _Factor, shift: int) -> _Factor | None:
    """A factor that is padded after its zero point was taken off: with that, in the bytes; None
    where it has several, or more than its own numbers is padded.
    """
    front = a.after[: _pads(a.after)]
    if a.zero is None or a.whole is None or not _is_one(a.zero) or _spreads(front):
        return None
    x = applied(a.whole, front)
    zero = _everywhere(a.zero, x.shape)
    x = g.elementwise(Op.ADD, x, g.elementwise(Op.ADD, zero, g.full(shift, x.shape, I32)))
    after = a.after[len(front) :]
    return _Factor(g.cast(x, _kind(a, shift)), after, zero, after)


def _fits(zero: Node, dtype: DType, known: dict[Node, bool]) -> bool:
    """True if a zero point is one of the bytes themselves."""
    if is_known(zero, known):
        values = values_of(zero)
        return bool(dtype.least <= values.min() and values.max() <= dtype.greatest)
    of, _ = chain(zero)
    return of.op is GraphOp.CAST and of.srcs[0].dtype == dtype


def _pads(moves: Moves) -> int:
    """Number of movements up to the last that pads."""
    return max((i + 1 for i, m in enumerate(moves) if m.op is GraphOp.PAD), default=0)


def _spreads(moves: Moves) -> bool:
    return any(m.op in (GraphOp.WINDOW, GraphOp.EXPAND) for m in moves)


def _kind(a: _Factor, shift: int) -> DType:
    """The type of a factor that is moved."""
    return a.base.dtype if not shift else U8 if shift > 0 else I8


def _dot(a: _Factor, b: _Factor, product: Node, axes: tuple[int, ...]) -> Node | None:
    """The sum in fours along the longest axis that is a dimension of both; None without any."""
    for axis in sorted(axes, key=lambda i: -product.shape[i]):
        dims = [dimension(f.base, f.moves, axis, Op.QUAD.arity) for f in (a, b)]
        if all(d is not None for d in dims):
            words = [_words(f, d) for f, d in zip((a, b), dims, strict=True) if d is not None]
            return g.reduce(Op.ADD, g.elementwise(Op.DOT4, *words), axes)
    return None


def _words(f: _Factor, d: int) -> Node:
    """Words of a factor. Bytes that are computed are stored before where they lie in fours then,
    so that they are read as words.
    """
    extent, count = f.base.shape[d], Op.QUAD.arity
    last = d == len(f.base.shape) - 1 and extent % count == 0
    stored = last and f.base.op in (GraphOp.MAP, GraphOp.CAST)
    made = in_words(f.base, d, Op.QUAD, stored=stored)
    return worded(made, f.moves, d, extent, count)


def _at_results(zero: Node, moves: Moves, product: Node, axes: tuple[int, ...]) -> Node | None:
    """A zero point, or a scale, at the results of a sum over ``axes``; None if it varies there."""
    results = tuple((0, 1 if i in axes else s) for i, s in enumerate(product.shape))
    if _is_one(zero):
        return _everywhere(zero, tuple(end for _, end in results))
    if _pads(moves):
        return None
    same = _repeats(zero)
    for axis in (i for i in axes if product.shape[i] > 1):
        d = dimension(zero, moves, axis, 1)
        if d is None or d not in same:
            return None
    return g.shrink(applied(zero, moves), results)


def _repeats(x: Node) -> frozenset[int]:
    """The dimensions along which all elements are equal."""
    return Repeats().of(x) | {d for d, s in enumerate(x.shape) if s == 1}


def _is_one(x: Node) -> bool:
    """True if all elements are equal."""
    return len(_repeats(x)) == len(x.shape)


def _everywhere(x: Node, shape: tuple[int, ...]) -> Node:
    """The one number that ``x`` is, in another shape."""
    one = g.shrink(x, ((0, 1),) * len(x.shape))
    return g.expand(g.reshape(one, (1,) * len(shape)), shape)


_STEP = 8
"""Terms that the unit adds at a time."""


def round_factors(outputs: tuple[Node, ...], steps: list[Step] | None = None) -> tuple[Node, ...]:
    """The same outputs with the factors of f32 contractions rounded; others keep their nodes.

    ``outputs`` are folded, so that what is rounded is no part of a product of constants.

    sum over k: a[m, k] * b[k, n]
        -->
    sum over k: tf32(a)[m, k] * tf32(b)[k, n]      10 bits of a fraction, the sum in f32 as before

    A matrix unit multiplies such numbers: products of 11 digits are exact in f32. The rounding is
    an operation of the graph, so the text and the key of a kernel say it, and it means the same on
    every device. Rounded are contractions in f32 alone, whose factors are both read repeatedly, and
    which add up whole steps of the unit along some axis. Products that no unit could multiply stay
    f32: the first convolution of an image of three channels, a matrix times a vector.
    """
    return rewritten(outputs, _rounded_sum, steps)


def _rounded_sum(n: Node) -> Node | None:
    """The sum ``n`` of rounded factors; None where it is no contraction that a unit can do."""
    return with_factors(n, _STEP, _rounded) if n.dtype == F32 else None


def _rounded(x: Node) -> Node | None:
    """A factor of f32 elements of their own that are each multiplied several times, rounded before
    it is spread, after its views: which of those is stored is then open, and each reader rounds.
    None of any other.
    """
    base, moves = chain(x)
    spread = any(m.op in (GraphOp.EXPAND, GraphOp.WINDOW) for m in moves)
    if not spread or base.dtype != F32 or g.converts_reads(base):
        return None
    views = next((k for k, m in enumerate(moves) if m.op not in VIEWS), len(moves))
    return applied(g.elementwise(Op.TF32, applied(base, moves[:views])), moves[views:])
