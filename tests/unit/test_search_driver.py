"""The search of one kernel: defaults first, everything committed, nothing twice, failures are
rows.
"""

import math
from random import Random

import pytest
from search_surface import (
    MACHINE,
    Clock,
    Killed,
    Surface,
    SurfaceMeasurer,
    SurfaceSpace,
    kernel,
    separable,
    trial_log,
)

from tunegrad.db import open_store
from tunegrad.errors import IllegalAction, StoreError
from tunegrad.events import CandidateMeasured, KernelFinished, KernelStarted, Warned
from tunegrad.search import (
    BeamSearcher,
    KernelSearch,
    Measured,
    Proposal,
    RandomSearcher,
    SearchTask,
    Winner,
)
from tunegrad.trial import Fingerprint, Measurement, Policy, Status

SPACE, SURFACE = separable(Random(1), decisions=4, options=4)
K = kernel("k")


@pytest.fixture
def store():
    with open_store(":memory:", "write") as opened:
        yield opened


def search(
    store,
    surface=SURFACE,
    space=SPACE,
    seed=0,
    cls=BeamSearcher,
    observe=None,
    kill_after=1 << 30,
    **log,
):
    measurer = SurfaceMeasurer({"k": surface}, kill_after=kill_after)
    observed = [] if observe is None else observe
    task = SearchTask.of(K)
    found = KernelSearch(
        task,
        space,
        cls(space, Random(seed)),
        measurer,
        trial_log(store, **log),
        observed.append,
    )
    return found, measurer


def steps(found, count, batch=8):
    for _ in range(count):
        found.step(batch)
    return found


def test_search_measures_the_default_before_anything_else(store):
    found, measurer = search(store)
    found.step(8)
    found.step(8)
    assert measurer.calls[0] == ("k", SPACE.defaults()[0].text)
    assert [t.origin for t in store.trials(K.key)][:2] == ["default", "beam"]


def test_search_commits_each_row_before_it_takes_the_next(store):
    found, measurer = search(store)
    rows_at_start = []
    plain = measurer.surfaces["k"].measure
    object.__setattr__(
        measurer,
        "surfaces",
        {"k": _Spy(SURFACE, lambda: rows_at_start.append(len(store.trials(K.key))))},
    )
    steps(found, 3)
    assert plain(SPACE.defaults()[0]).status is Status.OK
    assert rows_at_start == list(range(17))


class _Spy(Surface):
    def __init__(self, surface, before):
        super().__init__(surface.factors)
        object.__setattr__(self, "before", before)

    def measure(self, schedule, cost_s=0.05):
        self.before()
        return super().measure(schedule, cost_s)


def test_search_measures_no_text_and_no_program_twice(store):
    surface = Surface(SURFACE.factors, merged=frozenset({"d1"}))
    found, measurer = search(store, surface, cls=RandomSearcher)
    while not found.done:
        found.step(8)
    programs = [t.program_hash for t in store.trials(K.key)]
    assert len(programs) == len(set(programs)) == 4**3
    assert len(measurer.calls) == 4**3
    assert 0 < found._tally.same_program <= 4**4 - 4**3


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
def test_search_records_a_failure_as_one_row_and_goes_on(store, status):
    surface = Surface(SURFACE.factors, fails={("d0", c): status for c in (1, 2)})
    found, _ = search(store, surface)
    while not found.done:
        found.step(8)
    rows = store.trials(K.key)
    assert len(rows) > 0.9 * 4**4
    assert found.statuses == {"ok": 128, str(status): len(rows) - 128}
    best = min(t.measurement.seconds for t in rows)
    assert found.winner.seconds == best < found.default_s


def test_search_ends_with_the_default_where_nothing_is_faster(store):
    surface = Surface({(d, c): 2.0 for d in SPACE.sizes for c in range(1, 4)})
    found, _ = search(store, surface)
    steps(found, 12)
    assert found.winner.origin == "default"
    assert found.winner.seconds == found.default_s == found.best_s


def test_search_keeps_the_default_among_equals(store):
    found, _ = search(store, Surface({}))
    steps(found, 6)
    assert found.winner.actions == SPACE.defaults()[0].text


