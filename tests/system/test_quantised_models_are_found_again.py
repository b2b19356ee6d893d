"""A calibrated model is found by its file, by its name beside the store, and as a plan; weights
that do not fit, and files that break a rule, are errors of one line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import ConfigError, ModelError, UserError, WeightsError

NAME = "mlp[batch=2]"


def _batches() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2, 784)).astype(np.float32) for _ in range(4)]


def _command(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tunegrad", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a calibration, as ``tune`` leaves it beside a store that is not there."""
    folder = tmp_path_factory.mktemp("int8")
    made = tg.quantize(NAME, _batches(), store=False, threads=1)
    made.save(folder / "mlp_batch_2.int8.json")
    x = _batches()[0]
    np.save(folder / "right.npy", tg.load(made.model, store=False, threads=1)(x))
    return folder


def test_it_is_found_by_file_and_name_and_plan(place: Path) -> None:
    x, right = _batches()[0], np.load(place / "right.npy")
    file = str(place / "mlp_batch_2.int8.json")
    by_file = tg.load(file, store=False, threads=1)
    np.testing.assert_array_equal(by_file(x), right)
    by_file.save(place / "mlp.plan")
    np.testing.assert_array_equal(tg.load(str(place / "mlp.plan"))(x), right)
    by_data = tg.quantize(NAME, file, store=False, threads=1)
    np.testing.assert_array_equal(tg.load(by_data.model, store=False, threads=1)(x), right)


def test_a_file_of_a_model_is_found_from_a_copy_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "mlp.toml").write_bytes((tg.config.configs_dir() / "mlp.toml").read_bytes())
    name = f"{tmp_path}/mlp.toml[batch=2]"
    first, second = tmp_path / "a" / "mlp.int8.json", tmp_path / "b" / "c" / "mlp.int8.json"
    tg.quantize(name, _batches(), store=False, threads=1).save(first)
    tg.quantize(name, first).save(second)
    assert json.loads(first.read_text())["model"] == "../mlp.toml[batch=2]"
    assert json.loads(second.read_text())["model"] == "../../mlp.toml[batch=2]"
    x = _batches()[0]
    made = [tg.load(str(file), store=False, threads=1)(x) for file in (first, second)]
    np.testing.assert_array_equal(*made)


def test_it_is_found_by_name_beside_the_default_store(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEGRAD_STORE", str(place / "t.db"))  # there is no such file yet
    loaded = tg.load(NAME, dtype="int8", threads=1)
    assert loaded.name == f"{NAME} int8"
    np.testing.assert_array_equal(loaded(_batches()[0]), np.load(place / "right.npy"))


@pytest.mark.slow
def test_a_command_calibrates_and_later_ones_find_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.concatenate(_batches()))
    store = str(tmp_path / "t.db")
    options = ["--batch", "2", "--dtype", "int8", "--store", store, "--threads", "1", "--json"]
    data = ["--calibrate", str(tmp_path / "data.npz"), "--max-trials", "2", "--budget", "30s"]
    tuned = _command("tune", "mlp", *options, *data)
    assert tuned.returncode == 0, tuned.stderr
    report = json.loads(tuned.stdout)
    assert report["model"] == f"{NAME} int8"
    prices = report["quantised"]["prices"]
    assert [p["dtype"] for p in prices if p["dtype"] != "bf16"] == ["f32", "int8"]
    assert 0.0 < prices[-1]["deviation"]["rms"] < 0.1
    run = _command("run", "mlp", *options)
    assert run.returncode == 0, run.stderr
    again = json.loads(run.stdout)
    assert "hit" in {row["outcome"] for row in again["rows"]}
    assert 0.0 < again["deviation"]["rms"] < 0.1
    loaded = tg.load(NAME, dtype="int8", store=store, threads=1)
    assert loaded.name == f"{NAME} int8"


def test_a_model_that_is_not_calibrated_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it is not calibrated"):
        tg.load(NAME, dtype="int8", store=tmp_path / "t.db")
    with pytest.raises(ConfigError, match="not calibrated"):
        tg.tune(NAME, dtype="int8", store=tmp_path / "t.db")
    with pytest.raises(ConfigError, match=r"tg\.quantize"):
        tg.load((lambda x: x.relu(), [_batches()[0]]), dtype="int8")
    said = _command("tune", "mlp", "--calibrate", str(tmp_path))
    assert said.returncode == 1
    assert "with --dtype int8" in said.stderr
    words = ("--dtype", "int8", "--calibrate", str(tmp_path), "--dry-run")
    said = _command("tune", "mlp", *words)
    assert said.returncode == 2
    assert "leave one out" in said.stderr


def test_other_weights_are_an_error(place: Path) -> None:
    with pytest.raises(WeightsError, match=r"layers\.0\.weight of shape .* is another one"):
        tg.load(str(place / "mlp_batch_2.int8.json"), seed=7, store=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "other"}, "its kind is 'other'"),
        ({"model": "os:getcwd"}, "is code outside of"),
        ({"model": "x.int8.json"}, "a calibration itself"),
        ({"model": ""}, "has no name"),
        ({"more": 1}, "unknown field"),
        ({"tensors": []}, "is none of its 0"),
        ({"tensors": [{"step": -1.0, "zero": 0}] * 3}, "Expected `float` > 0"),
        ({"products": []}, "0 products were calibrated, and the model has 3"),
    ],
)
def test_a_file_that_breaks_a_rule(
    place: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    found = json.loads((place / "mlp_batch_2.int8.json").read_bytes())
    path = tmp_path / "bad.int8.json"
    path.write_text(json.dumps({**found, **change}))
    with pytest.raises(UserError) as caught:
        tg.load(str(path), store=False)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_in_bytes_is_neither_trained_nor_quantised(place: Path) -> None:
    made = tg.quantize(NAME, str(place / "mlp_batch_2.int8.json"))
    with pytest.raises(ModelError, match="no gradients"):
        tg.TrainStep(made.model, lambda y: y.sum(), tg.nn.optim.SGD(0.1))
    with pytest.raises(ModelError, match="in bytes already"):
        tg.quantize(made.model, _batches())
