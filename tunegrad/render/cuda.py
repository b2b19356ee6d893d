"""Program to CUDA C++: a block for each iteration of the thread loops, a thread for each of the
local ones.

    for m0 in 8 thread(8,1):  -->  const int i_m0 = group % 8;
    %3 = x[4*n0+n1] f32x4  --> const tg_vec<float, 4> w3 = *(const tg_vec<float, 4> *)(b_x + ...);
                                   const float v3_0 = w3.at[0];

The same text is compiled for a GPU and built for a CPU, where ``TG_HOST`` is defined by a header
that stands before it and gives the words of CUDA another meaning. No header is needed on a GPU.

CUDA has vectors in memory and none as values: neighbours that are proved to be aligned move as one,
of up to 16 bytes. A product and a sum are fused exactly where the program says FMA, if the compiler
is told ``--fmad=false``. f16 and bf16 live in variables as their 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable

from tunegrad.ir.dtypes import DTYPES, DType
from tunegrad.ir.program import Program

from .c_arithmetic import arithmetic_helpers, byte_helpers
from .c_dialect import Dialect
from .c_family import render_c
from .cuda_wrappers import CONVERSIONS, wrappers_text

__all__ = ["CUDA", "VECTORS", "exchanged", "render_cuda"]

_REGISTER = "unsigned int"
_VALUES = {
    "bool": "bool", "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
    "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned int",
    "u64": "unsigned long long", "f16": "unsigned short",
    "bf16": "unsigned short", "f32": "float", "f64": "double", "bf16x2": "unsigned int",
    "u8x4": "unsigned int", "i8x4": "unsigned int",
}  # fmt: skip

VECTORS = "template <class T, int N> struct __align__(sizeof(T) * N) tg_vec { T at[N]; };"
_PROLOGUE = f"""\
#ifndef TG_HOST
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define TG_SHARED extern __shared__ __align__(1024) char tg_shared[]
#endif
{VECTORS}"""


def render_cuda(program: Program) -> str:
    """The program as CUDA C++ text; ``c_family`` says its ``kernel_name`` and ``arguments``."""
    return render_c(program, CUDA)


def _function(c: str, name: str, arguments: str, text: str) -> str:
    return f"__device__ __forceinline__ {c} tg_{name}({arguments}) {{ {text} }}"


def _extreme(op: str, dtype: DType) -> str:
    c, sign = _VALUES[dtype.name], ">" if op == "max" else "<"
    test = f"a != a || a {sign} b" if dtype.is_float else f"a {sign} b"
    return _function(c, f"{op}_{dtype}", f"{c} a, {c} b", f"return ({test}) ? a : b;")


def _bits(text: str) -> str:
    return f"__uint_as_float({text})"


def _helpers() -> dict[str, str]:
    u, s = "unsigned int", "unsigned short"
    low, high = _bits("{} << 16"), _bits("{} & 0xffff0000u")
    lows, highs = (", ".join(x.format(n) for n in "ab") for x in (low, high))
    steps = f"fmaf({lows}, fmaf({highs}, c))"
    made = {
        "least": _function("INDEX", "least", "INDEX a, INDEX b", "return a < b ? a : b;"),
        "swizzle": _function(
            "INDEX", "swizzle", "INDEX at, int row, int others, int chunk",
            "return at ^ (at >> row & others) << chunk;",
        ),
        "index_floordiv": _function(
            "INDEX", "index_floordiv", "INDEX a, INDEX b", "return a / b - (a % b < 0);"
        ),
        "index_mod": _function(
            "INDEX", "index_mod", "INDEX a, INDEX b", "return a % b + (a % b < 0 ? b : 0);"
        ),
        **{name: wrappers_text([f"tg_{name}"]) for name in CONVERSIONS},
        "pair_bf16": _function(u, "pair_bf16", f"{s} a, {s} b", f"return ({u})a | ({u})b << 16;"),
        "pair_f32": _function(
            u, "pair_f32", "float a, float b",
            "return __float_as_uint(a) >> 16 | (__float_as_uint(b) & 0xffff0000u);",
        ),
        "low_bf16x2": _function("float", "low_bf16x2", f"{u} a", f"return {low.format('a')};"),
        "high_bf16x2": _function("float", "high_bf16x2", f"{u} a", f"return {high.format('a')};"),
        "dot2_bf16x2": _function(
            "float", "dot2_bf16x2", f"{u} a, {u} b", f"const float c = 0.0f; return {steps};"
        ),
        "dot2_add_f32": _function(
            "float", "dot2_add_f32", f"{u} a, {u} b, float c", f"return {steps};"
        ),
    }  # fmt: skip
    made |= byte_helpers(u, _function)
    for dtype in DTYPES.values():
        if not (dtype.is_half or dtype.is_bool):
            made |= {f"{op}_{dtype}": _extreme(op, dtype) for op in ("max", "min")}
    made |= arithmetic_helpers(_VALUES, _function, _math)
    return made


def _math(name: str, dtype: DType) -> str:
    if dtype.bits == 64:
        return str(name)
    return "fabsf" if name == "fabs" else f"{name}f"


def _wide(space: str, vector: str, buffer: str, at: str) -> str:
    """Pointers are generic: the compiler knows what they point to."""
    qualifier = "const " if space.endswith("const") else ""
    return f"*({qualifier}{vector} *)({buffer} + {at})"


def _register(c: str, parts: list[str]) -> tuple[str, str]:
    """Halves and bytes share 32 bits, the first one lowest; f32 is its bits; others are alone."""
    if len(parts) == 1:
        return (_REGISTER, f"__float_as_uint({parts[0]})") if c == "float" else (c, parts[0])
    bits = 32 // len(parts)
    word = f"({_REGISTER})" if bits == 16 else f"({_REGISTER})(unsigned char)"  # bytes have signs
    shifted = [f"{word}({x}) << {bits * k}" if k else f"{word}({x})" for k, x in enumerate(parts)]
    return _REGISTER, " | ".join(shifted)


def _part(c: str, register: str, at: int) -> str:
    """A value that begins at bit ``at`` of a register."""
    return f"__uint_as_float({register})" if c == "float" else f"({c})({register} >> {at})"


_NARROW = ("bool", *(_VALUES[name] for name in ("i8", "i16", "u8", "u16")))


def exchanged(call: str) -> Callable[[str, str, int], str]:
    """Make the text of a call that takes a value of 4 or 8 bytes, and a bit; a narrower value goes
    in as 32 bits.
    """

    def text(c: str, value: str, across: int) -> str:
        if c in _NARROW:
            return f"({c}){call.format(f'(unsigned int){value}', across)}"
        return call.format(value, across)

    return text


CUDA = Dialect(
    name="cuda",
    kernel='extern "C" __global__ void __launch_bounds__(ITEMS)',
    global_space="",
    restrict="__restrict__",
    shared_space="__shared__",
    group_id="blockIdx.x",
    local_id="threadIdx.x",
    long_type="long long",
    long_suffix="LL",
    values=_VALUES,
    stored=_VALUES | {"bool": "unsigned char"},
    widths=(2, 4, 8),
    vector_bytes=16,
    helpers=_helpers(),
    barrier=lambda _: "__syncthreads();",
    vector=lambda c, lanes: f"tg_vec<{c}, {lanes}>",
    lane=lambda v, k: f"{v}.at[{k}]",
    build=lambda c, lanes, parts: f"tg_vec<{c}, {lanes}>{{{{{', '.join(parts)}}}}}",
    wide=_wide,
    function=_math,
    prologue=_PROLOGUE,
    wrappers=wrappers_text,
    shuffle=exchanged("__shfl_xor_sync(0xffffffffu, {}, {})"),
    register=_register,
    part=_part,
    declared_shared_bytes=48 << 10,
    shared_array="TG_SHARED;",
    unroll="#pragma unroll {}",
    unaligned=False,
)
