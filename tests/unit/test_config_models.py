"""What MODEL may be: a name, a file, or a function; and what is said of anything else."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from tunegrad.config import (
    DtypeName,
    InputSpec,
    ModelSpec,
    build_model,
    config_names,
    import_builder,
    named_models,
    resolve_model,
)
from tunegrad.errors import ConfigError, ModelError
from tunegrad.frontend.model import model_of_spec
from tunegrad.ir.dtypes import DTYPES

GOOD = """
[model]
name = "toy"
builder = "some.place:make"
batch = 4
[model.args]
width = 16
scale = 0.5
sizes = [3, 4]
[input]
shape = ["batch", 3, 8]
dtype = "f64"
[tune]
budget = "10s"
threads = 1
"""


@pytest.fixture(autouse=True)
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEGRAD_BUILDERS", "some")


def write(tmp_path: Path, text: str, name: str = "toy.toml") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_names_are_those_of_the_issue() -> None:
    assert config_names() == ("encoder", "mlp", "resnet", "resnet18", "resnet50")


@pytest.mark.parametrize("name", ["encoder", "mlp", "resnet18", "resnet50"])
def test_named_model_goes_by_its_name(name: str) -> None:
    assert resolve_model(name).name == name


@pytest.mark.parametrize("name", config_names())
def test_arguments_of_a_named_model_are_taken_as_they_are_listed(name: str) -> None:
    (model,) = (m for m in named_models() if m.name == name)
    assert resolve_model(f"{name}[{','.join(model.arguments)}]").args == resolve_model(name).args


def test_resnet_is_resnet50() -> None:
    assert resolve_model("resnet") == resolve_model("resnet50")


def test_named_model_declares_its_input() -> None:
    assert resolve_model("resnet18").inputs == (InputSpec((1, 3, 224, 224), "f32"),)


def test_name_works_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_model("mlp").builder == "tunegrad.models.mlp:mlp"


def test_file_is_read_in_full(tmp_path: Path) -> None:
    spec = resolve_model(write(tmp_path, GOOD))
    assert (spec.name, spec.builder, spec.batch) == ("toy", "some.place:make", 4)
    assert spec.args == (("scale", 0.5), ("sizes", (3, 4)), ("width", 16))
    assert spec.inputs == (InputSpec((4, 3, 8), "f64"),)
    assert (spec.tune.budget, spec.tune.threads, spec.tune.searcher) == ("10s", 1, None)


def test_file_may_declare_several_inputs(tmp_path: Path) -> None:
    inputs = '[[input]]\nshape=[2]\n[[input]]\nshape=[]\ndtype="i64"\n'
    text = f'[model]\nname="m"\nbuilder="some:b"\n{inputs}'
    assert resolve_model(write(tmp_path, text)).inputs == (InputSpec((2,)), InputSpec((), "i64"))


def test_function_is_taken_as_it_stands() -> None:
    spec = resolve_model("my_package.nets:tiny")
    assert (spec.name, spec.builder, spec.inputs) == (
        "my_package.nets:tiny",
        "my_package.nets:tiny",
        (),
    )


def test_unknown_name_lists_the_valid_ones_and_the_nearest() -> None:
    with pytest.raises(ModelError) as caught:
        resolve_model("resnt18")
    assert str(caught.value) == (
        "model 'resnt18' is unknown, did you mean 'resnet18'?; valid: encoder, mlp, resnet, "
        "resnet18, resnet50, "
        "a path to a .toml or .onnx file, or package.module:function"
    )


@pytest.mark.parametrize(
    "text",
    [
        "nowhere.toml",
        "./no/such/file",
        "../x.toml",
        f"{'n' * 5000}.onnx",
        "~nobody here/x.toml",
        "a\0.toml",
        "a\udc80.onnx",
    ],
)
def test_missing_file_is_a_model_error(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="there is no such file"):
        resolve_model(text)


@pytest.mark.parametrize("text", ["a:b:c", ":f", "m:", "a b:c", "a.:f", "1a:f"])
def test_malformed_function_is_a_model_error(text: str) -> None:
    with pytest.raises(ModelError, match=r"is not of the form package\.module:function"):
        resolve_model(text)


BAD = {
    "unknown key 'bugdet', did you mean 'budget'?; valid: budget, searcher, threads, "
    "seed, device": (GOOD + "bugdet = 1\n"),
    "unknown key 'inptu', did you mean 'input'?; valid: model, input, tune": GOOD + "[inptu]\n",
    "model: unknown key 'bacth', did you mean 'batch'?": GOOD.replace("batch = 4", "bacth = 4"),
    "tune.threads = 'two': Expected `int | null`, got `str`": GOOD.replace(
        "threads = 1", 'threads = "two"'
    ),
    "tune.searcher = 'bream': Invalid enum value": GOOD + 'searcher = "bream"\n',
    "input.dtype = 'f8': Invalid enum value": GOOD.replace('"f64"', '"f8"'),
    "input.shape is missing": GOOD.replace('shape = ["batch", 3, 8]', ""),
    "an extent is negative": GOOD.replace("3, 8", "3, -8"),
    "model.batch = 0 is not a positive whole number": GOOD.replace("batch = 4", "batch = 0"),
    "model.builder = 'some.place' is not of the form": GOOD.replace(
        "some.place:make", "some.place"
    ),
    "model.name is missing": GOOD.replace('name = "toy"', ""),
    "model.builder is missing": GOOD.replace('builder = "some.place:make"', ""),
    "the table [model] is missing": "[tune]\nseed = 1\n",
    "tune = 3 is not a table": GOOD.split("[tune]", maxsplit=1)[0].replace(
        "[model]\n", "tune = 3\n[model]\n", 1
    ),
    "is not TOML": "[model\n",
    "is not TOML: its brackets are nested too deeply": "a = " + "[" * 100_000,
    "is not TOML: a key has over 100 parts": f"a{'.a' * 300_000} = 1\n",
    "is over 1,048,576 bytes": "#" * (1 << 20) + "\n",
    "model.builder = 'os:system' is code outside of tunegrad.models, some": GOOD.replace(
        "some.place:make", "os:system"
    ),
    "model.builder = 'something:make' is code outside of": GOOD.replace(
        "some.place:make", "something:make"
    ),
    "model.alias = 'other' stands alone": '[model]\nalias = "other"\nbatch = 2\n',
    "model.alias = 'other' must name a model file beside it": '[model]\nalias = "other"\n',
    "model.alias = '../other' must name a model file": '[model]\nalias = "../other"\n',
    "model.alias = 'ooooo": f'[model]\nalias = "{"o" * 5000}"\n',
    "is not TOML: Exceeds the limit": f"{GOOD}budget = {'9' * 5000}\n",
}


@pytest.mark.parametrize("message", BAD)
def test_bad_file_is_a_config_error_that_names_the_file_and_the_rule(
    message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, BAD[message])
    with pytest.raises(ConfigError) as caught:
        resolve_model(path)
    assert message in str(caught.value)
    assert path in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("value", ["[" * 20_000, "9" * 5000], ids=["nested", "digits"])
def test_an_argument_that_python_can_not_read_is_one_short_error(value: str) -> None:
    with pytest.raises(ConfigError, match="is too long") as caught:
        resolve_model(f"mlp[hidden={value}]")
    assert len(str(caught.value)) < 300


def test_alias_of_an_alias_is_refused(tmp_path: Path) -> None:
    write(tmp_path, '[model]\nalias = "first"\n', "second.toml")
    path = write(tmp_path, '[model]\nalias = "second"\n', "first.toml")
    with pytest.raises(ConfigError, match="not an alias"):
        resolve_model(path)


def test_file_that_is_not_text_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ConfigError, match="is not TOML"):
        resolve_model(str(path))


def test_a_model_is_built_from_a_folder_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert model_of_spec(resolve_model("mlp")).name == "mlp"


def test_text_that_a_builder_prints_goes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talkative_nets.py").write_text(
        "print('imported')\ndef tiny():\n    print('built')\n", encoding="utf-8"
    )
    build_model(ModelSpec("m", "talkative_nets:tiny"), [str(tmp_path)])
    assert capsys.readouterr() == ("", "imported\nbuilt\n")


def test_builders_that_overlap_in_two_threads_leave_stdout_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, ending = threading.Event(), threading.Event()
    one, two = (
        threading.Thread(target=build_model, args=(ModelSpec("m", f"overlapping_nets:{name}"),))
        for name in ("first", "second")
    )

    def first() -> None:
        begun.set()
        ending.wait(60)

    def second() -> None:
        ending.set()
        one.join(60)

    monkeypatch.setitem(
        sys.modules, "overlapping_nets", SimpleNamespace(first=first, second=second)
    )
    stdout = sys.stdout
    one.start()
    assert begun.wait(60)
    two.start()
    two.join(60)
    assert sys.stdout is stdout


def test_dtype_names_are_those_of_the_forms() -> None:
    assert sorted(get_args(DtypeName)) == sorted(DTYPES)


def test_builder_is_imported_from_the_search_path(tmp_path: Path) -> None:
    (tmp_path / "nets_for_this_test.py").write_text(
        "def tiny():\n    return 'built'\n", encoding="utf-8"
    )
    before = list(sys.path)
    builder = import_builder(ModelSpec("m", "nets_for_this_test:tiny"), [str(tmp_path)])
    assert builder() == "built"
    assert sys.path == before


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        ("no_such_module_here:f", "no module named no_such_module_here"),
        ("json:no_such_function", "json has no function no_such_function"),
        ("math:pi", "math has no function pi"),
        ("json:lods", r"json has no function lods, did you mean 'loads'\?"),
    ],
)
def test_builder_that_is_not_there_is_named(builder: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        import_builder(ModelSpec("m", builder))


def test_builder_whose_module_raises_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "broken_for_this_test.py").write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(
        ModelError,
        match="importing broken_for_this_test raised ZeroDivisionError: division by zero",
    ):
        import_builder(ModelSpec("m", "broken_for_this_test:f"), [str(tmp_path)])


@pytest.fixture
def nets(tmp_path: Path) -> list[str]:
    source = (
        "def batched(batch=1, width=8):\n    return batch, width\ndef plain():\n    "
        "return 'plain'\n"
    )
    (tmp_path / "more_nets_for_this_test.py").write_text(source, encoding="utf-8")
    return [str(tmp_path)]


def test_builder_is_called_with_batch_and_arguments(nets: list[str]) -> None:
    spec = ModelSpec("m", "more_nets_for_this_test:batched", batch=3, args=(("width", 5),))
    assert build_model(spec, nets) == (3, 5)


def test_builder_need_not_take_a_batch(nets: list[str]) -> None:
    assert build_model(ModelSpec("m", "more_nets_for_this_test:plain"), nets) == "plain"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            ModelSpec("m", "more_nets_for_this_test:batched", args=(("widht", 5),)),
            "takes no argument 'widht', did you mean 'width'?; valid: batch, width",
        ),
        (
            ModelSpec("m", "more_nets_for_this_test:plain", batch=2),
            "takes no argument 'batch'; valid: (none)",
        ),
    ],
)
def test_argument_that_the_builder_does_not_take_is_refused(
    spec: ModelSpec, message: str, nets: list[str]
) -> None:
    with pytest.raises(ModelError) as caught:
        build_model(spec, nets)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["encoder", "mlp", "resnet18", "resnet50"])
def test_named_model_takes_the_input_that_its_file_declares(name: str) -> None:
    spec = resolve_model(name)
    built = build_model(spec)
    assert [(i.shape, str(i.dtype)) for i in built.inputs] == [
        (i.shape, i.dtype) for i in spec.inputs
    ]
