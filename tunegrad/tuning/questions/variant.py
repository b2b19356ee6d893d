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

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic

from tunegrad.config import Numerics
from tunegrad.db import Store
from tunegrad.devices import CONTENDING
from tunegrad.errors import CandidateFailure
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.ir.variants import DIRECT, parts_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning import NEAR, allowed, measured_variant, worth_measuring
from tunegrad.search import ModelSearch
from tunegrad.trial import Fingerprint

from ..models import Models, WholeModel
from ..race import Blamed, Choice, ModelTrack, least_s, most_at_once, race
from ..workload import HasKernels, KernelUse, Workload, shared_kernels, uses_of, with_variants
from .question import DecisionRows, decided_here, measured_here

_ROUNDS = 2
"""Rounds of the search: a variant that is not contending after one of them leaves."""


@dataclass(frozen=True, slots=True)
class Group:
    """Kernels whose variants multiply the same shapes, and the variants that may be best, most
    hopeful first.

    ``stands`` is what they run as unless something else is proved to be faster in whole models: the
    direct variant where it runs, whether it may be best or not.
    """

    keys: tuple[str, ...]
    variants: tuple[str, ...]
    stands: str = DIRECT

    @property
    def others(self) -> tuple[str, ...]:
        """Variants that may take its place, most hopeful first."""
        return tuple(v for v in self.variants if v != self.stands)

    def narrowed(self, took_s: Mapping[str, float], within: float) -> Group:
        """Without variants over ``within`` times the best's seconds; direct alone if none ran."""
        ranked = sorted(self.variants, key=lambda v: (took_s[v], v != DIRECT))
        limit_s = within * took_s[ranked[0]]
        near = tuple(v for v in ranked if took_s[v] <= limit_s and took_s[v] < inf) or (DIRECT,)
        return replace(self, variants=near, stands=DIRECT if took_s[DIRECT] < inf else near[0])


@dataclass(frozen=True, slots=True)
class VariantCandidates:
    """A model before its variants are settled: ``work`` has direct kernels, ``picks`` says what is
    settled by key.

    ``best_s`` are the best times of kernels by key, in seconds, as far as they ran.

        every variant of every kernel  --sums of its parts-->        the near ones
                                       --rounds of the search-->     fewer
                                       --a race in whole models-->   one

    picks {conv7x7: direct}
    groups (conv3x3 64, conv3x3 64 +add: winograd4, winograd2)
           (conv3x3 512: direct, winograd2)
    .kernels      the parts of all these, each once, and the direct kernels that they have to beat
    .favourite    the model as its first variants
    """

    work: Workload
    picks: Mapping[str, str]
    groups: tuple[Group, ...] = ()
    best_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def favourites(self) -> dict[str, str]:
        """The variant of every kernel, as far as is known now."""
        return {**self.picks, **{key: g.variants[0] for g in self.groups for key in g.keys}}

    @property
    def favourite(self) -> Workload:
        """The model as its favourites."""
        return with_variants(self.work, self.favourites)

    @property
    def kernels(self) -> tuple[KernelUse, ...]:
        """Kernels that the model may launch, in the order of first launch, with most uses."""
        candidates = {key: (*g.variants, g.stands) for g in self.groups for key in g.keys}
        kernels: dict[str, Kernel] = {}
        uses: Counter[str] = Counter()
        for use in self.work.kernels:
            most: Counter[str] = Counter()
            for variant in candidates.get(use.key, (self.picks.get(use.key, DIRECT),)):
                parts = parts_of(use.kernel, variant)
                kernels |= {p.key: p for p in parts}
                most |= Counter(p.key for p in parts)
            uses.update({key: count * use.uses for key, count in most.items()})
        return uses_of({key: (kernel, uses[key]) for key, kernel in kernels.items()})

    @property
    def competing(self) -> frozenset[str]:
        """The kernels, by key, of groups that have several variants left."""
        direct = {u.key: u.kernel for u in self.work.kernels}
        several = [g for g in self.groups if len(g.variants) > 1]
        sides = [(direct[key], v) for g in several for key in g.keys for v in g.variants]
        return frozenset(p.key for kernel, v in sides for p in parts_of(kernel, v))

    def seconds(self, group: Group) -> dict[str, float]:
        """Seconds of all launches of a group, by variant; infinity where a part did not run."""
        mine = [u for u in self.work.kernels if u.key in group.keys]

        def launches_s(use: KernelUse, variant: str) -> float:
            parts = parts_of(use.kernel, variant)
            return use.uses * sum(self.best_s.get(p.key, inf) for p in parts)

        names = (*group.variants, DIRECT)
        return {v: sum(launches_s(use, v) for use in mine) for v in names}

    def narrowed(self, found_s: Mapping[str, float], within: float) -> VariantCandidates:
        """Without the variants that take over ``within`` times the best one's time, the fastest
        first.

        ``found_s`` are seconds by key that are new. Of variants that take the same time the direct
        one is first; it alone is left where nothing ran.
        """
        found_s = {key: min(s, self.best_s.get(key, inf)) for key, s in found_s.items()}
        told = replace(self, best_s={**self.best_s, **found_s})
        return replace(told, groups=tuple(g.narrowed(told.seconds(g), within) for g in self.groups))


