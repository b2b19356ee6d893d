"""What a model's kernels are, decided by measuring: how it stores images, where it is cut, which
variants it runs.

    rules, store  -->  forms of images measured  -->  edges measured  -->  default schedules of
    variants measured
                  -->  near variants searched: ``rivals``  -->  variants raced: the decided plan

What can not be measured (no time, no allowance of candidates, Ctrl-C) stays as the store has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tunegrad.config import Numerics
from tunegrad.db import Store
from tunegrad.errors import CandidateFailure
from tunegrad.events import Event
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.planning.plan import stored_images, stored_toggles
from tunegrad.planning.variants import pick_variants, picked
from tunegrad.trial import Fingerprint

from .account import LEAST_S
from .grounds import Grounds
from .images import choose_images
from .interrupt import Interrupt
from .models import Models, WholeModel
from .plans import choose_cuts
from .rivals import Rivals
from .tracks import ModelTrack, most_at_once
from .variants import Void, choose_variants, rivals_of
from .workload import Workload, cut_as_stored, with_images, with_plan, with_toggles, with_variants

__all__ = ["PLAN_LEAST_S", "PLAN_SHARE", "Deciding", "OutOfTrialsError"]

PLAN_SHARE = 0.06
"""The part of a budget in which forms of images and edges of the graphs are decided."""

PLAN_LEAST_S = 1.5
"""Where that part is less than this, nothing can be decided in it: the edges stay as they are."""

_T = TypeVar("_T")


class OutOfTrialsError(Exception):
    """Measuring this would leave too few candidates for the kernels' defaults."""


@dataclass(frozen=True, slots=True)
class Deciding:
    """What the decisions about a session's models have in common.

    ``seconds`` verifies and times default schedules, by key; it may raise OutOfTrialsError.
    """

    target: Target
    here: Fingerprint
    store: Store
    session: str
    numerics: Numerics
    models: Models
    void: Void
    seconds: Callable[[Sequence[Kernel]], dict[str, float]]
    interrupt: Interrupt
    tell: Callable[[Event], None]

    def known(self, work: Workload) -> Rivals:
        """The work as the store has decided it; nothing is measured."""
        return self._picked(cut_as_stored(work, self.here, self.store))

    def opened(self, work: Workload, budget_s: float) -> Rivals:
        """The work of the plan that measuring decides on, in its share of a budget, and the
        variants that are near.
        """
        if budget_s < LEAST_S:
            return self.known(work)
        share_s = PLAN_SHARE * budget_s
        deadline_s = time.monotonic() + share_s
        images = partial(stored_images, work.fusion, self.here, self.store)
        if share_s < PLAN_LEAST_S:
            work = with_images(work, images())
            return self._near(_toggled(work, stored_toggles(work.fusion, self.here, self.store)))
        work = with_images(
            work, self._tried(partial(self._settled, choose_images, work, deadline_s), images)
        )
        toggles = partial(stored_toggles, work.fusion, self.here, self.store)
        work = _toggled(
            work, self._tried(partial(self._settled, choose_cuts, work, deadline_s), toggles)
        )
        return self._near(work)

    def _near(self, work: Workload) -> Rivals:
        near = partial(rivals_of, work, self.here, self.store, self.seconds, self.numerics)
        return self._tried(near, partial(self._picked, work))

    def decided(self, rivals: Rivals, actions: Mapping[str, str], share_s: float) -> Workload:
        """The work as the variants that whole models of these actions settle, in so many
        seconds.
        """
        until_s = time.monotonic() + share_s
        args = rivals, actions, self.models, self.session, self.void, until_s
        picks = self._tried(partial(choose_variants, *args), lambda: rivals.favourites)
        return with_variants(rivals.work, picks)

    def _picked(self, work: Workload) -> Rivals:
        return Rivals(work, picked(work.plan, self.target, self.here, self.store, self.numerics))

    def _settled(self, settle: Callable[..., _T], work: Workload, deadline_s: float) -> _T:
        """What ``choose_images`` or ``choose_cuts`` says of a model's graph."""
        track = partial(self._track, work)
        grounds = Grounds(
            self.target,
            self.here,
            self.store,
            self.session,
            self.numerics,
            self.seconds,
            track,
            self.tell,
        )
        return settle(work.fusion, grounds, deadline_s)

    def _track(
        self, work: Workload, blamed: Callable[[str, LaunchPlan, CandidateFailure], None]
    ) -> ModelTrack[LaunchPlan]:
        """Models of whole plans, each with the variants that are picked for it."""
        known: dict[int, WholeModel | None] = {}

        def made(lineups: Sequence[Mapping[str, LaunchPlan]]) -> list[WholeModel | None]:
            plans = [plan for lineup in lineups for plan in lineup.values()]
            known.update({id(p): self._planned(work, p) for p in plans if id(p) not in known})
            return [known[id(p)] for p in plans]

        def places(lineup: Mapping[str, LaunchPlan]) -> dict[str, list[slice]]:
            return {key: [slice(None)] for key in lineup}

        return ModelTrack(self.models.bench, made, places, blamed, most_at_once(work))

    def _planned(self, work: Workload, plan: LaunchPlan) -> WholeModel | None:
        """A plan ready to run; None where a kernel has no schedule that compiles."""
        rewritten, _ = pick_variants(plan, self.target, self.here, self.store, self.numerics)
        try:
            return self.models.of(with_plan(work, rewritten))
        except CandidateFailure:
            return None

    def _tried(self, settle: Callable[[], _T], known: Callable[[], _T]) -> _T:
        """What measuring settles.

        What is known already, where the user or the bound on candidates stops that.
        """
        try:
            return settle()
        except OutOfTrialsError:
            return known()
        except KeyboardInterrupt:
            if not self.interrupt.requested:
                raise
            return known()


def _toggled(work: Workload, toggles: frozenset[int]) -> Workload:
    return with_toggles(work, toggles) if toggles else work
