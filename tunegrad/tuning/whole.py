"""The whole model, end to end: its stored winners next to its default schedules, in this process."""

from __future__ import annotations

from tunegrad.artifact import Compiler
from tunegrad.config import cache_dir
from tunegrad.db import Store
from tunegrad.errors import CandidateFailure, IllegalAction
from tunegrad.inference import Choice, LoadedModel, choices
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule
from tunegrad.reports import RunReport
from tunegrad.runtime import Code, ObjectCache
from tunegrad.trial import Fingerprint

from .workload import Workload

__all__ = ["chosen_kernel", "measure_whole"]


def measure_whole(workload: Workload, store: Store, target: Target, here: Fingerprint, budget_s: float) -> RunReport:
    """Latencies of interleaved runs on drawn inputs, for about ``budget_s`` seconds.

    Raises CandidateFailure where a kernel has no schedule that runs.
    """
    compiler = Compiler(ObjectCache(cache_dir() / "objects"))
    chosen = {use.key: chosen_kernel(use.kernel, target, here, store, compiler) for use in workload.kernels}
    return LoadedModel(workload.name, workload.inputs, workload.plan, chosen, target).benchmark(budget_s)


def chosen_kernel(
    kernel: Kernel, target: Target, here: Fingerprint, store: Store, compiler: Compiler
) -> tuple[Choice, Code]:
    """What a kernel runs with, compiled: its stored winner, else its default. Raises CandidateFailure."""
    failure: Exception | None = None
    for choice in choices(kernel, target, here, store, "default"):
        try:
            return choice, compiler.code(kernel, Schedule.parse(choice.actions), target)
        except (IllegalAction, CandidateFailure) as error:
            failure = error
    raise CandidateFailure(f"kernel {kernel.name}: no schedule runs") from failure
