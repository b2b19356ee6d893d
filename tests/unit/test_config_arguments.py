"""A model's name with a batch and arguments of its builder: ``resnet18[batch=8,image=128]``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunegrad.config import ModelSpec, build_model, resolve_model
from tunegrad.errors import ConfigError, ModelCodeError, ModelError
from tunegrad.frontend import model_of_spec


def test_arguments_take_the_place_of_the_file_s() -> None:
    spec = resolve_model("resnet18[batch=8,image=128]")
    assert (spec.name, spec.batch) == ("resnet18[batch=8,image=128]", 8)
    assert dict(spec.args) == {"image": 128, "classes": 1000}
    (x,) = model_of_spec(spec).inputs
    assert x.shape == (8, 3, 128, 128)


def test_batch_alone_is_also_that_of_the_declared_inputs() -> None:
    spec = resolve_model("mlp[batch=32]")
    assert [i.shape for i in spec.inputs] == [(32, 784)]
    assert model_of_spec(spec).inputs[0].shape == (32, 784)


def test_lists_and_words_are_values() -> None:
    spec = resolve_model("some.module:function[sizes=[784,10],kind=wide]")
    assert spec.builder == "some.module:function"
    assert dict(spec.args) == {"sizes": (784, 10), "kind": "wide"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mlp[batch=0]", "batch = 0 is not a positive whole number"),
        ("mlp[batch]", "'batch' is not of the form NAME=VALUE"),
        ("mlp[]", "'' is not of the form NAME=VALUE"),
        ("mlp[train=sdg]", "train = 'sdg' is unknown; valid: sgd, adam, adamw, lamb, rmsprop"),
        ("mlp[train=sgd,loss=l2]", "loss = 'l2' is unknown; valid: cross_entropy, mse"),
        ("mlp[x={a=1}]", "x = {a=1} is neither a plain value nor a list"),
    ],
)
def test_what_is_no_argument_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_model(text)
    assert message in str(caught.value)


def test_file_whose_input_is_not_the_model_s_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(
        '[model]\nname = "m"\nbuilder = "tunegrad.models.mlp:mlp"\n'
        "[model.args]\nsizes = [8, 4]\n[input]\nshape = [1, 2, 3]\n",
        encoding="utf-8",
    )
    with pytest.raises(ModelError) as caught:
        model_of_spec(resolve_model(str(path)))
    assert "[input] says f32[1, 2, 3], and builder tunegrad.models.mlp:mlp makes" in str(
        caught.value
    )
    assert "f32[1, 8]" in str(caught.value)


@pytest.fixture
def nets(tmp_path: Path) -> list[str]:
    source = (
        "def bad():\n    return inner()\ndef inner():\n    return [][1]\ndef needs(n):\n    ...\n"
        "def leaves():\n    raise SystemExit(5)\n"
    )
    (tmp_path / "nets_that_raise.py").write_text(source, encoding="utf-8")
    (tmp_path / "net_that_imports.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    return [str(tmp_path)]


def test_builder_that_raises_is_one_line_and_its_own_frames(nets: list[str]) -> None:
    with pytest.raises(ModelCodeError) as caught:
        build_model(ModelSpec("m", "nets_that_raise:bad"), nets)
    assert str(caught.value).endswith("it raised IndexError: list index out of range")
    lines = [line.strip() for line in caught.value.frames.splitlines()]
    assert [line.rpartition(" ")[2] for line in lines if line.startswith("File")] == [
        "bad",
        "inner",
    ]
    assert isinstance(caught.value.__cause__, IndexError)


def test_builder_that_exits_is_an_error(nets: list[str]) -> None:
    with pytest.raises(ModelCodeError, match="it raised SystemExit: 5"):
        build_model(ModelSpec("m", "nets_that_raise:leaves"), nets)


def test_module_that_imports_what_is_not_there_is_told_with_its_line(nets: list[str]) -> None:
    with pytest.raises(ModelCodeError, match="No module named 'nothing_of_this_name'") as caught:
        build_model(ModelSpec("m", "net_that_imports:f"), nets)
    assert "line 1, in <module>" in caught.value.frames
    assert "importlib" not in caught.value.frames


def test_builder_that_lacks_an_argument_says_how_to_give_it(nets: list[str]) -> None:
    with pytest.raises(ModelError, match=r"needs n; say it in \[model.args\].* --set NAME=VALUE"):
        build_model(ModelSpec("m", "nets_that_raise:needs"), nets)
