"""The finals of one kernel: its best few timed again, interleaved and full size; a challenger must be proved faster.

    nothing promoted yet     the default schedule is the first incumbent
    each challenger in turn  was faster in the search
        caches as in a model proved faster: it wins; clearly slower: it is out; ahead: more rounds, while there is time
        otherwise            where that is a tie: proved faster, it wins
    ties                     keep the incumbent
    all kernels done         a fresh process: new memory, code at new addresses
    each new leader          proved faster than the incumbent again: it is promoted
    all kernels once more    the best, and many more, in the whole model: see ``model_finals``

Caches as in a model: without the constants, where all of them together do not fit (the policy says so); that is all
then. Small models have kernels tried with nothing in the caches, then with everything. So what is promoted is proved
faster in one state, and not slower in the other, in two processes. The stored evidence is the second proof: its samples
had no part in choosing who is tested. In the end the default and the winner are weighed once more, interleaved: what a
report says of them must not hang on one noisy moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median

from tunegrad.db import IMPORTED, Evidence, Store
from tunegrad.devices import CONTENDING
from tunegrad.errors import CandidateFailure, InternalError
from tunegrad.events import Event, Warned, WinnerPromoted
from tunegrad.opts import Schedule
from tunegrad.search import KernelSearch, Verdict, decide
from tunegrad.trial import Cache, Fingerprint, Trial

from .measuring import Samples, SessionMeasurer

__all__ = ["AGAIN", "CONFIRMED", "NOTABLE", "PROVED", "Contestant", "Effort", "Weighed", "finals", "worth_more"]

_FIRST = "first"
"""The test of a winner that nothing came before."""

_TRIED, _BEHIND = 5, 1.02
"""Rounds after which a challenger that is at least so much behind is out."""

AGAIN = 2
"""How often a challenger that is ahead and not proved to be is measured once more, while there is time.

