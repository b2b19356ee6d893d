"""Actions on loop trees, the space of schedules, default schedules, passes from kernel to text.

Its modules are imported when one of their names is asked for: what was lowered before is found
without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .actions import Action as Action
    from .actions import ActionObserver as ActionObserver
    from .actions import Upcast as Upcast
    from .actions import action_names as action_names
    from .actions import apply_actions as apply_actions
    from .actions import parse_actions as parse_actions
    from .actions import print_actions as print_actions
    from .decisions import Chooser as Chooser
    from .decisions import DefaultChooser as DefaultChooser
    from .decisions import SpaceDecision as SpaceDecision
    from .decisions import TraceChooser as TraceChooser
    from .lowering.reductions import longest_chain as longest_chain
    from .observers import Trace as Trace
    from .observers import TraceStep as TraceStep
    from .observers import dump_to_folder as dump_to_folder
    from .observers import form_text as form_text
    from .passes import LIMIT as LIMIT
    from .passes import LOOPS as LOOPS
    from .passes import LOWER as LOWER
    from .passes import MAX_INSTRUCTIONS as MAX_INSTRUCTIONS
    from .passes import RACES as RACES
    from .passes import RENDER as RENDER
    from .passes import SCHEDULE as SCHEDULE
    from .passes import SPACE_VERSION as SPACE_VERSION
    from .passes import Context as Context
    from .passes import Form as Form
    from .passes import Observer as Observer
    from .passes import Pass as Pass
    from .passes import lower as lower
    from .passes import run_passes as run_passes
    from .product_rates import kernel_flops_per_s as kernel_flops_per_s
    from .product_rates import product_rate as product_rate
    from .sketches import product_cycles as product_cycles
    from .space import Schedule as Schedule
    from .space import Space as Space
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "actions": (
                "Action ActionObserver Upcast action_names apply_actions parse_actions "
                "print_actions"
            ),
            "decisions": "Chooser DefaultChooser SpaceDecision TraceChooser",
            "lowering.reductions": "longest_chain",
            "observers": "Trace TraceStep dump_to_folder form_text",
            "passes": (
                "LIMIT LOOPS LOWER MAX_INSTRUCTIONS RACES RENDER SCHEDULE SPACE_VERSION "
                "Context Form Observer Pass lower run_passes"
            ),
            "product_rates": "kernel_flops_per_s product_rate",
            "sketches": "product_cycles",
            "space": "Schedule Space",
        },
    )
