"""Questions that whole models decide: feature-map layouts, cuts, variants and schedules."""

from .candidates import Rivals, leave_but, narrowed_in_rounds
from .cut import choose_cuts
from .layout import choose_images
from .plan import RACE_SHARE, Deciding, OutOfTrialsError
from .question import Grounds
from .schedule import Schedules, promote
from .variant import choose_variants, rivals_of

__all__ = [
    "RACE_SHARE",
    "Deciding",
    "Grounds",
    "OutOfTrialsError",
    "Rivals",
    "Schedules",
    "choose_cuts",
    "choose_images",
    "choose_variants",
    "leave_but",
    "narrowed_in_rounds",
    "promote",
    "rivals_of",
]
