"""Differences between the languages of the C family: words, types, vectors, use of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tunegrad.ir.dtypes import DTYPES, F32, DType
from tunegrad.ir.expr import Op

# ---- c dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One language. The printer asks it for every word that is not plain C.

    A dtype that has no vectors as values may be moved as vectors all the same.

    ``values`` and ``stored`` are the C types of a dtype as a value and in memory. ``widths`` are
    the lane counts that have a vector type; other lane counts, vectors past ``vector_bytes``, and
    dtypes not in ``vector_dtypes`` become one variable a lane. A language without vectors leaves
    them out, with all that makes or moves one.
    """

    name: str
    kernel: str
    """Text before a kernel's name; ITEMS are the work-items of a group."""
    global_space: str
    shared_space: str
    group_id: str
    local_id: str
    int_type: str = "int"
    long_type: str = ""
    long_suffix: str = ""
    """Of indices: those of 32 bits, and those of 64 where the language has them."""
    restrict: str = ""
    truth: tuple[str, str] = ("0", "1")
    """False and true."""
    wraps: bool = False
    """True if numbers with a sign wrap around, as those without one do."""
    values: Mapping[str, str]
    stored: Mapping[str, str]
    widths: tuple[int, ...] = ()
    vector_bytes: int = 0
    vector_dtypes: frozenset[str] = frozenset()
    helpers: Mapping[str, str]
    """Text of the helper functions by name; the printer adds those it used."""
    barrier: Callable[[bool], str]
    """The barrier statement; the argument says whether global memory must be ordered too."""
    vector: Callable[[str, int], str] = lambda *_: ""
    """(C type, lanes) to the vector type."""
    lane: Callable[[str, int], str] = lambda *_: ""
    """(vector, k) to its lane k."""
    build: Callable[[str, int, list[str]], str] = lambda *_: ""
    """(C type, lanes, lane expressions or one for all) to a vector expression."""
    load: Callable[[str, int, str, str], str] = lambda *_: ""
    """(C type, lanes, buffer, offset) to a vector of neighbours, aligned but for ``unaligned``."""
    store: Callable[[str, int, str, str, str], str] = lambda *_: ""
    """(C type, lanes, buffer, offset, value) to a statement that stores neighbours."""
    wide: Callable[[str, str, str, str], str] = lambda *_: ""
    """(space and qualifiers, vector type, buffer, offset) to neighbours that are aligned."""
    vector_max: Callable[[str, str, str], str] = lambda *_: ""
    """(``max`` or ``min``, a, b) to the larger or smaller of two float vectors, or NaN."""
    function: Callable[[str, DType], str]
    """(operation, dtype) to the function of that name: exp to exp, or to expf."""
    prologue: str = ""
    reinterpret: Callable[[str, str], str] = lambda c, text: f"({c})({text})"
    """(C type of the same width, value) to its bits as that type."""
    declared_shared_bytes: int = 1 << 40
    """The most that a group may share by declarations; where it shares more, all of it is one
    array, given by the launch.
    """
    shared_array: str = ""
    """The declaration of that array: bytes, ``tg_shared``."""
    wrappers: Callable[[Iterable[str]], str] | None = None
    """Names of functions for what the language has no function for, to their texts: products of
    matrix units, copies that run ahead, loads of small matrices. None where it has none.
    """
    shuffle: Callable[[str, str, int], str] | None = None
    """(C type, value, bit) to that value of the work-item whose number in the warp differs in the
    bit. None where work-items have no warps.
    """
    register: Callable[[str, list[str]], tuple[str, str]] = lambda c, parts: (c, parts[0])
    """(C type, values that share a register) to its type and its value."""
    part: Callable[[str, str, int], str] = lambda c, register, at: f"({c})({register} >> {at})"
    """(C type, register of 32 bits, bit) to the value that begins there."""
    unroll: str = ""
    """Text before a loop of which {} iterations become one; '' where the language has none."""
    unaligned: bool = True
    """True if ``load`` and ``store`` move neighbours that are not aligned."""

    def is_vector(self, dtype: DType, lanes: int) -> bool:
        """True if values of that type are one vector variable."""
        fits = lanes in self.widths and lanes * dtype.itemsize <= self.vector_bytes
        return fits and dtype.name in self.vector_dtypes


# ---- arithmetic
#
# Arithmetic that plain C leaves undefined, as helper functions of a dialect: what wraps around,
# quotients by zero, shifts by too many bits, floats that no integer holds.


HELPED = frozenset((Op.FLOORDIV, Op.MOD, Op.POW, Op.SHL, Op.SHR))
"""Operations that are helper functions for integers, the first two for floats as well."""


def wraps(op: Op, dtype: DType) -> bool:
    """True if a sum or product of that type may overflow in C: those of numbers with a sign, and
    products of u16, which C makes int.
    """
    if op is Op.MUL and dtype.name == "u16":
        return True
    signed = dtype.is_int and dtype.signed and dtype.bits >= 32
    return signed and op in (Op.ADD, Op.SUB, Op.MUL, Op.NEG)


