"""Real sweeps of a small model on this machine: what they store, what stops none of them, and a
kernel that really got slower.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import planted_slower
import pytest
from planted_slower import HOOKS, KERNEL, MODEL, SLOWER, SPOILT, planted

from tunegrad.cli.app import run
from tunegrad.db import open_store
from tunegrad.errors import CandidateTimeout, UserError
from tunegrad.regress import (
    Finding,
    SweepReport,
    SweepSettings,
    bless,
    compare,
    measured,
    regress,
)
from tunegrad.regress import sweep as sweeping
from tunegrad.regress.sweep import retuned
from tunegrad.trial import Trial

pytestmark = pytest.mark.timing

SERIES = f"planted: {KERNEL}"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepSettings:
    """A sweep of one model, of whose kernels one has a stored winner; nights count, whoever else
    uses the processors.
    """
    monkeypatch.setattr(sweeping, "busy", lambda: "")
    monkeypatch.setattr(measured, "lacking_cpus", lambda *_: 0.0)
    return planted(tmp_path)


def series(report: SweepReport) -> set[str]:
    return {row.series for row in report.rows}


def test_a_sweep_stores_every_kernel_beside_its_default_with_its_versions(
    settings: SweepSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials and winners stay as they were, and a machine that is busy is said."""

    def held() -> list[Trial]:
        with open_store(settings.store) as store:
            return [t for key, _ in store.kernels() for t in store.trials(key)]

    monkeypatch.setattr(sweeping, "busy", lambda: "others work")
    before, told = held(), list[str]()
    report = regress(settings, told.append)
    assert held() == before
    assert report.busy == ("before: others work", "after: others work")
    assert told[0] == "warning: the machine is not quiet: others work"
    assert report.failed == report.findings == ()
    assert len(report.rows) == 5
    (mine,) = [r for r in report.rows if r.series == SERIES]
    assert (mine.schedule, mine.nights) == ("stored", 1)
    with open_store(settings.store) as store:
        (row,) = store.latencies(SERIES)
        sticks = [x.model for x in store.latencies() if "yardstick" in x.model]
        (trial,) = store.trials(row.model_key)
    assert len(row.samples_s) == len(row.default_samples_s) == 8
    assert {"compiler", "numpy", "program", "python", "tunegrad"} <= dict(row.versions).keys()
    assert dict(row.versions)["program"] == trial.program_hash
    assert {"governor", "load_1m"} <= dict(row.state).keys()
    assert sticks == ["planted: yardstick stream", "planted: yardstick product"]


