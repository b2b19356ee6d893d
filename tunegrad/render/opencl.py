"""Program to OpenCL C 1.2: a work-group per iteration of the thread loops, a work-item per
iteration of the local ones.

``FP_CONTRACT`` is off: a product and a sum are fused exactly where the program says FMA. f16 and
bf16 live in memory and variables as their 16 bits, so no half-precision extension is needed.
Aligned vectors are accessed as such: buffers, and parts of buffers, begin at multiples of 128 bytes
at least (CL_DEVICE_MEM_BASE_ADDR_ALIGN), and local memory says so. Vectors have up to 32 bytes:
PoCL 3 loses the kernels of a program with wider ones when it takes it from its cache
(INVALID_KERNEL_NAME), and GPUs have no use for them.
"""

from __future__ import annotations

from tunegrad.ir.dtypes import DTYPES
from tunegrad.ir.program import Program

from .c_dialect import Dialect, common_helpers
from .c_family import render_c

_VALUES = {
    "bool": "bool", "i8": "char", "i16": "short", "i32": "int", "i64": "long",
    "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulong",
    "f16": "ushort", "bf16": "ushort", "f32": "float", "f64": "double", "bf16x2": "uint",
    "u8x4": "uint", "i8x4": "uint",
}  # fmt: skip


def render_opencl(program: Program) -> str:
    """The program as OpenCL C text; ``c_family`` says its ``kernel_name`` and ``arguments``."""
    return render_c(program, OPENCL)


def _function(c: str, name: str, arguments: str, text: str) -> str:
    return f"inline {c} tg_{name}({arguments}) {{ {text} }}"


def _helpers() -> dict[str, str]:
    made = common_helpers(_VALUES, _function, lambda name, _: name, "as_uint", "as_float")
    made |= {
        # By integers: vload_half took five times as long in a product on PoCL 3, which also makes
        # wrong code of a ushort that is read as a half. No step needs subnormal floats.
        "from_f16": (
            "inline float tg_from_f16(ushort x) { "
            "const uint m = x & 0x7fffu, s = (uint)(x & 0x8000u) << 16; "
            "const uint n = (m << 13) + 0x38000000u; "
            "const uint small = as_uint((float)m * 0x1p-24f), special = n + 0x38000000u; "
            "return as_float(s | (m < 0x400u ? small : m < 0x7c00u ? n : special)); }"
        ),
        "to_f16": (
            "inline ushort tg_to_f16(float x) { "
            "const uint u = as_uint(x), a = u & 0x7fffffffu, s = u >> 16 & 0x8000u; "
            "const uint n = (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13; "
            "const uint small = as_uint(as_float(a) + 0.5f) - 0x3f000000u; "
            "const uint special = a > 0x7f800000u ? 0x7e00u : 0x7c00u; "
            "return (ushort)(s | (a < 0x38800000u ? small : a < 0x47800000u ? n : special)); }"
        ),
        "tf32_f32": (
            "inline float tg_tf32_f32(float x) { const uint u = as_uint(x); "
            "return (u & 0x7f800000u) == 0x7f800000u ? x : "
            "as_float((u + 0x1000u) & 0xffffe000u); }"
        ),
        "from_bf16": "inline float tg_from_bf16(ushort x) { return as_float((uint)x << 16); }",
        "to_bf16": (
            "inline ushort tg_to_bf16(float x) { const uint u = as_uint(x); "
            "return isnan(x) ? (ushort)0x7fc0 : (ushort)((u + 0x7fff + ((u >> 16) & 1)) >> 16); }"
        ),
    }
    for name in ("sin", "cos", "tan"):
        # PoCL 3 gives vectors of which one lane is large 0.015 for sin(1e-38), and tan within 2.5
        # ulp. f64, of whatever is large, rounds once.
        made[f"{name}_f32"] = (
            f"inline float tg_{name}_f32(float x) {{\n#ifdef cl_khr_fp64\n"
            f"return (float){name}((double)x);\n#else\nreturn {name}(x);\n#endif\n}}"
        )
    for dtype in DTYPES.values():
        if dtype.signed and dtype.is_int:  # the language's own: simulators lack LLVM's
            c = _VALUES[dtype.name]
            made[f"abs_{dtype}"] = _function(c, f"abs_{dtype}", f"{c} a", f"return ({c})abs(a);")
    return made


def _barrier(global_too: bool) -> str:
    return f"barrier(CLK_LOCAL_MEM_FENCE{' | CLK_GLOBAL_MEM_FENCE' if global_too else ''});"


def _vector_max(op: str, a: str, b: str) -> str:
    return f"select({b}, {a}, isnan({a}) | ({a} {'>' if op == 'max' else '<'} {b}))"


OPENCL = Dialect(
    name="opencl",
    kernel="__kernel void",
    global_space="__global",
    restrict="restrict",
    shared_space="__local",
    group_id="get_group_id(0)",
    local_id="get_local_id(0)",
    long_type="long",
    long_suffix="L",
    values=_VALUES,
    stored=_VALUES | {"bool": "uchar"},
    widths=(2, 4, 8, 16),
    vector_bytes=32,
    vector_dtypes=frozenset(("f32", "f64", "i32", "i64")),
    helpers=_helpers(),
    barrier=_barrier,
    vector=lambda c, lanes: f"{c}{lanes}",
    lane=lambda v, k: f"{v}.s{k:x}",
    build=lambda c, lanes, parts: f"({c}{lanes})({', '.join(parts)})",
    load=lambda _, lanes, buffer, offset: f"vload{lanes}(0, {buffer} + {offset})",
    store=lambda _, lanes, buffer, offset, value: (
        f"vstore{lanes}({value}, 0, {buffer} + {offset});"
    ),
    wide=lambda space, vector, buffer, offset: f"*({space} {vector} *)({buffer} + {offset})",
    vector_max=_vector_max,
    function=lambda name, _: str(name),
    reinterpret=lambda c, text: f"as_{c}({text})",
    prologue="#pragma OPENCL FP_CONTRACT OFF",
)
