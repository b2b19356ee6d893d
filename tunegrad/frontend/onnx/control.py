"""Control flow: branches, and loops that are unrolled; sequences and optional values.

    If, its condition known       -->  the branch that is taken
    If, of the model's inputs     -->  both branches, and where(condition, a, b) of each output;
                                       positions out of range are an error in the one that is taken,
                                       and so is a branch that does not fit the inputs' shapes
    Loop, Scan                    -->  the body once for each step, and its scanned outputs stacked
    sequences, optional values    -->  lists of tensors, and None, while the graph is built

A graph of constant shapes has no other loop: the number of steps has to be known when it is built,
as lengths of sequences and positions in them have.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tunegrad.errors import ModelError

from ..functions import cat, stack, where
from ..nodes.indexing import only_where
from ..ops.indexing import within
from ..tensor import Tensor
from .node import (
    UNROLLED_NODES,
    Coded,
    Function,
    Known,
    NodeView,
    NotKnownError,
    TensorList,
    Value,
    settled,
)


def stacked(n: NodeView, values: Sequence[Value], axis: int) -> Tensor | Known:
    """Values along a new axis; known where all of them are."""
    arrays = [v for v in values if isinstance(v, np.ndarray)]
    if len(arrays) == len(values):
        return np.stack(arrays, axis)
    tensors = [v for v in values if isinstance(v, Tensor | np.ndarray)]
    if len(tensors) != len(values):
        raise n.error("a scanned output is not a tensor")
    return stack([n.constant(v) for v in tensors], axis)


def _if(n: NodeView) -> tuple[Value, ...]:
    condition = settled(n.at(0))
    if not isinstance(condition, Tensor):
        return tuple(n.body("then_branch" if _true(n, condition) else "else_branch")())
    truth = condition.cast("bool").reshape(())
    made = dict[str, list[Value]]()
    refused = dict[str, ModelError]()
    for name, taken in (("then_branch", truth), ("else_branch", truth.logical_not())):
        try:
            with only_where(taken.node):
                made[name] = n.body(name)()
        except NotKnownError:
            raise
        except ModelError as error:  # it counts if this branch is taken
            refused[name] = error
    if not made:
        raise refused["then_branch"]
    if refused:
        ((name, why),) = refused.items()
        said = f"{n.place}: its {name} is taken, which does not fit ({why})"
        place = within(where(truth, *((0, 1) if name == "else_branch" else (1, 0))), said, 0, 1)
        return tuple(_held(n, v, place) for values in made.values() for v in values)
    both = made["then_branch"], made["else_branch"]
    return tuple(_either(n, condition, i, a, b) for i, (a, b) in enumerate(zip(*both, strict=True)))


def _held(n: NodeView, value: Value, place: Tensor) -> Value:
    """Result of the one branch that fits, read out of range where the other is taken."""
    if isinstance(value, TensorList):
        held = [_held(n, v, place) for v in value]
        return TensorList(v for v in held if isinstance(v, Tensor | np.ndarray))
    if isinstance(value, Coded):
        raise n.error(f"a branch alone gives {value.kind.name}; its condition must be known")
    if value is None:
        return None
    y = n.constant(value)
    return y.unsqueeze(0).index_select(0, place.reshape(1)).reshape(*y.shape)


def _true(n: NodeView, condition: Value) -> bool:
    """The truth of a condition that is known."""
    if not isinstance(condition, np.ndarray) or condition.size != 1:
        raise n.error("its condition is not one value")
    return bool(condition.reshape(-1)[0])


def _either(n: NodeView, condition: Tensor, output: int, a: Value, b: Value) -> Value:
    """Result of the one or the other branch, chosen when the program runs."""
    if a is b:
        return a
    if isinstance(a, TensorList) and isinstance(b, TensorList) and len(a) == len(b):
        return TensorList(_chosen(n, condition, output, x, y) for x, y in zip(a, b, strict=True))
    return _chosen(n, condition, output, a, b)


def _chosen(n: NodeView, condition: Tensor, output: int, a: Value, b: Value) -> Tensor:
    if isinstance(a, Tensor | np.ndarray) and isinstance(b, Tensor | np.ndarray):
        x, y = n.constant(a), n.constant(b)
        if (x.shape, x.dtype) == (y.shape, y.dtype):
            return where(condition.cast("bool").reshape(()), x, y)
    said = f"output {output} is {_described(a)} or {_described(b)}: its condition"
    raise n.not_known(said, condition)


def _described(value: Value) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, TensorList):
        return f"a sequence of {len(value)}"
    kind = value.kind.name if isinstance(value, Coded) else value.dtype
    return f"{kind}{list(value.shape)}"


def _loop(n: NodeView) -> tuple[Value, ...]:
    body, count, condition = n.body("body"), n.known(0), n.at(1)
    checked = condition is not None
    carried = [n.at(2 + i) for i in range(body.inputs - 2)]
    scanned: list[list[Value]] = [[] for _ in body.outputs[1 + len(carried) :]]
    steps = itertools.count() if count is None else range(int(np.asarray(count).reshape(-1)[0]))
    for step in steps:
        condition = settled(condition) if checked else condition
        if isinstance(condition, Tensor) and checked:
            raise n.not_known(f"whether it goes on to step {step}", condition)
        if checked and not _true(n, condition):
            break
        first = np.asarray(True) if condition is None else condition
        condition, *made = body(np.asarray(step, np.int64), first, *carried, step=step)
        carried = made[: len(carried)]
        for column, value in zip(scanned, made[len(carried) :], strict=True):
            column.append(value)
    outputs = body.outputs[1 + len(carried) :]
    return (*carried, *(_column(n, c, o) for c, o in zip(scanned, outputs, strict=True)))


def _column(n: NodeView, values: Sequence[Value], said: Any, axis: int = 0) -> Tensor | Known:
    """A scanned output; of no step it has the shape that the body says."""
    if values:
        return stacked(n, values, axis)
    from onnx import helper

    kind = said.type.tensor_type
    extents = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
    if -1 in extents or not kind.HasField("shape"):
        raise n.error(f"it takes no step, and output {said.name} of its body has no shape")
    extents.insert(axis % (len(extents) + 1), 0)
    return np.zeros(extents, helper.tensor_dtype_to_np_dtype(kind.elem_type))


def _scan(n: NodeView) -> tuple[Value, ...]:
    if n.opset >= 9:
        return _scanned(n, n.inputs)
    lengths, batch = n.ints(0), n.inputs[1:]
    extents = {v.shape[0] for v in batch if isinstance(v, Tensor | np.ndarray)}
    extents |= set() if lengths is None else {len(lengths)}
    if len(extents) != 1:
        raise n.error(f"its operands have batches of {sorted(extents)}")
    rows = [
        _scanned(n, [_at(n, v, 0, i) for v in batch], None if lengths is None else lengths[i])
        for i in range(extents.pop())
    ]
    return tuple(stacked(n, column, 0) for column in zip(*rows, strict=True))


def _scanned(n: NodeView, values: Sequence[Value], steps: int | None = None) -> tuple[Value, ...]:
    """Steps along an axis of each scanned operand, forwards or backwards; the first ``steps`` of
    them, where scanned outputs of others are zero.
    """
    body, count = n.body("body"), int(n.get("num_scan_inputs", 0))
    states, taken = list(values[: len(values) - count]), values[len(values) - count :]
    axes = n.get("scan_input_axes") or [0] * count
    back = n.get("scan_input_directions") or n.get("directions") or [0] * count
    outputs = body.outputs[len(states) :]
    extents = {
        v.shape[axis]
        for v, axis in zip(taken, axes, strict=True)
        if isinstance(v, Tensor | np.ndarray)
    }
    if len(extents) != 1:
        raise n.error(f"its scanned operands have {sorted(extents)} steps")
    whole = extents.pop()
    length = whole if steps is None else steps
    if not 0 <= length <= whole:
        raise n.error(f"a sequence of {length} steps, and operands of {whole}")
    columns: list[list[Value]] = [[] for _ in outputs]
    for step in range(length):
        here = [
            _at(n, v, axis, length - 1 - step if reverse else step)
            for v, axis, reverse in zip(taken, axes, back, strict=True)
        ]
        made = body(*states, *here, step=step)
        states = made[: len(states)]
        for column, value in zip(columns, made[len(states) :], strict=True):
            column.append(value)
    return (*states, *(_filled(y, whole - length) for y in _placed(n, columns, outputs)))


def _filled(y: Tensor | Known, missing: int) -> Tensor | Known:
    """With zeros behind the first dimension."""
    widths = [(0, missing), *((0, 0) for _ in y.shape[1:])]
    if not missing:
        return y
    return y.pad(widths) if isinstance(y, Tensor) else np.pad(y, widths)


def _placed(
    n: NodeView, columns: Sequence[list[Value]], outputs: Sequence[Any]
) -> list[Tensor | Known]:
    """Scanned outputs along the axes, and in the directions, that the node says."""
    axes = n.get("scan_output_axes") or [0] * len(columns)
    back = n.get("scan_output_directions") or [0] * len(columns)
    return [
        _column(n, c[::-1] if reverse else c, said, axis)
        for c, said, axis, reverse in zip(columns, outputs, axes, back, strict=True)
    ]


def _at(n: NodeView, value: Value, axis: int, place: int) -> Tensor | Known:
    """One position along an axis."""
    if not isinstance(value, Tensor | np.ndarray):
        raise n.error("a scanned operand is not a tensor")
    key = (slice(None),) * (axis % len(value.shape)) + (place,)
    found = value[key]
    return found if isinstance(found, Tensor) else np.asarray(found)


CONTROL: dict[str, Function] = {"If": _if, "Loop": _loop, "Scan": _scan}


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


def _element_at(n: NodeView) -> Tensor | Known:
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
    alike = extent if split is None else extent // max(1, int(split)) if not np.ndim(split) else 0
    if alike > UNROLLED_NODES:
        raise n.error(f"a sequence of {alike} parts; {UNROLLED_NODES} are there at most")
    if split is None and not n.get("keepdims", 1):
        return TensorList(_part(x[(*before, i)]) for i in range(extent))
    sizes = _sizes(extent, 1 if split is None else split)
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise n.error(f"parts of {sizes} do not make an extent of {extent}")
    ends = np.cumsum(sizes)
    return TensorList(
        _part(x[(*before, slice(int(e) - s, int(e)))]) for s, e in zip(sizes, ends, strict=True)
    )


def _part(part: Tensor | Known) -> Tensor | Known:
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
    "SequenceAt": _element_at,
    "SequenceConstruct": lambda n: TensorList(_element(n, v) for v in n.inputs),
    "SequenceEmpty": lambda _: TensorList(),
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": lambda n: np.asarray(len(n.sequence(0)), np.int64),
    "SequenceMap": _map,
    "SplitToSequence": _split,
}
