"""A kernel's text read back is that kernel; what is no kernel's text is one error that says where
and why.
"""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest

from tests.graph_builders import matmul, relu, tensor
from tests.kernel_corpus import NAMES, corpus_kernel, kernels_of
from tests.pair_builders import DOT
from tools.golden import FOLDER
from tunegrad.config import resolve_settings
from tunegrad.errors import KernelTextError, UserError
from tunegrad.ir.dtypes import BOOL, F32, I32
from tunegrad.ir.expr import Apply, Const, IndexValue, Inside, Load, Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.index import Range, Valid
from tunegrad.ir.kernel import Axis, Kernel, Param, Store, axis_name
from tunegrad.ir.layout import Layout, Part
from tunegrad.ir.parse_kernel import LONGEST_KERNEL, parse_kernel
from tunegrad.ir.target import Target
from tunegrad.ir.variants import parts_of
from tunegrad.opts import Space
from tunegrad.planning import allowed
from tunegrad.tuning.workload import workload_of_spec

TARGET = Target("cpu", "cpu", "generic", vector_bytes=64, registers=32, threads=2)
(GEMM,) = (
    launch.kernel
    for launch in schedule((relu(matmul(tensor("a", 4, 6), tensor("b", 6, 8))),)).launches
)


def check(kernel: Kernel) -> Kernel:
    """The kernel from its text, which is the same one."""
    found = parse_kernel(kernel.text)
    assert found.text == kernel.text
    assert found.key == kernel.key
    assert found == kernel.canonical()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_kernel_texts_of_every_kind_are_read_back_and_lower_to_the_same_program(name: str) -> None:
    for kernel in kernels_of(name):
        found = check(kernel)
        assert found.flops == kernel.flops
        ours, theirs = Space(found, TARGET), Space(kernel.canonical(), TARGET)
        default = theirs.defaults()[0]
        assert ours.defaults()[0].text == default.text
        assert str(ours.lower(default)) == str(theirs.lower(default))


@pytest.mark.parametrize(
    ("name", "numerics"),
    [(name, "contract") for name in ("mlp", "resnet18", "resnet50", "encoder")]
    + [("encoder", "bf16-dot")],
)
def test_kernel_texts_of_every_model_and_variant_are_read_back(name: str, numerics: str) -> None:
    for use in workload_of_spec(resolve_settings(name).model, 0, numerics, DOT).kernels:
        for kernel in (
            use.kernel,
            *(p for v in allowed(use.kernel, numerics) for p in parts_of(use.kernel, v)),
        ):
            check(kernel)


def test_kernel_texts_of_the_golden_forms_are_read_back() -> None:
    files = sorted(FOLDER.glob("*.txt"))
    for path in files:
        _, _, rest = path.read_text(encoding="utf-8").partition("\nkernel\n")
        text = "kernel\n" + rest.partition("\n\n== actions ==")[0]
        assert parse_kernel(text).text == text
    assert len(files) > 5


def test_kernel_text_with_a_fixed_schedule_is_read_back() -> None:
    fixed = replace(GEMM, fixed="tile(axis=a, size=2)\n  store p0[a] = v0")
    assert parse_kernel(fixed.text).fixed == fixed.fixed


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((2, 3, 4), (Part(0, 1, 2), Part(2, 1, 4), Part(1, 1, 3))),
        ((1, 32, 5), (Part(0, 1, 1), Part(1, 16, 2), Part(2, 1, 5), Part(1, 1, 16))),
        ((16, 5), (Part(0, 16, 1), Part(1, 1, 5), Part(0, 1, 16))),
        ((3, 5), (Part(0, 16, 1), Part(1, 1, 5), Part(0, 1, 16))),
        ((40,), (Part(0, 8, 5), Part(0, 2, 4), Part(0, 1, 2))),
        ((1,), ()),
        ((), ()),
    ],
)
def test_kernel_text_has_every_layout(shape: tuple[int, ...], parts: tuple[Part, ...]) -> None:
    axes = tuple(Axis("abc"[d], extent) for d, extent in enumerate(shape))
    param = Param("y", F32, shape, "out", Layout(shape, parts))
    kernel = Kernel((param,), axes, (Store("y", tuple(a.index for a in axes), Const(0.5, F32)),))
    assert check(kernel).params[0].layout.parts == parts


def chosen(valid: Valid) -> Apply:
    return Apply(Op.WHERE, (Inside(valid), Const(1.0, F32), Const(2.0, F32)), F32)


