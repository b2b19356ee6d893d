"""Explanations: a model's time by kernel, the forms of one kernel, this machine.

Nothing is tuned, and no store is written. Modules are imported when one of their names is asked
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .legality import Legality as Legality
    from .machine import doctor as doctor
    from .model import Asked as Asked
    from .model import explain as explain
    from .one_kernel import FormReport as FormReport
    from .one_kernel import Stage as Stage
    from .one_kernel import TimedReport as TimedReport
    from .one_kernel import TraceReport as TraceReport
    from .one_kernel import code_of as code_of
    from .one_kernel import form_of_kernel as form_of_kernel
    from .one_kernel import show as show
    from .one_kernel import time_schedule as time_schedule
    from .one_kernel import trace_of_kernel as trace_of_kernel
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "legality": "Legality",
            "machine": "doctor",
            "model": "Asked explain",
            "one_kernel": (
                "FormReport Stage TimedReport TraceReport code_of form_of_kernel show "
                "time_schedule trace_of_kernel"
            ),
        },
    )