@pytest.mark.parametrize("kind", ["crash", "unwritten"])
def test_a_bad_kernel_is_named_and_the_sweep_goes_on(
    settings: SweepSettings, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a machine that stands still for once while the defaults run."""
    timed, tries = measured._Timing._timed, list[str]()

    def stalled(self: Any, *rest: Any) -> Any:
        tries.append(kind)
        if len(tries) == 2:
            raise CandidateTimeout("over 2 s")
        return timed(self, *rest)

    monkeypatch.setattr(measured._Timing, "_timed", stalled)
    report = regress(settings, hooks=SPOILT[kind])
    (failed,) = report.failed
    assert (failed.model, failed.kernel) == ("planted", KERNEL)
    assert {"crash": "CandidateCrashed", "unwritten": "WrongResult"}[kind] in failed.why
    assert len(report.rows) == 5
    (mine,) = [r for r in report.rows if r.series == SERIES]
    assert mine.schedule == "default"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_kernel_that_hangs_is_named_and_the_sweep_goes_on(settings: SweepSettings) -> None:
    report = regress(settings, hooks=SPOILT["hang"])
    assert [(f.kernel, f.why.partition(":")[0]) for f in report.failed] == [
        (KERNEL, "CandidateTimeout")
    ]
    assert len(report.rows) == 5


def test_an_interrupted_sweep_goes_on_with_what_is_left(
    settings: SweepSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = tmp_path / "second.toml"
    second.write_text(MODEL.replace('"planted"', '"second"'), encoding="utf-8")
    both = replace(settings, models=(*settings.models, str(second)))
    real: Callable[..., object] = sweeping.measure_model
    asked: list[str] = []

    def killed(one: object, *rest: object) -> object:
        asked.append(one.model.name)  # type: ignore[attr-defined]
        if asked[-1] == "second" and len(asked) == 2:
            raise KeyboardInterrupt
        return real(one, *rest)

    monkeypatch.setattr(sweeping, "measure_model", killed)
    first = regress(both)
    assert first.interrupted
    assert "second" not in series(first)
    again = regress(both)
    assert asked == ["planted", "second", "second"]
    assert (again.sweep, again.interrupted) == (first.sweep, False)
    assert {"planted", "second"} <= series(again)
    assert {row.nights for row in again.rows} == {1}


def test_a_busy_machine_is_refused(
    settings: SweepSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "busy", lambda: "others work")
    with pytest.raises(UserError, match="not quiet, and the sweep requires that: others work"):
        regress(replace(settings, quiet="require"))


def test_the_command_writes_json_junit_and_markdown_and_compares(
    settings: SweepSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second night is after an update: the fingerprint changes with the compiler, so that a
    lookup misses; winners of before are timed, and the nights go on.
    """
    from tunegrad.devices.host import facts

    command = ["regress", str(tmp_path / "night.toml"), "--store", str(settings.store)]
    files = [str(tmp_path / name) for name in ("found.xml", "found.md")]
    assert run([*command, "--json", "--junit", files[0], "--markdown", files[1]]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["regressions"] == []
    suite = ET.parse(files[0]).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "0", "0")
    assert "| planted | " in Path(files[1]).read_text(encoding="utf-8")
    monkeypatch.setattr(facts, "compiler_version", lambda: "another")
    assert run([*command, "--json"]) == 0
    (mine,) = [r for r in json.loads(capsys.readouterr().out)["rows"] if r["series"] == SERIES]
    assert (mine["schedule"], mine["nights"]) == ("stored", 2)
    assert run(["compare", "last~1", "last", "--store", str(settings.store)]) == 0
    out = capsys.readouterr().out
    assert KERNEL[:20] in out
    assert "intervals hold the scatter of turns alone" in out
    assert run(["compare", "nothing", "last", "--store", str(settings.store)]) == 1
    assert "'nothing': neither a store's file, nor one sweep" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_kernel_that_does_a_tenth_more_work_is_found_and_named(settings: SweepSettings) -> None:
    """Planted in the code that runs, from a night on; up to eight nights, as other processes may
    keep this machine busy.
    """
    nightly = replace(settings, turns=24)
    for _ in range(9):
        before = regress(nightly, hooks=HOOKS)
    assert SERIES not in {f.series for f in before.regressions}
    for _ in range(8):
        report = regress(nightly, hooks=SLOWER)
        found = [f for f in report.regressions if f.series == SERIES]
        if found:
            break
    (finding,) = found
    assert finding.ratio is not None
    assert 1.03 < finding.ratio < 1.25
    assert "program: " in "; ".join(finding.changed)
    heaviest = max(report.regressions, key=lambda f: f.ratio or 0.0)
    assert heaviest.series == SERIES
    assert [f.series for f in bless(nightly, "meant").levels] == [
        f.series for f in report.regressions
    ]
    assert SERIES not in {f.series for f in regress(nightly, hooks=SLOWER).regressions}
    rows = {row.series: row for row in compare("last~9", "last", nightly.store).rows}
    assert rows[SERIES].ratio > 1.0


def test_the_planted_work_is_a_tenth_of_the_outermost_loop() -> None:
    text = (
        "define internal void @kernel.body(ptr %b0) {\nentry:\n  br label %loop1\nloop1:\n"
        "  %v1 = phi i64 [ 0, %entry ], [ %n1, %loop1 ]\n  %n1 = add i64 %v1, 1\n"
        "  %c1 = icmp slt i64 %n1, 20\n  br i1 %c1, label %loop1, label %end\nend:\n  ret void\n}\n"
        "define void @kernel(ptr %p0) {\n  call void @kernel.body(ptr %p0)\n  ret void\n}\n"
    )
    found = planted_slower.a_tenth_more(text)
    assert found.count("icmp slt i64 %n1, 20") == found.count("icmp slt i64 %n1, 2\n") == 1
    assert "call void @kernel.more(ptr %p0)\n  call void @kernel.body(ptr %p0)\n" in found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sweep_that_was_killed_goes_on_where_it_was(
    settings: SweepSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "second.toml").write_text(MODEL.replace('"planted"', '"second"'), encoding="utf-8")
    config = tmp_path / "both.toml"
    config.write_text(
        '[regress]\nmodels = ["model.toml", "second.toml"]\nthreads = 1\nturns = 8\n',
        encoding="utf-8",
    )
    words = ["regress", str(config), "--store", str(settings.store)]
    root = str(Path(__file__).parents[2])
    running_one = subprocess.Popen(
        [sys.executable, "-m", "tunegrad", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    with running_one:
        assert running_one.stderr is not None
        for line in running_one.stderr:
            if line.startswith("planted on cpu: 3 kernels"):
                running_one.kill()
                break
    assert running_one.returncode == -signal.SIGKILL
    with open_store(settings.store) as store:
        (killed,) = [s for s in store.sessions() if s.command == "regress"]
    assert run([*words, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["sweep"] == killed.id
    assert "planted on cpu: measured already" in captured.err.replace("model", "planted")
    assert "second on cpu: 3 kernels" in captured.err


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_kernel_that_got_slower_is_tuned_again_for_the_time_that_was_given(
    settings: SweepSettings,
) -> None:
    with open_store(settings.store) as store:
        (key,) = [k for k, _ in store.kernels()]
    slower = Finding("regression", "cpu", SERIES, key, 1.1, None, "s", 0.0, 3, 1.0, 1.1)
    told: list[str] = []
    assert retuned(settings, (slower,), 6.0, told.append) == ("planted",)
    assert told == ["tuning planted on cpu again for 6 s"]
    with open_store(settings.store) as store:
        (session,) = [s for s in store.sessions() if s.command == "tune" and s.id != "s1"]
        trials = [t for k, _ in store.kernels() for t in store.history(k)]
    counts = Counter(t.kernel_key for t in trials if t.session == session.id)
    mine = counts.pop(key)
    assert mine > 3
    assert len(counts) >= 2
    assert all(count < mine for count in counts.values())
    assert {t.origin for t in trials if t.session == session.id and t.kernel_key != key} == {
        "default"
    }
