"""ONNX files that break a rule are one line that names the node, the value and the rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import tunegrad as tg  # noqa: E402
from tunegrad.errors import ModelError  # noqa: E402
from tunegrad.frontend.onnx.importer import model_of_proto  # noqa: E402


def proto(nodes: Sequence[Any], opset: int = 18, **constants: Any) -> Any:
    """A model of ``x``, a matrix of (2, 3), and what is constant."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def node(op: str, *inputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, ["x", *inputs], ["y"], name="it", **attributes)


AXES = {
    "Gather": node("Gather", "i", axis=77),
    "Gather, from the end": node("Gather", "i", axis=-3),
    "GatherElements": node("GatherElements", "m", axis=2),
    "Softmax": node("Softmax", axis=5),
    "LogSoftmax": node("LogSoftmax", axis=-3),
    "Hardmax": node("Hardmax", axis=2),
    "Concat": node("Concat", "x", axis=4),
    "ArgMax": node("ArgMax", axis=3),
    "Split": node("Split", axis=2, num_outputs=1),
    "TopK": helper.make_node("TopK", ["x", "i1"], ["y", "at"], name="it", axis=2),
    "Flatten": node("Flatten", axis=3),
    "OneHot": helper.make_node("OneHot", ["i", "i1", "pair"], ["y"], axis=2),
    "Squeeze": node("Squeeze", "i9"),
    "Unsqueeze": node("Unsqueeze", "i9"),
    "ReduceSum": node("ReduceSum", "i9"),
    "ReduceSum, one twice": node("ReduceSum", "twice"),
    "Unsqueeze, one twice": node("Unsqueeze", "twice4"),
    "ReduceMax": node("ReduceMax", "i9"),
    "CumSum": node("CumSum", "nine"),
    "Slice": node("Slice", "i", "i1", "i9"),
    "Pad": node("Pad", "pads", "", "i9"),
    "LayerNormalization": node("LayerNormalization", "row", axis=2),
    "ScatterElements": node("ScatterElements", "m", "x", axis=2),
}
CONSTANTS = {
    "i": np.array([0]), "i1": np.array([1]), "i9": np.array([9]), "nine": np.array(9),
    "twice": np.array([0, -2]), "twice4": np.array([0, -4]), "m": np.zeros((2, 3), "i8"),
    "pads": np.array([1, 1]),
    "row": np.ones(3, "f4"), "pair": np.array([0, 1], "f4"),
}  # fmt: skip


@pytest.mark.parametrize("case", AXES)
def test_an_axis_that_the_operand_does_not_have_names_the_node(case: str) -> None:
    with pytest.raises(ModelError, match=r"node (it|y) .*(ax[ie]s|rank)"):
        tg.load(model_of_proto(proto([AXES[case]], **CONSTANTS), "m"), store=False)


WORDS = [
    node("Gelu", approximate="erf"),
    node("Resize", "", "s", mode="lanczos"),
    node("Resize", "", "s", coordinate_transformation_mode="middle"),
    node("Resize", "", "s", nearest_mode="up"),
    node("Pad", "four", mode="mirror"),
    node("ScatterElements", "m", "x", reduction="mean"),
    node("LSTM", "w", "r", hidden_size=1, direction="sideways"),
    node("MaxPool", kernel_shape=[1], auto_pad="SAME"),
]


@pytest.mark.parametrize("made", WORDS, ids=lambda n: f"{n.op_type} {n.attribute[-1].name}")
def test_a_mode_that_an_operator_does_not_have_lists_those_it_has(made: Any) -> None:
    made = proto([made], 20, s=np.ones(2, "f4"), four=np.zeros(4, "i8"), **CONSTANTS)
    with pytest.raises(ModelError, match=r"node it \(\w+\): .*; valid: "):
        model_of_proto(made, "m")


