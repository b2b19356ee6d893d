"""Which form a model's images have, settled by measuring before the edges of its graph are.

every form              -->   a model of the machine drops what it expects to cost a quarter more
whole models, in turns  -->   what is faster; what wins is then verified, kernel by kernel
                        -->   a decision about the graph: ``blocked16`` or ``last``

Kernels run as the store or their defaults have them: the forms are compared before the search, as edges are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic

from tunegrad.config import Numerics
from tunegrad.db import Evidence, Store
from tunegrad.errors import CandidateFailure
from tunegrad.events import Event
from tunegrad.ir.fusion import LAST, Fusion, Images, Schedule
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning import (
    expected_parts,
    expected_plan_s,
    image_forms,
    images_key,
    images_text,
    stored_images,
)
from tunegrad.search import decide
from tunegrad.trial import Fingerprint

from .contest import CONTEST_POLICY, FAULTS, Compare, contest_s
from .decisions import DecisionRows, evidence_of
from .plans import Measure

__all__ = ["settle_images"]

_HOPELESS = 1.25
"""Forms that are expected to take this much longer are not measured."""

_STANDING = "standing"
"""The test of the form that was there first."""


def settle_images(
    fusion: Fusion,
    target: Target,
    here: Fingerprint,
    store: Store,
    measure: Measure,
    compare: Compare,
    session: str,
    numerics: Numerics = "contract",
    deadline_s: float = inf,
    tell: Callable[[Event], None] = lambda _: None,
) -> Images:
    """The form of a graph's images; ``measure`` and ``compare`` are as for ``settle_plan``.

    A graph that this machine has settled stays as it is, one without images has no question. Where the time until
    ``deadline_s`` does not suffice for the first contest, the graph stays open, and as the store has it. What a file
    claims is always tried; where no form has a hope there is nothing to store.
    """
    if not fusion.has_images:
        return fusion.images
    key = images_key(fusion)
    known = stored_images(fusion, here, store)
    settled = store.decision("images", key, here, SPACE_VERSION)
    if settled is not None and not settled.imported:
        return known
    work = _Settling(fusion, target, here, store, session, numerics)
    rivals = work.rivals(known)
    current, tried = LAST, list[_Tried]()
    for images in rivals:
        plans = work.plan(current), work.plan(images)
        if monotonic() + contest_s(plans, [work.plan_s(p) for p in plans]) > deadline_s:
            break
        try:
            incumbent_s, challenger_s = compare(*plans)
        except FAULTS as error:
            work.failed(images, error)
            continue
        except CandidateFailure:
            continue
        verdict = decide(incumbent_s, challenger_s)
        won = verdict.promoted and work.runs(images, measure)
        tried.append(_Tried(images, evidence_of(verdict, (incumbent_s, challenger_s)), won))
        current = images if won else current
    if not tried:
        return known
    work.record(tried, tell)
    return current


@dataclass(frozen=True, slots=True)
class _Tried:
    """A form that met the best one so far."""

    images: Images
    evidence: Evidence
    won: bool


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

    def rivals(self, claimed: Images) -> list[Images]:
        """The forms that may beat channels-last, the most hopeful first."""
        last = self.plan(LAST)
        plans = {i: self.plan(i) for i in image_forms(self.target) if i not in (LAST, claimed)}
        hopes = [(self.plan_s(p), i) for i, p in plans.items() if p.kernels().keys() != last.kernels().keys()]
        hopes = sorted((h for h in hopes if h[0] <= _HOPELESS * self.plan_s(last)), key=lambda h: h[0])
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

    def record(self, tried: Sequence[_Tried], tell: Callable[[Event], None]) -> None:
        """Channels-last has the first row, so that a graph without a better form is settled; then what was tried."""
        text, rows = images_text(self.fusion), DecisionRows(self.store, self.here, self.session, "images")
        self.store.name_kernel(text, f"images of {len(self.fusion.drafts.drafts)} kernels")
        rows.stands(text, str(LAST), CONTEST_POLICY, tried[0].evidence.incumbent_samples_s, _STANDING)
        for x in tried:
            rows.challenged(text, str(x.images), x.evidence, x.won, tell)
