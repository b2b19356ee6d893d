"""The race of schedules: who meets whom, what stands first, what is promoted.

Times are scripted; nothing compiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tunegrad.db import IMPORTED, Evidence, key_of, open_store
from tunegrad.errors import CandidateCrashed
from tunegrad.events import Event, Warned, WinnerPromoted
from tunegrad.opts import Schedule
from tunegrad.search import Measured
from tunegrad.trial import Cache, Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.tuning.questions.schedule import Schedules
from tunegrad.tuning.race import PROOF_TURNS

HERE = Fingerprint((("device", "cpu"),))
DEFAULT, A, B, C = "", "tile(axis=a, size=2)", "tile(axis=a, size=4)", "tile(axis=a, size=8)"


@dataclass(frozen=True)
class Kernel:
    name: str
    roles: tuple[str, ...] = ()

    @property
    def params(self) -> tuple[SimpleNamespace, ...]:
        return tuple(SimpleNamespace(role=role) for role in self.roles)


@dataclass
class Search:
    """What is asked of a KernelSearch."""

    name: str
    trials: list[Trial]
    roles: tuple[str, ...] = ()
    uses: int = 1
    statuses: dict[str, int] = field(default_factory=lambda: {"ok": 1})
    defaults: tuple[Schedule, ...] = (Schedule(()),)
    space: Any = field(default_factory=lambda: SimpleNamespace(version=1))

    @property
    def task(self) -> SimpleNamespace:
        return SimpleNamespace(
            name=self.name,
            key=key_of(self.name),
            uses=self.uses,
            kernel=Kernel(self.name, self.roles),
        )

    def finalists(self, count: int) -> list[Trial]:
        ran = [t for t in self.trials if t.measurement.ran]
        return sorted(ran, key=lambda t: t.measurement.seconds)[:count]


def trial(actions: str, seconds: float, cache: Cache = "warm", name: str = "k") -> Trial:
    measured = Measurement(Status.OK, (seconds,) * 3)
    origin = "beam" if actions else "default"
    program = f"{name} {actions}"
    return Trial(
        key_of(name), name, HERE, actions, program, 1, Policy(cache), measured, "s", origin, 1.0
    )


@dataclass
class Machine:
    """Models of kernels that take what ``times`` says of actions; ``later`` in a fresh process.

    ``evil`` ends a model; ``whole``: a model that is more than one launch of a kernel alone does
    so. ``alone`` are the kernels that were raced so.
    """

    times: Mapping[str, float]
    later: Mapping[str, float] = field(default_factory=dict)
    whole: bool = True
    evil: str = "nothing"
    wrong: str = "nothing"
    renewed: int = 0
    verified: list[str] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    made: list[dict[str, str]] = field(default_factory=list)

    def took(self, actions: str) -> float:
        return {**self.times, **(self.later if self.renewed else {})}[actions]

    def prime(self, work: object) -> None:
        pass

    def measure(
        self, kernel: object, schedules: Sequence[Schedule], best_s: float, known: object
    ) -> list[Measured]:
        self.verified += [s.text for s in schedules]
        found = [
            Measurement(Status.WRONG) if s.text == self.wrong else Measurement(Status.OK, (1.0,))
            for s in schedules
        ]
        return [Measured(f"hash of {s.text}", m) for s, m in zip(schedules, found, strict=True)]

    def renew(self) -> None:
        self.renewed += 1

    # ---- models

    @property
    def bench(self) -> Machine:
        return self

    def prepare(self, pairs: object) -> None:
        pass

    def of_trials(self, work: Any, chosen: Mapping[str, Trial]) -> Any:
        self.made.append({key: t.actions for key, t in chosen.items()})
        if work.name == "alone":
            self.alone += [u.kernel for u in work.kernels]
        return SimpleNamespace(
            actions=self.made[-1], launches=work.plan.launches, whole=work.name != "alone"
        )

    def check(self, models: Sequence[Any]) -> None:
        if not self.whole and any(m.whole for m in models):
            raise CandidateCrashed("it does not run")
        if any(self.evil in m.actions.values() for m in models):
            raise CandidateCrashed("it crashed")

    def profiled(self, models: Sequence[Any], rounds: int) -> list[list[tuple[float, ...]]]:
        return [[self._turn(m, 1.0 + 1e-4 * t) for t in range(rounds)] for m in models]

    def _turn(self, model: Any, drift: float) -> tuple[float, ...]:
        return tuple(
            drift * self.took(model.actions.get(x.kernel.key, DEFAULT)) for x in model.launches
        )


class Race:
    """Schedules of kernels on a fresh store: search times by schedule, then scripted ones."""

    def __init__(self, searches: Sequence[Search], machine: Machine) -> None:
        self.searches, self.machine = list(searches), machine
        self.store = open_store(":memory:", "write")
        self.events: list[Event] = []
        self.voided: list[Trial] = []
        with self.store.session("tune", 0, {}, "0", "s"):
            for s in self.searches:
                self.store.name_kernel(s.name, s.name)
                for t in s.trials:
                    self.store.add(t)

    def run(self) -> list[str]:
        """Texts of all promotions of the first kernel so far."""
        machine: Any = self.machine
        schedules = Schedules(
            machine,
            machine,
            self.store,
            HERE,
            lambda t, _: self.voided.append(t),
            self.events.append,
        )
        launches = [
            SimpleNamespace(kernel=SimpleNamespace(key=key_of(s.name))) for s in self.searches
        ]
        uses = [SimpleNamespace(key=key_of(s.name), kernel=s.name) for s in self.searches]
        plan = SimpleNamespace(launches=launches, buffers=())
        work = SimpleNamespace(name="model", plan=plan, kernels=uses)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tunegrad.tuning.questions.schedule.only", _only)
            schedules.promote_proved(cast(Any, self.searches), [cast(Any, work)])
        return self.promoted(self.searches[0].name)

    def promoted(self, name: str) -> list[str]:
        return [t.actions for t, _ in self.store.promotions(key_of(name), HERE)]

    @property
    def last(self) -> Evidence:
        return self.store.promotions(key_of(self.searches[0].name), HERE)[-1][1]


def _only(work: Any, key: str) -> Any:
    """As ``workload.only``, of a scripted one."""
    uses = [u for u in work.kernels if u.key == key]
    launches = [x for x in work.plan.launches if x.kernel.key == key][:1]
    plan = SimpleNamespace(launches=launches, buffers=())
    return SimpleNamespace(name="alone", plan=plan, kernels=uses)


def one(searched: Mapping[str, float], machine: Machine, cache: Cache = "warm") -> Race:
    return Race([Search("k", [trial(a, s, cache) for a, s in searched.items()])], machine)


WHERE = pytest.mark.parametrize("whole", [True, False], ids=["in models", "alone"])


@WHERE
def test_faster_challenger_replaces_the_default_which_was_crowned_first(whole: bool) -> None:
    race = one(
        {DEFAULT: 2.0, A: 1.0},
        Machine({DEFAULT: 2.0, A: 1.0}, later={DEFAULT: 2.0, A: 1.5}, whole=whole),
    )
    assert race.run() == [DEFAULT, A]
    (_, first), (_, second) = race.store.promotions(key_of("k"), HERE)
    assert (first.test, first.incumbent_samples_s, first.challenger_samples_s) == (
        "first",
        (),
        (2.0,) * 3,
    )
    assert len(second.challenger_samples_s) == PROOF_TURNS
    assert min(second.challenger_samples_s) == 1.5, (
        "what is stored had no part in choosing who is tested"
    )
    promoted = race.events[-1]
    assert isinstance(promoted, WinnerPromoted)
    assert (promoted.actions, promoted.seconds) == (A, median(second.challenger_samples_s))
    assert promoted.previous_s == median(second.incumbent_samples_s)
    assert bool(race.machine.alone) == (not whole)
    said = [e.message for e in race.events if isinstance(e, Warned)]
    assert said == ([] if whole else ["model model: its kernels are raced alone: it does not run"])


@WHERE
def test_tie_and_what_is_faster_in_one_process_only_keep_the_default(whole: bool) -> None:
    same = {DEFAULT: 1.0, A: 1.0}
    assert one({DEFAULT: 2.0, A: 1.0}, Machine(same, whole=whole)).run() == [DEFAULT]
    once = Machine({DEFAULT: 1.0, A: 0.5}, later=same, whole=whole)
    assert one({DEFAULT: 2.0, A: 1.0}, once).run() == [DEFAULT]


def test_winner_that_was_timed_otherwise_stands_as_it_is_timed_now() -> None:
    """Its 0.5 was with warm caches; with cold constants it takes longer than B, which still has to
    be proved faster.
    """
    race = one({DEFAULT: 0.6, A: 0.5}, Machine({DEFAULT: 2.0, A: 1.0, B: 1.0}))
    assert race.run() == [DEFAULT, A]
    race.searches[0].trials[:] = [
        trial(t, s, "constants") for t, s in {DEFAULT: 2.0, A: 1.1, B: 1.0}.items()
    ]
    for t in race.searches[0].trials:
        race.store.add(t)
    assert race.run() == [DEFAULT, A, A]
    assert race.store.promotions(key_of("k"), HERE)[-1][0].policy.cache == "constants"


def test_kernels_of_a_model_are_raced_at_once_and_the_light_ones_have_fewer_challengers() -> None:
    names = [f"tile(axis=a, size={n})" for n in range(2, 42)]
    heavy = Search("heavy", [trial(a, 1.0, name="heavy") for a in (DEFAULT, *names)])
    light = Search("light", [trial(a, 0.05, name="light") for a in (DEFAULT, *names)])
    machine = Machine({DEFAULT: 1.0, **dict.fromkeys(names, 1.0), names[39]: 0.8, names[1]: 0.9})
    race = Race([light, heavy], machine)
    race.run()
    assert race.promoted("heavy") == [DEFAULT, names[39]]
    assert race.promoted("light") == [DEFAULT, names[1]]
    assert {m.get(key_of("light")) for m in machine.made} == {DEFAULT, *names[:2]}


@WHERE
def test_challenger_that_does_not_run_is_out_and_the_others_meet(whole: bool) -> None:
    times = {DEFAULT: 4.0, A: 2.4, B: 2.0}
    race = one(times, Machine(times, evil=B, whole=whole))
    assert race.run() == [DEFAULT, A]
    assert [t.actions for t in race.voided] == [B]


def test_kernel_whose_schedule_runs_nowhere_keeps_it_and_the_others_are_raced() -> None:
    times = {DEFAULT: 2.0, A: 1.0, B: 3.0, C: 1.0}
    fails = Search("fails", [trial(a, times[a], name="fails") for a in (B, C)])
    fails = replace(fails, defaults=(Schedule.parse(B),))
    runs = Search("runs", [trial(a, times[a], name="runs") for a in (DEFAULT, A)])
    race = Race([fails, runs], Machine(times, evil=B))
    race.run()
    assert race.promoted("fails") == [B]
    assert race.promoted("runs") == [DEFAULT, A]
    assert [e.message for e in race.events if isinstance(e, Warned)] == [
        "model model: its kernels are raced alone: it crashed",
        "kernel fails: its schedules are not raced: it crashed",
    ]


@pytest.mark.parametrize("roles", [("in", "const", "out"), ("in", "out")])
def test_first_winner_says_whether_its_samples_were_with_cold_constants(
    roles: tuple[str, ...],
) -> None:
    trials = [trial(DEFAULT, 2.0, "constants")]
    race = Race([Search("k", trials, roles)], Machine({DEFAULT: 2.0}))
    assert race.run() == [DEFAULT]
    assert [e.cold for _, e in race.store.promotions(key_of("k"), HERE)] == ["const" in roles]


def test_second_session_with_nothing_new_changes_nothing() -> None:
    race = one({DEFAULT: 2.0, A: 1.0}, Machine({DEFAULT: 2.0, A: 1.0}))
    assert race.run() == [DEFAULT, A]
    before = len(race.machine.made)
    race.searches[0] = replace(race.searches[0], statuses={})
    assert race.run() == [DEFAULT, A]
    assert len(race.machine.made) == before


def test_what_a_race_left_open_is_raced_by_a_session_that_measures_nothing() -> None:
    """As after a slow spell: what the store has as faster took as long in the race."""
    race = one({DEFAULT: 2.0, A: 1.0}, Machine({DEFAULT: 2.0, A: 2.0}))
    assert race.run() == [DEFAULT]
    race.searches[0] = replace(race.searches[0], statuses={})
    race.machine = Machine({DEFAULT: 2.0, A: 1.0})
    assert race.run() == [DEFAULT, A]


def test_a_kernel_none_of_whose_defaults_ran_promotes_nothing_and_says_why() -> None:
    """Neither the slowest candidate nor the fastest: none of them met a default."""
    late = replace(
        trial(DEFAULT, 0.0),
        measurement=Measurement(Status.TIMED_OUT, error="compiling: over 60 s", compile_s=60.0),
    )
    race = one({A: 1.0, B: 2.0}, Machine({A: 1.0, B: 2.0}))
    race.searches[0].trials.append(late)
    race.searches[0] = replace(race.searches[0])
    assert race.run() == []
    (said,) = [e.message for e in race.events if isinstance(e, Warned)]
    assert said == (
        "kernel k: nothing is promoted, since none of its default schedules ran "
        "(timed_out, compiling: over 60 s)"
    )


def test_a_default_that_is_wrong_is_said_also_where_nothing_else_ran() -> None:
    wrong = Measurement(Status.WRONG, error="p0[3]: got 1, expected 2")
    race = one({}, Machine({}))
    race.searches[0].trials.append(replace(trial(DEFAULT, 0.0), measurement=wrong))
    assert race.run() == []
    (said,) = [e.message for e in race.events if isinstance(e, Warned)]
    assert said == (
        "kernel k: a default schedule computed a wrong result (p0[3]: got 1, expected 2); "
        "an untuned model may run it: please report this"
    )


def test_a_default_that_runs_later_meets_what_stood_before_it() -> None:
    race = one({A: 1.0, B: 2.0}, Machine({DEFAULT: 1.5, A: 1.0, B: 2.0}))
    assert race.run() == []
    race.searches[0].trials.append(trial(DEFAULT, 1.5))
    race.store.add(trial(DEFAULT, 1.5))
    assert race.run() == [DEFAULT, A]


def test_nothing_that_ran_promotes_nothing() -> None:
    assert one({}, Machine({})).run() == []


def test_winner_that_was_imported_is_a_challenger_until_it_is_measured_here() -> None:
    race = one({DEFAULT: 2.0, A: 0.9, B: 1.0}, Machine({DEFAULT: 2.0, A: 3.0, B: 1.0}))
    claim = Evidence(f"{IMPORTED}mannwhitneyu", 1e-9, (2.0,), (1e-9,), cold=True)
    number = race.store.id_of(trial(A, 0.9))
    assert number is not None
    race.store.promote(number, claim)
    assert race.run() == [A, DEFAULT, B]


@pytest.mark.parametrize("wrong", ["nothing", A])
def test_what_a_file_brought_is_verified_here_before_it_meets_anybody(wrong: str) -> None:
    race = one({DEFAULT: 2.0}, Machine({DEFAULT: 2.0, A: 1.0}, wrong=wrong))
    claim = replace(trial(A, 1e-9), origin=f"{IMPORTED}beam")
    race.store.add(claim)
    race.searches[0].trials.append(claim)
    assert race.run() == ([DEFAULT] if wrong == A else [DEFAULT, A])
    assert race.machine.verified == [A]
    assert any(A in m.values() for m in race.machine.made) == (wrong != A)


def test_what_was_measured_here_is_not_verified_again() -> None:
    race = one({DEFAULT: 2.0, A: 1.0}, Machine({DEFAULT: 2.0, A: 1.0}))
    race.run()
    assert race.machine.verified == []


def test_default_with_an_imported_time_does_not_keep_others_out() -> None:
    race = one({A: 1.0}, Machine({DEFAULT: 2.0, A: 1.0}))
    lie = replace(trial(DEFAULT, 1e-9), origin=f"{IMPORTED}default")
    race.store.add(lie)
    race.searches[0].trials.append(lie)
    assert race.run() == [DEFAULT, A]


def test_who_was_too_slow_to_be_verified_on_every_input_set_is_not_raced() -> None:
    race = one({DEFAULT: 2.0, A: 1.0, B: 1.26}, Machine({DEFAULT: 2.0, A: 1.0, B: 0.5}))
    assert race.run() == [DEFAULT, A]


@pytest.mark.parametrize("wrong", ["nothing", A])
def test_what_a_claim_of_a_file_kept_from_the_other_input_sets_meets_them_before_a_race(
    wrong: str,
) -> None:
    """Beside a nanosecond that a file claims everything is slow, and is verified on one set."""
    race = one({DEFAULT: 2.0, A: 1.0}, Machine({DEFAULT: 2.0, A: 1.0, C: 9.0}, wrong=wrong))
    claim = replace(trial(C, 1e-9), origin=f"{IMPORTED}beam")
    race.store.add(claim)
    race.searches[0].trials.append(claim)
    assert race.run() == ([DEFAULT] if wrong == A else [DEFAULT, A])
    assert race.machine.verified == [C, A]


@pytest.mark.parametrize("wrong", ["nothing", B])
def test_what_was_slow_beside_a_trial_that_is_withdrawn_meets_the_other_input_sets(
    wrong: str,
) -> None:
    times = {DEFAULT: 2.0, A: 0.5, B: 1.0}
    race = one(times, Machine(times, wrong=wrong))
    number = race.store.id_of(trial(A, 0.5))
    assert number is not None
    race.store.withdraw(number, "off by 0.3", "s")
    race.searches[0].trials.remove(trial(A, 0.5))
    assert race.run() == ([DEFAULT] if wrong == B else [DEFAULT, B])
    assert race.machine.verified == [B]


def test_who_was_slower_in_the_search_than_what_stands_may_win() -> None:
    race = one({DEFAULT: 1.0, A: 1.2}, Machine({DEFAULT: 1.0, A: 0.5}))
    assert race.run() == [DEFAULT, A]
