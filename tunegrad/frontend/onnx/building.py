"""A graph's nodes in order, as tensors: what is known is computed on the way.

    node, all that it reads is known   -->   onnx's own reference computes it now
    node, else                         -->   its operator's function of tensors and arrays
    graph inside of a node             -->   a Body, which sees the names around it

Errors name the node, and the step where it is in a loop. Constants are named by the first node that
reads them, so that kernels say which nodes they come from.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tunegrad.errors import DeviceError, ModelError, TunegradError

from .control import CONTROL, SEQUENCES
from .elementwise import called
from .node import Body, Held, Known, NodeError, NodeView, TensorList, Value, settled, within
from .structure import OPERATORS, check_axes, check_structure, nodes_of, operator_of

__all__ = ["evaluated"]

_FOLDED_BYTES = 1 << 30
"""Values known when a model is loaded are computed then, up to arrays of this size."""
_UNROLLED_NODES = 20_000
"""Nodes of all bodies of a model, once for each step that they take."""
_OWN = frozenset(["Constant", "Shape", "Size", "Slice", *CONTROL, *SEQUENCES]) - {"Identity"}
"""Operators that onnx's reference does not compute, though all operands are known."""


@dataclass(slots=True)
class _Building:
    """State and counts that one building of a model's graph shares."""

    opset: int
    held: Held = field(default_factory=dict)
    read: dict[int, _Graph] = field(default_factory=dict)
    unrolled: int = 0


@dataclass(frozen=True, slots=True)
class _Graph:
    """A graph of a file, with its initialisers as arrays, and the names that are read."""

    proto: Any
    constants: Mapping[str, Known]
    needed: frozenset[str]


def evaluated(proto: Any, name: str, values: Mapping[str, Value]) -> list[Value]:
    """A model's outputs, of values for its inputs.

    What depends on no tensor is an array. Raises ModelError, naming the model and the node.
    """
    build = _Building(check_structure(proto, name))
    try:
        return _outputs(build, proto.graph, ChainMap[str, Value]({"": None}), values)
    except ModelError as error:
        raise within(f"model {name}", error) from error


def _outputs(
    build: _Building, proto: Any, outer: ChainMap[str, Value], given: Mapping[str, Value]
) -> list[Value]:
    """A graph's outputs, where it sees the names around it."""
    graph = _read(build, proto)
    values = outer.new_child({**graph.constants, **given})
    for node in proto.node:
        unmade = next((i for i in node.input if i not in values), None)
        if unmade is not None:
            raise ModelError(
                f"node {_called(node)} reads '{unmade}', which no node before it makes"
            )
        taken = [values[i] for i in node.input]
        while taken and taken[-1] is None:
            taken.pop()
        used = sum(o in graph.needed and o != "" for o in node.output)
        made = _made(build, node, values, taken, used)
        values.update((o, v) for o, v in zip(node.output, made, strict=False) if o)
    unmade = next((o.name for o in proto.output if o.name not in values), None)
    if unmade is not None:
        raise ModelError(f"output {unmade} is not made by any node")
    return [values[o.name] for o in proto.output]


def _read(build: _Building, proto: Any) -> _Graph:
    found = build.read.get(id(proto))
    if found is None:  # it holds the graph, so that its identity stays its own
        needed = {i for node in nodes_of(proto) for i in node.input} | {
            o.name for o in proto.output
        }
        constants = {t.name: _array(t) for t in proto.initializer}
        found = build.read[id(proto)] = _Graph(proto, constants, frozenset(needed))
    return found


def _called(node: Any) -> str:
    """A node's name; of one without, the name of what it makes."""
    return node.name or next(filter(None, node.output), "")


def _labels(node: Any) -> list[str]:
    """Names of the constants that a node reads: ``NODE.OPERAND``.

    A node without a name leaves those their names that have a module's path.
    """
    return [
        i if "." in i and not node.name else f"{_called(node)}.{i.rpartition('.')[2]}"
        for i in node.input
    ]


def _body(build: _Building, place: str, proto: Any, outer: ChainMap[str, Value]) -> Body:
    """A graph inside of a node."""
    names = [i.name for i in proto.input]

    def run(given: Sequence[Value], step: str) -> list[Value]:
        build.unrolled += max(1, len(proto.node))
        try:
            if len(given) != len(names):
                raise ModelError(f"it takes {len(names)} values, not {len(given)}")
            if build.unrolled > _UNROLLED_NODES:
                raise ModelError(
                    f"loops are unrolled, and those of this model come to over {_UNROLLED_NODES} "
                    "nodes"
                )
            return _outputs(build, proto, outer, dict(zip(names, given, strict=True)))
        except ModelError as error:
            raise within(f"{place}{step}", error) from error

    return Body(len(names), tuple(proto.output), run)


