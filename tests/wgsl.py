"""Program to WGSL: a workgroup for each iteration of the thread loops, an invocation for each of
the local ones.

    for m0 in 8 thread(8,1):  -->  let i_m0: i32 = group % 8; if (...) {
    %3 = x[4*n0+n1] f32x4     -->  let v3_0: f32 = b_x[4 * i_n0]; ... one a lane

Buffers are module-scope variables of group 0, bound in the order of ``c_family.arguments``. Memory
holds f32, i32 and u32, which every WebGPU has. There are no vectors: what is declared as scalars
can not be read as one. A load that a mask forbids reads element 0 instead, and drops it.

Integers wrap around by the language's own rules. Of floats it promises less than
docs/GPU_TOOLS.md: a compiler may fuse, reorder, and assume that there is no NaN and no infinity.
"""

from __future__ import annotations

import math

import numpy as np

from tunegrad.errors import CompileFailure, OutOfResources
from tunegrad.ir import program as p
from tunegrad.ir.dtypes import DType
from tunegrad.ir.expr import Op
from tunegrad.ir.math_coefficients import ERF_LARGE, ERF_SMALL, ERF_SPLIT
from tunegrad.ir.pipelines import expand_pipelines
from tunegrad.ir.program import Alloc, Program
from tunegrad.ir.target import Target
from tunegrad.render.c_dialect import Dialect
from tunegrad.render.c_family import (
    CPrinter,
    arguments,
    fits_32_bits,
    fixed,
    kernel_name,
    passes_32_bits,
)

__all__ = ["WEBGPU", "render_wgsl"]

WEBGPU = Target(
    name="webgpu",
    kind="gpu",
    arch="wgsl",
    vector_bytes=4,
    registers=64,
    shared_bytes=16 << 10,
    max_local=256,
    view_bytes=256,
    max_buffers=8,
    max_groups=65535,
    max_buffer_bytes=128 << 20,
)
"""Limits that every WebGPU device has: the defaults (W3C WebGPU, "Limits")."""

_VALUES = {"bool": "bool", "i32": "i32", "u32": "u32", "f32": "f32"}
_STORED = {name: name for name in ("i32", "u32", "f32")}

_INTEGERS = ("i32", "u32")


def render_wgsl(program: Program, target: Target = WEBGPU) -> str:
    """The program as one WGSL module; ``c_family`` says its ``kernel_name`` and ``arguments``.

    Raises CompileFailure for a dtype that WGSL has not and for an index that passes i32,
    OutOfResources for what is over a limit of the target.
    """
    expanded = expand_pipelines(program)
    _check_types(expanded)
    _check_limits(expanded, target)
    return _Printer(expanded, _WGSL).text()


def _check_types(program: Program) -> None:
    """Names the parameter where one is at fault, else the value."""

    def refuse(what: str, rule: str) -> None:
        raise CompileFailure(f"kernel {program.name}: {what}: {rule}")

    for b in (*arguments(program), *(a for a in program.allocs if a.space != "team")):
        if b.dtype.name not in _STORED:
            what = "scratch" if isinstance(b, Alloc) else "parameter"
            refuse(f"{what} {b.name} is {b.dtype}", f"memory of WGSL holds {', '.join(_STORED)}")
    for i in p.walk(program.body):
        if isinstance(i, p.Load | p.Store) and passes_32_bits(i.offset):
            refuse(f"an index of {i.buffer} passes 2**31", "indices of WGSL are i32")
        if isinstance(i, p.Test) or not isinstance(i, p.Valued):
            continue
        if i.vtype.dtype.name not in _VALUES:
            refuse(f"%{i.id} is {i.vtype.dtype}", f"values of WGSL are {', '.join(_VALUES)}")
    if not fits_32_bits(program):
        refuse("an index passes 2**31", "indices of WGSL are i32")


