"""Variants of a model's kernels, settled by measuring.

    every part of every variant,      -->  verified and timed by the device,
    default schedules                      rows in the store
    sums of parts, of kernels         -->  the near variants: ``VariantCandidates``,
    that multiply alike                    whose kernels are searched a while
    whole models of these,            -->  the fastest; a row and a promotion each:
    launch by launch, in turns             ``variant(NAME)``

A variant's constants may be nine times the direct kernel's: only a whole model shows what reading
them costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import monotonic

from tunegrad.config import Numerics
from tunegrad.db import Store
from tunegrad.errors import CandidateFailure
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.ir.variants import DIRECT, parts_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning import allowed
from tunegrad.trial import Fingerprint

from ..models import Models, WholeModel
from ..race.halving import race
from ..race.model_track import Blamed, ModelTrack, least_s, most_at_once
from ..race.values import Choice
from ..workload import Workload, with_variants
from .candidates import NEAR, Group, VariantCandidates
from .rows import DecisionRows, decided_here, measured_here

__all__ = ["candidates_of", "choose_variants"]

_Picks = Mapping[str, str]
"""A variant for each group, by the key of its first kernel."""


def candidates_of(
    workload: Workload,
    here: Fingerprint,
    store: Store,
    measure: Callable[[Sequence[Kernel]], dict[str, float]],
    numerics: Numerics = "contract",
    target: Target | None = None,
) -> VariantCandidates:
    """The variants that each kernel of the workload may run as: what the store has settled, else
    the near ones.

    ``measure`` verifies and times default schedules and gives seconds by key, infinity where none
    ran. Variants that a model of the ``target`` expects to be slower by their nature are left out.
    """
    names = {u.key: allowed(u.kernel, numerics, target) for u in workload.kernels}
    picks = _settled(workload, numerics, here, store)
    open_kernels = [
        u.kernel for u in workload.kernels if u.key not in picks and len(names[u.key]) > 1
    ]
    if not open_kernels:
        return VariantCandidates(workload, picks)
    parts = {p.key: p for k in open_kernels for v in names[k.key] for p in parts_of(k, v)}
    alike: dict[tuple[str, ...], list[str]] = {}
    for k in open_kernels:
        alike.setdefault(_work_of(k, names[k.key]), []).append(k.key)
    groups = tuple(Group(tuple(keys), names[keys[0]]) for keys in alike.values())
    return VariantCandidates(workload, picks, groups).narrowed(measure(list(parts.values())), NEAR)


def choose_variants(
    candidates: VariantCandidates,
    actions: Mapping[str, str],
    models: Models,
    session: str,
    deadline_s: float = inf,
) -> dict[str, str]:
    """A variant by key for every kernel that has several, raced in whole models of these
    ``actions`` by kernel key.

    Kernels without actions run as the store or their defaults have them. Where ``deadline_s``
    leaves no time for whole models, or they do not run, the favourites are picked, and nothing is
    settled. A variant that ends a race, alone and twice, has a row that says it; actions that do so
    end the race, and are found where schedules are raced.
    """
    groups = {g.keys[0]: g for g in candidates.groups if g.others or g.stands != DIRECT}
    both_s = sum(
        candidates.seconds(g)[v] for g in groups.values() for v in (g.stands, *g.others[:1])
    )
    if not groups or monotonic() + least_s(both_s) > deadline_s:
        return candidates.favourites
    rows = DecisionRows(models.store, models.here, session, "variant")
    texts = {u.key: u.kernel.text for u in candidates.work.kernels}

    def blamed(key: str, variant: str, failure: CandidateFailure) -> None:
        rows.failed(texts[key], variant, failure)

    choices = [Choice(key, g.stands, g.others) for key, g in groups.items()]
    try:
        found = race(choices, _track(candidates, groups, models, actions, blamed), deadline_s)
    except CandidateFailure:
        return candidates.favourites
    picks = dict(candidates.favourites)
    for first, group in groups.items():
        met = found.get(first)
        won = met.alternative if met is not None and met.won else group.stands
        picks |= dict.fromkeys(group.keys, won)
        for key in group.keys:
            if group.stands != DIRECT:
                rows.stands(texts[key], group.stands, (candidates.seconds(group)[group.stands],))
            if met is not None:
                rows.challenged(texts[key], met.alternative, met)
    return picks


def _track(
    candidates: VariantCandidates,
    groups: Mapping[str, Group],
    models: Models,
    actions: Mapping[str, str],
    blamed: Blamed[str],
) -> ModelTrack[str]:
    """Whole models in which each group runs as one of its variants, the others as picked."""

    def picks_of(lineup: _Picks) -> dict[str, str]:
        raced = {key: variant for first, variant in lineup.items() for key in groups[first].keys}
        return {**candidates.favourites, **raced}

    def model(lineup: _Picks) -> WholeModel | None:
        work = with_variants(candidates.work, picks_of(lineup))
        try:
            return models.of(
                work, {u.key: actions[u.key] for u in work.kernels if u.key in actions}
            )
        except CandidateFailure:
            return None

    def places(lineup: _Picks) -> dict[str, list[slice]]:
        """Places of the parts of every use of the groups' kernels among the launches."""
        picks, at = picks_of(lineup), 0
        group_of = {key: first for first in lineup for key in groups[first].keys}
        found: dict[str, list[slice]] = {}
        for launch in candidates.work.plan.launches:
            key = launch.kernel.key
            count = len(parts_of(launch.kernel, picks.get(key, DIRECT)))
            if key in group_of:
                found.setdefault(group_of[key], []).append(slice(at, at + count))
            at += count
        return found

    return ModelTrack(
        models.bench, lambda lineups: [model(x) for x in lineups], places, blamed,
        most_at_once(candidates.work),
    )  # fmt: skip


def _settled(
    workload: Workload, numerics: Numerics, here: Fingerprint, store: Store
) -> dict[str, str]:
    picks = {}
    for use in workload.kernels:
        names = allowed(use.kernel, numerics)
        if len(names) == 1:
            continue
        found = decided_here(store, "variant", use.key, here)
        if found is not None:
            picks[use.key] = found.choice if found.choice in names else DIRECT
        elif any(t.space_version == SPACE_VERSION for t, _ in measured_here(store, use.key, here)):
            picks[use.key] = DIRECT
    return picks


def _work_of(kernel: Kernel, names: Sequence[str]) -> tuple[str, ...]:
    """Kernels whose variants multiply the same shapes, and differ in their epilogues only, are
    settled together.
    """
    return tuple(p.key for v in names if v != DIRECT for p in parts_of(kernel, v) if p.reduces)
