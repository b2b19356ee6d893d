"""Indices in range: which ones a run has to check, and how it sees that one is not.

A WITHIN node asks for bounds. Of what is known when the graph is made, they are decided at once:
constants are looked at, and the values of others are bounded from below and above (``interval``).
The others depend on inputs. Each such tensor of indices gets one more output, a number, which its
own small kernel computes on whatever device the plan runs:

    farthest = max(unsigned(index - low)), over all indices that are read

    x[index], x of 4 rows: -4 <= index < 4

    index            -4  -1  0  3     4   99         -5
    unsigned(i + 4)   0   3  4  7     8  103  2**64 - 1
                       in range         out of range

``index - low``, as an unsigned number, is below ``high - low`` = 8 if, and only if, the index is in
range.

The caller of the plan reads it when the plan has run: ``Guard.check`` raises IndexOutOfRange. So
one reduction tells both ends, the index is known from the number, and no kernel, schedule or device
has a part in it that reductions do not have. Kernels read in range, whatever an index is: beyond
either end an element is the first or the last one (``GATHER``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import cast as typed

from tunegrad.lazy import dataclass

from .. import graph as g
from ..dtypes import I32, I64, U32, U64, DType
from ..expr import Op
from ..graph import Bounds, ConstData, GraphOp, Node, topological
from .sums import is_known

_SAME = {GraphOp.RESHAPE, GraphOp.EXPAND, GraphOp.PERMUTE, GraphOp.FLIP, GraphOp.CONTIGUOUS}
"""Operations that give all elements of their source, and no others."""

_NESTED = 32
"""Operations that are looked at, one below the other."""

_Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Guard:
    """Bounds that one output of a guarded graph is held to; ``signed``: its indices are."""

    bounds: Bounds
    signed: bool

    def check(self, farthest: Any) -> None:
        """Raise IndexOutOfRange where the greatest distance from the lowest index is too large.

        ``farthest`` is the output, an unsigned number of numpy's.
        """
        if int(farthest) < self.bounds.high - self._low:
            return
        index, bits = int(farthest) + self._low, 8 * farthest.itemsize
        if self.signed and index >= 1 << (bits - 1):
            index -= 1 << bits
        raise self.bounds.fault(index)

    @property
    def _low(self) -> int:
        return self.bounds.low if self.signed else 0


def guarded(outputs: tuple[Node, ...]) -> tuple[tuple[Node, ...], tuple[Guard, ...]]:
    """A graph without WITHIN nodes: its outputs, and after them one for each guard.

    Equal tensors of indices with equal bounds have one guard, those that can not be out of range
    none. Raises IndexOutOfRange for indices that no input reaches.
    """
    order = topological(outputs)
    if not any(n.op is GraphOp.WITHIN for n in order):
        return outputs, ()
    new, known = _unchecked(order), dict[Node, bool]()
    found: dict[tuple[Node, int, int], Guard] = {}
    for n in order:
        if n.op is not GraphOp.WITHIN:
            continue
        index, *when = (new[s] for s in n.srcs)
        while index.op in _SAME and index.size:
            index = index.srcs[0]
        bounds = typed(Bounds, n.arg)
        if is_known(index, known) and all(is_known(w, known) for w in when):
            from ..interpret.evaluate import evaluate

            evaluate((g.within(index, bounds, *when),))
        elif index.size and not _inside(index, bounds):
            guard = Guard(bounds, index.dtype.signed)
            value = _farthest(index, bounds, when[0] if when else None)
            found.setdefault((value, bounds.low, bounds.high), guard)
    values = tuple(value for value, *_ in found)
    return (*(new[o] for o in outputs), *values), tuple(found.values())


def unchecked(outputs: tuple[Node, ...]) -> tuple[Node, ...]:
    """A graph without WITHIN nodes: indices out of range read the first or last element."""
    order = topological(outputs)
    if not any(n.op is GraphOp.WITHIN for n in order):
        return outputs
    new = _unchecked(order)
    return tuple(new[o] for o in outputs)


def interval(n: Node) -> tuple[int, int]:
    """The least and greatest value that a tensor of integers or truths can have, as far as its
    last operations tell; those of its dtype otherwise.
    """
    return _Intervals().of(n, _NESTED)


def wraps(n: Node) -> bool:
    """False where the last operation of a tensor of integers gives none beyond its dtype, by what
    it is of.
    """
    found = _Intervals().by_op(n, _NESTED)
    return found is None or found[0] < n.dtype.least or found[1] > n.dtype.greatest


def _unchecked(order: list[Node]) -> Mapping[Node, Node]:
    """By node, the same without WITHIN below it."""
    new: dict[Node, Node] = {}
    for n in order:
        srcs = tuple(new[s] for s in n.srcs)
        if n.op is GraphOp.WITHIN:
            new[n] = srcs[0]
        else:
            new[n] = g.with_sources(n, srcs)
    return new


def _inside(index: Node, bounds: Bounds) -> bool:
    low, high = interval(index)
    return bounds.low <= low and high < bounds.high


def _farthest(index: Node, bounds: Bounds, when: Node | None) -> Node:
    """The greatest ``index - low`` as an unsigned number of shape (); 0 where ``when`` is false."""
    low = bounds.low if index.dtype.signed else 0
    wide = index.dtype.bits > 32 or -low > I32.greatest
    signed, unsigned = (I64, U64) if wide else (I32, U32)
    x = index
    if index.dtype.signed:
        x = g.cast(x, signed)
        x = g.elementwise(Op.ADD, x, g.full(-low, x.shape, signed)) if low else x
    x = g.cast(x, unsigned)
    x = g.reshape(g.reduce(Op.MAX, x, tuple(range(len(x.shape)))), ())
    return x if when is None else g.elementwise(Op.WHERE, when, x, g.full(0, (), unsigned))


class _Intervals:
    """Intervals that were found, by node."""

    def __init__(self) -> None:
        self._found: dict[Node, _Interval] = {}

    def of(self, n: Node, nested: int) -> _Interval:
        """The interval of a node, by so many operations below it."""
        known = self._found.get(n)
        if known is None:
            known = (0, 1) if n.dtype.is_bool else (n.dtype.least, n.dtype.greatest)
            found = self.by_op(n, nested - 1) if nested and n.size else None
            if found is not None and known[0] <= found[0] and found[1] <= known[1]:
                known = found
            self._found[n] = known
        return known

    def by_op(self, n: Node, nested: int) -> _Interval | None:
        """By the operation of a node that has elements; None where it does not tell. Beyond the
        dtype it may be anything, since numbers wrap around there.
        """
        if n.op is GraphOp.CONST:
            array = typed(ConstData, n.arg).array
            return (int(array.min()), int(array.max())) if array.size == n.size else None
        if n.op is GraphOp.FULL:
            value = int(typed(tuple[str, str, Any], n.arg)[2])
            return value, value
        if n.op is GraphOp.IOTA:
            return 0, n.shape[typed(int, n.arg)] - 1
        if n.arg is Op.DOT4:
            low, high = _of_map(Op.MUL, [_bytes_in(s.dtype) for s in n.srcs]) or (0, 0)
            return Op.QUAD.arity * low, Op.QUAD.arity * high
        if not n.srcs or not all(s.dtype.is_int or s.dtype.is_bool for s in n.srcs):
            return None
        if n.op is GraphOp.MAP:
            return _of_map(typed(Op, n.arg), [self.of(s, nested) for s in n.srcs])
        low, high = self.of(n.srcs[0], nested)
        if n.op is GraphOp.WITHIN and len(n.srcs) == 1:
            bounds = typed(Bounds, n.arg)
            return max(low, bounds.low), max(low, bounds.low, min(high, bounds.high - 1))
        if n.op is GraphOp.REDUCE:
            op, _ = typed(tuple[Op, Any], n.arg)
            count = n.srcs[0].size // n.size
            if not count or op is Op.MUL:
                return None
            return (low, high) if op is not Op.ADD else (low * count, high * count)
        return (min(low, 0), max(high, 0)) if n.op is GraphOp.PAD else (low, high)


def _bytes_in(word: DType) -> _Interval:
    of = typed(DType, word.of)
    return of.least, of.greatest


def _of_map(op: Op, values: list[_Interval]) -> _Interval | None:
    lows, highs = zip(*values, strict=True)
    if op.compares:
        return 0, 1
    if op is Op.ADD:
        return lows[0] + lows[1], highs[0] + highs[1]
    if op is Op.SUB:
        return lows[0] - highs[1], highs[0] - lows[1]
    if op is Op.MUL:
        ends = [a * b for a in values[0] for b in values[1]]
        return min(ends), max(ends)
    if op in (Op.MIN, Op.MAX):
        pick = min if op is Op.MIN else max
        return pick(lows), pick(highs)
    if op is Op.WHERE:
        return min(lows[1:]), max(highs[1:])
    if op is Op.MOD and lows[1] > 0:
        return 0, highs[1] - 1
    if op is Op.FLOORDIV and lows[1] > 0:
        ends = [a // b for a in values[0] for b in values[1]]
        return min(ends), max(ends)
    return None
