"""A model some of whose kernels may still run as several variants: what is searched until whole
models decide.

every variant of every kernel  --sums of its parts-->  the near ones  --rounds of the search, sums
again-->  fewer
                               --a race in whole models-->  one

    Rivals(picks {conv7x7: direct},
           groups (conv3x3 64, conv3x3 64 +add: winograd4, winograd2), (conv3x3 512: direct,
           winograd2))
    .kernels      the parts of all these, each once, and the direct kernels that they have to beat
    .favourite    the model as its first variants
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic

from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import DIRECT, parts_of
from tunegrad.search import ModelSearch

from .workload import HasKernels, KernelUse, Workload, shared_kernels, uses_of, with_variants

__all__ = ["NEAR", "Group", "Rivals", "leave_but", "narrowed_in_rounds"]

NEAR = 1.6
"""Variants whose parts take at most this much longer than the best one's, by default schedules, are
searched: of two the one that was 1.25 times slower by default was 1.3 times faster when both were
searched (decision 0025).
"""

BEHIND = (1.25, 1.12)
"""How far behind the best a variant may be after each round of the search."""


@dataclass(frozen=True, slots=True)
class Group:
    """Kernels whose variants multiply the same shapes, and the variants that may be best, most
    hopeful first.

    The direct variant stands, whether it may be best or not: the others have to beat it in whole
    models. Where it did not run the most hopeful one stands.
    """

    keys: tuple[str, ...]
    variants: tuple[str, ...]
    direct_ran: bool = True

    @property
    def stands(self) -> str:
        """What the kernels run as unless something else is proved to be faster."""
        return DIRECT if self.direct_ran or not self.variants else self.variants[0]

    @property
    def others(self) -> tuple[str, ...]:
        """Who may take its place, most hopeful first."""
        return tuple(v for v in self.variants if v != self.stands)

    @property
    def lineup(self) -> tuple[str, ...]:
        """Who meets in whole models."""
        return tuple(dict.fromkeys([*self.variants, self.stands]))


@dataclass(frozen=True, slots=True)
class Rivals:
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
    def lineups(self) -> list[dict[str, str]]:
        """A variant for every kernel, again and again: each one that meets the others is in one of
        them.
        """
        count = max((len(g.lineup) for g in self.groups), default=1)
        return [
            {**self.picks, **{k: _nth(g.lineup, n) for g in self.groups for k in g.keys}}
            for n in range(count)
        ]

    @property
    def kernels(self) -> tuple[KernelUse, ...]:
        """What the model may launch in the end, in the order of its first launch, with the most
        uses in any lineup.
        """
        found: dict[str, tuple[Kernel, int]] = {}
        for picks in self.lineups:
            for key, (kernel, uses) in self._parts(picks).items():
                found[key] = kernel, max(uses, found.get(key, (kernel, 0))[1])
        return uses_of(found)

    @property
    def competing(self) -> frozenset[str]:
        """The kernels, by key, of groups that have several variants left."""
        direct = self._direct
        return frozenset(
            p.key
            for g in self.groups
            if len(g.variants) > 1
            for key in g.keys
            for v in g.variants
            for p in parts_of(direct[key].kernel, v)
        )

    def seconds(self, group: Group) -> dict[str, float]:
        """What all launches of a group take together, by variant.

        Infinity where a part did not run.
        """
        direct, best_s = self._direct, self.best_s
        return {
            v: sum(
                direct[k].uses * best_s.get(p.key, inf)
                for k in group.keys
                for p in parts_of(direct[k].kernel, v)
            )
            for v in (*group.variants, DIRECT)
        }

    def narrowed(self, found_s: Mapping[str, float], within: float) -> Rivals:
        """Without the variants that take over ``within`` times the best one's time.

        The fastest first.

        ``found_s`` are seconds by key that are new. Of variants that take the same time the direct
        one is first; it alone is left where nothing ran.
        """
        found_s = {key: min(s, self.best_s.get(key, inf)) for key, s in found_s.items()}
        told = replace(self, best_s={**self.best_s, **found_s})
        return replace(
            told, groups=tuple(_narrowed(g, told.seconds(g), within) for g in self.groups)
        )

    @property
    def _direct(self) -> dict[str, KernelUse]:
        return {u.key: u for u in self.work.kernels}

    def _parts(self, picks: Mapping[str, str]) -> dict[str, tuple[Kernel, int]]:
        uses: Counter[str] = Counter()
        kernels = {}
        for use in self.work.kernels:
            for part in parts_of(use.kernel, picks.get(use.key, DIRECT)):
                kernels[part.key] = part
                uses[part.key] += use.uses
        return {key: (kernel, uses[key]) for key, kernel in kernels.items()}


def narrowed_in_rounds(
    search: ModelSearch, rivals: Sequence[Rivals], until_s: float
) -> list[Rivals]:
    """Rivals after rounds of a search: a batch of each of their kernels, twice.

    Those that are behind leave it.

    Rounds end at ``until_s`` of the monotonic clock; a round that does not fit is not held.
    """
    left = list(rivals)
    for within in BEHIND:
        competing = frozenset[str]().union(*(r.competing for r in left))
        if not search.round(competing, until_s - monotonic()):
            break
        best_s = {s.task.key: s.best_s for s in search.searches}
        left = [r.narrowed(best_s, within) for r in left]
        leave_but(search, left)
    return left


def leave_but(search: ModelSearch, models: Sequence[HasKernels]) -> None:
    """Search what the models run, and nothing else any more."""
    kept = {use.key for use in shared_kernels(models)}
    search.leave([s.task.key for s in search.searches if s.task.key not in kept])


def _narrowed(group: Group, took_s: Mapping[str, float], within: float) -> Group:
    ranked = sorted(group.variants, key=lambda v: (took_s[v], v != DIRECT))
    near = [v for v in ranked if took_s[v] <= within * took_s[ranked[0]] and took_s[v] < inf]
    return replace(group, variants=tuple(near) or (DIRECT,), direct_ran=took_s[DIRECT] < inf)


def _nth(variants: Sequence[str], number: int) -> str:
    """The variant of that number, going round."""
    return variants[number % len(variants)]
