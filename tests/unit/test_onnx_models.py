"""ONNX models come in: operators, shapes that fold, dimensions, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import tunegrad as tg  # noqa: E402
from tests.onnx_backend import draws, outcome  # noqa: E402
from tunegrad.errors import ModelError, UserError  # noqa: E402
from tunegrad.frontend.onnx import model  # noqa: E402
from tunegrad.frontend.onnx.building import missing_operators  # noqa: E402

RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def saved(
    path: Path,
    nodes: Sequence[Any],
    inputs: dict[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray[Any, Any]],
    opset: int = 18,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    return path


def network(tmp_path: Path) -> Path:
    """A convolution, a norm, a pool; a shape that is computed in the graph; a product."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], name="first"),
        helper.make_node("BatchNormalization", ["c", "s", "t", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["flat"], axis=0),
        helper.make_node("Reshape", ["p", "flat"], ["f"]),
        helper.make_node("Gemm", ["f", "a"], ["g"], transB=1),
        helper.make_node("Softmax", ["g"], ["y"]),
    ]
    constants = {
        "w": array(4, 3, 3, 3), "b": array(4), "s": array(4), "t": array(4), "m": array(4),
        "v": np.abs(array(4)) + 0.5, "zero": np.asarray(0), "axes": np.asarray([0]),
        "rest": np.asarray([-1]), "a": array(5, 64),
    }  # fmt: skip
    return saved(tmp_path / "net.onnx", nodes, {"x": ["batch", 3, 8, 8]}, ["y"], constants)


def test_a_network_gives_what_the_reference_gives(tmp_path: Path) -> None:
    path = network(tmp_path)
    x = array(2, 3, 8, 8)
    (expected,) = ReferenceEvaluator(str(path)).run(None, {"x": x})
    loaded = tg.load(f"{path}[batch=2]", store=False)
    np.testing.assert_allclose(loaded(x), expected, rtol=1e-4, atol=1e-5)
    assert loaded.inputs[0].name == "x"
    assert loaded.name == "net[batch=2]"


def test_a_file_is_tuned_like_any_model(tmp_path: Path) -> None:
    path, store = network(tmp_path), tmp_path / "s.db"

    tg.tune(f"{path}[batch=1]", budget_s=600.0, max_trials=12, threads=1, store=store)
    loaded = tg.load(f"{path}[batch=1]", threads=1, store=store)
    assert "hit" in {row.outcome for row in loaded.report()}


def test_dimensions_without_an_extent_are_listed(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"dimensions without an extent: batch; give each one"):
        tg.load(str(network(tmp_path)), store=False)
    with pytest.raises(ModelError, match="has no dimension or input rows to give"):
        tg.load(f"{network(tmp_path)}[batch=1,rows=2]", store=False)
    with pytest.raises(ModelError, match="dimension batch = 'x' is not a positive whole number"):
        model(str(network(tmp_path)), batch="x")  # type: ignore[arg-type]


def test_operators_that_are_not_there_are_all_listed(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Other", ["x"], ["a"]),
        helper.make_node("ImageDecoder", ["a"], ["b"]),
        helper.make_node("Mine", ["b"], ["y"], domain="com.example"),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"x": [2, 2]}, ["y"], {})
    with pytest.raises(
        ModelError,
        match=r"3 operators are not supported: ImageDecoder, Other, com.example.Mine",
    ):
        tg.load(str(path), store=False)


def test_a_shape_that_depends_on_data_names_its_node(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["s"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["w", "s"], ["y"], name="late"),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"x": [2]}, ["y"], {"w": array(4)})
    with pytest.raises(ModelError, match=r"node late \(Reshape\): operand 1 depends on the model"):
        tg.load(str(path), store=False)


