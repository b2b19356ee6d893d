"""The finals of one kernel: its best few timed again, interleaved, full size, cold; a challenger must be proved faster.

    nothing promoted yet     the default schedule is the first incumbent
    each challenger in turn  interleaved with the incumbent, then the two-sample test; ties keep the incumbent

A challenger was faster in the search, too: what is promoted won under both policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunegrad.db import Evidence, Store
from tunegrad.devices import CompiledCandidate
from tunegrad.errors import CandidateFailure, InternalError
from tunegrad.events import Event, Warned, WinnerPromoted
from tunegrad.opts import Schedule
from tunegrad.search import TEST, KernelSearch, decide
from tunegrad.trial import Fingerprint, Status, Trial

from .measuring import CandidateMeasurer

__all__ = ["Effort", "Final", "finals"]

FIRST = "first"
"""The test of a winner that nothing came before."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much the finals may cost: challengers per kernel, and rounds of each comparison (at least 5)."""

    challengers: int = 3
    rounds: int = 15


@dataclass(frozen=True, slots=True)
class Final:
    """One kernel's lineup: who holds the title, and who challenges, fastest first."""

    search: KernelSearch
    incumbent: Trial
    promoted: bool
    challengers: tuple[Trial, ...]


def finals(
    searches: Sequence[KernelSearch],
    measurer: CandidateMeasurer,
    store: Store,
    fingerprint: Fingerprint,
    effort: Effort,
    observe: Callable[[Event], None],
) -> None:
    """Settle the winner of every kernel where something changed, the one with the most to gain first; store evidence."""
    lineups = [lineup for s in searches if (lineup := _lineup(s, store, fingerprint, effort)) is not None]
    lineups.sort(key=_stake_s, reverse=True)
    work = [(x, t) for x in lineups if x.challengers for t in (x.incumbent, *x.challengers)]
    measurer.prime([(x.search.task.kernel, Schedule.parse(t.actions)) for x, t in work])
    for lineup in lineups:
        _settle(lineup, measurer, store, effort, observe)


def _lineup(search: KernelSearch, store: Store, fingerprint: Fingerprint, effort: Effort) -> Final | None:
    """Who meets whom; None where nothing ran, or where the incumbent holds its title and nobody was faster."""
    ranked = search.finalists(1 << 30)
    if not ranked:
        return None
    held = [t for t, _ in store.promotions(search.task.key, fingerprint) if t.space_version == search.space.version]
    texts = [s.text for s in search.defaults]
    default = next((t for text in texts for t in ranked if t.actions == text), None)
    incumbent = held[-1] if held else default or ranked[-1]
    faster = tuple(t for t in ranked if _faster(t, incumbent))[: effort.challengers]
    if held and (not faster or not search.statuses):
        return None
    return Final(search, incumbent, bool(held), faster)


def _faster(a: Trial, b: Trial) -> bool:
    return a.program_hash != b.program_hash and a.measurement.seconds < b.measurement.seconds


def _stake_s(lineup: Final) -> float:
    """Model seconds that the best challenger promises."""
    if not lineup.challengers:
        return 0.0
    gain_s = lineup.incumbent.measurement.seconds - lineup.challengers[0].measurement.seconds
    return lineup.search.task.uses * gain_s


def _settle(
    lineup: Final, measurer: CandidateMeasurer, store: Store, effort: Effort, observe: Callable[[Event], None]
) -> None:
    incumbent, promoted = lineup.incumbent, lineup.promoted
    for challenger in lineup.challengers:
        try:
            samples = _compared(lineup.search, measurer, incumbent, challenger, effort.rounds)
        except CandidateFailure as error:
            observe(Warned(f"kernel {lineup.search.task.name}: no final for {challenger.actions}: {error}"))
            continue
        if not promoted:
            _promote(store, incumbent, Evidence(FIRST, 1.0, (), samples[0], cold=True))
            promoted = True
        verdict = decide(*samples)
        if verdict.promoted:
            _promote(store, challenger, Evidence(TEST, verdict.p_value, *samples, cold=True))
            observe(_announced(lineup.search, incumbent, challenger))
            incumbent = challenger
    if not promoted:
        own = incumbent.measurement.samples_s
        _promote(store, incumbent, Evidence(FIRST, 1.0, (), own, cold=incumbent.policy.cache == "cold"))


def _compared(
    search: KernelSearch, measurer: CandidateMeasurer, incumbent: Trial, challenger: Trial, rounds: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Interleaved samples of both, cold. Raises CandidateFailure where one of them does not run any more."""
    kernel = search.task.kernel
    pair = [measurer.compiled(kernel, Schedule.parse(t.actions)) for t in (incumbent, challenger)]
    for result in pair:
        if not isinstance(result, CompiledCandidate):
            raise CandidateFailure(f"{result.measurement.status}: {result.measurement.error}")
    return measurer.compare(kernel, pair[0], pair[1], rounds)


def _promote(store: Store, trial: Trial, evidence: Evidence) -> None:
    found = store.id_of(trial)
    if found is None or trial.measurement.status is not Status.OK:
        raise InternalError(f"trial {trial.actions!r} of kernel {trial.kernel_key} is to win, and is not in the store")
    store.promote(found, evidence)


def _announced(search: KernelSearch, incumbent: Trial, challenger: Trial) -> WinnerPromoted:
    return WinnerPromoted(
        search.task.name,
        search.task.key,
        challenger.actions,
        challenger.measurement.seconds,
        incumbent.measurement.seconds,
        challenger.origin,
    )
