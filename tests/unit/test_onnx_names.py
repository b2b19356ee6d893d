"""Names of ONNX nodes and initialisers reach kernels, tables and errors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import tunegrad as tg  # noqa: E402
from tunegrad.cli.app import run  # noqa: E402
from tunegrad.errors import ModelError  # noqa: E402

SEEDS = count()
"""Each array is another one: nodes of one file over equal weights are one, with one name."""


def saved(path: Path, nodes: Sequence[Any], constants: dict[str, Any]) -> str:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return str(path)


def floats(*shape: int) -> Any:
    return np.random.default_rng(next(SEEDS)).standard_normal(shape).astype(np.float32)


def two_layers(tmp_path: Path, first: str = "/body/fc/Gemm", second: str = "/head/Gemm") -> str:
    nodes = [
        helper.make_node("Gemm", ["x", "body.fc.weight", "body.fc.bias"], ["a"], name=first),
        helper.make_node("Softmax", ["a"], ["s"], name="/softmax"),
        helper.make_node("Gemm", ["s", "head.weight", "head.bias"], ["y"], name=second),
    ]
    constants = {
        "body.fc.weight": floats(8, 6), "body.fc.bias": floats(6),
        "head.weight": floats(6, 5), "head.bias": floats(5),
    }  # fmt: skip
    return saved(tmp_path / "two.onnx", nodes, constants)


LAYERS = {("/body/fc/Gemm",), ("after /body/fc/Gemm",), ("/head/Gemm",)}


def test_report_and_explain_name_the_nodes(tmp_path: Path) -> None:
    path = two_layers(tmp_path)
    loaded = tg.load(path, store=False, threads=1)
    assert {row.layers for row in loaded.report()} == LAYERS
    report = tg.explain(path, store=False, threads=1, budget_s=0.01)
    assert {row.layers for row in report.rows} == LAYERS
    assert "/body/fc/Gemm.weight" in report.rows[0].operations


def test_commands_name_the_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, options = two_layers(tmp_path), ["--threads", "1", "--store", str(tmp_path / "s.db")]
    assert run(["tune", path, "--budget", "600s", "--max-trials", "6", *options]) == 0
    assert "/body/fc/Gemm" in capsys.readouterr().out
    assert run(["explain", path, "--budget", "0.01", *options]) == 0
    assert "/head/Gemm" in capsys.readouterr().out


def test_nodes_without_names_are_called_as_their_initialisers_modules(tmp_path: Path) -> None:
    loaded = tg.load(two_layers(tmp_path, "", ""), store=False, threads=1)
    assert {row.layers for row in loaded.report()} == {
        ("body.fc",), ("after body.fc",), ("head",)
    }  # fmt: skip


def test_nodes_without_any_names_are_called_as_what_they_make(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Softmax", ["a"], ["y"]),
    ]
    loaded = tg.load(saved(tmp_path / "m.onnx", nodes, {"w": floats(8, 6)}), store=False, threads=1)
    assert {row.layers for row in loaded.report()} == {("a",), ("after a",)}


def test_equal_weights_of_two_files_have_names_of_their_own(tmp_path: Path) -> None:
    """Plain ones, and ones that are folded when the file is loaded."""
    w = floats(8, 6)
    live = []
    for name in ("first", "second"):
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["a"], name=name),
            helper.make_node("Neg", ["w"], ["v"]),
            helper.make_node("MatMul", ["x", "v"], ["b"], name=f"{name}_folded"),
            helper.make_node("ReduceMax", ["a"], ["m"]),
            helper.make_node("Mul", ["b", "m"], ["y"]),
        ]
        path = saved(tmp_path / f"{name}.onnx", nodes, {"w": w})
        live.append(tg.load(path, store=False, threads=1))
    first, second = ({layer for row in f.report() for layer in row.layers} for f in live)
    assert {n.replace("first", "second") for n in first} == second
    assert first.isdisjoint(second)


def test_nodes_that_are_one_kernel_are_named_together(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="/body/MatMul"),
        helper.make_node("Add", ["a", "b"], ["y"], name="/body/Add"),
    ]
    constants = {"w": floats(8, 6), "b": floats(6)}
    loaded = tg.load(saved(tmp_path / "m.onnx", nodes, constants), store=False, threads=1)
    assert [row.layers for row in loaded.report()] == [("/body/MatMul+Add",)]


def test_an_error_in_a_node_names_it(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="/body/MatMul"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"w": floats(7, 6), "b": floats(6)})
    with pytest.raises(ModelError, match=r"model m: node /body/MatMul \(MatMul\): .*\(4, 8\)"):
        tg.load(path, store=False)
    path = saved(tmp_path / "m.onnx", nodes, {"w": floats(8, 6), "b": floats(5)})
    with pytest.raises(ModelError, match=r"model m: node y \(Add\): .*\(4, 6\).*\(5,\)"):
        tg.load(path, store=False)


def test_constants_that_several_nodes_read_are_held_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="one"),
        helper.make_node("MatMul", ["a", "w"], ["y"], name="two"),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"w": floats(8, 8)})
    loaded = tg.load(path, store=False, threads=1)
    assert loaded.constant_bytes == 8 * 8 * 4


def test_a_number_names_no_kernel(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "half"], ["a"], name="scale"),
        helper.make_node("MatMul", ["a", "w"], ["b"], name="product"),
        helper.make_node("ReduceSum", ["b"], ["c"], name="total"),
        helper.make_node("Mul", ["c", "half"], ["y"], name="again"),
    ]
    constants = {"half": np.asarray(0.5, np.float32), "w": floats(8, 6)}
    loaded = tg.load(saved(tmp_path / "m.onnx", nodes, constants), store=False, threads=1)
    assert {row.layers for row in loaded.report()} == {("product",), ("after product",)}