A disturbed machine spreads samples by more than what a search gains: of 48 comparisons with winners that are 3 to 38 %
faster, 35 were proved with one look of 15 rounds.
"""

_WORTH = 0.03
"""What it has to be ahead by for that: where a process puts things makes a schedule seem a per cent faster, twice."""

_WEIGHED = 9
"""Rounds of the default against the winner."""

_TIE = 1.01
"""A challenger that is at most this much slower in the first state of the caches may still win in the second."""

PROVED = 0.01
"""The p-value of the first proof, at each look: at most three in a hundred by chance, which then meet the second."""

CONFIRMED = 0.05
"""The p-value of the second proof, of all its looks together (Bonferroni): one claim, on samples of its own."""

NOTABLE = 0.01
"""What the second proof must show: where a process puts memory and code makes a schedule half a per cent faster."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much the finals may cost: challengers per kernel, rounds of a comparison (at least 5), and looks at one.

    After ``deadline_s`` on the monotonic clock there is one challenger per kernel, few rounds, and one look. Up to
    ``field`` programs of a kernel go on to the whole model.
    """

    challengers: int = 3
    rounds: int = 15
    deadline_s: float = inf
    looks: int = 1 + AGAIN
    field: int = 40

    def now(self) -> Effort:
        """What may be spent on the next kernel."""
        return Effort(1, 7, looks=1) if self.late else self

    @property
    def late(self) -> bool:
        """Whether the deadline is over."""
        return time.monotonic() > self.deadline_s


@dataclass(frozen=True, slots=True)
class Weighed:
    """Medians of interleaved runs, caches as in the search: of the default schedule, and of the winner."""

    default_s: float
    winner_s: float


@dataclass(frozen=True, slots=True)
class Contestant:
    """A kernel in the last round: its winner, and who may take its place, the fastest in the search first."""

    key: str
    winner: Trial
    others: tuple[Trial, ...]

    @property
    def field(self) -> tuple[Trial, ...]:
        """The winner, then the others."""
        return (self.winner, *self.others)


@dataclass(frozen=True, slots=True)
class _Lineup:
    """One kernel's final: who holds the title (promoted, or not yet), and who challenges.

    The challengers are of different programs, the fastest in the search first: also those that were not faster than the
    incumbent there, since a machine is in one state now and in another then. ``caches``: the states of the caches in
    which they meet.
    """

    search: KernelSearch
    default: Trial | None
    incumbent: Trial
    promoted: bool
    challengers: tuple[Trial, ...]
    caches: tuple[Cache, ...]


def worth_more(verdict: Verdict) -> bool:
    """Whether a comparison is worth more samples: the challenger is well ahead, and not proved to be."""
    return verdict.undecided and verdict.ratio <= 1.0 - _WORTH


def finals(
    searches: Sequence[KernelSearch],
    measurer: SessionMeasurer,
    store: Store,
    fingerprint: Fingerprint,
    effort: Effort,
    observe: Callable[[Event], None],
    weighed: dict[str, Weighed],
    in_model: Callable[[Sequence[Contestant]], Mapping[str, tuple[Trial, Evidence]]] = lambda _: {},
) -> None:
    """Settle the winner of every kernel where something changed, the heaviest first; the evidence is stored.

    ``in_model`` is the last round: new winners, with their evidence. ``weighed`` is filled by kernel key, as far as an
    interrupt lets it get.
    """
    lineups = [lineup for s in searches if (lineup := _lineup(s, store, fingerprint, effort)) is not None]
    lineups.sort(key=_model_s, reverse=True)
    lineups = [_verified(lineup, measurer, effort) for lineup in lineups]
    meets = [(x, (x.default, x.incumbent, *x.challengers[: effort.challengers])) for x in lineups]
    work = [(x, t) for x, trials in meets for t in trials if t is not None]
    measurer.prime([(x.search.task.kernel, Schedule.parse(t.actions)) for x, t in work])
    settlings = [_Settling(lineup, measurer, store, effort, observe) for lineup in lineups]
    for settling in settlings:
        settling.run()
    if any(settling.claimed for settling in settlings):
        measurer.renew()
    for settling in settlings:
        settling.confirm()
    proved = in_model([settling.contestant for settling in settlings])
    for lineup, settling in zip(lineups, settlings, strict=True):
        if (found_there := proved.get(lineup.search.task.key)) is not None:
            settling.crown(*found_there)
        if lineup.default is not None and (found := settling.weigh(lineup.default)) is not None:
            weighed[lineup.search.task.key] = found


def _lineup(search: KernelSearch, store: Store, fingerprint: Fingerprint, effort: Effort) -> _Lineup | None:
    """Who meets whom; None where nothing ran, and where nothing new could take the title."""
    ranked = search.finalists(1 << 30)
    if not ranked:
        return None
    # What an imported file promoted was not measured here: it is a challenger like any other.
    promotions = store.promotions(search.task.key, fingerprint)
    known = [t for t, e in promotions if t.space_version == search.space.version and not e.imported]
    # One that was timed otherwise is a seed of this search, and holds the title as it was timed now.
    held = [t for t in known if t.policy.cache == ranked[0].policy.cache]
    default = next((t for s in search.defaults for t in ranked if t.actions == s.text), None)
    before = next((t for t in ranked if known and t.actions == known[-1].actions), None)
    incumbent = held[-1] if held else before or default or ranked[-1]
    # Slower ones were not verified on every input set.
    fastest = next((t for t in ranked if not t.origin.startswith(IMPORTED)), ranked[0])
    contending_s = CONTENDING * fastest.measurement.seconds
    others = [t for t in ranked if t.program_hash != incumbent.program_hash and t.measurement.seconds <= contending_s]
    if held and (not others or not search.statuses):
        return None
    caches: tuple[Cache, ...] = ("constants",) if ranked[0].policy.cache == "constants" else ("cold", "warm")
    return _Lineup(search, default, incumbent, bool(held), tuple(others[: effort.field]), caches)


def _verified(lineup: _Lineup, measurer: SessionMeasurer, effort: Effort) -> _Lineup:
    """The same without challengers that a file brought, but for the few fastest of them that prove right here.

    Nothing that was not verified on this machine meets anybody, least of all in this process.
    """
    claimed = [t for t in lineup.challengers if t.origin.startswith(IMPORTED)]
    tried = {t.actions: Schedule.parse(t.actions) for t in claimed[: effort.challengers]}
    right: set[str] = set()
    if tried:
        measured = measurer.measure(lineup.search.task.kernel, list(tried.values()), inf, frozenset())
        for text, found in zip(tried, measured, strict=True):
            if found is not None and found.measurement.ran:
                right.add(text)
    wrong = {t.actions for t in claimed} - right
    return replace(lineup, challengers=tuple(t for t in lineup.challengers if t.actions not in wrong))


def _model_s(lineup: _Lineup) -> float:
    """Model seconds of the kernel, as the search measured it."""
    return lineup.search.task.uses * min(t.measurement.seconds for t in (lineup.incumbent, *lineup.challengers))


class _Settling:
    """One kernel's final while it runs. Mutable: the leader changes with every match, the incumbent at the end."""

    def __init__(
        self,
        lineup: _Lineup,
        measurer: SessionMeasurer,
        store: Store,
        effort: Effort,
        observe: Callable[[Event], None],
    ) -> None:
        self._task, self._measurer, self._store, self._observe = lineup.search.task, measurer, store, observe
        self._effort, self._now, self._challengers = effort, effort, lineup.challengers
        self._incumbent, self._promoted = lineup.incumbent, lineup.promoted
        self._leader = lineup.incumbent
        self._first = lineup.incumbent
        self._caches = lineup.caches

    @property
    def claimed(self) -> bool:
        """Whether a challenger is ahead of the incumbent."""
        return self._leader is not self._incumbent

    @property
    def contestant(self) -> Contestant:
        """Who holds the title now, and who else was in the final."""
        others = (*self._challengers, self._first)
        return Contestant(self._task.key, self._incumbent, tuple(t for t in others if t is not self._incumbent))

    def crown(self, trial: Trial, evidence: Evidence) -> None:
        """Promote whom another proof found."""
        self._leader = trial
        self._crown_leader(evidence)

    def run(self) -> None:
        """Let every challenger meet the leader of that moment."""
        self._now = self._effort.now()
        for challenger in self._challengers[: self._now.challengers]:
            try:
                self._meet(challenger)
            except CandidateFailure as error:
                self._observe(Warned(f"kernel {self._task.name}: no final for {challenger.actions!r}: {error}"))
        if not self._promoted:
            self._crown(self._incumbent.measurement.samples_s, self._incumbent.policy.cache)

    def confirm(self) -> None:
        """Promote the leader where it is proved faster than the incumbent once more."""
        leader = self._leader
        if not self.claimed:
            return
        try:
            alpha = CONFIRMED / self._now.looks
            for cache in self._caches:
                samples = self._compare(leader, self._now.rounds, cache, self._incumbent)
                samples = self._more(samples, leader, cache, self._incumbent, alpha)
                verdict = decide(*samples, alpha=alpha, least_effect=NOTABLE)
                if verdict.promoted:
                    self._crown_leader(Evidence(verdict.test, verdict.p_value, *samples, cold=self._cold(cache)))
                    return
                if _ratio(samples) > _TIE:
                    return
        except CandidateFailure as error:
            self._observe(Warned(f"kernel {self._task.name}: no second final for {leader.actions!r}: {error}"))

    def weigh(self, default: Trial) -> Weighed | None:
        """The default and the winner, interleaved; None where one of them does not run any more."""
        pair = Schedule.parse(default.actions), Schedule.parse(self._incumbent.actions)
        try:
            samples = self._measurer.compare(self._task.kernel, *pair, rounds=_WEIGHED, cache=self._caches[-1])
        except CandidateFailure as error:
            self._observe(Warned(f"kernel {self._task.name}: the winner was not weighed: {error}"))
            return None
        if default.program_hash == self._incumbent.program_hash:
            both = median(samples[0] + samples[1])
            return Weighed(both, both)
        return Weighed(median(samples[0]), median(samples[1]))

    def _meet(self, challenger: Trial) -> None:
        for cache in self._caches:
            samples = self._samples(challenger, cache)
            if not self._promoted:
                self._crown(samples[0], cache)
            if decide(*samples, alpha=PROVED, least_effect=NOTABLE).promoted:
                self._leader = challenger
                return
            if _ratio(samples) > _TIE:
                return

    def _samples(self, challenger: Trial, cache: Cache) -> Samples:
        """Interleaved samples; few where the challenger is behind after some, since more would hardly prove it."""
        first = self._compare(challenger, _TRIED, cache, self._leader)
        if _ratio(first) >= _BEHIND:
            return first
        rest = self._compare(challenger, max(1, self._now.rounds - _TRIED), cache, self._leader)
        return self._more(_both(first, rest), challenger, cache, self._leader, PROVED)

    def _more(self, samples: Samples, challenger: Trial, cache: Cache, incumbent: Trial, alpha: float) -> Samples:
        """The samples, and more of them while the challenger is well ahead, not proved to be, and there is time."""
        for _ in range(self._now.looks - 1):
            if self._effort.late or not worth_more(decide(*samples, alpha=alpha, least_effect=NOTABLE)):
                break
            samples = _both(samples, self._compare(challenger, self._now.rounds, cache, incumbent))
        return samples

    def _compare(self, challenger: Trial, rounds: int, cache: Cache, incumbent: Trial) -> Samples:
        pair = Schedule.parse(incumbent.actions), Schedule.parse(challenger.actions)
        return self._measurer.compare(self._task.kernel, *pair, rounds=rounds, cache=cache)

    def _crown_leader(self, evidence: Evidence) -> None:
        leader = self._leader
        self._promote(leader, evidence)
        seconds, previous_s = median(evidence.challenger_samples_s), median(evidence.incumbent_samples_s)
        self._observe(
            WinnerPromoted(self._task.name, self._task.key, leader.actions, seconds, previous_s, leader.origin)
        )
        self._incumbent = leader

    def _cold(self, cache: Cache) -> bool:
        """Whether anything is evicted: not where constants are, and a kernel has none."""
        if cache == "constants":
            return any(p.role == "const" for p in self._task.kernel.params)
        return cache == "cold"

    def _crown(self, samples: tuple[float, ...], cache: Cache) -> None:
        """The first winner of a kernel: the incumbent, with nothing to compare it to."""
        self._promote(self._incumbent, Evidence(_FIRST, 1.0, (), samples, cold=self._cold(cache)))
        self._promoted = True

    def _promote(self, trial: Trial, evidence: Evidence) -> None:
        found = self._store.id_of(trial)
        if found is None:
            raise InternalError(f"kernel {self._task.name}: the winner {trial.actions!r} is not in the store")
        self._store.promote(found, evidence)


def _ratio(samples: Samples) -> float:
    return median(b / a for a, b in zip(*samples, strict=True))


def _both(a: Samples, b: Samples) -> Samples:
    return a[0] + b[0], a[1] + b[1]
