"""Ages as people write them: 12h, 30d, 8w."""

from __future__ import annotations

import re

import click

__all__ = ["age_s"]

_AGE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[smhdw])")
_AGE_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def age_s(value: str, option: str) -> float:
    """Seconds of an age. Raises BadParameter, naming the option, for what is none."""
    match = _AGE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(
            f"{value!r} is not an age such as 12h, 30d or 8w", param_hint=f"'{option}'"
        )
    return float(match["number"]) * _AGE_S[match["unit"]]
