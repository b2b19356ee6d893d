# mypy: implicit-reexport
"""Devices: what they are, how they are opened, and how candidates are measured on them.

``open("opencl:1")`` gives a ``Device``. Its modules are imported when one of its names is asked
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    # isort: off
    from .device import (
        BoundPlan, Code, Device, DirectPlan, Engine, Inspection, MachineLimits, Memory, Place,
    )  # fmt: skip
    from .host.facts import L3_SHARE_BYTES, carry, usable_cores
    from .host.loader import linked_as
    from .host.single import run_on_host
    from .host.team import carried_runtime, use_openmp
    from .job import CONTENDING, Beside, Candidate, CompiledCandidate, Hooks, Limits, Reference
    from .lowered import Geometry, KernelIO, Lowered, Parameter, program_hash
    from .measurer import Compiling, DeviceMeasurer
    from .processes.channel import Died, Ending, Finished, TimedOut
    from .processes.confine import Protections
    from .processes.isolated import IsolatedWorker, start_fork_server
    from .processes.system_calls import counters_refused
    from .registry import DEFAULT, check_name, found, host_device, known, open, register, running
    from .timing import relative_interval
    # isort: on
else:
    __all__, __getattr__ = lazy_names(__name__)
