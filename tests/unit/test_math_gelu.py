"""gelu from erf: the composition a model uses, where 1 + erf cancels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from tools.measure_math import TARGETS, Array, Kernel
from tunegrad.ir.expr import Op
from tunegrad.ir.target import Target

HALF, ONE, ROOT = np.float32(0.5), np.float32(1), np.float32(0.7071067811865476)


def _gelu(kernel: Kernel, x: Array) -> Array:
    return HALF * x * (ONE + kernel(x * ROOT))


@pytest.mark.parametrize("target", [made for _, made in TARGETS], ids=[name for name, _ in TARGETS])
def test_gelu_of_negative_numbers_is_within_a_millionth(target: Callable[[], Target]) -> None:
    x = np.linspace(-40, 0, 2_000_001, dtype=np.float32)
    wide = x.astype(np.float64)
    result = _gelu(Kernel(Op.ERF, target=target()), x)
    assert np.abs(result - 0.5 * wide * special.erfc(-wide / np.sqrt(2))).max() < 3e-7


def test_gelu_of_positive_numbers_keeps_its_digits() -> None:
    x = np.linspace(1e-6, 40, 2_000_001, dtype=np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(
        _gelu(Kernel(Op.ERF), x), 0.5 * wide * special.erfc(-wide / np.sqrt(2)), rtol=3e-7
    )


def test_gelu_far_out_is_zero_or_the_argument() -> None:
    x = np.array([-40, -6, 6, 40], np.float32)
    np.testing.assert_array_equal(_gelu(Kernel(Op.ERF), x), np.array([0, 0, 6, 40], np.float32))
