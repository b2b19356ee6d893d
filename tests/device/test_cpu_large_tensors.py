"""Tensors of more than 2**31 elements: every index is right past that."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg

EXTENT = 3_200_000_000
NEAR = 3_100_000_000


@pytest.mark.slow
def test_cpu_reads_elements_past_2_31():
    x = np.zeros(EXTENT, np.bool_)  # pages that are not touched take no memory
    places = np.array([2**31 - 1, 2**31, 2**31 + 1, NEAR, EXTENT - 1])
    x[places] = True

    def parts(t: tg.Tensor) -> tuple[tg.Tensor, ...]:
        ends = t[2**31 - 2 : 2**31 + 4], t[NEAR - 3 : NEAR + 3], t[EXTENT - 4 :]
        rows = t.reshape(EXTENT // 64, 64)
        return (*(~e for e in ends), ~rows[NEAR // 64])

    found = tg.compile(parts, x)(x)
    row = NEAR // 64 * 64
    expected = x[2**31 - 2 : 2**31 + 4], x[NEAR - 3 : NEAR + 3], x[EXTENT - 4 :], x[row : row + 64]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, ~b)
