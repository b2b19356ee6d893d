"""Numbers between bytes: constant scales that are one, and what needs no floats at all.

    u8(round(max(y, 0) / s) + z)              -->  u8(round(y / s) + z)              0 the byte 0
    (f32(v) * a * b + c) / s                  -->  f32(v) * (a * b / s) + c / s      v sums
    f32(v) * m / s + f32(b) * m / s           -->  f32(v + b) * (m / s)              b integers
    u8(round((f32(q) - z) * s / s) + z)       -->  q
    u8(round(max over w: y / s) + z)          -->  max over w: u8(round(y / s) + z)
    where(64 <= c < 128, x[c-64], y[c])       -->  where(b == 1, x[c], y[c]) at 64 b + c

The second and third are equal but for roundings: ``quad_dots`` makes it where sums may be rounded
once. Bytes that are added to such a sum are scaled with it.
With a bias of integers they are what QLinearConv says: a sum of integers times one number in f32,
which lowering rounds to a byte at once. The others are equal bit by bit: quantising is monotone and
saturates, and a rounding to the nearest integer undoes those of a product and a quotient of one
scale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import gcd, prod
from typing import Any, cast

import numpy as np

from tunegrad.lazy import dataclass

from .. import graph as g
from ..dtypes import F32, I8, I32, U8, DType
from ..expr import Op
from ..folding import saturated, values_of
from ..graph import MOVEMENT, GraphOp, Node, Step, topological
from ..interpret.numeric import Array, convert
from .sums import Repeats, applied, chain, is_known, rewritten, stepped, sum_of_products

__all__ = ["joined_scales", "single_scales", "whole_biases"]

_MOST = 2.0**30
"""The bound of scales and of their reciprocals: a product of three is a normal number."""

_EXACT = 1 << 24
"""Integers below are floats."""

_EXTREMES = (Op.MAX, Op.MIN)


def joined_scales(outputs: tuple[Node, ...], steps: list[Step] | None = None) -> tuple[Node, ...]:
    """The same outputs by these rules; a graph that none applies to keeps its nodes."""
    known: dict[Node, bool] = {}
    outputs = _unclamped(outputs, known, steps)
    outputs = rewritten(outputs, lambda n: _on_bytes(n, known), steps)
    return rewritten(outputs, lambda n: _joined(n, known) or _in_blocks(n), steps)


def _unclamped(
    outputs: tuple[Node, ...], known: dict[Node, bool], steps: list[Step] | None
) -> tuple[Node, ...]:
    """Without maxima and minima of scaled integers with numbers of the least and the greatest byte,
    where bytes alone read them: what saturates does the same.
    """
    order = topological(outputs)
    readers = Counter(s for n in order for s in {*n.srcs})
    readers.update(outputs)
    new: dict[Node, Node] = {}
    for n in order:
        found = _quantised(n, known)
        made = g.with_sources(n, tuple(new[s] for s in n.srcs))
        if found is not None:
            by, ends = found[1], {Op.MIN: n.dtype.greatest, Op.MAX: n.dtype.least}
            top, moves = chain(found[0])
            x = top
            padded = any(m.op is GraphOp.PAD or readers[m] > 1 for m in moves)
            while not padded and x.op is GraphOp.MAP and x.arg in ends and readers[x] == 1:
                limit = _number(x.srcs[1], known)
                if (
                    limit is None
                    or by.of(limit) != ends[cast(Op, x.arg)]
                    or not _of_integers(x, known)
                ):
                    break
                x = x.srcs[0]
            if x is not top:
                made = _in_place(n, top, new[x], new)
        new[n] = made
    return stepped(outputs, new, steps)


def _of_integers(x: Node, known: dict[Node, bool]) -> bool:
    """True for a float that is made of integers and constants alone."""
    if is_known(x, known) or (x.op is GraphOp.CAST and x.srcs[0].dtype.is_int):
        return True
    inside = x.op is GraphOp.MAP or x.op in MOVEMENT
    return inside and all(_of_integers(s, known) for s in x.srcs)


def _in_place(n: Node, old: Node, made: Node, new: Step) -> Node:
    """``n`` of ``made`` in the place of ``old``, which is below its first sources."""
    if n is old:
        return made
    first = _in_place(n.srcs[0], old, made, new)
    return g.with_sources(n, (first, *(new[s] for s in n.srcs[1:])))


def _joined(n: Node, known: dict[Node, bool]) -> Node | None:
    """A quotient of scaled sums of products by a constant, which their scales are divided by; None
    for another node. Bytes by themselves keep theirs: what is half a step of two scales is common.
    """
    if n.op is not GraphOp.MAP or n.arg is not Op.DIV or n.dtype != F32:
        return None
    if chain(n.srcs[0])[0].arg not in (Op.MUL, Op.ADD):
        return None
    by = _number(n.srcs[1], known)
    if by is None or not 1 / _MOST < by < _MOST or is_known(n.srcs[0], known):
        return None
    return _quotient(n.srcs[0], _one_of(n.srcs[1]), None, known)


def _quotient(x: Node, by: Node, factor: Node | None, known: dict[Node, bool]) -> Node | None:
    """``x * factor / by``; None unless ``x`` is made of sums and constant scales, and of bytes that
    are added to these.
    """
    if x.op is GraphOp.MAP and x.arg is Op.MUL:
        for y, scale in (x.srcs, x.srcs[::-1]):
            if is_known(scale, known) and not is_known(y, known):
                one = _one_of(scale)
                if not _is_moderate(one):
                    return None
                return _quotient(
                    y, by, one if factor is None else _joint(Op.MUL, one, factor), known
                )
        return None
    if _is_sum(x):
        if factor is None:
            return None
        return g.elementwise(Op.MUL, x, _spread(_joint(Op.DIV, factor, by), x.shape))
    if factor is not None:
        return None
    base, moves = chain(x)
    if moves:
        made = _quotient(base, by, None, known)
        return None if made is None else applied(made, moves)
    if x.op is not GraphOp.MAP or x.arg is not Op.ADD:
        return None
    found = [_part(y, by, known) for y in x.srcs]
    parts = [
        p if p is not None else _of_bytes(y, by, known) for y, p in zip(x.srcs, found, strict=True)
    ]
    sums = any(p is not None and not is_known(y, known) for y, p in zip(x.srcs, found, strict=True))
    scaled = [p for p in parts if p is not None]
    return g.elementwise(Op.ADD, *scaled) if sums and len(scaled) == len(parts) else None


def _part(y: Node, by: Node, known: dict[Node, bool]) -> Node | None:
    """What is added to a sum, divided by a number; None unless it is known, or made of sums."""
    if not is_known(y, known):
        return _quotient(y, by, None, known)
    one = _one_of(y)
    if not np.isfinite(values_of(one)).all() or abs(values_of(one)).max() > _MOST**3:
        return None
    return _spread(_joint(Op.DIV, one, by), y.shape)


def _of_bytes(y: Node, by: Node, known: dict[Node, bool]) -> Node | None:
    """Dequantised bytes divided by a number, which divides their scale; None for others."""
    base, moves = chain(y)
    if not _is_dequantised(base) or not is_known(base.srcs[1], known):
        return None
    one = _one_of(base.srcs[1])
    if not _is_moderate(one):
        return None
    return applied(
        g.elementwise(Op.MUL, base.srcs[0], _spread(_joint(Op.DIV, one, by), base.shape)), moves
    )


def single_scales(outputs: tuple[Node, ...], steps: list[Step] | None = None) -> tuple[Node, ...]:
    """The same outputs with each product of constant scales, which one number divides, as what it
    is rounded to, where there is a bias of integers: its scale may be that number.
    """
    known: dict[Node, bool] = {}
    biases, scales = False, dict[Node, None]()
    for n in topological(outputs):
        if n.op is GraphOp.MAP and n.arg is Op.DIV and n.dtype == F32 and is_known(n, known):
            scale = chain(n.srcs[0])[0]
            if scale.arg is Op.MUL and _is_whole(scale.srcs[0]):
                biases, scale = True, scale.srcs[1]
            if chain(scale)[0].op in (GraphOp.MAP, GraphOp.CAST):
                scales[scale] = None
    if not biases:
        return outputs
    made = {n: g.const(values_of(n), F32) for n in scales}
    return rewritten(outputs, made.get, steps)


def whole_biases(outputs: tuple[Node, ...], steps: list[Step] | None = None) -> tuple[Node, ...]:
    """The same outputs with biases of integers added to the sums of integers that have their scale,
    to the last bit, after ``single_scales``.
    """
    known: dict[Node, bool] = {}
    return rewritten(outputs, lambda n: _whole_bias(n, known), steps)


def _whole_bias(n: Node, known: dict[Node, bool]) -> Node | None:
    """A scaled sum of integers and a bias in its steps, divided by one number; None for others."""
    if n.op is not GraphOp.MAP or n.arg is not Op.ADD or n.dtype != F32:
        return None
    (x, moves), (bias, spread) = chain(n.srcs[0]), chain(n.srcs[1])
    if x.arg is not Op.MUL or not _is_sum(x.srcs[0]):
        return None
    if any(m.op is not GraphOp.RESHAPE for m in moves):
        return None
    quotient = chain(x.srcs[1])[0]
    if quotient.arg is not Op.DIV or bias.arg is not Op.DIV or not is_known(bias, known):
        return None
    if _number(quotient.srcs[1], known) != _number(bias.srcs[1], known):
        return None
    steps, before = chain(bias.srcs[0])
    if steps.arg is not Op.MUL or not _is_whole(steps.srcs[0]):
        return None
    total = x.srcs[0]
    whole = total.op is GraphOp.CAST
    wide = [[e for e in y.shape if e > 1] for y in (n, total)]
    if wide[0] != wide[1]:
        return None

    def small(k: Node) -> Array:
        """Of what is added to ``n``, one of each repeat, where ``total`` has it."""
        found = values_of(_one_of(applied(applied(k, before), spread)))
        extents = iter([e for e, of in zip(found.shape, n.shape, strict=True) if of > 1])
        return found.reshape([next(extents) if e > 1 else 1 for e in total.shape])

    if (values_of(_one_of(_spread(quotient.srcs[0], x.shape))) != small(steps.srcs[1])).any():
        return None
    added = small(_integers(steps.srcs[0]))
    if (added.astype(np.float32) != small(steps.srcs[0])).any():  # integers of 64 bits
        return None
    if _greatest(total) + int(abs(added.astype(np.int64)).max()) >= (1 << 31 if whole else _EXACT):
        return None
    kind = I32 if whole else F32
    total, less = total.srcs[0] if whole else total, g.const(-added.astype(kind.numpy), kind)
    if whole and total.arg is Op.SUB and is_known(total.srcs[1], known):
        total, less = total.srcs[0], _joint(Op.ADD, _one_of(total.srcs[1]), less)
    by = _spread(less, total.shape)
    made = g.cast(g.elementwise(Op.SUB, total, by), F32)
    return applied(g.elementwise(Op.MUL, made, x.srcs[1]), moves)


def _integers(x: Node) -> Node:
    """Whole numbers that are floats, in i32."""
    base, moves = chain(x)
    if base.op is GraphOp.CAST:
        return applied(g.cast(base.srcs[0], I32), moves)
    return applied(g.elementwise(cast(Op, base.arg), *map(_integers, base.srcs)), moves)


def _greatest(x: Node) -> int:
    """A bound of the size of whole numbers: sums of products of bytes and of constants."""
    base, _ = chain(x)
    if base.dtype in (I8, U8):
        return U8.greatest
    if base.op in (GraphOp.CONST, GraphOp.FULL):
        return int(abs(values_of(_one_of(base)).astype(np.int64)).max(initial=0))
    if base.op is GraphOp.REDUCE and cast(Any, base.arg)[0] is Op.ADD:
        return base.srcs[0].size // base.size * _greatest(base.srcs[0])
    if base.op is GraphOp.CAST:
        return _greatest(base.srcs[0])
    if base.op is GraphOp.MAP and base.arg is Op.DOT4:
        return Op.QUAD.arity << 16
    if base.op is GraphOp.MAP and base.arg in (Op.ADD, Op.SUB, Op.MUL):
        sizes = [*map(_greatest, base.srcs)]
        return prod(sizes) if base.arg is Op.MUL else sum(sizes)
    return 1 << 31


_LEAST_BLOCK = 16
"""Numbers of a block, at least: lanes of a vector."""


def _in_blocks(n: Node) -> Node | None:
    """Two tensors of dequantised bytes behind each other, in blocks that each are of one of them: a
    condition of a whole block is none of its lanes. None for another node.
    """
    if n.op is not GraphOp.MAP or n.arg is not Op.WHERE or n.dtype != F32:
        return None
    mask, *parts = n.srcs
    if any(x.op is not GraphOp.PAD for x in n.srcs) or mask.srcs[0].op is not GraphOp.FULL:
        return None
    padded = [d for d, ends in enumerate(cast(Any, mask.arg)) if any(ends)]
    if len(padded) != 1 or not all(_is_dequantised(x.srcs[0]) for x in parts):
        return None
    (d,) = padded
    sizes = [size for x in n.srcs for size in (*cast(Any, x.arg)[d], x.srcs[0].shape[d])]
    block = gcd(*sizes)
    if block < _LEAST_BLOCK or any(any(e) for x in parts for e in _without(cast(Any, x.arg), d)):
        return None

    def split(x: Node) -> Node:
        of, widths = x.srcs[0], cast(Any, x.arg)
        made = g.reshape(of, (*of.shape[:d], of.shape[d] // block, block, *of.shape[d + 1 :]))
        ends = widths[d][0] // block, widths[d][1] // block
        return g.pad(made, (*widths[:d], ends, (0, 0), *widths[d + 1 :]))

    return g.reshape(g.elementwise(Op.WHERE, *map(split, n.srcs)), n.shape)


def _without(items: Sequence[Any], place: int) -> Sequence[Any]:
    return (*items[:place], *items[place + 1 :])


def _is_dequantised(x: Node) -> bool:
    base, _ = chain(x)
    return base.op is GraphOp.MAP and base.arg is Op.MUL and _is_whole(base.srcs[0])


def _is_sum(x: Node) -> bool:
    """True for a sum of products of integers, as floats."""
    base, _ = chain(x)
    if base.op is GraphOp.CAST:
        return base.srcs[0].dtype == I32 and _adds_up(base.srcs[0])
    found = sum_of_products(base)
    return found is not None and all(map(_is_whole, found[0].srcs))


def _adds_up(x: Node) -> bool:
    """True for a sum along a dimension, or what is added to one; positions are none."""
    base, _ = chain(x)
    if base.op is GraphOp.MAP and base.arg in (Op.ADD, Op.SUB):
        return any(map(_adds_up, base.srcs))
    return base.op is GraphOp.REDUCE


def _is_whole(x: Node) -> bool:
    """True for integers as floats, less others."""
    base, _ = chain(x)
    if base.op is GraphOp.CAST:
        return base.srcs[0].dtype.is_int
    return base.op is GraphOp.MAP and base.arg is Op.SUB and all(map(_is_whole, base.srcs))


def _is_moderate(scale: Node) -> bool:
    size = abs(values_of(scale))
    return bool(((size < _MOST) & ((size > 1 / _MOST) | (size == 0))).all())


def _one_of(n: Node) -> Node:
    """A known node without its copies: one position of each dimension along which it repeats."""
    repeats = Repeats()
    return repeats.one(n, repeats.of(n), frozenset())


def _joint(op: Op, a: Node, b: Node) -> Node:
    """``op`` of two small nodes, which are repeated to one shape; a number has the other's rank."""
    rank = len((a if b.size == 1 else b).shape)
    a, b = (x if len(x.shape) == rank else g.reshape(x, (1,) * rank) for x in (a, b))
    shape = tuple(map(max, zip(a.shape, b.shape, strict=True)))
    return g.elementwise(op, *(g.expand(x, shape) for x in (a, b)))


