"""Actions on loop trees, the space of schedules, default schedules, passes from kernel to text.

Its modules are imported when one of their names is asked for: what was lowered before is found
without them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from .space import Schedule, Space
    from .trace import Trace, TraceStep
    from .version import SPACE_VERSION

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

_HOMES = {
    "actions": (
        "Action",
        "ActionObserver",
        "action_names",
        "apply_actions",
        "parse_actions",
        "print_actions",
    ),
    "choosing": (
        "Chooser",
        "DefaultChooser",
        "SpaceDecision",
        "TraceChooser",
    ),
    "observers": (
        "Seconds",
        "dump_to_folder",
        "dump_to_stream",
        "form_text",
        "verifying",
    ),
    "passes": (
        "MAX_INSTRUCTIONS",
        "PASSES",
        "Context",
        "Form",
        "Observer",
        "Pass",
        "lower",
        "run_passes",
    ),
    "sketches": ("product_cycles",),
    "space": (
        "Schedule",
        "Space",
    ),
    "trace": (
        "Trace",
        "TraceStep",
    ),
    "version": ("SPACE_VERSION",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
