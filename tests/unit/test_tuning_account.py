"""What is left of a budget, and what is remembered of a search that stopped early."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from search_surface import MACHINE

from tunegrad.config import ModelSpec, TuneSettings
from tunegrad.db import Store, open_store
from tunegrad.trial import Policy
from tunegrad.tuning.budget import (
    Account,
    Costs,
    Goal,
    resumed_sessions,
    session_record,
    sessions_since,
)

SETTINGS = TuneSettings(ModelSpec("toy", "a:b"), "cpu", 2, 60.0, "beam", Path("s.db"), 0)


@pytest.fixture
def store() -> Store:
    return open_store(":memory:", "write")


def account(store: Store, settings: TuneSettings = SETTINGS, work: str = "work") -> Account:
    return Account(settings, Policy(), store, MACHINE, work, Costs())


def test_account_charges_each_second_once_and_later_sessions_see_it(store: Store) -> None:
    first = account(store)
    first.charge(10.0)
    first.charge(8.0)
    first.charge(25.0)
    assert (first.left_s, account(store).left_s) == (35.0, 35.0)
    assert account(store, work="other").left_s == 60.0
    assert account(store, replace(SETTINGS, seed=1)).left_s == 60.0
    assert account(store, replace(SETTINGS, warm_start=False)).left_s == 60.0


def test_account_of_a_search_that_stopped_early_has_nothing_left_within_that_budget(
    store: Store,
) -> None:
    first = account(store)
    first.charge(20.0)
    first.stop()
    again = account(store)
    assert again.over
    assert again.left_s == 0.0
    assert account(store, replace(SETTINGS, budget_s=30.0)).left_s == 0.0
    assert account(store, replace(SETTINGS, budget_s=100.0)).left_s == 80.0


@pytest.mark.parametrize("limits", [{"patience": 0}, {"target_ms": 1.0}, {"max_trials": 9}])
def test_account_of_other_limits_goes_on_from_what_was_spent(
    store: Store, limits: dict[str, float]
) -> None:
    first = account(store)
    first.charge(20.0)
    first.stop()
    assert account(store, replace(SETTINGS, **limits)).left_s == 40.0  # type: ignore[arg-type]


def test_account_that_stops_twice_remembers_the_larger_budget(store: Store) -> None:
    account(store).stop()
    account(store, replace(SETTINGS, budget_s=200.0)).stop()
    account(store).stop()
    assert account(store, replace(SETTINGS, budget_s=200.0)).over
    assert not account(store, replace(SETTINGS, budget_s=201.0)).over


def test_account_of_time_saved_is_no_time_spent(store: Store) -> None:
    first = account(store)
    first.charge(20.0)
    first.stop()
    assert store.stats().spent_s == 20.0


def test_sessions_with_other_limits_are_resumed_and_those_of_another_search_are_not(
    store: Store,
) -> None:
    others = {
        "larger": replace(SETTINGS, budget_s=600.0),
        "patient": replace(SETTINGS, patience=9, max_trials=50, target_ms=2.0),
        "searcher": replace(SETTINGS, searcher="random"),
        "together": replace(SETTINGS, others=(ModelSpec("toy2", "a:c"),)),
    }
    for name, settings in others.items():
        with store.session("tune", 0, session_record(settings, Policy()), "0", name):
            pass
    record = session_record(SETTINGS, Policy())
    assert resumed_sessions(store, record, SETTINGS.seed, "mine") == {"larger", "patient"}


def test_session_with_fewer_proposals_in_flight_is_not_resumed_and_what_it_spent_counts(
    store: Store,
) -> None:
    mine = replace(SETTINGS, in_flight=17)
    for name, settings in (("one", SETTINGS), ("ahead", mine)):
        with store.session("tune", 0, session_record(settings, Policy()), "0", name):
            pass
    assert resumed_sessions(store, session_record(mine, Policy()), mine.seed, "mine") == {"ahead"}
    account(store).charge(10.0)
    assert account(store, mine).left_s == 50.0


def test_sessions_since_the_first_of_some_are_those_that_began_with_or_after_it() -> None:
    clock = count()
    with open_store(":memory:", "write", clock=lambda: float(next(clock))) as store:
        for name in ("before", "mine", "between", "again", "after"):
            with store.session("tune", 0, {}, "0", name):
                pass
        assert sessions_since(store, frozenset({"again", "mine"})) == {
            "mine",
            "between",
            "again",
            "after",
        }
        assert sessions_since(store, frozenset({"again"})) == {"again", "after"}
        assert sessions_since(store, frozenset({"unknown"})) == {"unknown"}


def goal(
    predicted_ms: list[float], measured_ms: list[float], target_ms: float
) -> tuple[list[bool], Goal]:
    """What the goal says as the kernels' sum falls, and the goal."""
    search = SimpleNamespace(task=SimpleNamespace(uses=2), best_s=0.0)
    answers = iter(measured_ms)
    found = Goal(1e-3 * target_ms, lambda: [search], lambda: 1e-3 * next(answers))  # type: ignore[list-item]
    said = []
    for ms in predicted_ms:
        search.best_s = 0.5e-3 * ms
        said.append(found())
    return said, found


def test_goal_is_measured_only_where_it_is_predicted() -> None:
    said, found = goal([9.0, 6.0, 4.9], [5.0], target_ms=5.0)
    assert said == [False, False, True]
    assert found.measured == 1


def test_goal_that_is_missed_is_measured_again_when_the_kernels_make_up_for_it() -> None:
    # Measured 20 % above the prediction: 4.17 is the next time that it can be reached.
    said, found = goal([5.0, 4.8, 4.5, 4.2, 3.9], [6.0, 4.7], target_ms=5.0)
    assert said == [False, False, False, False, True]
    assert found.measured == 2


def test_goal_that_could_not_be_measured_is_tried_again_when_the_kernels_are_a_little_faster() -> (
    None
):
    said, found = goal([4.9, 4.89, 4.7], [float("inf"), 4.8], target_ms=5.0)
    assert said == [False, False, True]
    assert found.measured == 2


def test_goal_is_not_reached_while_a_kernel_has_no_time() -> None:
    assert goal([float("inf")], [], target_ms=5.0)[0] == [False]
