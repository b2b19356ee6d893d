"""A share of the table of errors in docs/NUMERICS.md, measured again."""

import re

import pytest

from tools.measure_functions import FUNCTIONS, PAIRS, ROWS, function_row, pair_row, reduction_row
from tools.numerics_page import table_of

SHARE = 4_000


def within(name: str, error: float) -> None:
    """At most twice PyTorch's error, as the page has it, on whatever CPU this is."""
    row = re.search(
        rf"^\| {re.escape(name)} \| [0-9.e+]+ \| ([0-9.e+]+)",
        table_of("measure_functions"),
        re.MULTILINE,
    )
    assert row is not None, name
    assert error <= max(1.0, 2 * float(row.group(1))), name


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda c: c.name)
def test_worst_error_of_a_function_is_at_most_twice_pytorchs(case):
    name, (error,) = function_row(case, SHARE, beside=False)
    within(name, error)


@pytest.mark.parametrize("case", PAIRS, ids=lambda c: c[0])
def test_worst_error_of_a_function_of_two_is_at_most_twice_pytorchs(case):
    name, (error,) = pair_row(*case, SHARE, beside=False)
    within(name, error)


@pytest.mark.parametrize("case", ROWS, ids=lambda c: c[0])
def test_worst_error_of_a_reduction_is_at_most_twice_pytorchs(case):
    name, (error,) = reduction_row(*case, 1000, 0.0, beside=False)
    within(name, error)


def test_page_shows_sixty_functions_and_reductions():
    assert len(FUNCTIONS) + len(PAIRS) + len(ROWS) >= 59


def test_page_has_no_row_over_twice_pytorchs():
    assert "**" not in table_of("measure_functions")
