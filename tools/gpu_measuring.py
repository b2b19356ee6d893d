"""One kernel of a GPU session: right first, then timed, with what the compiler and the device say.

Candidates run in worker processes, as in a tune; their results are compared with float64's before
a sample is taken.
"""

from __future__ import annotations

import atexit
from functools import cache
from typing import Any

from tunegrad.compiling import HOOKS, Payload
from tunegrad.devices import Device, DeviceMeasurer
from tunegrad.devices.job import Candidate, Hooks, Limits
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule, Space
from tunegrad.trial import Policy, Status

__all__ = ["measured", "measurer"]

_POLICY = Policy(min_samples=5, max_samples=50, tolerance=0.01, budget_s=0.2, timeout_s=30.0)
_LIMITS = Limits(compile_s=60.0, run_memory_bytes=16 << 30)


@cache
def measurer(device: Device, hooks: Hooks, limits: Limits) -> DeviceMeasurer:
    """Workers of this process; they end with it."""
    made = DeviceMeasurer(device, hooks, limits)
    atexit.register(made.close)
    return made


def measured(device: Device, kernel: Kernel, schedule: Schedule | None = None) -> dict[str, Any]:
    """A schedule of a kernel, the default one: ``seconds`` of its fastest launch, the median, its
    text, the largest error, facts of its code and the device's state.

    Raises AssertionError where its results are wrong, or there are none.
    """
    schedule = schedule or Space(kernel, device.target).defaults()[0]
    candidate = Candidate(kernel.key, Payload(kernel, schedule.text, device))
    (outcome,) = measurer(device, HOOKS, _LIMITS).measure([candidate], _POLICY)
    assert outcome is not None
    row = outcome.measurement
    if row.status is not Status.OK:
        raise AssertionError(f"{row.status.value}: {row.error} ({schedule.text})")
    return {
        "seconds": min(row.samples_s),
        "median_s": row.seconds,
        "schedule": schedule.text,
        "max_error": row.max_error,
        "facts": dict(row.facts),
        "state": dict(row.state),
    }
