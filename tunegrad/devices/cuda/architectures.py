"""What NVIDIA's architectures have, by compute capability, and a typical GPU of each as a Target.

Facts are from the tables of NVIDIA's CUDA programming guide (limits of a compute capability) and
data sheets (units, cache, bandwidth). A GPU that is there says most of it itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunegrad.errors import DeviceError
from tunegrad.ir.target import MatrixUnit, Rates, Target

__all__ = ["Chip", "architecture", "cuda_target", "typical"]

_WARP, _ITEMS, _REGISTERS = 32, 1024, 255
_LAUNCH_S = 3e-6
_EXPENSIVE = 8
_CACHE = 2.0
"""How many times the bandwidth of memory the last cache has: not measured yet."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """Of one compute capability: f32 multiply-adds a cycle and unit, and KiB that one group may
    share.
    """

    fmas: int
    shared: int


_LIMITS = {
    (7, 5): _Limits(64, 64), (8, 0): _Limits(64, 163), (8, 6): _Limits(128, 99),
    (8, 7): _Limits(128, 163), (8, 9): _Limits(128, 99), (9, 0): _Limits(128, 227),
    (10, 0): _Limits(128, 227), (10, 3): _Limits(128, 227), (11, 0): _Limits(128, 227),
    (12, 0): _Limits(128, 99), (12, 1): _Limits(128, 99),
}  # fmt: skip
_OWN = frozenset(((9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)))
"""Capabilities with instructions that no later one has: code for these alone ends in ``a``."""


@dataclass(frozen=True, slots=True)
class Chip:
    """What tells GPUs of one compute capability apart: units, bytes of the last cache, cycles and
    bytes of memory a second.
    """

    units: int
    cache_bytes: int
    hertz: float
    memory_bytes_per_s: float


_UNITS = (
    MatrixUnit((16, 8, 16), ("f16", "f32"), packed=2),
    MatrixUnit((16, 8, 16), ("bf16", "f32"), packed=2),
    MatrixUnit((8, 8, 4), ("f64", "f64")),
)
"""What every GPU since compute capability 8.0 multiplies by one instruction, mma.sync."""

_TYPICAL = {
    "sm_80": Chip(108, 40 << 20, 1.41e9, 1.55e12),
    "sm_89": Chip(142, 96 << 20, 2.52e9, 8.64e11),
    "sm_90a": Chip(132, 50 << 20, 1.83e9, 3.35e12),
}
"""A100 40 GB, L40S and H100 SXM."""


def architecture(capability: tuple[int, int]) -> str:
    """What the compiler calls it: ``sm_89``, ``sm_90a``. A later one than is known runs as the
    latest known one of its family, else as itself.
    """
    major, minor = capability
    return f"sm_{major}{minor}{'a' if capability in _OWN else ''}"


def cuda_target(arch: str, chip: Chip) -> Target:
    """The target of an architecture, with what a chip of it is reckoned to do.

    Raises DeviceError for an architecture that is not known.
    """
    limits = _limits(arch)
    flops = 2.0 * limits.fmas * chip.hertz
    rates = Rates(
        flops=(("f32", flops),),
        cache_bytes_per_s=_CACHE * chip.memory_bytes_per_s,
        memory_bytes_per_s=chip.memory_bytes_per_s,
        launch_s=_LAUNCH_S,
        folds_per_s=flops / 2,
        expensive_flops=_EXPENSIVE,
    )
    return Target(
        name="cuda",
        kind="gpu",
        arch=arch,
        vector_bytes=16,
        registers=64,
        threads=chip.units,
        l2_bytes=chip.cache_bytes,
        l3_bytes=chip.cache_bytes,
        shared_bytes=limits.shared << 10,
        max_local=_ITEMS,
        warp=_WARP,
        regs_per_item=_REGISTERS,
        units=_UNITS if _capability(arch) >= (8, 0) else (),
        copies_ahead=_capability(arch) >= (8, 0),
        loads_matrices=_capability(arch) >= (7, 5),
        rates=rates,
    )


def typical(arch: str) -> Target:
    """A target of an architecture, for where no GPU is. Raises DeviceError for an unknown one."""
    chip = _TYPICAL.get(arch)
    if chip is None:
        valid = ", ".join(_TYPICAL)
        raise DeviceError(f"architecture {arch!r} is not known here; valid: {valid}")
    return cuda_target(arch, chip)


def _capability(arch: str) -> tuple[int, int]:
    """(0, 0) for what is no architecture."""
    found = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _limits(arch: str) -> _Limits:
    limits = _LIMITS.get(_capability(arch))
    if limits is None:
        valid = ", ".join(architecture(c) for c in _LIMITS)
        raise DeviceError(f"architecture {arch!r} is not known to this version; valid: {valid}")
    return limits
