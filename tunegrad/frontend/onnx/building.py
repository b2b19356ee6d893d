"""Every operator that is there, by its ONNX name, and the rules that a file has to keep to, checked
before anything is computed.

    opset 99                           one that the package onnx knows
    y = Relu(x), y = Neg(x)            each name is made once
    Conv(x)                            as many operands, and the attributes, that its schema has
    Pad(mode="mirror"), stride 0       modes and numbers that an operator has
    Gather(axis=77) of a matrix        an axis that the operand has, once; when shapes are known

A graph's nodes in order, as tensors: what is known is computed on the way.

    node, all that it reads is known   -->   onnx's own reference computes it now
    node, else                         -->   its operator's function of tensors and arrays
    graph inside of a node             -->   a Body, which sees the names around it

Errors name the node, and the step where it is in a loop. Constants are named by the first node that
reads them, so that kernels say which nodes they come from.
"""

from __future__ import annotations

import math
import re
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np

from tunegrad.config import machine_bytes
from tunegrad.errors import DeviceError, ModelError, TunegradError
from tunegrad.ir.dtypes import dtype_of

from ..tensor import Tensor
from . import elementwise, products
from .contrib import CONTRIB
from .control import CONTROL, SEQUENCES
from .images import CONVOLUTIONS, POOLS, RESIZING, SAMPLING
from .node import (
    DEFINITION,
    FOLDED_BYTES,
    UNROLLED_NODES,
    Body,
    Coded,
    Function,
    Held,
    Known,
    NodeError,
    NodeView,
    NotKnownError,
    TensorList,
    Value,
    defined,
    settled,
    within,
)
from .reductions import NORMS, REDUCTIONS
from .shapes import SCATTERING, SHAPES

