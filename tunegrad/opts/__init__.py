# mypy: implicit-reexport
"""Actions on loop trees, the space of schedules, default schedules, passes from kernel to text.

Its modules are imported when one of their names is asked for: what was lowered before is found
without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .actions import (
        Action, ActionObserver, Upcast, action_names, apply_actions, parse_actions, print_actions,
    )  # fmt: skip
    from .decisions import Chooser, DefaultChooser, SpaceDecision, TraceChooser
    from .lowering.reductions import chained_terms, longest_chain
    from .observers import Trace, TraceStep, dump_to_folder, form_text
    from .passes import (
        LIMIT, LOOPS, LOWER, MAX_INSTRUCTIONS, RACES, RENDER, SCHEDULE, SPACE_VERSION, Context,
        Form, Observer, Pass, lower, run_passes,
    )  # fmt: skip
    from .product_rates import kernel_flops_per_s, product_rate
    from .sketches import product_cycles
    from .space import Schedule, Space
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
