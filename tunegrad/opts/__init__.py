"""Actions on loop trees, the space of schedules, default schedules, passes from kernel to text."""

from .actions import (
    Action,
    ActionObserver,
    action_names,
    apply_actions,
    parse_actions,
    print_actions,
)
from .choosing import Chooser, DefaultChooser, SpaceDecision, TraceChooser
from .observers import Seconds, dump_to_folder, dump_to_stream, form_text, verifying
from .passes import MAX_INSTRUCTIONS, PASSES, Context, Form, Observer, Pass, lower, run_passes
from .sketches import product_cycles
from .space import SPACE_VERSION, Schedule, Space
from .trace import Trace, TraceStep

__all__ = [
    "MAX_INSTRUCTIONS",
    "PASSES",
    "SPACE_VERSION",
    "Action",
    "ActionObserver",
    "Chooser",
    "Context",
    "DefaultChooser",
    "Form",
    "Observer",
    "Pass",
    "Schedule",
    "Seconds",
    "Space",
    "SpaceDecision",
    "Trace",
    "TraceChooser",
    "TraceStep",
    "action_names",
    "apply_actions",
    "dump_to_folder",
    "dump_to_stream",
    "form_text",
    "lower",
    "parse_actions",
    "print_actions",
    "product_cycles",
    "run_passes",
    "verifying",
]
