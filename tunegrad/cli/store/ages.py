"""Ages as people write them: 12h, 30d, 8w."""

from __future__ import annotations

import click

__all__ = ["age_s"]


def age_s(value: str, option: str) -> float:
    """Seconds of an age. Raises BadParameter, naming the option, for what is none."""
    from tunegrad.config import parse_duration

    seconds = parse_duration(value)
    if seconds is None:
        raise click.BadParameter(
            f"{value!r} is not an age such as 12h, 30d or 8w", param_hint=f"'{option}'"
        )
    return seconds
