"""Actions on loop trees, the space of schedules, default schedules, lowering."""

from .actions import Action, action_names, apply_actions, parse_actions, print_actions
from .choosing import Chooser, Decision, DefaultChooser, TraceChooser
from .lowering import lower
from .space import SPACE_VERSION, Schedule, Space

__all__ = [
    "SPACE_VERSION",
    "Action",
    "Chooser",
    "Decision",
    "DefaultChooser",
    "Schedule",
    "Space",
    "TraceChooser",
    "action_names",
    "apply_actions",
    "lower",
    "parse_actions",
    "print_actions",
]
