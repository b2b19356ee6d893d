"""What ends a session ends it cleanly; and what the doctor says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from small_models import Listener, settings_of, trials_of, workload_in

from tunegrad import tune as tune_model
from tunegrad.db import open_store
from tunegrad.events import CandidateMeasured, Event
from tunegrad.explain import machine as examining
from tunegrad.tune import doctor


class Fragile(Listener):
    """Raises at its third candidate."""

    def observe(self, event: Event) -> None:
        super().observe(event)
        if len(self.of(CandidateMeasured)) == 3:
            raise RuntimeError("the display broke")


def test_observer_that_raises_ends_the_session_and_what_was_measured_stays(tmp_path: Path) -> None:
    store = tmp_path / "f.db"
    with pytest.raises(RuntimeError, match="the display broke"):
        tune_model(settings_of(tmp_path, 600.0, store), [Fragile()])
    with open_store(store, "write") as opened:  # the writer's lock is free again
        (session,) = opened.sessions()
        assert session.ended_s is not None
        assert len(trials_of(opened, workload_in(tmp_path))) == 3
        assert opened.verify() == []


def test_doctor_measures_peaks_and_names_versions() -> None:
    report = doctor()
    devices = {d.name: d for d in report.devices}
    assert devices["cpu"].usable
    assert 0 < report.fma_peak_one_thread_gflops <= 1.5 * report.fma_peak_gflops
    assert report.bandwidth_gb_per_s > 0
    assert "llvm" in {c.name for c in report.compilers}
    versions = {c.name: c.version for c in report.versions}
    assert versions["llvmlite"]
    assert all(
        "pip install 'tunegrad[" in name
        for name, v in versions.items()
        if not v and name != "tunegrad"
    )


def requirements(lines: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~! ]", line)[0] for line in lines}


PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
EXTRAS = {name: requirements(lines) for name, lines in PROJECT["optional-dependencies"].items()}
FOR_USERS = ["optuna", "opencl", "plot", "ray", "torch"]
"""Extras that an option of tunegrad needs. The cuda extra is for a device that there is not yet."""


def test_doctor_lists_every_package_of_the_extras_that_an_option_needs() -> None:
    assert set().union(*(EXTRAS[name] for name in FOR_USERS)) <= examining._EXTRAS.keys()


def test_doctor_names_an_extra_that_holds_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "_version", lambda _: "")
    hints = [
        re.fullmatch(r"(\w+) \(pip install 'tunegrad\[(\w+)\]'\)", row.name)
        for row in examining._versions()
    ]
    named = {found[1]: found[2] for found in hints if found}
    assert named.keys() == examining._EXTRAS.keys()
    for package, extra in named.items():
        holding = [name for name in (*FOR_USERS, "bench", "test") if package in EXTRAS[name]]
        assert extra == holding[0], f"{package} is of {holding}"


def test_doctor_lists_every_package_that_tunegrad_needs() -> None:
    assert requirements(PROJECT["dependencies"]) <= {row.name for row in examining._versions()}