def _spread(x: Node, shape: tuple[int, ...]) -> Node:
    return g.expand(x if len(x.shape) == len(shape) else g.reshape(x, (1,) * len(shape)), shape)


def _number(n: Node, known: dict[Node, bool]) -> float | None:
    """The one number that a known node is everywhere; None of another."""
    if not is_known(n, known):
        return None
    one = _one_of(n)
    return float(values_of(one).reshape(-1)[0]) if one.size == 1 else None


# ---- quantising


@dataclass(frozen=True, slots=True)
class _Steps:
    """Bytes of ``dtype``, ``zero`` for 0.0, in steps of ``scale``."""

    dtype: DType
    scale: float
    zero: float

    def of(self, value: float) -> int:
        """The byte of a number."""
        with np.errstate(over="ignore"):
            steps = np.round(np.float32(value) / np.float32(self.scale)) + np.float32(self.zero)
        return int(convert(np.asarray(steps, np.float32), self.dtype))


def _on_bytes(n: Node, known: dict[Node, bool]) -> Node | None:
    """A node that quantises dequantised bytes, or what moves and compares them, as one that moves
    and compares the bytes; None for another node, or where a scale differs.
    """
    found = _quantised(n, known)
    if found is None:
        return None
    x, steps = found
    return _bytes_of(x, steps, known)