def arithmetic_helpers(
    values: Mapping[str, str],
    define: Callable[[str, str, str, str], str],
    function: Callable[[str, DType], str],
) -> dict[str, str]:
    """Texts by name; ``values`` are C's types, ``define`` makes a function of (result, name,
    arguments, text), ``function`` names the language's own.
    """
    wide, size = values["i64"], values["u64"]
    made = {
        "index_inside": define(
            "INDEX", "index_inside", "INDEX a, INDEX n", "return a >= 0 && a < n ? a : 0;"
        ),
        "index_element": define(
            "INDEX", "index_element", f"{wide} a, INDEX n",
            f"const {wide} b = a < 0 ? a + n : a; "
            "return (INDEX)(b < 0 ? 0 : b < n ? b : n - 1);",
        ),
        "index_least": define(
            "INDEX", "index_least", f"{size} a, INDEX n",
            f"return (INDEX)(a < ({size})n ? a : ({size})n - 1);",
        ),
    }  # fmt: skip
    for dtype in DTYPES.values():
        c = values[dtype.name]
        texts: dict[str, str] = {}
        if dtype.is_int:
            texts = _of_integers(dtype, c, values)
            for source in ("f32", "f64"):
                name = f"{source}_to_{dtype}"
                made[name] = define(
                    c,
                    name,
                    f"{values[source]} a",
                    _saturated(dtype, c, values[f"u{dtype.bits}"], source),
                )
        elif dtype.is_float and not dtype.is_half:
            texts = _of_floats(dtype, c, function)
        for op, text in texts.items():
            made[f"{op}_{dtype}"] = define(c, f"{op}_{dtype}", f"{c} a, {c} b", text)
        if dtype.is_int:
            text = "return a;"
            if dtype.signed:
                u = values[f"u{dtype.bits}"]
                text = f"return a < 0 ? ({c})(({u})0 - ({u})a) : a;"
            made[f"abs_{dtype}"] = define(c, f"abs_{dtype}", f"{c} a", text)
    return made


def common_helpers(
    values: Mapping[str, str],
    define: Callable[[str, str, str, str], str],
    function: Callable[[str, DType], str],
    as_bits: str,
    as_float: str,
) -> dict[str, str]:
    """Texts by name that differ between languages in words alone: arithmetic, arithmetic of
    indices, extremes, and words of two bf16 or four bytes. ``as_bits`` and ``as_float`` are the
    functions that read f32 as u32 and back, the rest is as in ``arithmetic_helpers``.
    """
    u, s, fma = values["u32"], values["u16"], function("fma", F32)
    index = {
        "least": ("INDEX a, INDEX b", "return a < b ? a : b;"),
        "swizzle": (
            "INDEX at, int row, int others, int chunk",
            "return at ^ (at >> row & others) << chunk;",
        ),
        "index_floordiv": ("INDEX a, INDEX b", "return a / b - (a % b < 0);"),
        "index_mod": ("INDEX a, INDEX b", "return a % b + (a % b < 0 ? b : 0);"),
    }
    low, high = f"{as_float}({{}} << 16)", f"{as_float}({{}} & 0xffff0000u)"
    lows, highs = (", ".join(x.format(n) for n in "ab") for x in (low, high))
    steps = f"{fma}({lows}, {fma}({highs}, c))"
    cut = f"return {as_bits}(a) >> 16 | ({as_bits}(b) & 0xffff0000u);"
    words = {
        "pair_bf16": (u, f"{s} a, {s} b", f"return ({u})a | ({u})b << 16;"),
        "pair_f32": (u, "float a, float b", cut),
        "low_bf16x2": ("float", f"{u} a", f"return {low.format('a')};"),
        "high_bf16x2": ("float", f"{u} a", f"return {high.format('a')};"),
        "dot2_bf16x2": ("float", f"{u} a, {u} b", f"const float c = 0.0f; return {steps};"),
        "dot2_add_f32": ("float", f"{u} a, {u} b, float c", f"return {steps};"),
    }
    made = {name: define("INDEX", name, *text) for name, text in index.items()}
    made |= {name: define(c, name, *text) for name, (c, *text) in words.items()}
    for dtype in DTYPES.values():
        if dtype.is_half or dtype.is_bool:
            continue
        c = values[dtype.name]
        for op, sign in (("max", ">"), ("min", "<")):
            test = f"a != a || a {sign} b" if dtype.is_float else f"a {sign} b"
            text = f"return ({test}) ? a : b;"
            made[f"{op}_{dtype}"] = define(c, f"{op}_{dtype}", f"{c} a, {c} b", text)
    return made | _byte_helpers(u, define) | arithmetic_helpers(values, define, function)


