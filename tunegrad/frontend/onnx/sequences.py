"""Sequences and optional values: lists of tensors, and None, while the graph is built.

Their lengths and positions are known then; of a program only tensors are left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..functions import cat
from ..tensor import Tensor
from .codes import Coded
from .control import stacked
from .node import Function, Known, NodeView, TensorList, Value

__all__ = ["SEQUENCES"]


def _construct(n: NodeView) -> TensorList:
    return TensorList(_element(n, v) for v in n.inputs)


def _element(n: NodeView, value: Value) -> Tensor | Known:
    if value is None or isinstance(value, TensorList | Coded):
        raise n.error("an element of a sequence must be a tensor")
    return value


def _position(n: NodeView, place: int, default: int, end: int) -> int:
    """A position in a sequence, which counts from the end where it is negative; below ``end``."""
    given = n.ints(place)
    at = given[0] if given else default
    if not -end <= at < end:
        raise n.error(f"position {at} is not in a sequence of {len(n.sequence(0))}")
    return at % end


def _at(n: NodeView) -> Tensor | Known:
    items = n.sequence(0)
    return items[_position(n, 1, 0, len(items))]


def _insert(n: NodeView) -> TensorList:
    items = n.sequence(0)
    given = n.ints(2)
    at = len(items) if not given else given[0]
    if not -len(items) <= at <= len(items):
        raise n.error(f"position {at} is not in a sequence of {len(items)}")
    at = at + len(items) if at < 0 else at
    return TensorList((*items[:at], _element(n, n.at(1)), *items[at:]))


def _erase(n: NodeView) -> TensorList:
    items = n.sequence(0)
    at = _position(n, 1, -1, len(items))
    return TensorList((*items[:at], *items[at + 1 :]))


def _split(n: NodeView) -> TensorList:
    """SplitToSequence: parts of given sizes, parts of one size, or single positions."""
    x = _element(n, n.at(0))
    axis = n.get("axis", 0) % len(x.shape)
    extent, before = x.shape[axis], (slice(None),) * axis
    split = n.known(1)
    if split is None and not n.get("keepdims", 1):
        return TensorList(_held(x[(*before, i)]) for i in range(extent))
    sizes = _sizes(extent, 1 if split is None else split)
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise n.error(f"parts of {sizes} do not make an extent of {extent}")
    ends = np.cumsum(sizes)
    return TensorList(
        _held(x[(*before, slice(int(e) - s, int(e)))]) for s, e in zip(sizes, ends, strict=True)
    )


def _held(part: Tensor | Known) -> Tensor | Known:
    return part if isinstance(part, Tensor) else np.asarray(part)


def _sizes(extent: int, split: Known | int) -> list[int]:
    """Sizes as they are listed; of one number: parts of that size, the last one what is left."""
    if np.ndim(split):
        return [int(s) for s in np.asarray(split)]
    size = max(1, int(split))
    return [min(size, extent - at) for at in range(0, extent, size)]


def _concatenated(n: NodeView) -> Tensor | Known:
    items, axis = n.sequence(0), n.get("axis", 0)
    if not items:
        raise n.error("the sequence is empty")
    if n.get("new_axis", 0):
        return stacked(n, items, axis)
    arrays = [v for v in items if isinstance(v, np.ndarray)]
    if len(arrays) == len(items):
        return np.concatenate(arrays, axis)
    return cat([n.constant(v) for v in items], axis)


def _map(n: NodeView) -> tuple[TensorList, ...]:
    """SequenceMap: the body for each element; operands that are tensors go to every one."""
    body, count = n.body("body"), len(n.sequence(0))
    uneven = [len(v) for v in n.inputs if isinstance(v, TensorList) and len(v) != count]
    if uneven:
        raise n.error(f"sequences of {count} and {uneven[0]} do not go together")
    rows: Sequence[list[Value]] = [
        body(*(v[i] if isinstance(v, TensorList) else v for v in n.inputs), step=i)
        for i in range(count)
    ]
    return tuple(TensorList(_element(n, row[i]) for row in rows) for i in range(len(body.outputs)))


def _get(n: NodeView) -> Value:
    if n.at(0) is None:
        raise n.error("the optional value is empty")
    return n.at(0)


SEQUENCES: dict[str, Function] = {
    "ConcatFromSequence": _concatenated,
    "Identity": lambda n: n.at(0),
    "Optional": lambda n: n.at(0),
    "OptionalGetElement": _get,
    "OptionalHasElement": lambda n: np.asarray(n.at(0) is not None),
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": lambda _: TensorList(),
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": lambda n: np.asarray(len(n.sequence(0)), np.int64),
    "SequenceMap": _map,
    "SplitToSequence": _split,
}
