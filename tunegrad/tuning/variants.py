"""Which variant each kernel of a model runs as, settled by measuring.

every part of every variant, default schedules   -->   verified and timed by the device, rows in the store
sums of parts, of kernels that multiply alike    -->   the near variants: ``Rivals``, whose kernels are searched a while
whole models of these, launch by launch, in turns  -->   the fastest; a decision each

A variant's constants may be nine times the direct kernel's: only a whole model shows what reading them costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from time import monotonic

from tunegrad.config import Numerics
from tunegrad.db import Store
from tunegrad.errors import CandidateFailure
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import DIRECT, parts_of, variants_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.search import decide
from tunegrad.trial import Fingerprint
from tunegrad.variants import allowed

from .contest import CONTEST_POLICY, FAULTS, ROUNDS, by_kernel, profiled_s
from .decisions import DecisionRows, evidence_of
from .models import Models, WholeModel, culprit
from .rivals import Group, Rivals
from .workload import Workload, with_variants

__all__ = ["Void", "rivals_of", "settle_variants"]

_NEAR = 1.6
"""Variants whose parts take at most this much longer than the best one's, by default schedules, are searched."""

_AGAIN = 4
"""How often a contest goes on where a variant is ahead and not proved to be."""

_ALPHA = 0.01 / (1 + _AGAIN)
"""Of each look at the samples: all looks together find a variant faster by chance in 1 of 100 contests (Bonferroni)."""

_LEAST_S = 1.0
"""A contest that takes no longer is held, however little time is left."""

_ALONE = "alone"
"""What stands for a test where there is nothing to compare the fastest variant with."""

Void = Callable[[str, str, CandidateFailure], None]
"""Withdraws the actions of a kernel, by its key, for what they did in the whole model."""

_Samples = dict[str, list[float]]
"""Seconds of a kernel's launches in whole models, turn by turn, by variant."""


def rivals_of(
    workload: Workload,
    here: Fingerprint,
    store: Store,
    measure: Callable[[Sequence[Kernel]], dict[str, float]],
    numerics: Numerics = "contract",
) -> Rivals:
    """The variants that each kernel of the workload may run as: what the store has settled, else the near ones.

    ``measure`` verifies and times default schedules and gives seconds by key, infinity where none ran.
    """
    names = {u.key: allowed(u.kernel, numerics) for u in workload.kernels}
    picks = _settled(workload, names, here, store)
    open_kernels = [u.kernel for u in workload.kernels if u.key not in picks and len(names[u.key]) > 1]
    if not open_kernels:
        return Rivals(workload, picks)
    parts = {p.key: p for k in open_kernels for v in names[k.key] for p in parts_of(k, v)}
    alike: dict[tuple[str, ...], list[str]] = {}
    for k in open_kernels:
        alike.setdefault(_work_of(k), []).append(k.key)
    groups = tuple(Group(tuple(keys), names[keys[0]]) for keys in alike.values())
    return Rivals(workload, picks, groups).narrowed(measure(list(parts.values())), _NEAR)


def settle_variants(
    rivals: Rivals, actions: Mapping[str, str], models: Models, session: str, void: Void, deadline_s: float = inf
) -> dict[str, str]:
    """A variant by key for every kernel that has several, by whole models of these ``actions`` by kernel key.

    Kernels without actions run as the store or their defaults have them. Where ``deadline_s`` leaves no time for whole
    models the favourites are picked, and nothing is settled. Actions that end a contest, alone and twice, are told to
    ``void``; a variant that does so with default schedules has a row that says it. Then the others meet.
    """
    while any(g.contested for g in rivals.groups):
        contested = tuple(g for g in rivals.groups if g.contested)
        contest = _Contest(rivals.work, models, rivals.lineups, contested, actions)
        took_s = [sum(rivals.seconds(g)[picked[g.keys[0]]] for g in contested) for picked in contest.lineups]
        contest_s = profiled_s(took_s)
        if monotonic() + contest_s > max(deadline_s, monotonic() + _LEAST_S):
            break
        try:
            samples = _sampled(contest, until_s=deadline_s - contest_s)
        except FAULTS:
            left = _blamed(rivals, contest, session, void)
            if left is None:
                break
            rivals, actions = left
        except CandidateFailure:
            break
        else:
            return rivals.favourites | _settled_by(rivals, contested, samples, models, session)
    return rivals.favourites


def _settled_by(
    rivals: Rivals, contested: Sequence[Group], samples: Mapping[str, _Samples], models: Models, session: str
) -> dict[str, str]:
    """The fastest variant of every kernel of the groups, with its row."""
    rows = DecisionRows(models.store, models.here, session, "variant")
    texts = {u.key: u.kernel.text for u in rivals.work.kernels}
    return {key: v for g in contested for v in [_fastest(g, samples, texts, rows)] for key in g.keys}


def _blamed(rivals: Rivals, contest: _Contest, session: str, void: Void) -> tuple[Rivals, Mapping[str, str]] | None:
    """Rivals and actions without what ended a contest; None where nothing does so again, alone and twice."""
    plain = replace(contest, actions={}, stored=False)
    if plain.fails() is None:
        used = {u.key for u in rivals.kernels}
        found = culprit(
            [key for key in contest.actions if key in used],
            lambda keys: replace(plain, actions={k: contest.actions[k] for k in keys}).fails(),
        )
        if found is None:
            return None
        key, failure = found
        void(key, contest.actions[key], failure)
        return rivals, {k: a for k, a in contest.actions.items() if k != key}
    first = {g.keys: DIRECT if g.direct_ran else g.variants[-1] for g in contest.groups}
    suspects = [(g.keys, v) for g in contest.groups for v in g.lineup if v != first[g.keys]]

    def fails(few: Sequence[tuple[tuple[str, ...], str]]) -> CandidateFailure | None:
        base = {**rivals.picks, **{key: v for keys, v in first.items() for key in keys}}
        return replace(plain, lineups=[base, *({**base, **dict.fromkeys(keys, v)} for keys, v in few)]).fails()

    found_variant = None if fails([]) is not None else culprit(suspects, fails)
    if found_variant is None:
        return None
    (keys, variant), failure = found_variant
    texts = {u.key: u.kernel.text for u in rivals.work.kernels}
    rows = DecisionRows(contest.models.store, contest.models.here, session, "variant")
    rows.failed(texts[keys[0]], variant, failure)
    return rivals.without(keys, variant), contest.actions


