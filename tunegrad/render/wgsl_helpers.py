"""Functions in WGSL for what its own have not, or have otherwise: quotients and remainders, shifts
by too many bits, NaN in max and min, erf, powers.

Remainders are what is left of a quotient: ``%`` of negative numbers is undefined in GLSL, which
some compilers of WGSL go through.
"""

from __future__ import annotations

from .math_coefficients import ERF_LARGE, ERF_SMALL, ERF_SPLIT

__all__ = ["helpers"]

_INTEGERS = ("i32", "u32")


def helpers() -> dict[str, str]:
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
