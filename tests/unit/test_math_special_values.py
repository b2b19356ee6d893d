"""Edges of the f32 functions: NaN, infinities, signed zeros, overflow, underflow, saturation,
symmetry.
"""

from __future__ import annotations

import ctypes
import itertools
import platform

import numpy as np
import pytest

from tools.measure_math import TARGETS, Array, Kernel, pairs, patterns
from tunegrad.ir.expr import Op
from tunegrad.ir.target import Target

INF, NAN = np.inf, np.nan
LEAST = float(np.finfo(np.float32).smallest_subnormal)
SPECIALS = np.array(
    [0.0, -0.0, LEAST, -LEAST, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 2.5, -2.5, 4194305.0,
        8388609.0, 16777215.0,
     -16777215.0, 16777216.0, -16777216.0, 3.4028235e38, -3.4028235e38,
    0.99999994, 1.0000001, INF, -INF, NAN],
    np.float32,
)  # fmt: skip


@pytest.fixture(params=[made for _, made in TARGETS], ids=[name for name, _ in TARGETS])
def target(request: pytest.FixtureRequest) -> Target:
    made: Target = request.param()
    return made


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        (Op.EXP, [INF, -INF, 0.0, -0.0, 88.8, 1e30, -104.0, -1e30], [INF, 0, 1, 1, INF, INF, 0, 0]),
        (Op.LOG, [0.0, -0.0, -1.0, -INF, -LEAST, INF, 1.0], [-INF, -INF, NAN, NAN, NAN, INF, 0.0]),
        (
            Op.LOG2,
            [0.0, -0.0, -1.0, -INF, -LEAST, INF, 1.0, LEAST, 0.5, 8.0],
            [-INF, -INF, NAN, NAN, NAN, INF, 0.0, -149, -1, 3],
        ),
        (
            Op.LOG10,
            [0.0, -0.0, -1.0, -INF, -LEAST, INF, 1.0, 10.0, 1e10, LEAST],
            [-INF, -INF, NAN, NAN, NAN, INF, 0.0, 1, 10, -44.853468],
        ),
        (
            Op.TANH,
            [0.0, -0.0, INF, -INF, 9.02, -9.02, LEAST, 1e-20],
            [0.0, -0.0, 1, -1, 1, -1, LEAST, 1e-20],
        ),
        (Op.ERF, [0.0, -0.0, INF, -INF, 3.92, -3.92, 1e30], [0.0, -0.0, 1, -1, 1, -1, 1]),
        (
            Op.SIN,
            [0.0, -0.0, INF, -INF, NAN, LEAST],
            [0.0, -0.0, NAN, NAN, NAN, LEAST],
        ),
        (  # 1.5707964 and 3.4028235e38 are f32's nearest to pi / 2, and its largest number
            Op.TAN,
            [0.0, -0.0, INF, -INF, NAN, LEAST, -LEAST, 1.5707964, -1.5707964, 3.4028235e38],
            [0.0, -0.0, NAN, NAN, NAN, LEAST, -LEAST, -22877332.0, 22877332.0, -0.61179793],
        ),
        (Op.COS, [0.0, -0.0, INF, -INF, NAN, LEAST], [1, 1, NAN, NAN, NAN, 1]),
    ],
)
def test_edges_are_exact(op: Op, x: list[float], expected: list[float], target: Target) -> None:
    result = Kernel(op, target=target)(np.array(x, np.float32))
    want = np.array(expected, np.float32)
    np.testing.assert_array_equal(result, want)
    here = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(result[here]), np.signbit(want[here]))


@pytest.mark.parametrize("op", [Op.EXP, Op.LOG, Op.LOG2, Op.LOG10, Op.TANH, Op.ERF, Op.SIN, Op.TAN])
def test_every_kind_of_nan_goes_through(op: Op, target: Target) -> None:
    x = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(Kernel(op, target=target)(x)).all()


def test_exp_below_the_normal_numbers_is_zero_or_subnormal(target: Target) -> None:
    x = np.linspace(-200, -87.33655, 5000, dtype=np.float32)
    result = Kernel(Op.EXP, target=target)(x)
    want = np.exp(x.astype(np.float64)) if target.avx512 else np.zeros_like(x)
    np.testing.assert_allclose(result, want, rtol=0, atol=LEAST if target.avx512 else 0)
    assert not np.signbit(result).any()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads a flag of x86")
def test_exp_of_a_mask_does_not_underflow(target: Target) -> None:
    """Where a result underflows, some processors take a hundred cycles for an instruction."""
    libm, underflow = ctypes.CDLL("libm.so.6"), 0x10
    kernel, x = Kernel(Op.EXP, target=target), np.array([-INF, -1e30, -200.0, -104.5], np.float32)
    libm.feclearexcept(underflow)
    kernel(x)
    assert not libm.fetestexcept(underflow)


def test_exp_keeps_its_digits_down_to_the_least_normal_number(target: Target) -> None:
    x = np.linspace(-87.33654, -86.5, 5000, dtype=np.float32)
    np.testing.assert_allclose(
        Kernel(Op.EXP, target=target)(x), np.exp(x.astype(np.float64)), rtol=1.2e-7
    )


def test_exp_is_finite_up_to_the_largest_number(target: Target) -> None:
    x = np.array([88.7, 88.722, 88.7228], np.float32)
    np.testing.assert_allclose(
        Kernel(Op.EXP, target=target)(x), np.exp(x.astype(np.float64)), rtol=1.2e-7
    )


@pytest.mark.parametrize("op", [Op.TANH, Op.ERF, Op.SIN, Op.TAN])
def test_odd_functions_are_odd_to_the_bit(op: Op) -> None:
    kernel = Kernel(op)
    x: Array = next(patterns(4087))
    x = x[np.isfinite(x)]
    forth, back = kernel(x), kernel(-x)
    here = ~np.isnan(forth)
    assert (forth[here].view(np.uint32) ^ back[here].view(np.uint32) == 0x80000000).all()


@pytest.mark.parametrize("op", [Op.TANH, Op.ERF])
def test_saturating_functions_stay_in_their_range(op: Op, target: Target) -> None:
    result = Kernel(op, target=target)(np.linspace(-12, 12, 1_000_001, dtype=np.float32))
    assert np.abs(result).max() == 1.0


def test_pow_has_the_special_values_of_c(target: Target) -> None:
    x, y = (
        np.array(side, np.float32)
        for side in zip(*itertools.product(SPECIALS, SPECIALS), strict=True)
    )
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    result = Kernel(Op.POW, target=target)(x, y)
    here = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(result), ~here)
    np.testing.assert_array_equal(np.signbit(result[here]), np.signbit(want[here]))
    np.testing.assert_allclose(result, want, rtol=1.2e-7)


def test_pow_of_small_whole_numbers_is_exact() -> None:
    x, y = (
        np.array(side, np.float32)
        for side in zip(*itertools.product(range(-9, 10), range(7)), strict=True)
    )
    np.testing.assert_array_equal(Kernel(Op.POW)(x, y), x.astype(np.float64) ** y)


def test_pow_samples_hold_every_case() -> None:
    x, y = next(pairs(1))
    with np.errstate(invalid="ignore"):
        whole = y == np.round(y)
    assert ((x < 0) & whole).sum() > 1000
    assert ((x < 0) & ~whole & ~np.isnan(y)).sum() > 1000
    assert (np.abs(y) > 1e20).sum() > 1000
