"""The kernels of a session, before and after.

whole models at its end, in turns        --> both times and an interval, if the session said so
else the race that the winner won        --> both sides in turns, in whole models
else trials of the kernel alone          --> the default's and the fastest one's
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from statistics import median

from tunegrad.db import Contents, Evidence, Promotion, Session
from tunegrad.ir.parse_kernel import read_back
from tunegrad.paired import Interval, gain_interval, paired_gain
from tunegrad.trial import Trial

from ..machine.roofline import needed_flops
from .facts import KernelFacts, SessionFacts
from .records import KernelEntry, Measured

__all__ = ["entries_of", "needs"]


def entries_of(
    session: Session,
    facts: SessionFacts,
    trials: Sequence[Trial],
    contents: Contents,
    texts: Mapping[str, tuple[str, str]],
) -> tuple[tuple[KernelEntry, ...], int]:
    """The kernels that the session's models launch in the end, the heaviest before it first, and
    how many others it measured on the way. A session that did not say has all that it measured.

    ``texts`` are the text and the name of each kernel, by key.
    """
    measured = dict.fromkeys(t.kernel_key for t in trials)
    keys = list(facts.kernels) or list(measured)
    promoted = _promotions(session, trials, contents)
    rows = contents.by_identity()
    entries = []
    for key in keys:
        won = [(rows[p.trial], p.evidence) for p in promoted if p.place.kernel_key == key]
        mine = [t for t in trials if t.kernel_key == key]
        entries.append(_entry(key, *texts.get(key, ("", "")), facts, mine, won))
    entries.sort(key=lambda e: -e.uses * (e.before_s or e.after_s or 0.0))
    return tuple(entries), len(measured.keys() - set(keys))


def _promotions(session: Session, trials: Sequence[Trial], contents: Contents) -> list[Promotion]:
    """Up to the end of the session, on the machine of its own trials."""
    ended_s = inf if session.ended_s is None else session.ended_s + 1.0
    machines = {t.fingerprint for t in trials}
    return [
        p
        for p in contents.promotions
        if p.created_s <= ended_s and (not machines or p.place.fingerprint in machines)
    ]


def _entry(
    key: str,
    text: str,
    name: str,
    facts: SessionFacts,
    mine: Sequence[Trial],
    won: Sequence[tuple[Trial, Evidence]],
) -> KernelEntry:
    """``mine`` are the session's trials of the kernel, ``won`` its promotions so far."""
    said = facts.kernels.get(key, KernelFacts(1))
    fastest = min((t for t in mine if t.measurement.ran), key=_seconds, default=None)
    winner = won[-1][0] if won else fastest
    flops, unique_bytes = needs(text)
    return KernelEntry(
        name or key[:12],
        key,
        said.uses,
        said.layers,
        *_times(said, won, mine, winner),
        winner.actions if winner else "",
        winner.origin if winner else "",
        flops,
        unique_bytes,
        Counter(str(t.measurement.status) for t in mine),
        dict(winner.measurement.facts) if winner else {},
    )


def _seconds(trial: Trial) -> float:
    return trial.measurement.seconds


_Times = tuple[float | None, float | None, float | None, Interval | None, Measured]
"""Before, after, the gain and its interval, and where they are from."""


def _times(
    said: KernelFacts,
    won: Sequence[tuple[Trial, Evidence]],
    mine: Sequence[Trial],
    winner: Trial | None,
) -> _Times:
    if said.default_s is not None and said.tuned_s is not None:
        by_turns = said.gain or said.default_s / said.tuned_s
        return said.default_s, said.tuned_s, by_turns, said.interval, "model"
    if won and won[-1][1].incumbent_samples_s:
        return _raced(won[-1][1])
    ran = [t for t in mine if t.measurement.ran]
    default = next((t for t in ran if t.origin == "default"), None)
    before_s = default.measurement.seconds if default else None
    after_s = winner.measurement.seconds if winner and winner.measurement.ran else None
    gain = before_s / after_s if before_s and after_s else None
    return before_s, after_s, gain, None, "alone"


def _raced(e: Evidence) -> _Times:
    """Times of the incumbent and of the winner, in the turns of a proof."""
    before_s, after_s = e.incumbent_samples_s, e.challenger_samples_s
    pairs = min(len(before_s), len(after_s))
    sides = before_s[:pairs], after_s[:pairs]
    return (
        median(before_s), median(after_s), paired_gain(*sides), gain_interval(*sides), "race",
    )  # fmt: skip


def needs(text: str) -> tuple[int | None, int | None]:
    """Operations and bytes of one launch."""
    kernel = read_back(text)
    return (None, None) if kernel is None else (needed_flops(kernel), kernel.unique_bytes)
