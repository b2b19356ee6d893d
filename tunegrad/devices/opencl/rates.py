"""Assumed rates of OpenCL devices: one table for CPUs that run OpenCL, one for GPUs.

CPUs: PoCL 3.0 (LLVM 14) on two cores of a Xeon with AMX. Its default schedules of products of 256
to 1024 ran at 34 to 36 GFLOP/s, 50 by hand (decision 0038); a sum of tensors
moved 54 to 57 GB/s of what the last cache holds and 11 to 16 of memory; an exponential took as long
as eight operations of such a product; a launch that does nothing took 1.2 to 1.7 us of the queue.

GPUs: of a unit of an H100, by arithmetic from its data sheet (67 TFLOP/s of f32, 132 units) and the
3.0 TB/s that it was measured to copy. The last cache is taken to be twice as fast as memory, and a
launch to cost 3 us: neither was measured. Bandwidth grows with the units here, as it does roughly
from small to large devices.
"""

from __future__ import annotations

from dataclasses import replace

from tunegrad.ir.target import Rates, Target

__all__ = ["declared"]

_CPU_FLOPS, _CPU_CACHE, _CPU_MEMORY = 1.5e10, 5.5e10, 1.3e10
_CPU_LAUNCH_S, _CPU_EXPENSIVE = 1.4e-6, 8

_GPU_FLOPS, _GPU_MEMORY, _GPU_LAUNCH_S, _GPU_EXPENSIVE = 5e11, 3e12 / 132, 3e-6, 8

_SOCKET_BYTES = 64 << 20
"""A larger last cache of a CPU serves a socket of cores that are not ours: see
``host/facts.py``.
"""


def declared(target: Target, kind: str) -> Target:
    """An OpenCL target with what a device of its type (``cpu``, ``gpu`` ...) is reckoned to do.

    What OpenCL calls the cache of global memory is the last one.
    """
    last = min(target.l2_bytes, _SOCKET_BYTES) if kind == "cpu" else target.l2_bytes
    rates = _cpu() if kind == "cpu" else _gpu(target.threads)
    return replace(target, l3_bytes=last, rates=rates)


def _cpu() -> Rates:
    return Rates(
        flops=(("f32", _CPU_FLOPS),),
        cache_bytes_per_s=_CPU_CACHE,
        memory_bytes_per_s=_CPU_MEMORY,
        launch_s=_CPU_LAUNCH_S,
        folds_per_s=_CPU_FLOPS,
        expensive_flops=_CPU_EXPENSIVE,
    )


def _gpu(units: int) -> Rates:
    """A unit's work-items fold together, at the rate of its arithmetic."""
    return Rates(
        flops=(("f32", _GPU_FLOPS),),
        cache_bytes_per_s=2 * _GPU_MEMORY * units,
        memory_bytes_per_s=_GPU_MEMORY * units,
        launch_s=_GPU_LAUNCH_S,
        folds_per_s=_GPU_FLOPS / 2,
        expensive_flops=_GPU_EXPENSIVE,
    )
