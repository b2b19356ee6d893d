"""The judgement of regression sweeps on a store: the findings of each, and where levels begin in
histories.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tunegrad.cli.tables import failed_text, finding_text
from tunegrad.db import Contents, machine_id
from tunegrad.regress.nights import (
    Place,
    failures_of,
    nights_in,
    place_of,
    split_series,
    sweeps_of,
)
from tunegrad.regress.verdict import Judged, judge_nights
from tunegrad.tuning import Judgement

__all__ = ["judgement"]


def judgement(contents: Contents, sessions: Sequence[str]) -> Judgement:
    """As ``tunegrad regress`` judges, by yardsticks and blessings: levels by the newest sweep of
    each model; findings, and what failed, of those of the sessions that are sweeps, by what was
    known then.
    """
    nights, blessed = nights_in(contents.sessions, contents.latencies)
    parts, _, _ = sweeps_of(contents.sessions)

    @cache
    def judged(sweep: str) -> Judged:
        return judge_nights(nights, blessed, sweep)

    machines = dict.fromkeys(x.fingerprint for x in contents.latencies)
    last = {place_of(f): f for f in machines}
    newest: dict[tuple[Place, str], str] = {}
    for night in nights:
        newest |= {(night.place, split_series(series)[0]): night.sweep for series, _ in night.rows}
    return Judgement(
        begun=frozenset(
            (row.model, row.session, machine_id(row.fingerprint))
            for (place, model), sweep in newest.items()
            for row in judged(sweep).begun
            if (place_of(row.fingerprint), split_series(row.model)[0]) == (place, model)
        ),
        places={machine_id(f): machine_id(last[place_of(f)]) for f in machines},
        findings={
            session: (
                *(finding_text(f) for f in judged(parts[session]).findings),
                *(
                    failed_text(f)
                    for lost in failures_of(contents.sessions, parts[session]).values()
                    for f in lost
                ),
            )
            for session in sessions
            if session in parts
        },
    )
