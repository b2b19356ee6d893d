"""The f32 functions are as accurate as docs/NUMERICS.md says, on a part of the sample that its table was made from."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import special

from tools.fit_math import FITS, Fit, error_of, solve
from tools.measure_math import CASES, DOCUMENT, STRIDE, Case, Kernel, host, without_fma, worst
from tunegrad.ir.dtypes import F32, F64
from tunegrad.ir.expr import Op
from tunegrad.render import math_coefficients

_LIBRARY = {
    Op.EXP: np.exp, Op.LOG: np.log, Op.TANH: np.tanh, Op.ERF: special.erf, Op.SIN: np.sin, Op.POW: np.power,
}  # fmt: skip


def _documented(op: Op) -> tuple[float, float]:
    cells = rf"^\| {op} \|[^|]*\| ([0-9.]+) \|[^|]*\| ([0-9.]+) \|"
    row = re.search(cells, DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None, op
    return float(row[1]), float(row[2])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op.value)
@pytest.mark.parametrize("fused", [True, False], ids=["host", "baseline"])
def test_worst_error_of_a_sample_is_within_the_documented_one(case: Case, fused: bool) -> None:
    kernel = Kernel(case.op, target=host() if fused else without_fma())
    error, at = worst(case, kernel, STRIDE * 67)
    # The table is rounded to two digits, and the host may be one without FMA.
    bound = max(_documented(case.op)) if fused else _documented(case.op)[1]
    assert error <= bound + 0.005, f"at {at!r}"


@pytest.mark.parametrize("op", sorted(_LIBRARY))
@pytest.mark.parametrize("lanes", [1, 3, 4, 8])
def test_every_lane_count_gives_the_same_bits(op: Op, lanes: int) -> None:
    x = np.random.default_rng(1).uniform(-12, 12, 4800).astype(np.float32)
    arrays = (np.abs(x), x[::-1].copy()) if op is Op.POW else (x,)
    assert Kernel(op, F32, lanes)(*arrays).tobytes() == Kernel(op, F32, 16)(*arrays).tobytes()


@pytest.mark.parametrize("op", sorted(_LIBRARY))
@pytest.mark.parametrize("lanes", [1, 4])
def test_f64_is_as_good_as_the_library(op: Op, lanes: int) -> None:
    x = np.random.default_rng(2).uniform(0.01, 12, 400)
    arrays = (x, x[::-1].copy()) if op is Op.POW else (x,)
    np.testing.assert_allclose(Kernel(op, F64, lanes)(*arrays), _LIBRARY[op](*arrays), rtol=4e-16, atol=0)


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.name)
def test_coefficients_are_as_good_as_a_fresh_fit(fit: Fit) -> None:
    stored = getattr(math_coefficients, fit.name)
    assert len(stored) == fit.count
    assert error_of(fit, stored) <= 1.05 * error_of(fit, solve(fit))
