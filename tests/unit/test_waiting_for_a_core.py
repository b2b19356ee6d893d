"""Time in which a worker waits for a core is none of its limit; time in which it runs is."""

from __future__ import annotations

import pytest

from tunegrad.devices.processes import isolated

pytestmark = pytest.mark.timing


class Machine:
    """A clock and what a system says of a process's threads, each (share run, share waited)."""

    def __init__(self, cores: int, *threads: tuple[float, float]) -> None:
        self.now_s, self.cores, self.threads = 0.0, cores, threads

    def threads_s(self, pid: int) -> dict[str, tuple[float, float]]:
        del pid
        return {
            f"{i}": (ran * self.now_s, waited * self.now_s)
            for i, (ran, waited) in enumerate(self.threads)
        }

    def seconds_until_overdue(self, limit_s: float, monkeypatch: pytest.MonkeyPatch) -> float:
        monkeypatch.setattr(isolated.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(isolated, "_threads_s", self.threads_s)
        monkeypatch.setattr(isolated, "_cores", lambda pid: self.cores)
        left_s = isolated._Left(limit_s, 1)
        for _ in range(10_000):
            seconds = left_s()
            if seconds <= 1e-6:
                break
            self.now_s += seconds
        return self.now_s


@pytest.mark.parametrize(
    ("machine", "seconds"),
    [
        (Machine(2), 2.0),
        (Machine(2, (0.0, 0.0)), 2.0),
        (Machine(2, (1.0, 0.0)), 2.0),
        (Machine(2, *[(0.25, 0.75)] * 8), 2.0),
        (Machine(1, *[(0.125, 0.875)] * 8), 2.0),
        (Machine(1, (0.25, 0.75)), 5.0),
        (Machine(2, (0.5, 0.5), (0.5, 0.5)), 3.0),
        (Machine(1, (0.0, 1.0)), 42.0),
    ],
    ids=[
        "no threads told", "asleep", "spinning on a core", "eight that have two cores",
        "eight that have one", "a quarter of a core", "two halves", "never let run",
    ],
)  # fmt: skip
def test_overdue_is_the_limit_and_what_was_waited_for_others(
    machine: Machine, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine.seconds_until_overdue(2.0, monkeypatch) == pytest.approx(seconds, abs=1e-3)
