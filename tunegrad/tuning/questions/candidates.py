"""A model some of whose kernels may still run as several variants, which are searched until whole
models decide.

    every variant of every kernel  --sums of its parts-->        the near ones
                                   --rounds of the search-->     fewer
                                   --a race in whole models-->   one

    picks {conv7x7: direct}
    groups (conv3x3 64, conv3x3 64 +add: winograd4, winograd2)
           (conv3x3 512: direct, winograd2)
    .kernels      the parts of all these, each once, and the direct kernels that they have to beat
    .favourite    the model as its first variants
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic

from tunegrad.devices import CONTENDING
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import DIRECT, parts_of
from tunegrad.search import ModelSearch

from ..workload import HasKernels, KernelUse, Workload, shared_kernels, uses_of, with_variants

__all__ = ["NEAR", "Group", "VariantCandidates", "leave_but", "narrowed_in_rounds"]

NEAR = 1.6
"""Variants whose parts take at most this much longer than the best one's, by default schedules, are
searched: of two the one that was 1.25 times slower by default was 1.3 times faster when both were
searched (decision 0025).
"""

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
        """Without the variants that take over ``within`` times the best one's seconds; the direct
        one alone where nothing ran.
        """
        ranked = sorted(self.variants, key=lambda v: (took_s[v], v != DIRECT))
        limit_s = within * took_s[ranked[0]]
        near = tuple(v for v in ranked if took_s[v] <= limit_s and took_s[v] < inf) or (DIRECT,)
        return replace(self, variants=near, stands=DIRECT if took_s[DIRECT] < inf else near[0])


@dataclass(frozen=True, slots=True)
class VariantCandidates:
    """A model before its variants are settled: ``work`` has direct kernels, ``picks`` says what is
    settled by key.

    ``best_s`` are the best times of kernels by key, in seconds, as far as they ran.
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
        """Kernels that the model may launch in the end, in the order of its first launch, with the
        most uses that each may have.
        """
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
        """Seconds of all launches of a group together, by variant; infinity where a part did not
        run.
        """
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