def test_search_without_a_step_ends_with_the_default_unmeasured(store):
    found, _ = search(store)
    assert found.winner == Winner(SPACE.defaults()[0].text, "default", None)
    assert found.winner.seconds == found.default_s == math.inf


def test_search_survives_a_default_that_fails(store):
    surface = Surface(SURFACE.factors, fails={("d0", 0): Status.CRASHED})
    found, _ = search(store, surface)
    steps(found, 10)
    assert found.default_s == math.inf
    assert found.winner.trial.measurement.status is Status.OK


def test_search_measures_a_default_again_that_could_not_be_compiled_in_time(store):
    late = Measurement(Status.TIMED_OUT, error="compiling: over 3 s", compile_s=3.0)
    default = SPACE.defaults()[0]
    task, log = SearchTask.of(K), trial_log(store, session="s0")
    log.record(task.key, task.text, SPACE.version, Proposal(default, "default"), Measured("", late))
    found, measurer = search(store, session="s1")
    assert default.text not in found.texts
    found.finish(found.begin_defaults())
    assert ("k", default.text) in measurer.calls
    assert found.default_s < math.inf


def test_search_without_a_legal_default_starts_from_the_unscheduled_kernel(store):
    class Bare(SurfaceSpace):
        def defaults(self):
            raise IllegalAction("no default fits")

    events = []
    found, measurer = search(store, space=Bare({"d0": 3}), observe=events)
    steps(found, 2)
    assert measurer.calls[0] == ("k", "")
    assert [e.message for e in events if isinstance(e, Warned)] == [
        "kernel k has no legal default schedule: no default fits"
    ]


def test_search_emits_one_event_for_each_row(store):
    events = []
    found, _ = search(store, observe=events)
    steps(found, 4)
    measured = [e for e in events if isinstance(e, CandidateMeasured)]
    rows = store.trials(K.key)
    assert [(e.actions, e.seconds, e.origin) for e in measured] == [
        (t.actions, t.measurement.seconds, t.origin) for t in rows
    ]
    assert [e.best_s for e in measured] == [
        min(t.measurement.seconds for t in rows[: i + 1]) for i in range(len(rows))
    ]


def test_search_says_where_it_starts_and_ends(store):
    found, _ = search(store)
    steps(found, 3)
    assert found.started() == KernelStarted("k", K.key, 1, K.flops, K.unique_bytes)
    end = found.finished()
    assert isinstance(end, KernelFinished)
    assert (end.default_s, end.best_s, end.actions) == (
        found.default_s,
        found.best_s,
        found.winner.actions,
    )
    assert end.candidates == {"ok": 17}


def test_search_step_reports_cost_and_improvement(store):
    found, _ = search(store)
    first, second = found.step(8), found.step(8)
    assert first.cost_s == pytest.approx(0.05)
    assert first.improvement == 0.0
    assert second.cost_s == pytest.approx(8 * 0.05)
    assert second.improvement == pytest.approx(1 - found.best_s / found.default_s)


def test_search_reckons_a_timeout_with_what_it_cost(store):
    surface = Surface({}, fails={("d0", c): Status.TIMED_OUT for c in range(4)})
    found, measurer = search(store, surface)
    assert found.step(8).cost_s == measurer.timeout_s


def test_search_reckons_a_timeout_that_tells_no_time_with_the_limit(store):
    log = trial_log(store, policy=Policy(timeout_s=3.0))
    assert log.cost_s(Measurement(Status.TIMED_OUT)) == 3.0
    assert log.cost_s(Measurement(Status.TIMED_OUT, lower_s=0.5, timing_s=1.0)) == 1.5


def test_search_finalists_are_the_fastest_of_different_programs(store):
    found, _ = search(store)
    steps(found, 8)
    times = [t.measurement.seconds for t in found.finalists(5)]
    assert times == sorted(t.measurement.seconds for t in store.trials(K.key))[:5]
    assert len({t.program_hash for t in found.finalists(5)}) == 5


