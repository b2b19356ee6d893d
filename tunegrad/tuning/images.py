"""Which form a model's images have, settled by measuring before the edges of its graph are.

every form             -->   a model of the machine drops what it expects to cost a quarter more
a race, whole models   -->   what is proved faster; its kernels are then verified, one by one
                       -->   a decision about the graph: ``blocked16`` or ``last``

Kernels run as the store or their defaults have them: the forms are compared before the search, as
edges are.
"""

from __future__ import annotations

from math import inf
from time import monotonic

from tunegrad.errors import CandidateFailure
from tunegrad.ir.fusion import LAST, Fusion, Images, LaunchPlan
from tunegrad.planning.plan import (
    expected_parts,
    expected_plan_s,
    image_forms,
    images_key,
    images_text,
    stored_images,
)

from .claims import decided_here
from .contest import CONTEST_POLICY
from .decisions import evidence_of
from .grounds import HOPELESS, SLOWER, Grounds
from .tracks import least_s

__all__ = ["choose_images"]

_STANDING = "standing"
"""The test of the form that was there first."""


def choose_images(fusion: Fusion, grounds: Grounds, deadline_s: float = inf) -> Images:
    """The form of a graph's images.

    A graph that this machine has settled stays as it is, one without images has no question. Where
    the time until ``deadline_s`` does not suffice for a race, the graph stays open, and as the
    store has it. What a file claims is always tried; where no form has a hope there is nothing to
    store.
    """
    if not fusion.has_images:
        return fusion.images
    known = stored_images(fusion, grounds.here, grounds.store)
    if decided_here(grounds.store, "images", images_key(fusion), grounds.here) is not None:
        return known
    last, others = fusion.storing(LAST).schedule(), _others(fusion, grounds, known)
    slowest_s = max((_plan_s(p, grounds) for p in others.values()), default=0.0)
    kernels = len({key for plan in (last, *others.values()) for key in plan.kernels()})
    took_s = least_s(SLOWER * (_plan_s(last, grounds) + slowest_s), kernels)
    if not others or monotonic() + took_s > deadline_s:
        return known
    text = images_text(fusion)
    try:
        found = grounds.raced(
            "images", text, last, {str(i): p for i, p in others.items()}, deadline_s
        )
    except CandidateFailure:
        return known
    if found is None:
        return known
    name, met = found
    images = next(i for i in others if str(i) == name)
    won = met.won and _runs(others[images], grounds)
    # Channels-last has the first row, so that a graph without a better form is settled; then what
    # came nearest.
    grounds.store.name_kernel(text, f"images of {len(fusion.drafts.drafts)} kernels")
    rows = grounds.rows("images")
    rows.stands(text, str(LAST), CONTEST_POLICY, met.samples[0], _STANDING)
    rows.challenged(text, name, evidence_of(met.verdict, met.samples), won, grounds.tell)
    return images if won else LAST


def _others(fusion: Fusion, grounds: Grounds, known: Images) -> dict[Images, LaunchPlan]:
    """The plans of forms that may beat channels-last: what a file claims, then the most hopeful
    first.
    """
    last = fusion.storing(LAST).schedule()
    plans = {
        i: fusion.storing(i).schedule()
        for i in image_forms(grounds.target)
        if i not in (LAST, known)
    }
    hopes = {
        i: _plan_s(p, grounds)
        for i, p in plans.items()
        if p.kernels().keys() != last.kernels().keys()
    }
    near = sorted(
        (i for i in hopes if hopes[i] <= HOPELESS * _plan_s(last, grounds)), key=hopes.__getitem__
    )
    claimed = {} if known == LAST else {known: fusion.storing(known).schedule()}
    return {**claimed, **{i: plans[i] for i in near}}


def _plan_s(plan: LaunchPlan, grounds: Grounds) -> float:
    return expected_plan_s(plan, grounds.target, grounds.numerics)


def _runs(plan: LaunchPlan, grounds: Grounds) -> bool:
    """Whether default schedules of all kernels compute what they should."""
    kernels = [k for k, _ in plan.kernels().values() if not k.fixed]
    parts = {p.key: p for k in kernels for p in expected_parts(k, grounds.target, grounds.numerics)}
    return inf not in grounds.measure(list(parts.values())).values()
