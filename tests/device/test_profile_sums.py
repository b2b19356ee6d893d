"""The times of a model's kernels are its time: little is between them."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

import tunegrad as tg


def network(x: tg.Tensor, w: tg.Tensor, v: tg.Tensor) -> tg.Tensor:
    for _ in range(3):
        x = tg.nn.functional.conv2d(x, w, padding=1).relu()
        x = tg.nn.functional.layer_norm(x, x.shape[-1:]).softmax(1)
    return x.reshape(32, -1) @ v


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_of_a_run_add_up_to_its_time_within_a_twentieth(threads: int) -> None:
    """Both are of the same runs, so others who use the machine lengthen both."""
    shapes = (1, 32, 28, 28), (32, 32, 3, 3), (784, 256)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(s, dtype=np.float32) for s in shapes]
    model = tg.compile(network, *inputs, threads=threads)
    arrays, ratios = model._drawn(0), list[float]()
    for _ in range(15):
        (total_s,), each_s = model._runner.time(arrays, 1, each=True)
        assert len(each_s) == sum(row.uses for row in model.report())
        ratios.append(sum(each_s) / total_s)
    assert 0.95 <= statistics.median(ratios) <= 1.001
