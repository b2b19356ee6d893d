"""The whole model, end to end: its stored winners next to its default schedules, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from tunegrad.db import Store
from tunegrad.errors import CandidateFailure, IllegalAction
from tunegrad.inference import Choice, LoadedModel, compiled_choice, process_compiler
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule
from tunegrad.reports import RunReport
from tunegrad.runtime import Code
from tunegrad.trial import Fingerprint

from .workload import Workload

__all__ = ["chosen_kernel", "latency_of", "measure_whole", "model_of"]

_LATENCY_RUNS = 21


def measure_whole(workload: Workload, store: Store, target: Target, here: Fingerprint, budget_s: float) -> RunReport:
    """Latencies of interleaved runs on drawn inputs, for about ``budget_s`` seconds.

    Raises CandidateFailure where a kernel has no schedule that runs.
    """
    chosen = {use.key: chosen_kernel(use.kernel, target, here, store) for use in workload.kernels}
    return LoadedModel(workload.name, workload.inputs, workload.plan, chosen, target).benchmark(budget_s)


def latency_of(
    workload: Workload, actions: Mapping[str, str], store: Store, target: Target, here: Fingerprint
) -> float:
    """Median seconds of the model with these actions by kernel key; kernels without any as the store or default says.

    Raises CandidateFailure where a kernel has no schedule that runs.
    """
    return median(model_of(workload, actions, store, target, here).benchmark_s(_LATENCY_RUNS)[1:])


def model_of(
    workload: Workload, actions: Mapping[str, str], store: Store, target: Target, here: Fingerprint
) -> LoadedModel:
    """The model with these actions by kernel key; kernels without any as the store or default says.

    Raises CandidateFailure where a kernel has no schedule that runs.
    """
    chosen = {}
    for use in workload.kernels:
        if use.key in actions:
            code = process_compiler().code(use.kernel, Schedule.parse(actions[use.key]), target)
            chosen[use.key] = Choice(use.kernel, "hit", actions[use.key]), code
        else:
            chosen[use.key] = chosen_kernel(use.kernel, target, here, store)
    return LoadedModel(workload.name, workload.inputs, workload.plan, chosen, target)


def chosen_kernel(kernel: Kernel, target: Target, here: Fingerprint, store: Store) -> tuple[Choice, Code]:
    """What a kernel runs with, compiled: its stored winner, else its default. Raises CandidateFailure."""
    try:
        return compiled_choice(kernel, target, here, store, "default", process_compiler())
    except (IllegalAction, CandidateFailure) as error:
        raise CandidateFailure(f"kernel {kernel.name}: no schedule runs: {error}") from error
