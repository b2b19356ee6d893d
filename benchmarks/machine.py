"""The process and the machine: settings that must stand before any peer is imported, and what to print about them."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

__all__ = ["cores", "describe", "prepare"]

_PACKAGES = ("tunegrad", "llvmlite", "numpy", "torch", "onnxruntime", "openvino", "onnx")
_M_MMAP_MAX, _M_TRIM_THRESHOLD = -4, -1  # malloc.h of glibc


def cores() -> frozenset[int]:
    """The cores this process may use."""
    return frozenset(os.sched_getaffinity(0))


def prepare(threads: int) -> None:
    """Set the thread counts of OpenMP and MKL, and make glibc keep freed memory. Call before importing any peer.

    PyTorch allocates its results on every call. With glibc's defaults, large ones are fresh pages each time, and the
    page faults (1.6 us a page) would be timed instead of the operation. Kept memory serves every contestant alike.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def describe(command: Sequence[str], threads: int) -> dict[str, object]:
    """What a reader of the figures must know: the CPU, cores, system, versions and the command."""
    return {
        "cpu": _cpu_name(),
        "cores": len(cores()),
        "threads": threads,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
        "command": " ".join(command),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _cpu_name() -> str:
    """The CPU as Linux names it, with family and model, since virtual machines often hide the rest of the name."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().split("\n\n")[0].splitlines() if path.exists() else []
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = fields.get("model name", platform.processor())
    kind = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
    wide = "avx512f" if "avx512f" in fields.get("flags", "").split() else "no avx512f"
    return f"{name}, {kind}, {wide}"
