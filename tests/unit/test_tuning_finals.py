"""Finals: who is promoted, on what evidence. Times are scripted; nothing is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, cast

import pytest

from tunegrad.db import IMPORTED, Evidence, key_of, open_store
from tunegrad.errors import CandidateFailure
from tunegrad.events import Event, Warned, WinnerPromoted
from tunegrad.opts import Schedule
from tunegrad.search import Measured
from tunegrad.trial import Cache, Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.tuning.finals import Effort, Weighed, finals
from tunegrad.tuning.measuring import CandidateMeasurer, Samples

HERE = Fingerprint((("device", "cpu"),))
TEXT = "kernel of the test"
DEFAULT, A, B, C = "", "tile(axis=a, size=2)", "tile(axis=a, size=4)", "tile(axis=a, size=8)"


@dataclass(frozen=True)
class Param:
    role: str


@dataclass(frozen=True)
class Reads:
    """A kernel by the roles of its parameters."""

    params: tuple[Param, ...]


@dataclass(frozen=True)
class Task:
    name: str = "k"
    key: str = key_of(TEXT)
    uses: int = 1
    kernel: Reads = Reads(())


@dataclass(frozen=True)
class Space:
    version: int = 1


@dataclass
class Search:
    """What finals ask of a KernelSearch."""

    trials: list[Trial]
    statuses: dict[str, int] = field(default_factory=lambda: {"ok": 1})
    task: Task = field(default_factory=Task)
    space: Space = field(default_factory=Space)
    defaults: tuple[Schedule, ...] = (Schedule(()),)

    def finalists(self, count: int) -> list[Trial]:
        return sorted(self.trials, key=lambda t: t.measurement.seconds)[:count]


@dataclass
class Scripted:
    """A measurer whose cold and warm times are given by schedule; each sample is a little longer than the last.

    ``later``: cold and warm times in the process after the first.
    """

    cold: Mapping[str, float]
    warm: Mapping[str, float]
    broken: str = "nothing"
    later: Mapping[str, float] = field(default_factory=dict)
    renewed: int = 0
    wrong: str = "nothing"
    verified: list[str] = field(default_factory=list)
    compared: list[tuple[str, str, bool, int]] = field(default_factory=list)
    caches: set[Cache] = field(default_factory=set)

    def prime(self, work: object) -> None:
        pass

    def measure(self, kernel: object, schedules: Sequence[Schedule], best_s: float, known: object) -> list[Measured]:
        self.verified += [s.text for s in schedules]
        status = {True: Status.WRONG, False: Status.OK}
        found = [Measurement(status[s.text == self.wrong], () if s.text == self.wrong else (1.0,)) for s in schedules]
        return [Measured(f"hash of {s.text}", m) for s, m in zip(schedules, found, strict=True)]

    def renew(self) -> None:
        self.renewed += 1

    def compare(self, kernel: object, a: Schedule, b: Schedule, rounds: int, cache: Cache) -> Samples:
        if self.broken in (a.text, b.text):
            raise CandidateFailure("it broke")
        self.caches.add(cache)
        cold = cache != "warm"
        self.compared.append((a.text, b.text, cold, rounds))
        times = (self.later if self.renewed else {}) or (self.cold if cold else self.warm)
        sides = [tuple(times[s.text] * (1 + 1e-4 * i) for i in range(rounds)) for s in (a, b)]
        return sides[0], sides[1]


def trial(actions: str, seconds: float, cache: Cache = "warm") -> Trial:
    measured = Measurement(Status.OK, (seconds,) * 3)
    origin = "beam" if actions else "default"
    return Trial(key_of(TEXT), TEXT, HERE, actions, f"hash of {actions}", 1, Policy(cache), measured, "s", origin, 1.0)


class Final:
    """Finals of one kernel on a fresh store: search times by schedule, then scripted ones."""

    def __init__(
        self,
        searched: Mapping[str, float],
        measurer: Scripted,
        effort: Effort | None = None,
        cache: Cache = "warm",
        roles: Sequence[str] = (),
    ) -> None:
        self.measurer, self.effort = measurer, effort or Effort()
        self.store = open_store(":memory:", "write")
        task = Task(kernel=Reads(tuple(map(Param, roles))))
        self.search = Search([trial(actions, seconds, cache) for actions, seconds in searched.items()], task=task)
        self.events: list[Event] = []
        self.weighed: dict[str, Weighed] = {}
        with self.store.session("tune", 0, {}, "0", "s"):
            for t in self.search.trials:
                self.store.add(t)

    def run(self) -> list[str]:
        """Texts of all promotions so far."""
        searches, measurer = cast(Any, [self.search]), cast(CandidateMeasurer, self.measurer)
        finals(searches, measurer, self.store, HERE, self.effort, self.events.append, self.weighed)
        return [t.actions for t, _ in self.store.promotions(key_of(TEXT), HERE)]


def test_faster_challenger_replaces_the_default_which_was_crowned_first():
    final = Final({DEFAULT: 2.0, A: 1.0}, Scripted({DEFAULT: 2.0, A: 1.0}, {DEFAULT: 2.0, A: 1.0}))
    assert final.run() == [DEFAULT, A]
    (_, first), (_, second) = final.store.promotions(key_of(TEXT), HERE)
    assert (first.test, first.incumbent_samples_s, first.cold) == ("first", (), True)
    assert (second.test, len(second.challenger_samples_s), second.cold) == ("mannwhitneyu", 15, True)
    assert second.p_value < 0.01
    (promoted,) = final.events
    assert isinstance(promoted, WinnerPromoted)
    assert (promoted.actions, promoted.seconds) == (A, median(second.challenger_samples_s))
    assert promoted.previous_s == median(second.incumbent_samples_s)


def test_tie_keeps_the_default():
    same = {DEFAULT: 1.0, A: 1.0}
    assert Final({DEFAULT: 2.0, A: 1.0}, Scripted(same, same)).run() == [DEFAULT]


def test_cold_tie_is_decided_warm():
    final = Final({DEFAULT: 2.0, A: 1.0}, Scripted({DEFAULT: 1.0, A: 1.0}, {DEFAULT: 2.0, A: 1.0}))
    assert final.run() == [DEFAULT, A]
    assert not final.store.promotions(key_of(TEXT), HERE)[-1][1].cold


def test_slower_cold_is_out_after_a_few_rounds_however_fast_warm():
    measurer = Scripted({DEFAULT: 1.0, A: 1.1}, {DEFAULT: 2.0, A: 1.0})
    assert Final({DEFAULT: 2.0, A: 1.0}, measurer).run() == [DEFAULT]
    assert measurer.compared[0] == (DEFAULT, A, True, 5)
    assert [c for c in measurer.compared if c[2]] == measurer.compared[:1]


@pytest.mark.parametrize("roles", [("in", "const", "out"), ("in", "out")])
def test_in_a_model_whose_constants_do_not_fit_kernels_meet_without_their_constants_only(roles):
    slower = Scripted({DEFAULT: 2.0, A: 1.0}, {DEFAULT: 1.0, A: 2.0})
    final = Final({DEFAULT: 2.0, A: 1.0}, slower, cache="constants", roles=roles)
    assert final.run() == [DEFAULT, A]
    assert slower.caches == {"constants"}
    assert [e.cold for _, e in final.store.promotions(key_of(TEXT), HERE)] == ["const" in roles] * 2
    assert final.weighed[key_of(TEXT)].winner_s < 1.1


def test_a_winner_that_was_timed_otherwise_holds_the_title_as_it_is_timed_now():
    """Its 0.5 was with warm caches; with cold constants it takes longer than B, which still has to be proved faster."""
    times = {DEFAULT: 2.0, A: 1.0, B: 1.0}
    final = Final({A: 0.5}, Scripted(times, times))
    final.run()
    searched = {DEFAULT: 2.0, A: 1.1, B: 1.0}
    final.search.trials[:] = [trial(t, s, "constants") for t, s in searched.items()]
    for t in final.search.trials:
        final.store.add(t)
    assert final.run() == [A, A]
    assert final.store.promotions(key_of(TEXT), HERE)[-1][0].policy.cache == "constants"
    assert (A, B) in [(a, b) for a, b, *_ in final.measurer.compared]


def test_each_challenger_meets_the_winner_of_the_last_match():
    times = {DEFAULT: 4.0, A: 2.4, B: 2.0, C: 2.2}
    measurer = Scripted(times, times)
    assert Final(times, measurer).run() == [DEFAULT, B]
    assert [(a, b) for a, b, cold, _ in measurer.compared if cold] == [
        (DEFAULT, B), (DEFAULT, B), (B, C), (B, A), (DEFAULT, B),
    ]  # fmt: skip


def test_leader_is_proved_again_in_a_fresh_process():
    times = {DEFAULT: 2.0, A: 1.0}
    measurer = Scripted(times, times, later={DEFAULT: 2.0, A: 1.5})
    final = Final(times, measurer)
    assert final.run() == [DEFAULT, A]
    assert measurer.renewed == 1
    _, evidence = final.store.promotions(key_of(TEXT), HERE)[-1]
    assert min(evidence.challenger_samples_s) == 1.5  # what is stored had no part in choosing who is tested
    assert evidence.p_value < 0.05


def test_leader_of_one_process_only_is_not_promoted():
    times = {DEFAULT: 2.0, A: 1.0}
    final = Final(times, Scripted(times, times, later={DEFAULT: 2.0, A: 2.0}))
    assert final.run() == [DEFAULT]
    assert final.events == []
    weighed = final.weighed[key_of(TEXT)]
    assert weighed.default_s == weighed.winner_s


def test_ties_need_no_fresh_process():
    same = {DEFAULT: 1.0, A: 1.0}
    measurer = Scripted(same, same)
    Final({DEFAULT: 2.0, A: 1.0}, measurer).run()
    assert measurer.renewed == 0


def test_leader_that_breaks_in_the_fresh_process_is_a_warning():
    times = {DEFAULT: 2.0, A: 1.0}
    final = Final(times, Scripted(times, times))
    renew = final.measurer.renew

    def breaks() -> None:
        renew()
        final.measurer.broken = A

    final.measurer.renew = breaks  # type: ignore[method-assign]
    assert final.run() == [DEFAULT]
    assert any(isinstance(e, Warned) and "no second final" in e.message for e in final.events)


def test_slower_in_the_search_is_no_challenger():
    measurer = Scripted({DEFAULT: 1.0, A: 0.5}, {DEFAULT: 1.0, A: 0.5})
    assert Final({DEFAULT: 1.0, A: 2.0}, measurer).run() == [DEFAULT]


def test_late_finals_have_one_challenger_and_few_rounds():
    times = {DEFAULT: 4.0, A: 3.0, B: 2.0}
    measurer = Scripted(times, times)
    assert Final(times, measurer, Effort(deadline_s=0.0)).run() == [DEFAULT, B]
    assert [rounds for *_, cold, rounds in measurer.compared if cold] == [5, 2, 7]


def test_challenger_that_breaks_is_a_warning():
    times = {DEFAULT: 4.0, A: 2.4, B: 2.0}
    final = Final(times, Scripted(times, times, broken=B))
    assert final.run() == [DEFAULT, A]
    (warned, _) = final.events
    assert isinstance(warned, Warned)
    assert "it broke" in warned.message


def test_second_final_with_nothing_new_changes_nothing():
    times = {DEFAULT: 2.0, A: 1.0}
    final = Final(times, Scripted(times, times))
    assert final.run() == [DEFAULT, A]
    before = len(final.measurer.compared)
    final.search = replace(final.search, statuses={})
    assert final.run() == [DEFAULT, A]
    assert len(final.measurer.compared) == before


def test_nothing_that_ran_promotes_nothing():
    final = Final({}, Scripted({}, {}))
    assert final.run() == []
    assert final.weighed == {}


def test_default_and_winner_of_a_small_model_are_weighed_warm():
    final = Final({DEFAULT: 2.0, A: 1.0}, Scripted({DEFAULT: 2.0, A: 1.0}, {DEFAULT: 20.0, A: 10.0}))
    final.run()
    weighed = final.weighed[key_of(TEXT)]
    assert 20.0 <= weighed.default_s < 20.1
    assert 10.0 <= weighed.winner_s < 10.1


def test_winner_that_was_imported_is_a_challenger_until_it_is_measured_here():
    times = {DEFAULT: 2.0, A: 3.0, B: 1.0}
    final = Final({DEFAULT: 2.0, A: 0.9, B: 1.0}, Scripted(times, times))
    claim = Evidence(f"{IMPORTED}mannwhitneyu", 1e-9, (2.0,), (1e-9,), cold=True)
    final.store.promote(final.store.id_of(trial(A, 0.9)), claim)
    assert final.run() == [A, DEFAULT, B]


@pytest.mark.parametrize("wrong", ["nothing", A])
def test_who_a_file_brought_is_verified_here_before_it_meets_anybody(wrong):
    times = {DEFAULT: 2.0, A: 1.0}
    final = Final({DEFAULT: 2.0}, Scripted(times, times, wrong=wrong))
    claim = replace(trial(A, 1e-9), origin=f"{IMPORTED}beam")
    final.store.add(claim)
    final.search.trials.append(claim)
    assert final.run() == ([DEFAULT] if wrong == A else [DEFAULT, A])
    assert final.measurer.verified == [A]
    assert any(A in (a, b) for a, b, *_ in final.measurer.compared) == (wrong != A)


def test_what_was_measured_here_is_not_verified_again():
    times = {DEFAULT: 2.0, A: 1.0}
    final = Final(times, Scripted(times, times))
    final.run()
    assert final.measurer.verified == []


def test_default_with_an_imported_time_does_not_keep_others_out():
    lie = replace(trial(DEFAULT, 1e-9), origin=f"{IMPORTED}default")
    times = {DEFAULT: 2.0, A: 1.0}
    final = Final({A: 1.0}, Scripted(times, times))
    final.store.add(lie)
    final.search.trials.append(lie)
    assert final.run() == [DEFAULT, A]


def test_who_was_too_slow_to_be_verified_on_every_input_set_is_no_challenger():
    times = {DEFAULT: 2.0, A: 1.0, B: 0.5}
    final = Final({DEFAULT: 2.0, A: 1.0, B: 1.26}, Scripted(times, times))
    assert final.run() == [DEFAULT, A]


@dataclass
class Disturbed(Scripted):
    """A machine on which each comparison takes its times from the next of ``noises``; then they are as scripted."""

    noises: list[float] = field(default_factory=list)

    def compare(self, kernel: object, a: Schedule, b: Schedule, rounds: int, cache: Cache) -> Samples:
        first, second = super().compare(kernel, a, b, rounds, cache)
        spread = self.noises.pop(0) if self.noises else 0.0
        # Slow moments of each side's own: the medians are as far apart as ever, and nothing is proved.
        slow = [1.0 + spread * (0.618 * i % 1.0) for i in range(rounds)]
        return (
            tuple(s * x for s, x in zip(slow, first, strict=True)),
            tuple(s * x for s, x in zip(reversed(slow), second, strict=True)),
        )


TIMES = {DEFAULT: 1.0, A: 0.95}


@pytest.mark.parametrize(
    ("noises", "effort", "promoted", "comparisons"),
    [
        ([], Effort(), True, [5, 10, 15]),
        ([1.0, 1.0], Effort(), True, [5, 10, 15, 15, 15]),
        ([1.0] * 20, Effort(), False, [5, 10, 15, 15]),
        ([1.0, 1.0], Effort(deadline_s=0.0), False, [5, 2]),
        ([0.0, 0.0, 1.0], Effort(), True, [5, 10, 15, 15, 15]),
    ],
    ids=["quiet", "disturbed at first", "disturbed always", "late", "disturbed in the second proof"],
)
def test_who_is_ahead_and_not_proved_to_be_is_measured_again_while_there_is_time(
    noises: list[float], effort: Effort, promoted: bool, comparisons: list[int]
) -> None:
    machine = Disturbed(TIMES, TIMES, noises=list(noises))
    final = Final({DEFAULT: 1.0, A: 0.95}, machine, effort, cache="constants")
    assert final.run() == ([DEFAULT, A] if promoted else [DEFAULT])
    rounds = [n for a, b, _, n in machine.compared if (a, b) == (DEFAULT, A)]
    assert rounds == [*comparisons, *([9] if promoted else [])], "the last is the weighing"
