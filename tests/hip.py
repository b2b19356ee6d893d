"""HIP C++, the language of AMD's GPUs, without one of them: compiled for it by clang, and run on
this CPU by what runs CUDA's.

    %3 = shuffle %2 across 4 f32  -->  const float v3 = __shfl_xor(v2, 4);
    tg_hip.hpp + text --clang--> assembly: instructions, and metadata of the kernel

The text is that of CUDA C++ with HIP's shuffles and conversions of halves. Its words are those of
``hip/hip_runtime.h``. A product and a sum are fused exactly where the program says FMA, if the
compiler is told ``-ffp-contract=off``. There is no inline assembly, so there are no copies that run
ahead and no matrix units (MFMA, WMMA). A program's shuffles stay among 32 neighbours. A wave has as
many (gfx1100), or is two of them (gfx90a), so they need no width.

clang's own choice of parts of AMD's device library (ocml, LLVM's bitcode) fails where the library
is older than the architecture, so they are named here.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from tests.cuda_host import cuda_host
from tests.cuda_host.device import CudaHost
from tunegrad.devices.job import Lowered
from tunegrad.devices.remote import lowered_c
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.render.c_family import render_c
from tunegrad.render.cuda import CUDA, VECTORS, exchanged

__all__ = [
    "ARCHITECTURES", "HIP", "TARGETS", "Assembly", "HipHost", "compiled", "hip_host", "lowered",
    "render_hip",
]  # fmt: skip


def render_hip(program: Program) -> str:
    """The program as HIP C++ text; ``c_family`` says its ``kernel_name`` and ``arguments``."""
    return render_c(program, HIP)


def _on_gpu(c: str, name: str, argument: str, body: str) -> str:
    """A function that a CPU has a twin of, in the header before the text."""
    text = f"__device__ __forceinline__ {c} tg_{name}({argument} x) {{ {body} }}"
    return f"#ifndef TG_HOST\n{text}\n#endif"


_HALVES = {
    "from_f16": _on_gpu(
        "float", "from_f16", "unsigned short", "return (float)__builtin_bit_cast(_Float16, x);"
    ),
    "to_f16": _on_gpu(
        "unsigned short", "to_f16", "float",
        "return __builtin_bit_cast(unsigned short, (_Float16)x);",
    ),
    "tf32_f32": _on_gpu(
        "float", "tf32_f32", "float",
        "const unsigned int u = __float_as_uint(x); return (u & 0x7f800000u) == 0x7f800000u ? x : "
        "__uint_as_float((u + 0x1000u) & 0xffffe000u);",
    ),
}  # fmt: skip
"""Halves are rounded to the nearest, ties to even, as the mode of a kernel is; tf32 away from
zero, by integers.
"""


HIP = replace(
    CUDA,
    name="hip",
    helpers={**CUDA.helpers, **_HALVES},
    prologue=VECTORS,
    wrappers=None,
    shuffle=exchanged("__shfl_xor({}, {})"),
    declared_shared_bytes=1 << 40,
    shared_array="",
)


def _target(
    arch: str,
    wave: int,
    units: int,
    waves: int,
    registers: int,
    shared: int,
    fmas: int,
    memory: float,
) -> Target:
    """Of both: groups of up to 1,024 items and 64 KiB, 256 registers an item, loads of 16 bytes."""
    return Target(
        "hip", "gpu", arch, registers=64, threads=units, shared_bytes=64 << 10, max_local=1024,
        warp=wave, regs_per_item=256, fmas_per_cycle=fmas // 4, l2_bytes_per_cycle=24,
        unit_items=waves * wave, unit_registers=registers * wave, unit_shared_bytes=shared,
        memory_bytes_per_cycle=memory, view_bytes=16,
    )  # fmt: skip


TARGETS = {
    "gfx90a": _target("gfx90a", 64, 104, 32, 4 * 512, 64 << 10, 64, 1.6e12 / 1.7e9),
    "gfx1100": _target("gfx1100", 32, 48, 64, 4 * 1536, 128 << 10, 128, 9.6e11 / 2.5e9),
}
"""MI210 and RX 7900 XTX: items of a wave, units; waves, registers and shared bytes of a unit, by
AMD's ISA reference guides ("AMD Instinct MI200", "RDNA3"); multiply-adds of a unit and bytes of
memory a cycle, by data sheets. A unit of the second is a pair of compute units. What the last cache
gives is not known: 24 is what CUDA's targets have then.
"""
ARCHITECTURES = tuple(TARGETS)

_SECONDS = 60.0
_HEADER = (Path(__file__).parent / "tg_hip.hpp").read_text(encoding="utf-8")
_OPTIONS = ("-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-std=c++17", "-O3",
            "-ffp-contract=off", "-Wall", "-Wno-unused-function", "-Wno-unused-variable",
            "-fno-crash-diagnostics", "-S", "-o", "-", "-")  # fmt: skip
_COMPILERS = ("amdclang++", *(f"clang++-{n}" for n in range(22, 15, -1)), "clang++")
"""Version 15 spills, and crashes on products of bytes, for gfx1100."""
_LIBRARIES = ("opt/rocm*/amdgcn/bitcode", "usr/lib/*/amdgcn/bitcode")
"""Where ROCm and Debian have the device library."""
_MODES = ("daz_opt_off", "unsafe_math_off", "finite_only_off", "correctly_rounded_sqrt_on")
"""Constants that the library's functions ask for: subnormal numbers stay, roots are rounded."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """What clang made of a kernel, and its warnings, '' for none."""

    text: str
    warnings: str

    def number(self, name: str) -> int:
        """Of the kernel's metadata (LLVM's guide to AMDGPU): ``vgpr_count``."""
        found = re.search(rf"\.{name}: +(\d+)", self.text)
        assert found is not None, f"no {name} in {len(self.text)} characters"
        return int(found[1])

    def count(self, names: str) -> int:
        """Instructions whose name begins with a pattern."""
        words = Counter(re.findall(r"(?:^\t| :: )([a-z]\w+)", self.text, re.MULTILINE))
        return sum(n for word, n in words.items() if re.match(names, word))


