"""Values of a node of a graph at some of its elements: worked out from those of other nodes that it
needs, none of which is ever made whole.

Element positions are one integer array for each dimension, all of one number of dimensions
(``depth``): the first is that of the samples, each reduction on the way adds its own.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import lru_cache
from itertools import permutations
from math import prod
from typing import Any, cast
from typing import cast as typed

import numpy as np

from ..dtypes import I64, DType
from ..expr import Const, Op
from ..graph import MOVEMENT, GraphOp, Node
from ..index import clamped
from ..interpret.numeric import Array, convert
from ..kernel import identity
from .numbers import Number, Numbers, deep, drawn, zero

# ---- samples
#
# Elements of a tensor to look at: every position of short dimensions, the ends of long ones, and
# where a graph joins and pads.


SAMPLED_TERMS = 1 << 14
"""Terms of all samples of a buffer or a node, about: validation stays below 5 % of a first load."""


def borders(cone: list[Node]) -> tuple[int, ...]:
    """Positions next to which pads, and parts of tensors, begin and end."""
    found: set[int] = set()
    for n in cone:
        if n.op is GraphOp.PAD:
            for (lo, _), extent in zip(cast(Any, n.arg), n.srcs[0].shape, strict=True):
                found |= {lo, lo + extent}
        elif n.op is GraphOp.SHRINK:
            for begin, end in cast(Any, n.arg):
                found |= {begin, end}
    return tuple(sorted({i + d for i in found for d in (-1, 0) if i + d > 0}))


@lru_cache(maxsize=256)
def sampled(
    shape: tuple[int, ...], count: int, known: tuple[int, ...], seed: int
) -> tuple[Array, ...]:
    """``count`` positions, one array a dimension: the first and last corner, then a Latin square.

    Where there are fewer elements, every one once.
    """
    size = prod(shape)
    if size <= count:
        return tuple(map(np.asarray, np.unravel_index(np.arange(size), shape))) if shape else ()
    some = drawn(seed, 2 * count * len(shape)).reshape(len(shape), 2 * count)
    return tuple(_line(e, count, known, seed + d, some[d]) for d, e in enumerate(shape))


def _line(extent: int, count: int, known: tuple[int, ...], seed: int, some: Array) -> Array:
    found = np.zeros(count, np.int64)
    if extent == 1:
        return found
    found[1] = extent - 1
    if count == 2:
        return found
    if extent <= count - 2:
        line = np.arange(extent)
    else:
        ends = {0, 1, 2, extent // 2, extent - 3, extent - 2, extent - 1}
        ends |= {k for k in known if k < extent}
        line = np.array([e for e in ends if 0 <= e < extent])
        if len(line) > count // 2:
            line = line[np.argsort(drawn(~seed, len(line)))[: count // 2]]
        others = some[count : 2 * count - 2 - len(line)] % np.uint64(extent)
        line = np.concatenate((line, others.astype(np.int64)))
    found[2:] = line[np.argsort(some[: count - 2]) % len(line)]
    return found


# ---- values


MOST_TERMS = 1 << 18
"""Elements of one array, at most."""

_MOST_PARTS, _PATIENT = 1 << 8, 1 << 5
"""Arrays of one reduction, at most: 2^26 terms take about a second, once for a plan. So many times
as many where terms can not be drawn.
"""

At = tuple[Array, ...]


class Unvalidated(Exception):
    """A launch that can not be validated; the text says what stands in the way."""


class TooLongError(Unvalidated):
    """Reductions of too many terms to be worked out."""


def flat_position(at: At, shape: tuple[int, ...]) -> Array:
    """Row-major positions of elements."""
    total: Any = None
    stride = 1
    for i, extent in zip(reversed(at), reversed(shape), strict=True):
        if extent != 1:
            line = i * stride if stride > 1 else i
            total = line if total is None else line + total
            stride *= extent
    return np.zeros((1,) * (at[0].ndim if at else 1), np.int64) if total is None else total


def terms_behind(cone: list[Node], held: Container[Node], root: Node, leaves: bool = True) -> int:
    """Terms of reductions in one another behind one element of the last of some nodes.

    Without ``leaves`` those that are not held are never read: a part of what was joined that no
    element comes from, with all that it is made of.
    """
    known: dict[Node, int] = {}  # 0: never read
    for n in cone:
        if n in held and n is not root:
            known[n] = 1
            continue
        below = [known[s] for s in n.srcs]
        most = max(below, default=int(leaves or not is_leaf(n)))
        if n.op is GraphOp.PAD:
            most = max(1, most)
        elif 0 in (below[:1] if n.op is GraphOp.MAP and n.arg is Op.WHERE else below):
            most = 0
        if n.op is GraphOp.REDUCE:
            most *= max(1, prod(n.srcs[0].shape[d] for d in typed(Any, n.arg)[1]))
        known[n] = most
    return max(1, known[root])


def is_leaf(n: Node) -> bool:
    """True for a tensor of which nothing is known."""
    return n.op in (GraphOp.INPUT, GraphOp.CONST)


def position_value(numbers: Numbers, at: Array, dtype: DType) -> Number:
    """Positions as numbers; a literal where there is only one."""
    if at.size and (at == at.flat[0]).all():
        return numbers.cast(Const(int(at.flat[0]), I64), I64, dtype)
    return numbers.cast(at, I64, dtype)


_PASSED = (*MOVEMENT - {GraphOp.PAD}, GraphOp.CONTIGUOUS)


class GraphValues:
    """Nodes of a graph in terms of those that ``held`` gives a value for."""

    def __init__(self, numbers: Numbers, held: Callable[[Node, At, int], Number | None]) -> None:
        self.numbers, self.held = numbers, held
        self._known: dict[tuple[object, ...], tuple[Number, At]] = {}
        self._arrays: dict[tuple[object, ...], Array] = {}
        self._first: set[int] = set()

    def _one(self, x: Array) -> Array:
        """The array of these values that was met first: places are told apart by their arrays."""
        if id(x) in self._first or x.size > 1 << 12:
            return x
        found = self._arrays.setdefault((x.shape, x.tobytes()), x)
        self._first.add(id(found))
        return found

    def root(self, n: Node, at: At) -> Number:
        """A node that has memory, by what it is of."""
        at = tuple(map(self._one, at))
        return self.at(n, at, 1) if is_leaf(n) else self._made(n, at, 1)

    def at(self, n: Node, at: At, depth: int) -> Number:
        """The elements of a node, in its compute type."""
        while True:
            key = id(n), depth, *map(id, at)
            found = self._known.get(key)
            if found is not None:
                return found[0]
            value = self.held(n, at, depth)
            if value is not None or n.op not in _PASSED:
                break
            if n.op is not GraphOp.CONTIGUOUS:
                at = tuple(map(self._one, _moved(n, at, depth)))
            n = n.srcs[0]
        if value is None:
            value = self._made(n, at, depth)
        self._known[key] = value, at  # holding the arrays keeps their ids
        return value

    def _made(self, n: Node, at: At, depth: int) -> Number:
        op, arg, dtype = n.op, typed(Any, n.arg), n.dtype.compute
        if op is GraphOp.FULL:
            to = dtype if self.numbers.rounds else n.dtype  # rounded where it is cast
            return Const(convert(np.asarray(arg[2]), to).item(), dtype)
        if op is GraphOp.IOTA:
            return position_value(self.numbers, at[arg], dtype)
        if op is GraphOp.CAST:
            return self.numbers.cast(self.at(n.srcs[0], at, depth), n.srcs[0].dtype, n.dtype)
        if op is GraphOp.MAP:
            args = [self.at(s, at, depth) for s in n.srcs]
            types = [s.dtype.compute for s in n.srcs]
            found = self.numbers.apply(arg, args, types, dtype, depth)
            rounded = n.dtype.is_half and self.numbers.rounds
            return self.numbers.cast(found, dtype, n.dtype) if rounded else found
        if op is GraphOp.REDUCE:
            return self._folded(n, at, depth)
        if op is GraphOp.GATHER:
            return self._gathered(n, at, depth)
        if op in (GraphOp.CONTIGUOUS, GraphOp.WITHIN):
            return self.at(n.srcs[0], at, depth)
        if op is GraphOp.PAD:
            return self._padded(n, at, depth)
        return self.at(n.srcs[0], tuple(map(self._one, _moved(n, at, depth))), depth)

    def _folded(self, n: Node, at: At, depth: int) -> Number:
        op, dims = typed(tuple[Op, tuple[int, ...]], n.arg)
        src, acc = n.srcs[0], n.dtype.compute
        wide = [d for d in dims if src.shape[d] != 1]
        if any(src.shape[d] == 0 for d in wide):
            return Const(identity(op, acc), acc)
        if not wide:
            return self.at(src, at, depth)
        within = depth + len(wide)
        whole = [deep(i, within) for d, i in enumerate(at) if d not in wide]
        outer = prod(np.broadcast_shapes(*(i.shape for i in whole))) if whole else 1
        every = tuple(src.shape[d] for d in wide)

        def terms(lines: tuple[Array, ...], extents: tuple[int, ...]) -> Number:
            inner = [deep(i, within) for i in at]
            for place, d in enumerate(wide):
                inner[d] = along(lines[place], depth + place, within)
            kept = None if extents == every else dict(self._known)
            x = self.at(src, tuple(map(self._one, inner)), within)
            self._known = self._known if kept is None else kept  # no part is asked for again
            return self.numbers.fold(op, x, acc, extents, depth)

        return folded(self.numbers, op, acc, every, outer, terms, depth, self.numbers.turn[0])

    def _gathered(self, n: Node, at: At, depth: int) -> Number:
        x, index = n.srcs
        dim = typed(int, n.arg)
        chosen = self.numbers.array(self.at(index, at, depth), index.dtype, depth)
        here = self._one(clamped(chosen, x.shape[dim]).astype(np.int64))
        return self.at(x, (*at[:dim], here, *at[dim + 1 :]), depth)

    def _padded(self, n: Node, at: At, depth: int) -> Number:
        src = n.srcs[0]
        if not src.size:
            return zero(src.dtype)
        inside: Any = True
        moved = []
        for i, (lo, hi), extent in zip(at, typed(Any, n.arg), src.shape, strict=True):
            j = i - lo
            if lo or hi:
                inside = inside & (j >= 0) & (j < extent)
                j = np.clip(j, 0, extent - 1)
            moved.append(self._one(j))
        if not np.any(inside):  # what lies behind may be no part of what is compared
            return zero(src.dtype)
        x = self.at(src, tuple(moved), depth)
        if np.all(inside):
            return x
        return self.numbers.where(inside, x, zero(src.dtype), src.dtype.compute, depth)


def along(line: Array, axis: int, depth: int) -> Array:
    """Positions of one axis in so many dimensions; as they are, where they have them."""
    if line.ndim > 1 or depth == 1:
        return line
    return line.reshape((1,) * axis + (-1,) + (1,) * (depth - axis - 1))


def drawn_terms(
    sums: Sequence[tuple[int, ...]], known: tuple[int, ...], each: int = 0
) -> dict[int, Array]:
    """For reductions of these extents, positions of terms by the number of those: the ends of each
    axis, and others that are drawn; ``each``: about so many, by default thousands.
    """
    found: dict[int, Array] = {}
    each = each or (1 << 12 if len({*map(prod, sums)}) == 1 else 1 << 6)
    for extents in sums:
        count = prod(extents)
        at = flat_position(sampled(extents, each, known, count), extents)
        found[count] = np.union1d(found.get(count, at), at)
    return found


def folded(
    numbers: Numbers,
    op: Op,
    dtype: DType,
    extents: tuple[int, ...],
    outer: int,
    terms: Callable[[tuple[Array, ...], tuple[int, ...]], Number],
    depth: int,
    turn: int,
) -> Number:
    """A reduction over axes of these extents, in parts of no more than ``MOST_TERMS`` elements; or
    of the terms that count alone, whose positions are of the axes in the order of a ``turn``.

    ``terms`` folds positions of each axis, or of all together; ``outer``: elements of an array
    without these axes. Raises TooLongError for more than ``_MOST_PARTS`` parts.
    """
    size = outer * prod(extents)
    some = numbers.terms.get(prod(extents))
    if some is not None:
        orders = [*permutations(range(len(extents)))]
        order = orders[turn % len(orders)]
        at = np.unravel_index(some, [extents[d] for d in order])
        within, one = depth + len(extents), (1,) * (len(extents) - 1)
        lined = (at[order.index(d)] for d in range(len(extents)))
        return terms(
            tuple(i.reshape((1,) * (within - 1) + (-1,)) for i in lined), (*one, len(some))
        )
    if size <= MOST_TERMS:
        return terms(tuple(np.arange(e, dtype=np.int64) for e in extents), extents)
    long = max(range(len(extents)), key=extents.__getitem__)
    each = max(1, MOST_TERMS * extents[long] // size)
    parts = _MOST_PARTS * (_PATIENT if numbers.patient else 1)
    if size > MOST_TERMS * parts or extents[long] > each * 2 * parts:
        raise TooLongError(f"{size} terms of reductions in one another")
    lines = [np.arange(e if d != long else 0, dtype=np.int64) for d, e in enumerate(extents)]
    total: Number | None = None
    for first in range(0, extents[long], each):
        line = np.arange(first, min(first + each, extents[long]), dtype=np.int64)
        part = terms(
            (*lines[:long], line, *lines[long + 1 :]),
            (*extents[:long], len(line), *extents[long + 1 :]),
        )
        both = [part if total is None else total, part]
        total = part if total is None else numbers.apply(op, both, [dtype] * 2, dtype, depth)
    return typed(Number, total)


def _moved(n: Node, at: At, depth: int) -> At:
    """The element of the source that a movement reads."""
    op, arg, src = n.op, typed(Any, n.arg), n.srcs[0]
    none = np.zeros((1,) * depth, np.int64)
    if op is GraphOp.RESHAPE:
        return _reshaped(at, n.shape, src.shape, none)
    if op is GraphOp.EXPAND:
        return tuple(none if s == 1 else i for i, s in zip(at, src.shape, strict=True))
    if op is GraphOp.PERMUTE:
        moved = [none] * len(at)
        for d, o in enumerate(arg):
            moved[o] = at[d]
        return tuple(moved)
    if op is GraphOp.SHRINK:
        return tuple(i + begin if begin else i for i, (begin, _) in zip(at, arg, strict=True))
    if op is GraphOp.FLIP:
        return tuple(src.shape[d] - 1 - i if d in arg else i for d, i in enumerate(at))
    if op is GraphOp.WINDOW:
        dim, _, stride, dilation = arg
        *rest, k = at
        return tuple(i * stride + k * dilation if d == dim else i for d, i in enumerate(rest))
    raise Unvalidated(f"graph operation {op}")


def _reshaped(at: At, shape: tuple[int, ...], src: tuple[int, ...], none: Array) -> At:
    """Positions of equal row-major order; dimensions split together with those they make up."""
    found = [none] * len(src)
    for here, there in _joined(shape, src):
        offset: Any = at[here[0]]
        for d in here[1:]:
            offset = offset * shape[d] + at[d]
        for d in there[:-1]:
            found[d], offset = offset % src[d], offset // src[d]
        found[there[-1]] = offset
    return tuple(found)


@lru_cache(maxsize=256)
def _joined(
    shape: tuple[int, ...], src: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Dimensions of one shape, outer before inner, and those of another that they make up, the
    innermost first; none of one position.
    """
    found = []
    outer = [d for d in range(len(shape)) if shape[d] != 1]
    inner = [d for d in range(len(src)) if src[d] != 1]
    while outer or inner:
        here, there = [outer.pop()], [inner.pop()]
        while (a := prod(shape[d] for d in here)) != (b := prod(src[d] for d in there)):
            if a < b:
                here.append(outer.pop())
            else:
                there.append(inner.pop())
        found.append((tuple(reversed(here)), tuple(there)))
    return tuple(found)
