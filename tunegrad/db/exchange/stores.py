"""Whole stores as files: exported, imported, merged, pruned, compared, salvaged.

Each is one call with a report.

What rewrites a store holds its writer's lock from before it reads until after it wrote, and writes
in one transaction: whatever happens, the store is as it was or as the report says. A store that is
damaged is not rewritten.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import BinaryIO

from tunegrad.db.check import read_contents, sound_contents
from tunegrad.db.contents import (
    Contents,
    Identity,
    identity,
    is_imported,
    place_of,
    standing,
    subject,
    winners,
)
from tunegrad.db.exchange.claims import ActionRule, Refusal
from tunegrad.db.exchange.export import export_lines
from tunegrad.db.exchange.merge import HELD, merge_contents, with_imported
from tunegrad.db.opening import MEMORY, open_store
from tunegrad.db.records import Problem
from tunegrad.db.rows import key_of
from tunegrad.db.views import StoreDiff, diff_contents, find_kernel
from tunegrad.errors import StoreError
from tunegrad.lazy import dataclass
from tunegrad.trial import Trial


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

    Kept whatever is asked: every promoted trial with its evidence; every withdrawn one; the winner
    of every kernel, machine, space version and policy; the newest OK trial of each, which says
    which policy counts; of what is kept, the measurement that counts. Decisions, latencies,
    sessions, names of kept kernels and spent budget stay. What is removed was measured for nothing
    if it is needed again: a search would measure it once more.
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
    """The fastest timed trials of every place and policy that count, the older of equals."""
    groups: dict[tuple[object, ...], list[Trial]] = {}
    for trial in standing(contents.trials):
        if trial.measurement.ran:
            groups.setdefault((place_of(trial), trial.policy.text), []).append(trial)
    ranked = (
        sorted(group, key=lambda t: t.measurement.seconds)[:count] for group in groups.values()
    )
    return {identity(t) for group in ranked for t in group}


PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Exported:
    """The lines of an export, without their ends, and the damaged rows that are not in them."""

    lines: tuple[str, ...]
    trials: int
    promotions: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of importing a file.

    ``known`` trials were there already; ``held`` winners were kept by a promotion of their own.

    The actions of ``unchecked_trials`` parse, but whether they are legal was not checked, for the
    reasons counted in ``unchecked``; that is seen when they are loaded, and an illegal schedule is
    then not used.
    """

    store: str
    source: str
    dry_run: bool
    new_trials: int
    known_trials: int
    new_promotions: int
    new_decisions: int
    new_latencies: int
    held: int
    imported_winners: int
    unchecked_trials: int
    unchecked: Mapping[str, int]
    refused: tuple[Refusal, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MergeReport:
    """A store after a merge.

    ``replaced``: trials of its own whose row in another store was the better evidence.

    ``changed_winners`` counts places that had a winner before and have another schedule now.
    """

    store: str
    sources: tuple[str, ...]
    dry_run: bool
    trials_before: int
    trials: int
    replaced: int
    promotions_before: int
    promotions: int
    decisions_before: int
    decisions: int
    latencies_before: int
    latencies: int
    winners_before: int
    winners: int
    changed_winners: int


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The result of a prune: what was removed, or would be. Bytes are of the file, compacted."""

    store: str
    dry_run: bool
    trials: int
    removed_trials: int
    removed_kernels: int
    bytes_before: int
    bytes_after: int

    @property
    def freed_bytes(self) -> int:
        return self.bytes_before - self.bytes_after


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """The result of a salvage: what of a damaged store is in a new one now, and what is not."""

    store: str
    into: str
    trials: int
    promotions: int
    problems: tuple[Problem, ...]


def export_store(path: PathLike, kernel: str | None = None, *, best: bool = False) -> Exported:
    """The store at ``path`` as lines; of one kernel (name, key or start of a key), or of winners
    only, where asked.

    Raises StoreError for an unknown kernel, or a store that can not be read at all.
    """
    contents, problems = read_contents(path)
    if kernel is not None:
        contents = contents.of_kernels({key_of(find_kernel(contents, kernel)[0])})
    if best:
        contents = contents.of_winners()
    return Exported(
        tuple(export_lines(contents)), len(contents.trials), len(contents.promotions), problems
    )


def import_store(
    path: PathLike,
    file: BinaryIO,
    source: str,
    *,
    dry_run: bool = False,
    rule: ActionRule | None = None,
) -> ImportReport:
    """Take the good rows of an exported file into the store at ``path``, which is made if it is
    missing.

    ``rule`` says of each trial whether its actions are legal (``tunegrad.explain.legality`` has one
    for this machine); without it they need only parse. Raises StoreError when the file is no
    export, or the store can not be written.
    """
    from tunegrad.db.exchange.importing import read_export  # brings msgspec, which only this needs

    reading = read_export(file, source) if rule is None else read_export(file, source, rule)
    with _rewriting(path, dry_run) as (before, write):
        after = with_imported(before, reading.contents)
        if after != before:
            write(after)
    known = {subject(t) for t in before.trials}
    claims = sum(p.evidence.test == HELD for p in after.promotions) - sum(
        p.evidence.test == HELD for p in before.promotions
    )
    trials = reading.contents.trials
    return ImportReport(
        store=os.fspath(path),
        source=source,
        dry_run=dry_run,
        new_trials=len(after.trials) - len(before.trials),
        known_trials=sum(subject(t) in known for t in trials),
        new_promotions=len(after.promotions) - len(before.promotions) - claims,
        new_decisions=len(after.decisions) - len(before.decisions),
        new_latencies=len(after.latencies) - len(before.latencies),
        held=claims,
        imported_winners=sum(is_imported(w.promotion or w.trial) for w in winners(after).values()),
        unchecked_trials=sum(reading.unchecked.values()),
        unchecked=reading.unchecked,
        refused=reading.refusals,
        warnings=reading.warnings,
    )


def merge_stores(
    path: PathLike, others: Sequence[PathLike], *, dry_run: bool = False
) -> MergeReport:
    """Make the store at ``path`` (new if missing) hold the others' contents too; they stay."""
    sources = [sound_contents(other) for other in others]
    with _rewriting(path, dry_run) as (before, write):
        after = merge_contents([before, *sources])
        if after != before:
            write(after)
    old, new = winners(before), winners(after)
    mine, kept = before.by_identity(), after.by_identity()
    return MergeReport(
        store=os.fspath(path),
        sources=tuple(os.fspath(other) for other in others),
        dry_run=dry_run,
        trials_before=len(before.trials),
        trials=len(after.trials),
        replaced=sum(kept.get(i) != t for i, t in mine.items()),
        promotions_before=len(before.promotions),
        promotions=len(after.promotions),
        decisions_before=len(before.decisions),
        decisions=len(after.decisions),
        latencies_before=len(before.latencies),
        latencies=len(after.latencies),
        winners_before=len(old),
        winners=len(new),
        changed_winners=sum(
            place not in new or new[place].trial.actions != w.trial.actions
            for place, w in old.items()
        ),
    )


def prune_store(path: PathLike, rules: PruneRules, *, dry_run: bool = False) -> PruneReport:
    """Remove what the rules name from the store at ``path`` and compact its file.

    Winners and evidence stay.
    """
    if not Path(path).expanduser().exists():
        raise StoreError(f"store {os.fspath(path)}: does not exist; there is nothing to prune")
    size_before = Path(path).expanduser().stat().st_size
    with _rewriting(path, dry_run, compact=True) as (before, write):
        after = prune_contents(before, rules)
        write(after)
    size_after = _size_of(after) if dry_run else Path(path).expanduser().stat().st_size
    return PruneReport(
        store=os.fspath(path),
        dry_run=dry_run,
        trials=len(after.trials),
        removed_trials=len(before.trials) - len(after.trials),
        removed_kernels=len(before.kernels) - len(after.kernels),
        bytes_before=size_before,
        bytes_after=size_after,
    )


def diff_stores(a: PathLike, b: PathLike, *, all_machines: bool = False) -> StoreDiff:
    """Differences of the store at ``b`` from the one at ``a``."""
    return diff_contents(read_contents(a)[0], read_contents(b)[0], all_machines=all_machines)


def salvage_store(path: PathLike, into: PathLike) -> SalvageReport:
    """Copy every sound row of the store at ``path`` into a new one.

    Raises StoreError when ``into`` exists, or is no file.
    """
    if os.fspath(into) == MEMORY:
        raise StoreError(f"store {MEMORY}: is not a file, and rows are salvaged into a file")
    if Path(into).expanduser().exists():
        raise StoreError(f"store {os.fspath(into)}: exists; rows are salvaged into a new store")
    contents, problems = read_contents(path)
    with open_store(into, "write") as store:
        store.replace_contents(contents)
    return SalvageReport(
        os.fspath(path), os.fspath(into), len(contents.trials), len(contents.promotions), problems
    )


@contextmanager
def _rewriting(
    path: PathLike, dry_run: bool, *, compact: bool = False
) -> Iterator[tuple[Contents, Callable[[Contents], None]]]:
    """The contents of a store, replaceable under its writer's lock; a dry run only reads."""
    if os.fspath(path) == MEMORY:
        raise StoreError(f"store {MEMORY}: is not a file, and only files are rewritten")
    exists = Path(path).expanduser().exists()
    if dry_run:
        yield (sound_contents(path) if exists else Contents()), lambda _: None
        return
    with open_store(path, "write") as store:
        yield (sound_contents(path) if exists else Contents()), store.replace_contents
        if compact:
            store.compact()


def _size_of(contents: Contents) -> int:
    """Bytes of a compact file that holds this."""
    with tempfile.TemporaryDirectory(prefix="tunegrad-") as folder:
        path = Path(folder) / "store.db"
        with open_store(path, "write") as store:
            store.replace_contents(contents)
            store.compact()
        return path.stat().st_size