def lowered(program: Program) -> Lowered:
    return lowered_c(program, render_hip(program))


def compiled(text: str, arch: str) -> Assembly:
    """The assembly of a text. Skips without a compiler; fails in the compiler's words."""
    command = _compiler(arch)
    if isinstance(command, str):
        pytest.skip(command)
    done = _run(command, f'#line 1 "tg_hip.hpp"\n{_HEADER}#line 1 "program.hip"\n{text}')
    assert done.returncode == 0, done.stderr
    return Assembly(done.stdout, done.stderr.strip())


def _run(command: tuple[str, ...], text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *_OPTIONS], input=text, text=True, capture_output=True, check=False,
        timeout=_SECONDS,
    )  # fmt: skip


@functools.cache
def _compiler(arch: str) -> tuple[str, ...] | str:
    """The command of the first compiler, with a device library, that compiles for an architecture;
    else why there is none.
    """
    why = "clang++, or AMD's device library, was not found"
    for name, library in product(_names(), _libraries()):
        command = (*name, f"--offload-arch={arch}", *_linked(library, arch))
        done = _run(command, _HEADER)
        if done.returncode == 0:
            return command
        why = f"{name[0]}: {(done.stderr.strip() or 'failed').splitlines()[0]}"
    return f"compiling for {arch}: apt install clang-19 rocm-device-libs, or set HIPCXX ({why})"


def _names() -> Iterator[tuple[str, ...]]:
    wanted = os.environ.get("HIPCXX", "").strip()
    for name in (wanted,) if wanted else _COMPILERS:
        first, *more = shlex.split(name)
        path = shutil.which(first)
        if path is not None:
            yield (path, *more)


def _libraries() -> list[Path]:
    found = (path for pattern in _LIBRARIES for path in sorted(Path("/").glob(pattern)))
    return [path for path in found if (path / "ocml.bc").exists()]


def _linked(library: Path, arch: str) -> list[str]:
    """Options that link the library, with the latest part for an architecture up to this one."""
    number = int(arch.removeprefix("gfx"), 16)
    known = {int(p.stem.rpartition("_")[2], 16): p for p in library.glob("oclc_isa_version_*.bc")}
    isa = known[max((n for n in known if n <= number), default=min(known))]
    wide = "on" if TARGETS[arch].warp == 64 else "off"
    names = ["ocml", *(f"oclc_{mode}" for mode in (*_MODES, f"wavefrontsize64_{wide}"))]
    files = [*(library / f"{name}.bc" for name in names), isa]
    words = (word for file in files for word in ("-mlink-builtin-bitcode", str(file)))
    return [x for word in words for x in ("-Xclang", word)]


@dataclass(frozen=True, slots=True)
class HipHost(CudaHost):
    """Programs for an architecture as HIP C++, built by g++ and run by fibers: words that HIP and
    CUDA have in common mean the same, warps are of 32.
    """

    chip: str = "gfx1100"

    @property
    def target(self) -> Target:
        return TARGETS[self.chip]

    def lower(self, program: Program) -> Lowered:
        return lowered(program)


def hip_host(chip: str, seed: int) -> HipHost:
    """Threads run in an order drawn by a seed that is not 0. Skips without a C++ compiler."""
    cuda_host()
    return HipHost(seed, chip=chip)
