"""Limits and units of NVIDIA's architectures, by compute capability, and a typical GPU of each as a
Target.

Facts are from the tables of NVIDIA's CUDA programming guide (limits of a compute capability) and
data sheets (units, cache, bandwidth). A GPU that is there says most of it itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tunegrad.errors import DeviceError
from tunegrad.ir.target import MatrixUnit, Rates, Target

_WARP, _ITEMS, _REGISTERS = 32, 1024, 255
_LAUNCH_S = 3e-6
_EXPENSIVE = 8
_CACHE = 2.0
"""Ratio of the last cache's bandwidth to the memory's: not measured yet."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """Of one compute capability and unit: f32 multiply-adds a cycle, those of halves by mma.sync,
    KiB that one group may share, KiB that all groups share, work-items.
    """

    fmas: int
    halves: int
    shared: int
    unit_shared: int
    items: int


_LIMITS = {
    (7, 5): _Limits(64, 512, 64, 64, 1024), (8, 0): _Limits(64, 1024, 163, 164, 2048),
    (8, 6): _Limits(128, 512, 99, 100, 1536), (8, 7): _Limits(128, 1024, 163, 164, 1536),
    (8, 9): _Limits(128, 512, 99, 100, 1536), (9, 0): _Limits(128, 1024, 227, 228, 2048),
    (10, 0): _Limits(128, 1024, 227, 228, 2048), (10, 3): _Limits(128, 1024, 227, 228, 2048),
    (11, 0): _Limits(128, 1024, 227, 228, 1536), (12, 0): _Limits(128, 512, 99, 100, 1536),
    (12, 1): _Limits(128, 512, 99, 100, 1536),
}  # fmt: skip
"""Halves: dense peaks of data sheets. On 9.0 mma.sync reaches 63 % of 2048 (arXiv 2501.12084), and
what it has is taken for 10.0 and later.
"""
_UNIT_REGISTERS = 64 << 10
"""Registers of a unit, of every capability."""
_L2_BYTES, _L2_UNKNOWN = {(8, 0): 32, (8, 6): 12, (8, 9): 12, (12, 0): 12, (12, 1): 12}, 24
"""Bytes that a unit gets of the last cache in a cycle where all units ask, about; its port takes
64. The A100's gives 5,120 bytes a cycle (NVIDIA's white paper), two thirds of which are reckoned
with; 12 is what NVIDIA's forecaster of products knows of the others
(docs/notebook/gpu-defaults.md).
"""
_DOUBLES = {(8, 0): 64, (9, 0): 128, (10, 0): 128}
"""Multiply-adds of f64 by mma.sync; elsewhere they are emulated, one or two a cycle."""
_OWN = frozenset(((9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)))
"""Capabilities with instructions that no later one has: code for these alone ends in ``a``."""


@dataclass(frozen=True, slots=True)
class Chip:
    """The figures in which GPUs of one compute capability differ: units, bytes of the last cache,
    cycles and bytes of memory a second.
    """

    units: int
    cache_bytes: int
    hertz: float
    memory_bytes_per_s: float


def _units(capability: tuple[int, int]) -> tuple[MatrixUnit, ...]:
    """Products that a GPU computes by one instruction, mma.sync: 7.5 has those of halves alone."""
    halves, doubles = _LIMITS[capability].halves, _DOUBLES.get(capability, 2)
    if capability < (8, 0):
        return (MatrixUnit((16, 8, 8), ("f16", "f32"), 2, halves),)
    return (
        MatrixUnit((16, 8, 16), ("f16", "f32"), 2, halves),
        MatrixUnit((16, 8, 16), ("bf16", "f32"), 2, halves),
        MatrixUnit((16, 8, 8), ("tf32", "f32"), 1, halves // 2),
        MatrixUnit((16, 8, 32), ("i8", "i32"), 4, 2 * halves),
        MatrixUnit((8, 8, 4), ("f64", "f64"), 1, doubles),
    )


_TYPICAL = {
    "sm_75": Chip(40, 4 << 20, 1.59e9, 3.2e11),
    "sm_80": Chip(108, 40 << 20, 1.41e9, 1.55e12),
    "sm_86": Chip(72, 6 << 20, 1.695e9, 6e11),
    "sm_89": Chip(142, 96 << 20, 2.52e9, 8.64e11),
    "sm_90a": Chip(132, 50 << 20, 1.83e9, 3.35e12),
    "sm_100a": Chip(148, 126 << 20, 1.85e9, 8e12),
    "sm_120a": Chip(188, 128 << 20, 2.617e9, 1.79e12),
}
"""T4, A100 40 GB, A10, L40S, H100 SXM, B200 and RTX PRO 6000 Blackwell. GeForce cards add products
of halves in f32 at half the rate of these.
"""


def architecture(capability: tuple[int, int]) -> str:
    """Name of a capability for the compiler: ``sm_89``, ``sm_90a``. One that is not known here runs
    code for the latest known one of its family before it (12.2: ``sm_121``); without such, its own
    name is used.
    """
    family = [c for c in _LIMITS if c[0] == capability[0] and c <= capability]
    major, minor = max(family, default=capability)
    return f"sm_{major}{minor}{'a' if capability in _OWN else ''}"


def cuda_target(arch: str, chip: Chip) -> Target:
    """The target of an architecture, with what a chip of it is reckoned to do.

    Raises DeviceError for an architecture that is not known.
    """
    limits = _limits(arch)
    flops, units = 2.0 * limits.fmas * chip.hertz, _units(capability_of(arch))
    rates = Rates(
        flops=(("f32", flops), *((u.name, 2.0 * u.fmas * chip.hertz) for u in units)),
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
        fmas_per_cycle=limits.fmas // 4,  # of vectors of 16 bytes
        units=units,
        copies_ahead=capability_of(arch) >= (8, 0),
        loads_matrices=capability_of(arch) >= (7, 5),
        l2_bytes_per_cycle=_L2_BYTES.get(capability_of(arch), _L2_UNKNOWN),
        unit_items=limits.items,
        unit_registers=_UNIT_REGISTERS,
        unit_shared_bytes=limits.unit_shared << 10,
        memory_bytes_per_cycle=chip.memory_bytes_per_s / chip.hertz,
        view_bytes=16,  # the widest load of an item
        rates=rates,
    )


def typical(arch: str) -> Target:
    """A target of an architecture, for where no GPU is. Raises DeviceError for an unknown one."""
    chip = _TYPICAL.get(arch)
    if chip is None:
        valid = ", ".join(_TYPICAL)
        raise DeviceError(f"architecture {arch!r} is not known here; valid: {valid}")
    return cuda_target(arch, chip)


_MOST_GROUPS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24, (11, 0): 24, (12, 0): 24,
                (12, 1): 24}  # fmt: skip
"""Groups that a unit runs at a time at most, where it is not 32."""
_REGISTERS_TOGETHER, _SHARED_EXTRA = 256, 1 << 10
"""Registers that a warp gets at once, and shared memory that the system keeps of each group."""


def resident_groups(target: Target, items: int, registers: int, shared_bytes: int) -> int:
    """Groups that a unit runs at a time, as the occupancy tables of NVIDIA's programming guide say;
    0 where a group does not fit, or the target tells too little.
    """
    if not (target.unit_items and target.unit_registers and target.unit_shared_bytes):
        return 0
    warps = -(-items // target.warp)
    capability = capability_of(target.arch)
    taken = -(-max(1, registers) * target.warp // _REGISTERS_TOGETHER) * _REGISTERS_TOGETHER
    extra = _SHARED_EXTRA if capability >= (8, 0) else 0
    return min(
        _MOST_GROUPS.get(capability, 32),
        target.unit_items // (warps * target.warp),
        target.unit_registers // (warps * taken),
        target.unit_shared_bytes // max(1, shared_bytes + extra),
    )


def capability_of(arch: str) -> tuple[int, int]:
    """The compute capability that an architecture is named for; (0, 0) for what is none."""
    found = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _limits(arch: str) -> _Limits:
    limits = _LIMITS.get(capability_of(arch))
    if limits is None:
        valid = ", ".join(architecture(c) for c in _LIMITS)
        raise DeviceError(
            f"architecture {arch!r} is not known to this version of tunegrad; valid: {valid}; "
            "a later version may know it; --device opencl runs on any GPU that has OpenCL"
        )
    return limits
