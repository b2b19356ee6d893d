"""What Prometheus reads: by its grammar, of sweeps and of models."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import tunegrad as tg
from tests.simulated_nights import MODEL, World, stored
from tunegrad.cli.app import run
from tunegrad.cli.tables import metrics_text
from tunegrad.db import open_store
from tunegrad.devices.processes import isolated
from tunegrad.errors import ShapeError
from tunegrad.inference import LoadedModel
from tunegrad.regress import SweepReport
from tunegrad.regress import sweep as sweeping
from tunegrad.regress.verdict import judge
from tunegrad.reports import prometheus_text

Sample = tuple[str, tuple[tuple[str, str], ...]]

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'


def parsed(text: str) -> dict[Sample, float]:
    """The samples of a text of format 0.0.4, which is held to all of its rules: a family has one
    TYPE before its samples, which stand together; no sample comes twice; the last line ends.
    """
    assert text.endswith("\n")
    types: dict[str, str] = {}
    helped: set[str] = set()
    found: dict[Sample, float] = {}
    last = ""
    for line in text.splitlines():
        if helps := re.fullmatch(rf"# HELP ({NAME}) ((?:[^\\\n]|\\[\\n])*)", line):
            assert helps[1] not in helped
            helped.add(helps[1])
        elif kind := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge)", line):
            assert kind[1] not in types
            types[kind[1]], last = kind[2], kind[1]
            assert (kind[2] == "counter") == kind[1].endswith("_total")
        else:
            sample = re.fullmatch(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)", line)
            assert sample is not None, line
            assert sample[1] == last
            labels = tuple(re.findall(LABEL, sample[2] or ""))
            assert len({name for name, _ in labels}) == len(labels)
            key = (sample[1], labels)
            assert key not in found
            found[key] = float(sample[sample.lastindex or 0])
    assert types.keys() == helped
    return found


def test_labels_are_escaped_and_empty_families_left_out() -> None:
    text = prometheus_text(
        [("a", "gauge", "One.", [({"x": 'q"\\\n'}, 1.0), ({}, math.inf)]), ("b", "gauge", "", [])]
    )
    assert parsed(text) == {("a", (("x", r"q\"\\\n"),)): 1.0, ("a", ()): math.inf}


def test_models_count_their_calls_errors_and_kernels() -> None:
    def twice(x: tg.Tensor) -> tg.Tensor:
        return x + x

    x = np.ones(4, np.float32)
    model = tg.compile(twice, x, store=False)
    model(x)  # before the first text: not counted
    assert parsed(model.metrics())["tunegrad_calls_total", (("model", "twice"),)] == 0
    for _ in range(3):
        model(x)
    with pytest.raises(ShapeError):
        model(np.ones(5, np.float32))
    found = parsed(model.metrics(model))
    for name in ("twice", "twice #2"):
        assert found["tunegrad_calls_total", (("model", name),)] == 3
        assert found["tunegrad_call_errors_total", (("model", name),)] == 0
        assert found["tunegrad_call_seconds_total", (("model", name),)] > 0
        kernels = {dict(k[1])["outcome"]: v for k, v in found.items() if k[0] == "tunegrad_kernels"}
        assert kernels == {"hit": 0, "near": 0, "miss": 1}


def test_each_model_has_a_name_of_its_own() -> None:
    def named(name: str) -> LoadedModel:
        def function(x: tg.Tensor) -> tg.Tensor:
            return x + x

        function.__name__ = name
        return tg.compile(function, np.ones(4, np.float32), store=False)

    a, b, c = named("a"), named("a"), named("a #2")
    for first, *others in ((a, b, c), (c, a, b), (b, c, a)):
        names = [dict(k[1])["model"] for k in parsed(first.metrics(*others)) if "calls" in k[0]]
        assert len(names) == 3


def test_calls_that_raise_are_errors() -> None:
    x, at = np.ones(4, np.float32), np.zeros(2, np.int32)
    model = tg.compile(lambda x, at: x[at], x, at, store=False)
    model.metrics()
    with pytest.raises(IndexError):
        model(x, np.full(2, 9, np.int32))
    errors = [v for k, v in parsed(model.metrics()).items() if "errors" in k[0]]
    assert errors == [1]


def test_calls_at_addresses_are_counted() -> None:
    model = tg.compile(lambda x: x + x, np.ones(4, np.float32), store=False)
    x, out = np.ones(4, np.float32), np.empty(4, np.float32)
    model.metrics()
    assert model.at_addresses([x.ctypes.data, out.ctypes.data])
    assert [v for k, v in parsed(model.metrics()).items() if "calls" in k[0]] == [1]


def test_a_sweep_says_latency_baseline_ratio_interval_and_verdict(tmp_path: Path) -> None:
    path = stored(tmp_path / "nights.db", World(nights=33, kernels=6, step=(30, 4, 1.2)).run(1))
    with open_store(path) as store:
        judged = judge(store, "night32")
    report = SweepReport("night32", "", str(path), "", 1.0, judged.rows, judged.findings)
    found = parsed(metrics_text(report, 1e9))

    def of(name: str, series: str, **more: str) -> float:
        (value,) = (
            v
            for (n, labels), v in found.items()
            if n == f"tunegrad_regress_{name}"
            and dict(labels) | {"series": series} | more == dict(labels)
        )
        return value

    slow, same = f"{MODEL}: k4", f"{MODEL}: k3"
    assert of("verdict", slow, verdict="regression") == of("verdict", same, verdict="same") == 1
    assert of("ratio_bound", slow, bound="lower") < 1.2 < of("ratio_bound", slow, bound="upper")
    assert of("ratio", slow) == pytest.approx(1.2, abs=0.04)
    assert of("ratio", same) == pytest.approx(
        of("latency_seconds", same) / of("baseline_seconds", same)
    )
    assert of("latency_seconds", slow) / of("baseline_seconds", slow) == pytest.approx(
        1.2, abs=0.15
    )
    assert found["tunegrad_regress_finished_timestamp_seconds", ()] == 1e9


def test_the_command_writes_the_file_or_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path / "nights.db", World(nights=9, kernels=2).run(1))
    monkeypatch.setattr(sweeping, "busy", lambda: "")
    monkeypatch.setattr(isolated, "start_fork_server", lambda _: None)
    monkeypatch.setattr(sweeping, "sweep", lambda *_, **__: sweeping.Swept("night8", (), False))
    config = tmp_path / "one.toml"
    config.write_text('[regress]\nmodels = ["mlp"]\n', "utf-8")
    words = ["regress", str(config), "--store", str(path), "--prometheus"]
    assert run([*words, str(tmp_path / "t.prom")]) == 0
    written = parsed((tmp_path / "t.prom").read_text("utf-8"))
    capsys.readouterr()
    assert run([*words, "-"]) == 0
    assert parsed(capsys.readouterr().out).keys() == written.keys()
    assert run([*words, "-", "--json"]) == 1
    assert "both write to stdout" in capsys.readouterr().err
    assert run([*words, str(tmp_path / "no" / "t.prom")]) == 1