def test_what_is_no_model_is_one_line(tmp_path: Path) -> None:
    whole = network(tmp_path).read_bytes()
    rng = np.random.default_rng(1)
    path = tmp_path / "bad.onnx"
    for blob in (b"", b"\x08", b"not a model at all", whole[: len(whole) // 2]):
        path.write_bytes(blob)
        with pytest.raises(ModelError) as caught:
            tg.load(str(path), store=False)
        assert "\n" not in str(caught.value)
    for _ in range(40):
        at = int(rng.integers(0, len(whole)))
        path.write_bytes(whole[:at] + bytes([int(rng.integers(0, 256))]) + whole[at + 1 :])
        try:
            model(str(path), batch=1).build({})
        except UserError:
            continue
    with pytest.raises(ModelError, match="there is no such file"):
        tg.load(str(tmp_path / "none.onnx"))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """As the path that a model's TOML file gives."""
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(ModelError, match="is no regular file"):
        model(str(tmp_path / "pipe.onnx"))


def test_operators_of_any_name_are_a_short_error(tmp_path: Path) -> None:
    nodes = [helper.make_node("x" * 50_000, ["x"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_empty_tensor_value_info("y")],
        [],
    )
    onnx.save(helper.make_model(graph), tmp_path / "long.onnx")
    with pytest.raises(ModelError, match="1 operators are not supported: xxx") as caught:
        model(str(tmp_path / "long.onnx")).build({})
    assert len(str(caught.value)) < 200


def test_a_small_file_does_not_ask_for_much_memory(tmp_path: Path) -> None:
    huge = np.asarray([1 << 20, 1 << 20, 1 << 20])
    constants = {"s": huge, "one": array(1), "cube": array(1, 1, 1)}
    for op, operands in (
        ("ConstantOfShape", ["s"]), ("Expand", ["one", "s"]), ("Tile", ["cube", "s"])
    ):  # fmt: skip
        nodes = [
            helper.make_node(op, operands, ["w"], name="big"),
            helper.make_node("ReduceSum", ["w"], ["t"], keepdims=0),
            helper.make_node("Add", ["x", "t"], ["y"]),
        ]
        path = saved(tmp_path / "m.onnx", nodes, {"x": [2]}, ["y"], constants)
        with pytest.raises(ModelError, match=rf"node big \({op}\): what is known of it takes over"):
            tg.load(str(path), store=False)


def _one(op: str, *operands: str, **attributes: Any) -> list[Any]:
    return [helper.make_node(op, [*operands], ["y"], name="it", **attributes)]


def _summed(*nodes: Any) -> list[Any]:
    """Nodes whose last result is added up, and to ``x``."""
    last = nodes[-1].output[0]
    more = [
        helper.make_node("Cast", [last], ["f"], to=1),
        helper.make_node("ReduceSum", ["f"], ["t"]),
    ]
    return [*nodes, *more, helper.make_node("Add", ["x", "t"], ["y"])]


def _node(op: str, *operands: str, **attributes: Any) -> Any:
    return helper.make_node(op, [*operands], ["w"], name="it", **attributes)


def _doubled(op: str, **attributes: Any) -> list[Any]:
    nodes = [
        helper.make_node(op, [f"a{i}"] * 2, [f"a{i + 1}"], name="it", **attributes)
        for i in range(60)
    ]
    return [*nodes, helper.make_node("Shape", ["a60"], ["s"]), *_one("Expand", "x", "s")]


LARGE = np.asarray([1 << 40, 2, 3])
ENDLESS: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "a window": (_summed(_node("HannWindow", "n")), {"n": np.asarray(1 << 33)}, "over 1 GiB"),
    "a product": (
        _summed(_node("MatMul", "a", "b")),
        {"a": np.ones((99_999, 1), "f4"), "b": np.ones((1, 99_999), "f4")}, "over 1 GiB",
    ),
    "texts": (_doubled("StringConcat"), {"a0": np.asarray(["ab"], object)}, "over 1 GiB"),
    "parts": (_doubled("Concat", axis=0), {"a0": np.ones(3, "f4")}, "over 1 GiB"),
    "a pattern": (
        _summed(_node("RegexFullMatch", "a", pattern="(a+)+b")),
        {"a": np.asarray(["a" * 99], object)}, "may take over 100,000,000 steps",
    ),
    "a pattern of repeats": (
        _summed(_node("RegexFullMatch", "a", pattern="a*a*a*a*a*b")),
        {"a": np.asarray(["a" * 999], object)}, "may take over 100,000,000 steps",
    ),
    "boxes": (
        _summed(_node("NonMaxSuppression", "b", "s", "n")),
        {"b": np.ones((1, 20_000, 4), "f4"), "s": np.ones((1, 1, 20_000), "f4"),
         "n": np.asarray(20_000)}, "may take over 100,000,000 steps",
    ),
    "an image": (
        _one("Resize", "x", "", "s"), {"s": np.asarray([1e9, 1e9], "f4")}, "take over 1 GiB"
    ),
    "outputs": (_one("Expand", "x", "s"), {"s": LARGE}, "no memory for .* outputs of 26,388"),
    "a constant": (
        _one("Multinomial", "x", sample_size=1 << 50, seed=1.0), {},
        "a constant is computed by .* more memory than",
    ),
    "a sequence": (
        [helper.make_node("Expand", ["x", "s"], ["e"]),
         helper.make_node("SplitToSequence", ["e"], ["q"], name="it"),
         *_one("SequenceAt", "q", "n")],
        {"s": LARGE, "n": np.asarray(0)}, "a sequence of 1099511627776 parts; 20000",
    ),
    "steps": (
        [helper.make_node("Expand", ["x", "s"], ["e"]),
         *_one("RNN", "e", "r", "h", hidden_size=1)],
        {"s": LARGE, "r": np.ones((1, 1, 3), "f4"), "h": np.ones((1, 1, 1), "f4")},
        "1099511627776 steps in 1 directions; 4096",
    ),
    "a batch": (
        _one("GatherND", "x", "i", batch_dims=-(1 << 62)), {"i": np.zeros((2, 2), "i8")},
        "batch_dims = -4611686018427387904",
    ),
    "a name": ([helper.make_node("Gather", ["x", "i"], ["y"], axis=9, name="a\0\nb" * 9999)],
               {"i": np.asarray(0)}, r"node a\\x00\\nb.{290,310} \(Gather\): axis 9"),
}  # fmt: skip
"""Small files that ask for much: nodes, constants, and what the error says."""


@pytest.mark.parametrize("what", ENDLESS)
def test_what_has_no_end_is_one_line(tmp_path: Path, what: str) -> None:
    nodes, constants, said = ENDLESS[what]
    path = saved(tmp_path / "m.onnx", nodes, {"x": [2, 3]}, ["y"], constants, opset=20)
    with pytest.raises(UserError, match=said) as caught:
        tg.load(str(path), store=False, threads=1)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("shape", "said"), [([1] * 70, "70 dimensions"), ([1 << 62, 4], "over 2.60 elements")]
)
def test_an_input_of_any_shape_is_one_line(tmp_path: Path, shape: list[int], said: str) -> None:
    path = saved(tmp_path / "m.onnx", _one("Relu", "x"), {"x": shape}, ["y"], {})
    with pytest.raises(UserError, match=said):
        tg.load(str(path), store=False)


def test_a_negative_extent_of_a_constant_is_no_unknown_one(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", _one("Add", "x", "w"), {"x": [2]}, ["y"], {"w": array(2)})
    proto = onnx.load(path)
    proto.graph.initializer[0].dims[0] = -1
    onnx.save(proto, path)
    with pytest.raises(ModelError, match=r"tensor w can not be read: its shape is \[-1\]"):
        tg.load(str(path), store=False)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]], [1, 6], [-1, 2], [[0, 1], [2, 0]]])