@pytest.mark.parametrize(
    "expr",
    [
        *(
            Const(v, F32)
            for v in (0.0, -0.0, 1e-45, -3.5e38, 0.1, 1e16, float("inf"), float("-inf"))
        ),
        chosen(Valid((Range(Axis("a", 8).index * 3 % 7, 2, 5),))),
        chosen(Valid()),
        IndexValue(Axis("a", 8).index * -2 // 3 + Axis("a", 8).index % 3 * 5 - 4, F32),
        IndexValue(Axis("a", 1).index, F32),
    ],
    ids=str,
)  # fmt: skip
def test_kernel_text_has_every_expression(expr) -> None:
    a = Axis("a", 8)
    found = check(
        Kernel((Param.dense("y", F32, (8,), "out"),), (a,), (Store("y", (a.index,), expr),))
    )
    assert str(found.stages[0].expr) == str(expr)


def test_kernel_text_of_one_store_has_equal_expressions_once() -> None:
    a = Axis("a", 8)
    twice = tuple(Apply(Op.EXP, (Load("x", (a.index,), F32),), F32) for _ in range(2))
    params = (Param.dense("y", F32, (8,), "out"), Param.dense("x", F32, (8,), "in"))
    kernel = Kernel(params, (a,), (Store("y", (a.index,), Apply(Op.ADD, twice, F32)),))
    expr = check(kernel).stages[0].expr
    assert expr.args[0] is expr.args[1]


TEXT = dedent(
    """\
    kernel
      param p0 f32[4,8] out row
      param p1 f32[4,6] in row
      param p2 f32[6,8] in row
      axis a:4 b:8
      v0 = add over ra:6 in f32: mul(p1[a, ra], p2[ra, b])
      store p0[a, b] = max(v0, 0.0:f32)"""
)

# What is put for what, how far behind its begin the error is (None: it is of the whole), and part
# of what it says.
DAMAGED = {
    "nothing": (TEXT, "", None, "found the end, expected 'kernel\\n'"),
    "other names": ("p0", "C", 0, "found 'C f32[4,8] out row', expected 'p0 '"),
    "dtype": ("f32[4,8]", "f33[4,8]", 0, "expected one of bool, i8, i16"),
    "role": ("out", "inout", 0, "found 'inout row', expected one of in, const, out"),
    "layout": ("row", "0", 0, "expected a layout that tells all positions apart"),
    "layout of another rank": ("row", "0 1 2", 0, "expected a layout of 2 dimensions"),
    "huge extent": ("4,8", "4,99999999999999999999", 2, "expected an integer of at most"),
    "large extent": ("4,8", "4,1099511627777", 2, "expected an integer from 0 to 1099511627776"),
    "large shape": ("4,8", "1099511627776,8", 0, "16 dimensions and 1099511627776 elements"),
    "negative extent": ("a:4", "a:-4", 2, "expected an integer from 1 to"),
    "axis": ("a:4 b:8", "a:4 c:8", 3, "found ' c:8', expected a stage on a line of its own"),
    "operation": ("add", "plus", 0, "found 'plus over ra:6 in f32: m', expected one of neg, exp"),
    "no reduction": ("v0 = add over ra:6", "v0 = add of ra:6", 8, "expected ' over '"),
    "stage": ("v0 = add", "v1 = add", 0, ("found 'v1 = add over ra:6 in f3', expected 'store', "
                                         "'v0 = ' or 't0 = '")),
    "unknown name": ("max(v0", "max(v1", 4, "a parameter, a value, an operation or a dtype"),
    "axis of another stage": ("p0[a, b] =", "p0[a, x] =", 6,
        ("an axis with an extent above 1 (a, b, "
        "ra)")),
    "argument": ("max(v0, ", "max(", 11, "found ')', expected ', '"),
    "types": ("0.0:f32", "0:i32", -8, "expected arguments that max takes, not f32, i32"),
    "literal": ("0.0:f32", "0x0:f32", 0, "found '0x0:f32)'"),
    "literal of a type": ("0.0:f32", "0.5:i32", 0, "expected a literal of i32"),
    "unordered sum": ("p1[a, ra]", "p1[ra+a, ra]", 3, "expected terms in order, each once"),
    "unsimplified sum": ("p1[a, ra]", "p1[(a)%2+2*(a)//2, ra]", 3,
        ("expected an index with nothing to "
        "simplify")),
    "unsimplified quotient": ("p1[a, ra]", "p1[(a)//4, ra]", 3,
        ("expected an index with nothing to "
        "simplify")),
    "zero divisor": ("p1[a, ra]", "p1[(a)//0, ra]", 8, "expected an integer from 2 to"),
    "out of bounds": ("p1[a, ra]", "p1[a, b]", None, "p1: index b if always leaves [0, 6)"),
    "written twice": ("p0[a, b] =", "p0[a, 0] =", None, "writes some elements twice"),
    "vain condition": ("p1[a, ra]", "p1[a, ra if 0<=a<4]", 12,
        ("expected a condition with nothing to "
        "simplify")),
    "zeros": ("0.0:f32", "0.00:f32", 3, "found '0:f32)', expected ':f32)', as it is printed"),
    "blank": (" = max", "  = max", 0, "expected ' = '"),
    "line": ("\n  store", "\n\n  store", 0, "expected a stage on a line of its own"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "behind", "message"), DAMAGED.values(), ids=list(DAMAGED))
def test_kernel_text_that_is_damaged_is_an_error_that_says_where(
    old: str, new: str, behind: int | None, message: str
) -> None:
    assert parse_kernel(TEXT).text == TEXT
    offset = 0 if behind is None else TEXT.index(old) + behind
    with pytest.raises(KernelTextError) as caught:
        parse_kernel(TEXT.replace(old, new, 1))
    assert (caught.value.offset, message in str(caught.value)) == (offset, True), str(caught.value)
    assert str(caught.value).startswith(f"kernel text, at {offset}: found ")
    assert isinstance(caught.value, UserError)


def stored(expression: str, lines: str = "") -> str:
    """A kernel with one input, as text."""
    params = "  param p0 f32[16] out row\n  param p1 f32[16] in row\n"
    return f"kernel\n{params}  axis a:16\n{lines}  store p0[a] = {expression}"


def doubled(times: int) -> str:
    """Lines that each use the one before twice: 2**times operations."""
    lines = "".join(f"  t{i + 1} = add(t{i}, t{i})\n" for i in range(times))
    return stored(f"t{times}", "  t0 = p1[a]\n" + lines)


BOMBS = {
    "too long": (" " * (LONGEST_KERNEL + 1), f"at most {LONGEST_KERNEL}"),
    "operations too deep": (stored("exp(" * 5_000 + "p1[a]" + ")" * 5_000), "100 deep"),
    "casts too deep": (stored("f64(f32(" * 2_000), "100 deep"),
    "divisions too deep": (stored("p1[" + "(" * 10_000), "divisions at most 8 deep"),
    "shared lines in a chain": (
        stored("t200", "  t0 = p1[a]\n" + "".join(f"  t{i + 1} = exp(t{i})\n" for i in range(200))),
        ("100 "
            "deep"),
    ),
    "exponential": (doubled(60), "16777216 operations"),
    "many terms": (
        stored(f"p1[{'+'.join(sorted(f'(a+{k})%{n}' for n in (5, 6, 7, 9, 10, 11, 13) for k in range(1, 5)))}]"),
        "at most 24 terms",
    ),
    "many parameters": ("kernel\n" + "".join(f"  param p{i} f32[] in row\n" for i in range(999)),
        ("at most "
        "256")),
    "many axes": ("kernel\n  axis " + " ".join(f"{axis_name(i)}:2" for i in range(99)),
        ("at most 64 "
        "axes")),
    "numbers past 64 bits": (stored(f"p1[{1 << 39}*({1 << 38}*a)%{(1 << 39) + 1}]"),
        ("that 64 bits "
        "hold")),
    "an axis too long to run through": (
        ("kernel\n  param p0 f32[4] out row\n  axis a:1099511627776\n  store p0[a if 0<=a<4] "
        "= 0.0:f32"),
        "can not be proved",
    ),
    "a product of axes too long to run through": (
        TEXT.replace("ra:6", "ra:9999 rb:999").replace("p1[a, ra",
            "p1[a, (3*ra+5*rb)%7").replace("p2[ra", "p2[(ra)%6"),
        "can not be proved",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BOMBS.values(), ids=list(BOMBS))
def test_kernel_text_that_would_cost_without_bound_is_an_error(text: str, message: str) -> None:
    with pytest.raises(KernelTextError) as caught:
        parse_kernel(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 600


def test_kernel_text_with_an_integer_literal_that_does_not_fit_is_an_error() -> None:
    a = Axis("a", 2)
    for value, good in ((2**31 - 1, True), (-(2**31), True), (2**31, False)):
        text = Kernel(
            (Param.dense("y", I32, (2,), "out"),),
            (a,),
            (Store("y", (a.index,), Const(value, I32)),),
        ).text
        if good:
            assert parse_kernel(text).text == text
        else:
            with pytest.raises(KernelTextError, match="constant 2147483648 does not fit i32"):
                parse_kernel(text)


def test_kernel_text_with_shared_lines_keeps_what_is_shared() -> None:
    kernel = corpus_kernel("winograd_input")
    found = check(kernel)
    lines = [line for line in kernel.text.splitlines() if line.startswith("  t")]
    assert len(lines) > 3
    assert (
        found.flops == kernel.flops < sum(replace(kernel, stages=(s,)).flops for s in kernel.stages)
    ), "sums that several stores use count once"


def test_kernel_text_of_bools_is_read_back() -> None:
    a = Axis("a", 2)
    check(
        Kernel(
            (Param.dense("y", BOOL, (2,), "out"),),
            (a,),
            (Store("y", (a.index,), Const(True, BOOL)),),
        )
    )
