"""Steps of training as CUDA C++ and on OpenCL give what a CPU gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests.cuda_host import cuda_host
from tests.opencl_device import opencl_device
from tunegrad import nn
from tunegrad.devices.cuda.engine import CudaEngine
from tunegrad.nn import optim

MOMENTUM, ADAM = optim.SGD(0.05, momentum=0.9), optim.AdamW(0.01)


def perceptron() -> nn.Module:
    """A bias before the statistics of a batch has a gradient of roundings, which Adam scales up."""
    return nn.Sequential(
        nn.Linear(16, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)
    )


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 4),
    )  # fmt: skip


@pytest.mark.parametrize("net", [perceptron, pytest.param(convolutions, marks=pytest.mark.slow)])
def test_steps_elsewhere_are_those_of_a_cpu(net: Callable[[], nn.Module]) -> None:
    _compare(net, MOMENTUM, cuda_host().name)


@pytest.mark.parametrize(
    ("net", "optimizer"),
    [
        (perceptron, ADAM),
        pytest.param(perceptron, MOMENTUM, marks=pytest.mark.slow),
        pytest.param(convolutions, ADAM, marks=pytest.mark.slow),
        pytest.param(convolutions, MOMENTUM, marks=pytest.mark.slow),
    ],
)
def test_steps_on_opencl_are_those_of_a_cpu(
    net: Callable[[], nn.Module], optimizer: optim.Optimizer
) -> None:
    _compare(net, optimizer, opencl_device().name)


def _compare(net: Callable[[], nn.Module], optimizer: optim.Optimizer, device: str) -> None:
    here, there = (
        tg.TrainStep(
            net(), nn.functional.cross_entropy, optimizer, store=False, device=where, threads=1,
            seed=3,
        )
        for where in ("cpu", device)
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for _ in range(5):
        x = rng.standard_normal((8, 16)).astype(np.float32)
        y = rng.integers(0, 4, 8)
        assert there(x, y) == pytest.approx(here(x, y), rel=1e-4)
    mine, other = here.state_dict(), there.state_dict()
    np.testing.assert_array_equal(mine["draws"], other["draws"])
    for key, value in here.weights().items():
        np.testing.assert_allclose(other[f"model.{key}"], value, rtol=1e-3, atol=1e-4)


def test_states_stay_on_a_device_until_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps, batches of two sizes, a state that is saved and one that is loaded, in any order."""
    here, there = (
        tg.TrainStep(
            perceptron(), nn.functional.cross_entropy, MOMENTUM, store=False, device=device,
            threads=1, seed=3,
        )
        for device in ("cpu", cuda_host().name)
    )  # fmt: skip
    rng = np.random.default_rng(0)

    def step(rows: int) -> None:
        x, y = rng.standard_normal((rows, 16)).astype(np.float32), rng.integers(0, 4, rows)
        assert there(x, y) == pytest.approx(here(x, y), rel=1e-4)

    step(8)
    begun = there.state_dict()
    step(8)
    copied: list[int] = []
    write = CudaEngine.write

    def noted(self: CudaEngine, memory: Any, values: Any) -> None:
        copied.append(values.nbytes)
        write(self, memory, values)

    monkeypatch.setattr(CudaEngine, "write", noted)
    step(8)
    assert sum(copied) < 1024 < sum(a.nbytes for a in begun.values())
    for rows in (4, 8):
        step(rows)
    there.save(tmp_path / "there.safetensors")
    step(4)
    here.load_state_dict(begun)
    there.load_state_dict(begun)
    step(8)
    assert there.load(tmp_path / "there.safetensors") == {}
    here.load(tmp_path / "there.safetensors")
    step(4)
    for key, value in here.weights().items():
        np.testing.assert_allclose(there.weights()[key], value, rtol=1e-3, atol=1e-4)
