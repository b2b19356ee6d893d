"""Every second of a session belongs to one part, and the parts add up."""

from __future__ import annotations

import pytest

from tunegrad.tuning.budget import Costs, compiling


class Clock:
    """Stands still until told."""

    now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_costs_of_a_part_inside_a_part_leave_the_outer_one(clock: Clock) -> None:
    costs = Costs(clock)
    clock.now_s += 1.0
    with costs.part("plans"):
        clock.now_s += 2.0
        with costs.part("asking"):
            clock.now_s += 4.0
        clock.now_s += 8.0
    clock.now_s += 16.0
    assert costs.seconds == {"plans": 10.0, "asking": 4.0, "other": 17.0}
    assert sum(costs.seconds.values()) == costs.total_s == 31.0


def test_costs_of_a_sealed_part_are_all_its_own(clock: Clock) -> None:
    costs = Costs(clock)
    with costs.part("finals", sealed=True):
        clock.now_s += 1.0
        with costs.part("waiting") as window:
            clock.now_s += 2.0
        window.divide({"compiling": 1.0})
    assert costs.seconds == {"finals": 3.0}


def test_costs_are_charged_when_the_block_is_interrupted(clock: Clock) -> None:
    costs = Costs(clock)

    def interrupted() -> None:
        with costs.part("timing"):
            clock.now_s += 3.0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    clock.now_s += 1.0
    assert costs.seconds == {"timing": 3.0, "other": 1.0}


def test_costs_of_a_part_that_is_still_open_count(clock: Clock) -> None:
    costs = Costs(clock)
    with costs.part("store"):
        clock.now_s += 3.0
        assert costs.seconds == {"store": 3.0}


def test_costs_of_a_window_are_divided_and_the_rest_stays(clock: Clock) -> None:
    costs = Costs(clock)
    with costs.part("waiting") as window:
        clock.now_s += 10.0
    window.divide({"timing": 6.0, "verifying": 1.0})
    assert costs.seconds == {"verifying": 1.0, "timing": 6.0, "waiting": 3.0}
    assert window.seconds == 3.0


def test_costs_of_a_window_never_exceed_it_whatever_workers_say(clock: Clock) -> None:
    costs = Costs(clock)
    with costs.part("waiting") as window:
        clock.now_s += 4.0
    window.divide({"lowering": 30.0, "compiling": 10.0})
    assert costs.seconds == {"lowering": 3.0, "compiling": 1.0}
    assert sum(costs.seconds.values()) == costs.total_s


def test_costs_of_a_batch_are_what_it_took_of_the_session(clock: Clock) -> None:
    assert compiling([(1.0, 2.0)] * 8, workers=4) == {"lowering": 2.0, "compiling": 4.0}
    assert compiling([(1.0, 2.0)], workers=4) == {"lowering": 1.0, "compiling": 2.0}
    assert compiling([], workers=4) == {"lowering": 0.0, "compiling": 0.0}