def _quantised(n: Node, known: dict[Node, bool]) -> tuple[Node, _Steps] | None:
    """The tensor that a node quantises, and how; None for another node, or where the zero is no
    byte: beside a large one floats lose the bytes.
    """
    n = saturated(n) or n
    if n.op is not GraphOp.CAST or n.dtype not in (I8, U8) or n.srcs[0].dtype != F32:
        return None
    x, zero = n.srcs[0], 0.0
    if x.op is GraphOp.MAP and x.arg is Op.ADD:
        found = _number(x.srcs[1], known)
        whole = found is not None and found.is_integer()
        if found is None or not whole or not n.dtype.least <= found <= n.dtype.greatest:
            return None
        x, zero = x.srcs[0], found
    if x.op is not GraphOp.MAP or x.arg is not Op.ROUND:
        return None
    x = x.srcs[0]
    if x.op is not GraphOp.MAP or x.arg is not Op.DIV:
        return None
    scale = _number(x.srcs[1], known)
    if scale is None or not 1 / _MOST < scale < _MOST:
        return None
    return x.srcs[0], _Steps(n.dtype, scale, zero)


def _bytes_of(x: Node, steps: _Steps, known: dict[Node, bool]) -> Node | None:
    """The bytes of ``x``; None unless it is made of bytes in the same steps."""
    if x.op is GraphOp.FULL:
        value = float(cast(Any, x.arg)[2])
        return None if np.isnan(value) else g.full(steps.of(value), x.shape, steps.dtype)
    if x.op is GraphOp.PAD:
        made = _bytes_of(x.srcs[0], steps, known)
        return g.pad(made, cast(Any, x.arg)) if made is not None and not steps.zero else None
    if x.op is GraphOp.REDUCE and cast(Any, x.arg)[0] in _EXTREMES:
        op, axes = cast(Any, x.arg)
        made = _bytes_of(x.srcs[0], steps, known)
        return None if made is None else g.reduce(op, made, axes)
    base, moves = chain(x)
    if moves and not any(m.op is GraphOp.PAD for m in moves):
        made = _bytes_of(base, steps, known)
        return None if made is None else applied(made, moves)
    if x.op is GraphOp.MAP and x.arg is Op.WHERE:
        mask = x.srcs[0]
        parts = [_masked(y, mask, steps, known) for y in x.srcs[1:]]
        if any(p is None for p in parts):
            return None
        return g.elementwise(Op.WHERE, mask, *(p for p in parts if p is not None))
    if x.op is GraphOp.MAP and x.arg in _EXTREMES:
        made_of = [_bytes_of(y, steps, known) for y in x.srcs]
        if any(p is None for p in made_of):
            return None
        return g.elementwise(cast(Op, x.arg), *(p for p in made_of if p is not None))
    return _dequantised(x, steps, known)


