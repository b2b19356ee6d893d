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
    from .budget import Costs as Costs
    from .executor import Executor as Executor
    from .executor import open_executor as open_executor
    from .interrupt import Interrupt as Interrupt
    from .machine import CpuUse as CpuUse
    from .machine import busy_text as busy_text
    from .machine import cpu_use as cpu_use
    from .machine import lacking_cpus as lacking_cpus
    from .machine import machine_state as machine_state
    from .machine import others_cpus as others_cpus
    from .machine import probed as probed
    from .machine import revision as revision
    from .machine import versions as versions
    from .models import Models as Models
    from .models import Turns as Turns
    from .models import WholeModel as WholeModel
    from .models import culprit as culprit
    from .race import FAULTS as FAULTS
    from .reporting import HistoryChart as HistoryChart
    from .reporting import Judgement as Judgement
    from .reporting import KernelEntry as KernelEntry
    from .reporting import Latencies as Latencies
    from .reporting import Machine as Machine
    from .reporting import ReportPage as ReportPage
    from .reporting import Search as Search
    from .reporting import SessionLine as SessionLine
    from .reporting import SessionPage as SessionPage
    from .reporting import gather as gather
    from .reporting import one_change as one_change
    from .reporting import tried_neighbour as tried_neighbour
    from .roofline import Roofline as Roofline
    from .roofline import needed_flops as needed_flops
    from .session import run_session as run_session
    from .session import run_sessions as run_sessions
    from .session import search_policy as search_policy
    from .workload import KernelUse as KernelUse
    from .workload import Workload as Workload
    from .workload import cut_as_stored as cut_as_stored
    from .workload import only as only
    from .workload import with_variants as with_variants
    from .workload import workload_of as workload_of
    from .workload import workload_of_function as workload_of_function
    from .workload import workload_of_spec as workload_of_spec
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "budget": "Costs",
            "executor": "Executor open_executor",
            "interrupt": "Interrupt",
            "machine": (
                "CpuUse busy_text cpu_use lacking_cpus machine_state others_cpus probed revision "
                "versions"
            ),
            "roofline": "Roofline needed_flops",
            "models": "Models Turns WholeModel culprit",
            "race": "FAULTS",
            "reporting": (
                "HistoryChart Judgement KernelEntry Latencies Machine ReportPage Search "
                "SessionLine SessionPage gather one_change tried_neighbour"
            ),
            "session": "run_session run_sessions search_policy",
            "workload": (
                "KernelUse Workload cut_as_stored only with_variants workload_of "
                "workload_of_function workload_of_spec"
            ),
        },
    )