def narrowed_in_rounds(
    search: ModelSearch, candidates: Sequence[VariantCandidates], until_s: float
) -> list[VariantCandidates]:
    """Variant candidates after rounds of a search: a batch of each of their kernels, and those that
    are behind leave it.

    Rounds end at ``until_s`` of the monotonic clock; a round that does not fit is not held.
    """
    left = list(candidates)
    for _ in range(_ROUNDS):
        competing = frozenset[str]().union(*(r.competing for r in left))
        if not search.round(competing, until_s - monotonic()):
            break
        best_s = {s.task.key: s.best_s for s in search.searches}
        left = [r.narrowed(best_s, CONTENDING) for r in left]
        leave_but(search, left)
    return left


def leave_but(search: ModelSearch, models: Sequence[HasKernels]) -> None:
    """Search what the models run, and nothing else any more."""
    kept = {use.key for use in shared_kernels(models)}
    search.leave([s.task.key for s in search.searches if s.task.key not in kept])


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
    picks = _settled(workload, numerics, here, store)
    undecided = [u.kernel for u in workload.kernels if u.key not in picks]
    names = {k.key: allowed(k, numerics, target) for k in undecided}
    if target is not None:
        names = {k.key: worth_measuring(k, names[k.key], target) for k in undecided}
    open_kernels = [k for k in undecided if names[k.key] != (DIRECT,)]
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
    leaves no time for whole models the favourites are picked, and where these do not run, or the
    machine ends them, what stands: one of the favourites may be to blame. Nothing is settled then.
    A variant that ends a race, alone and twice, has a row that says it; actions that do so end the
    race, and are found where schedules are raced.
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
    picks = candidates.favourites | {key: g.stands for g in groups.values() for key in g.keys}
    try:
        found = race(choices, _track(candidates, groups, models, actions, blamed), deadline_s)
    except CandidateFailure:
        return picks
    for first, group in groups.items():
        met = found.get(first)
        if met is not None and met.won:
            picks |= dict.fromkeys(group.keys, met.alternative)
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
            continue
        mine = [t for t, _ in measured_here(store, use.key, here)]
        held = next((t for t in reversed(mine) if t.space_version == SPACE_VERSION), None)
        if held is not None and measured_variant(use.kernel, names, held, store) == DIRECT:
            picks[use.key] = DIRECT
    return picks


def _work_of(kernel: Kernel, names: Sequence[str]) -> tuple[str, ...]:
    """Kernels whose variants multiply the same shapes, whatever epilogues, settle together."""
    return tuple(p.key for v in names if v != DIRECT for p in parts_of(kernel, v) if p.reduces)
