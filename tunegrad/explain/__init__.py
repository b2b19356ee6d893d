# mypy: implicit-reexport
"""Explanations: a model's time by kernel, the forms of one kernel, this machine.

Nothing is tuned, and no store is written. Modules are imported when one of their names is asked
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .legality import Legality
    from .machine import doctor
    from .model import Asked, explain
    from .one_kernel import (
        FormReport, Stage, TimedReport, TraceReport, code_of, form_of_kernel, show, time_schedule,
        trace_of_kernel,
    )  # fmt: skip
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
