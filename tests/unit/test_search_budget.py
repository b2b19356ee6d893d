"""The budget goes where it buys most, is kept, and whatever it is, every kernel ends with a
winner.
"""

import math
from collections import Counter
from random import Random

import pytest
from search_surface import COST_S, SPACE, SURFACE, Killed, ModelCase, Surface, SurfaceSpace

from tunegrad.db import open_store
from tunegrad.events import BudgetSpent, KernelFinished, KernelStarted
from tunegrad.search import BeamSearcher, BudgetPolicy, RandomSearcher, StopRule
from tunegrad.trial import Status


class Case(ModelCase):
    @property
    def trials(self):
        return Counter(name for name, _ in self.measurer.calls)

    def winners(self):
        return {s.task.name: s.winner.actions for s in self.model.searches}


def flat(base_s):
    return Surface({}, base_s=base_s)


def test_search_budget_measures_every_default_first():
    case = Case(dict.fromkeys("abc", SURFACE), 30.0).run()
    assert {name for name, _ in case.measurer.calls[:3]} == {"a", "b", "c"}
    assert {text for _, text in case.measurer.calls[:3]} == {SPACE.defaults()[0].text}


def test_search_budget_goes_to_the_kernel_with_headroom():
    # Alike in share of the time, but "low" stands at 98 % of what the machine allows.
    case = Case(
        {"low": flat(1e-3), "high": flat(1e-3)}, 40.0, floors={"low": 0.98e-3, "high": 0.2e-3}
    ).run()
    assert case.trials["high"] > 5 * case.trials["low"]


def test_search_budget_goes_by_share_of_the_model_where_nothing_improves():
    case = Case({"a": flat(1e-3), "b": flat(1e-3)}, 80.0, uses={"a": 4, "b": 1}).run()
    assert 3.0 < case.trials["a"] / case.trials["b"] < 5.5


def test_search_budget_goes_to_the_kernel_that_improves():
    case = Case({"stuck": flat(1e-3), "moving": SURFACE}, 12.0).run()
    assert case.trials["moving"] > 1.5 * case.trials["stuck"]


def test_search_budget_prefers_cheap_candidates_for_equal_gain():
    class Slow(Surface):
        def measure(self, schedule, cost_s=0.05):
            case.clock.now_s += 19 * cost_s
            return super().measure(schedule, 20 * cost_s)

    case = Case({"slow": Slow({}), "quick": flat(1e-3)}, 60.0)
    case.run()
    assert case.trials["quick"] > 4 * case.trials["slow"]


def test_search_budget_gives_every_kernel_something():
    case = Case({"huge": flat(1.0), "small": flat(1e-5)}, 30.0).run()
    assert case.trials["small"] >= 1 + 8


def test_search_budget_is_spent_and_no_more():
    case = Case({"a": SURFACE, "b": SURFACE}, 10.0).run()
    assert 9.9 <= case.clock.now_s <= 10.0 + 1e-9


@pytest.mark.parametrize("cls", [BeamSearcher, RandomSearcher])
@pytest.mark.parametrize("budget_s", [0.0, 0.04, 0.11, 0.3, 1.0, 5.0])
def test_search_budget_never_ends_slower_than_the_defaults(budget_s, cls):
    case = Case(dict.fromkeys("abc", SURFACE), budget_s, cls=cls).run()
    for s in case.model.searches:
        default_s = SURFACE.seconds(SPACE.defaults()[0])
        assert s.winner.seconds <= default_s or s.winner.trial is None
        assert s.winner.trial is not None or s.winner.actions == SPACE.defaults()[0].text
    assert case.clock.now_s <= budget_s + COST_S


def test_search_budget_of_nothing_measures_nothing_and_has_winners():
    case = Case({"a": SURFACE, "b": SURFACE}, 0.0).run()
    assert case.measurer.calls == []
    assert case.winners() == dict.fromkeys("ab", SPACE.defaults()[0].text)
    assert all(s.winner.origin == "default" and s.winner.trial is None for s in case.model.searches)


def test_search_budget_that_is_over_before_it_begins_measures_the_default_of_the_heaviest():
    case = Case({"a": SURFACE, "b": SURFACE}, 0.05, uses={"b": 2})
    case.clock.now_s += 1.0  # the machine was busy with something else
    case.run()
    assert case.measurer.calls == [("b", SPACE.defaults()[0].text)]


