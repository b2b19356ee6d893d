"""Facts of a kernel, read from the bytes of its cubin: registers, stack, shared memory, and how
often each kind of instruction stands in it (kinds that do not are left out).

A cubin is an ELF object. Registers and stack are attributes in ``.nv.info`` (before 9.0 registers
are also in the info of the code's section), shared memory is the size of a section. From compute
capability 7.0 on an instruction has 16 bytes: nine bits say what it does, the four from the twelfth
on whether. NVIDIA publishes none of it; ``tests/device/test_cuda_compiles.py`` holds it against
ptxas' log and NVIDIA's disassembler.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.cuda.architectures import resident_groups
from tunegrad.devices.job import Geometry
from tunegrad.errors import CompileFailure
from tunegrad.ir.target import Target
from tunegrad.trial import Properties

__all__ = ["KINDS", "cubin_facts"]

_ELF = b"\x7fELF\x02\x01"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOP, _WORDS = 0x118, 2
_NEVER = 0xF
"""The condition of an instruction that stands there and never runs: not true. Those of
the uniform registers have another condition there.
"""
KINDS: Mapping[str, tuple[int, ...]] = {
    "async_copies": (0x1AE,),  # LDGSTS
    "barriers": (0x11D,),  # BAR
    "fmas": (0x023, 0x02B),  # FFMA, DFMA
    "global_loads": (0x181,),  # LDG
    "global_stores": (0x186,),  # STG
    "matrix_loads": (0x03B,),  # LDSM
    "matrix_products": (0x03C, 0x037, 0x03F),  # HMMA, IMMA, DMMA
    "shared_loads": (0x184,),  # LDS
    "shared_stores": (0x188,),  # STS
    "shuffles": (0x189,),  # SHFL
    "special": (0x108,),  # MUFU: exponentials, reciprocals, roots
    "spills": (0x183, 0x187),  # LDL, STL: of the stack
}
"""Kinds of instructions by their name in a trial's facts, and their numbers."""

_KNOWN = [number for numbers in KINDS.values() for number in numbers]

_REGISTERS, _FRAME = 0x2F, 0x11
"""Attributes of a function in ``.nv.info``, both as (symbol, value)."""
_PLAIN, _SIZED = (1, 2, 3), 4
_RESERVED, _RESERVED_BYTES = ".nv.shared.reserved.0", 1 << 10
"""From 9.0 on the system's own part is in the size of what a group shares."""


def cubin_facts(image: bytes, geometry: Geometry, target: Target) -> Properties:
    """Facts of the one kernel of a cubin, with its occupancy on a target.

    Raises CompileFailure for what is no cubin with one kernel.
    """
    try:
        sections = _sections(image)
        (name,) = [n for n in sections if n.startswith(".text.")]
        told = _attributes(_content(image, sections.get(".nv.info")))
        words = np.frombuffer(_content(image, sections[name]), "<u8")[::_WORDS]
    except (struct.error, OverflowError, ValueError, UnicodeDecodeError) as error:
        raise CompileFailure(f"cubin of {len(image)} bytes: damaged ({error})") from error
    counts = _counts(words)
    counts[_KNOWN] -= _counts(words[(words >> 12) & 0xF == _NEVER])[_KNOWN]
    shared = sections.get(f".nv.shared.{name.removeprefix('.text.')}")
    static = 0 if shared is None else shared[5]
    if _RESERVED in sections:
        static = max(0, static - _RESERVED_BYTES)
    registers = told.get(_REGISTERS) or sections[name][7] >> 24
    shared_bytes = static + geometry.shared_bytes
    groups = resident_groups(target, geometry.items, registers, shared_bytes)
    found: dict[str, float] = {
        "instructions": float(counts.sum() - counts[_NOP]),
        "occupancy": groups * geometry.items / target.unit_items if target.unit_items else 0.0,
        "registers": float(registers),
        "shared_bytes": float(shared_bytes),
        "stack_bytes": float(told.get(_FRAME, 0)),
        "unit_groups": float(groups),
    }
    for kind, numbers in KINDS.items():
        count = float(counts[list(numbers)].sum())
        if count or kind == "spills":
            found[kind] = count
    return tuple(sorted(found.items()))


def _counts(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Number of times that each number stands in instructions."""
    found: NDArray[np.int64] = np.bincount((words & 0x1FF).astype(np.int64), minlength=0x200)
    return found


def _sections(image: bytes) -> dict[str, tuple[int, ...]]:
    """Rows of the section table by name."""
    if image[:6] != _ELF:
        raise ValueError("no ELF of 64 bits")
    (start,) = struct.unpack_from("<Q", image, 40)
    count, names = struct.unpack_from("<HH", image, 60)
    rows = [_SECTION.unpack_from(image, start + _SECTION.size * i) for i in range(count)]
    if names >= count:
        raise ValueError("no table of names")
    texts = _content(image, rows[names])
    return {texts[row[0] :].split(b"\0", 1)[0].decode(): row for row in rows}


def _content(image: bytes, row: tuple[Any, ...] | None) -> bytes:
    if row is None:
        return b""
    offset, size = row[4], row[5]
    if offset + size > len(image):
        raise ValueError(f"a section ends at {offset + size}")
    return image[offset : offset + size]


def _attributes(info: bytes) -> dict[int, int]:
    """The largest value of each attribute that is a pair of a symbol and a value."""
    found: dict[int, int] = {}
    at = 0
    while at + 4 <= len(info):
        form, kind, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _SIZED:
            if size == 8:
                found[kind] = max(found.get(kind, 0), struct.unpack_from("<II", info, at)[1])
            at += size
        elif form not in _PLAIN:
            break
    return found
