"""CUDA C++ to a cubin by NVRTC, which needs no GPU: a library in a wheel, called by NVIDIA's
bindings.

ptxas tells in the compiler's log what a kernel takes: registers, bytes that are spilled, bytes that
a block shares.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.cuda.architectures import capability_of, resident_groups
from tunegrad.devices.device import Inspection
from tunegrad.devices.job import Geometry, Lowered
from tunegrad.devices.lowered import with_source
from tunegrad.devices.remote import lowered_c
from tunegrad.errors import CompileFailure, DeviceError, OutOfResources
from tunegrad.ir.pipelines import expand_pipelines
from tunegrad.ir.program import Program, carried_registers
from tunegrad.ir.target import Target
from tunegrad.render.c_family import launched_bytes
from tunegrad.render.cuda import CUDA, WRAPPERS, render_cuda
from tunegrad.reports import KernelResources
from tunegrad.trial import Properties

# ---- lowering
#
# A program as CUDA C++ and all that a launch needs beside it.


def lower_cuda(program: Program, target: Target) -> Lowered:
    """Raises OutOfResources for a program that needs more than a group of the target has, or an
    instruction that it has not.
    """
    if program.local > target.max_local:
        raise OutOfResources(
            f"program {program.name}: {program.local} work-items, groups of {target.arch} have up "
            f"to {target.max_local}"
        )
    allocs = expand_pipelines(program).allocs
    shared = sum(a.size * a.dtype.itemsize for a in allocs if a.space == "shared")
    if shared > target.shared_bytes:
        raise OutOfResources(
            f"program {program.name}: {shared} bytes shared, {target.arch} has "
            f"{target.shared_bytes}"
        )
    carried, most = carried_registers(program), _registers(program, target)
    if most and carried > most:
        raise OutOfResources(
            f"program {program.name}: a loop carries {carried} registers, an item of "
            f"{program.local} has up to {most}"
        )
    text = render_cuda(program)
    _check_wrappers(program.name, text, target)
    return lowered_c(program, text, launched_bytes(program, CUDA))


def _check_wrappers(name: str, text: str, target: Target) -> None:
    """Raises OutOfResources where a text has an instruction that came with a later architecture."""
    major, minor = capability_of(target.arch)
    if not major:  # the CPU has twins of all
        return
    for w in WRAPPERS.values():
        if w.least_sm > 10 * major + minor and f" {w.name}(" in text:
            raise OutOfResources(
                f"program {name}: {w.name} needs sm_{w.least_sm}, the target is {target.arch}"
            )


def _registers(program: Program, target: Target) -> int:
    """Registers that an item may have in a group of so many; 0 where the target does not say."""
    items = -(-program.local // max(1, target.warp)) * max(1, target.warp)
    if not target.unit_registers:
        return target.regs_per_item
    return min(target.regs_per_item, target.unit_registers // items)


# ---- cubins
#
# Facts of a kernel, read from the bytes of its cubin: registers, stack, shared memory, and how
# often each kind of instruction stands in it (kinds that do not are left out).
#
# A cubin is an ELF object. Registers and stack are attributes in ``.nv.info`` (before 9.0 registers
# are also in the info of the code's section), shared memory is the size of a section. From compute
# capability 7.0 on an instruction has 16 bytes: nine bits say what it does, the four from the
# twelfth on whether. NVIDIA publishes none of it; ``tests/device/test_cuda_compiles.py`` holds it
# against ptxas' log and NVIDIA's disassembler.


_ELF = b"\x7fELF\x02\x01"

_SECTION = struct.Struct("<IIQQQQIIQQ")

_WRITE = 1
"""The flag of a section."""

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


# ---- nvrtc


_OPTIONS = ("--std=c++17", "--fmad=false", "--diag-suppress=177", "--ptxas-options=-v")

_INSTALL = "pip install 'tunegrad[cuda]'"


@dataclass(frozen=True, slots=True)
class Built:
    """An image, and what the compiler said of it: registers an item, bytes of the stack and of
    spills an item, bytes that a block shares. ``warnings`` are in its own words, '' for none.
    """

    image: bytes
    registers: int
    stack_bytes: int
    spilled_bytes: int
    shared_bytes: int
    warnings: str = ""


def version() -> str:
    """NVRTC and the options that are always given. Raises DeviceError where it is missing."""
    major, minor = _version()
    return f"nvrtc {major}.{minor} {' '.join(_OPTIONS[:2])}"


def check_driver(number: int) -> None:
    """Raises DeviceError where a driver, of CUDA ``number`` (13020 for 13.2), is older than what
    NVRTC makes cubins for: its own major version and later ones.
    """
    (major, minor), known = _version(), number // 1000
    if known < major:
        raise DeviceError(
            f"device cuda: this driver is for CUDA {known}.{number % 1000 // 10}, and NVRTC "
            f"{major}.{minor} makes code for {major}.0 and later; update the driver, or "
            f"pip install 'cuda-bindings<{known + 1}' 'nvidia-cuda-nvrtc-cu{known}'"
        )


def build(text: str, entry: str, arch: str) -> Built:
    """The cubin of a text for an architecture.

    Raises CompileFailure in the compiler's words, DeviceError where NVRTC is missing or does not
    know the architecture.
    """
    api = _nvrtc()
    _check_architecture(arch)
    program = _checked(api, api.nvrtcCreateProgram(text.encode(), b"program.cu", 0, [], []))
    try:
        options = [o.encode() for o in (f"--gpu-architecture={arch}", *_OPTIONS)]
        (code,) = api.nvrtcCompileProgram(program, len(options), options)
        log = _read(api, program, api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog).decode()
        if code != api.nvrtcResult.NVRTC_SUCCESS:
            words = f"program {entry} for {arch}: {log.strip()}"
            raise CompileFailure(with_source(words, text))
        image = _read(api, program, api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN, whole=True)
    finally:
        api.nvrtcDestroyProgram(program)
    return _told(image, log)


def inspected(lowered: Lowered, target: Target) -> Inspection:
    """Resources that a kernel takes by ptxas, and how many groups a unit runs for that.

    Raises as ``build`` does.
    """
    built = build(lowered.text, lowered.entry, target.arch)
    shared = built.shared_bytes + lowered.geometry.shared_bytes
    groups = resident_groups(target, lowered.geometry.items, built.registers, shared)
    occupied = groups * lowered.geometry.items / target.unit_items if target.unit_items else 0.0
    return Inspection(
        resources=KernelResources(built.registers, built.spilled_bytes, shared, groups, occupied)
    )


def _told(image: bytes, log: str) -> Built:
    def number(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    spills = number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads")
    warned = [line for line in log.splitlines() if "warning" in line.lower()]
    return Built(
        image,
        registers=number(r"Used (\d+) registers"),
        stack_bytes=number(r"(\d+) bytes stack frame"),
        spilled_bytes=spills,
        shared_bytes=number(r"(\d+) bytes smem"),
        warnings="\n".join(warned),
    )


@functools.cache
def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:  # the package is missing, or it does not find the library
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DeviceError(f"compiling for CUDA needs NVRTC: {_INSTALL} ({why})") from error
    return nvrtc


@functools.cache
def _version() -> tuple[int, int]:
    api = _nvrtc()
    major, minor = _checked(api, api.nvrtcVersion())
    return int(major), int(minor)


@functools.cache
def _check_architecture(arch: str) -> None:
    api = _nvrtc()
    known = [int(a) for a in _checked(api, api.nvrtcGetSupportedArchs())]
    digits = re.sub(r"\D", "", arch)
    if not digits or int(digits) not in known:
        valid = ", ".join(f"sm_{a}" for a in known)
        major, minor = _version()
        raise DeviceError(
            f"NVRTC {major}.{minor} does not compile for {arch}; valid: {valid}; "
            "another version of nvidia-cuda-nvrtc may"
        )


def _checked(api: Any, answer: tuple[Any, ...]) -> Any:
    code, *rest = answer
    if code != api.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceError(f"NVRTC: {code.name}")
    return rest[0] if len(rest) == 1 else rest


def _read(api: Any, program: Any, size: Any, read: Any, whole: bool = False) -> bytes:
    """Bytes that NVRTC keeps of a program; a text's last zero byte goes unless ``whole``."""
    data = b" " * int(_checked(api, size(program)))
    _checked(api, read(program, data))
    return data if whole else data.rstrip(b"\0")


# ---- as a device compiles
#
# Compilation of programs to cubins: NVRTC's half of a CUDA device, which needs no GPU.


@dataclass(frozen=True, slots=True)
class NvrtcDevice:
    """The base of devices whose code NVRTC compiles for ``target``; see ``devices.Device``."""

    target: Target

    def compiler(self) -> str:
        return version()

    def lower(self, program: Program) -> Lowered:
        return lower_cuda(program, self.target)

    def compile(self, lowered: Lowered, killable: bool = False) -> bytes:
        image = build(lowered.text, lowered.entry, self.target.arch).image
        for name, row in _sections(image).items():
            if name.startswith(".nv.global") and row[2] & _WRITE:
                raise CompileFailure(
                    f"illegal: section {name} has {row[5]} bytes that can be written: a kernel "
                    "keeps nothing between its launches"
                )
        return image

    def inspect(self, lowered: Lowered) -> Inspection | None:
        return inspected(lowered, self.target)

    def facts(self, lowered: Lowered, image: bytes) -> Properties:
        return cubin_facts(image, lowered.geometry, self.target)
