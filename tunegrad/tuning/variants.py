"""Which variant each kernel of a model runs as, settled by measuring.

every part of every variant, default schedules   -->   verified and timed by the device, rows in the store
sums of parts, of kernels that multiply alike    -->   the near variants: ``Rivals``, whose kernels are searched a while
whole models of these, launch by launch, in turns  -->   the fastest; a row and a promotion each: ``variant(NAME)``

A variant's constants may be nine times the direct kernel's: only a whole model shows what reading them costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from time import monotonic

from tunegrad.config import Numerics
from tunegrad.db import IMPORTED, Hit, Store
from tunegrad.errors import CandidateFailure
from tunegrad.inference import LoadedModel
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.ir.variants import DIRECT, parts_of, variants_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.search import decide
from tunegrad.trial import Fingerprint
from tunegrad.variants import allowed, stored_variant, variant_text

from .contest import CONTEST_POLICY, by_kernel, profiled, profiled_s
from .decisions import DecisionRows, evidence_of
from .rivals import Group, Rivals
from .whole import model_of
from .workload import Workload, with_variants

__all__ = ["rivals_of", "settle_variants"]

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
    rivals: Rivals,
    actions: Mapping[str, str],
    target: Target,
    here: Fingerprint,
    store: Store,
    session: str,
    deadline_s: float = inf,
) -> dict[str, str]:
    """A variant by key for every kernel that has several, by whole models of these ``actions`` by kernel key.

    Kernels without actions run as the store or their defaults have them. Where ``deadline_s`` leaves no time for whole
    models the favourites are picked, and nothing is settled.
    """
    contested = tuple(g for g in rivals.groups if g.contested)
    picks = rivals.favourites
    if not contested:
        return picks
    contest = _Contest(rivals.work, target, here, store, rivals.lineups, contested, actions)
    took_s = [sum(rivals.seconds(g)[picked[g.keys[0]]] for g in contested) for picked in contest.lineups]
    contest_s = profiled_s(took_s)
    if monotonic() + contest_s > max(deadline_s, monotonic() + _LEAST_S):
        return picks
    try:
        samples = _sampled(contest, until_s=deadline_s - contest_s)
    except CandidateFailure:
        return picks
    rows = DecisionRows(store, here, session, "variant")
    texts = {u.key: u.kernel.text for u in rivals.work.kernels}
    for g in contested:
        picks |= dict.fromkeys(g.keys, _fastest(g, samples, texts, rows))
    return picks


def _sampled(contest: _Contest, until_s: float) -> dict[str, _Samples]:
    """Samples of every group, taken again while some variant is ahead and not proved to be, until ``until_s``.

    Disturbed moments spread the samples; the direct variant stays where nothing is proved, so that a session that gave
    up too early would keep a slow one.
    """
    models = contest.models()
    samples = contest.samples(models)
    for _ in range(_AGAIN):
        if monotonic() > until_s or not any(_undecided(g, samples) for g in contest.groups):
            break
        for key, variants in contest.samples(models).items():
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
            rows.stands(texts[key], variant_text(best), CONTEST_POLICY, samples[key][best], _ALONE)
        return best
    verdict = decide(totals[DIRECT], totals[best], alpha=_ALPHA)
    for key in group.keys:
        evidence = evidence_of(verdict, (samples[key][DIRECT], samples[key][best]))
        rows.challenged(texts[key], variant_text(best), evidence, verdict.promoted)
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
        found = store.lookup(use.key, here, SPACE_VERSION) if len(names) > 1 else None
        if isinstance(found, Hit):
            name = stored_variant(found.trial.actions) or DIRECT
            evidence = [e for _, e in store.promotions(use.key, here)]
            # What an imported file claims was not measured here: it is a variant like any other.
            claimed = found.trial.origin.startswith(IMPORTED) if not evidence else all(e.imported for e in evidence)
            if not claimed and (name != DIRECT or evidence):
                picks[use.key] = name if name in names else DIRECT
    return picks


def _work_of(kernel: Kernel) -> tuple[str, ...]:
    """Kernels whose variants multiply the same shapes, and differ in their epilogues only, are settled together."""
    return tuple(p.key for v in variants_of(kernel) if v != DIRECT for p in parts_of(kernel, v) if p.reduces)


@dataclass(frozen=True, slots=True)
class _Contest:
    """Whole models in which each group runs as each of its variants once; the others as picked."""

    workload: Workload
    target: Target
    here: Fingerprint
    store: Store
    lineups: Sequence[Mapping[str, str]]
    groups: Sequence[Group]
    actions: Mapping[str, str]

    def models(self) -> list[LoadedModel]:
        """A model of each lineup. Raises CandidateFailure."""
        return [self._model(picks) for picks in self.lineups]

    def samples(self, models: Sequence[LoadedModel]) -> dict[str, _Samples]:
        """Seconds of one launch of each kernel of the groups."""
        found: dict[str, _Samples] = {}
        for picks, turns in zip(self.lineups, profiled(models), strict=True):
            for key, taken in by_kernel(turns, self._places(picks)).items():
                found.setdefault(key, {}).setdefault(picks[key], taken)
        return found

    def _model(self, picks: Mapping[str, str]) -> LoadedModel:
        return model_of(with_variants(self.workload, picks), self.actions, self.store, self.target, self.here)

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
