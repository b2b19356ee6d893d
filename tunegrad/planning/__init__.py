"""From a graph to the launches that run: stored decisions, else expectations of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .deviation import deviation as deviation
    from .deviation import deviation_of_graph as deviation_of_graph
    from .expected import NEAR as NEAR
    from .expected import allowed as allowed
    from .expected import expected as expected
    from .expected import expected_attentions as expected_attentions
    from .expected import expected_parts as expected_parts
    from .expected import expected_plan_s as expected_plan_s
    from .expected import expected_s as expected_s
    from .expected import measured_variant as measured_variant
    from .expected import pick_variants as pick_variants
    from .expected import picked as picked
    from .expected import stored_s as stored_s
    from .expected import stored_variant as stored_variant
    from .expected import variant_s as variant_s
    from .plan import RULES as RULES
    from .plan import Planned as Planned
    from .plan import image_forms as image_forms
    from .plan import images_key as images_key
    from .plan import images_text as images_text
    from .plan import plan_launches as plan_launches
    from .plan import planned_as as planned_as
    from .plan import prepared as prepared
    from .plan import stored_images as stored_images
    from .plan import stored_toggles as stored_toggles
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "deviation": "deviation deviation_of_graph",
            "expected": (
                "NEAR allowed expected expected_attentions expected_parts expected_plan_s "
                "expected_s measured_variant pick_variants picked stored_s stored_variant variant_s"
            ),
            "plan": (
                "Planned RULES image_forms images_key images_text plan_launches planned_as "
                "prepared stored_images stored_toggles"
            ),
        },
    )
