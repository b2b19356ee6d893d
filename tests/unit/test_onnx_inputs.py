"""Inputs of ONNX files: every dimension can be given an extent, and an input a shape or a value."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import TensorProto, helper  # noqa: E402

import tunegrad as tg  # noqa: E402
from tunegrad.cli.options import with_arguments  # noqa: E402
from tunegrad.config import resolve_model  # noqa: E402
from tunegrad.config.builders import build_model  # noqa: E402
from tunegrad.errors import ModelError, UserError  # noqa: E402

NAMES = [
    (None, "x.0"), ("", "x.0"), ("?", "x.0"), ("batch-size", "batch-size"), ("unk 1", "unk 1"),
    ("p2o.DynamicDimension.0", "p2o.DynamicDimension.0"), ("past + 1", "past + 1"),
    ("n\n", "x.0"), ("a,b", '"a,b"'), ("n=1", "'n=1'"), ("d[0]", '"d[0]"'), ("batch-size", "x.0"),
]  # fmt: skip


def relu(path: Path, shape: Sequence[Any] | None, kind: int = TensorProto.FLOAT) -> Path:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_empty_tensor_value_info("y")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def shape_of(text: str) -> tuple[int, ...]:
    (given,) = build_model(resolve_model(text)).inputs
    return tuple(given.shape)


@pytest.mark.parametrize(("dim", "key"), NAMES)
def test_a_dimension_of_any_name_has_an_extent_by_every_door(
    tmp_path: Path, dim: str | None, key: str
) -> None:
    path = relu(tmp_path / "m.onnx", [dim, 3])
    assert shape_of(f"{path}[{key}=2]") == (2, 3)
    assert shape_of(with_arguments(str(path), None, (f"{key}=2",))) == (2, 3)
    toml = tmp_path / "m.toml"
    plain = key.strip("\"'")
    toml.write_text(
        '[model]\nname = "m"\nbuilder = "tunegrad.frontend.onnx:model"\n[model.args]\n'
        f"path = '{path}'\n\"{plain}\" = 2\n"
    )
    assert shape_of(str(toml)) == (2, 3)


@pytest.mark.parametrize("dim", [*(dim for dim, _ in NAMES[:-1]), 'a"b', "a'b", "$HOME", "*"])
def test_the_error_about_a_dimension_says_a_form_that_is_taken_from_a_shell_too(
    tmp_path: Path, dim: str | None
) -> None:
    path = relu(tmp_path / "m.onnx", [dim, 3])
    with pytest.raises(ModelError, match="dimensions without an extent") as caught:
        shape_of(str(path))
    advised = str(caught.value).rpartition("or m.onnx[")[2]
    assert shape_of(f"{path}[{advised}") == (8, 3)
    (pasted,) = shlex.split(f"{path}[{advised}")
    assert shape_of(pasted) == (8, 3)
    assert not set("$*") & set(advised)


def test_dimensions_named_by_a_question_mark_are_several(tmp_path: Path) -> None:
    path = relu(tmp_path / "m.onnx", [1, "?", "?"])
    assert shape_of(f"{path}[x.1=4,x.2=5]") == (1, 4, 5)
    with pytest.raises(ModelError, match=r"without an extent: x.1, x.2"):
        shape_of(str(path))


def test_an_input_has_a_whole_shape(tmp_path: Path) -> None:
    assert shape_of(f"{relu(tmp_path / 'm.onnx', ['n', 3, '?'])}[x=2x3x4]") == (2, 3, 4)
    assert shape_of(f"{relu(tmp_path / 'm.onnx', None)}[x=2x4]") == (2, 4)
    with pytest.raises(ModelError, match="input x has no shape in the file; give it one"):
        shape_of(str(relu(tmp_path / "m.onnx", None)))
    for said, match in (("2x3", "has 3 dimensions, and not the 2"), ("2x4x4", "x.1 is 3 in")):
        with pytest.raises(ModelError, match=match):
            shape_of(f"{relu(tmp_path / 'm.onnx', ['n', 3, '?'])}[x={said}]")


def scaled(path: Path, shape: Sequence[Any], kind: int) -> Path:
    """``y = x * rate``, in the rate's type."""
    graph = helper.make_graph(
        [
            helper.make_node("CastLike", ["x", "rate"], ["like"]),
            helper.make_node("Mul", ["like", "rate"], ["y"]),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("rate", kind, shape),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.parametrize(
    ("shape", "kind", "said", "value"),
    [
        ([], TensorProto.INT64, "16000", 16000),
        ([1], TensorProto.INT64, "16000", 16000),
        (["n"], TensorProto.INT64, "[3, 4]", [3, 4]),
        ([2], TensorProto.FLOAT, "0.5", 0.5),
    ],
)
def test_an_input_with_a_value_is_a_constant(
    tmp_path: Path, shape: Sequence[Any], kind: int, said: str, value: Any
) -> None:
    path = scaled(tmp_path / "m.onnx", shape, kind)
    loaded = tg.load(f"{path}[rate={said}]", store=False)
    assert [i.name for i in loaded.inputs] == ["x"]
    np.testing.assert_array_equal(loaded(np.array([1, 2], "f4")), np.array([1, 2]) * value)


@pytest.mark.parametrize("said", ["0.5", "[1,2,3]", "true", "2x2", "9223372036854775808", "'a'"])
def test_a_value_that_does_not_fit_an_input_is_one_line(tmp_path: Path, said: str) -> None:
    path = scaled(tmp_path / "m.onnx", [], TensorProto.INT64)
    with pytest.raises(UserError, match=r"rate|out of the range") as caught:
        tg.load(f"{path}[rate={said}]", store=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("value", "given"), [("3", 3), ("[3, 4]", (3, 4))])
def test_a_value_of_an_input_without_a_shape_has_its_own(
    tmp_path: Path, value: str, given: Any
) -> None:
    path = tmp_path / "m.onnx"
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "by"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("by", TensorProto.INT64, None),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    loaded = tg.load(f"{path}[by={value}]", store=False, threads=1)
    np.testing.assert_array_equal(loaded(np.array([1, 2])), np.array([1, 2]) + given)


def test_a_name_that_the_file_does_not_have_lists_those_it_has(tmp_path: Path) -> None:
    path = relu(tmp_path / "m.onnx", ["n", 3])
    with pytest.raises(ModelError, match=r"has no dimension or input m .*; inputs: x; dimensions:"):
        shape_of(f"{path}[n=1,m=2]")


def test_a_folder_may_have_brackets_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "a[1]"
    folder.mkdir()
    assert shape_of(f"{relu(folder / 'm.onnx', ['n', 3])}[n=2]") == (2, 3)
    assert shape_of(str(relu(folder / "m.onnx", [2, 3]))) == (2, 3)


def test_a_name_that_can_not_be_printed_is_an_error_of_one_line(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x\n"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x\n", TensorProto.FLOAT, [2, 3])],
        [helper.make_empty_tensor_value_info("y")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="has a name that can not be printed") as caught:
        tg.load(tmp_path / "m.onnx", store=False)
    assert "\n" not in str(caught.value)
