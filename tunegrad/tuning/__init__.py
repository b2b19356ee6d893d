# mypy: implicit-reexport
"""Tuning: a session over models, and its parts; ``tunegrad.tune`` is their front door.

session     plan, search, race, measure, report
questions   what whole models decide: layouts, cuts, variants, schedules
race        successive halving and a proof, in turns with the incumbent
models      whole models, in a worker process
executor    candidates on this machine; fleet: on many
budget      costs, deadlines, goal
seeding     seeds from other kernels
machine     load, conditions; roofline: how near to its limits a kernel runs
reporting   records of a report, from the store's rows

Its modules are imported when one of their names is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .budget import Costs
    from .executor import Executor, open_executor
    from .interrupt import Interrupt
    from .machine import (
        CpuUse, busy_text, cpu_use, lacking_cpus, machine_state, others_cpus, probed, revision,
        versions,
    )  # fmt: skip
    from .models import Models, Turns, WholeModel, culprit, per_launch
    from .race import FAULTS
    from .reporting import (
        HistoryChart, Judgement, KernelEntry, Latencies, Machine, ReportPage, Search, SessionLine,
        SessionPage, gather, one_change, tried_neighbour,
    )  # fmt: skip
    from .roofline import Roofline, needed_flops
    from .session import run_session, run_sessions, search_policy
    from .workload import (
        KernelUse, Workload, cut_as_stored, only, with_variants, workload_of, workload_of_function,
        workload_of_spec,
    )  # fmt: skip
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
