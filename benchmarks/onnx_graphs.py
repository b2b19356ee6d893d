"""The workloads as serialised ONNX models, for the peers that read ONNX.

Inputs are x0, x1, ...; the output is y.
"""

from __future__ import annotations

import functools
import io
import math
import warnings
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks.workloads import Shape, Workload, arrays

__all__ = ["OPSET", "serialized"]

OPSET = 20  # the first with Gelu
_IR_VERSION = 10  # the onnx package's newest may be ahead of the runtimes


@functools.lru_cache(maxsize=4)
def serialized(workload: Workload, layout: str = "nchw") -> bytes:
    """The workload as the bytes of an ONNX model; constants are initialisers.

    A kernel of images may take and return them in ``layout="nhwc"``: with transposes at both ends,
    for the runtime to drop if it can.
    """
    return _exported(workload) if workload.is_model else _assembled(workload, layout)


def _exported(workload: Workload) -> bytes:
    import torch  # only the models need it

    from benchmarks import torch_models

    buffer = io.BytesIO()
    inputs = tuple(torch.from_numpy(array) for array in arrays(workload)[0])
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # the exporter that needs no further package is announced as deprecated
        torch.onnx.export(
            torch_models.build(workload.name), inputs, buffer, dynamo=False, opset_version=OPSET,
            input_names=["x0"], output_names=["y"],
        )  # fmt: skip
    return buffer.getvalue()


def _assembled(workload: Workload, layout: str) -> bytes:
    _, constants = arrays(workload)
    initializers = [numpy_helper.from_array(array, f"c{i}") for i, array in enumerate(constants)]
    if workload.op == "sum":
        initializers.append(
            numpy_helper.from_array(np.array([workload.axis], dtype=np.int64), "axes")
        )
    if workload.op == "attention":
        scale = np.array(1 / math.sqrt(workload.inputs[0][-1]), dtype=np.float32)
        initializers.append(numpy_helper.from_array(scale, "scale"))
    nodes, shapes = _nodes(workload), workload.inputs
    if layout == "nhwc":
        nodes, shapes = _between_transposes(nodes), tuple((n, h, w, c) for n, c, h, w in shapes)
    inputs = [_value(f"x{i}", shape) for i, shape in enumerate(shapes)]
    graph = helper.make_graph(nodes, workload.op, inputs, [_value("y", None)], initializers)
    opsets = [helper.make_opsetid("", OPSET)]
    model: bytes = helper.make_model(
        graph, opset_imports=opsets, ir_version=_IR_VERSION
    ).SerializeToString()
    return model


def _value(name: str, shape: Shape | None) -> object:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _between_transposes(nodes: list[Any]) -> list[Any]:
    """The nodes of one image operation on x0, for NHWC: x0 -> Transpose -> nodes -> Transpose
    -> y.
    """
    first, last = nodes[0], nodes[-1]
    first.input[0], last.output[0] = "image", "result"
    into = helper.make_node("Transpose", ["x0"], ["image"], perm=[0, 3, 1, 2])
    out = helper.make_node("Transpose", ["result"], ["y"], perm=[0, 2, 3, 1])
    return [into, *nodes, out]


def _nodes(workload: Workload) -> list[Any]:
    w, make = workload, helper.make_node
    window = {"strides": [w.stride] * 2, "pads": [w.padding] * 4}
    match w.op:
        case "add":
            return [make("Add", ["x0", "x1"], ["y"])]
        case "attention":
            return [
                make("Transpose", ["x1"], ["keys"], perm=[0, 1, 3, 2]),
                make("MatMul", ["x0", "keys"], ["products"]),
                make("Mul", ["products", "scale"], ["scores"]),
                make("Softmax", ["scores"], ["shares"], axis=-1),
                make("MatMul", ["shares", "x2"], ["y"]),
            ]
        case "conv2d":
            return [make("Conv", ["x0", "c0", "c1"], ["z"], **window), make("Relu", ["z"], ["y"])]
        case "gelu":
            return [make("Gelu", ["x0"], ["y"])]
        case "linear":
            return [make("MatMul", ["x0", "c0"], ["y"])]
        case "layer_norm":
            return [make("LayerNormalization", ["x0", "c0", "c1"], ["y"], axis=-1, epsilon=1e-5)]
        case "matmul":
            return [make("MatMul", ["x0", "x1"], ["y"])]
        case "max_pool2d":
            return [make("MaxPool", ["x0"], ["y"], kernel_shape=[w.window] * 2, **window)]
        case "softmax":
            return [make("Softmax", ["x0"], ["y"], axis=w.axis)]
        case "sum":
            return [make("ReduceSum", ["x0", "axes"], ["y"], keepdims=0)]
        case "transpose":
            return [make("Transpose", ["x0"], ["y"], perm=[1, 0])]
        case "copy":
            raise ValueError(
                f"{w.name}: a graph that computes nothing; what a runtime makes of it is no copy"
            )
        case "model":
            raise ValueError(f"{w.name} is a model, not a kernel")
