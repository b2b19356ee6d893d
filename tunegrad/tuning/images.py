"""Which form a model's images have, settled by measuring before the edges of its graph are.

every form             -->   a model of the machine drops what it expects to cost a quarter more
a race, whole models   -->   what is proved faster; its kernels are then verified, one by one
                       -->   a decision about the graph: ``blocked16`` or ``last``

Kernels run as the store or their defaults have them: the forms are compared before the search, as edges are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic

from tunegrad.config import Numerics
from tunegrad.db import Store
from tunegrad.errors import CandidateFailure
from tunegrad.events import Event
from tunegrad.ir.fusion import LAST, Fusion, Images, Schedule
from tunegrad.ir.target import Target
from tunegrad.planning import (
    expected_parts,
    expected_plan_s,
    image_forms,
    images_key,
    images_text,
    stored_images,
)
from tunegrad.trial import Fingerprint

from .claims import decided_here
from .contest import CONTEST_POLICY
from .decisions import DecisionRows, evidence_of
from .plans import HOPELESS, SLOWER, Measure, PlanTrack
from .race import Choice, Met, race
from .tracks import least_s

__all__ = ["settle_images"]

_STANDING = "standing"
"""The test of the form that was there first."""


def settle_images(
    fusion: Fusion,
    target: Target,
    here: Fingerprint,
    store: Store,
    measure: Measure,
    track: PlanTrack,
    session: str,
    numerics: Numerics = "contract",
    deadline_s: float = inf,
    tell: Callable[[Event], None] = lambda _: None,
) -> Images:
    """The form of a graph's images; ``measure`` and ``track`` are as for ``settle_plan``.

    A graph that this machine has settled stays as it is, one without images has no question. Where the time until
    ``deadline_s`` does not suffice for a race, the graph stays open, and as the store has it. What a file claims is
    always tried; where no form has a hope there is nothing to store.
    """
    if not fusion.has_images:
        return fusion.images
    key = images_key(fusion)
    known = stored_images(fusion, here, store)
    if decided_here(store, "images", key, here) is not None:
        return known
    work = _Settling(fusion, target, here, store, session, numerics)
    others = {images: work.plan(images) for images in work.others(known)}
    last = work.plan(LAST)
    both_s = SLOWER * (work.plan_s(last) + max(map(work.plan_s, others.values()), default=0.0))
    kernels = len({key for plan in (last, *others.values()) for key in plan.kernels()})
    if not others or monotonic() + least_s(both_s, kernels) > deadline_s:
        return known
    forms = {id(plan): images for images, plan in others.items()}
    running = track(lambda _, plan, error: work.failed(forms[id(plan)], error))
    try:
        found = race([Choice(key, last, tuple(others.values()))], running, deadline_s).get(key)
    except CandidateFailure:
        return known
    if found is None:
        return known
    images = forms[id(found.alternative)]
    won = found.won and work.runs(images, measure)
    work.record(images, found, won, tell)
    return images if won else LAST


@dataclass(frozen=True, slots=True)
class _Settling:
    """What the steps share."""

    fusion: Fusion
    target: Target
    here: Fingerprint
    store: Store
    session: str
    numerics: Numerics

    def plan(self, images: Images) -> Schedule:
        return self.fusion.storing(images).schedule()

    def plan_s(self, plan: Schedule) -> float:
        return expected_plan_s(plan, self.target, self.numerics)

    def others(self, claimed: Images) -> list[Images]:
        """The forms that may beat channels-last, the most hopeful first."""
        last = self.plan(LAST)
        plans = {i: self.plan(i) for i in image_forms(self.target) if i not in (LAST, claimed)}
        hopes = [(self.plan_s(p), i) for i, p in plans.items() if p.kernels().keys() != last.kernels().keys()]
        hopes = sorted((h for h in hopes if h[0] <= HOPELESS * self.plan_s(last)), key=lambda h: h[0])
        return [*([] if claimed == LAST else [claimed]), *(i for _, i in hopes)]

    def runs(self, images: Images, measure: Measure) -> bool:
        """Whether default schedules of all kernels compute what they should."""
        kernels = [k for k, _ in self.plan(images).kernels().values() if not k.fixed]
        parts = {p.key: p for k in kernels for p in expected_parts(k, self.target, self.numerics)}
        return inf not in measure(list(parts.values())).values()

    # ---- rows

    def failed(self, images: Images, failure: CandidateFailure) -> None:
        """A form whose model does not run, or does not compute the graph."""
        rows = DecisionRows(self.store, self.here, self.session, "images")
        rows.failed(images_text(self.fusion), str(images), failure)

    def record(self, images: Images, met: Met[Schedule], won: bool, tell: Callable[[Event], None]) -> None:
        """Channels-last has the first row, so that a graph without a better form is settled; then what came nearest."""
        text, rows = images_text(self.fusion), DecisionRows(self.store, self.here, self.session, "images")
        self.store.name_kernel(text, f"images of {len(self.fusion.drafts.drafts)} kernels")
        rows.stands(text, str(LAST), CONTEST_POLICY, met.samples[0], _STANDING)
        rows.challenged(text, str(images), evidence_of(met.verdict, met.samples), won, tell)
