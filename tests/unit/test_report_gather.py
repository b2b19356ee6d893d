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
from tests.simulated_nights import MODEL, World, stored
from tunegrad.cli.html import judgement
from tunegrad.cli.tables import finding_text
from tunegrad.db import Latency, merge_stores, open_store
from tunegrad.db.rows import machine_id
from tunegrad.errors import ConfigError
from tunegrad.paired import gain_interval
from tunegrad.regress import SweepSettings, bless
from tunegrad.regress.verdict import judge
from tunegrad.trial import Fingerprint, Status
from tunegrad.tuning.reporting import Judgement, ReportPage, SessionPage, gather
from tunegrad.tuning.reporting.candidates import search_of
from tunegrad.tuning.roofline import needed_flops


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


def test_search_has_every_candidate_on_the_seconds_that_its_kernel_was_given(
    tmp_path: Path,
) -> None:
    first, second = page_of(tmp_path).kernels
    search = first.search
    assert search is not None
    assert search.sources == ("default", "portfolio:beam")
    assert search.seconds == (2e-3, 3e-3, None, 1e-3)
    assert search.searched_s == pytest.approx([0.0, 0.5, 1.5, 2.5], abs=1e-3)  # not 1 to 4
    assert (search.default_s, search.default) == (2e-3, "")
    assert second.search is None


def test_parameters_have_their_importance_and_the_worth_of_the_winners_values() -> None:
    rows = [
        ("tile(axis=a, size=4) tile(axis=b, size=8) vectorize(axis=b1)", 1e-3),
        ("tile(axis=a, size=8) tile(axis=b, size=8) vectorize(axis=b1)", 1.1e-3),
        ("tile(axis=a, size=4) tile(axis=b, size=8)", 10e-3),
        ("tile(axis=a, size=8) tile(axis=b, size=8)", 11e-3),
        ("tile(axis=b, size=8)", 12e-3),
    ]
    trials = [trial(KEY, "", a, s, float(n), "beam", "s") for n, (a, s) in enumerate(rows)]
    found = search_of(trials, {id(t): 1.0 for t in trials}, rows[0][0])
    assert found is not None
    vectorize, tile = found.parameters  # "tile b" is the same in all
    assert (vectorize.name, vectorize.value, vectorize.levels) == ("vectorize", "b1", ("", "b1"))
    assert (vectorize.other_s, vectorize.without_s) == (None, 10e-3)
    assert (tile.name, tile.value, tile.levels) == ("tile a", "4", ("", "4", "8"))
    assert (tile.other_s, tile.without_s) == (1.1e-3, 12e-3)
    assert tile.importance < 0.2
    assert 0.9 < vectorize.importance <= 1.0


def test_neighbours_are_one_action_away_the_fastest_first(tmp_path: Path) -> None:
    rows = [
        (WINNER, 1e-3), ("tile(axis=b, size=8) vectorize(axis=b1)", 2e-3),
        ("tile(axis=b, size=16)", 1.5e-3), (f"{WINNER} unroll(axis=ra)", 0.9e-3), ("", 9e-3),
    ]  # fmt: skip
    trials = [trial(KEY, "", a, s, float(n), "beam", "s") for n, (a, s) in enumerate(rows)]
    found = search_of(trials, {id(t): 1.0 for t in trials}, WINNER)
    assert found is not None
    assert [(n.change, n.cost) for n in found.neighbours] == [
        ("with unroll(axis=ra)", pytest.approx(0.9)),
        ("without vectorize(axis=b1)", pytest.approx(1.5)),
        ("tile(axis=b, size=16)  ->  tile(axis=b, size=8)", pytest.approx(2.0)),
    ]


def test_bounds_are_by_the_limits_of_the_session(tmp_path: Path) -> None:
    first, _ = page_of(tmp_path).kernels
    assert first.flops
    assert first.unique_bytes
    assert first.flops_s == pytest.approx(first.flops / 100e9)
    assert first.bytes_s == pytest.approx(first.unique_bytes / 20e9)  # no cache is known
    assert first.bound_s == max(first.flops_s, first.bytes_s)


