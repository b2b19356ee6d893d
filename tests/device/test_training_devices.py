"""Steps of training as CUDA C++ give what a CPU gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tunegrad as tg
from tests.cuda_host import cuda_host
from tunegrad import nn
from tunegrad.nn import optim


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 4),
    )  # fmt: skip


@pytest.mark.parametrize("net", [perceptron, pytest.param(convolutions, marks=pytest.mark.slow)])
def test_steps_elsewhere_are_those_of_a_cpu(net: Callable[[], nn.Module]) -> None:
    device = cuda_host()
    here, there = (
        tg.TrainStep(
            net(), nn.functional.cross_entropy, optim.SGD(0.05, momentum=0.9), store=False,
            device=where, threads=1, seed=3,
        )
        for where in ("cpu", device.name)
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
