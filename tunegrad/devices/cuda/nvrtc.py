"""CUDA C++ to a cubin by NVRTC, which needs no GPU: a library in a wheel, called by NVIDIA's
bindings.

ptxas tells in the compiler's log what a kernel takes: registers, bytes that are spilled, bytes that
a block shares.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from tunegrad.devices.cuda.architectures import resident_groups
from tunegrad.devices.device import Inspection
from tunegrad.devices.job import Lowered
from tunegrad.devices.lowered import with_source
from tunegrad.errors import CompileFailure, DeviceError
from tunegrad.ir.target import Target
from tunegrad.reports import KernelResources

__all__ = ["Built", "build", "check_driver", "inspected", "version"]

_MAX_MESSAGE = 4000
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
            words = f"program {entry} for {arch}: {log.strip()[:_MAX_MESSAGE]}"
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
    """Bytes that NVRTC keeps of a program; a text ends with a zero byte, which goes unless
    ``whole``.
    """
    data = b" " * int(_checked(api, size(program)))
    _checked(api, read(program, data))
    return data if whole else data.rstrip(b"\0")
