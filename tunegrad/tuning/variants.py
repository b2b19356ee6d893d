"""Which variant each kernel of a model runs as, settled by measuring before its kernels are searched.

every part of every variant, default schedules   -->   verified and timed by the device, rows in the store
sums of parts, of kernels that multiply alike    -->   the direct kernels, and the variants that are near the best
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

from .contest import by_kernel, profiled, profiled_s
from .decisions import DecisionRows, evidence_of
from .whole import model_of
from .workload import Workload, with_variants

__all__ = ["settle_variants"]

_NEAR = 1.6
"""Variants whose parts take at most this much longer than the best one's are tried in the whole model."""

_AGAIN = 4
"""How often a contest goes on where a variant is ahead and not proved to be."""

_ALPHA = 0.01 / (1 + _AGAIN)
"""Of each look at the samples: all looks together find a variant faster by chance in 1 of 100 contests (Bonferroni)."""

_LEAST_S = 1.0
"""A contest that takes no longer is held, however little time is left."""

_Samples = dict[str, list[float]]
"""Seconds of a kernel's launches in whole models, turn by turn, by variant."""


def settle_variants(
    workload: Workload,
    target: Target,
    here: Fingerprint,
    store: Store,
    measure: Callable[[Sequence[Kernel]], dict[str, float]],
    session: str,
    numerics: Numerics = "contract",
    deadline_s: float = inf,
) -> dict[str, str]:
    """A variant by key for every kernel of the workload that has several.

    ``measure`` verifies and times default schedules and gives seconds by key, infinity where none ran. What the store
    has settled is left as it is. Where ``deadline_s`` leaves no time for whole models, the sums of parts decide, and
    nothing is settled.
    """
    names = {u.key: allowed(u.kernel, numerics) for u in workload.kernels}
    picks = _settled(workload, names, here, store)
    open_kernels = [u.kernel for u in workload.kernels if u.key not in picks and len(names[u.key]) > 1]
    if not open_kernels:
        return picks
    parts = {p.key: p for k in open_kernels for v in names[k.key] for p in parts_of(k, v)}
    seconds = measure(list(parts.values()))
    sums = {k.key: {v: sum(seconds[p.key] for p in parts_of(k, v)) for v in names[k.key]} for k in open_kernels}
    alike: dict[tuple[str, ...], list[str]] = {}
    for k in open_kernels:
        alike.setdefault(_work_of(k), []).append(k.key)
    groups = [_Group(tuple(keys), {v: sum(sums[k][v] for k in keys) for v in sums[keys[0]]}) for keys in alike.values()]
    picks |= {key: g.near[0] for g in groups for key in g.keys}
    contested = [g for g in groups if len(g.near) > 1]
    if not contested:
        return picks
    contest = _Contest(workload, target, here, store, picks, contested)
    uses = {u.key: u.uses for u in workload.kernels}
    took_s = [sum(uses[key] * s for key in sums if (s := sums[key][p[key]]) < inf) for p in contest.lineups]
    if monotonic() + profiled_s(took_s) > max(deadline_s, monotonic() + _LEAST_S):
        return picks
    try:
        samples = _sampled(contest, groups=contested, until_s=deadline_s - profiled_s(took_s))
    except CandidateFailure:
        return picks
    rows = DecisionRows(store, here, session, "variant")
    texts = {k.key: k.text for k in open_kernels}
    for g in contested:
        picks |= dict.fromkeys(g.keys, _fastest(g, samples, texts, rows))
    return picks


def _sampled(contest: _Contest, groups: Sequence[_Group], until_s: float) -> dict[str, _Samples]:
    """Samples of every group, taken again while some variant is ahead and not proved to be, until ``until_s``.

    Disturbed moments spread the samples; the direct variant stays where nothing is proved, so that a session that gave
    up too early would keep a slow one.
    """
    models = contest.models()
    samples = contest.samples(models)
    for _ in range(_AGAIN):
        if monotonic() > until_s or not any(_undecided(g, samples) for g in groups):
            break
        for key, variants in contest.samples(models).items():
            for variant, taken in variants.items():
                samples[key][variant].extend(taken)
    return samples


def _undecided(group: _Group, samples: Mapping[str, _Samples]) -> bool:
    best, totals = _ahead(group, samples)
    return (
        median(totals[best]) < median(totals[DIRECT])
        and not decide(totals[DIRECT], totals[best], alpha=_ALPHA).promoted
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """Kernels whose variants multiply the same shapes, and what each variant of all of them takes in parts."""

    keys: tuple[str, ...]
    sums: Mapping[str, float]

    @property
    def near(self) -> tuple[str, ...]:
        """The variants that may be best, most hopeful first, and the direct one, which the best is compared with."""
        ranked = sorted(self.sums, key=lambda v: (self.sums[v], v != DIRECT))
        limit_s = _NEAR * self.sums[ranked[0]]
        near = [v for v in ranked if self.sums[v] <= limit_s and self.sums[v] < inf]
        return tuple(dict.fromkeys([*near, DIRECT]))


def _fastest(group: _Group, samples: Mapping[str, _Samples], texts: Mapping[str, str], rows: DecisionRows) -> str:
    """The fastest variant of a group in whole models, or the direct one, where none is proved faster.

    What came nearest has a row for every kernel, with a promotion where it was.
    """
    best, totals = _ahead(group, samples)
    verdict = decide(totals[DIRECT], totals[best], alpha=_ALPHA)
    for key in group.keys:
        evidence = evidence_of(verdict.p_value, (samples[key][DIRECT], samples[key][best]))
        rows.challenged(texts[key], variant_text(best), evidence, verdict.promoted)
    return best if verdict.promoted else DIRECT


def _ahead(group: _Group, samples: Mapping[str, _Samples]) -> tuple[str, dict[str, list[float]]]:
    """The fastest of the variants that are not direct, and what each takes of all kernels of the group together."""
    totals = {v: [sum(turn) for turn in zip(*(samples[k][v] for k in group.keys), strict=True)] for v in group.near}
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
    """Whole models in which each group runs as each of its near variants once; the others as picked."""

    workload: Workload
    target: Target
    here: Fingerprint
    store: Store
    picks: Mapping[str, str]
    groups: Sequence[_Group]

    @property
    def lineups(self) -> list[dict[str, str]]:
        """The variant of every kernel, model by model."""
        return [self._lineup(i) for i in range(max(len(g.near) for g in self.groups))]

    def models(self) -> list[LoadedModel]:
        """A model of each lineup. Raises CandidateFailure."""
        return [self._model(p) for p in self.lineups]

    def samples(self, models: Sequence[LoadedModel]) -> dict[str, _Samples]:
        """Seconds of one launch of each kernel of the groups."""
        found: dict[str, _Samples] = {}
        for picks, turns in zip(self.lineups, profiled(models), strict=True):
            for key, taken in by_kernel(turns, self._places(picks)).items():
                found.setdefault(key, {}).setdefault(picks[key], taken)
        return found

    def _lineup(self, number: int) -> dict[str, str]:
        return {**self.picks, **{key: g.near[number % len(g.near)] for g in self.groups for key in g.keys}}

    def _model(self, picks: Mapping[str, str]) -> LoadedModel:
        return model_of(with_variants(self.workload, picks), {}, self.store, self.target, self.here)

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
