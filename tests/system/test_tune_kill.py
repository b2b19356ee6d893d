"""A tuner that is killed: what was committed stays, once, and the next run goes on from there.
One that is interrupted is in ``test_cli_live``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from small_models import (
    THREADS,
    Listener,
    model_file,
    settings_of,
    trials_of,
    undescribed,
    workload_in,
)

from tunegrad import tune as tune_model
from tunegrad.db import open_store
from tunegrad.events import CandidateMeasured
from tunegrad.trial import Trial

pytestmark = pytest.mark.timing

ROOT = Path(__file__).parents[2]
LIMIT_S = 40.0


def start(directory: Path, budget_s: float) -> subprocess.Popen[str]:
    """``tunegrad tune`` of the small model, in a process of its own."""
    command = [sys.executable, "-m", "tunegrad.cli", "tune", str(model_file(directory)), "--json"]
    command += [
        "--threads",
        str(THREADS),
        "--budget",
        str(budget_s),
        "--seed",
        "3",
        "--patience",
        "0",
    ]
    command += ["--store", str(directory / "k.db"), "--log", str(directory / "log.jsonl")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def events(directory: Path, name: str) -> list[dict[str, Any]]:
    """Events of one kind in the log, a half-written last line left out."""
    path = directory / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record["event"] == name:
            found.append(record)
    return found


def wait_for(directory: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until ``count`` candidates are in the log."""
    end = time.monotonic() + LIMIT_S
    while len(events(directory, "CandidateMeasured")) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"fewer than {count} candidates in {LIMIT_S} s"
        time.sleep(0.02)


def stored(directory: Path) -> list[Trial]:
    with open_store(directory / "k.db") as store:
        assert store.verify() == []
        return trials_of(store, workload_in(directory))


def one_row_each(trials: list[Trial]) -> None:
    """No schedule of a kernel, and no program of one, has two rows."""
    texts = Counter((t.kernel_key, t.actions) for t in trials)
    assert max(texts.values()) == 1
    defaults = {(t.kernel_key, t.program_hash) for t in trials if t.origin == "default"}
    programs = Counter(
        (t.kernel_key, t.program_hash) for t in trials if t.program_hash and t.origin != "default"
    )
    assert not defaults & programs.keys()
    assert max(programs.values(), default=1) == 1


@pytest.mark.parametrize(
    "kills", [2, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_killed_at_random_moments_nothing_is_lost_and_nothing_repeated(
    tmp_path: Path, kills: int
) -> None:
    """The store knows what was spent, and no worker is left."""
    rng = Random(kills)
    committed: set[Trial] = set()
    for n in range(kills):
        process = start(tmp_path, 600.0)
        count = len(events(tmp_path, "CandidateMeasured")) + rng.randrange(2, 40)
        wait_for(tmp_path, count if n < kills - 1 else max(count, 90), process)
        time.sleep(rng.uniform(0.0, 0.2))
        workers = descendants(process.pid)
        assert workers
        process.kill()
        process.communicate()
        end = time.monotonic() + LIMIT_S
        while any(map(alive, workers)):
            assert time.monotonic() < end, "workers outlive the tuner"
            time.sleep(0.05)
        trials = stored(tmp_path)
        one_row_each(trials)
        assert set(undescribed(committed)) <= set(undescribed(trials))
        committed = set(trials)
        told = len(events(tmp_path, "CandidateMeasured"))
        assert (
            told <= len(committed) <= told + kills
        )  # each kill may fall between a commit and its event

    with open_store(tmp_path / "k.db") as store:
        assert store.stats().spent_s > 0.1
    listener, settings = Listener(), settings_of(tmp_path, 600.0, tmp_path / "k.db")
    tune_model(replace(settings, max_trials=len(committed) + 4), [listener])
    final = stored(tmp_path)
    one_row_each(final)
    assert set(undescribed(committed)) <= set(undescribed(final))
    assert len(listener.of(CandidateMeasured)) == len(final) - len(committed) > 0


def descendants(pid: int) -> set[int]:
    import psutil

    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


def alive(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
