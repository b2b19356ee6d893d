"""Modules of PyTorch and ONNX files are quantised as other models are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tunegrad as tg


def _images(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, 3, 12, 12)).astype(np.float32) for _ in range(count)]


def test_a_module_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1, bias=False), torch.nn.BatchNorm2d(16),
        torch.nn.ReLU6(), torch.nn.Conv2d(16, 16, 3, groups=16), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(1600, 4),
    ).eval()  # fmt: skip
    images = [torch.from_numpy(x) for x in _images(6)]
    made = tg.quantize((module, [images[0]]), images, store=False, threads=1)
    assert made.report.products == 3
    with torch.no_grad():
        right = np.concatenate([module(x).numpy() for x in images])
    f = tg.load(made.model, store=False, threads=1)
    found = np.concatenate([f(x.numpy()) for x in images])
    assert np.sqrt(np.square(found - right).mean() / np.square(right).mean()) < 0.05


def test_an_onnx_file_beside_its_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    rng = np.random.default_rng(1)
    filters = (rng.standard_normal((8, 3, 3, 3)) / 5).astype(np.float32)
    last = (rng.standard_normal((4, 8)) / 3).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["image", "filters"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[12, 12]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "last"], ["scores"], transB=1),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("image", kind, ["batch", 3, 12, 12])],
        [helper.make_tensor_value_info("scores", kind, ["batch", 4])],
        [onnx.numpy_helper.from_array(a, n) for n, a in (("filters", filters), ("last", last))],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", image=np.concatenate(_images(8)))
    name = f"{tmp_path}/net.onnx[batch=2]"
    made = tg.quantize(name, tmp_path / "data.npz", store=False, threads=1)
    assert [made.report.batches, made.report.held_out] == [3, 1]
    assert made.report.deviation is not None
    assert made.report.deviation.rms < 0.05
    file = tmp_path / "net_batch_2.int8.json"
    made.save(file, name)
    assert json.loads(file.read_text())["model"] == "net.onnx[batch=2]"  # as seen from there
    x = np.concatenate(_images(2))
    right = tg.load(made.model, store=False, threads=1)(x)
    np.testing.assert_array_equal(tg.load(str(file), store=False, threads=1)(x), right)
    monkeypatch.setenv("TUNEGRAD_STORE", str(tmp_path / "t.db"))
    np.testing.assert_array_equal(tg.load(name, dtype="int8", threads=1)(x), right)
