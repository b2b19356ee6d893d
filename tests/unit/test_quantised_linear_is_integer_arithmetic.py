"""A quantised linear layer gives the integers' sums, scaled: bit by bit, where scales are exact."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg


def _drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
    """A layer and batches whose steps are powers of two: every product and sum of f32 is exact."""
    rng = np.random.default_rng(3)
    codes = rng.integers(-127, 128, (16, 6))
    codes[0] = 127  # so each channel's scale is exact
    scale = 2.0 ** rng.integers(-9, -5, 6)
    weight = (codes * scale).astype(np.float32)
    bias = (rng.integers(-8, 8, 6) / 4).astype(np.float32)
    batches = [rng.uniform(-1.0, 2.9, (4, 16)).astype(np.float32) for _ in range(4)]
    batches[0][0, :2] = -64 / 64, (255 - 64) / 64  # the range: a step of 1/64, zero at 64
    return weight, bias, codes, batches


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_are_those_of_integers(threads: int) -> None:
    weight, bias, codes, batches = _drawn()
    made = tg.quantize(
        (lambda x: x @ weight + bias, [batches[0]]), batches, threads=threads, store=False
    )
    (tensor,) = made.calibration.tensors
    assert (tensor.step, tensor.zero) == (1 / 64, 64)
    x = np.random.default_rng(4).uniform(-3.0, 4.0, (4, 16)).astype(np.float32)  # some saturate
    q = np.clip(np.rint(x * np.float32(64.0)) + 64, 0, 255).astype(np.int64)
    sums = (q - 64) @ codes
    scale = np.abs(weight).max(0) / 127
    wanted = (sums * (scale / 64) + bias).astype(np.float32)
    np.testing.assert_array_equal(tg.load(made.model, threads=threads, store=False)(x), wanted)


def test_halves_round_to_even() -> None:
    weight, bias, _, batches = _drawn()
    made = tg.quantize((lambda x: x @ weight + bias, [batches[0]]), batches, threads=1, store=False)
    f = tg.load(made.model, threads=1, store=False)
    steps = np.arange(-8, 8, dtype=np.float32) + 0.5  # between two bytes
    x = np.broadcast_to(steps / 64, (4, 16)).astype(np.float32)
    even = np.broadcast_to(np.rint(steps) / 64, (4, 16)).astype(np.float32)
    np.testing.assert_array_equal(f(x), f(even))
