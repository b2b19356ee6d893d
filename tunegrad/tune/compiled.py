"""A model on a device that runs nothing: every kernel is compiled by its default schedule.

plan of the model  -->  distinct kernels  -->  default schedule  -->  image, what it takes
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tunegrad.compiling import build
from tunegrad.devices import Device
from tunegrad.errors import CandidateFailure
from tunegrad.opts import Space
from tunegrad.reports import CompiledReport, CompiledRow
from tunegrad.tuning import KernelUse, Workload


def compile_model(
    work: Workload, device: Device, tell: Callable[[CompiledRow], None] = lambda _: None
) -> CompiledReport:
    """Compile the kernels of a model, the heaviest first; ``tell`` hears of each.

    A kernel that the compiler refuses is a row with its words.
    """
    began_s, rows = time.monotonic(), []
    for use in sorted(work.kernels, key=lambda u: -u.uses * u.kernel.flops):
        rows.append(_compiled(use, device))
        tell(rows[-1])
    return CompiledReport(work.name, device.name, time.monotonic() - began_s, tuple(rows))


def _compiled(use: KernelUse, device: Device) -> CompiledRow:
    start_s = time.monotonic()
    schedule = Space(use.kernel, device.target).defaults()[0]
    facts = (use.name, use.key, use.uses, schedule.text)
    try:
        lowered = build(use.kernel, schedule, device)
        g = lowered.geometry
        found = device.inspect(lowered)
    except CandidateFailure as failure:
        return CompiledRow(*facts, 0, 0, time.monotonic() - start_s, error=str(failure))
    resources = None if found is None else found.resources
    return CompiledRow(*facts, g.groups, g.items, time.monotonic() - start_s, resources)
