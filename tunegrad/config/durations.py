"""Spans of time as people write them: ``90``, ``30s``, ``1h30m``, ``2d``."""

from __future__ import annotations

import math
import re

from tunegrad.errors import ConfigError

__all__ = ["parse_budget", "parse_duration"]

_SPAN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhdw])")
_SECONDS = re.compile(r"\d+(\.\d*)?|\.\d+")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def parse_duration(value: str | int | float) -> float | None:
    """Seconds of ``90``, ``30s``, ``5m``, ``1h30m``, ``2d`` or ``8w``; None for what is no positive
    finite time.
    """
    text = str(value).strip()
    if isinstance(value, bool) or not text:
        return None
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    elif "".join(n + unit for n, unit in _SPAN.findall(text)) == text:
        seconds = sum(float(n) * _UNIT_S[unit] for n, unit in _SPAN.findall(text))
    else:
        return None
    return seconds if 0.0 < seconds < math.inf else None


def parse_budget(value: str | int | float, place: str = "budget") -> float:
    """Seconds of a wall-clock budget: ``30s``, ``5m``, ``1h30m``, ``1d``, or a plain number of
    seconds.

    Raises ConfigError when it does not parse, or is not a positive finite time.
    """
    seconds = parse_duration(value)
    if seconds is None:
        rule = "a positive time such as 30s, 5m, 1h30m, 1d or 90 (seconds)"
        raise ConfigError(f"{place} {value!r} is not {rule}")
    return seconds