def test_peak_of_a_machine_is_the_highest_that_is_known_of_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db", "write") as store:
        write_session(store, "s1")
        store.add_facts("s1", (("peak_gflops", 185.0),))
        write_session(store, "s2")
    page = gather(tmp_path / "a.db", "s2").pages[0]
    assert page.facts.peak_gflops == 185.0
    assert page.kernels[0].flops_s == pytest.approx((page.kernels[0].flops or 0) / 185e9)
    assert "instead of the 100 GFLOP/s" in page.machine.raised
    assert "session s1" in page.machine.raised


def test_kernel_that_is_faster_than_the_peak_raises_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db", "write") as store:
        write_session(store, "s1")
        store.add_facts("s1", (("peak_gflops", 1e-3),))
    page = gather(tmp_path / "a.db", "s1").pages[0]
    first = page.kernels[0]
    assert first.after_s
    assert first.flops_s == pytest.approx(first.after_s)
    assert f"{first.name} is faster" in page.machine.raised


def test_session_that_did_not_end_has_the_kernels_that_it_planned(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db", "write") as store:
        write_session(store, "s1", with_facts=False)
        store.add_facts("s1", ((f"planned.{KEY}.layers", "layers.7"), (f"planned.{KEY}.uses", 3.0)))
    page = gather(tmp_path / "a.db", "s1").pages[0]
    assert [(k.key, k.uses, k.layers) for k in page.kernels] == [(KEY, 3, "layers.7")]
    assert page.left == 1


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
    from tunegrad.tuning.reporting.kernels import failures_of

    trials = read_contents(path)[0].trials
    (only,) = failures_of(trials, {KEY: "matmul"})
    assert (only.status, only.count, only.kernel) == (Status.CRASHED, 2, "matmul")
    assert only.message == "worker 12: off by 0.3"


def gathered(tmp_path: Path, *asked: str) -> ReportPage:
    return gather(store_of(tmp_path / "a.db", "a1", "a2", "b1"), *asked)


def test_store_has_the_newest_session_of_a_model_and_all_in_its_list(tmp_path: Path) -> None:
    page = gathered(tmp_path)
    assert page.whole_store
    assert [p.line.id for p in page.pages] == ["b1"]
    assert [x.id for x in page.sessions] == ["b1", "a2", "a1"]
    assert [len(h.rows) for h in page.histories] == [3]


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


def test_changes_of_level_are_where_a_judge_says(tmp_path: Path) -> None:
    path = store_of(tmp_path / "a.db", "a1", "a2", "a3")
    said = Judgement(begun={("small", "a3", machine_id(HERE))})
    page = gather(path, judge=lambda _, __: said)
    assert page.histories[0].changes == (2,)


def sweep_row(name: str, seconds: float, session: str, **versions: float | str) -> Latency:
    samples = tuple(seconds * s / AFTER[0] for s in AFTER)
    beside = () if " peer " in name or " yardstick " in name else BEFORE
    key = KEY if name.endswith("matmul") else name[::-1]
    return Latency(
        name, key, "tuned", HERE, samples, beside, session, 1000.0, tuple(versions.items())
    )


def sweep_page(tmp_path: Path, *rows: Latency) -> SessionPage:
    path = store_of(tmp_path / "a.db", "a1")
    with open_store(path, "write") as store, store.session("regress", 0, {}, "0.1.0", "n1"):
        for row in rows:
            store.record_latency(row)
    return gather(path, "n1").pages[0]


def test_sweep_has_its_models_and_their_kernels_by_all_of_their_launches(tmp_path: Path) -> None:
    page = sweep_page(
        tmp_path,
        sweep_row("small", 9e-3, "n1"),
        sweep_row("small: softmax", 2e-3, "n1", uses=1.0),
        sweep_row("small: matmul", 1e-3, "n1", uses=4.0),
        sweep_row("small: yardstick stream", 8e-3, "n1"),
    )
    assert page.line.models == ("small",)
    assert [x.model for x in page.line.latencies] == ["small"]
    assert [(k.name, k.uses, k.layers) for k in page.kernels] == [
        ("matmul", 4, "in small"),
        ("softmax", 1, "in small"),
    ]
    assert page.kernels[0].flops == needed_flops(GEMM)


def test_peer_of_a_sweep_is_no_kernel(tmp_path: Path) -> None:
    page = sweep_page(
        tmp_path,
        sweep_row("small", 9e-3, "n1"),
        sweep_row("small: matmul", 1e-3, "n1", uses=2.0),
        sweep_row("small: peer ort", 7e-3, "n1", schedule="peer"),
    )
    assert [k.name for k in page.kernels] == ["matmul"]
    assert [(p.model, p.peer, p.seconds) for p in page.peers] == [("small", "ort", 7e-3)]


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty nights; the third kernel is 8 % slower since the 16th."""
    world = World(nights=20, kernels=6, step=(15, 2, 1.08))
    return stored(tmp_path_factory.mktemp("nights") / "a.db", world.run(11))


def test_sweep_page_has_what_regress_says_of_it(nights: Path) -> None:
    with open_store(nights) as store:
        said = judge(store, "night19").findings
    found = gather(nights, "night19", judge=judgement).pages[0].findings
    assert found == tuple(map(finding_text, said))
    assert f"slower: {MODEL}: k2 on cpu" in found[0]
    assert "since sweep night15" in found[0]
    assert "with it changed revision: aaaa -> bbbb" in found[0]
    assert gather(nights, "night9", judge=judgement).pages[0].findings == ()


def test_step_in_a_history_is_where_regress_says_also_once_it_is_blessed(
    nights: Path, tmp_path: Path
) -> None:
    path = tmp_path / "b.db"
    merge_stores(path, [nights])
    bless(SweepSettings((), store=path), "meant")
    for place in (nights, path):
        charts = {h.model: h.changes for h in gather(place, judge=judgement).histories}
        assert charts[f"{MODEL}: k2"] == (15,)
        assert f"{MODEL}: k1" not in charts
    found = gather(path, "night19", judge=judgement).pages[0].findings
    assert found is not None
    assert not [x for x in found if x.startswith("slower")]


def test_slow_machine_begins_a_level_and_is_no_regression_in_the_report(tmp_path: Path) -> None:
    world = World(nights=20, kernels=6, machine=(14, 1.3))
    path = stored(tmp_path / "a.db", world.run(5))
    page = gather(path, "night19", judge=judgement)
    assert f"{MODEL}: yardstick stream" in {h.model for h in page.histories}
    found = page.pages[0].findings
    assert found is not None
    assert not [x for x in found if x.startswith("slower")]


def test_renewed_software_begins_no_history(tmp_path: Path) -> None:
    old, new = (
        Fingerprint((HERE.fields[0], ("compiler", version), *HERE.fields[1:]))
        for version in ("21", "22")
    )
    path = tmp_path / "a.db"
    with open_store(path, "write") as store:
        for name, at, where in (("n1", 1.0, old), ("n2", 2.0, new)):
            with store.session("regress", 0, {}, "0.1.0", name):
                row = sweep_row("small", 1e-3, name)
                store.record_latency(replace(row, fingerprint=where, created_s=at))
    (chart,) = gather(path, judge=judgement).histories
    assert [r.session for r in chart.rows] == ["n1", "n2"]


def test_session_that_was_killed_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with open_store(path, "write") as store:
        write_session(store, "s1", with_facts=False)
        killed = store.session("tune", 0, {"model": "small"}, "0.1.0", "killed")
        killed.__enter__()
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
