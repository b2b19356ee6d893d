"""Layers stay in f32 by name, or the worst first until a bound on the outputs' error holds."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import nn
from tunegrad.inference import Quantized

OPTIONS = {"store": False, "threads": 1}


class Layers(nn.Module):
    """Three layers; what the middle one multiplies has an outlier that makes its bytes coarse."""

    def __init__(self) -> None:
        self.first, self.bad, self.last = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        y = self.first(x).relu()
        wide = tg.cat([y[:, :1] * 300.0, y[:, 1:]], 1)
        return self.last(self.bad(wide).relu())


def _weights() -> dict[str, np.ndarray]:
    model = tg.Model.of("layers", Layers, [tg.InputSpec("x", (4, 16))])
    values = model.weights(None, 1)
    values["bad.weight"] = values["bad.weight"].copy()
    values["bad.weight"][:, 0] = 0.0  # so the outlier itself does not count
    return values


def _made(**options: object) -> Quantized:
    model = tg.Model.of("layers", Layers, [tg.InputSpec("x", (4, 16))])
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((4, 16)).astype(np.float32) for _ in range(8)]
    return tg.quantize(model, batches, weights=_weights(), **OPTIONS, **options)  # type: ignore[arg-type]


def test_the_layer_that_costs_most_is_kept() -> None:
    without = _made()
    assert without.report.kept == ()
    assert without.report.deviation is not None
    assert without.report.deviation.rms > 0.05
    bound = _made(max_error=0.03)
    assert bound.report.kept == ("bad.weight",)
    assert bound.report.deviation is not None
    assert bound.report.deviation.rms < 0.04
    costs = dict(bound.report.costs)
    assert max(costs, key=costs.__getitem__) == "bad.weight"


def test_a_bound_of_zero_keeps_every_layer() -> None:
    found = _made(max_error=0.0)
    assert len(found.report.kept) == 3
    assert found.report.deviation is not None
    assert found.report.deviation.rms < 1e-6


def test_named_layers_are_kept() -> None:
    assert _made(keep=["bad", "last"]).report.kept == ("bad.weight", "last.weight")


def test_one_layer_alone_costs_what_the_model_with_it_alone_does() -> None:
    """The program that compares layers computes in f32 what the model computes in bytes."""
    costs = dict(_made(max_error=1e-6).report.costs)
    alone = _made(keep=["first", "last"]).report.deviation
    assert alone is not None
    assert costs["bad.weight"] == pytest.approx(alone.rms, rel=0.5)  # on other batches


def test_prices_are_of_each_dtype() -> None:
    prices = _made().report.prices
    assert [p.dtype for p in prices if p.dtype != "bf16"] == ["f32", "int8"]
    assert all(p.ms > 0 for p in prices)
    assert prices[0].deviation is None
    assert prices[-1].deviation == _made().report.deviation
