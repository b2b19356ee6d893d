"""A device that is added by the recipe of CONTRIBUTING: its folder and one registration, and
everything runs on it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from device_suite import DeviceSuite
from toy_device import ToyDevice, toy

import tunegrad as tg
from tunegrad import devices
from tunegrad.cli.app import root
from tunegrad.db import open_store
from tunegrad.devices import registry
from tunegrad.errors import DeviceError
from tunegrad.models.mlp import mlp

MODEL = """
[model]
name = "tiny"
builder = "tunegrad.models.mlp:mlp"
[model.args]
sizes = [6, 5, 4]
"""


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))
    devices.register("toy", toy)


class TestToy(DeviceSuite):
    @pytest.fixture
    def opened(self):
        return ToyDevice()


def test_added_device_is_opened_by_its_name(registered):
    assert devices.open("toy") == ToyDevice()
    assert devices.open("toy:20") == ToyDevice(beads=20)
    assert "toy" in devices.known()
    with pytest.raises(
        DeviceError,
        match=r"device 'abacus' is unknown; valid: cpu, opencl, cuda, null, .*toy",
    ):
        devices.open("abacus")


def test_families_are_added_once_and_none_takes_anothers_name(registered):
    devices.register("toy", toy)
    for name, rule in (("toy", "is taken"), ("cpu", "is taken"), ("a:b", "without a colon")):
        with pytest.raises(DeviceError, match=rule):
            devices.register(name, lambda part, threads: ToyDevice())


def test_added_device_loads_models(registered):
    model = mlp(sizes=(6, 5, 4))
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(1, 6)
    here, there = (tg.load(model, device=name, store=False)(x) for name in ("cpu", "toy"))
    np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)


def test_added_device_is_tuned_and_its_winners_are_its_own(registered, tmp_path: Path):
    (tmp_path / "tiny.toml").write_text(MODEL, encoding="utf-8")
    model, store = str(tmp_path / "tiny.toml"), str(tmp_path / "s.db")

    def run(*words: str) -> str:
        found = CliRunner().invoke(root, [*words, "--store", store])
        assert found.exit_code == 0, found.output
        return found.output

    run("tune", model, "--device", "toy", "--budget", "600s", "--max-trials", "12")
    assert "hit" in run("show", model, "--device", "toy")
    assert "hit" not in run("show", model, "--device", "toy:20")
    with open_store(store, "read") as opened:
        trials = [t for key, _ in opened.kernels() for t in opened.trials(key)]
    assert {dict(t.fingerprint.fields)["device"] for t in trials} == {"toy"}
