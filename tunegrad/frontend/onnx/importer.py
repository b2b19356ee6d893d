"""A file, or a model of onnx's, as a Model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tunegrad.errors import DeviceError, ModelError, TunegradError
from tunegrad.ir.dtypes import DType, dtype_of

from ..model import InputSpec, Model
from ..tensor import Tensor
from .node import Known, NodeView, Value
from .operators import OPERATORS

__all__ = ["model", "model_of_proto"]

_FOLDED_BYTES = 1 << 30
"""What is known when a model is loaded is computed then, up to arrays of this size."""
_OWN = ("Constant", "Shape", "Size")
_FOLDED = frozenset(
    ["BlackmanWindow", "Constant", "EyeLike", "HammingWindow", "HannWindow", "NonZero", "Range"]
)
"""What is there only of operands that are known when a model is loaded."""


def model(path: str, **dims: int) -> Model:
    """The model of an ONNX file; ``dims`` gives extents to dimensions that have names only.

    Raises ModelError, in one line: a file that can not be read, operators that are not there (all
    of them), dimensions without an extent (all of them).
    """
    try:
        import onnx
    except ImportError as error:
        raise ModelError(
            f"model {path}: ONNX files need the package onnx: pip install 'tunegrad[onnx]' "
            f"({error})"
        ) from None
    try:
        proto = onnx.load(path)
    except Exception as error:  # noqa: BLE001  # protobuf and onnx raise many kinds
        said = " ".join(str(error).split())[:200]
        raise ModelError(f"model {path} is no ONNX file that can be read: {said}") from None
    return model_of_proto(proto, Path(path).stem, dims)


def model_of_proto(proto: Any, name: str, dims: Mapping[str, int] | None = None) -> Model:
    """The model of a ``ModelProto``. Raises as ``model`` does."""
    opset = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if opset < 7:
        raise ModelError(f"model {name}: opset {opset}; 7 and later are there")
    missing = sorted(
        {
            f"{n.domain}.{n.op_type}" if n.domain not in ("", "ai.onnx") else n.op_type
            for n in proto.graph.node
            if n.domain not in ("", "ai.onnx") or n.op_type not in {*OPERATORS, *_FOLDED}
        }
    )
    if missing:
        raise ModelError(
            f"model {name}: {len(missing)} operators are not there: {', '.join(missing)}"
        )
    constants = {t.name: _array(name, t) for t in proto.graph.initializer}
    inputs = _inputs(proto.graph, name, constants, dict(dims or {}))
    outputs = [o.name for o in proto.graph.output]
    run = partial(_run, name, proto.graph, opset, constants, [i.name for i in inputs], outputs)
    return Model(name, lambda: run, tuple(inputs))


def _array(name: str, proto: Any) -> Known:
    from onnx import numpy_helper

    try:
        return np.asarray(numpy_helper.to_array(proto))
    except Exception as error:  # noqa: BLE001  # onnx raises many kinds
        said = " ".join(str(error).split())[:200]
        raise ModelError(f"model {name}: tensor {proto.name} can not be read: {said}") from None


def _inputs(
    graph: Any, name: str, constants: Mapping[str, Known], dims: dict[str, int]
) -> list[InputSpec]:
    found, unknown, used = list[InputSpec](), list[str](), set[str]()
    for given in graph.input:
        if given.name in constants:
            continue
        if not given.type.HasField("tensor_type"):
            raise ModelError(f"model {name}: input {given.name} is no tensor")
        kind = given.type.tensor_type
        shape = []
        for at, d in enumerate(kind.shape.dim):
            key = d.dim_param or f"{given.name}.{at}"
            if d.HasField("dim_value") and d.dim_value >= 0:
                shape.append(int(d.dim_value))
            elif key in dims:
                used.add(key)
                shape.append(_extent(name, key, dims[key]))
            else:
                unknown.append(key)
        found.append(InputSpec(given.name, tuple(shape), _dtype(name, given.name, kind.elem_type)))
    extra = dims.keys() - used
    if unknown:
        names = ", ".join(dict.fromkeys(unknown))
        raise ModelError(
            f"model {name}: dimensions without an extent: {names}; give each one: "
            f"--set {unknown[0]}=8, or {name}.onnx[{unknown[0]}=8]"
        )
    if extra:
        raise ModelError(
            f"model {name} has no dimension {', '.join(sorted(extra))} to give an extent to"
        )
    return found


def _extent(name: str, key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(
            f"model {name}: dimension {key} = {value!r} is not a positive whole number"
        )
    return value


def _dtype(name: str, tensor: str, kind: int) -> DType:
    from onnx import TensorProto, helper

    if kind == TensorProto.BFLOAT16:
        return dtype_of("bf16")
    try:
        return dtype_of(np.dtype(helper.tensor_dtype_to_np_dtype(kind)).name)
    except Exception as error:  # noqa: BLE001  # onnx raises many kinds
        raise ModelError(f"model {name}: {tensor} has a type that is not there: {error}") from None


def _run(
    name: str,
    graph: Any,
    opset: int,
    constants: Mapping[str, Known],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *tensors: Tensor,
) -> tuple[Tensor, ...]:
    values: dict[str, Value] = {"": None, **constants, **dict(zip(inputs, tensors, strict=True))}
    needed = {i for node in graph.node for i in node.input} | set(outputs)
    for node in graph.node:
        try:
            taken = [values[i] for i in node.input]
        except KeyError as error:
            raise ModelError(
                f"model {name}: node {node.name} reads {error}, which nobody makes"
            ) from None
        while taken and taken[-1] is None:
            taken.pop()
        made = _made(name, node, opset, taken, sum(o in needed and o != "" for o in node.output))
        values.update(zip(node.output, made, strict=False))
    found = []
    for o in outputs:
        value = values.get(o)
        if value is None:
            raise ModelError(f"model {name}: output {o} is not made by any node")
        found.append(value if isinstance(value, Tensor) else Tensor(value))
    return tuple(found)


def _made(name: str, node: Any, opset: int, taken: list[Value], outputs: int) -> Sequence[Value]:
    """What a node makes: computed now where all that it reads is known."""
    try:
        attributes = {a.name: _attribute(a) for a in node.attribute}
    except (ValueError, TypeError) as error:
        said = f"an attribute is damaged: {' '.join(str(error).split())}"
        raise ModelError(f"model {name}: node {node.name}: {said}") from None
    if node.op_type == "Constant":
        return (_constant(name, attributes),)
    known = [v for v in taken if v is not None and not isinstance(v, Tensor)]
    if len(known) == sum(v is not None for v in taken):
        if sum(v.nbytes for v in known) + _made_bytes(node.op_type, known) > _FOLDED_BYTES:
            said = "what is known of it takes over 1 GiB"
            raise ModelError(f"model {name}: node {node.name} ({node.op_type}): {said}")
        if known and node.op_type not in _OWN:
            folded = _folded(node, opset, taken)
            if folded is not None:
                return folded
    view = NodeView(node.op_type, node.name, opset, attributes, taken, outputs)
    if node.op_type not in OPERATORS:
        raise ModelError(f"model {name}: {view.error('its operands must be known')}")
    try:
        made = OPERATORS[node.op_type](view)
    except ModelError as error:
        raise ModelError(f"model {name}: {error}") from error
    except _FAULTS as error:
        if isinstance(error, DeviceError):
            raise
        raise ModelError(f"model {name}: {view.error(' '.join(str(error).split()))}") from error
    return made if isinstance(made, tuple | list) else (made,)


_FAULTS = (
    TunegradError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError,
)  # fmt: skip
"""What an operator's function may raise for a node that makes no sense."""


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
        return _array("attribute", value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], bytes):
        return [v.decode() for v in value]
    return value


def _constant(name: str, attributes: Mapping[str, Any]) -> Known:
    for key, dtype in (("value_float", np.float32), ("value_floats", np.float32),
                       ("value_int", np.int64), ("value_ints", np.int64)):  # fmt: skip
        if key in attributes:
            return np.asarray(attributes[key], dtype)
    if "value" not in attributes:
        raise ModelError(f"model {name}: a Constant of {', '.join(attributes) or 'nothing'}")
    return np.asarray(attributes["value"])
