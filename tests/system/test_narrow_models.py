"""Whole models in f16 and bf16: compiled, next to the same model in f32; tuned, and found again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_models import THREADS, settings_of

import tunegrad as tg
from tunegrad.cli.app import run
from tunegrad.config import ModelDtype, resolve_settings
from tunegrad.db import open_store
from tunegrad.devices import host_device
from tunegrad.errors import ConfigError, WeightsError
from tunegrad.frontend import InputSpec, Model
from tunegrad.frontend.nn import Linear
from tunegrad.inference import measured_deviation
from tunegrad.ir.interpret.evaluate import flat
from tunegrad.models.encoder import encoder_layer
from tunegrad.models.mlp import mlp
from tunegrad.models.resnet import resnet18
from tunegrad.planning import prepared
from tunegrad.runtime import Argument
from tunegrad.tune import show, tune
from tunegrad.tuning.models.expected import evaluated
from tunegrad.tuning.models.work import SETS, drawn

pytestmark = pytest.mark.timing

MODELS = {
    "mlp": mlp(batch=4, sizes=(96, 64, 48)),
    "encoder": encoder_layer(sequence=24, hidden=64, heads=4, ffn=128),
    "resnet18": resnet18(image=64),
}
BOUND = {"f16": 2e-3, "bf16": 1.6e-2}
"""Four roundings of the type to the largest output: what depth adds is less, errors cancel."""

DTYPES: tuple[ModelDtype, ...] = ("f16", "bf16")
NARROW = pytest.mark.parametrize("dtype", DTYPES)
PAIRS = pytest.mark.skipif(
    not host_device(THREADS).target.bf16_dot, reason="this processor multiplies no pairs of bf16"
)


def loaded(model: Model, dtype: ModelDtype, **more: object) -> tg.LoadedModel:
    return tg.load(model, store=False, threads=THREADS, dtype=dtype, **more)  # type: ignore[arg-type]


@NARROW
@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_16_bits_is_near_the_model_in_f32(name: str, dtype: ModelDtype) -> None:
    model = loaded(MODELS[name], dtype)
    found = measured_deviation(model, MODELS[name])
    assert 1e-2 * BOUND[dtype] < found.largest < BOUND[dtype]
    assert found.rms < BOUND[dtype]


@NARROW
@pytest.mark.parametrize("numerics", ["contract", pytest.param("bf16-dot", marks=PAIRS)])
@pytest.mark.parametrize("name", MODELS)
def test_it_computes_what_its_graph_says(name: str, dtype: ModelDtype, numerics: str) -> None:
    model, target = MODELS[name], host_device(THREADS).target
    nodes = tuple(t.node for t in model.build(model.weights(None, 0)))
    inputs = tuple(Argument(i.name, i.shape, i.dtype) for i in model.inputs)
    graph = flat(prepared(nodes, numerics, target, dtype))  # type: ignore[arg-type]
    run_model = loaded(model, dtype, numerics=numerics)
    for number in range(SETS):
        (expected,) = evaluated(*graph, inputs, number) or ()
        got = run_model(**drawn(inputs, number)).reshape(-1).astype(np.float64)
        assert expected.fault(got) == ""
        assert expected.allowed < 8 * BOUND[dtype] * np.abs(expected.values).max()


@NARROW
def test_inputs_and_outputs_stay_and_weights_take_half(dtype: ModelDtype) -> None:
    full, narrow = (loaded(MODELS["resnet18"], d) for d in ("f32", dtype))
    assert narrow.inputs == full.inputs
    assert narrow(np.zeros((1, 3, 64, 64), np.float32)).dtype == np.float32
    assert narrow.constant_bytes < 0.51 * full.constant_bytes
    assert narrow.memory_bytes < 0.6 * full.memory_bytes
    assert narrow.name == f"resnet18 {dtype}"


@PAIRS
def test_with_bf16_dot_products_of_a_bf16_model_are_summed_in_pairs() -> None:
    for name, least in (("mlp", 2), ("encoder", 6), ("resnet18", 15)):
        model = loaded(MODELS[name], "bf16", numerics="bf16-dot")
        assert sum(r.uses for r in model.report() if "bf16-dot" in r.kernel) >= least
        assert measured_deviation(model, MODELS[name]).largest < BOUND["bf16"]


def test_compile_takes_a_dtype_for_the_arrays_that_a_function_brings_along() -> None:
    x, w = np.ones((4, 32), np.float32), np.full((32, 8), 1 / 3, np.float32)
    narrow = tg.compile(lambda x: x @ w, x, threads=THREADS, dtype="f16")
    assert narrow.constant_bytes == 2 * w.size
    np.testing.assert_allclose(narrow(x), 32 * np.float32(np.float16(1 / 3)), rtol=1e-6)


def test_a_weight_that_overflows_names_itself_and_the_way_out() -> None:
    model = Model.of("tiny", lambda: Linear(4, 3), (InputSpec("x", (1, 4)),))
    weights = dict(model.weights(None, 0))
    weights["weight"] = np.full((3, 4), 1e5, np.float32)
    with pytest.raises(WeightsError, match=r"^weight weight of shape \(3, 4\) .*; use bf16, which"):
        loaded(model, "f16", weights=weights)
    assert loaded(model, "bf16", weights=weights)(np.ones((1, 4), np.float32)).shape == (1, 3)


def test_an_activation_that_overflows_f16_is_said_to_be_infinitely_far_off() -> None:
    w = np.full((64, 64), 1e4, np.float32)

    def function(x: tg.Tensor) -> tg.Tensor:
        return ((x @ w).relu() @ w) * 1e-9

    model = Model.of_function("hot", function, [np.ones((64, 64), np.float32)])
    assert np.isinf(measured_deviation(loaded(model, "f16"), model).largest)


def test_a_word_that_is_no_dtype_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^dtype 'f64' is unknown; valid: f32, f16, bf16, int8$"):
        loaded(MODELS["mlp"], "f64")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^dtype 'half' is unknown"):
        resolve_settings("mlp", dtype="half")


def test_a_models_file_says_its_dtype(tmp_path: Path) -> None:
    path = settings_of(tmp_path, 1.0, tmp_path / "s.db").model.source
    with Path(path).open("a", encoding="utf-8") as file:
        file.write('[tune]\ndtype = "bf16"\n')
    assert tg.load(path, store=False, threads=THREADS).dtype == "bf16"
    assert tg.load(path, store=False, threads=THREADS, dtype="f16").dtype == "f16"
    assert resolve_settings(path).dtype == "bf16"


def test_a_tuned_bf16_model_is_found_as_such_and_only_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "t.db"
    settings = replace(settings_of(tmp_path, 600.0, store), dtype="bf16", max_trials=16)
    report = tune(settings)
    assert (report.model, report.dtype, report.mismatch) == ("small bf16", "bf16", "")
    assert report.deviation is not None
    assert 0 < report.deviation.largest < BOUND["bf16"]
    path = settings.model.source

    def outcomes(dtype: ModelDtype) -> set[str]:
        return {
            r.outcome for r in tg.load(path, store=store, threads=THREADS, dtype=dtype).report()
        }

    assert [outcomes(d) for d in ("bf16", "f16", "f32")] == [{"hit"}, {"miss"}, {"miss"}]
    assert {r.outcome for r in show(settings)} == {"hit"}
    with open_store(store) as opened:
        assert {x.model for x in opened.latencies()} == {"small bf16"}
        (session,) = opened.sessions()
        assert json.loads(session.settings)["dtype"] == "bf16"
    words = f"run {path} --dtype bf16 --threads {THREADS} --store {store} --json"
    capsys.readouterr()
    assert run(words.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["dtype"]) == ("small bf16", "bf16")
    assert 0 < found["deviation"]["largest"] < BOUND["bf16"]
    assert found["constant_bytes"] < 0.55 * 4 * (64 * 64 + 64 * 48 + 64 + 48)
    assert {row["outcome"] for row in found["rows"]} == {"hit"}
