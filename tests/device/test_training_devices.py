"""Steps of training as CUDA C++ and on OpenCL give what a CPU gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tunegrad as tg
from tests.cuda_host import cuda_host
from tests.opencl_device import opencl_device
from tunegrad import nn
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
