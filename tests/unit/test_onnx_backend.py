"""The backend class: programs by shapes, inputs that become constants, devices, and the suite."""

from __future__ import annotations

import re
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import ModelProto, TensorProto, helper, parser  # noqa: E402

from tunegrad.errors import ModelError  # noqa: E402
from tunegrad.frontend.onnx.backend import TunegradBackend  # noqa: E402

OPTIONS = {"threads": 1, "store": False}
PAGE = (Path(__file__).parents[2] / "docs" / "ONNX.md").read_text(encoding="utf-8")


def parsed(text: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]>\n{text}')


def floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


RELU = "m (float[n] x) => (float[n] y) { y = Relu (x) }"
EXPAND = "m (float[1] x, int64[r] shape) => (float y) { y = Expand (x, shape) }"


def test_a_prepared_model_runs_for_any_shape() -> None:
    rep = TunegradBackend.prepare(parsed(RELU), **OPTIONS)
    for n in (3, 5, 3):
        x = floats(n)
        np.testing.assert_array_equal(rep.run([x])[0], np.maximum(x, 0))
        np.testing.assert_array_equal(rep.run({"x": x})[0], np.maximum(x, 0))
    assert len(rep._programs) == 2
    assert rep.constants == frozenset()
    assert rep.kernels == 1


def test_inputs_that_shapes_depend_on_become_constants() -> None:
    rep = TunegradBackend.prepare(parsed(EXPAND), **OPTIONS)
    x = floats(1)
    for shape in ([2, 3], [4, 1], [2, 3]):
        (y,) = rep.run([x, np.asarray(shape)])
        np.testing.assert_array_equal(y, np.broadcast_to(x, shape))
    assert rep.constants == {"shape"}
    assert len(rep._programs) == 2


def test_programs_of_a_model_are_bounded() -> None:
    rep = TunegradBackend.prepare(parsed(RELU), **OPTIONS)
    for n in range(1, 20):
        rep.run([floats(n)])
    assert len(rep._programs) == 16


def test_bf16_comes_and_goes_as_onnx_has_it() -> None:
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16))
    x = floats(4).astype(kind)
    node = helper.make_node("Neg", ["x"], ["y"])
    (y,) = TunegradBackend.run_node(node, [x], **OPTIONS)
    assert y.dtype == kind
    np.testing.assert_array_equal(y.astype(np.float32), -x.astype(np.float32))


def test_a_node_of_an_old_opset_runs_as_it_was() -> None:
    x = floats(3, 4, 5)
    node = helper.make_node("Softmax", ["x"], ["y"])
    for opset, axes in ((11, (1, 2)), (13, (2,))):
        e = np.exp(x - x.max(axes, keepdims=True))
        (y,) = TunegradBackend.run_node(node, [x], opset_version=opset, **OPTIONS)
        np.testing.assert_allclose(y, e / e.sum(axes, keepdims=True), rtol=1e-5)


def test_wrong_inputs_are_one_error() -> None:
    rep = TunegradBackend.prepare(parsed(EXPAND), **OPTIONS)
    with pytest.raises(ModelError, match="model m takes the inputs x, shape; 1 are given"):
        rep.run([floats(1)])
    with pytest.raises(ModelError, match="model m takes the inputs x, shape; 3 are given"):
        rep.run([floats(1)] * 3)
    with pytest.raises(ModelError, match="node Relu takes 1 inputs, not 2"):
        TunegradBackend.run_node(helper.make_node("Relu", ["x"], ["y"]), [1.0, 2.0])


def test_a_model_is_checked_when_it_is_prepared() -> None:
    lacking = parsed("m (float[2] x) => (float[2] y) { y = ImageDecoder (x) }")
    lacking.opset_import[0].version = 20
    with pytest.raises(ModelError, match="1 operators are not supported: ImageDecoder"):
        TunegradBackend.prepare(lacking)
    assert not TunegradBackend.is_compatible(lacking)
    assert TunegradBackend.is_compatible(parsed(RELU))
    broken = parsed(RELU)
    broken.graph.node[0].input[0] = "nobody"
    with pytest.raises(ModelError, match=r"model m: .*nobody"):
        TunegradBackend.prepare(broken)


def test_nodes_without_a_seed_draw_anew_in_each_run() -> None:
    text = "m (float[9] x) => (float[9] y) { y = RandomUniformLike (x) }"
    rep = TunegradBackend.prepare(parsed(text), **OPTIONS)
    assert (rep.run([floats(9)])[0] != rep.run([floats(9)])[0]).all()


def test_devices_are_named_as_onnx_names_them() -> None:
    assert TunegradBackend.supports_device("CPU")
    assert TunegradBackend.supports_device("CPU:0")
    assert not TunegradBackend.supports_device("TPU")


def test_the_suite_of_the_page_runs() -> None:
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(text, "ONNX.md", "exec"), names)  # noqa: S102 - our own page
    suite = unittest.TestSuite()
    for case in (v for v in names.values() if isinstance(v, type)):
        if issubclass(case, unittest.TestCase):
            suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    found = unittest.TestResult()
    suite.run(found)
    assert found.wasSuccessful(), (found.errors + found.failures)[:1]
    assert found.testsRun - len(found.skipped) >= 3
