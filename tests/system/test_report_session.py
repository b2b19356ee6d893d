"""A real session and its report: what it said of itself, and what was made of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_models import settings_of

from tunegrad import tune as tune_model
from tunegrad.cli.app import run
from tunegrad.db import open_store
from tunegrad.tuning.facts import facts_of
from tunegrad.tuning.reporting import gather

pytest.importorskip("matplotlib", reason="charts need the plot extra")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    tune_model(settings_of(folder, 5.0, folder / "tuned.db"), [])
    return folder / "tuned.db"


def test_session_says_its_seconds_its_limits_and_its_kernels(store: Path) -> None:
    with open_store(store) as opened:
        (session,) = opened.sessions()
        facts = facts_of(session)
        keys = {x.key for x in gather(store).pages[0].kernels}
    assert session.ended_s is not None
    assert facts.peak_gflops is not None
    assert facts.memory_gb_per_s is not None
    assert sum(facts.seconds.values()) == pytest.approx(
        session.ended_s - session.started_s, rel=0.3, abs=2.0
    )
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