OPERATORS: dict[str, Function] = {
    **elementwise.ELEMENTWISE, **elementwise.CASTS, **SHAPES, **SCATTERING, **products.PRODUCTS,
    **CONVOLUTIONS, **NORMS, **POOLS, **products.GRAMS, **REDUCTIONS, **products.ATTENTION,
    **products.RECURRENCE, **RESIZING, **SAMPLING, **products.SIGNALS, **CONTROL, **SEQUENCES,
    **elementwise.DRAWING, **CONTRIB,
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


def draws_unseeded(graph: Any) -> bool:
    """Return True where a node may draw numbers that no seed says: other ones in each call."""
    known = {t.name: t for t in graph.initializer}
    known |= {n.output[0]: a.t for n in nodes_of(graph) for a in n.attribute
              if n.op_type == "Constant" and a.name == "value"}  # fmt: skip
    return any(
        operator_of(n) in elementwise.DRAWING
        and all(a.name != "seed" for a in n.attribute)
        and (n.op_type != "Dropout" or _trains(n, known))
        for n in nodes_of(graph)
    )


def _trains(dropout: Any, known: Mapping[str, Any]) -> bool:
    mode = dropout.input[2] if len(dropout.input) > 2 else ""
    return mode != "" and (mode not in known or bool(_array(known[mode]).any()))


def initialisers(graph: Any) -> list[str]:
    """Names of a graph's constants, sparse ones last."""
    return [
        *(t.name for t in graph.initializer),
        *(t.values.name for t in graph.sparse_initializer),
    ]


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
    from onnx import checker, defs

    missing = missing_operators(proto.graph)
    if missing:
        raise ModelError(
            f"model {name}: {len(missing)} operators are not supported: "
            f"{', '.join(f'{m:.80}' for m in missing)}"
        )
    opset = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    newest = defs.onnx_opset_version()
    if not 7 <= opset <= newest:
        raise ModelError(
            f"model {name}: opset {opset or 'not given'}; 7 and later are there, up to {newest} "
            "with this onnx"
        )
    context = checker.C.CheckerContext()
    context.ir_version = proto.ir_version
    context.opset_imports = {**{o.domain: o.version for o in proto.opset_import}, "": opset}
    _check_graph(proto.graph, context, name)
    return int(opset)


def _check_graph(graph: Any, context: Any, place: str) -> None:
    inputs, held = [i.name for i in graph.input], initialisers(graph)
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
    """A node's name, as it can be printed; of one without, the name of what it makes."""
    name = str(node.name or next(filter(None, node.output), "(no name)"))
    return f"{name if name.isprintable() else ascii(name)[1:-1]:.{_LONGEST_NAME}}"


_LONGEST_NAME = 300


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

_FOLDED_STEPS = 10**8
"""Steps that an operator may take which does not end in a time that its operands' size says."""

_OWN = frozenset(
    ["Constant", "Shape", "Size", "Slice", *CONTROL, *SEQUENCES, *elementwise.DRAWING]
) - {"Identity"}  # fmt: skip
"""Operators that onnx's reference does not compute, though all operands are known."""

_LATER = frozenset(
    ["DequantizeLinear", *CONVOLUTIONS, *POOLS, *products.RECURRENCE, *RESIZING, *SAMPLING]
)
"""Operators of known operands that the graph computes when it is compiled: a product that reads
bytes may multiply these, and onnx's reference takes a step of Python for each element of windows.
"""


_FILES = count(-1, -1)


@dataclass(slots=True)
class _Building:
    """State and counts that one building of a model's graph shares."""

    opset: int
    held: Held = field(default_factory=dict)
    file: int = field(default_factory=lambda: next(_FILES))
    read: dict[int, _Graph] = field(default_factory=dict)
    unrolled: int = 0
    folded_bytes: int = 0


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
        constants |= {t.values.name: _dense(t) for t in proto.sparse_initializer}
        found = build.read[id(proto)] = _Graph(proto, constants, frozenset(needed))
    return found


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
            if build.unrolled > UNROLLED_NODES:
                raise ModelError(
                    f"loops are unrolled, and those of this model come to over {UNROLLED_NODES} "
                    "nodes"
                )
            return _outputs(build, proto, outer, dict(zip(names, given, strict=True)))
        except ModelError as error:
            raise within(f"{place}{step}", error) from error

    return Body(len(names), tuple(proto.output), run)


def _definition(build: _Building, place: str, node: Any, taken: Sequence[Value]) -> Body:
    """The function by which ONNX defines an operator, for operands like these; 16-bit floats are
    computed in f32, and results rounded once to the types that the operator gives them.
    """
    from onnx import FunctionProto, defs, helper

    schema: Any = defs.get_schema(node.op_type, build.opset, "")
    types = [_type_of(_wide(v)) for v in taken]
    function = schema.function_body
    if schema.has_context_dependent_function:
        text = schema.get_context_dependent_function(node.SerializeToString(), types)
        function = FunctionProto.FromString(text)
    if not function.opset_import:
        shapes = [str(tuple(v.shape)) for v in taken if isinstance(v, Tensor | Coded | np.ndarray)]
        raise NodeError(
            f"{place}: onnx does not define it for operands of these types, of shapes "
            f"{', '.join(shapes)}"
        )
    _guard_products(function)
    own = {a.name: a for a in node.attribute}
    for inner in function.node:  # which names attributes of the node
        for a in [a for a in inner.attribute if a.ref_attr_name]:
            inner.attribute.remove(a)
            said = own.get(a.ref_attr_name, schema.attributes[a.ref_attr_name].default_value)
            if said.name:
                inner.attribute.add().CopyFrom(said)
                inner.attribute[-1].name = a.name
    graph = helper.make_graph(
        function.node,
        node.op_type,
        [helper.make_empty_tensor_value_info(i) for i in function.input[: len(taken)]],
        [
            helper.make_empty_tensor_value_info(made if read else "")
            for made, read in zip(function.output, node.output, strict=False)
        ],
    )
    left_out = dict.fromkeys(function.input[len(taken) :])
    scope = ChainMap[str, Value]({"": None, **left_out})
    body = _body(replace(build, opset=function.opset_import[0].version), place, graph, scope)
    operands = reversed([*zip(schema.inputs, taken, strict=False)])  # the first one of a type
    given = {
        i.type_str: dtype_of(v.dtype) for i, v in operands if isinstance(v, Tensor | np.ndarray)
    }

    def run(values: Sequence[Value], step: str) -> list[Value]:
        made = body.run([_wide(v) for v in values], step)
        wanted = (given.get(o.type_str, given[schema.inputs[0].type_str]) for o in schema.outputs)
        return [
            v.cast(kind) if isinstance(v, Tensor) else v
            for v, kind in zip(made, wanted, strict=False)
        ]

    return replace(body, run=run)


def _guard_products(function: Any) -> None:
    """``where(c, 0, p) @ v`` of a definition as ``where(c, 0, p @ v)``: the condition of attention
    is one for each row, and a kernel of attention takes the softmax as it is.
    """
    from onnx import helper

    made = {output: inner for inner in function.node for output in inner.output}
    nodes = list(function.node)
    del function.node[:]
    for inner in nodes:
        function.node.append(inner)
        guard = made.get(inner.input[0]) if inner.op_type == "MatMul" else None
        if guard is None or guard.op_type != "Where":
            continue
        condition, zero, weights = guard.input
        product, result = function.node[-1], str(inner.output[0])
        product.input[0], product.output[0] = weights, f"{result} unguarded"
        function.node.append(
            helper.make_node("Where", [condition, zero, product.output[0]], [result])
        )


def _wide(value: Value) -> Value:
    """Floats of 16 bits in the type that they are computed in."""
    if isinstance(value, Tensor) and value.dtype.is_float:
        return value.cast(value.dtype.compute)
    if isinstance(value, np.ndarray) and value.dtype.name in ("float16", "bfloat16"):
        return value.astype(np.float32)
    return value


def _type_of(value: Value) -> bytes:
    """The type and shape of an operand, as a ``TypeProto``; nothing of one that is left out."""
    from onnx import helper

    if not isinstance(value, Tensor | np.ndarray):
        return b""
    kind = value.dtype.numpy if isinstance(value, Tensor) else value.dtype
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    said: bytes = helper.make_tensor_type_proto(number, value.shape).SerializeToString()
    return said


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
    if OPERATORS.get(op) is defined:
        attributes[DEFINITION] = _definition(build, place, node, taken)
    view = NodeView(
        node.op_type,
        _called(node),
        build.opset,
        attributes,
        taken,
        outputs,
        _labels(node),
        build.held,
        build.file,
    )
    check_axes(view)
    known = [v for v in taken if isinstance(v, np.ndarray)]
    whole = len(known) == sum(v is not None for v in taken)
    if known and whole and op not in _OWN | _LATER and op == node.op_type:
        _check_folding(build, place, node, taken)
        folded = _folded(node, build.opset, taken)
        if folded is not None:
            return folded
    if op == "Constant":
        return (_constant(view),)
    if op not in OPERATORS:
        raise view.not_known("what it makes", *taken)
    try:
        made = elementwise.called(OPERATORS[op], view)
    except (NodeError, NotKnownError):
        raise
    except _FAULTS as error:
        if isinstance(error, DeviceError):
            raise
        raise view.error(f"{' '.join(str(error).split()):.500}") from error
    several = isinstance(made, tuple | list) and not isinstance(made, TensorList)
    return made if several else (made,)


_FAULTS = (
    TunegradError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError,
)  # fmt: skip
"""Exceptions that an operator's function may raise for a node that makes no sense."""


def _check_folding(build: _Building, place: str, node: Any, taken: Sequence[Value]) -> None:
    """Hold what is computed now to a size, and to a time, before it is.

    Raises NodeError where results are too large, alone or with all before them, or a pattern or a
    list of boxes may take for ever.
    """
    known = [v for v in taken if isinstance(v, np.ndarray)]
    made = _made_bytes(node, build.opset, taken)
    build.folded_bytes += made
    if sum(map(_bytes_of, known)) + made > FOLDED_BYTES:
        raise NodeError(f"{place}: what is known of it takes over 1 GiB")
    if build.folded_bytes > machine_bytes() // 2:
        raise NodeError(f"{place}: what is known takes over half of this machine's memory")
    steps = 0
    if node.op_type == "RegexFullMatch":  # by a matcher that goes back
        pattern = next((a.s.decode() for a in node.attribute if a.name == "pattern"), "")
        plain = re.sub(r"\\.|\[[^]]*\]", "a", pattern)
        again = len(re.findall(r"[*+?{]", plain))
        steps = _longest(known[0]) ** again if again > 1 else 0
        steps = _FOLDED_STEPS + 1 if re.search(r"\)[*+{]", plain) else steps
    elif node.op_type == "NonMaxSuppression" and len(known) > 1:
        steps = known[1].size * max(known[1].shape, default=1)
    elif node.op_type == "MelWeightMatrix":
        steps = made
    if steps > _FOLDED_STEPS:
        raise NodeError(f"{place}: it may take over {_FOLDED_STEPS:,} steps")


def _bytes_of(array: Known) -> int:
    """Bytes of an array, and 16 for each letter of its texts, of which numpy makes several."""
    texts = array.flat if array.dtype.kind == "O" else ()
    return array.nbytes + 16 * sum(len(str(x)) for x in texts)


def _longest(texts: Known) -> int:
    return max((len(str(x)) for x in texts.flat), default=0)


def _made_bytes(node: Any, opset: int, taken: Sequence[Value]) -> int:
    """Bytes of what a node makes of known operands, by onnx's rules of shapes; 0 where these have
    none, as for results that are no longer than operands.
    """
    from onnx import defs, helper, numpy_helper, shape_inference

    given = {i: v for i, v in zip(node.input, taken, strict=False) if isinstance(v, np.ndarray)}
    try:
        numbers = {i: helper.np_dtype_to_tensor_dtype(v.dtype) for i, v in given.items()}
        types = {i: helper.make_tensor_type_proto(numbers[i], v.shape) for i, v in given.items()}
        data = {i: numpy_helper.from_array(v, i) for i, v in given.items() if v.size <= _SHAPES}
        made = shape_inference.infer_node_outputs(
            defs.get_schema(node.op_type, opset, ""), node, types, data,
            opset_imports=[helper.make_opsetid("", opset)],
        )  # fmt: skip
    except Exception:  # noqa: BLE001  # onnx raises many kinds
        return 0
    widest = max(8, 16 * sum(_longest(v) for v in given.values() if v.dtype.kind == "O"))
    return sum(
        math.prod(d.dim_value if d.HasField("dim_value") else 1 for d in t.tensor_type.shape.dim)
        * widest
        for t in made.values()
    )


_SHAPES = 64
"""Elements of operands that may say shapes: an array has as many dimensions at most."""


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
    kinds: dict[str, Any] = {"float": np.float32, "int": np.int64, "string": object}
    for key, dtype in ((f"value_{k}{s}", d) for k, d in kinds.items() for s in ("", "s")):
        if key in n.attributes:
            return np.asarray(n.get(key), dtype)
    if "sparse_value" in n.attributes:
        return _dense(n.get("sparse_value"))
    if "value" not in n.attributes:
        raise n.error(f"it has no value, only {', '.join(n.attributes) or 'nothing'}")
    return np.asarray(n.get("value"))


def _array(proto: Any) -> Known:
    from onnx import numpy_helper

    try:
        if min(proto.dims, default=0) < 0:
            raise ValueError(f"its shape is {[*proto.dims]!s:.100}")
        return np.asarray(numpy_helper.to_array(proto))
    except Exception as error:  # noqa: BLE001  # onnx raises many kinds
        said = " ".join(str(error).split())[:200]
        raise ModelError(f"tensor {proto.name} can not be read: {said}") from None


def _dense(proto: Any) -> Known:
    """A sparse tensor as an array: zeros, but where its indices say, along all axes or each."""
    values, places, shape = _array(proto.values), _array(proto.indices), tuple(proto.dims)
    name = proto.values.name
    if min(shape, default=0) < 0 or math.prod(shape) * values.itemsize > FOLDED_BYTES:
        raise ModelError(f"sparse tensor {name} of shape {shape} takes over 1 GiB")
    try:
        if places.size and places.min() < 0:
            raise IndexError(f"index {places.min()} is negative")
        made = np.zeros(shape, values.dtype)
        made[tuple(places.T) if places.ndim == 2 else np.unravel_index(places, shape)] = values
    except (IndexError, ValueError) as error:
        raise ModelError(f"sparse tensor {name} of shape {shape}: {error}") from None
    return made