def test_search_budget_of_nothing_on_a_full_store_has_its_winners():
    first = Case({"a": SURFACE, "b": SURFACE}, 10.0).run()
    again = Case({"a": SURFACE, "b": SURFACE}, 0.0, store=first.store, session="s2").run()
    assert again.winners() == first.winners()
    assert again.measurer.calls == []


def test_search_budget_ends_early_when_nothing_is_left_to_try():
    case = Case({"a": flat(1e-3)}, 1e6)
    space = SurfaceSpace({"d0": 3})
    found = case.model.searches[0]
    found.space, found.searcher = space, BeamSearcher(space, Random(0))
    case.run()
    assert case.model.done
    assert case.clock.now_s < 1.0


def test_search_budget_survives_a_kernel_that_never_runs():
    broken = Surface({}, fails={("d0", c): Status.CRASHED for c in range(6)})
    case = Case({"broken": broken, "fine": SURFACE}, 20.0).run()
    found = {s.task.name: s.winner for s in case.model.searches}
    assert found["broken"].trial is None
    assert found["fine"].seconds < SURFACE.seconds(SPACE.defaults()[0])


def test_search_budget_same_timings_give_the_same_trials():
    runs = [Case({"a": SURFACE, "b": flat(2e-3)}, 15.0).run().measurer.calls for _ in range(2)]
    assert runs[0] == runs[1]


def test_search_budget_killed_at_any_point_resumes_to_the_undisturbed_end():
    surfaces = {
        "a": Surface(
            SURFACE.factors, fails={("d3", 2): Status.TIMED_OUT}, merged=frozenset({"d2"})
        ),
        "b": flat(1.5e-3),
        "c": SURFACE,
    }
    whole = Case(surfaces, 6.0).run()
    order = whole.measurer.calls
    for k in range(0, len(order), 3):
        cut = Case(surfaces, 6.0, kill_after=k, session="s1")
        with pytest.raises(Killed):
            cut.run()
        assert cut.measurer.calls == order[:k]
        again = Case(surfaces, 6.0, store=cut.store, session="s2", resumed={"s1"}).run()
        assert again.measurer.calls == order[k:]
        assert again.winners() == whole.winners()


def test_search_budget_killed_twice_resumes_to_the_undisturbed_end():
    surfaces = {"a": SURFACE, "b": flat(1.5e-3)}
    whole = Case(surfaces, 6.0).run()
    store, sessions = open_store(":memory:", "write"), []
    for i, kill_after in enumerate((20, 31, 17)):
        session = f"s{i}"
        with pytest.raises(Killed):
            Case(
                surfaces, 6.0, store=store, session=session, resumed=sessions, kill_after=kill_after
            ).run()
        sessions.append(session)
    last = Case(surfaces, 6.0, store=store, session="last", resumed=sessions).run()
    assert last.measurer.calls == whole.measurer.calls[68:]
    assert last.winners() == whole.winners()


def test_search_budget_of_a_finished_run_measures_nothing_again():
    surfaces = {"a": SURFACE, "b": flat(1.5e-3)}
    first = Case(surfaces, 6.0).run()
    again = Case(surfaces, 6.0, store=first.store, session="s2", resumed={"s1"}).run()
    assert again.measurer.calls == []
    assert again.winners() == first.winners()


def test_search_budget_uncharged_goes_on_where_the_last_run_stopped():
    surfaces = {"a": SURFACE, "b": flat(1.5e-3)}
    first = Case(surfaces, 6.0).run()
    policy = BudgetPolicy(charge_resumed=False)
    again = Case(
        surfaces, 6.0, store=first.store, session="s2", resumed={"s1"}, policy=policy
    ).run()
    assert len(again.measurer.calls) >= 80
    assert not set(again.measurer.calls) & set(first.measurer.calls)


