"""A file, or a model of onnx's, as a Model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tunegrad.errors import ModelError

from ..model import Model
from ..tensor import Tensor
from .building import evaluated
from .codes import Coded, Kind, coded, kind_of_type
from .inputs import inputs_of_graph
from .node import Known, TensorList
from .structure import check_structure

__all__ = ["model", "model_of_proto"]


def model(path: str, **given: object) -> Model:
    """The model of an ONNX file; ``given`` says extents of its dimensions (``batch=8``, or
    ``**{"x.0": 8}``), shapes of inputs (``x="1x3x224x224"``), and values of inputs, which it has no
    longer then (``sr=16000``).

    Raises ModelError, in one line: a file that can not be read or is damaged, operators that are
    not there (all of them), dimensions without an extent (all of them).
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
        raise ModelError(f"model {path} is not an ONNX file that can be read: {said}") from None
    return model_of_proto(proto, Path(path).stem, given)


def model_of_proto(proto: Any, name: str, given: Mapping[str, object] | None = None) -> Model:
    """The model of a ``ModelProto``; elements of an output that is a sequence come one by one.

    Raises as ``model`` does.
    """
    check_structure(proto, name)
    inputs, values = inputs_of_graph(proto.graph, name, dict(given or {}))
    types = {i.name: i.type.tensor_type.elem_type for i in proto.graph.input}
    kinds = {i.name: kind_of_type(types[i.name]) for i in inputs}
    run = partial(_run, proto, name, kinds, values)
    return Model(name, lambda: run, tuple(inputs))


def _run(
    proto: Any,
    name: str,
    kinds: Mapping[str, Kind | None],
    values: Mapping[str, Known],
    *tensors: Tensor,
) -> tuple[Tensor, ...]:
    given = zip(kinds.items(), tensors, strict=True)
    symbols = {i: t if kind is None else Coded(t, kind) for (i, kind), t in given}
    made = evaluated(proto, name, {**symbols, **values})
    found = list[Tensor]()
    for said, value in zip(proto.graph.output, made, strict=True):
        if value is None:
            raise ModelError(f"model {name}: output {said.name} is an optional value that is empty")
        for v in value if isinstance(value, TensorList) else (value,):
            held = coded(v) if isinstance(v, np.ndarray) else v
            found.append(held.codes if isinstance(held, Coded) else held)
    return tuple(found)
