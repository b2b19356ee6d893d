"""Devices: what they are, how they are opened, and how candidates are measured on them.

``open("opencl:1")`` gives a ``Device``. Its modules are imported when one of its names is asked
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import lazy_names

if TYPE_CHECKING:
    from .device import BoundPlan as BoundPlan
    from .device import Code as Code
    from .device import Device as Device
    from .device import DirectPlan as DirectPlan
    from .device import Engine as Engine
    from .device import Inspection as Inspection
    from .device import MachineLimits as MachineLimits
    from .device import Memory as Memory
    from .device import Place as Place
    from .host.facts import L3_SHARE_BYTES as L3_SHARE_BYTES
    from .host.facts import carry as carry
    from .host.facts import usable_cores as usable_cores
    from .host.loader import linked_as as linked_as
    from .host.single import run_on_host as run_on_host
    from .host.team import carried_runtime as carried_runtime
    from .host.team import use_openmp as use_openmp
    from .job import CONTENDING as CONTENDING
    from .job import Beside as Beside
    from .job import Candidate as Candidate
    from .job import CompiledCandidate as CompiledCandidate
    from .job import Hooks as Hooks
    from .job import Limits as Limits
    from .job import Reference as Reference
    from .lowered import Geometry as Geometry
    from .lowered import KernelIO as KernelIO
    from .lowered import Lowered as Lowered
    from .lowered import Parameter as Parameter
    from .lowered import program_hash as program_hash
    from .measurer import Compiling as Compiling
    from .measurer import DeviceMeasurer as DeviceMeasurer
    from .processes.confine import Protections as Protections
    from .processes.system_calls import counters_refused as counters_refused
    from .registry import DEFAULT as DEFAULT
    from .registry import check_name as check_name
    from .registry import found as found
    from .registry import host_device as host_device
    from .registry import known as known
    from .registry import open as open  # noqa: A004 - as gzip.open
    from .registry import register as register
    from .registry import running as running
    from .timing import relative_interval as relative_interval
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "device": (
                "BoundPlan Code Device DirectPlan Engine Inspection MachineLimits Memory Place"
            ),
            "host.facts": "L3_SHARE_BYTES carry usable_cores",
            "host.loader": "linked_as",
            "host.single": "run_on_host",
            "host.team": "carried_runtime use_openmp",
            "job": ("CONTENDING Beside Candidate CompiledCandidate Hooks Limits Reference"),
            "lowered": "Geometry KernelIO Lowered Parameter program_hash",
            "measurer": "Compiling DeviceMeasurer",
            "processes.confine": "Protections",
            "processes.system_calls": "counters_refused",
            "registry": "DEFAULT check_name found host_device known open register running",
            "timing": "relative_interval",
        },
    )
