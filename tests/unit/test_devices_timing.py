"""Adaptive sampling, on scripted samples and a scripted clock."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from tunegrad.devices.timing import inner_repeats, relative_interval, sample_adaptively, sample_quietly
from tunegrad.trial import Policy


class Script:
    """A sampler whose clock moves by the seconds it hands out."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values, self.at, self.now, self.inner = values, 0, 0.0, [0]

    def sample(self, count: int, inner: int) -> list[float]:
        self.inner.append(inner)
        taken = [self.values[(self.at + i) % len(self.values)] for i in range(count)]
        self.at += count
        self.now += sum(taken) * inner
        return taken

    def clock(self) -> float:
        return self.now


def _run(values: Sequence[float], policy: Policy, losing_s: float = math.inf) -> tuple[tuple[float, ...], Script]:
    script = Script(values)
    return sample_adaptively(script.sample, policy, losing_s, script.clock), script


def test_steady_samples_stop_at_the_minimum():
    samples, _ = _run([1e-3], Policy(min_samples=3, budget_s=1.0))
    assert samples == (1e-3,) * 3


def test_noisy_samples_go_on_to_the_maximum():
    samples, _ = _run([1e-3, 2e-3], Policy(min_samples=3, max_samples=20, budget_s=10.0))
    assert len(samples) == 20


def test_budget_ends_a_noisy_candidate():
    samples, script = _run([1e-2, 2e-2], Policy(min_samples=3, max_samples=50, budget_s=0.1))
    assert 3 <= len(samples) < 50
    assert script.now < 0.3


def test_slow_candidate_gives_its_only_sample():
    samples, _ = _run([5.0], Policy(budget_s=0.1))
    assert samples == (5.0,)


def test_loser_stops_after_a_few_samples():
    samples, _ = _run([9e-3, 2e-3], Policy(), losing_s=1e-3)
    assert len(samples) == 3, "of four launches the first one was cold"


def test_long_loser_stops_after_two_samples():
    samples, _ = _run([40e-3], Policy(budget_s=0.1), losing_s=1e-3)
    assert samples == (40e-3, 40e-3)


@pytest.mark.parametrize("cold", [1, 2, 3])
def test_slow_first_launches_do_not_lose(cold):
    samples, _ = _run([280e-6] * cold + [12e-6] * 20, Policy(min_samples=3, budget_s=1.0), losing_s=20e-6)
    assert samples == (12e-6,) * 3


def test_one_slow_first_sample_does_not_lose():
    samples, _ = _run([2e-3, 0.9e-3, 0.9e-3, 0.9e-3, 0.9e-3], Policy(min_samples=3, budget_s=1.0), losing_s=1e-3)
    assert samples == (0.9e-3,) * 3


def test_short_kernels_repeat_inside_a_sample():
    _, script = _run([1e-6], Policy(budget_s=1.0))
    assert 40 <= script.inner[-1] <= 41


def test_cold_samples_are_single_launches():
    script = Script([1e-6])
    sample_adaptively(script.sample, Policy(cache="cold", budget_s=1.0), math.inf, script.clock, alone=True)
    assert set(script.inner[1:]) == {1}


def _alone(values: Sequence[float], **bounds: float) -> tuple[tuple[float, ...], Script]:
    script, policy = Script(values), Policy(cache="constants", min_samples=3, max_samples=10, budget_s=1.0)
    return sample_adaptively(script.sample, policy, clock=script.clock, alone=True, **bounds), script


def test_cold_samples_count_from_the_first_launch():
    samples, script = _alone([1e-3])
    assert samples == (1e-3,) * 3
    assert script.at == 3


def test_two_cold_samples_are_enough_of_what_is_not_promising():
    samples, script = _alone([1.3e-3, 1.25e-3], losing_s=1.5e-3, promising_s=1.1e-3)
    assert samples == (1.3e-3, 1.25e-3)
    assert script.at == 2


def test_one_promising_cold_sample_of_two_asks_for_more():
    samples, _ = _alone([1.3e-3, 1.05e-3, 1.05e-3, 1.05e-3], promising_s=1.1e-3)
    assert len(samples) > 2


def test_slow_first_cold_launches_are_left_out():
    samples, _ = _alone([280e-6] * 3 + [12e-6] * 20, losing_s=20e-6)
    assert samples == (12e-6,) * 3


@pytest.mark.parametrize(("once_s", "expected"), [(1.0, 1), (20e-6, 1), (10e-6, 4), (0.0, 4096)])
def test_inner_repeats(once_s, expected):
    assert inner_repeats(once_s, alone=False) == expected


def test_interval_of_equal_samples_is_zero():
    assert relative_interval([2.0] * 10) == 0.0


def test_interval_of_one_sample_is_infinite():
    assert relative_interval([1.0]) == math.inf


def test_interval_of_few_samples_is_their_range():
    assert relative_interval([1.0, 2.0, 3.0]) == 0.5


def test_interval_ignores_outliers_among_many():
    samples = [1.0] * 30 + [100.0]
    assert relative_interval(samples) == 0.0


def test_interval_of_the_minimum_is_the_gap_below():
    assert relative_interval([1.0, 1.5, 9.0], "min") == 0.5


class Disturbed(Script):
    """A machine whose arithmetic and samples take ``slow`` times as long until ``until`` seconds have passed."""

    def __init__(self, seconds: float, slow: float, until: float) -> None:
        super().__init__([seconds])
        self.slow, self.until, self.beats = slow, until, 0

    @property
    def factor(self) -> float:
        return self.slow if self.now < self.until else 1.0

    def sample(self, count: int, inner: int) -> list[float]:
        taken = []
        for _ in range(count):
            taken.append(self.values[0] * self.factor)
            self.now += taken[-1] * inner
        return taken

    def slowness(self) -> float:
        self.beats += 1
        found = self.factor
        self.now += 25e-6 * found
        return found

    def run(
        self, losing_s: float = math.inf, promising_s: float = math.inf, wait_s: float = 0.025
    ) -> tuple[float, ...]:
        policy = Policy(min_samples=3, max_samples=20, tolerance=0.02, budget_s=0.015)
        return sample_quietly(self.sample, self.slowness, policy, losing_s, promising_s, wait_s, self.clock)


def test_quiet_samples_are_as_taken():
    machine = Disturbed(1e-3, 1.5, until=0.0)
    assert machine.run() == (1e-3,) * 3
    assert machine.beats == 2


def test_disturbed_samples_are_taken_again_in_a_quiet_moment():
    assert Disturbed(1e-3, 1.5, until=0.02).run() == (1e-3,) * 3


def test_what_begins_quietly_and_ends_disturbed_is_taken_again():
    class Later(Disturbed):
        @property
        def factor(self) -> float:
            return self.slow if 1e-3 < self.now < self.until else 1.0

    assert Later(1e-3, 1.5, until=0.02).run() == (1e-3,) * 3


def test_samples_stand_where_no_quiet_moment_comes():
    machine = Disturbed(1e-3, 1.5, until=10.0)
    assert machine.run() == (1.5e-3,) * 3
    assert 0.025 < machine.now < 0.035


def test_a_slow_candidate_is_not_worth_waiting_for():
    machine = Disturbed(1e-3, 1.5, until=0.02)
    assert machine.run(losing_s=0.6e-3, promising_s=0.44e-3) == (1.5e-3,) * 3
    assert machine.beats == 2


def test_a_disturbed_candidate_that_may_be_the_best_is_not_a_loser():
    assert Disturbed(1e-3, 1.8, until=0.02).run(losing_s=1.5e-3, promising_s=1.1e-3) == (1e-3,) * 3
