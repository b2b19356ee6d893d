"""The command ``tunegrad regress`` over scripted measurements: its exit codes, its files, one JSON
document, what it remembers of an interrupted sweep, and what it tunes again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from errno import ENOSPC
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulated_nights import HERE, MODEL, World, stored
from tunegrad.cli.app import run
from tunegrad.cli.files import write_whole
from tunegrad.db import open_store
from tunegrad.devices.processes import isolated
from tunegrad.errors import CandidateCrashed, DeviceError
from tunegrad.regress import Failed, Finding, SweepSettings
from tunegrad.regress import sweep as sweeping
from tunegrad.regress.measured import KernelTimes, ModelTimes
from tunegrad.regress.sweep import Swept, retuned

SAMPLES = (1e-3,) * 8


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a quiet machine, without processes."""
    monkeypatch.setattr(sweeping, "busy", lambda: "")
    monkeypatch.setattr(isolated, "start_fork_server", lambda _: None)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A sweep of two models with a store of its own."""
    config = tmp_path / "two.toml"
    config.write_text('[regress]\nmodels = ["mlp", "encoder"]\nturns = 8\n', encoding="utf-8")
    return ["regress", str(config), "--store", str(tmp_path / "a.db")]


def times(model: str, *failed: tuple[str, str]) -> ModelTimes:
    kernel = KernelTimes("matmul", "k1", 3, "p1", True, SAMPLES, SAMPLES)
    sticks = {"stream": (SAMPLES, "p2")}
    return ModelTimes(model, "graph", HERE, (SAMPLES, SAMPLES), (kernel,), sticks, failed)


def busy_times(model: str) -> ModelTimes:
    return replace(times(model), others_cpus=1.5, lacking_cpus=1.5)


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """The one JSON document on stdout."""
    return json.loads(capsys.readouterr().out)


# ---- an interrupted sweep


def script(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[str], ModelTimes]) -> list[str]:
    """Models are measured by these steps, one after the other; the names that were asked for."""
    asked: list[str] = []

    def measure(one: Any, *_: object) -> ModelTimes:
        asked.append(one.model.name)
        return steps[len(asked) - 1](one.model.name)

    monkeypatch.setattr(sweeping, "measure_model", measure)
    return asked


def crashes(_: str) -> ModelTimes:
    raise CandidateCrashed("signal 11")


def interrupts(_: str) -> ModelTimes:
    raise KeyboardInterrupt


def test_sweep_that_goes_on_remembers_what_failed_before(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lossy(name: str) -> ModelTimes:
        return times(name, ("softmax", "CandidateCrashed: signal 11"))

    asked = script(monkeypatch, lossy, interrupts, times)
    assert run([*words, "--json"]) == 130
    assert said(capsys)["interrupted"]
    assert run([*words, "--json"]) == 1
    assert asked == ["mlp", "encoder", "encoder"]
    assert said(capsys)["failed"] == [
        {"device": "cpu", "model": "mlp", "kernel": "softmax", "why": "CandidateCrashed: signal 11"}
    ]


def test_model_that_is_measured_again_did_not_fail(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script(monkeypatch, crashes, interrupts, times, interrupts, times)
    assert run(words) == 130
    assert run(words) == 130
    capsys.readouterr()
    assert run([*words, "--json"]) == 0
    assert said(capsys)["failed"] == []


def test_a_model_that_lacked_processors_is_said_and_stored_as_such(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    script(monkeypatch, busy_times, times)
    assert run([*words, "--json"]) == 0
    out = capsys.readouterr()
    assert "mlp on cpu: other processes used 1.5 CPUs meanwhile: it does not count" in out.err
    (text,) = json.loads(out.out)["uncounted"]
    assert text.startswith("mlp on cpu: other processes used 1.5 CPUs while it was timed")
    with open_store(tmp_path / "a.db") as store:
        state = {row.model: dict(row.state) for row in store.latencies()}
    assert (state["mlp"]["lacking_cpus"], state["mlp"]["others_cpus"]) == (1.5, 1.5)
    assert state["encoder"]["lacking_cpus"] == 0.0


# ---- exit codes, files and JSON, over twenty nights


@dataclass
class Night:
    """What the sweep of tonight does: mutable."""

    failed: tuple[Failed, ...] = ()
    count: int = 0
    meanwhile: Callable[[], object] = lambda: None


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    """The twentieth night of a store in which a kernel is 8 % slower since the 16th."""
    stored(tmp_path / "a.db", World(nights=20, kernels=6, step=(15, 2, 1.08)).run(11))
    tonight = Night()

    def swept(*_: object, **__: object) -> Swept:
        tonight.count += 1
        tonight.meanwhile()
        return Swept("night19", tonight.failed, interrupted=False)

    monkeypatch.setattr(sweeping, "sweep", swept)
    return tonight


LOST = (Failed("cpu", MODEL, "softmax", "signal 11"),)


def test_exit_code_is_3_for_a_regression_and_0_once_it_is_accepted(
    night: Night, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    night.failed = LOST
    assert run([*words, "--json"]) == 3
    slower = {f["series"] for f in said(capsys)["regressions"]}
    assert f"{MODEL}: k2" in slower
    assert run([*words, "--bless", "meant", "--json"]) == 0
    accepted = said(capsys)
    assert accepted["reason"] == "meant"
    assert {f["series"] for f in accepted["levels"]} == slower
    assert run(words) == 1
    night.failed = ()
    assert run(words) == 0


@pytest.mark.parametrize("option", ["--junit", "--markdown"])
def test_file_that_can_not_be_written_is_an_error_before_the_sweep(
    night: Night, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    for place in (tmp_path / "none" / "found", tmp_path):
        assert run([*words, "--json", option, str(place)]) == 1
        assert f"{place}: can not be written: " in said(capsys)["error"]["message"]
    assert night.count == 0


def test_file_that_is_lost_at_the_end_keeps_the_findings_and_the_exit_code(
    night: Night, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    night.meanwhile = folder.rmdir
    files = ["--junit", str(folder / "a.xml"), "--markdown", str(tmp_path / "a.md")]
    assert run([*words, "--json", *files]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["regressions"]
    assert f"error: {folder}/a.xml: can not be written: No such file" in captured.err
    assert "**slower**" in (tmp_path / "a.md").read_text(encoding="utf-8")
    run([*words, "--bless", "meant"])
    folder.mkdir()
    assert run([*words, *files]) == 1


def test_full_disk_leaves_the_file_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, real = tmp_path / "a.md", Path.write_bytes
    place.write_text("before", encoding="utf-8")

    def full(self: Path, data: bytes) -> int:
        real(self, data[:1])
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(place, b"after")
    monkeypatch.setattr(Path, "write_bytes", real)
    assert [p.name for p in tmp_path.iterdir()] == ["a.md"]
    assert place.read_text(encoding="utf-8") == "before"
    link = tmp_path / "link.md"
    link.symlink_to(place)
    write_whole(link, b"after")
    assert link.is_symlink()
    assert place.read_bytes() == b"after"


# ---- tuned again


def slower(series: str, key: str = "", device: str = "cpu") -> Finding:
    return Finding("regression", device, series, key, 1.1, None, "s", 0.0, 3, 1.0, 1.1)


FOUND = (
    slower("mlp: matmul", "k1"),
    slower("mlp", "graph"),
    slower("encoder", "graph"),
    replace(slower("resnet18", "graph"), kind="machine"),
)
SWEEP = SweepSettings(("mlp", "encoder", "resnet18"))


@dataclass
class Tunes:
    """What was tuned: mutable."""

    asked: list[tuple[str, float, frozenset[str], int]]
    end: Callable[[], object]

    def __call__(self, one: Any, observers: Any, *, only: frozenset[str]) -> Any:
        self.asked.append((one.model.name, one.budget_s, only, len(observers)))
        return [self.end()]


@pytest.fixture
def tunes(monkeypatch: pytest.MonkeyPatch) -> Tunes:
    found = Tunes([], lambda: SimpleNamespace(interrupted=False))
    monkeypatch.setattr(import_module("tunegrad.tune"), "tune_models", found)
    return found


def test_time_is_spent_on_the_kernels_that_got_slower_and_is_watched(tunes: Tunes) -> None:
    open_ones: list[object] = []

    @contextmanager
    def display() -> Iterator[Any]:
        open_ones.append(object())
        yield open_ones[-1]
        open_ones.pop()

    assert retuned(SWEEP, FOUND, 60.0, lambda _: None, display) == ("mlp", "encoder")
    assert tunes.asked == [
        ("mlp", 30.0, frozenset({"k1"}), 1),
        ("encoder", 30.0, frozenset(), 1),
    ]
    assert open_ones == []
    assert retuned(SWEEP, FOUND, 0.0, lambda _: None) == ()


def test_ctrl_c_begins_no_other_model(tunes: Tunes) -> None:
    tunes.end = lambda: SimpleNamespace(interrupted=True)
    told: list[str] = []
    assert retuned(SWEEP, FOUND, 60.0, told.append) == ("mlp",)
    assert told[-1] == "interrupted; nothing else is tuned again"

    def at_once() -> object:
        raise KeyboardInterrupt

    tunes.end = at_once
    assert retuned(SWEEP, FOUND, 60.0, told.append) == ()
    assert [name for name, *_ in tunes.asked] == ["mlp", "mlp"]


def test_model_that_can_not_be_tuned_again_stops_no_other(tunes: Tunes) -> None:
    def gone() -> object:
        if len(tunes.asked) == 1:
            raise DeviceError("device cpu: gone")
        return SimpleNamespace(interrupted=False)

    tunes.end = gone
    told: list[str] = []
    assert retuned(SWEEP, FOUND, 60.0, told.append) == ("encoder",)
    assert "mlp on cpu: not tuned again: device cpu: gone" in told