def _attributes(
    build: _Building, place: str, node: Any, scope: ChainMap[str, Value]
) -> dict[str, Any]:
    try:
        return {
            a.name: _body(build, f"{place}: {a.name}", a.g, scope)
            if a.type == a.GRAPH
            else _attribute(a)
            for a in node.attribute
        }
    except (ModelError, ValueError, TypeError) as error:
        said = f"an attribute is damaged: {' '.join(str(error).split())}"
        raise NodeError(f"{place}: {said}") from None


def _made(
    build: _Building, node: Any, scope: ChainMap[str, Value], taken: list[Value], outputs: int
) -> Sequence[Value]:
    """Results of a node: computed now where all that it reads is known."""
    place, op = f"node {_called(node)} ({node.op_type})", operator_of(node)
    if op not in OPERATORS:
        taken = [settled(v) for v in taken]
    attributes = _attributes(build, place, node, scope)
    view = NodeView(
        node.op_type,
        _called(node),
        build.opset,
        attributes,
        taken,
        outputs,
        _labels(node),
        build.held,
    )
    check_axes(view)
    known = [v for v in taken if isinstance(v, np.ndarray)]
    if len(known) == sum(v is not None for v in taken):
        if sum(v.nbytes for v in known) + _made_bytes(node.op_type, known) > _FOLDED_BYTES:
            raise NodeError(f"{place}: what is known of it takes over 1 GiB")
        if known and op not in _OWN and op == node.op_type:
            folded = _folded(node, build.opset, taken)
            if folded is not None:
                return folded
    if op == "Constant":
        return (_constant(view),)
    if op not in OPERATORS:
        raise view.not_known("what it makes", *taken)
    try:
        made = called(OPERATORS[op], view)
    except NodeError:
        raise
    except _FAULTS as error:
        if isinstance(error, DeviceError):
            raise
        raise view.error(" ".join(str(error).split())) from error
    several = isinstance(made, tuple | list) and not isinstance(made, TensorList)
    return made if several else (made,)


_FAULTS = (
    TunegradError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError,
)  # fmt: skip
"""Exceptions that an operator's function may raise for a node that makes no sense."""


def _made_bytes(op: str, known: Sequence[Known]) -> float:
    """Bytes of what a node makes whose operands say how large that is; 0 of others."""
    if not known or known[-1].dtype.kind not in "iuf":
        return 0.0
    last = known[-1].astype(np.float64).reshape(-1)
    if op in ("ConstantOfShape", "Expand"):
        return float(8 * np.prod(np.abs(last)))
    if op == "Tile":
        return float(known[0].nbytes * np.prod(np.abs(last)))
    if op == "Range" and len(known) == 3:
        start, limit, delta = (float(k.reshape(-1)[0]) for k in known)
        return 8 * abs((limit - start) / (delta or 1.0))
    return 0.0


def _folded(node: Any, opset: int, taken: Sequence[Value]) -> list[Known] | None:
    """By onnx's own reference; None for what that can not do."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    names = [i for i in node.input if i]
    arrays = [v for v in taken if v is not None]
    try:
        operands = dict(zip(names, arrays, strict=True))
        graph = helper.make_graph(
            [node],
            "folded",
            [helper.make_empty_tensor_value_info(n) for n in operands],
            [helper.make_empty_tensor_value_info(o) for o in node.output if o],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        made = ReferenceEvaluator(proto).run(None, operands)
    except Exception:  # noqa: BLE001  # the reference raises anything; the operator is tried then
        return None
    return [np.asarray(m) for m in made] if isinstance(made, list) else None


def _attribute(a: Any) -> Any:
    from onnx import helper

    value = helper.get_attribute_value(a)
    if isinstance(value, bytes):
        return value.decode()
    if a.type == a.TENSOR:
        return _array(value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], bytes):
        return [v.decode() for v in value]
    return value


def _constant(n: NodeView) -> Known:
    for key, dtype in (("value_float", np.float32), ("value_floats", np.float32),
                       ("value_int", np.int64), ("value_ints", np.int64)):  # fmt: skip
        if key in n.attributes:
            return np.asarray(n.get(key), dtype)
    if "value" not in n.attributes:
        raise n.error(f"it has no value, only {', '.join(n.attributes) or 'nothing'}")
    return np.asarray(n.get("value"))


def _array(proto: Any) -> Known:
    from onnx import numpy_helper

    try:
        return np.asarray(numpy_helper.to_array(proto))
    except Exception as error:  # noqa: BLE001  # onnx raises many kinds
        said = " ".join(str(error).split())[:200]
        raise ModelError(f"tensor {proto.name} can not be read: {said}") from None
