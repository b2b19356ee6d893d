"""Variants are as accurate, compiled, as docs/NUMERICS.md says: the smallest shape of its table
measured again.
"""

from __future__ import annotations

import re

import pytest

from tools.measure_winograd import SHAPES, Shape, errors
from tools.numerics_page import table_of

SLACK = 1.5
"""Other machines have other default schedules, and so other orders of summation."""


def _table() -> str:
    return table_of("measure_winograd")


def _documented(shape: Shape) -> dict[str, float]:
    row = re.search(rf"^\| {shape} \|(.*)$", _table(), re.MULTILINE)
    assert row is not None, shape
    return dict(
        zip(("direct", "winograd2", "winograd4"), map(float, row[1].split("|")[:3]), strict=True)
    )


def test_table_has_every_shape() -> None:
    assert len(_table().splitlines()) == 2 + len(SHAPES)
    for shape in SHAPES:
        _documented(shape)


@pytest.fixture(scope="module")
def measured() -> dict[str, float]:
    return errors(SHAPES[-1], seeds=1)


@pytest.mark.parametrize("variant", ["direct", "winograd2", "winograd4"])
def test_measured_error_is_the_documented_one(measured: dict[str, float], variant: str) -> None:
    stated = _documented(SHAPES[-1])[variant]
    assert stated / 10 < measured[variant] <= SLACK * stated


def test_the_larger_tile_loses_digits(measured: dict[str, float]) -> None:
    assert measured["winograd4"] > 4 * measured["winograd2"]
