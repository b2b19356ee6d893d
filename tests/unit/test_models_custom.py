"""A user's own model: package.module:function, giving a Model or a function with example inputs."""

import sys
import types

import numpy as np
import pytest
from tensor_values import nodes, numbers, values

import tunegrad as tg
from tunegrad.errors import ModelError
from tunegrad.frontend import InputSpec, Model, Tensor, as_model, find_model, nn
from tunegrad.ir.graph import GraphOp

W = numbers(3, 2)


class Tiny(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(3, 2)

    def __call__(self, x, scale):
        return self.fc(x).relu(), self.fc(x) * scale


def tiny():
    return Model.of("tiny", Tiny, (InputSpec("x", (1, 3)), InputSpec("scale", (2,))))


@pytest.fixture
def module():
    made = types.ModuleType("users_models")
    made.tiny = tiny
    made.sized = lambda rows=1: (
        lambda a, b: a @ b,
        [np.zeros((rows, 3), np.float32), np.zeros((3, 2), np.float32)],
    )
    made.number = 3
    made.wrong = lambda: [1, 2]
    sys.modules["users_models"] = made
    yield made
    del sys.modules["users_models"]


def test_module_with_two_inputs_and_outputs_builds():
    model = tiny()
    weights = model.weights(seed=1)
    x, s = numbers(1, 3), numbers(2)
    first, second = values(model.build(weights), {"x": x, "scale": s})
    y = x @ weights["fc.weight"].T + weights["fc.bias"]
    np.testing.assert_allclose(first, np.maximum(y, 0), rtol=1e-6)
    np.testing.assert_allclose(second, y * s, rtol=1e-6)


def test_function_is_a_model_with_inputs_named_by_its_parameters():
    model = Model.of_function("f", lambda a, b: a @ b, [np.zeros((4, 3), np.float32), W])
    assert model.inputs == (InputSpec("a", (4, 3)), InputSpec("b", (3, 2)))
    x = numbers(4, 3)
    (y,) = values(model.build({}), {"a": x, "b": W})
    np.testing.assert_allclose(y, x @ W, rtol=1e-5)


def test_function_of_any_number_of_tensors_numbers_its_inputs():
    model = Model.of_function("f", lambda *xs: sum(xs[1:], xs[0]), [np.zeros(2), np.zeros(2)])
    assert [i.name for i in model.inputs] == ["x0", "x1"]


def test_arrays_a_function_brings_along_become_constants():
    w = Tensor(W)
    (out,) = Model.of_function("f", lambda a: a @ w, [np.zeros((1, 3), np.float32)]).build({})
    assert [n.arg for n in nodes(out, GraphOp.INPUT)] == ["a"]
    (kept,) = nodes(out, GraphOp.CONST)
    np.testing.assert_array_equal(kept.arg.array, W)


def test_model_is_found_by_its_reference(module):
    assert find_model("users_models:tiny").name == "tiny"
    model = find_model("users_models:sized", {"rows": 5})
    assert model.inputs[0].shape == (5, 3)
    assert find_model("tunegrad.models.resnet:resnet18", {"image": 32}).inputs[0].shape == (
        1,
        3,
        32,
        32,
    )


@pytest.mark.parametrize(
    ("reference", "arguments", "message"),
    [
        ("users_models", {}, "model 'users_models' must be written package.module:function"),
        ("no_such_module:f", {}, "model 'no_such_module:f': No module named 'no_such_module'"),
        ("users_models:none", {}, "module users_models has no function 'none'"),
        ("users_models:number", {}, "module users_models has no function 'number'"),
        (
            "users_models:tiny",
            {"depth": 3},
            "got an unexpected keyword argument 'depth'; its arguments: none",
        ),
        ("users_models:sized", {"row": 3}, "its arguments: rows"),
        (
            "users_models:wrong",
            {},
            (
                r"is a list; it must be a Model or a pair \(function or torch.nn.Module, "
                r"\[examples\]\)"
            ),
        ),
    ],
)
def test_bad_reference_is_refused(module, reference, arguments, message):
    with pytest.raises(ModelError, match=message):
        find_model(reference, arguments)


def test_examples_must_fit_the_function():
    with pytest.raises(ModelError, match="model f: 2 example inputs do not fit the function"):
        as_model((lambda a: a, [W, W]), "f")


@pytest.mark.parametrize("result", [None, 3, [], [1.0]], ids=str)
def test_function_must_return_tensors(result):
    with pytest.raises(ModelError, match=r"model f returns .*, it must return a tensor or several"):
        Model.of_function("f", lambda a: result, [W]).build({})


def test_input_names_are_distinct():
    with pytest.raises(ModelError, match=r"model tiny: input names \['x', 'x'\] are not distinct"):
        Model.of("tiny", Tiny, (InputSpec("x", (1, 3)), InputSpec("x", (2,))))


def test_foreign_open_input_is_refused():
    other = Tensor.input("other", (3, 2))
    with pytest.raises(ModelError, match="model f depends on input 'other', which is not one of"):
        Model.of_function("f", lambda a: a + other, [W]).build({})


def test_input_spec_takes_the_name_of_a_dtype():
    model = Model.of("m", lambda: lambda n: n + 1, (InputSpec("n", (2,), "i64"),))
    loaded = tg.load(model, store=False, threads=1)
    assert loaded(np.array([1, 2])).tolist() == [2, 3]


@pytest.mark.parametrize(("given", "kind"), [(7, "int"), (Tiny(), "Tiny"), (len, "builtin")])
def test_what_is_no_model_is_refused_in_a_line(given, kind):
    for call in (tg.load, tg.tune, tg.explain):
        with pytest.raises(ModelError, match=rf"^model .* is a {kind}.*; it must be a name, a"):
            call(given, store=False) if call is tg.load else call(given)


def test_path_of_a_file_is_a_model(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text('[model]\nname = "tiny"\nbuilder = "tunegrad.models.mlp:mlp"\n')
    assert tg.load(path, store=False, threads=1).name == "tiny"
    assert tg.explain(path, budget_s=0.01, threads=1).model == "tiny"
