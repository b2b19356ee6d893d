"""A real session and its report: what it said of itself, and what was made of it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from small_models import settings_of, workload_in

from tunegrad.cli.app import run
from tunegrad.db import open_store
from tunegrad.events import Event, PhaseStarted
from tunegrad.tuning.budget import Costs
from tunegrad.tuning.reporting import gather
from tunegrad.tuning.reporting.records import facts_of
from tunegrad.tuning.session import run_session

pytestmark = pytest.mark.timing


class Watch:
    """A clock and an observer: every reading, and how many there were before each phase."""

    def __init__(self) -> None:
        self.readings_s: list[float] = []
        self.before: dict[str, int] = {}

    def __call__(self) -> float:
        self.readings_s.append(time.monotonic())
        return self.readings_s[-1]

    def observe(self, event: Event) -> None:
        if isinstance(event, PhaseStarted):
            self.before[event.name] = len(self.readings_s)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Watch]:
    folder, watch = tmp_path_factory.mktemp("tuned"), Watch()
    settings = replace(settings_of(folder, 600.0, folder / "tuned.db"), max_trials=16)
    run_session(settings, workload_in(folder), [watch], costs=Costs(watch))
    return folder / "tuned.db", watch


@pytest.fixture(scope="module")
def store(tuned: tuple[Path, Watch]) -> Path:
    return tuned[0]


def test_seconds_of_a_session_add_up_to_one_reading_of_its_clock_at_the_end(
    tuned: tuple[Path, Watch],
) -> None:
    store, watch = tuned
    with open_store(store) as opened:
        (session,) = opened.sessions()
    total_s = sum(facts_of(session).seconds.values())
    began_s, *_ = watch.readings_s
    last_s = watch.readings_s[watch.before["whole model"] :]
    assert min(abs(s - began_s - total_s) for s in last_s) < 1e-6


def test_session_says_its_limits_and_its_kernels(store: Path) -> None:
    with open_store(store) as opened:
        (session,) = opened.sessions()
        facts = facts_of(session)
        keys = {x.key for x in gather(store).pages[0].kernels}
    assert facts.peak_gflops is not None
    assert facts.memory_gb_per_s is not None
    assert set(facts.kernels) == keys
    for kernel in facts.kernels.values():
        assert kernel.default_s is not None
        assert kernel.tuned_s is not None
        assert kernel.layers
        if kernel.interval is not None:
            assert kernel.gain is not None
            assert kernel.interval[0] <= kernel.gain <= kernel.interval[1]


def test_state_of_the_machine_stays_beside_it(store: Path) -> None:
    with open_store(store) as opened:
        (session,) = opened.sessions()
    assert {"governor", "load_1m"} <= dict(session.state).keys()


def test_report_of_a_real_session_is_written(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert run(["report", "--store", str(store), "--session", "last", "-o", str(out)]) == 0
    page = out.read_text(encoding="utf-8")
    assert len(page) < 400_000
    for said in ("Kernels", "The search", "Roofline", "Where the seconds went", "FMA peak"):
        assert said in page


def test_store_with_facts_is_exported_and_imported_unchanged(store: Path, tmp_path: Path) -> None:
    lines, other = tmp_path / "a.jsonl", tmp_path / "b.db"
    assert run(["store", "export", "--store", str(store), "--out", str(lines)]) == 0
    assert run(["store", "import", str(lines), "--store", str(other)]) == 0
    with open_store(store) as a, open_store(other) as b:
        assert facts_of(a.sessions()[0]) == facts_of(b.sessions()[0])
