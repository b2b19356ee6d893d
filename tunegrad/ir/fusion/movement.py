"""Movement as functions from an output index to a source index: no data moves.

PERMUTE(order)  out[i_0, ...] = in[...]  with in index order[d] = i_d
EXPAND          the source's extent-1 dimensions are read at 0
SHRINK, FLIP    begin + i, extent - 1 - i
WINDOW          o*stride + k*dilation, k being the last index
PAD             i - lo, valid where 0 <= i - lo < extent
RESHAPE         row-major offset, then // and %, dimension group by dimension group
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..graph import GraphOp, Node
from ..index import ALWAYS, Index, Range, Valid, as_index

__all__ = ["Place", "interleaves", "reshape_groups", "source_index"]

ZERO = as_index(0)


def source_index(node: Node, index: tuple[Index, ...]) -> tuple[tuple[Index, ...], Valid]:
    """The source index that a movement node reads for ``index``, and where it reads anything."""
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
    """True if a dimension of the first of these views is made of parts of several dimensions of the
    last.
    """
    parts = [[(d, s)] for d, s in enumerate(chain[-1].shape)]
    for view in reversed(chain[:-1]):
        if view.op is GraphOp.PERMUTE:
            parts = [parts[d] for d in cast(tuple[int, ...], view.arg)]
        elif view.op is GraphOp.RESHAPE:
            left = [x for dim in parts for x in dim if x[1] != 1][::-1]
            parts = [_taken(left, size) for size in view.shape]
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
