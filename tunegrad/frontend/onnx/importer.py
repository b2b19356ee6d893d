"""A file, or a model of onnx's, as a Model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tunegrad.errors import ModelError
from tunegrad.ir.dtypes import DType, dtype_of

from ..model import InputSpec, Model
from ..tensor import Tensor
from .building import evaluated, opset_of
from .codes import Coded, Kind, coded, kind_of_type
from .node import TensorList

__all__ = ["dtype_of_onnx", "model", "model_of_proto"]


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
    """The model of a ``ModelProto``; elements of an output that is a sequence come one by one.

    Raises as ``model`` does.
    """
    opset_of(proto, name)
    inputs = _inputs(proto.graph, name, dict(dims or {}))
    types = {i.name: i.type.tensor_type.elem_type for i in proto.graph.input}
    kinds = {i.name: kind_of_type(types[i.name]) for i in inputs}
    run = partial(_run, proto, name, kinds)
    return Model(name, lambda: run, tuple(inputs))


def _run(
    proto: Any, name: str, kinds: Mapping[str, Kind | None], *tensors: Tensor
) -> tuple[Tensor, ...]:
    given = zip(kinds.items(), tensors, strict=True)
    values = {i: t if kind is None else Coded(t, kind) for (i, kind), t in given}
    made = evaluated(proto, name, values)
    found = list[Tensor]()
    for said, value in zip(proto.graph.output, made, strict=True):
        if value is None:
            raise ModelError(f"model {name}: output {said.name} is an optional value that is empty")
        for v in value if isinstance(value, TensorList) else (value,):
            held = coded(v) if isinstance(v, np.ndarray) else v
            found.append(held.codes if isinstance(held, Coded) else held)
    return tuple(found)


def _inputs(graph: Any, name: str, dims: dict[str, int]) -> list[InputSpec]:
    found, unknown, used = list[InputSpec](), list[str](), set[str]()
    constants = {t.name for t in graph.initializer}
    for given in graph.input:
        if given.name in constants:
            continue
        if not given.type.HasField("tensor_type"):
            raise ModelError(
                f"model {name}: input {given.name} is no tensor; sequences and optional values are "
                "inputs of tunegrad.frontend.onnx.backend only"
            )
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
        dtype = dtype_of_onnx(name, given.name, kind.elem_type)
        found.append(InputSpec(given.name, tuple(shape), dtype))
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


def dtype_of_onnx(name: str, tensor: str, kind: int) -> DType:
    """The dtype of a tensor whose ``TensorProto.DataType`` is ``kind``, or of its codes.

    Raises ModelError, naming the model and the tensor, for a type that is not there.
    """
    from onnx import TensorProto, helper

    if kind == TensorProto.BFLOAT16:
        return dtype_of("bf16")
    if (small := kind_of_type(kind)) is not None:
        return small.codes
    try:
        return dtype_of(np.dtype(helper.tensor_dtype_to_np_dtype(kind)).name)
    except Exception as error:  # noqa: BLE001  # onnx raises many kinds
        raise ModelError(f"model {name}: {tensor} has a type that is not there: {error}") from None
