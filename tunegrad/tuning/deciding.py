"""What a model's kernels are, decided by measuring: how it stores images, where it is cut, which variants it runs.

    rules, store  -->  forms of images measured  -->  edges measured  -->  default schedules of variants measured
                  -->  the near variants are searched: ``heats``      -->  variants settled: the decided plan

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
from tunegrad.ir.fusion import Schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.planning import stored_images, stored_toggles
from tunegrad.trial import Fingerprint
from tunegrad.variants import pick_variants, picked

from .account import LEAST_S
from .contest import FAULTS, ROUNDS
from .images import settle_images
from .interrupt import Interrupt
from .models import Models, WholeModel
from .plans import settle_plan
from .rivals import Rivals
from .variants import Void, rivals_of, settle_variants
from .workload import Workload, cut_as_stored, with_images, with_plan, with_toggles, with_variants

__all__ = ["PLAN_LEAST_S", "PLAN_SHARE", "Deciding", "OutOfTrialsError"]

PLAN_SHARE = 0.06
"""The part of a budget in which forms of images and edges of the graphs are decided."""

PLAN_LEAST_S = 1.5
"""Where that part is less than this, nothing can be decided in it: the edges stay as they are."""

_IMAGES_SHARE = 0.5
"""The part of that in which forms of images are."""

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
        """The work of the plan that measuring decides on, in its share of a budget, and the variants that are near."""
        if budget_s < LEAST_S:
            return self.known(work)
        share_s = PLAN_SHARE * budget_s
        began_s, known = time.monotonic(), partial(stored_images, work.fusion, self.here, self.store)
        if share_s >= PLAN_LEAST_S:
            settled = partial(self._settled, settle_images, work, _IMAGES_SHARE * share_s)
            work = with_images(work, self._tried(settled, known))
        else:
            work = with_images(work, known())
        toggles = partial(stored_toggles, work.fusion, self.here, self.store)
        if share_s >= PLAN_LEAST_S:
            share_s -= time.monotonic() - began_s
            work = _toggled(work, self._tried(partial(self._settled, settle_plan, work, share_s), toggles))
        else:
            work = _toggled(work, toggles())
        near = partial(rivals_of, work, self.here, self.store, self.seconds, self.numerics)
        return self._tried(near, partial(self._picked, work))

    def decided(self, rivals: Rivals, actions: Mapping[str, str], share_s: float) -> Workload:
        """The work as the variants that whole models of these actions settle, in so many seconds."""
        until_s = time.monotonic() + share_s
        args = rivals, actions, self.models, self.session, self.void, until_s
        picks = self._tried(partial(settle_variants, *args), lambda: rivals.favourites)
        return with_variants(rivals.work, picks)

    def _picked(self, work: Workload) -> Rivals:
        return Rivals(work, picked(work.plan, self.target, self.here, self.store, self.numerics))

    def _settled(self, settle: Callable[..., _T], work: Workload, share_s: float) -> _T:
        """What ``settle_images`` or ``settle_plan`` says of a model's graph."""
        return settle(
            work.fusion,
            self.target,
            self.here,
            self.store,
            self.seconds,
            partial(self._compared, work),
            self.session,
            self.numerics,
            time.monotonic() + share_s,
            self.tell,
        )

    def _compared(self, work: Workload, plan: Schedule, challenger: Schedule) -> tuple[list[float], list[float]]:
        """Samples of models of two plans. Raises one of ``FAULTS`` for a challenger that fails twice, in fresh workers.

        Raises CandidateFailure where a kernel has no schedule that compiles, or the incumbent fails.
        """
        bench, pair = self.models.bench, [self._planned(work, p) for p in (plan, challenger)]
        try:
            return bench.interleaved(pair[0], pair[1], ROUNDS)
        except FAULTS:
            bench.renew()
        try:
            return bench.interleaved(pair[0], pair[1], ROUNDS)
        except FAULTS:
            bench.renew()
            self._alone(pair[0])
            raise
        finally:
            bench.renew()

    def _alone(self, incumbent: WholeModel) -> None:
        """Raise CandidateFailure where a model fails with nobody beside it."""
        try:
            self.models.bench.interleaved(incumbent, incumbent, ROUNDS)
        except FAULTS as error:
            raise CandidateFailure(f"model {incumbent.name}: it fails alone: {error}") from error

    def _planned(self, work: Workload, plan: Schedule) -> WholeModel:
        """A plan with the variants that are picked for it, ready to run."""
        rewritten, _ = pick_variants(plan, self.target, self.here, self.store, self.numerics)
        return self.models.of(with_plan(work, rewritten))

    def _tried(self, settle: Callable[[], _T], known: Callable[[], _T]) -> _T:
        """What measuring settles; what is known already, where the user or the bound on candidates stops that."""
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
