"""The f32 functions are as accurate as docs/NUMERICS.md says, on a part of the sample that its
table was made from.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy import special

from tools.fit_math import ERF_FITS, FITS, Fit, erf_table, error_of, solve
from tools.measure_math import CASES, STRIDE, TARGETS, Case, Kernel, host, without_avx512, worst
from tools.numerics_page import table_of
from tunegrad.ir import math_coefficients
from tunegrad.ir.dtypes import F32, F64
from tunegrad.ir.expr import Op
from tunegrad.ir.target import Target

_LIBRARY = {
    Op.EXP: np.exp, Op.LOG: np.log, Op.LOG2: np.log2, Op.LOG10: np.log10,
    Op.TANH: np.tanh, Op.ERF: special.erf, Op.SIN: np.sin,
    Op.COS: np.cos, Op.TAN: np.tan, Op.POW: np.power,
}  # fmt: skip


def _documented(op: Op) -> list[float]:
    row = re.search(
        rf"^\| {op} \|[^|]*\|" + r" ([0-9.]+) \|[^|]*\|" * len(TARGETS),
        table_of("measure_math"),
        re.MULTILINE,
    )
    assert row is not None, op
    return [float(cell) for cell in row.groups()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op.value)
@pytest.mark.parametrize("column", range(len(TARGETS)), ids=[name for name, _ in TARGETS])
def test_worst_error_of_a_sample_is_within_the_documented_one(case: Case, column: int) -> None:
    error, at = worst(case, Kernel(case.op, target=TARGETS[column][1]()), STRIDE * 67)
    # The table is rounded to two digits; the host may be one without AVX-512, or without FMA.
    assert error <= max(_documented(case.op)[column:]) + 0.005, f"at {at!r}"


@cache
def in_lanes(op: Op, lanes: int, target: Target) -> bytes:
    x = np.random.default_rng(1).uniform(-12, 12, 4800).astype(np.float32)
    arrays = (np.abs(x), x[::-1].copy()) if op is Op.POW else (x,)
    return Kernel(op, F32, lanes, target)(*arrays).tobytes()


@pytest.mark.parametrize("op", sorted(_LIBRARY))
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 24, 32])
@pytest.mark.parametrize("target", [host, without_avx512], ids=["host", "no AVX-512"])
def test_every_lane_count_gives_the_same_bits(
    op: Op, lanes: int, target: Callable[[], Target]
) -> None:
    assert in_lanes(op, lanes, target()) == in_lanes(op, 16, target())


@pytest.mark.parametrize("op", sorted(_LIBRARY))
@pytest.mark.parametrize("lanes", [1, 4])
def test_f64_is_as_good_as_the_library(op: Op, lanes: int) -> None:
    x = np.random.default_rng(2).uniform(0.01, 12, 400)
    arrays = (x, x[::-1].copy()) if op is Op.POW else (x,)
    np.testing.assert_allclose(
        Kernel(op, F64, lanes)(*arrays), _LIBRARY[op](*arrays), rtol=4e-16, atol=0
    )


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.name)
def test_coefficients_are_as_good_as_a_fresh_fit(fit: Fit) -> None:
    stored = getattr(math_coefficients, fit.name)
    assert len(stored) == fit.count
    assert error_of(fit, stored) <= 1.05 * error_of(fit, solve(fit))


def test_the_table_of_erf_is_as_good_as_a_fresh_fit() -> None:
    assert tuple(erf_table()) == math_coefficients.ERF_TABLE
    assert max(error_of(fit, solve(fit)) for fit in ERF_FITS) < 2.0**-24
