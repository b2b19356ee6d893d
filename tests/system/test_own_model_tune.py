"""A plain ``Model`` that was made in Python is tuned, explained and loaded as a named one is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import nn
from tunegrad.cli.app import run
from tunegrad.config import parse_budget

THREADS = 1
PAGE = (Path(__file__).parents[2] / "docs" / "OWN_MODEL.md").read_text(encoding="utf-8")


class Classifier(nn.Module):
    def __init__(self) -> None:
        self.body = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        return self.head(self.body(x))


def test_plain_model_is_tuned_explained_and_loaded(tmp_path: Path) -> None:
    model = tg.Model.of("classifier", Classifier, [tg.InputSpec("x", (8, 64))])
    store = tmp_path / "s.db"
    report = tg.tune(model, budget_s=600.0, max_trials=6, store=store, threads=THREADS)
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


def test_the_page_leads_from_nothing_to_a_tuned_model_within_five_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the budgets that the page gives, and by what a search does within a small one: how long
    that takes is the machine's.
    """
    _, layers, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    commands = re.findall(r"^tunegrad (.*mymodels:model.*)$", PAGE, re.MULTILINE)
    budgets = re.findall(r"--budget (\S+)", " ".join(commands))
    assert sum(parse_budget(text) for text in budgets) <= 240.0  # a minute is for installing
    text = f"import tunegrad as tg\n{layers.partition('loaded = ')[0]}"
    (tmp_path / "mymodels.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNEGRAD_STORE", str(tmp_path / "own.db"))
    for line in commands:
        words = line.replace(budgets[0], "600s").split()
        limits = ["--max-trials", "8", "--log", "log.jsonl"] * (words[0] == "tune")
        assert run([*words, *limits, "--threads", "1", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
    assert {row["outcome"] for row in said["rows"]} == {"hit"}
    events = [json.loads(line) for line in Path("log.jsonl").read_text("utf-8").splitlines()]
    kinds = [e["event"] for e in events]
    assert kinds.count("CandidateMeasured") <= 8
    assert kinds[-1] == "SessionFinished"
