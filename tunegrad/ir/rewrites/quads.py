"""Sums of products of bytes as sums of products of four of them, where the target has such.

    sum over k: i32(a[m, k]) * i32(b[k, n])                         a u8, b i8
        -->
    a4[m, k'] = quad(a[m, 4k'], .., a[m, 4k'+3])      kernels of their own, or constants made at
    b4[k', n] = quad(b[4k', n], .., b[4k'+3, n])      load; a partial last four ends in zeros
    sum over k': dot4(a4[m, k'], b4[k', n])

    sum over k: (i32(a[m, k]) - z[m]) * i32(b[k, n])                a i8, b i8 and constant
        -->
    sum over k': dot4(a4[m, k'], b4[k', n]) - (z[m] + 128) * sum over k: b[k, n]
                                                    a4 of u8(a + 128), the last sum at load

Sums of integers wrap around, so both sides are equal in every order, bit by bit, and nothing has to
be declared. Vectors multiply numbers without a sign by such with one (VNNI), so a factor of the
wrong kind is moved by 128 where the other one is constant. What pads a factor is moved with it, and
is its zero point before. A constant that bytes hold less some number is these, and that number
times ``sum over k: i32(a[m, k]) - z[m]`` besides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from .. import graph as g
from ..dtypes import I8, I32, U8, DType
from ..expr import Op
from ..folding import known_outputs
from ..graph import ConstData, GraphOp, Node, Step, topological
from ..interpret.numeric import Array
from ..target import Target
from .factors import Moves, applied, chain, is_known, rewritten, sum_of_products
from .repeats import Repeats
from .words import dimension, in_words, worded

__all__ = ["quad_dots"]

_BYTES = (I8, U8)


def quad_dots(
    outputs: tuple[Node, ...], target: Target, steps: list[Step] | None = None
) -> tuple[Node, ...]:
    """The same outputs with products of bytes summed in fours, as the target multiplies them; a
    graph without any keeps its nodes.
    """
    known: dict[Node, bool] = {}
    return rewritten(outputs, lambda n: _sum_in_fours(n, known, target), steps)


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
    if a.base.size >= product.size or (b.base.size >= product.size and not fixed):
        return None
    shift = _shift(a.base.dtype, b.base.dtype, fixed, target)
    if shift is None or (not fixed and (a.zero is not None or b.zero is not None)):
        return None
    if a.zero is not None and _pads(a.after):
        moved = _padded(a, shift) if _fits(a.zero, a.base.dtype, known) else None
    else:
        moved = _shifted(a, shift)
    made = None if moved is None else _dot(moved, b, product, axes)
    if made is None or moved is None:
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
    if is_known(zero, known) and not _values(zero).any():
        return _Factor(of.base, of.moves + moves)
    return _Factor(of.base, of.moves + moves, zero, moves, base)


def _values(n: Node) -> Array:
    """The numbers of a node that no input reaches."""
    (made,) = known_outputs((n,))
    return cast(ConstData, made.arg).array


def _constant(n: Node, moves: Moves) -> _Factor | None:
    """A constant as bytes, less a number; None where bytes do not hold it."""
    array = _values(n)
    least, most = int(array.min()), int(array.max())
    for dtype in _BYTES:
        if dtype.least <= least and most <= dtype.greatest:
            return _Factor(g.const(array.astype(dtype.numpy), dtype), moves)
    if most - least > U8.greatest:
        return None
    zero = I8.least - least
    return _Factor(g.const((array + zero).astype(I8.numpy), I8), moves, g.full(zero, (), I32))


def _shift(a: DType, b: DType, fixed: bool, target: Target) -> int | None:
    """By how much the first factor is moved; None where no instruction multiplies the two.

    ``fixed``: the second one is constant.
    """
    if a != b and target.multiplies_bytes:
        return 0
    if fixed and target.vnni:
        return 128 if a == I8 else -128
    return 0 if target.multiplies_any_bytes else None


def _shifted(a: _Factor, shift: int) -> _Factor | None:
    """A factor that is moved by 128 or -128, to the other type; None where more than its own
    numbers is padded.
    """
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
        values = _values(zero)
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
    """A zero point at the results of a sum over ``axes``; None where it changes along those."""
    results = tuple((0, 1 if i in axes else s) for i, s in enumerate(product.shape))
    if _is_one(zero):
        return _everywhere(zero, tuple(end for _, end in results))
    wide = [i for i in axes if product.shape[i] > 1]
    d = dimension(zero, moves, wide[0], 1) if len(wide) == 1 else None
    if d is None or d not in _repeats(zero):
        return None
    return g.shrink(applied(zero, moves), results)


def _repeats(x: Node) -> frozenset[int]:
    """The dimensions along which all elements are equal."""
    same = Repeats()
    for n in topological((x,)):
        same.of(n)
    return same.of(x) | {d for d, s in enumerate(x.shape) if s == 1}


def _is_one(x: Node) -> bool:
    """True if all elements are equal."""
    return len(_repeats(x)) == len(x.shape)


def _everywhere(x: Node, shape: tuple[int, ...]) -> Node:
    """The one number that ``x`` is, in another shape."""
    one = g.shrink(x, ((0, 1),) * len(x.shape))
    return g.expand(g.reshape(one, (1,) * len(shape)), shape)
