"""Whole models at a session's end: right, and timed by winners beside default schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf
from statistics import median
from time import monotonic

from tunegrad.db import Evidence, Store
from tunegrad.errors import (
    CandidateFailure,
    CandidateTimeout,
    CompileFailure,
    InternalError,
    WrongResult,
)
from tunegrad.events import Event, Warned, WinnerPromoted
from tunegrad.paired import Interval, gain_interval, paired_gain
from tunegrad.planning import deviation_of_graph
from tunegrad.reports import Deviation
from tunegrad.search import decide
from tunegrad.trial import Fingerprint, Trial

from .interrupt import Interrupt, OutOfTimeError
from .machine import record_latency
from .models import Models, WholeModel, culprit, per_launch
from .models.work import RUNS, drawn
from .questions.question import in_model
from .questions.schedule import promote
from .race import FAULTS, PAIRED_S, PROOF_TURNS, Pair
from .workload import Workload

Void = Callable[[str, str, CandidateFailure], None]


@dataclass(frozen=True, slots=True)
class Soundness:
    """The soundness of a model's outputs: they are as they must be (no ``mismatch``), at once or
    after winners were ``voided``.

    ``uncompared`` says why nothing was compared; ``voided`` are (kernel, actions, why),
    ``mismatch`` says what is still wrong.
    """

    uncompared: str = ""
    voided: tuple[tuple[str, str, str], ...] = ()
    mismatch: str = ""


def made_sound(work: Workload, models: Models, void: Void) -> Soundness:
    """Withdraw winners until the model computes what its graph says; ``void`` withdraws one, by
    kernel key.

    Raises CandidateFailure where a kernel has no schedule that compiles, and where the default
    schedules take too long, too: that is no wrong output.

        tuned model, fresh process, both input sets  -->  outputs as an independent evaluation
                 |                                        has them: sound
                 v  otherwise
        the default schedules, alike                 -->  they fail too: no winner is to blame,
                 |                                        and the report says so
                 v  they are right
        the winners, by halves                       -->  one fails alone, twice: it is withdrawn
                 |                                        none does: all of them are
                 v
        once more, with what the store has then
    """
    voided: list[tuple[str, str, str]] = []
    names = {u.key: u.name for u in work.kernels}
    while True:
        failure = _failure(work, models, None)
        if failure is None:
            judged = models.bench.judged(models.of(work))
            return Soundness("" if judged else _UNJUDGED, tuple(voided))
        wrong = in_model(failure)
        suspects = [
            s
            for s in _winners(work, models).items()
            if (names[s[0]], s[1]) not in {v[:2] for v in voided}
        ]
        if not suspects or _failure(work, models, {}) is not None:
            if isinstance(failure, CandidateTimeout):
                raise failure
            return Soundness("", tuple(voided), f"with default schedules: {wrong}")
        found = culprit(suspects, lambda few: _failure(work, models, dict(few)))
        for (key, actions), why in [found] if found else [(s, failure) for s in suspects]:
            void(key, actions, why)
            voided.append((names[key], actions, in_model(why)))


_UNJUDGED = (
    "nothing could evaluate it in time and memory, or it overflows on the inputs that were drawn"
)
_UNBEGUN = Soundness("the whole model did not run")


def _winners(work: Workload, models: Models) -> dict[str, str]:
    """The stored schedules that the model runs, by kernel key, that are not the defaults."""
    default = models.of(work, stored=False).actions
    return {key: text for key, text in models.of(work).actions.items() if text != default[key]}


def _failure(
    work: Workload, models: Models, actions: dict[str, str] | None
) -> CandidateFailure | None:
    """Failure of the model in a fresh process with its winners, or these actions instead."""
    made = models.of(work) if actions is None else models.of(work, actions, stored=False)
    models.bench.renew()
    try:
        models.bench.check([made])
    except (*FAULTS, CompileFailure) as error:
        return error
    return None


@dataclass(frozen=True, slots=True)
class Withdrawals:
    """Withdraws trials of this machine in the name of a session, and says so."""

    store: Store
    here: Fingerprint
    session: str
    tell: Callable[[Event], None]

    def trial(self, trial: Trial, failure: CandidateFailure) -> None:
        """Withdraw one trial."""
        number = self.store.id_of(trial)
        if number is None:
            raise InternalError(
                f"kernel {trial.kernel_key}: {trial.actions!r} ran in a model and is not in "
                "the store"
            )
        self.store.withdraw(number, in_model(failure), self.session)
        name = self.store.kernel_name(trial.kernel_key)
        self.tell(Warned(f"kernel {name}: {trial.actions!r} is withdrawn: {in_model(failure)}"))

    def actions(self, key: str, actions: str, failure: CandidateFailure) -> None:
        """Withdraw every trial of a kernel here that has these actions."""
        for trial in self.store.trials(key, self.here):
            if trial.actions == actions and trial.measurement.ran:
                self.trial(trial, failure)


_PAIRED_SHARE, _PROFILED_SHARE = 0.75, 0.8
"""Of the tuned model and its defaults in turns, and then of their kernels: the part of the time
that is left by then, at most.
"""

_INTERRUPTED_S = 0.3

_AGAIN = "tune it again with a longer budget, or when the machine is quiet"


@dataclass(frozen=True, slots=True)
class Weighed:
    """Medians of a kernel's launches in the model, in turns: with the default schedule, and with
    the winner; and where their ratio lies.

    ``gain`` is the median of that ratio, turn by turn.
    """

    default_s: float
    winner_s: float
    interval: Interval | None = None
    gain: float | None = None


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """The whole model: seconds with default schedules and with winners, None where it did not run;
    and its outputs.

    ``weighed`` are its kernels, by key. ``by_turns`` is its gain, turn by turn, and ``interval``
    where that lies. ``back`` are the kernels whose defaults took the place of winners again.
    """

    default_s: float | None
    tuned_s: float | None
    sound: Soundness
    weighed: dict[str, Weighed]
    interval: Interval | None = None
    by_turns: float | None = None
    back: tuple[str, ...] = ()


def measured_end_to_end(
    work: Workload,
    models: Models,
    withdrawals: Withdrawals,
    interrupt: Interrupt,
    left_s: float = inf,
    fresh: Set[str] = frozenset(),
) -> EndToEnd:
    """The tuned model held to what it must compute, and timed next to its default schedules, in
    about ``left_s`` seconds.

    That is stored. Where the model is proved slower than its defaults, these take the place of the
    winners again, of the kernels ``fresh``: those with a new winner in this session that no other
    model of it runs.
    """
    over_s = monotonic() + left_s

    def seconds(share: float) -> float:
        """Seconds of that share of what is left now: on a busy machine a check takes most of it."""
        rest_s = max(0.0, over_s - monotonic())
        return _INTERRUPTED_S if interrupt.requested else min(PAIRED_S, share * rest_s)

    sound, weighed, tell = _UNBEGUN, dict[str, Weighed](), withdrawals.tell
    back: tuple[str, ...] = ()
    try:
        sound = made_sound(work, models, withdrawals.actions)
        if sound.mismatch:
            raise WrongResult(sound.mismatch)
        if sound.uncompared:
            tell(Warned(f"model {work.name}: its outputs were not compared: {sound.uncompared}"))
        tuned, default = models.of(work), models.of(work, stored=False)
        models.bench.check([tuned, default])
        samples = _paired(models, tuned, default, seconds(_PAIRED_SHARE))
        profiled_s = seconds(_PROFILED_SHARE)
        launches = _profiled(models, work, [default, tuned], samples, profiled_s, tell)
        back = _taken_back(models, tuned, default, samples, fresh, tell)
        if back:
            said = slower(work.name, gain_interval(samples[1], samples[0]), "these stand again")
            tell(Warned(said or f"model {work.name}: default schedules stand again"))
            tuned = models.of(work)
            samples = _paired(models, tuned, default, seconds(1.0))
        same = {key for key, text in tuned.actions.items() if default.actions[key] == text}
        weighed = _weighed(launches, same, frozenset(back))
        state = models.bench.state()
        record_latency(models.store, work, models.here, withdrawals.session, samples, state)
        interval = gain_interval(samples[1], samples[0])
        if (said := slower(work.name, interval)) is not None:
            tell(Warned(said))
        by_turns = paired_gain(samples[1], samples[0])
        tuned_s, default_s = map(median, samples)
        return EndToEnd(default_s, tuned_s, sound, weighed, interval, by_turns, back)
    except CandidateFailure as error:
        tell(Warned(f"the whole model was not measured: {error}"))
    except OutOfTimeError:
        sound = Soundness(f"the budget ended before; {_AGAIN}") if sound is _UNBEGUN else sound
        tell(
            Warned(
                f"model {work.name}: the budget ended before the whole model was compared and "
                "measured; tunegrad run measures it"
            )
        )
    except KeyboardInterrupt:
        if not interrupt.requested:
            raise
        sound = Soundness("interrupted before") if sound is _UNBEGUN else sound
        tell(Warned("interrupted before the whole model was compared and measured"))
    return EndToEnd(None, None, sound, weighed, back=back)


def _paired(models: Models, tuned: WholeModel, default: WholeModel, seconds: float) -> Pair:
    """Samples of both in turns; where both are one program each has all: it has no gain."""
    samples = models.bench.paired(tuned, default, seconds)
    if tuned.actions != default.actions:
        return samples
    both = [*samples[0], *samples[1]]
    return both, both


def slower(name: str, interval: Interval | None, what_then: str = _AGAIN) -> str | None:
    """Warning about a model whose whole gain is below 1, and ``what_then``; else None."""
    if interval is None or interval[1] >= 1.0:
        return None
    return (
        f"model {name}: its winners are slower here than its default schedules, {interval[0]:.2f} "
        f"to {interval[1]:.2f}x; {what_then}"
    )


def _taken_back(
    models: Models,
    tuned: WholeModel,
    default: WholeModel,
    samples: Pair,
    fresh: Set[str],
    tell: Callable[[Event], None],
) -> tuple[str, ...]:
    """Promote the default schedules of ``fresh`` kernels that had another winner, where the model
    is proved slower with winners than without, by the test that every winner passes.
    """
    found, (slow, fast) = decide(*samples), samples
    if not found.promoted:
        return ()
    evidence = Evidence(found.test, found.p_value, tuple(slow), tuple(fast), cold=False)
    back = []
    for key in sorted(fresh & tuned.actions.keys()):
        text = default.actions[key]
        rows = [] if tuned.actions[key] == text else _ran(models, key, text)
        if rows:
            promote(models.store, rows[0], evidence)
            back.append(key)
            name, origin = models.store.kernel_name(key), rows[0].origin
            tell(WinnerPromoted(name, key, text, median(fast), median(slow), origin))
    return tuple(back)


def _ran(models: Models, key: str, actions: str) -> list[Trial]:
    trials = models.store.trials(key, models.here)
    return [t for t in trials if t.actions == actions and t.measurement.ran]


def measured_deviation(work: Workload) -> Deviation | None:
    """Deviation that 16 bits cost a model: its graph next to the one before, both evaluated by
    numpy.

    None where it was not narrowed, or memory does not suffice.
    """
    if not work.full:
        return None
    try:
        return deviation_of_graph(work.graph, work.full, drawn(work.inputs, 0))
    except MemoryError:
        return None


def latency_s(
    work: Workload, actions: dict[str, str], models: Models, tell: Callable[[Event], None]
) -> float:
    """Seconds of a model with these actions by kernel key; infinity where it does not run."""
    used = {u.key: actions[u.key] for u in work.kernels if u.key in actions}
    try:
        return median(models.bench.latencies(models.of(work, used), PROOF_TURNS))
    except CandidateFailure as error:
        tell(Warned(f"the whole model was not measured: {error}"))
        return inf


def _profiled(
    models: Models,
    work: Workload,
    both: Sequence[WholeModel],
    samples: Pair,
    profiled_s: float,
    tell: Callable[[Event], None],
) -> dict[str, Pair]:
    """Launches of both models, for about so long; none where the budget ends before."""
    turn_s = RUNS * sum(map(median, samples))
    turns = max(1, min(PROOF_TURNS, int(profiled_s / turn_s)))
    try:
        before, after = (per_launch(work.plan, t) for t in models.bench.profiled(both, turns))
    except OutOfTimeError:
        tell(Warned(f"model {work.name}: the budget ended before its kernels were timed in it"))
        return {}
    return {key: (after[key], before[key]) for key in after}


def _weighed(launches: Mapping[str, Pair], same: Set[str], back: Set[str]) -> dict[str, Weighed]:
    """Medians over turns. A kernel that won by default has one time; of one whose default stands
    again, that is what it took with it.
    """
    found: dict[str, Weighed] = {}
    for key, (after, before) in launches.items():
        if key in back:
            found[key] = Weighed(*2 * (median(before),))
        elif key in same:
            found[key] = Weighed(*2 * (median([*before, *after]),))
        else:
            found[key] = Weighed(
                median(before),
                median(after),
                gain_interval(before, after),
                paired_gain(before, after),
            )
    return found
