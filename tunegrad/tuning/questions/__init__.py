"""Questions that whole models decide: feature-map layouts, cuts, variants and schedules."""

from .cut import choose_cuts, choose_images
from .plan import RACE_SHARE, OutOfTrialsError, PlanDecisions
from .question import PlanContext
from .schedule import Schedules, promote
from .variant import (
    VariantCandidates,
    candidates_of,
    choose_variants,
    leave_but,
    narrowed_in_rounds,
)

__all__ = [
    "RACE_SHARE", "OutOfTrialsError", "PlanContext", "PlanDecisions", "Schedules",
    "VariantCandidates", "candidates_of", "choose_cuts", "choose_images", "choose_variants",
    "leave_but", "narrowed_in_rounds", "promote",
]  # fmt: skip
