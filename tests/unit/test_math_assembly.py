"""The f32 functions are instructions: no call survives, on machines with and without FMA, AVX and
SSE4.1.
"""

from __future__ import annotations

import platform
import re
from typing import Literal

import pytest

from tools.measure_math import loop
from tunegrad.devices.host.codegen import assembly
from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import F32, F64, I32
from tunegrad.ir.expr import Op
from tunegrad.ir.target import Target
from tunegrad.render.math import FUNCTIONS, definitions, library

x86_only = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 assembly"
)

AVX512 = ("skylake-avx512", "znver4")


def _calls(
    op: Op, arch: str, lanes: int, dtype: object = F32, opt_level: Literal[1, 2] = 2
) -> list[str]:
    text = assembly(
        loop(op, F64 if dtype is F64 else F32, lanes, arch in AVX512),
        Target("t", "cpu", arch),
        opt_level,
    )
    return re.findall(r"^\s+(?:call\w*\s.*|jmp\w*\s+[A-Za-z_*].*)$", text, re.MULTILINE)


@x86_only
@pytest.mark.parametrize("arch", ["x86-64", "nehalem", "haswell", "skylake-avx512", "znver4"])
@pytest.mark.parametrize("op", sorted(FUNCTIONS))
def test_f32_code_calls_nothing(op: Op, arch: str) -> None:
    assert {lanes: _calls(op, arch, lanes) for lanes in (1, 4, 8, 16)} == {
        1: [],
        4: [],
        8: [],
        16: [],
    }


@x86_only
@pytest.mark.parametrize("op", sorted(FUNCTIONS))
def test_the_light_pipeline_inlines_f32_code(op: Op) -> None:
    assert {lanes: _calls(op, "znver4", lanes, opt_level=1) for lanes in (1, 16)} == {1: [], 16: []}


@x86_only
def test_f64_code_calls_the_library_so_the_search_for_calls_can_find_one() -> None:
    assert any("erf" in line for line in _calls(Op.ERF, "haswell", 4, F64))


@x86_only
def test_exp_uses_the_whole_register() -> None:
    assert "zmm" in assembly(loop(Op.EXP, F32, 16), Target("t", "cpu", "znver4"))


def test_definition_is_an_inline_function_of_its_name() -> None:
    (made,) = definitions(Op.POW, F32, 4)
    name, text = made.name, made.text
    assert name == "tg.pow.f32x4"
    head = (
        "define internal <4 x float> @tg.pow.f32x4(<4 x float> %x, <4 x float> %y) "
        "alwaysinline nounwind {"
    )
    assert text.splitlines()[0] == head


def test_one_lane_is_a_scalar() -> None:
    assert definitions(Op.EXP, F32, 1)[-1].text.startswith(
        "define internal float @tg.exp.f32x1(float %x)"
    )


def test_library_declares_and_defines_once() -> None:
    wanted = [
        (Op.EXP, F32, 8),
        (Op.ERF, F32, 8),
        (Op.EXP, F32, 8),
        (Op.POW, F64, 2),
        (Op.SIN, F32, 8),
    ]
    heads = [
        line for line in library(wanted).splitlines() if line.startswith(("declare", "define"))
    ]
    assert len(heads) == len(set(heads)) == 8
    assert heads[:4] == sorted(
        {line for w in wanted for made in definitions(*w) for line in made.declared}
    )


def test_library_does_not_depend_on_the_order_of_requests() -> None:
    wanted = [(op, dtype, lanes) for op in FUNCTIONS for dtype in (F32, F64) for lanes in (1, 16)]
    assert library(wanted) == library(sorted(wanted, key=str, reverse=True))


@pytest.mark.parametrize(
    ("op", "dtype", "lanes", "message"),
    [
        (
            Op.EXP,
            I32,
            4,
            "on 4 lanes of i32: definitions exist for cos, erf, exp, log, log10, log2, pow, sin",
        ),
        (Op.SQRT, F32, 4, "sqrt on 4 lanes of f32"),
        (Op.EXP, F32, 0, "exp on 0 lanes of f32"),
    ],
)
def test_what_has_no_definition_is_an_internal_error(
    op: Op, dtype: object, lanes: int, message: str
) -> None:
    with pytest.raises(InternalError, match=message):
        definitions(op, dtype, lanes)  # type: ignore[arg-type]