def test_sparse_constants_are_those_of_onnx_runtime(tmp_path: Path, indices: list[Any]) -> None:
    """Or, out of range, an error."""
    path = saved(tmp_path / "m.onnx", _one("Add", "x", "w"), {"x": [2, 3]}, ["y"], {})
    proto = onnx.load(path)
    sparse = proto.graph.sparse_initializer.add(dims=[2, 3])
    sparse.values.CopyFrom(numpy_helper.from_array(np.asarray([5, 7], "f4"), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.asarray(indices, "i8"), "w at"))
    onnx.save(proto, path)
    x = np.ones((2, 3), "f4")
    if np.max(indices) > 5 or np.min(indices) < 0 or indices == [[0, 1], [2, 0]]:
        with pytest.raises(ModelError, match=r"sparse tensor w of shape \(2, 3\): ind"):
            tg.load(str(path), store=False)
        return
    made = tg.load(str(path), store=False, threads=1)(x)
    np.testing.assert_array_equal(made, [[1, 6, 1], [1, 1, 8]])


def test_a_constant_may_be_texts(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["a"], value_strings=["ab", "b"]),
        helper.make_node("Constant", [], ["b"], value_string="b"),
        helper.make_node("StringConcat", ["a", "b"], ["c"]),
        helper.make_node("RegexFullMatch", ["c"], ["w"], pattern="a.b*"),
    ]
    path = saved(tmp_path / "m.onnx", _summed(*nodes), {"x": [2]}, ["y"], {}, opset=20)
    made = tg.load(str(path), store=False, threads=1)(np.ones(2, "f4"))
    np.testing.assert_array_equal(made.reshape(-1), [2, 2])


