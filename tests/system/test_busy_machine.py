"""A machine that others keep busy, as the commands say it."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path

import pytest
from small_models import model_file

from tunegrad.cli.app import run

pytestmark = pytest.mark.timing

SAID = f"99.0 of the {len(os.sched_getaffinity(0))} CPUs"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model on a machine of which others use 99 CPUs."""
    monkeypatch.setattr("tunegrad.tuning.machine.probed", lambda: 99.0)
    for module in ("tuning.machine", "tuning"):
        patched = import_module(f"tunegrad.{module}")
        monkeypatch.setattr(patched, "others_cpus", lambda _before, _after: 99.0)
    return str(model_file(tmp_path))


def test_tune_says_so_at_its_start_and_at_its_end(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "s.db")
    words = ["--budget", "20s", "--max-trials", "4", "--threads", "1", "--store", store]
    assert run(["tune", model, *words]) == 0
    said = capsys.readouterr()
    begun = said.err.split("plans:")[0]
    assert f"warning: other processes use {SAID}: " in begun
    assert f"\nother processes used {SAID} meanwhile: " in said.out
    assert run(["tune", model, *words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["others_cpus"], report["busy"]) == (99.0, f"other processes use {SAID}")


@pytest.mark.parametrize("words", [["run"], ["explain", "--budget", "0.01"]])
def test_commands_that_time_say_so(
    words: list[str], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*words, model, "--threads", "1"]
    assert run(words) == 0
    assert f"\nother processes used {SAID} meanwhile: " in capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["others_cpus"], report["busy"]) == (99.0, f"other processes use {SAID}")
