"""Decisions about a model by measuring: how it stores images, where it is cut, which variants it
runs.

    rules, store  -->  forms of images raced  -->  cuts raced  -->  variants by default schedules
                  -->  near variants searched: ``VariantCandidates``
                  -->  variants raced: the decided plan

What can not be measured (no time, no allowance of candidates, Ctrl-C) stays as the store has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tunegrad.errors import CandidateFailure
from tunegrad.ir.fusion import LaunchPlan
from tunegrad.ir.kernel import Kernel
from tunegrad.planning import pick_variants, picked, stored_images, stored_toggles

from ..budget import LEAST_S
from ..interrupt import OutOfTimeError
from ..models import WholeModel
from ..race import Blamed, ModelTrack, data_s, most_at_once
from ..state import Context
from ..workload import Workload, cut_as_stored, with_images, with_plan, with_toggles, with_variants
from .cut import choose_cuts, choose_images
from .question import PlanContext
from .variant import VariantCandidates, candidates_of, choose_variants

RACE_SHARE = 0.1
"""The part of a budget that races of one kind may take: plans, variants, schedules."""

_T = TypeVar("_T")


class OutOfTrialsError(Exception):
    """Measuring this would leave too few candidates for the kernels' defaults."""


@dataclass(frozen=True, slots=True)
class PlanDecisions:
    """Decides about the models of a session.

    ``seconds`` verifies and times default schedules, by key; it may raise OutOfTrialsError.
    """

    context: Context
    seconds: Callable[[Sequence[Kernel]], dict[str, float]]

    def expected(self, work: Workload) -> Workload:
        """The work as the store and the model of the machine have it, before anything is raced."""
        c = self.context
        cut = cut_as_stored(work, c.here, c.store, c.target)
        return with_variants(cut, picked(cut.plan, c.target, c.here, c.store, c.numerics))

    def opened(self, work: Workload, budget_s: float) -> VariantCandidates:
        """The work of the plan that measuring decides on, in its share of a budget, and the
        variants that are near.

        As the store has decided it where the budget is spent.
        """
        deadline_s, c = time.monotonic() + RACE_SHARE * budget_s, self.context
        graph = self._plan_context(work)
        images = self._tried(
            lambda: choose_images(work.fusion, graph, deadline_s),
            lambda: stored_images(work.fusion, c.here, c.store),
        )
        cut = with_images(work, images)
        toggles = self._tried(
            lambda: choose_cuts(cut.fusion, graph, deadline_s),
            lambda: stored_toggles(cut.fusion, c.here, c.store, c.target),
        )
        cut = with_toggles(cut, toggles) if toggles else cut
        known = partial(picked, cut.plan, c.target, c.here, c.store, c.numerics)
        if budget_s < LEAST_S:
            return VariantCandidates(cut, known())
        near = partial(candidates_of, cut, c.here, c.store, self.seconds, c.numerics, c.target)
        return self._tried(near, lambda: VariantCandidates(cut, known()))

    def decided(
        self, candidates: VariantCandidates, actions: Mapping[str, str], budget_s: float
    ) -> Workload:
        """The work as the variants that models of these actions settle, in their share."""
        c = self.context
        deadline_s = time.monotonic() + RACE_SHARE * budget_s
        picks = self._tried(
            lambda: choose_variants(candidates, actions, c.models, c.session, deadline_s),
            lambda: candidates.favourites,
        )
        return with_variants(candidates.work, picks)

    def _plan_context(self, work: Workload) -> PlanContext:
        """The grounds of races of the model's plans, each with the variants picked for it."""
        c = self.context

        def planned(plan: LaunchPlan) -> WholeModel | None:
            """A plan ready to run; None where a kernel has no schedule that compiles."""
            args = c.target, c.here, c.store, c.numerics
            try:
                return c.models.of(with_plan(work, pick_variants(plan, *args)[0]))
            except CandidateFailure:
                return None

        def places(lineup: Mapping[str, LaunchPlan]) -> dict[str, list[slice]]:
            return {key: [slice(None)] for key in lineup}

        def track(blamed: Blamed[LaunchPlan]) -> ModelTrack[LaunchPlan]:
            known: dict[int, WholeModel | None] = {}  # of plans that live as long as the race

            def made(lineups: Sequence[Mapping[str, LaunchPlan]]) -> list[WholeModel | None]:
                plans = [plan for lineup in lineups for plan in lineup.values()]
                known.update({id(p): planned(p) for p in plans if id(p) not in known})
                return [known[id(p)] for p in plans]

            return ModelTrack(c.models.bench, made, places, blamed, most_at_once(work))

        return PlanContext(
            c.target, c.here, c.store, c.session, c.numerics, track, c.tell, data_s(work)
        )

    def _tried(self, settle: Callable[[], _T], known: Callable[[], _T]) -> _T:
        """Return what measuring settles; what is known where a bound or deadline stops that."""
        try:
            return settle()
        except (OutOfTrialsError, OutOfTimeError):
            return known()
        except KeyboardInterrupt:
            if not self.context.interrupt.requested:
                raise
            return known()
