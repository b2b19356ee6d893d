"""Budgets are written as people say them, and a bad one is refused in one line."""

from __future__ import annotations

import pytest

from tunegrad.config import parse_budget
from tunegrad.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("90", 90.0),
        ("1.5h", 5400.0),
        (".5m", 30.0),
        (" 2s ", 2.0),
        ("1h30m", 5400.0),
        ("5d", 432_000.0),
    ],
)
def test_budget_parses_seconds_minutes_and_hours(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize(("value", "seconds"), [(90, 90.0), (1.5, 1.5)])
def test_budget_takes_a_number_as_seconds(value: float, seconds: float) -> None:
    assert parse_budget(value) == seconds


@pytest.mark.parametrize(
    "text", ["-5m", "-1", "0", "0s", "", "soon", "5 minutes", "5y", "inf", "nan", "1e9h", "5m30"]
)
def test_budget_that_is_not_a_positive_time_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match="is not a positive time such as 30s, 5m, 1h30m, 1d or 90"
    ) as caught:
        parse_budget(text)
    assert repr(text) in str(caught.value)


def test_budget_true_is_not_one_second() -> None:
    with pytest.raises(ConfigError, match="budget True is not a positive time"):
        parse_budget(True)


def test_budget_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a positive time"):
        parse_budget("9" * 400 + "h")


def test_budget_message_names_its_place() -> None:
    with pytest.raises(ConfigError, match=r"nightly\.toml: tune\.budget 'x' is not"):
        parse_budget("x", "nightly.toml: tune.budget")