def _masked(y: Node, mask: Node, steps: _Steps, known: dict[Node, bool]) -> Node | None:
    """The bytes of ``y`` where chosen; any byte may pad an image whose padding is masked."""
    (truth, moves), (base, others) = chain(mask), chain(y)
    alike = [(m.op, m.arg) for m in moves] == [(m.op, m.arg) for m in others]
    if alike and truth.op is GraphOp.FULL and cast(Any, truth.arg)[2]:
        made = _bytes_of(base, steps, known)
        return None if made is None else applied(made, others)
    return _bytes_of(y, steps, known)


def _dequantised(x: Node, steps: _Steps, known: dict[Node, bool]) -> Node | None:
    """The bytes that ``x`` is in the same steps; None where it is something else."""
    if x.op is not GraphOp.MAP or x.arg is not Op.MUL:
        return None
    if _number(x.srcs[1], known) != steps.scale:
        return None
    number, zero = x.srcs[0], 0.0
    if number.op is GraphOp.MAP and number.arg is Op.SUB:
        found = _number(number.srcs[1], known)
        if found is None:
            return None
        number, zero = number.srcs[0], found
    of_bytes = number.op is GraphOp.CAST and number.srcs[0].dtype == steps.dtype
    return number.srcs[0] if of_bytes and zero == steps.zero else None
