"""Program to HIP C++, the language of AMD's GPUs: the text of CUDA C++ with HIP's shuffles and its
conversions of halves.

    %3 = shuffle %2 across 4 f32  -->  const float v3 = __shfl_xor(v2, 4);

The words are those of ``hip/hip_runtime.h``, which stands before the text; on a CPU, that is
``devices/cuda/host/tg_host.hpp``. No device of ours compiles it yet: tests do, for gfx90a and
gfx1100. A product and a sum are fused exactly where the program says FMA, if the compiler is told
``-ffp-contract=off``. There is no inline assembly, so there are no copies that run ahead and no
matrix units (MFMA, WMMA) yet.

A program's shuffles stay among 32 neighbours. A wave has as many (gfx1100), or is two of them
(gfx90a, for whose waves of 64 lowering makes none), so they need no width.
"""

from __future__ import annotations

from dataclasses import replace

from tunegrad.ir.program import Program

from .c_family import render_c
from .cuda import CUDA, VECTORS, exchanged

__all__ = ["HIP", "render_hip"]


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