def test_search_stops_where_the_store_can_not_be_written(store):
    found, _ = search(store)
    found.step(8)
    store.add = _refuse
    with pytest.raises(StoreError, match="disk full"):
        found.step(8)


def _refuse(trial):
    raise StoreError("store: disk full")


# ---- what is stored already
# ------------------------------------------------------------------------------------------


def test_search_tells_another_sessions_rows_and_measures_none_again(store):
    first, _ = search(store, session="s1", seed=0)
    steps(first, 10)
    old = {t.actions for t in store.trials(K.key)}
    second, measurer = search(store, session="s2", seed=9)
    assert second.best_s == first.best_s
    steps(second, 10)
    assert measurer.calls
    assert not old & {text for _, text in measurer.calls}
    assert second.default_s == first.default_s


def test_search_resumed_on_a_finished_store_measures_nothing(store):
    first, _ = search(store)
    while not first.done:
        first.step(8)
    second, measurer = search(store, session="s2", resumed={"s1"})
    while not second.done:
        second.step(8)
    assert measurer.calls == []
    assert second.winner == first.winner


@pytest.mark.parametrize("what", ["fingerprint", "policy"])
def test_search_counts_no_row_of_another_machine_or_policy(store, what):
    other = {"fingerprint": Fingerprint((("arch", "other"),)), "policy": Policy(cache="cold")}[what]
    steps(search(store, session="s1", **{what: other})[0], 4)
    second, measurer = search(store, session="s2")
    assert second.best_s == math.inf
    steps(second, 2)
    assert len(measurer.calls) == 9
    assert MACHINE in {t.fingerprint for t in store.trials(K.key)}


def test_search_counts_no_row_of_another_space_version(store):
    steps(search(store, session="s1")[0], 2)
    newer = SurfaceSpace(SPACE.sizes, version=2)
    found, _ = search(store, space=newer, session="s2")
    assert found.best_s == math.inf


def test_search_survives_a_stored_text_that_does_not_parse(store):
    found, _ = search(store)
    found.step(8)
    row = store.trials(K.key)[0]
    from dataclasses import replace

    store.add(replace(row, actions="conjure(axis=i)", program_hash="other"))
    again, _ = search(store, session="s2")
    steps(again, 3)
    assert again.statuses == {"ok": 16}


@pytest.mark.parametrize("cls", [BeamSearcher, RandomSearcher])
def test_search_killed_at_any_point_resumes_to_the_undisturbed_end(cls):
    surface = Surface(SURFACE.factors, fails={("d3", 2): Status.WRONG}, merged=frozenset({"d2"}))
    with open_store(":memory:", "write") as store:
        whole, measurer = search(store, surface, cls=cls)
        steps(whole, 6)
        rows = [(t.actions, t.origin, t.measurement) for t in store.trials(K.key)]
        trials = len(measurer.calls)
    for k in range(trials):
        with open_store(":memory:", "write") as store:
            cut, _ = search(store, surface, cls=cls, session="s1", kill_after=k)
            with pytest.raises(Killed):
                steps(cut, 6)
            assert len(store.trials(K.key)) == k
            again, measurer = search(store, surface, cls=cls, session="s2", resumed={"s1"})
            steps(again, 6)
            assert len(measurer.calls) == trials - k
            assert [(t.actions, t.origin, t.measurement) for t in store.trials(K.key)] == rows
            assert again.winner.actions == whole.winner.actions


def test_search_resumed_and_never_stepped_still_has_the_stored_winner(store):
    first, _ = search(store, session="s1")
    steps(first, 6)
    again, _ = search(store, session="s2", resumed={"s1"})
    assert again.best_s == math.inf
    assert again.winner == first.winner


def test_search_clock_of_the_measurer_is_the_only_one(store):
    clock = Clock()
    measurer = SurfaceMeasurer({"k": SURFACE}, clock)
    found = KernelSearch(
        SearchTask.of(K), SPACE, BeamSearcher(SPACE, Random(0)), measurer, trial_log(store)
    )
    steps(found, 3)
    assert clock.now_s == pytest.approx(17 * 0.05)
