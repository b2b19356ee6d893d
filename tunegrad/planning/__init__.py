# mypy: implicit-reexport
"""From a graph to the launches that run: stored decisions, else expectations of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .deviation import deviation, deviation_of_graph
    from .expected import (
        NEAR, allowed, expected, expected_attentions, expected_parts, expected_plan_s, expected_s,
        measured_variant, pick_variants, picked, stored_s, stored_variant, variant_s,
        worth_measuring,
    )  # fmt: skip
    from .plan import (
        RULES, Planned, image_forms, images_key, images_text, plan_launches, planned_as, prepared,
        stored_images, stored_toggles,
    )  # fmt: skip
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
