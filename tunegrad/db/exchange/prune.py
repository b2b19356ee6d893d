"""A store with fewer trials, and the same winners.

Kept whatever is asked: every promoted trial with its evidence; every withdrawn one; the winner of
every kernel, machine, space version and policy; the newest OK trial of each, which says which
policy counts; of what is kept, the measurement that counts. Decisions, latencies, sessions, names
of kept kernels and spent budget stay. What is removed was measured for nothing if it is needed
again: a search would measure it once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from tunegrad.db.contents import Contents, winners
from tunegrad.db.identity import Identity, identity, place_of, standing, subject
from tunegrad.errors import StoreError
from tunegrad.trial import Trial

__all__ = ["PruneRules", "prune_contents"]


@dataclass(frozen=True, slots=True)
class PruneRules:
    """Rules for the trials that go: those that every rule given names.

    ``keep_best``: all but the N fastest OK trials of each kernel, machine, space version and
    policy; failures too. ``before_s``: those created before this moment. ``space_version``: those
    of this version of the space.
    """

    keep_best: int | None = None
    before_s: float | None = None
    space_version: int | None = None

    def __post_init__(self) -> None:
        if self.keep_best is None and self.before_s is None and self.space_version is None:
            raise StoreError(
                "prune: no rule says which trials go; give keep_best, before_s or space_version"
            )
        if self.keep_best is not None and self.keep_best < 0:
            raise StoreError(f"prune: keep_best {self.keep_best} must be at least 0")


def prune_contents(contents: Contents, rules: PruneRules) -> Contents:
    """Contents without the trials that the rules name. Every winner and every promotion is the same
    as before.
    """
    kept = _protected(contents)
    best = set() if rules.keep_best is None else _best(contents, rules.keep_best)
    stay = {
        identity(trial)
        for trial in contents.trials
        if identity(trial) in kept | best
        or trial.created_s >= (inf if rules.before_s is None else rules.before_s)
        or rules.space_version not in (None, trial.space_version)
    }
    # What counts of a subject stays with any other measurement of it, which would count without it.
    subjects = {i.subject for i in stay}
    stay |= {identity(t) for t in standing(contents.trials) if subject(t) in subjects}
    trials = tuple(t for t in contents.trials if identity(t) in stay)
    named = {t.kernel_key for t in trials} | {d.key for d in contents.decisions}
    gone = {t.kernel_text for t in contents.trials if t.kernel_key not in named}
    return replace(
        contents, trials=trials, kernels=tuple(k for k in contents.kernels if k[0] not in gone)
    )


def _protected(contents: Contents) -> set[Identity]:
    kept = {p.trial for p in contents.promotions}
    kept |= {identity(t) for t in contents.trials if subject(t) in contents.withdrawn}
    kept |= {identity(w.trial) for w in winners(contents).values()}
    newest = {place_of(t): t for t in contents.trials if t.measurement.ran}
    kept |= {identity(t) for t in newest.values()}
    return kept | _best(contents, 1)


def _best(contents: Contents, count: int) -> set[Identity]:
    """The fastest timed trials of every place and policy, the older of equals; only measurements
    that count.
    """
    groups: dict[tuple[object, ...], list[Trial]] = {}
    for trial in standing(contents.trials):
        if trial.measurement.ran:
            groups.setdefault((place_of(trial), trial.policy.text), []).append(trial)
    ranked = (
        sorted(group, key=lambda t: t.measurement.seconds)[:count] for group in groups.values()
    )
    return {identity(t) for group in ranked for t in group}
