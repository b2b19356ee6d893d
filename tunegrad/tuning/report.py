"""The result of a session, as the table that a user reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tunegrad.ir.fusion import layers_of
from tunegrad.paired import Interval
from tunegrad.reports import Deviation, TuneReport, TuneRow
from tunegrad.search import KernelSearch, StopReason
from tunegrad.trial import Trial

from .end_to_end import EndToEnd
from .machine import busy_text
from .state import Context
from .workload import Workload


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a session: why the search stopped (None: it had no budget), and its times in
    seconds.

    ``saved_s`` of the budget were left; ``costs`` are all its seconds by part. ``others`` are
    trials by status that the searches of the models' kernels do not count. ``others_cpus`` is how
    many CPUs other processes used meanwhile.
    """

    interrupted: bool
    stopped: StopReason | None
    saved_s: float
    search_s: float
    costs: Mapping[str, float]
    others: Mapping[str, int]
    others_cpus: float = 0.0


def report_of(
    context: Context,
    workload: Workload,
    searches: Sequence[KernelSearch],
    finish: Finish,
    whole: EndToEnd | None,
    deviation: Deviation | None = None,
) -> TuneReport:
    """The report of one model: a row per kernel, the heaviest first. Uses are those of this model.

    ``whole`` is the whole model where it was measured, ``deviation`` what 16 bits cost it.
    """
    settings, roofline = context.settings, context.progress.roofline
    uses = {u.key: u.uses for u in workload.kernels}
    searches = [s for s in searches if s.task.key in uses]
    won = [context.store.winner(s.task.key, context.here, s.space.version) for s in searches]
    facts = [_facts(s, winner, whole) for s, winner in zip(searches, won, strict=True)]
    for s, f in zip(searches, facts, strict=True):
        roofline = roofline.raised(s.task.kernel, f.tuned_s)
    total_s = (
        sum(
            uses[s.task.key] * f.tuned_s
            for s, f in zip(searches, facts, strict=True)
            if f.tuned_s < inf
        )
        or inf
    )
    layers = layers_of(workload.plan)
    rows = [
        TuneRow(
            kernel=s.task.name,
            key=s.task.key,
            uses=uses[s.task.key],
            share=uses[s.task.key] * f.tuned_s / total_s if f.tuned_s < inf else 0.0,
            default_ms=_ms(f.default_s),
            tuned_ms=_ms(f.tuned_s),
            pct_peak=roofline.pct_peak(s.task.kernel, f.tuned_s) if f.tuned_s < inf else None,
            candidates=s.statuses,
            actions=f.actions,
            origin=f.origin,
            seed_ms=_ms(s.seed_s),
            interval=f.interval,
            best_ms=_ms(s.best_s),
            layers=layers[s.task.key],
            by_turns=f.by_turns,
        )
        for s, f in zip(searches, facts, strict=True)
    ]
    rows += [
        TuneRow(u.name, u.key, u.uses, 0.0, None, None, None, {}, u.kernel.fixed, "fixed")
        for u in workload.kernels
        if u.kernel.fixed
    ]
    measured = sum(finish.others.values()) + sum(sum(s.statuses.values()) for s in searches)
    return TuneReport(
        model=workload.name,
        device=settings.device,
        threads=settings.threads,
        searcher=settings.searcher,
        store=str(settings.store),
        session=context.session,
        rows=tuple(sorted(rows, key=lambda row: -row.share)),
        default_ms=_ms(whole.default_s) if whole and whole.default_s else None,
        tuned_ms=_ms(whole.tuned_s) if whole and whole.tuned_s else None,
        interval=whole.interval if whole else None,
        by_turns=whole.by_turns if whole else None,
        voided=whole.sound.voided if whole else (),
        mismatch=whole.sound.mismatch if whole else "",
        uncompared=whole.sound.uncompared if whole else "",
        dtype=settings.dtype,
        deviation=deviation,
        interrupted=finish.interrupted,
        seconds=sum(finish.costs.values()),
        candidates_per_s=measured / finish.search_s if finish.search_s > 0 else 0.0,
        near_s=near_s(
            [(uses[s.task.key], s.trials) for s in searches], context.session, context.began_s
        ),
        costs=finish.costs,
        stopped=finish.stopped or "",
        saved_s=finish.saved_s,
        budget_s=settings.budget_s,
        target_ms=settings.target_ms,
        seed_share=_seed_share([(uses[s.task.key], s) for s in searches]),
        others=finish.others,
        others_cpus=finish.others_cpus,
        busy=busy_text(finish.others_cpus, settings.threads),
        training=bool(workload.plan.over),
    )


def _seed_share(searches: Sequence[tuple[int, KernelSearch]]) -> float | None:
    """The part of what the search of the kernels with seeds saved that the seeds alone gave."""
    seeded = [(uses, s) for uses, s in searches if s.seed_s < inf and s.default_s < inf]
    saved_s = sum(uses * (s.default_s - s.best_s) for uses, s in seeded)
    by_seeds_s = sum(uses * max(0.0, s.default_s - s.seed_s) for uses, s in seeded)
    if not seeded:
        return None
    return by_seeds_s / saved_s if saved_s > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class _Facts:
    """A kernel's winner, and its time next to the default's; infinity where one never ran."""

    actions: str
    origin: str
    default_s: float
    tuned_s: float
    interval: Interval | None = None
    by_turns: float | None = None


def _facts(search: KernelSearch, winner: Trial | None, whole: EndToEnd | None) -> _Facts:
    """In turns in the whole model, or as their rows say."""
    if winner is None:
        return _Facts(search.defaults[0].text, "default", search.default_s, inf)
    found = None if whole is None else whole.weighed.get(search.task.key)
    if found is None:
        return _Facts(winner.actions, winner.origin, search.default_s, winner.measurement.seconds)
    return _Facts(
        winner.actions,
        winner.origin,
        found.default_s,
        found.winner_s,
        found.interval,
        found.gain,
    )


def _ms(seconds: float) -> float | None:
    return 1e3 * seconds if seconds < inf else None


NEAR = 0.05
"""Part above the final value that still counts as near it."""


def near_s(
    kernels: Sequence[tuple[int, Sequence[Trial]]], session: str, began_s: float
) -> float | None:
    """Seconds after ``began_s`` (since the epoch) until the sum stayed within ``NEAR`` of its final
    value.

    ``kernels`` are (uses, rows). Rows of other sessions were there before. Kernels of which nothing
    ran are left out; None where none did.
    """
    ran = [
        (uses, rows) for uses, found in kernels if (rows := [t for t in found if t.measurement.ran])
    ]
    if not ran:
        return None
    best: list[float] = [inf] * len(ran)
    final_s = sum(uses * min(t.measurement.seconds for t in rows) for uses, rows in ran)
    dated = [
        (max(0.0, t.created_s - began_s) if t.session == session else 0.0, i, t.measurement.seconds)
        for i, (_, rows) in enumerate(ran)
        for t in rows
    ]
    for at_s, i, seconds in sorted(dated):
        best[i] = min(best[i], seconds)
        if sum(uses * s for (uses, _), s in zip(ran, best, strict=True)) <= (1.0 + NEAR) * final_s:
            return at_s
    return None
