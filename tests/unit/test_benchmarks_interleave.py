"""Turns alternate, figures are medians, a failing contestant is out, and rest ends when the process
is idle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from benchmarks.interleave import Pace, interleave, rest_until_quiet
from benchmarks.workloads import Array

pytestmark = pytest.mark.timing

_THREE_ROUNDS = Pace(min_rounds=3, max_rounds=3, min_s=0.0)


@dataclass(slots=True)
class _Scripted:
    """A contestant whose calls take the scripted seconds, over and over, and are written to a
    shared log.
    """

    peer: str
    script: tuple[float, ...]
    log: list[str] = field(default_factory=list)
    fails_at: int = -1
    variant: str = "fake"
    layout: str = ""
    turns: int = 0

    def time(self, calls: int) -> Sequence[float]:
        self.turns += 1
        if self.turns == self.fails_at:
            raise ValueError("out of luck")
        self.log.append(self.peer)
        return [self.script[i % len(self.script)] for i in range(calls)]

    def output(self) -> Array:
        return np.zeros(1, dtype=np.float32)


def _quiet() -> bool:
    return True


def _order(log: list[str], contestants: int) -> list[str]:
    """The log without calibration (two entries each), one letter a turn (warm and timed entries are
    neighbours).
    """
    return log[2 * contestants :][::2]


def test_interleave_gives_everybody_every_place() -> None:
    log: list[str] = []
    interleave([_Scripted(name, (0.01,), log) for name in "ABC"], _THREE_ROUNDS, _quiet)
    assert "".join(_order(log, 3)) == "ABC" + "BCA" + "CAB"


def test_interleave_reports_the_median() -> None:
    (timing,) = interleave(
        [_Scripted("A", (1e-3, 9e-3, 2e-3))], Pace(3, 3, 0.0, turn_s=0.003), _quiet
    )
    assert timing.seconds == 2e-3


def test_interleave_times_short_calls_many_times_a_turn() -> None:
    calls: list[int] = []

    class Counting(_Scripted):
        def time(self, calls_: int) -> Sequence[float]:
            calls.append(calls_)
            return [1e-3] * calls_

    interleave([Counting("A", (1e-3,))], Pace(1, 1, 0.0, turn_s=0.02, warm_s=0.004), _quiet)
    assert calls == [2, 3, 4, 20]


def test_interleave_drops_a_failing_contestant_and_goes_on() -> None:
    bad, good = _Scripted("bad", (0.01,), fails_at=4), _Scripted("good", (0.01,))
    failed, fine = interleave([bad, good], _THREE_ROUNDS, _quiet)
    assert failed.error == "ValueError: out of luck"
    assert failed.seconds == math.inf
    assert (fine.error, fine.rounds) == ("", 3)


def test_interleave_leaves_a_trailing_variant_behind_and_keeps_its_figure() -> None:
    pace = Pace(min_rounds=6, max_rounds=6, min_s=0.0, trial_rounds=2, trail=0.1)
    fast, slow = _Scripted("A", (0.05,)), _Scripted("A", (0.06,), variant="slow")
    quick, late = interleave([fast, slow], pace, _quiet)
    assert (quick.rounds, late.rounds) == (6, 2)
    assert late.seconds == 0.06


def test_interleave_keeps_a_slow_peer_that_has_no_faster_variant() -> None:
    pace = Pace(min_rounds=6, max_rounds=6, min_s=0.0, trial_rounds=2, trail=0.1)
    timings = interleave([_Scripted("A", (0.01,)), _Scripted("B", (0.02,))], pace, _quiet)
    assert [t.rounds for t in timings] == [6, 6]


def test_interleave_goes_on_until_the_interval_is_tight() -> None:
    noisy_then_steady = iter([*range(1, 20), *[10] * 10**4])

    class Settling(_Scripted):
        def time(self, calls: int) -> Sequence[float]:
            return [float(next(noisy_then_steady))] * calls

    pace = Pace(min_rounds=4, max_rounds=200, min_s=0.0, max_s=1e9, tolerance=0.01)
    (timing,) = interleave([Settling("A", (1.0,))], pace, _quiet)
    assert pace.min_rounds < timing.rounds < pace.max_rounds
    assert timing.interval <= pace.tolerance


@pytest.mark.parametrize(
    ("busy_steps", "quiet", "sleeps"), [(0, True, 1), (3, True, 4), (1000, False, 10)]
)
def test_rest_until_quiet_sleeps_while_threads_burn_time(
    busy_steps: int, quiet: bool, sleeps: int
) -> None:
    slept: list[float] = []

    def cpu_s() -> float:
        return 0.002 * min(len(slept), busy_steps)

    assert rest_until_quiet(0.002, 0.02, slept.append, cpu_s) is quiet
    assert len(slept) == sleeps
