"""Tuning: a session over models, and its parts; ``tunegrad.tune`` is their front door.

session     plan, search, race, measure, report
questions   what whole models decide: layouts, cuts, variants, schedules
race        successive halving and a proof, in turns with the incumbent
models      whole models, in a worker process
executor    candidates on this machine; fleet: on many
budget      costs, deadlines, goal
transfer    seeds and training rows from other kernels
machine     load, conditions, roofline
reporting   records of a report, from the store's rows

Its modules are imported when one of their names is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .budget.costs import Costs as Costs
    from .executor.executor import Executor as Executor
    from .executor.executor import open_executor as open_executor
    from .interrupt import Interrupt as Interrupt
    from .machine.conditions import machine_state as machine_state
    from .machine.conditions import revision as revision
    from .machine.conditions import versions as versions
    from .machine.load import CpuUse as CpuUse
    from .machine.load import busy_text as busy_text
    from .machine.load import cpu_use as cpu_use
    from .machine.load import lacking_cpus as lacking_cpus
    from .machine.load import others_cpus as others_cpus
    from .machine.load import probed as probed
    from .machine.roofline import Roofline as Roofline
    from .machine.roofline import needed_flops as needed_flops
    from .models import Models as Models
    from .models import Turns as Turns
    from .models import WholeModel as WholeModel
    from .models import culprit as culprit
    from .race.values import FAULTS as FAULTS
    from .reporting import HistoryChart as HistoryChart
    from .reporting import Judgement as Judgement
    from .reporting import KernelEntry as KernelEntry
    from .reporting import Latencies as Latencies
    from .reporting import ReportPage as ReportPage
    from .reporting import SessionLine as SessionLine
    from .reporting import SessionPage as SessionPage
    from .reporting import Trace as Trace
    from .reporting import gather as gather
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
            "budget.costs": "Costs",
            "executor.executor": "Executor open_executor",
            "interrupt": "Interrupt",
            "machine.conditions": "machine_state revision versions",
            "machine.load": "CpuUse busy_text cpu_use lacking_cpus others_cpus probed",
            "machine.roofline": "Roofline needed_flops",
            "models": "Models Turns WholeModel culprit",
            "race.values": "FAULTS",
            "reporting": (
                "HistoryChart Judgement KernelEntry Latencies ReportPage SessionLine SessionPage "
                "Trace gather"
            ),
            "session": "run_session run_sessions search_policy",
            "workload": (
                "KernelUse Workload cut_as_stored only with_variants workload_of "
                "workload_of_function workload_of_spec"
            ),
        },
    )
