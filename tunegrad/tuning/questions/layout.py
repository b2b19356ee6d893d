"""Forms of a model's images: the alternatives, and the decision about a graph."""

from __future__ import annotations

from math import inf

from tunegrad.devices import CONTENDING
from tunegrad.ir.fusion import LAST, Fusion, Images, LaunchPlan
from tunegrad.planning import image_forms, images_key, images_text, stored_images

from .question import PlanContext, PlanQuestion
from .rows import decided_here

__all__ = ["choose_images"]


def choose_images(fusion: Fusion, context: PlanContext, deadline_s: float = inf) -> Images:
    """The form of a graph's images.

    A graph that this machine has decided stays as it is, one without images has no question. Where
    the time until ``deadline_s`` does not suffice for a race, the graph stays open, and as the
    store has it. What a file claims is always tried; where no form has a hope there is nothing to
    store.
    """
    known = stored_images(fusion, context.here, context.store)
    here = decided_here(context.store, "images", images_key(fusion), context.here)
    if not fusion.has_images or here is not None:
        return known
    last = fusion.storing(LAST).schedule()
    if not context.fits((last, last), deadline_s):
        return known
    question = PlanQuestion(
        "images",
        images_text(fusion),
        f"images of {len(fusion.drafts.drafts)} kernels",
        (str(LAST), last),
        {str(i): plan for i, plan in _others(fusion, context, last, known).items()},
    )
    name = context.decided(question, deadline_s)
    return known if name is None else Images.parse(name) or LAST


def _others(
    fusion: Fusion, context: PlanContext, last: LaunchPlan, known: Images
) -> dict[Images, LaunchPlan]:
    """The plans of forms that may beat channels-last: what a file claims, then the most hopeful
    first.
    """
    plans = {i: fusion.storing(i).schedule() for i in image_forms(context.target)}
    hopes = {
        i: context.expected_s(plan)
        for i, plan in plans.items()
        if i not in (LAST, known) and plan.kernels().keys() != last.kernels().keys()
    }
    limit_s = CONTENDING * context.expected_s(last)
    near = sorted((i for i in hopes if hopes[i] <= limit_s), key=hopes.__getitem__)
    claimed = {} if known == LAST else {known: fusion.storing(known).schedule()}
    return claimed | {i: plans[i] for i in near}