@pytest.mark.parametrize(
    "made",
    [
        node("MaxPool", kernel_shape=[0, 1]),
        node("Conv", "w", strides=[0, 1]),
        node("Conv", "w", group=0),
        node("DepthToSpace", blocksize=-1),
    ],
    ids=lambda n: f"{n.op_type} {n.attribute[0].name}",
)
def test_a_number_below_one_names_the_attribute(made: Any) -> None:
    with pytest.raises(ModelError, match=r"node it \(\w+\): \w+ = .* must be at least 1"):
        model_of_proto(proto([made], w=np.ones((1, 1, 1, 1), "f4")), "m")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (node("Relu", "x", "x"), "has input size 3"),
        (node("Relu", slope=0.5), "Unrecognized attribute: slope"),
        (node("Gemm"), "has input size 1"),
        (node("Cast"), "Required attribute 'to' is missing"),
        (node("Softmax", axis=[1]), "attribute axis|[Mm]ismatched attribute type"),
        (node("Upsample", "x", mode="nearest"), "deprecated"),
    ],
    ids=["operands", "attribute", "few", "required", "type", "deprecated"],
)
def test_a_node_that_its_schema_does_not_have_says_so(made: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        model_of_proto(proto([made]), "m")
    assert "node it" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_operator_that_onnx_does_not_define_for_such_operands_says_so() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["q"], to=TensorProto.BOOL),
        helper.make_node("Attention", ["q", "q", "q"], ["y"], name="it"),
    ]
    said = r"node it .*: onnx does not define it for operands .* \(2, 3\), \(2, 3\), \(2, 3\)"
    with pytest.raises(ModelError, match=said):
        tg.load(model_of_proto(proto(nodes, 23), "m"), store=False)


def test_a_tensor_that_is_made_twice_names_both_nodes() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="a"),
        helper.make_node("Neg", ["x"], ["y"], name="b"),
    ]
    with pytest.raises(ModelError, match=r"tensor 'y' is made 2 times \(node a and b\)"):
        model_of_proto(proto(nodes), "m")
    nodes = [helper.make_node("Relu", ["x"], ["x"], name="a")]
    with pytest.raises(ModelError, match="tensor 'x' is made 2 times"):
        model_of_proto(proto(nodes), "m")
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Neg", ["x"], ["z"])],
        "b", [], [helper.make_empty_tensor_value_info("z")],
    )  # fmt: skip
    chosen = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch, name="if")
    with pytest.raises(ModelError, match=r"node if \(If\): tensor 'z' is made 2 times"):
        model_of_proto(proto([chosen], c=True), "m")


def test_nodes_out_of_order_name_the_tensor() -> None:
    nodes = [helper.make_node("Relu", ["h"], ["y"]), helper.make_node("Neg", ["x"], ["h"])]
    with pytest.raises(ModelError, match="node y reads 'h', which no node before it makes"):
        tg.load(model_of_proto(proto(nodes), "m"), store=False)


@pytest.mark.parametrize("opset", [1, 6, 99])
def test_an_opset_that_is_not_there_is_refused(opset: int) -> None:
    with pytest.raises(ModelError, match=f"opset {opset}; 7 and later are there, up to"):
        model_of_proto(proto([node("Relu")], opset), "m")


def test_a_model_of_another_domain_alone_names_its_operators() -> None:
    made = proto([helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=1.0)])
    made.opset_import[0].domain = "ai.onnx.ml"
    with pytest.raises(ModelError, match=r"not supported: ai\.onnx\.ml\.Binarizer"):
        model_of_proto(made, "m")


def test_an_initialiser_may_stand_among_the_inputs() -> None:
    made = proto([node("Add", "w")], w=np.ones(3, "f4"))
    made.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3]))
    found = tg.load(model_of_proto(made, "m"), store=False)(np.zeros((2, 3), "f4"))
    np.testing.assert_array_equal(found, np.ones((2, 3)))


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("op", ["GatherND", "ScatterND"])
def test_rows_of_indices_that_name_no_place_are_refused(op: str, depth: int) -> None:
    """Of an operand of two dimensions; a third coordinate of ScatterND was not looked at."""
    updates = ("u",) if op == "ScatterND" else ()
    made = proto([node(op, "i", *updates)], i=np.zeros((2, depth), np.int64),
                 u=np.ones((2,), np.float32))  # fmt: skip
    with pytest.raises(ModelError, match=rf"{op}.*name no places of \(2, 3\)"):
        model_of_proto(made, "m").build({})
