"""A search ends early for a stated reason, not too early on what was recorded; a resumed one ends
where it would.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from search_surface import (
    COST_S,
    SPACE,
    SURFACE,
    Clock,
    Killed,
    ModelCase,
    Surface,
    SurfaceSpace,
    trial_log,
)

from benchmarks.recorded import RecordedSpace, ReplayMeasurer
from benchmarks.recorded.bench import LoadedSpace, find_spaces
from tunegrad.db import open_store
from tunegrad.opts import Schedule
from tunegrad.search import (
    BeamSearcher,
    KernelSearch,
    Measured,
    ModelSearch,
    SearchTask,
    StopRule,
    make_searcher,
)
from tunegrad.search.promote import LEAST_EFFECT
from tunegrad.search.stopping import potential
from tunegrad.trial import Status


@cache
def recorded() -> tuple[LoadedSpace, ...]:
    """Return the recorded spaces, read when the first test asks: collecting reads no files."""
    return find_spaces([Path(__file__).parents[1] / "data" / "spaces"])


class Replay:
    """A recording that takes time to answer."""

    def __init__(self, inner: ReplayMeasurer, clock: Clock) -> None:
        self.inner, self.clock = inner, clock

    def measure(
        self, kernel: object, schedules: Sequence[Schedule], best_s: float, known: Collection[str]
    ) -> Iterator[Measured | None]:
        for found in self.inner.measure(kernel, schedules, best_s, known):  # type: ignore[arg-type]  # it has a key
            self.clock.now_s += COST_S
            yield found


def recorded_model(searcher: str, seed: int, rule: StopRule, budget_s: float = 1e5) -> ModelSearch:
    """All recorded kernels as one model, in which each takes as long as the others by default."""
    clock = Clock()
    log = trial_log(open_store(":memory:", "write"))
    searches = []
    for s in recorded():
        r = s.recording
        space = RecordedSpace(r)
        default = space.defaults()[0].text
        default_s = next(t.measurement.seconds for t in r.trials if t.actions == default)
        task = SearchTask(
            SimpleNamespace(key=r.kernel_key, name=s.name),  # type: ignore[arg-type]
            s.name, r.kernel_key, r.kernel_text, round(1.0 / default_s), 1000, 512,
        )  # fmt: skip
        searches.append(
            KernelSearch(
                task,
                space,
                make_searcher(searcher, space, Random(seed)),
                Replay(ReplayMeasurer(r), clock),
                log,
            )
        )
    return ModelSearch(searches, budget_s, clock, lambda _: None, rule=rule)


def model_s(search: ModelSearch) -> float:
    return sum(s.task.uses * s.best_s for s in search.searches)


def trials_of(search: ModelSearch) -> int:
    return sum(sum(s.statuses.values()) for s in search.searches)


@cache
def stopped_by_gain(searcher: str) -> ModelSearch:
    search = recorded_model(searcher, 0, StopRule())
    search.run()
    return search


@pytest.mark.parametrize("searcher", ["beam", "random"])
def test_stopping_by_expected_gain_leaves_little_of_what_was_recorded(searcher: str) -> None:
    search = stopped_by_gain(searcher)
    optimum_s = sum(
        s.task.uses * r.recording.best_s for s, r in zip(search.searches, recorded(), strict=True)
    )
    assert search.stopped == "gain"
    assert model_s(search) <= 1.02 * optimum_s
    assert trials_of(search) < 0.6 * sum(s.recording.programs for s in recorded())


def test_stopping_by_expected_gain_lets_a_search_go_on_that_still_finds_something() -> None:
    """Half of the trials that it stops after would have been too few."""
    whole = stopped_by_gain("random")
    half = recorded_model("random", 0, StopRule(trials=trials_of(whole) // 8))
    half.run()
    assert half.stopped == "trials"
    assert model_s(half) > 1.02 * model_s(whole)


def test_stopping_potential_falls_and_is_spent_in_the_end() -> None:
    values = [potential(n) for n in range(400)]
    assert values == sorted(values, reverse=True)
    assert 0.1 < values[0] < 1.0
    assert values[100] > LEAST_EFFECT > values[-1] > 0.0


TWO = {"a": SURFACE, "b": Surface({}, base_s=1.5e-3)}


def test_stopping_never_is_what_patience_zero_says() -> None:
    case = ModelCase({"a": Surface({})}, 60.0, rule=StopRule(patience=0)).run()
    assert case.model.stopped == "budget"
    assert case.clock.now_s > 50.0


@pytest.mark.parametrize("patience", [40, 100])
def test_stopping_by_patience_comes_after_so_many_vain_trials(patience: int) -> None:
    case = ModelCase({"a": Surface({})}, rule=StopRule(patience=patience)).run()
    assert case.model.stopped == "patience"
    assert patience < len(case.measurer.calls) <= patience + 1 + 8


def test_stopping_by_patience_starts_again_with_a_gain() -> None:
    case = ModelCase(TWO, rule=StopRule(patience=60)).run()
    seconds = [
        TWO[name].seconds(Schedule.parse(text)) for name, text in case.measurer.calls if name == "a"
    ]
    last = max(i for i, s in enumerate(seconds) if s < 0.99 * min(seconds[:i], default=math.inf))
    assert case.model.stopped == "patience"
    assert last > 0
    assert len(case.measurer.calls) > last + 60


def test_stopping_counts_many_small_gains_as_what_they_add_up_to() -> None:
    """Each step saves 0.4 %, which is not notable; five of them are."""
    slope = Surface({(f"d{i}", c): 0.996**c for i in range(6) for c in range(6)})
    case = ModelCase({"a": slope}, rule=StopRule(patience=48)).run()
    assert case.model.searches[0].best_s < 0.93e-3


@pytest.mark.parametrize("most", [1, 2, 3, 17, 40])
def test_stopping_by_trials_measures_no_more_than_that(most: int) -> None:
    case = ModelCase(TWO, rule=StopRule(trials=most)).run()
    assert case.model.stopped == "trials"
    assert len(case.measurer.calls) == most


def test_stopping_by_trials_survives_programs_that_are_known() -> None:
    merged = Surface(SURFACE.factors, merged=frozenset({"d0", "d1"}))
    case = ModelCase({"a": merged}, rule=StopRule(trials=50)).run()
    assert case.model.searches[0]._tally.same_program > 0
    assert len(case.measurer.calls) == 50


def test_stopping_when_the_goal_is_reached() -> None:
    goal_s = 0.8 * SURFACE.seconds(SPACE.defaults()[0])
    case = ModelCase({"a": SURFACE}, rule=StopRule())
    case.model = ModelSearch(
        case.model.searches, 1e4, case.clock, lambda _: None,
        rule=StopRule(reached=lambda: case.model.searches[0].best_s <= goal_s),
    )  # fmt: skip
    case.run()
    assert case.model.stopped == "target"
    assert case.model.searches[0].best_s <= goal_s
    assert len(case.measurer.calls) < 60


def test_stopping_a_kernel_that_never_runs_does_not_hold_the_search_up_for_ever() -> None:
    broken = Surface({}, fails={("d0", c): Status.CRASHED for c in range(6)})
    case = ModelCase({"broken": broken, "fine": SURFACE}, budget_s=1e6, rule=StopRule()).run()
    assert case.model.stopped == "gain"


def test_stopping_says_exhausted_where_nothing_is_left_to_try() -> None:
    case = ModelCase({"a": Surface({})}, 1e9, rule=StopRule(patience=0))
    found, space = case.model.searches[0], SurfaceSpace({"d0": 3})
    found.space, found.searcher = space, BeamSearcher(space, Random(0))
    case.run()
    assert case.model.stopped == "exhausted"


def test_stopping_resumed_is_where_the_undisturbed_search_stopped() -> None:
    rule = StopRule(patience=50)
    whole = ModelCase(TWO, rule=rule).run()
    order = whole.measurer.calls
    for k in range(1, len(order), 29):
        cut = ModelCase(TWO, rule=rule, kill_after=k)
        with pytest.raises(Killed):
            cut.run()
        assert cut.model.stopped == "interrupted"
        again = ModelCase(TWO, rule=rule, store=cut.store, session="s2", resumed={"s1"}).run()
        assert again.measurer.calls == order[k:]
        assert again.model.stopped == "patience"
    last = ModelCase(TWO, rule=rule, store=whole.store, session="s3", resumed={"s1"}).run()
    assert last.measurer.calls == []
