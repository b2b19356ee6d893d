"""Tile registers of x86 processors (AMX): what they multiply, and Linux's leave to use them.

    cpuid leaf 7: EDX bit 24 (tiles), bit 22 (products of bf16), bit 25 (of bytes)
                                                                  -->  LLVM's features of the host
    arch_prctl(ARCH_REQ_XCOMP_PERM, 18)                           -->  this process may use them

What a thread keeps in tiles is 8 KiB more to save, so Linux has a process ask before its first
tile instruction, which is illegal otherwise; all of its threads may use them from then on. A
process that is started anew asks anew. The call is one of those that a confined process may make.
See the kernel's ``Documentation/arch/x86/xstate.rst``.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterable

from tunegrad.devices.processes.syscalls import number
from tunegrad.errors import DeviceError
from tunegrad.ir.target import Target, TileUnit

__all__ = ["AMX_BF16", "AMX_INT8", "ask_for_tiles", "require_tiles", "tile_units", "without_tiles"]

AMX_BF16 = TileUnit((16, 16, 16), ("bf16x2", "f32"), registers=8, fmas=512)
"""TDPBF16PS: 16 x 16 results of 16 pairs in 16 cycles, 1024 operations in each, by Intel's figures
for Sapphire Rapids: declared, not measured.
"""

AMX_INT8 = tuple(
    TileUnit((16, 16, 16), (a, "i32"), registers=8, fmas=1024, right=b)
    for a in ("u8x4", "i8x4")
    for b in ("i8x4", "u8x4")
)
"""TDPBUSD, TDPBUUD, TDPBSSD, TDPBSUD: 16 x 16 results of 64 bytes in 16 cycles, declared too."""

_REQUEST, _TILE_DATA = 0x1023, 18


def ask_for_tiles() -> bool:
    """Ask the kernel for tile registers; True when this process may use them from now on."""
    call = number("x86_64", "arch_prctl") if platform.machine() == "x86_64" else None
    if call is None:
        return False
    libc = ctypes.CDLL(None)
    libc.syscall.restype = ctypes.c_long
    asked = (ctypes.c_long(call), ctypes.c_ulong(_REQUEST), ctypes.c_ulong(_TILE_DATA))
    return bool(libc.syscall(*asked) == 0)


def require_tiles(target: Target, ask: Callable[[], bool] = ask_for_tiles) -> None:
    """Ask for what code of ``target`` uses. Raises DeviceError where the system refuses it."""
    if target.amx and not ask():
        raise DeviceError(
            f"device {target.name}: Linux refuses tile registers (AMX) to this process; the "
            "target of this machine, asked for anew, has none then"
        )


def tile_units(features: Iterable[str]) -> tuple[TileUnit, ...]:
    """The shapes that a processor with these features multiplies in tile registers."""
    have = set(features)
    if "+amx-tile" not in have:
        return ()
    pairs = (AMX_BF16,) if "+amx-bf16" in have else ()
    return (*pairs, *AMX_INT8) if "+amx-int8" in have else pairs


def without_tiles(features: Iterable[str]) -> tuple[str, ...]:
    """The features of a processor whose tile registers this process may not use."""
    return tuple(f"-{f[1:]}" if f.startswith("+amx-") else f for f in features)