def test_search_budget_says_which_kernel_and_what_is_spent():
    case = Case({"a": SURFACE, "b": flat(1.5e-3)}, 6.0).run()
    turns = [e for e in case.events if isinstance(e, KernelStarted | KernelFinished)]
    assert [type(e) for e in turns] == [KernelStarted, KernelFinished] * (len(turns) // 2)
    assert all(a.name == b.kernel for a, b in zip(turns[::2], turns[1::2], strict=True))
    spent = [e.spent_s for e in case.events if isinstance(e, BudgetSpent)]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(case.clock.now_s)


def test_search_budget_expects_less_as_it_goes_and_never_more_than_the_model():
    case = Case({"a": flat(1e-3), "b": flat(2e-3)}, 60.0, uses={"a": 2, "b": 1}).run()
    expected = [e.expected_gain_s for e in case.events if isinstance(e, BudgetSpent)][2:]
    assert all(0.0 < gain_s < 4e-3 for gain_s in expected)
    assert expected[-1] < 0.5 * expected[0]


def test_search_budget_interrupted_says_that_it_leaves_the_kernel():
    case = Case({"a": SURFACE}, 60.0, kill_after=5)
    with pytest.raises(Killed):
        case.run()
    assert isinstance(case.events[-1], KernelFinished)
    assert case.model.searches[0].winner.seconds < math.inf


def test_search_budget_rounds_are_a_batch_each_and_who_leaves_is_not_searched_again():
    surfaces = dict.fromkeys("abcd", SURFACE)
    case = Case(surfaces, 60.0)
    keys = {s.task.name: s.task.key for s in case.model.searches}
    counted = []

    case.model.open()
    assert case.model.round([keys["b"], keys["c"]], 10.0)
    counted.append(case.trials)
    assert not case.model.round([keys["b"]], 0.01), "it does not fit"
    assert not case.model.round([], 10.0)
    case.model.leave([keys["b"]])
    case.model.run()
    batch = BudgetPolicy().batch
    assert counted == [{"a": 1, "b": 1 + batch, "c": 1 + batch, "d": 1}]
    assert [s.task.name for s in case.model.searches] == ["a", "c", "d"]
    assert case.trials["b"] == 1 + batch < min(case.trials[name] for name in "acd")
    # After the rounds every kernel that had none has its batch before any other.
    names = [name for name, _ in case.measurer.calls[4 + 2 * batch : 4 + 4 * batch]]
    assert sorted(set(names)) == ["a", "d"]


def test_search_budget_who_left_counts_no_more():
    case = Case({"a": flat(1e-3), "b": flat(1.0)}, 60.0)
    key = case.model.searches[1].task.key
    gains = []

    case.model.open()
    gains.append(case.model.expected_gain_s())
    case.model.leave([key])
    gains.append(case.model.expected_gain_s())
    case.model.run()
    assert 0.0 < gains[1] <= 1e-3 < gains[0]
    assert case.model.done == case.model.searches[0].done


def test_search_budget_primes_a_group_of_kernels_before_their_defaults():
    case = Case(
        dict.fromkeys("abcde", SURFACE), 1e3, uses=dict(zip("abcde", (1, 5, 3, 4, 2), strict=True))
    )
    primed = []

    def prime(some):
        primed.append(("".join(s.task.name for s in some), len(case.measurer.calls)))

    case.model.open(prime, 2)
    names, counts = zip(*primed, strict=True)
    assert names == ("bd", "ce", "a"), "the heaviest first"
    assert counts[0] == 0 < counts[1] < counts[2], "a group is measured before the next one"


@pytest.mark.parametrize("budget_s", [2.0, 16.0, 7200.0])
def test_search_budget_half_of_it_leaves_as_much(budget_s):
    case = Case({"a": SURFACE, "b": SURFACE}, budget_s)
    case.measurer.cost_s = budget_s / 64
    case.model.open()
    left_s = case.model.left_s
    assert case.model.half()
    assert case.model.left_s == pytest.approx(left_s / 2, abs=budget_s / 8)
    case.run()
    assert case.model.stopped == "budget"
    assert abs(case.model.left_s) <= budget_s / 8


def test_search_budget_half_that_reaches_the_goal_asks_no_more_and_says_why():
    answers = iter([False, False, True])
    case = Case({"a": SURFACE}, 60.0, rule=StopRule(0, reached=lambda: next(answers)))
    case.model.open()
    assert not case.model.half()
    assert case.model.stopped == "target"
    assert list(answers) == []


def test_search_budget_half_of_a_spent_one_is_its_end():
    case = Case({"a": SURFACE}, 2.0)
    case.model.open()
    case.clock.now_s += 10.0
    assert not case.model.half()
    assert case.model.stopped == "budget"
