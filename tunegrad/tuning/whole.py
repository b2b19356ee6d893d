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

__all__ = ["latency_of", "measure_whole", "model_of"]

_LATENCY_RUNS = 21


def measure_whole(workload: Workload, store: Store, target: Target, here: Fingerprint, budget_s: float) -> RunReport:
    """Latencies of interleaved runs on drawn inputs, for about ``budget_s`` seconds.

    Raises CandidateFailure where a kernel has no schedule that runs.
    """
    return model_of(workload, {}, store, target, here).benchmark(budget_s)


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
    chosen = {u.key: _chosen(u.kernel, actions.get(u.key), store, target, here) for u in workload.kernels}
    return LoadedModel(workload.name, workload.inputs, workload.plan, chosen, target)


def _chosen(
    kernel: Kernel, actions: str | None, store: Store, target: Target, here: Fingerprint
) -> tuple[Choice, Code]:
    """What a kernel runs with, compiled: these actions, else its stored winner, else its default."""
    if actions is not None:
        return Choice(kernel, "hit", actions), process_compiler().code(kernel, Schedule.parse(actions), target)
    try:
        return compiled_choice(kernel, target, here, store, "default", process_compiler())
    except (IllegalAction, CandidateFailure) as error:
        raise CandidateFailure(f"kernel {kernel.name}: no schedule runs: {error}") from error
