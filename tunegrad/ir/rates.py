"""How fast the machine that plans are judged with computes and reads: a model, not a measurement of this machine.

The constants are round figures of one core of the machine that the rules were made on, a Zen 4 with AVX-512: measured
peaks were 118 GFLOP/s (one fused multiply-add of 16 lanes a cycle) and 28 to 31 GB/s from memory. Only
comparisons use these rates: which variant of a kernel runs, which of two plans is looked at first.

Cores that start two fused multiply-adds a cycle have twice the peak. Raising the rate for them was tried on one: it
made worse choices among direct, channels-last and Winograd convolutions, because direct kernels stay further below
that peak than a model of peaks can say. So the rate is what a default schedule comes near; tuning measures the rest.
"""

from __future__ import annotations

from .target import Target

__all__ = ["CACHE_BYTES_PER_S", "FLOPS_PER_CORE", "MEMORY_BYTES_PER_S", "bytes_per_s", "peak_flops"]

FLOPS_PER_CORE = 1e11
"""f32 operations a second of one core with registers of 64 bytes, two in a fused multiply-add."""

CACHE_BYTES_PER_S = 5e10
"""Reading and writing what fits the last-level cache."""

MEMORY_BYTES_PER_S = 2.5e10
"""Reading and writing what does not."""


def peak_flops(target: Target, cores: int = 1) -> float:
    """Operations a second of so many cores with the target's registers."""
    return FLOPS_PER_CORE * (target.vector_bytes / 64) * cores


def bytes_per_s(nbytes: int, target: Target) -> float:
    """The rate at which ``nbytes`` move: the last-level cache's where they take less than half of it."""
    return CACHE_BYTES_PER_S if nbytes < target.cached_bytes // 2 else MEMORY_BYTES_PER_S
