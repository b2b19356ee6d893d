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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tunegrad.ir.dtypes import DType
from tunegrad.ir.program import Program

from .c_dialect import Dialect, common_helpers
from .c_family import render_c

# ---- inline PTX
#
# Functions that CUDA C++ does not have: inline PTX on a GPU, a twin on the CPU.
#
#     tg_cp_async16(to, from, 16);    -->  cp.async.cg.shared.global [to], [from], 16, 16;     a GPU
#                                     -->  tg_cp_async16 of tests/cuda_host/tg_host.hpp        a CPU
#
# One table. The twin has the same name and the same arguments, and a test holds each against numpy.
# Addresses of shared memory are 32 bits, as ``tg_shared_address`` gives them. The elements of a
# matrix that each item holds stand in ``MatrixUnit`` of ``ir.target``; PTX ISA, section 9.7, has
# the instructions. Shuffles and votes are CUDA's own functions: they have no text here.


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A function for a GPU: its text, and the least architecture that has its instruction.

    ``least_sm`` is a number as in sm_80. Its twin in tg_host.hpp has the same name.
    """

    name: str
    text: str
    least_sm: int


def wrappers_text(names: Iterable[str]) -> str:
    """The texts of these, for a GPU alone; a CPU's twins stand in the header before the text."""
    texts = [WRAPPERS[name].text for name in sorted(set(names))]
    return "\n".join(["#ifndef TG_HOST", *texts, "#endif"]) if texts else ""


def _device_function(
    name: str, arguments: str, body: str, least_sm: int, gives: str = "void"
) -> Wrapper:
    words = f"__device__ __forceinline__ {gives} {name}({arguments}) {{ {body} }}"
    return Wrapper(name, words, least_sm)


def _asm(text: str, out: str = "", given: str = "", memory: bool = False) -> str:
    """A statement; one that touches ``memory`` is not moved across others that do."""
    parts = " : ".join([f'"{text}"', out, given, '"memory"' if memory else ""]).rstrip(" :")
    return f"asm volatile({parts});"


def _pure(text: str, out: str, given: str) -> str:
    """A statement that may be moved and merged: its result is of what is given alone."""
    return f'asm("{text}" : {out} : {given});'


_LETTERS = {"unsigned short": "h", "unsigned int": "r", "int": "r", "float": "f", "double": "d"}


def _conversions() -> list[Wrapper]:
    """Halves as their 16 bits: to the nearest, ties to even; tf32 ties away, as PTX has it.

    bf16 by integers: cvt.rn.bf16.f32 (sm_80) rounds alike, and makes 0x7fff of a NaN, where every
    other device of ours makes 0x7fc0 (PTX ISA, 9.7.9.22).
    """
    s, u = "unsigned short", "unsigned int"
    to_bf16 = (
        f"const {u} b = __float_as_uint(x); "
        f"return x != x ? ({s})0x7fc0 : ({s})((b + 0x7fff + ((b >> 16) & 1)) >> 16);"
    )
    made = [
        _device_function(
            "tg_from_bf16", f"{s} x", f"return __uint_as_float(({u})x << 16);", 50, gives="float"
        ),
        _device_function("tg_to_bf16", "float x", to_bf16, 50, gives=s),
    ]
    for name, gives, takes, code, held, given, sm in (
        ("tg_from_f16", "float", s, "cvt.f32.f16", "float", "h", 53),
        ("tg_to_f16", s, "float", "cvt.rn.f16.f32", s, "f", 53),
        ("tg_tf32_f32", "float", "float", "cvt.rna.tf32.f32", u, "f", 80),
    ):
        convert = _pure(f"{code} %0, %1;", f'"={_LETTERS[held]}"(r)', f'"{given}"(x)')
        result = "r" if held == gives else "__uint_as_float(r)"
        body = f"{held} r; {convert} return {result};"
        made.append(_device_function(name, f"{takes} x", body, sm, gives=gives))
    return made


def _copies() -> list[Wrapper]:
    """Bytes from global to shared memory, aligned to as many; zeros beyond the first ``given``.

    Those of 16 go past the first cache.
    """
    made = []
    for n in (4, 8, 16):
        cache = "cg" if n == 16 else "ca"
        body = _asm(
            f"cp.async.{cache}.shared.global [%0], [%1], {n}, %2;",
            given='"r"(to), "l"(from), "r"(given)',
            memory=True,
        )
        arguments = "unsigned int to, const void *from, int given"
        made.append(_device_function(f"tg_cp_async{n}", arguments, body, 80))
    commit = _asm("cp.async.commit_group;", memory=True)
    wait_all = _asm("cp.async.wait_all;", memory=True)
    wait = _asm("cp.async.wait_group %0;", given='"n"(LEFT)', memory=True)
    of_groups = _device_function("tg_cp_wait", "", wait, 80)
    return [
        *made,
        _device_function("tg_cp_commit", "", commit, 80),
        _device_function("tg_cp_wait_all", "", wait_all, 80),
        Wrapper(of_groups.name, f"template <int LEFT> {of_groups.text}", of_groups.least_sm),
    ]


