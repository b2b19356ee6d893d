"""The machine: load of other processes, conditions of a measurement, and the roofline."""

from .conditions import machine_state, record_latency, revision, versions
from .load import CpuUse, busy_text, cpu_use, lacking_cpus, others_cpus, probed
from .roofline import Roofline, needed_flops

__all__ = [
    "CpuUse",
    "Roofline",
    "busy_text",
    "cpu_use",
    "lacking_cpus",
    "machine_state",
    "needed_flops",
    "others_cpus",
    "probed",
    "record_latency",
    "revision",
    "versions",
]
