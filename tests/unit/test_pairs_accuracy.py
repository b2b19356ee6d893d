"""Sums of bf16 pairs are as accurate, compiled, as docs/NUMERICS.md says."""

from __future__ import annotations

import re

import pytest

from tools.measure_bf16_dot import DRAWS, SHAPES, Shape, errors
from tools.numerics_page import table_of

SMALL = Shape(64, 768, 96)
UNIT = 2.0**-24


def test_table_has_every_row() -> None:
    table = table_of("measure_bf16_dot")
    rows = re.findall(r"^\| (.*), (.*?) \|.*e-0\d \|$", table, re.MULTILINE)
    assert rows == [(str(shape), draw) for shape in SHAPES for draw in DRAWS]


@pytest.mark.parametrize("numerics", ["contract", "bf16-dot"])
@pytest.mark.parametrize("draw", DRAWS)
def test_error_is_that_of_an_f32_sum(draw: str, numerics: str) -> None:
    largest, rms = errors(SMALL, draw, numerics, seeds=1)  # type: ignore[arg-type]
    assert 0 < rms <= UNIT * SMALL.k**0.5
    assert rms < largest <= 4 * UNIT * SMALL.k**0.5