def _check_limits(program: Program, target: Target) -> None:
    given = arguments(program)
    shared = sum(a.size * a.dtype.itemsize for a in program.allocs if a.space == "shared")
    for have, most, what in (
        (len(given), target.max_buffers, "storage buffers"),
        (program.local, target.max_local, "work-items in a group"),
        (program.threads, target.max_groups, "groups"),
        (shared, target.shared_bytes, "bytes of shared memory"),
        *((b.size * b.dtype.itemsize, target.max_buffer_bytes, f"bytes of {b.name}")
          for b in given),
    ):  # fmt: skip
        if most and have > most:
            raise OutOfResources(
                f"kernel {program.name}: {have} {what}, target {target.name} has up to {most}"
            )


class _Printer(CPrinter):
    """C's printer with WGSL's syntax."""

    def text(self) -> str:
        d = self.dialect
        declared = [
            f"@group(0) @binding({n}) var<{d.global_space}, {_access(a)}> "
            f"{self._array(a.name, a.dtype, a.size)}"
            for n, a in enumerate(arguments(self.program))
        ]
        for a in self.program.allocs:
            if a.space == "shared":
                words = f"var<{d.shared_space}> {self._array(a.name, a.dtype, a.size)}"
                declared.append(words)
            elif a.space == "thread":
                self.line(f"var {self._array(a.name, a.dtype, a.size)}")
        self.line(self.constant(self.index_type, "group", f"i32({d.group_id})"))
        self.line(self.constant(self.index_type, "item", f"i32({d.local_id})"))
        self.block(self.program.body)
        kernel = d.kernel.replace("ITEMS", str(self.program.local))
        builtins = (
            "@builtin(workgroup_id) tg_group: vec3<u32>, "
            "@builtin(local_invocation_index) tg_item: u32"
        )
        head = f"{kernel} {kernel_name(self.program)}({builtins}) {{"
        return "\n".join([*declared, *self.helpers(), head, *self.lines, "}", ""])

    def _array(self, name: str, dtype: DType, size: int) -> str:
        return f"{self.buffers[name]}: array<{self.dialect.stored[dtype.name]}, {size}>;"

    # syntax

    def constant(self, kind: str, name: str, text: str) -> str:
        return f"let {name}: {kind} = {text};"

    def variables(self, kind: str, names: list[str]) -> str:
        return " ".join(f"var {name}: {kind};" for name in names)

    def choice(self, condition: str, yes: str, no: str) -> str:
        return f"select({no}, {yes}, {condition})"

    def cast(self, dtype: DType, text: str) -> str:
        return f"{self.dialect.values[dtype.name]}({text})"

    def loop(self, v: str, first: str, stop: str) -> str:
        return f"for (var {v}: i32 = {first}; {v} < {stop}; {v}++) {{"

    def literal(self, value: float | int | bool, dtype: DType) -> str:
        """Floats as f32 has them, since a text of more digits is refused; so is one that is no
        number, unless it is worked out when the program runs.
        """
        if not dtype.is_float:
            return super().literal(value, dtype)
        with np.errstate(over="ignore"):
            narrow = np.float32(value)
        if not np.isfinite(narrow):
            self.used.add("bits")
            return f"tg_bits({int(narrow.view(np.uint32)):#x}u)"
        return super().literal(float(narrow), dtype)

    # accesses

    def load(self, i: p.Load) -> None:
        buffer = self.buffers[i.buffer]

        def lane(k: int) -> str:
            at = self.place(i.buffer, fixed(i.offset, i.lane, k))
            if i.mask is None:
                return f"{buffer}[{at}]"
            mask = self.lane(i.mask, k)
            found = f"{buffer}[{self.choice(mask, at, '0')}]"
            return self.choice(mask, found, self.literal(0, i.vtype.dtype))

        self.define(i.id, i.vtype, lane)

    def store(self, i: p.Store) -> None:
        for k in range(i.vtype.lanes):
            at = self.place(i.buffer, fixed(i.offset, i.lane, k))
            text = f"{self.buffers[i.buffer]}[{at}] = {self.lane(i.value, k)};"
            self.line(text if i.mask is None else f"if ({self.lane(i.mask, k)}) {{ {text} }}")

    # operations

    def scalar(self, op: Op, args: list[str], dtype: DType, lanes: int = 1) -> str:
        """Truth values have no order and no exclusive or of their own, numbers without a sign no
        minus; erf and log10 are no functions of the language, and its pow has no negative bases.
        """
        if dtype.is_bool and op is Op.XOR:
            return f"({args[0]} != {args[1]})"
        if dtype.is_bool and op is Op.LT:
            return f"(!{args[0]} & {args[1]})"
        if op is Op.NEG and not dtype.signed:
            return f"(0u - {args[0]})"
        if op is Op.LOG10:
            return f"(log2({args[0]}) * {math.log10(2)!r})"
        if op is Op.ERF or (op is Op.POW and dtype.is_float):
            self.used.add(f"{op}_{dtype}")
            return f"tg_{op}_{dtype}({', '.join(args)})"
        return super().scalar(op, args, dtype, lanes)


