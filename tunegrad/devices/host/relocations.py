"""Relocations that LLVM emits for kernels: how one place in a linked object is patched towards a
symbol.

    kind  a number of the machine's ELF supplement
          --> Rule: how the symbol is reached, and what is written
    stub  code beside the object that jumps through a slot of its table of addresses:
          a call reaches any address

Sources: System V ABI, AMD64 supplement, table 4.9; ELF for the Arm 64-bit Architecture, tables 5 to
10. Both machines use the small code model: an object's parts lie within 2 GiB of one another, what
lies elsewhere is reached by a slot.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tunegrad.errors import CompileFailure

__all__ = ["MACHINES", "SLOT_BYTES", "STUB_BYTES", "Machine", "Rule"]

STUB_BYTES = 16
SLOT_BYTES = 8

Patch = Callable[[memoryview, int, int, int], None]
"""(bytes of the section, offset in them, value, address of the place): writes one field.

Raises CompileFailure where the value does not fit.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """``width`` bytes are patched.

    ``by``: towards the symbol, its stub where it is external, or its slot.
    """

    name: str
    width: int
    by: Literal["symbol", "stub", "slot"]
    patch: Patch


@dataclass(frozen=True, slots=True)
class Machine:
    """``number`` is ELF's; ``write_stub(bytes, address of the stub, address of its slot)``."""

    name: str
    number: int
    rules: Mapping[int, Rule]
    write_stub: Callable[[memoryview, int, int], None]


def _fit(distance: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= distance < 1 << (bits - 1):
        raise CompileFailure(f"a distance of {distance} bytes does not fit a field of {bits} bits")
    return distance


def _absolute64(data: memoryview, at: int, value: int, _: int) -> None:
    struct.pack_into("<Q", data, at, value % (1 << 64))


def _relative64(data: memoryview, at: int, value: int, place: int) -> None:
    struct.pack_into("<q", data, at, _fit(value - place, 64))


def _relative32(data: memoryview, at: int, value: int, place: int) -> None:
    struct.pack_into("<i", data, at, _fit(value - place, 32))


def _nothing(_data: memoryview, _at: int, _value: int, _place: int) -> None:
    """R_NONE."""


def _stub_x86(data: memoryview, stub: int, slot: int) -> None:
    data[:2] = b"\xff\x25"  # jmp *slot(%rip), 6 bytes
    _relative32(data, 2, slot, stub + 6)


def _set_bits(data: memoryview, at: int, mask: int, bits: int) -> None:
    """Put ``bits`` where ``mask`` is in the instruction at ``at``."""
    (word,) = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at, (word & ~mask) | bits)


def _branch26(data: memoryview, at: int, value: int, place: int) -> None:
    distance = _fit(value - place, 28)
    if distance % 4:
        raise CompileFailure(f"a branch over {distance} bytes: not a multiple of 4")
    _set_bits(data, at, 0x03FFFFFF, distance // 4 % (1 << 26))


def _page21(data: memoryview, at: int, value: int, place: int) -> None:
    pages = _fit((value & ~0xFFF) - (place & ~0xFFF), 33) // 4096 % (1 << 21)
    _set_bits(data, at, 0x60FFFFE0, (pages & 3) << 29 | pages >> 2 << 5)


def _low12(shift: int) -> Patch:
    """The lowest 12 bits of an address, in units of ``1 << shift`` bytes."""

    def patch(data: memoryview, at: int, value: int, _: int) -> None:
        low = value & 0xFFF
        if low % (1 << shift):
            raise CompileFailure(
                f"address {value:#x}: not a multiple of {1 << shift}, as the access asks"
            )
        _set_bits(data, at, 0x003FFC00, low >> shift << 10)

    return patch


def _stub_arm(data: memoryview, stub: int, slot: int) -> None:
    struct.pack_into(
        "<III", data, 0, 0x90000010, 0xF9400210, 0xD61F0200
    )  # adrp x16; ldr x16, [x16]; br x16
    _page21(data, 0, slot, stub)
    _low12(3)(data, 4, slot, stub + 4)


_X86_64 = Machine("x86_64", 62, {
    0: Rule("R_X86_64_NONE", 0, "symbol", _nothing),
    1: Rule("R_X86_64_64", 8, "symbol", _absolute64),
    2: Rule("R_X86_64_PC32", 4, "symbol", _relative32),
    4: Rule("R_X86_64_PLT32", 4, "stub", _relative32),
    9: Rule("R_X86_64_GOTPCREL", 4, "slot", _relative32),
    24: Rule("R_X86_64_PC64", 8, "symbol", _relative64),
    41: Rule("R_X86_64_GOTPCRELX", 4, "slot", _relative32),
    42: Rule("R_X86_64_REX_GOTPCRELX", 4, "slot", _relative32),
}, _stub_x86)  # fmt: skip

_AARCH64 = Machine("aarch64", 183, {
    0: Rule("R_AARCH64_NONE", 0, "symbol", _nothing),
    257: Rule("R_AARCH64_ABS64", 8, "symbol", _absolute64),
    260: Rule("R_AARCH64_PREL64", 8, "symbol", _relative64),
    261: Rule("R_AARCH64_PREL32", 4, "symbol", _relative32),
    275: Rule("R_AARCH64_ADR_PREL_PG_HI21", 4, "symbol", _page21),
    277: Rule("R_AARCH64_ADD_ABS_LO12_NC", 4, "symbol", _low12(0)),
    278: Rule("R_AARCH64_LDST8_ABS_LO12_NC", 4, "symbol", _low12(0)),
    282: Rule("R_AARCH64_JUMP26", 4, "stub", _branch26),
    283: Rule("R_AARCH64_CALL26", 4, "stub", _branch26),
    284: Rule("R_AARCH64_LDST16_ABS_LO12_NC", 4, "symbol", _low12(1)),
    285: Rule("R_AARCH64_LDST32_ABS_LO12_NC", 4, "symbol", _low12(2)),
    286: Rule("R_AARCH64_LDST64_ABS_LO12_NC", 4, "symbol", _low12(3)),
    299: Rule("R_AARCH64_LDST128_ABS_LO12_NC", 4, "symbol", _low12(4)),
    311: Rule("R_AARCH64_ADR_GOT_PAGE", 4, "slot", _page21),
    312: Rule("R_AARCH64_LD64_GOT_LO12_NC", 4, "slot", _low12(3)),
}, _stub_arm)  # fmt: skip

MACHINES: Mapping[str, Machine] = {"x86_64": _X86_64, "AMD64": _X86_64, "aarch64": _AARCH64}
"""By ``platform.machine()``."""