def _sampled(contest: _Contest, until_s: float) -> dict[str, _Samples]:
    """Samples of every group, taken again while some variant is ahead and not proved to be, until ``until_s``.

    Disturbed moments spread the samples; the direct variant stays where nothing is proved, so that a session that gave
    up too early would keep a slow one.
    """
    samples = contest.samples()
    for _ in range(_AGAIN):
        if monotonic() > until_s or not any(_undecided(g, samples) for g in contest.groups):
            break
        for key, variants in contest.samples().items():
            for variant, taken in variants.items():
                samples[key][variant].extend(taken)
    return samples


def _undecided(group: Group, samples: Mapping[str, _Samples]) -> bool:
    best, totals = _ahead(group, samples)
    return group.direct_ran and decide(totals[DIRECT], totals[best], alpha=_ALPHA).undecided


def _fastest(group: Group, samples: Mapping[str, _Samples], texts: Mapping[str, str], rows: DecisionRows) -> str:
    """The fastest variant of a group in whole models, or the direct one, where none is proved faster.

    What came nearest has a row for every kernel, with a promotion where it was, or where no direct kernel ran.
    """
    best, totals = _ahead(group, samples)
    if not group.direct_ran:
        for key in group.keys:
            rows.stands(texts[key], best, CONTEST_POLICY, samples[key][best], _ALONE)
        return best
    verdict = decide(totals[DIRECT], totals[best], alpha=_ALPHA)
    for key in group.keys:
        evidence = evidence_of(verdict, (samples[key][DIRECT], samples[key][best]))
        rows.challenged(texts[key], best, evidence, verdict.promoted)
    return best if verdict.promoted else DIRECT


def _ahead(group: Group, samples: Mapping[str, _Samples]) -> tuple[str, dict[str, list[float]]]:
    """The fastest of the variants that are not direct, and what each takes of all kernels of the group together."""
    totals = {v: [sum(turn) for turn in zip(*(samples[k][v] for k in group.keys), strict=True)] for v in group.lineup}
    return min((v for v in totals if v != DIRECT), key=lambda v: median(totals[v])), totals


def _settled(
    workload: Workload, allowed_here: Mapping[str, Sequence[str]], here: Fingerprint, store: Store
) -> dict[str, str]:
    picks = {}
    for use in workload.kernels:
        names = allowed_here[use.key]
        if len(names) == 1:
            continue
        # What an imported file claims was not measured here: it is a variant like any other.
        found = store.decision("variant", use.key, here, SPACE_VERSION)
        if found is not None and not found.imported:
            picks[use.key] = found.choice if found.choice in names else DIRECT
        elif any(t.space_version == SPACE_VERSION and not e.imported for t, e in store.promotions(use.key, here)):
            picks[use.key] = DIRECT
    return picks


def _work_of(kernel: Kernel) -> tuple[str, ...]:
    """Kernels whose variants multiply the same shapes, and differ in their epilogues only, are settled together."""
    return tuple(p.key for v in variants_of(kernel) if v != DIRECT for p in parts_of(kernel, v) if p.reduces)


@dataclass(frozen=True, slots=True)
class _Contest:
    """Whole models in which each group runs as each of its variants once; the others as picked."""

    workload: Workload
    models: Models
    lineups: Sequence[Mapping[str, str]]
    groups: Sequence[Group]
    actions: Mapping[str, str]
    stored: bool = True

    def samples(self) -> dict[str, _Samples]:
        """Seconds of one launch of each kernel of the groups. Raises CandidateFailure."""
        found: dict[str, _Samples] = {}
        for picks, turns in zip(self.lineups, self.models.bench.profiled(self._made(), ROUNDS), strict=True):
            for key, taken in by_kernel(turns, self._places(picks)).items():
                found.setdefault(key, {}).setdefault(picks[key], taken)
        return found

    def fails(self) -> CandidateFailure | None:
        """How the contest fails in a fresh process; None where it does not."""
        self.models.bench.renew()
        try:
            self.models.bench.profiled(self._made(), ROUNDS)
        except FAULTS as error:
            return error
        return None

    def _made(self) -> list[WholeModel]:
        works = [with_variants(self.workload, picks) for picks in self.lineups]
        return [self.models.of(work, self._mine(work), self.stored) for work in works]

    def _mine(self, work: Workload) -> dict[str, str]:
        return {u.key: self.actions[u.key] for u in work.kernels if u.key in self.actions}

    def _places(self, picks: Mapping[str, str]) -> dict[str, list[slice]]:
        """Where the parts of every use of the groups' kernels are among the launches."""
        wanted = {key for g in self.groups for key in g.keys}
        places: dict[str, list[slice]] = {}
        at = 0
        for launch in self.workload.plan.launches:
            key = launch.kernel.key
            count = len(parts_of(launch.kernel, picks.get(key, DIRECT)))
            if key in wanted:
                places.setdefault(key, []).append(slice(at, at + count))
            at += count
        return places
