"""Ranges of known numbers: all of them, all but a share, or those of the least squared error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.inference import Quantized
from tunegrad.ir.rewrites import Scale


def _range(made: Quantized) -> tuple[float, float]:
    (t,) = made.calibration.tensors
    return -t.zero * t.step, (255 - t.zero) * t.step


def _made(values: np.ndarray, **options: Any) -> Quantized:
    w = np.eye(16, dtype=np.float32)
    x = values.astype(np.float32).reshape(-1, 4, 16)
    return tg.quantize((lambda x: x @ w, [x[0]]), list(x), store=False, threads=1, **options)


def test_minmax_is_what_was_seen() -> None:
    values = np.random.default_rng(0).uniform(-1.0, 3.0, 64 * 20)
    used = values.reshape(20, 64)[[i for i in range(20) if i % 4 != 3]]
    low, high = _range(_made(values))
    assert low == pytest.approx(used.min(), abs=4 / 255)
    assert high == pytest.approx(used.max(), abs=4 / 255)


def test_positive_numbers_have_no_zero_point() -> None:
    made = _made(np.random.default_rng(0).uniform(1.0, 3.0, 64 * 4))
    assert made.calibration.tensors[0].zero == 0


def test_percentile_leaves_out_a_share_at_either_end() -> None:
    values = np.random.default_rng(0).permutation(np.linspace(-1.0, 1.0, 64 * 400))
    low, high = _range(_made(values, method="percentile", percentile=95.0))
    assert (low, high) == (pytest.approx(-0.9, abs=0.02), pytest.approx(0.9, abs=0.02))


def test_mse_cuts_off_an_outlier_and_keeps_a_uniform_range() -> None:
    rng = np.random.default_rng(0)
    uniform = rng.uniform(-1.0, 1.0, 64 * 40)
    low, high = _range(_made(uniform, method="mse"))
    assert (low, high) == (pytest.approx(-1.0, abs=0.02), pytest.approx(1.0, abs=0.02))
    normal = rng.normal(0.0, 1.0, 64 * 400)
    normal[5] = 16.0
    used = normal.reshape(400, 64)[[i for i in range(400) if i % 4 != 3]].astype(np.float32)

    def error(low: float, high: float) -> float:
        s = Scale.of(low, high)
        return float(np.square(s.numbers_of(s.bytes_of(used)) - used).mean())

    found = error(*_range(_made(normal, method="mse")))
    best = min(error(low, high) for low in np.linspace(-4, -1, 13) for high in range(1, 17))
    assert found < 1.02 * best
    assert found < 0.98 * error(*_range(_made(normal)))


def test_smoothing_divides_channels_and_gives_the_same_product() -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((16, 8)).astype(np.float32)
    wide = np.ones(16, np.float32)
    wide[3] = 60.0  # a channel of outliers
    batches = [rng.standard_normal((4, 16)).astype(np.float32) * wide for _ in range(8)]
    case = lambda x: x @ w, [batches[0]]
    plain = tg.quantize(case, batches, store=False, threads=1).report.deviation
    smooth = tg.quantize(case, batches, store=False, threads=1, smooth=0.5)
    assert plain is not None
    assert smooth.report.deviation is not None
    assert len(smooth.calibration.tensors[0].factors) == 16
    assert smooth.report.deviation.rms < plain.rms
