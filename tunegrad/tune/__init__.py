"""Tuning: search for fast schedules of a model's kernels within a budget, and store the winners.

    report = tune(settings, observers)                          what `tunegrad tune` calls
    report = tune("resnet18", budget_s=300, store="tuned.db")   the same from Python
    report = tune(Model.of("mine", Mine, inputs))               a model of one's own
    report = tune_callable(lambda a, b: a @ b, a, b, budget_s=10, store="tuned.db")

The parts are in ``tunegrad.tuning``.
"""

from tunegrad.tune.given import workload_of_model
from tunegrad.tune.questions import (
    EXPLAIN_BUDGET_S,
    doctor,
    explain,
    explain_form,
    explain_trace,
    show,
    time_schedule,
)
from tunegrad.tune.sessions import (
    WORKER_MODULES,
    compile_models,
    tune,
    tune_callable,
    tune_models,
)

__all__ = [
    "EXPLAIN_BUDGET_S", "WORKER_MODULES", "compile_models", "doctor", "explain", "explain_form",
    "explain_trace", "show", "time_schedule", "tune", "tune_callable", "tune_models",
    "workload_of_model",
]  # fmt: skip
