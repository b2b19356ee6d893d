"""Near variants compete in the search: those that fall behind leave, whole models choose among the rest.

    kernels of all near variants, defaults and seeds
    a batch each, of those that compete    -->  sums of their best times: over 1.25 of the best goes
    a batch each                           -->  over 1.12 goes
    whole models of the fastest schedules  -->  the variant of every group, stored
    the kernels of the others leave the search

Default schedules say little of which variant is the best: of two the one that was 1.25 times slower by default was 1.3
times faster when both were searched (decision 0025).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from tunegrad.search import ModelSearch

from .rivals import Rivals
from .workload import Workload, shared_kernels

__all__ = ["Heats"]

_WITHIN = (1.25, 1.12)
"""How far behind the best a variant may be after each round."""

Decide = Callable[[Rivals, Mapping[str, str]], Workload]
"""The model that rivals become, with these actions by kernel key."""


class Heats:
    """The variants of models, from ``rivals`` to decided ``workloads``. Mutable: rounds take rivals out.

    The rounds take at most ``share_s`` seconds together; without time there are none. Where the search is left before
    ``decide`` was asked, the favourites are the models.
    """

    def __init__(self, rivals: Sequence[Rivals], decide: Decide, share_s: float) -> None:
        self.rivals = list(rivals)
        self._decide, self._share_s = decide, share_s
        self._decided: list[Workload] | None = None

    @property
    def workloads(self) -> list[Workload]:
        """The models as they are decided."""
        return [r.favourite for r in self.rivals] if self._decided is None else self._decided

    def run(self, search: ModelSearch) -> None:
        """Rounds in the search, then the decision."""
        until_s = monotonic() + self._share_s
        for within in _WITHIN:
            competing = frozenset[str]().union(*(r.competing for r in self.rivals))
            if not search.round(competing, until_s - monotonic()):
                break
            best_s = {s.task.key: s.best_s for s in search.searches}
            self.rivals = [r.narrowed(best_s, within) for r in self.rivals]
            self._leave(search, self.rivals)
        fastest = {s.task.key: s.winner.actions for s in search.searches}
        self._decided = [self._decide(r, fastest) for r in self.rivals]
        self._leave(search, self._decided)

    def _leave(self, search: ModelSearch, models: Sequence[Rivals] | Sequence[Workload]) -> None:
        """Take out of the search what no model runs."""
        kept = {use.key for use in shared_kernels(models)}
        search.leave([s.task.key for s in search.searches if s.task.key not in kept])