def test_a_damaged_attribute_is_one_line(tmp_path: Path) -> None:
    node = helper.make_node("Elu", ["x"], ["y"], alpha=1.0, name="n")
    node.attribute[0].type = onnx.AttributeProto.STRING
    node.attribute[0].s = b"\xff\xfe"
    path = saved(tmp_path / "m.onnx", [node], {"x": [2]}, ["y"], {})
    with pytest.raises(ModelError, match=r"node n \(Elu\): .* attribute alpha"):
        tg.load(str(path), store=False)


def test_outputs_that_are_constants_run_no_kernel(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["x", "w"], ["y"]),
        helper.make_node("Shape", ["x"], ["extents"]),
        helper.make_node("Transpose", ["w"], ["turned"]),
        helper.make_node("Constant", [], ["three"], value_float=3.0),
    ]
    w, x = array(2, 4), array(2, 4)
    outputs = ["extents", "y", "turned", "three", "w"]
    model = tg.load(
        str(saved(tmp_path / "m.onnx", nodes, {"x": [2, 4]}, outputs, {"w": w})),
        store=False, threads=1,
    )  # fmt: skip
    assert len(model.report()) == 1
    for _ in range(2):
        found = model(x)
        for got, want in zip(found, (np.array([2, 4]), x + w, w.T, np.float32(3), w), strict=True):
            np.testing.assert_array_equal(got, want)
            got[...] = 7


def outside(folder: Path, place: str) -> Path:
    """A model whose constant, of 16 bytes, lies in another file."""
    folder.mkdir(exist_ok=True)
    path = saved(
        folder / "m.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"],
        {"w": array(4)},
    )  # fmt: skip
    proto = onnx.load(path)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", place
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_does_not_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    path = outside(tmp_path / "in", "../secret.bin")
    with pytest.raises(ModelError, match="is not an ONNX file that can be read"):
        tg.load(str(path), store=False)


def test_what_is_read_is_as_large_as_the_model_says(tmp_path: Path) -> None:
    """No file of any size, no pipe, and nothing beyond what protobuf allows is read."""
    path = outside(tmp_path, "w.bin")
    (tmp_path / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    made = tg.load(str(path), store=False)(np.zeros(4, np.float32))
    np.testing.assert_array_equal(made, np.arange(4))
    os.truncate(tmp_path / "w.bin", 1 << 40)
    with pytest.raises(ModelError, match=r"tensor w: .*w.bin has 1,099,511,627,776 bytes for 4 el"):
        tg.load(str(path), store=False)
    (tmp_path / "w.bin").unlink()
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(ModelError, match=r"tensor w: .*w.bin is no regular file"):
        tg.load(str(path), store=False)
    os.truncate(path, 1 << 40)
    with pytest.raises(ModelError, match="is over 2 GiB"):
        tg.load(str(path), store=False)


# ---- ONNX's own suite


@pytest.fixture(scope="module")
def cases() -> dict[str, Any]:
    """Cases whose operators are all there, and draw nothing; ONNX computes every case of its suite
    to list them, which takes seconds.
    """
    from onnx.backend.test.case.node import collect_testcases

    return {
        c.name: c
        for c in collect_testcases(None)
        if c.model.opset_import[0].version >= 7
        and not missing_operators(c.model.graph)
        and not draws(c.name)
    }


def first_of_each(cases: dict[str, Any]) -> list[str]:
    """A case of every operator, the first by name."""
    found: dict[str, str] = {}
    for name in sorted(cases):
        if len(cases[name].model.graph.node) == 1:
            found.setdefault(cases[name].model.graph.node[0].op_type, name)
    return sorted(found.values())


def test_a_case_of_every_operator_passes(cases: dict[str, Any]) -> None:
    names = first_of_each(cases)
    wrong = {name: why for name in names if (why := outcome(cases[name]))}
    assert not wrong
    assert len(names) > 170


@pytest.mark.slow
def test_cases_pass_where_every_operator_is_there(cases: dict[str, Any]) -> None:
    """But a few whose expected values hold rounding of their own."""
    wrong = {name: why for name in cases if (why := outcome(cases[name]))}
    assert len(cases) > 1800
    assert len(wrong) <= 5, wrong