def _loads_of_matrices() -> list[Wrapper]:
    """8 rows of 16 bytes each, whose addresses lanes 8k to 8k + 7 give for matrix k."""
    made = []
    for n in (1, 2, 4):
        held = ", ".join(f"%{i}" for i in range(n))
        out = ", ".join(f'"=r"(r[{i}])' for i in range(n))
        for suffix, trans in (("", ""), ("_trans", ".trans")):
            code = f"ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 {{{held}}}, [%{n}];"
            body = _asm(code, out, '"r"(at)', memory=True)
            made.append(
                _device_function(
                    f"tg_ldmatrix_x{n}{suffix}", "unsigned int *r, unsigned int at", body, 75
                )
            )
    return made


_REGISTERS = {"f16": "unsigned int", "bf16": "unsigned int", "tf32": "unsigned int",
              "s8": "unsigned int", "u8": "unsigned int", "f32": "float", "f64": "double",
              "s32": "int"}  # fmt: skip
"""C types that hold one or more elements of a type, operand or sum."""

_UNITS = (
    # m, n, k, operands, sums; registers of d, of a, of b
    ((16, 8, 8), ("f16", "f32"), (4, 2, 1), 75),
    ((16, 8, 16), ("f16", "f32"), (4, 4, 2), 80),
    ((16, 8, 16), ("f16", "f16"), (2, 4, 2), 80),
    ((16, 8, 8), ("bf16", "f32"), (4, 2, 1), 80),
    ((16, 8, 16), ("bf16", "f32"), (4, 4, 2), 80),
    ((16, 8, 4), ("tf32", "f32"), (4, 2, 1), 80),
    ((16, 8, 8), ("tf32", "f32"), (4, 4, 2), 80),
    ((16, 8, 16), ("s8", "s32"), (4, 2, 1), 80),
    ((16, 8, 32), ("s8", "s32"), (4, 4, 2), 80),
    ((16, 8, 32), ("u8", "s32"), (4, 4, 2), 80),
    ((8, 8, 4), ("f64", "f64"), (2, 1, 1), 80),
)


def _products() -> list[Wrapper]:
    """D += A * B by a warp, named by shape and dtypes as a ``MatrixUnit`` is."""
    made = []
    for (m, n, k), (taken, gives), sizes, sm in _UNITS:
        at, parts = 0, []
        for size in sizes:
            parts.append("{" + ", ".join(f"%{at + i}" for i in range(size)) + "}")
            at += size
        held, summed = _REGISTERS[taken], "unsigned int" if gives == "f16" else _REGISTERS[gives]
        types = f"{gives}.{taken}.{taken}.{gives}"
        code = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{types} {', '.join([*parts, parts[0]])};"
        out = ", ".join(f'"+{_LETTERS[summed]}"(d[{i}])' for i in range(sizes[0]))
        given = ", ".join(
            f'"{_LETTERS[held]}"({name}[{i}])'
            for name, size in zip("ab", sizes[1:], strict=True)
            for i in range(size)
        )
        arguments = f"{summed} *d, const {held} *a, const {held} *b"
        name = f"tg_mma_m{m}n{n}k{k}_{taken}_{gives}"
        made.append(_device_function(name, arguments, _asm(code, out, given), sm))
    return made


def _barriers() -> list[Wrapper]:
    """Barriers of some of a block's threads, by number: 0 is that of ``__syncthreads``."""
    made = []
    for word in ("sync", "arrive"):
        code = _asm(f"bar.{word} %0, %1;", given='"r"(id), "r"(count)', memory=True)
        made.append(_device_function(f"tg_bar_{word}", "int id, int count", code, 70))
    return made


def _table() -> Mapping[str, Wrapper]:
    address = _device_function(
        "tg_shared_address", "const void *p",
        "return (unsigned int)__cvta_generic_to_shared(p);", 50, gives="unsigned int",
    )  # fmt: skip
    parts = (_conversions(), _copies(), _loads_of_matrices(), _products(), _barriers(), [address])
    return MappingProxyType({w.name: w for part in parts for w in part})


WRAPPERS = _table()
"""By name."""

CONVERSIONS = tuple(w.name.removeprefix("tg_") for w in _conversions())
"""Those between types of numbers, as a C dialect names its helpers."""


# ---- cuda


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
    """The text of a call that takes 4 or 8 bytes, and a bit; narrower ones go in as 32 bits."""

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
    helpers=common_helpers(_VALUES, _function, _math, "__float_as_uint", "__uint_as_float")
    | {name: wrappers_text([f"tg_{name}"]) for name in CONVERSIONS},
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
