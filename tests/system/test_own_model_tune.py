"""A plain ``Model`` that was made in Python is tuned, explained and loaded as a named one is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tunegrad as tg
from tunegrad import nn

THREADS = 1


class Classifier(nn.Module):
    def __init__(self) -> None:
        self.body = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        return self.head(self.body(x))


def test_plain_model_is_tuned_explained_and_loaded(tmp_path: Path) -> None:
    model = tg.Model.of("classifier", Classifier, [tg.InputSpec("x", (8, 64))])
    store = tmp_path / "s.db"
    report = tg.tune(model, budget_s=600.0, max_trials=20, store=store, threads=THREADS)
    assert report.model == "classifier"
    assert report.rows
    assert not report.mismatch
    explained = tg.explain(model, store=store, threads=THREADS, budget_s=0.01)
    assert explained.model == "classifier"
    assert {r.key for r in explained.rows} == {r.key for r in report.rows}
    assert {r.outcome for r in explained.rows} == {"hit"}
    loaded = tg.load(model, store=store, threads=THREADS)
    assert {r.outcome for r in loaded.report()} == {"hit"}
    assert loaded(np.ones((8, 64), np.float32)).shape == (8, 10)
