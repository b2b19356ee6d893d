"""What a report says of a session: from rows alone, whatever of them is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.report_stores import (
    AFTER,
    BEFORE,
    GEMM,
    HERE,
    KEY,
    OTHER,
    WINNER,
    store_of,
    trial,
    write_session,
)
from tunegrad.cli.reporting.changes import changes_of
from tunegrad.db import Latency, open_store
from tunegrad.errors import ConfigError
from tunegrad.paired import gain_interval
from tunegrad.trial import Status
from tunegrad.tuning.reporting import ReportPage, SessionPage, gather


def page_of(tmp_path: Path, **given: object) -> SessionPage:
    with open_store(tmp_path / "a.db", "write") as store:
        write_session(store, "s1", **given)  # type: ignore[arg-type]  # keywords of the builder
    return gather(tmp_path / "a.db", "last").pages[0]


def test_kernels_have_the_times_of_the_whole_model_and_their_layers(tmp_path: Path) -> None:
    first, second = page_of(tmp_path).kernels
    assert (first.name, first.key, first.uses, first.layers) == (
        "matmul 64x64x64", KEY, 2, "layers.0",
    )  # fmt: skip
    assert (first.before_s, first.after_s, first.gain) == (2e-3, 1e-3, 2.0)
    assert (first.interval, first.measured, first.actions) == ((1.9, 2.1), "model", WINNER)
    assert first.flops
    assert first.unique_bytes
    assert (second.key, second.layers, second.interval) == (OTHER, "after layers.0", None)
    assert dict(first.candidates) == {"ok": 3, "crashed": 1}
    assert first.code == {"instructions": 37.0, "spills": 0.0}


def test_session_without_facts_has_the_race_of_its_winners(tmp_path: Path) -> None:
    first, second = page_of(tmp_path, with_facts=False).kernels
    assert (first.measured, first.before_s, first.after_s) == ("race", 2e-3, 1e-3)
    assert first.interval == gain_interval(BEFORE, AFTER)
    assert (second.measured, second.before_s, second.interval) == ("alone", 5e-4, None)


def test_session_that_settled_nothing_has_its_fastest_trial(tmp_path: Path) -> None:
    first, _ = page_of(tmp_path, with_facts=False, promoted=False).kernels
    assert (first.measured, first.before_s, first.after_s) == ("alone", 2e-3, 1e-3)
    assert (first.gain, first.interval) == (2.0, None)


def test_progress_is_the_sum_of_the_best_so_far(tmp_path: Path) -> None:
    times = [s for _, s in page_of(tmp_path).progress]
    assert times == pytest.approx([2 * 2e-3 + 5e-4, 2 * 1e-3 + 5e-4, 2 * 1e-3 + 5e-4])


def test_traces_are_the_best_so_far_of_each_source(tmp_path: Path) -> None:
    (trace,) = page_of(tmp_path).traces
    assert (trace.key, trace.default_s) == (KEY, 2e-3)
    default, beam = trace.series
    assert [s for _, s in default.points] == [2e-3, 2e-3]
    assert [s for _, s in beam.points] == [3e-3, 1e-3, 1e-3]
    assert [at for at, _ in beam.points] == pytest.approx([2.0, 4.0, 4.0], abs=1e-3)


def test_sources_say_who_proposed_what(tmp_path: Path) -> None:
    beam, default = page_of(tmp_path).sources
    assert (beam.origin, beam.candidates, beam.failed) == ("portfolio:beam", 3, 1)
    assert (beam.improvements, beam.winners) == (1, 1)
    assert (default.candidates, default.winners) == (2, 1)


def test_failures_that_differ_in_numbers_only_are_one_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with open_store(path, "write") as store:
        write_session(store, "s1", error="worker 12: off by 0.3")
        write_session(store, "s2", error="worker 7: off by 1e-3")
    from tunegrad.db import read_contents
    from tunegrad.tuning.reporting.failures import failures_of

    trials = read_contents(path)[0].trials
    (only,) = failures_of(trials, {KEY: "matmul"})
    assert (only.status, only.count, only.kernel) == (Status.CRASHED, 2, "matmul")
    assert only.message == "worker 12: off by 0.3"


def test_seconds_are_those_of_the_session_the_largest_first(tmp_path: Path) -> None:
    assert page_of(tmp_path).seconds == (("timing", 5.0), ("asking", 3.0), ("other", 0.5))


def test_older_session_has_the_seconds_of_its_trials(tmp_path: Path) -> None:
    assert page_of(tmp_path, with_facts=False).seconds == (
        ("compile (all processes)", pytest.approx(1.0)),
        ("timing (all processes)", pytest.approx(0.5)),
    )


def test_whole_model_has_a_gain_by_pairs(tmp_path: Path) -> None:
    (latency,) = page_of(tmp_path).line.latencies
    assert (latency.default_s, latency.tuned_s) == (2e-3, 1e-3)
    assert latency.interval == gain_interval(BEFORE, AFTER)


def gathered(tmp_path: Path, *asked: str) -> ReportPage:
    return gather(store_of(tmp_path / "a.db", "a1", "a2", "b1"), *asked)


def test_store_has_the_newest_session_of_a_model_and_all_in_its_list(tmp_path: Path) -> None:
    page = gathered(tmp_path)
    assert page.whole_store
    assert [p.line.id for p in page.pages] == ["b1"]
    assert [x.id for x in page.sessions] == ["b1", "a2", "a1"]
    assert [len(h.rows) for h in page.histories] == [3]


def test_session_is_named_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    assert gathered(tmp_path, "a2").pages[0].line.id == "a2"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("a", "2 sessions of .* begin with 'a'"),
        ("c", "no session of .* begins with 'c'; the newest are b1, a2, a1, or last"),
    ],
)
def test_unknown_session_is_an_error(tmp_path: Path, asked: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        gathered(tmp_path, asked)


def test_model_without_a_session_is_an_error(tmp_path: Path) -> None:
    path = store_of(tmp_path / "a.db", "a1")
    with pytest.raises(ConfigError, match=r"no session of model 'other'; it has .* small"):
        gather(path, "", ["other"])


def test_store_without_a_session_is_an_error(tmp_path: Path) -> None:
    open_store(tmp_path / "a.db", "write").close()
    with pytest.raises(ConfigError, match="no session that measured anything"):
        gather(tmp_path / "a.db")


def test_changes_of_level_are_where_a_detector_says(tmp_path: Path) -> None:
    path = store_of(tmp_path / "a.db", "a1", "a2", "a3")
    page = gather(path, changes_of=lambda rows: [len(rows) - 1])
    assert page.histories[0].changes == (2,)


def test_sweep_has_its_models_and_their_kernels(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with open_store(path, "write") as store, store.session("regress", 0, {}, "0.1.0", "n1"):
        for name in ("small", "small: matmul", "small: softmax", "small: yardstick copy"):
            store.record_latency(
                Latency(name, name[::-1], "tuned", HERE, AFTER, BEFORE, "n1", 1000.0)
            )
    page = gather(path, changes_of=lambda rows: [0] if len(rows) == 1 else [])
    (session,) = page.pages
    assert session.line.models == ("small",)
    assert [x.model for x in session.line.latencies] == ["small"]
    assert [(k.name, k.layers) for k in session.kernels] == [
        ("matmul", "in small"),
        ("softmax", "in small"),
    ]
    assert session.kernels[0].interval == gain_interval(BEFORE, AFTER)
    assert [h.model for h in page.histories][:3] == ["small", "small: matmul", "small: softmax"]
    assert [h.model for h in gather(path).histories] == ["small"]


def test_session_that_was_killed_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with open_store(path, "write") as store:
        write_session(store, "s1", with_facts=False)
        (session,) = store.sessions()
        store.keep_session(replace(session, id="killed", ended_s=None))
        store.add(trial(KEY, str(GEMM.canonical()), "", 2e-3, 1e9, "default", "killed"))
    page = gather(path, "killed").pages[0]
    assert page.line.seconds is None
    assert page.kernels[0].name == "matmul 64x64x64"


def test_store_prefers_sessions_that_searched(tmp_path: Path) -> None:
    path = store_of(tmp_path / "a.db", "a1")
    with open_store(path, "write") as store:
        settings = {"model": "small", "device": "cpu", "threads": 2}
        with store.session("tune", 0, settings, "0.1.0", "a2"):
            store.record_latency(Latency("small", "k", "tuned", HERE, AFTER, BEFORE, "a2", 9e9))
        with store.session("tune", 0, settings | {"threads": 1}, "0.1.0", "a3"):
            store.record_latency(Latency("small", "k", "tuned", HERE, AFTER, BEFORE, "a3", 9e9))
    page = gather(path)
    assert [(p.line.id, p.line.where) for p in page.pages] == [
        ("a3", "cpu, 1 thread"),
        ("a1", "cpu, 2 threads"),
    ]
    assert [x.id for x in page.sessions] == ["a3", "a2", "a1"]


@pytest.mark.parametrize(("slower", "changes"), [(1.0, ()), (1.3, (12,))])
def test_step_in_a_history_is_seen_where_it_begins(
    tmp_path: Path, slower: float, changes: tuple[int, ...]
) -> None:
    path = tmp_path / "a.db"
    with open_store(path, "write") as store, store.session("regress", 0, {}, "0.1.0", "n1"):
        for night in range(20):
            factor = (slower if night >= 12 else 1.0) * (1.0 + 0.01 * (night % 3))
            samples = tuple(factor * s for s in AFTER)
            store.record_latency(
                Latency("small", "k", "tuned", HERE, samples, BEFORE, "n1", 1000.0 + night)
            )
    assert gather(path, changes_of=changes_of).histories[0].changes == changes