def _access(a: p.Buffer | p.Pack | Alloc) -> str:
    writes = isinstance(a, Alloc) or (isinstance(a, p.Buffer) and a.role == "out")
    return "read_write" if writes else "read"


# Functions for what WGSL's own have not, or have otherwise: quotients and remainders, shifts by too
# many bits, NaN in max and min, erf, powers. Remainders are what is left of a quotient: ``%`` of
# negative numbers is undefined in GLSL, which some compilers of WGSL go through.


def _helpers() -> dict[str, str]:
    """Texts by name; INDEX is the type of indices."""
    made = {
        "least": _function("INDEX", "least", "a: INDEX, b: INDEX", "return min(a, b);"),
        "index_floordiv": _function(
            "INDEX", "index_floordiv", "a: INDEX, b: INDEX",
            "let q = a / b; return q - select(0, 1, a - q * b < 0);",
        ),
        "index_mod": _function(
            "INDEX", "index_mod", "a: INDEX, b: INDEX",
            "let r = a - a / b * b; return r + select(0, b, r < 0);",
        ),
        "index_inside": _function(
            "INDEX", "index_inside", "a: INDEX, n: INDEX",
            "return select(0, a, a >= 0 && a < n);",
        ),
        "index_element": _function(
            "INDEX", "index_element", "a: INDEX, n: INDEX",
            "return clamp(select(a, a + n, a < 0), 0, n - 1);",
        ),
        "index_least": _function(
            "INDEX", "index_least", "a: u32, n: INDEX",
            "return INDEX(min(a, u32(n - 1)));",
        ),
        "bits": _function("f32", "bits", "a: u32", "return bitcast<f32>(a);"),
        "tf32_f32": _function(
            "f32", "tf32_f32", "x: f32",
            "let u = bitcast<u32>(x); return select(bitcast<f32>((u + 0x1000u) & 0xffffe000u), x, "
            "(u & 0x7f800000u) == 0x7f800000u);",
        ),
        "erf_f32": _function("f32", "erf_f32", "x: f32", _erf()),
    }  # fmt: skip
    for c in ("f32", *_INTEGERS):
        for name, sign in (("max", ">"), ("min", "<")):
            test = f"a {sign} b || {_is_nan('a')}" if c == "f32" else f"a {sign} b"
            made[f"{name}_{c}"] = _binary(name, c, f"return select(b, a, {test});")
    for c in _INTEGERS:
        made |= _of_integers(c)
        size = "abs(a)" if c == "i32" else "a"
        made[f"abs_{c}"] = _function(c, f"abs_{c}", f"a: {c}", f"return {size};")
    return made | _of_floats()


def _function(c: str, name: str, arguments: str, text: str) -> str:
    return f"fn tg_{name}({arguments}) -> {c} {{ {text} }}"


def _binary(name: str, c: str, text: str) -> str:
    return _function(c, f"{name}_{c}", f"a: {c}, b: {c}", text)


def _is_nan(x: str) -> str:
    """By its bits: compilers may assume that ``x != x`` never holds, and Mesa's does."""
    return f"(bitcast<u32>({x}) & 0x7fffffffu) > 0x7f800000u"


