"""What a session did, as the table that a user reads."""

from __future__ import annotations

from math import inf

from tunegrad.config import TuneSettings
from tunegrad.db import Store
from tunegrad.reports import RunReport, TuneReport, TuneRow
from tunegrad.search import KernelSearch
from tunegrad.trial import Fingerprint, Trial

from .roofline import Roofline
from .workload import Workload

__all__ = ["Finish", "report_of"]


class Finish:
    """How a session ended: its times, and the whole model where it was measured."""

    __slots__ = ("interrupted", "search_s", "seconds", "whole")

    def __init__(self, interrupted: bool, search_s: float, seconds: float, whole: RunReport | None) -> None:
        self.interrupted, self.search_s, self.seconds, self.whole = interrupted, search_s, seconds, whole


def report_of(
    settings: TuneSettings,
    workload: Workload,
    searches: tuple[KernelSearch, ...],
    store: Store,
    here: Fingerprint,
    roofline: Roofline,
    session: str,
    finish: Finish,
) -> TuneReport:
    """The report: a row per kernel, the heaviest first."""
    winners = [store.winner(s.task.key, here, s.space.version) for s in searches]
    weights = [s.task.uses * _seconds(w) for s, w in zip(searches, winners, strict=True)]
    total = sum(w for w in weights if w < inf) or inf
    rows = [
        TuneRow(
            kernel=s.task.name,
            key=s.task.key,
            uses=s.task.uses,
            share=weight / total if weight < inf else 0.0,
            default_ms=_ms(s.default_s),
            tuned_ms=_ms(_seconds(winner)),
            pct_peak=roofline.pct_peak(s.task.kernel, _seconds(winner)) if winner else None,
            candidates=s.statuses,
            actions=winner.actions if winner else s.defaults[0].text,
            origin=winner.origin if winner else "default",
        )
        for s, winner, weight in zip(searches, winners, weights, strict=True)
    ]
    measured = sum(sum(s.statuses.values()) for s in searches)
    return TuneReport(
        model=workload.name,
        device=settings.device,
        threads=settings.threads,
        searcher=settings.searcher,
        store=str(settings.store),
        session=session,
        rows=tuple(sorted(rows, key=lambda row: -row.share)),
        default_ms=finish.whole.default_ms if finish.whole else None,
        tuned_ms=finish.whole.stored_ms if finish.whole else None,
        interrupted=finish.interrupted,
        seconds=finish.seconds,
        candidates_per_s=measured / finish.search_s if finish.search_s > 0 else 0.0,
    )


def _seconds(winner: Trial | None) -> float:
    return winner.measurement.seconds if winner is not None else inf


def _ms(seconds: float) -> float | None:
    return 1e3 * seconds if seconds < inf else None
