"""LLVM's answers about this machine and the objects of our own runtime, kept on disk: a process
whose kernels were compiled before does not load LLVM.

    LLVM's library as a file, the processor as Linux describes it  -->  version, CPU name, features
    version, CPU, features, text                                   -->  object code of the text

Both stand in the cache of compiled objects. What is not there LLVM is asked for.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tunegrad.config import cache_dir, cpu_target
from tunegrad.errors import ConfigError, DeviceError
from tunegrad.ir.target import Target
from tunegrad.object_cache import ObjectCache

__all__ = ["Host", "compiler_version", "host", "masked", "own_code"]


# ---- masks
#
# Masks: this machine's CPU as an older one, so that one machine tests the code of several.
#
#     TUNEGRAD_CPU_TARGET=znver3          AVX2: 16 registers of 32 bytes, no products of bytes
#     TUNEGRAD_CPU_TARGET=skylake-avx512  AVX-512: 32 registers of 64 bytes, no products of bytes
#
# The mask names the scheduling model, and takes away each vector extension that the older processor
# lacks; a scalar extension stays, since no code of ours asks for one. LLVM's name and features are
# fields of the fingerprint: a masked machine and the machine itself share no row of a store.


_HAS: dict[str, frozenset[str]] = {
    "znver3": frozenset(),
    "skylake-avx512": frozenset(("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")),
}
"""The vector extensions beyond AVX2 of each processor, but those of cryptography, which no code of
ours asks for. Source: LLVM 22, X86.td.
"""

_BASE = frozenset(("avx2", "fma", "f16c"))

_BEYOND = ("amx-", "avx10", "avx512", "avxifma", "avxneconvert", "avxvnni", "gfni", "vaes",
           "vpclmulqdq")  # fmt: skip
"""Prefixes of LLVM's names of vector extensions beyond AVX2."""


def masked(name: str, features: Sequence[str]) -> tuple[str, ...]:
    """This machine's features, each with its sign, without those that the processor ``name`` lacks.

    Raises ConfigError for an unknown name, and where this machine lacks what that processor has.
    """
    has = _HAS.get(name)
    if has is None:
        raise ConfigError(f"TUNEGRAD_CPU_TARGET={name!r}; valid: {', '.join(_HAS)}")
    enabled = {f[1:] for f in features if f.startswith("+")}
    if missing := sorted(x for x in _BASE | has if x not in enabled):
        raise ConfigError(
            f"TUNEGRAD_CPU_TARGET={name}: this machine's CPU lacks {', '.join(missing)}"
        )
    return tuple(f"-{f[1:]}" if f[1:] not in has and f[1:].startswith(_BEYOND) else f
                 for f in features)  # fmt: skip


# ---- kept


PIPELINE = 5
"""Bumped when a list of passes in ``codegen`` changes: objects and measurements of another list are
another compiler's.
"""

_CPUINFO = Path("/proc/cpuinfo")
_TOLD = frozenset(
    ("vendor_id", "cpu family", "model", "stepping", "microcode", "flags", "CPU implementer",
     "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features")
)  # fmt: skip
"""Facts that Linux tells of a processor, and does not change while it runs."""


@dataclass(frozen=True, slots=True)
class Host:
    """LLVM in words, and its names for the processor of this process and for what that has."""

    llvm: str
    arch: str
    features: tuple[str, ...]


@cache
def host() -> Host:
    """This machine, in LLVM's words: as an older processor where the user named one.

    Raises ConfigError for a processor that this machine can not stand for, DeviceError without
    LLVM.
    """
    found, name = _asked(), cpu_target()
    return replace(found, arch=name, features=masked(name, found.features)) if name else found


def _asked() -> Host:
    """LLVM's answer, from the cache where it is there."""
    key, kept = _key(), _cache()
    found = None if key is None else _read(kept.get(key))
    if found is None:
        found = Host(*_asked_of_llvm())
        if key is not None:
            kept.put(key, "\n".join((found.llvm, found.arch, *found.features)).encode())
    return found


def _asked_of_llvm() -> tuple[str, str, tuple[str, ...]]:
    try:
        from tunegrad.devices.host.codegen import asked_host
    except (ImportError, OSError) as error:  # the package is missing, or its library does not load
        why = str(error).splitlines()[0]
        raise DeviceError(
            "device cpu: LLVM names this machine's CPU, for kernels that are compiled and for "
            f"those of a .plan: pip install llvmlite ({why})"
        ) from error
    return asked_host()


def compiler_version() -> str:
    """The compiler in words: the llvmlite release, the LLVM inside it, and our list of passes."""
    return f"{host().llvm} passes-{PIPELINE}"


def own_code(text: str) -> bytes:
    """A module of our own for this machine, compiled at level 1: an ELF relocatable object.

    Raises as ``compile_llvm``.
    """
    machine, kept = host(), _cache()
    parts = ("own code", compiler_version(), machine.arch, *machine.features, text)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    image = kept.get(key)
    if image is None:
        from tunegrad.devices.host.codegen import compile_llvm

        target = Target("cpu", "cpu", machine.arch, machine.features)
        image = compile_llvm(text, target, opt_level=1)
        kept.put(key, image)
    return image


def _cache() -> ObjectCache:
    return ObjectCache(cache_dir() / "objects")


def _read(body: bytes | None) -> Host | None:
    if body is None:
        return None
    version, arch, *features = body.decode().split("\n")
    return Host(version, arch, tuple(features))


def _key() -> str | None:
    """The key of LLVM's answers; None where the library or the processor can not be seen."""
    found = importlib.util.find_spec("llvmlite")
    if found is None or found.origin is None:
        return None
    try:
        (library,) = (Path(found.origin).parent / "binding").glob("*llvmlite.*so")
        facts = library.stat()
        processor = _CPUINFO.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
    lines = {x for x in processor.splitlines() if x.partition(":")[0].strip() in _TOLD}
    if not lines:
        return None
    parts = ("host", str(library), str(facts.st_size), str(facts.st_mtime_ns), *sorted(lines))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