def _byte_helpers(word: str, define: Callable[[str, str, str, str], str]) -> dict[str, str]:
    """Texts by name of words of four bytes, and of two halves; ``word`` is C's type of one,
    ``define`` as above.
    """
    arguments = ", ".join(f"{{0}} {x}" for x in "abcd")
    joined = " | ".join(f"({word})(b{i}) << {8 * i}" for i in range(4))
    made = {}
    for one in ("signed char", "unsigned char"):
        name = f"quad_{one[0].replace('s', 'i')}8"
        parts = " ".join(f"const unsigned char b{i} = {x};" for i, x in enumerate("abcd"))
        made[name] = define(word, name, arguments.format(one), f"{parts} return {joined};")
    for p in ("u8x4", "i8x4"):
        for q in ("u8x4", "i8x4"):
            terms = " + ".join(f"{_byte('a', p, i)} * {_byte('b', q, i)}" for i in range(4))
            text = f"return (int)(({word})c + ({word})({terms}));"
            name = f"dot4_{p}_{q}"
            made[name] = define("int", name, f"{word} a, {word} b, int c", text)
        for first, name in enumerate((f"even_{p}", f"odd_{p}")):
            one, other = (f"({word})({_byte('a', p, i)})" for i in (first, first + 2))
            text = f"return (int)(({one} & 65535u) | {other} << 16);"
            made[name] = define("int", name, f"{word} a", text)
    halves = ("((int)(({0}){1} << 16) >> 16)", "({1} >> 16)")
    products = [" * ".join(half.format(word, x) for x in "ab") for half in halves]
    total = " + ".join(f"({word})({product})" for product in products)
    made["dot2i_i32"] = define("int", "dot2i_i32", "int a, int b", f"return (int)({total});")
    added = f"return (int)(({word})c + {total});"
    made["dot2i_add_i32"] = define("int", "dot2i_add_i32", "int a, int b, int c", added)
    return made


def _byte(word: str, kind: str, i: int) -> str:
    """Byte ``i`` of a word as an int."""
    if kind == "u8x4":
        return f"(int)({word} >> {8 * i} & 255u)"
    return f"((int)({word} << {24 - 8 * i}) >> 24)"


def _of_integers(dtype: DType, c: str, values: Mapping[str, str]) -> dict[str, str]:
    u, bits = values[f"u{dtype.bits}"], dtype.bits
    sign = "a < 0 ? -1 : 0" if dtype.signed else "0"
    wide = values["u64"] if bits == 64 else values["u32"]
    inside = f"({u})b < {bits}"
    found = {
        "shl": f"return {inside} ? ({c})(({wide})a << b) : ({c})0;",
        "shr": f"return {inside} ? ({c})(a >> b) : ({c})({sign});",
    }
    loop = (
        f"{u} e = ({u})b; {wide} r = 1, x = ({wide})a; "
        "for (; e != 0; e >>= 1) { if (e & 1) r *= x; x *= x; } "
    )
    if not dtype.signed:
        return found | {
            "floordiv": f"return b == 0 ? ({c})0 : ({c})(a / b);",
            "mod": f"return b == 0 ? ({c})0 : ({c})(a % b);",
            "pow": f"{loop}return ({c})r;",
        }
    apart = "(a < 0) != (b < 0)"
    special = f"if (b == 0) return 0; if (b == -1) return {{}}; const {c} r = ({c})(a % b); "
    return found | {
        "floordiv": special.format(f"({c})(({wide})0 - ({wide})a)")
        + f"return ({c})(a / b - (r != 0 && {apart}));",
        "mod": special.format("0") + f"return ({c})(r + ((r != 0 && {apart}) ? b : 0));",
        "pow": f"if (b < 0 && a != 1 && a != -1) return 0; {loop}return ({c})r;",
    }


def _of_floats(dtype: DType, c: str, function: Callable[[str, DType], str]) -> dict[str, str]:
    fmod, floor, copysign = (function(name, dtype) for name in ("fmod", "floor", "copysign"))
    zero, one, half = f"({c})0", f"({c})1", f"({c})0.5"
    rest = f"{c} r = {fmod}(a, b); "
    apart = "(r < 0) != (b < 0)"
    return {
        "mod": f"{rest}if (r != 0) {{ if ({apart}) r += b; }} else r = {copysign}({zero}, b); "
        "return r;",
        "floordiv": f"if (b == 0) return a / b; const {rest}{c} q = (a - r) / b; "
        f"if (r != 0 && {apart}) q -= {one}; "
        f"if (q == 0) return {copysign}({zero}, a / b); "
        f"const {c} f = {floor}(q); return q - f > {half} ? f + {one} : f;",
    }


def _saturated(dtype: DType, c: str, u: str, source: str) -> str:
    """Comparisons with powers of two, which floats hold; NaN fails all of them."""
    suffix = "f" if source == "f32" else ""
    low, high = float(dtype.least).hex(), float(dtype.greatest + 1).hex()
    ones = f"(~({u})0)"
    greatest = f"({c})({ones} >> 1)" if dtype.signed else f"({c}){ones}"
    if dtype.bits < 32:
        greatest = f"({c}){dtype.greatest}"
    least = f"({c})(-{greatest} - 1)" if dtype.signed else f"({c})0"
    return (
        f"return a >= {high}{suffix} ? {greatest} : a <= {low}{suffix} ? {least} : "
        f"a == a ? ({c})a : ({c})0;"
    )
