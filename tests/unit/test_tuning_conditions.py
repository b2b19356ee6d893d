"""What is kept with every session and latency: versions, and the state of the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tunegrad
from tunegrad.db import MEMORY, open_store
from tunegrad.trial import Fingerprint
from tunegrad.tuning.machine import machine_state, record_latency, revision, versions

HERE = Fingerprint((("device", "cpu"),))


def governed(folder: Path, monkeypatch: pytest.MonkeyPatch, **governors: str) -> dict[str, object]:
    """The state of a machine whose processors have these governors."""
    for cpu, text in governors.items():
        (folder / cpu / "cpufreq").mkdir(parents=True)
        (folder / cpu / "cpufreq" / "scaling_governor").write_text(text, encoding="utf-8")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 9.0, 9.0))
    return dict(machine_state(folder, others=0.75))


def test_state_has_the_governor_and_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = governed(
        tmp_path, monkeypatch, cpu0="performance\n", cpu1="performance\n", cpu2="powersave\n"
    )
    assert state == {"governor": "performance", "load_1m": 1.5, "others_cpus": 0.75}


def test_state_names_every_governor_and_unknown_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = governed(tmp_path, monkeypatch, cpu0="schedutil")
    assert state["governor"] == "schedutil+unknown"


def test_what_a_gpu_says_of_itself_stands_in_the_order_of_names() -> None:
    told = ("clock_reasons", 0.0), ("power_w", 131.5), ("sm_mhz", 1980.0)
    names = [name for name, _ in machine_state(others=0.75, device=told)]
    assert names == sorted(names)
    assert set(names) > {name for name, _ in told}


def test_versions_are_of_what_makes_and_times_the_code() -> None:
    found = dict(versions(HERE))
    assert [name for name in found if name != "revision"] == [
        "compiler",
        "numpy",
        "python",
        "tunegrad",
    ]
    assert found["tunegrad"] == tunegrad.__version__
    assert all(found.values())


def test_a_latency_stands_beside_the_default_s_with_its_conditions() -> None:
    work = cast(Any, SimpleNamespace(name="mlp", key="k" * 32))
    with open_store(MEMORY, "write") as store:
        record_latency(store, work, HERE, "s1", ([1e-3, 2e-3], [3e-3, 4e-3]))
        (found,) = store.latencies("mlp", HERE)
    assert (found.kind, found.model_key, found.session) == ("tuned", "k" * 32, "s1")
    assert (found.samples_s, found.default_samples_s) == ((1e-3, 2e-3), (3e-3, 4e-3))
    assert found.versions == versions(HERE)
    assert [name for name, _ in found.state] == ["governor", "load_1m", "others_cpus"]
    assert found.created_s > 1e9


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_revision_is_of_a_tree_that_tracks_the_package(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")

    def git(*words: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    assert revision.__wrapped__(package) == ""
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    first = git("rev-parse", "HEAD")[:12]
    assert revision.__wrapped__(package) == first
    (package / "__init__.py").write_text("1", encoding="utf-8")
    assert revision.__wrapped__(package) == f"{first}-dirty"
