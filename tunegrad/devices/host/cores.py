"""Rates of one core of a CPU, as far as they were measured: one table for every CPU target.

The rates are round figures of a Zen 4 server core with AVX-512, on which the default choices were
made. Measured there, one core reached 118 GFLOP/s of f32 (one fused multiply-add of 16 lanes a
cycle) and read memory at 28 to 31 GB/s.

Cores that start two fused multiply-adds a cycle have twice the peak. Raising the rate for them was
tried on one: it made worse choices among direct, channels-last and Winograd convolutions, because
direct kernels stay further below that peak than a model of peaks can say. So a rate is what a
default schedule comes near; tuning measures the rest.
"""

from __future__ import annotations

from dataclasses import replace

from tunegrad.ir.target import Rates, Target

__all__ = ["declared"]

_TWO_FMAS = frozenset(("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "znver5"))

_FLOPS = 1e11
"""f32 operations a second of one core with registers of 64 bytes; narrower ones have a share."""

_CACHE_BYTES_PER_S, _MEMORY_BYTES_PER_S = 5e10, 2.5e10

_LAUNCH_S = 1e-6
"""Of a kernel in a model. One that does nothing took two threads of a Xeon 0.35 to 0.39 us."""

_FOLDS_PER_S, _FOLD_RUN = 1.1e9, 64
"""One core summed rows of (2^24, 4) so fast. A step is of several vectors, whose sums overlap."""

_EXPENSIVE_FLOPS = 15

_L2_BYTES_PER_CYCLE = 20
"""Besides computing; 26 alone, measured on a core with two fused multiply-adds a cycle."""

_L3_SHARE_BYTES = 64 << 20
"""A larger last cache serves a whole socket, cores that are not ours included: of 480 MiB, two
cores read 64 MiB at 22 to 26 GB/s and 128 MiB at memory's 15 to 20.
"""

_STREAMS = 8
"""Rows that a prefetcher follows, and whose equal places one set of the first cache holds."""


def declared(target: Target) -> Target:
    """A CPU target with what its core is declared to do; its other facts stay."""
    fmas = _fmas_per_cycle(target)
    return replace(
        target,
        fmas_per_cycle=fmas,
        l2_bytes_per_cycle=_L2_BYTES_PER_CYCLE,
        l3_share_bytes=_L3_SHARE_BYTES,
        streams=_STREAMS,
        rates=_rates(target, fmas),
    )


def _fmas_per_cycle(target: Target) -> int:
    """Two of 64 bytes on Zen 5 and Intel's servers (by AMX or name), else one, or two of 32."""
    if target.vector_bytes < 64:
        return 2
    return 2 if "+amx-tile" in target.features or target.arch in _TWO_FMAS else 1


def _rates(target: Target, fmas: int) -> Rates:
    """``fmas`` a cycle. Products of bf16 pairs: twice as many by vectors, by tiles what is declared
    of them.
    """
    f32 = _FLOPS * (target.vector_bytes / 64)
    one = f32 / (target.lanes(4) * fmas)
    pairs = (("bf16x2", 2.0 * f32),) if target.bf16_dot else ()
    return Rates(
        flops=(*((u.name, u.fmas * one) for u in target.units), *pairs, ("f32", f32)),
        cache_bytes_per_s=_CACHE_BYTES_PER_S,
        memory_bytes_per_s=_MEMORY_BYTES_PER_S,
        launch_s=_LAUNCH_S,
        folds_per_s=_FOLDS_PER_S,
        fold_run=_FOLD_RUN,
        expensive_flops=_EXPENSIVE_FLOPS,
    )
