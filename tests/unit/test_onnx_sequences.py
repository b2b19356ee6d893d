"""Sequences and optional values of ONNX, and the backend that takes and gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import ModelProto, TensorProto, helper, parser  # noqa: E402

from tunegrad.errors import ModelError  # noqa: E402
from tunegrad.frontend.onnx.backend import TunegradBackend  # noqa: E402
from tunegrad.frontend.onnx.importer import model_of_proto  # noqa: E402

RNG = np.random.default_rng(0)
OPTIONS = {"threads": 1, "store": False}


def parsed(text: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]>\n{text}')


def run(proto: ModelProto, *inputs: Any) -> tuple[Any, ...]:
    return TunegradBackend.run_model(proto, list(inputs), **OPTIONS)


def node(op: str, inputs: dict[str, Any], **attributes: Any) -> Any:
    made = helper.make_node(op, list(inputs), ["y"], **attributes)
    (found,) = TunegradBackend.run_node(made, list(inputs.values()), **OPTIONS)
    return found


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


A, B, C = floats(2, 3), floats(2, 3), floats(1, 3)


def same(found: list[Any], wanted: list[Any]) -> None:
    assert isinstance(found, list)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_sequences_are_made_and_changed() -> None:
    proto = parsed("""
    m (float[2, 3] a, float[2, 3] b, float[1, 3] c) => (seq(float) y, int64 length) {
        first = SequenceConstruct (a, b)
        zero = Constant <value = int64 {0}> ()
        last = Constant <value = int64 {-1}> ()
        more = SequenceInsert (first, c, zero)
        length = SequenceLength (more)
        less = SequenceErase (more, last)
        element = SequenceAt (more, last)
        twice = Add (element, element)
        y = SequenceInsert (less, twice)
    }
    """)
    found, length = run(proto, A, B, C)
    same(found, [C, A, B + B])
    assert length == 3
    assert length.dtype == np.int64


def test_sequences_are_inputs_of_the_backend() -> None:
    assert node("SequenceLength", {"s": [A, C, B]}) == 3
    same(node("SequenceInsert", {"s": [A], "x": C}), [A, C])
    same(node("Identity", {"s": [A, C]}), [A, C])
    np.testing.assert_array_equal(node("SequenceAt", {"s": [A, C], "i": np.asarray(-1)}), C)
    assert node("SequenceLength", {"s": []}) == 0


@pytest.mark.parametrize(("axis", "new"), [(0, 0), (1, 0), (0, 1), (-1, 1)])
def test_sequences_are_joined(axis: int, new: int) -> None:
    found = node("ConcatFromSequence", {"s": [A, B]}, axis=axis, new_axis=new)
    joined = np.stack([A, B], axis) if new else np.concatenate([A, B], axis)
    np.testing.assert_array_equal(found, joined)


def test_tensors_are_split_into_sequences() -> None:
    x = floats(3, 5)
    two = {"x": x, "n": np.asarray(2)}
    same(node("SplitToSequence", two, axis=1), [x[:, :2], x[:, 2:4], x[:, 4:]])
    uneven = {"x": x, "n": np.asarray([1, 2])}
    same(node("SplitToSequence", uneven), [x[:1], x[1:]])
    same(node("SplitToSequence", {"x": x}), [x[:1], x[1:2], x[2:]])
    same(node("SplitToSequence", {"x": x}, axis=1, keepdims=0), [x[:, i] for i in range(5)])


def test_sequences_are_mapped() -> None:
    proto = parsed("""
    m (seq(float[n, 3]) s, float[3] x) => (seq(float[n, 3]) y) {
        y = SequenceMap (s, x) <
            body = each (float[n, 3] e, float[3] k) => (float[n, 3] f) { f = Mul (e, k) }
        >
    }
    """)
    (found,) = run(proto, [A, C], k := floats(3))
    same(found, [A * k, C * k])


def test_optional_values_are_none_or_what_they_hold() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3])
    given = helper.make_value_info("x", helper.make_optional_type_proto(tensor))
    has = helper.make_graph(
        [helper.make_node("OptionalHasElement", ["x"], ["y"])], "m", [given],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [])],
    )  # fmt: skip
    rep = TunegradBackend.prepare(helper.make_model(has), **OPTIONS)
    assert [bool(rep.run([v])[0]) for v in (A, None, A)] == [True, False, True]
    get = helper.make_graph(
        [helper.make_node("OptionalGetElement", ["x"], ["y"], name="get")], "m", [given],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )  # fmt: skip
    rep = TunegradBackend.prepare(helper.make_model(get), **OPTIONS)
    np.testing.assert_array_equal(rep.run([A])[0], A)
    with pytest.raises(ModelError, match=r"node get \(OptionalGetElement\): the optional value is"):
        rep.run([None])


def test_loop_carries_a_sequence() -> None:
    proto = parsed("""
    m (float[4] x) => (seq(float) y)
    <int64 count = {3}> {
        none = SequenceEmpty ()
        y = Loop (count, "", none) <
            body = step (int64 i, bool go, seq(float) s) => (bool on, seq(float) t) {
                on = Identity (go)
                one = Constant <value = int64[1] {1}> ()
                zero = Constant <value = int64[1] {0}> ()
                end = Add (i, one)
                part = Slice (x, zero, end)
                t = SequenceInsert (s, part)
            }
        >
    }
    """)
    (found,) = run(proto, x := floats(4))
    same(found, [x[:1], x[:2], x[:3]])


@pytest.mark.parametrize(
    ("op", "inputs", "said"),
    [
        ("SequenceAt", {"s": [A], "i": np.asarray(1)}, "position 1 is not in a sequence of 1"),
        ("SequenceErase", {"s": [A], "i": np.asarray(-2)}, "position -2 is not in a sequence of 1"),
        ("SequenceLength", {"s": A}, "operand 0 is not a sequence"),
        ("ConcatFromSequence", {"s": []}, "the sequence is empty"),
        ("Relu", {"s": [A]}, "operand 0 is a sequence"),
        ("SplitToSequence", {"x": A, "n": np.asarray([1, 2])}, r"parts of \[1, 2\] do not make"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_the_node(
    op: str, inputs: dict[str, Any], said: str
) -> None:
    more = {"axis": 0} if op in ("ConcatFromSequence", "SplitToSequence") else {}
    with pytest.raises(ModelError, match=rf"node y \({op}\): {said}"):
        node(op, inputs, **more)


def test_a_files_inputs_are_tensors_and_a_sequence_of_outputs_comes_one_by_one() -> None:
    proto = parsed("m (seq(float) s) => (int64 y) { y = SequenceLength (s) }")
    with pytest.raises(
        ModelError, match="input s is not a tensor; sequences and optional values are"
    ):
        model_of_proto(proto, "m")
    proto = parsed("m (float[2] x) => (seq(float) y) { y = SequenceConstruct (x, x, x) }")
    assert len(model_of_proto(proto, "m").build({})) == 3
