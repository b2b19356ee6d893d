"""Every operator that is there, by its ONNX name, and the rules that a file has to keep to, checked
before anything is computed.

    opset 99                           one that the package onnx knows
    y = Relu(x), y = Neg(x)            each name is made once
    Conv(x)                            as many operands, and the attributes, that its schema has
    Pad(mode="mirror"), stride 0       modes and numbers that an operator has
    Gather(axis=77) of a matrix        an axis that the operand has, once; when shapes are known
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tunegrad.errors import ModelError

from ..tensor import Tensor
from .attention import ATTENTION
from .codes import Coded
from .contrib import CONTRIB
from .control import CONTROL, SEQUENCES
from .elementwise import CASTS, ELEMENTWISE
from .images import RESIZING, SAMPLING
from .node import Function, NodeView
from .products import GRAMS, PRODUCTS, RECURRENCE, SIGNALS
from .reductions import NORMS, REDUCTIONS
from .shapes import SCATTERING, SHAPES
from .windows import CONVOLUTIONS, POOLS

__all__ = [
    "FOLDED", "OPERATORS", "check_axes", "check_structure", "missing_operators", "nodes_of",
    "operator_of",
]  # fmt: skip

OPERATORS: dict[str, Function] = {
    **ELEMENTWISE, **CASTS, **SHAPES, **SCATTERING, **PRODUCTS, **CONVOLUTIONS, **NORMS,
    **POOLS, **GRAMS, **REDUCTIONS, **ATTENTION, **RECURRENCE, **RESIZING, **SAMPLING, **SIGNALS,
    **CONTROL, **SEQUENCES, **CONTRIB,
}  # fmt: skip


FOLDED = frozenset(
    ["BlackmanWindow", "Constant", "HammingWindow", "HannWindow", "MelWeightMatrix",
     "NonMaxSuppression", "NonZero", "Range", "RegexFullMatch", "StringConcat", "StringNormalizer",
     "StringSplit", "Unique"]
)  # fmt: skip
"""Operators that need operands that are known when a model is loaded."""


def operator_of(node: Any) -> str:
    """The name of a node's operator, after its domain where that is not ONNX's own."""
    own = node.domain in ("", "ai.onnx")
    return str(node.op_type if own else f"{node.domain}.{node.op_type}")


def missing_operators(graph: Any) -> tuple[str, ...]:
    """Operators of a graph, and of the graphs inside its nodes, that are not there; sorted."""
    names = {operator_of(n) for n in nodes_of(graph)}
    return tuple(sorted(names - OPERATORS.keys() - FOLDED))


def nodes_of(graph: Any) -> Iterator[Any]:
    """The nodes of a graph, and of the graphs inside them."""
    for node in graph.node:
        yield node
        for body in _bodies(node):
            yield from nodes_of(body)


def _bodies(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.type == attribute.GRAPH:
            yield attribute.g


def check_structure(proto: Any, name: str) -> int:
    """The opset of a model that keeps to the rules which need no shapes.

    Raises ModelError, naming the model, and the node or tensor: an opset that is not there,
    operators that are not there (all of them), a name that is made twice, a node that its schema
    does not have.
    """
    from onnx import defs

    opset = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    newest = defs.onnx_opset_version()
    if not 7 <= opset <= newest:
        raise ModelError(
            f"model {name}: opset {opset}; 7 and later are there, up to {newest} with this onnx"
        )
    missing = missing_operators(proto.graph)
    if missing:
        raise ModelError(
            f"model {name}: {len(missing)} operators are not supported: {', '.join(missing)}"
        )
    _check_graph(proto.graph, _context(proto, opset), name)
    return int(opset)


def _context(proto: Any, opset: int) -> Any:
    from onnx import checker

    context = checker.C.CheckerContext()
    context.ir_version = proto.ir_version
    context.opset_imports = {**{o.domain: o.version for o in proto.opset_import}, "": opset}
    return context


def _check_graph(graph: Any, context: Any, place: str) -> None:
    inputs, held = ([i.name for i in place] for place in (graph.input, graph.initializer))
    made = Counter([*inputs, *(i for i in held if i not in set(inputs))])
    made.update(o for node in graph.node for o in node.output if o)
    made.update({i: n for i, n in Counter(held).items() if n > 1})
    twice = sorted(tensor for tensor, times in made.items() if times > 1)
    if twice:
        makers = [_called(n) for n in graph.node if twice[0] in n.output]
        by = f" (node {' and '.join(makers)})" if makers else ""
        raise ModelError(f"model {place}: tensor {twice[0]!r} is made {made[twice[0]]} times{by}")
    for node in graph.node:
        _check_node(node, context, place)
        for body in _bodies(node):
            _check_graph(body, context, f"{place}: node {_called(node)} ({node.op_type})")


def _called(node: Any) -> str:
    return node.name or next(filter(None, node.output), "(no name)")


def _check_node(node: Any, context: Any, place: str) -> None:
    from onnx import checker

    place = f"model {place}: node {_called(node)} ({node.op_type})"
    if node.domain not in ("", "ai.onnx") or node.op_type in _UNCHECKED:
        return
    try:
        checker.check_node(_bare(node), context)
        _check_attributes(node, place)
    except (checker.ValidationError, ValueError, TypeError) as error:
        said = " ".join(str(error).split("==>")[0].split()).rstrip(". ")
        raise ModelError(f"{place}: {said}") from None


def _bare(node: Any) -> Any:
    """A node without the graphs inside it, which are checked where they see the names around."""
    if not any(True for _ in _bodies(node)):
        return node
    bare = type(node)(name=node.name, op_type=node.op_type, input=node.input, output=node.output)
    for a in node.attribute:
        if a.type == a.GRAPH:
            bare.attribute.add(name=a.name, type=a.GRAPH).g.name = "body"
        else:
            bare.attribute.append(a)
    return bare


def _check_attributes(node: Any, place: str) -> None:
    """Raise ModelError for a word or a number that an operator does not have."""
    from onnx import helper

    for a in node.attribute:
        words = _WORDS.get((node.op_type, a.name)) or _WORDS.get(("", a.name))
        if words and a.type == a.STRING and (said := a.s.decode()) not in words:
            raise ModelError(f"{place}: {a.name} {said!r}; valid: {', '.join(words)}")
        if a.name in _POSITIVE and a.type in (a.INT, a.INTS):
            value = helper.get_attribute_value(a)
            if min([value] if a.type == a.INT else value, default=1) < 1:
                raise ModelError(f"{place}: {a.name} = {value} must be at least 1")


_UNCHECKED = (
    "Constant",
    "GroupNormalization",
    "LayerNormalization",
    "SimplifiedLayerNormalization",
)
"""Of no use to check, deprecated in opsets 18 to 20 whose files have it, or written by ONNX Runtime
in opsets that do not have it.
"""

_POSITIVE = frozenset(
    ["blocksize", "dilations", "group", "kernel_shape", "num_groups", "num_outputs",
     "output_height", "output_width", "size", "strides"]
)  # fmt: skip
_WAYS = ("forward", "reverse", "bidirectional")
_LOSSES = ("mean", "none", "sum")
_FOLDS = ("none", "add", "mul", "max", "min")
_WORDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "auto_pad"): ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("GRU", "direction"): _WAYS,
    ("Gelu", "approximate"): ("none", "tanh"),
    ("GridSample", "mode"): ("linear", "bilinear", "nearest", "cubic", "bicubic"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("LSTM", "direction"): _WAYS,
    ("NegativeLogLikelihoodLoss", "reduction"): _LOSSES,
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("RNN", "direction"): _WAYS,
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
        "tf_half_pixel_for_nn", "tf_crop_and_resize",
    ),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("ScatterElements", "reduction"): _FOLDS,
    ("ScatterND", "reduction"): _FOLDS,
    ("SoftmaxCrossEntropyLoss", "reduction"): _LOSSES,
    ("TensorScatter", "mode"): ("linear", "circular"),
    ("TfIdfVectorizer", "mode"): ("TF", "IDF", "TFIDF"),
    ("Upsample", "mode"): ("nearest", "linear"),
}  # fmt: skip
"""Words that an attribute may be, by operator."""


def check_axes(n: NodeView) -> None:
    """Hold the axes that a node names to the rank of its first operand.

    Raises ModelError, naming the node and the axis, for one that is not there, or is said twice.
    """
    x = n.at(0)
    if not isinstance(x, Tensor | Coded | np.ndarray) or n.op not in _AXES:
        return
    operand, more = _AXES[n.op]
    axes = (n.ints(operand) if operand else None) or []
    if not axes and (said := n.get("axes", n.get("axis"))) is not None:
        axes = [int(a) for a in (said if isinstance(said, list | tuple) else [said])]
    rank = len(x.shape) + (len(axes) if more < 0 else more)
    low, high = -rank, rank - 1
    if n.op == "Flatten":
        low, high = -rank, rank
    for axis in axes:
        if not low <= axis <= high and not (rank == 0 and axis in (-1, 0)):
            raise n.error(
                f"axis {axis} of an operand of shape {tuple(x.shape)}; {low} to {high} are there"
            )
    if len({axis % max(1, rank) for axis in axes}) != len(axes):
        raise n.error(f"axes {list(axes)} name one twice")


_AXES: Mapping[str, tuple[int, int]] = {
    **{
        f"Reduce{kind}": (1, 0)
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum",
                     "SumSquare")
    },
    **dict.fromkeys(
        ("ArgMax", "ArgMin", "CenterCropPad", "Compress", "Concat", "Flatten", "Gather",
         "GatherElements", "Hardmax", "LayerNormalization", "LogSoftmax", "LpNormalization",
         "MeanVarianceNormalization", "RMSNormalization", "Resize", "Scatter", "ScatterElements",
         "Softmax", "Split", "SplitToSequence", "TensorScatter", "TopK"),
        (0, 0),
    ),
    "CumProd": (1, 0),
    "CumSum": (1, 0),
    "OneHot": (0, 1),
    "Pad": (3, 0),
    "Slice": (3, 0),
    "Squeeze": (1, 0),
    "Unsqueeze": (1, -1),
}  # fmt: skip
"""Of an operator: the operand that says axes (0: an attribute alone does), and by how much the rank
that they count in is above the operand's (-1: by the number of axes).
"""