def _of_integers(c: str) -> dict[str, str]:
    signed = c == "i32"
    parts = "if (b == 0) { return 0; } let q = a / b; let r = a - q * b; "
    apart = "r != 0 && (r < 0) != (b < 0)"
    powers = (
        f"var e = u32(b); var r: {c} = 1; var x = a; "
        "while (e != 0u) { if ((e & 1u) != 0u) { r *= x; } x *= x; e >>= 1u; } return r;"
    )
    inside = "(u32(b) & 31u), u32(b) < 32u"
    texts = {
        "floordiv": f"{parts}return q - select(0, 1, {apart});",
        "mod": f"{parts}return r + select(0, b, {apart});",
        "shl": f"return select(0, a << {inside});",
        "shr": "return a >> min(u32(b), 31u);",
        "pow": f"if (b < 0 && a != 1 && a != -1) {{ return 0; }} {powers}",
    }
    if not signed:
        texts |= {
            "floordiv": f"{parts}return q;",
            "mod": f"{parts}return r;",
            "shr": f"return select(0, a >> {inside});",
            "pow": powers,
        }
    found = {f"{name}_{c}": _binary(name, c, text) for name, text in texts.items()}
    least, most = ("(-2147483647 - 1)", "2147483647") if signed else ("0", "4294967295")
    ends = ("-2147483648.0", "2147483648.0") if signed else ("0.0", "4294967296.0")
    found[f"f32_to_{c}"] = _function(
        c, f"f32_to_{c}", "a: f32",
        f"if ({_is_nan('a')}) {{ return 0; }} if (a >= {ends[1]}) {{ return {most}; }} "
        f"if (a <= {ends[0]}) {{ return {least}; }} return {c}(a);",
    )  # fmt: skip
    return found


def _of_floats() -> dict[str, str]:
    """Powers of a negative base are those of its magnitude, with a sign where the exponent is odd.
    NaN is what the language's own function gives a negative number.
    """
    texts = {
        "mod": "let r = a % b; return select(r, r + b, r != 0.0 && (r < 0.0) != (b < 0.0));",
        "floordiv": "if (b == 0.0) { return a / b; } let r = a % b; let q = (a - r) / b; "
        "let s = select(q, q - 1.0, r != 0.0 && (r < 0.0) != (b < 0.0)); let f = floor(s); "
        "return select(f, f + 1.0, s - f > 0.5);",
        "pow": "if (a == 1.0 || b == 0.0) { return 1.0; } "
        "let p = pow(abs(a), b); if (a >= 0.0) { return p; } "
        "if (floor(b) != b) { return sqrt(a); } "
        "return select(p, -p, floor(b * 0.5) != b * 0.5);",
    }
    return {f"{name}_f32": _binary(name, "f32", text) for name, text in texts.items()}


def _erf() -> str:
    """As ``math_f32.erf``: x + x p(x^2) near zero and for NaN, 1 - 2^q(|x|) beyond."""
    return (
        "let a = abs(x); let s = a * a; "
        f"let near = fma(a, {_polynomial('s', ERF_SMALL)}, a); "
        f"let m = min(a, 4.0); let far = 1.0 - exp2({_polynomial('m', ERF_LARGE)}); "
        f"let r = select(near, far, a >= {ERF_SPLIT!r}); return select(r, -r, x < 0.0);"
    )


def _polynomial(x: str, coefficients: tuple[float, ...]) -> str:
    text = repr(coefficients[-1])
    for c in coefficients[-2::-1]:
        text = f"fma({x}, {text}, {c!r})"
    return text


_WGSL = Dialect(
    name="wgsl",
    kernel="@compute @workgroup_size(ITEMS)\nfn",
    global_space="storage",
    shared_space="workgroup",
    group_id="tg_group.x",
    local_id="tg_item",
    int_type="i32",
    truth=("false", "true"),
    wraps=True,
    values=_VALUES,
    stored=_STORED,
    helpers=_helpers(),
    barrier=lambda global_too: f"{'storageBarrier(); ' if global_too else ''}workgroupBarrier();",
    function=lambda name, _: {"fabs": "abs", "rint": "round"}.get(name, str(name)),
)
