"""Figures and words as reports write them: milliseconds, durations, counts, gains, moments."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tunegrad.cli.output import printable

if TYPE_CHECKING:
    from tunegrad.paired import Interval

__all__ = [
    "UNKNOWN",
    "count_text",
    "duration",
    "gain_cell",
    "gain_text",
    "ms",
    "number",
    "peak_text",
    "percent",
    "plain",
    "shortened",
    "threads_text",
    "times",
    "when",
]

UNKNOWN = "-"
_NEAR_ONE = 0.005


def ms(value: float | None) -> str:
    """Milliseconds with as many decimals as are worth reading."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}" if value >= 10 else f"{value:.4f}"


def duration(seconds: float) -> str:
    """``4:07`` or ``1:04:07``."""
    whole = max(0, round(seconds))
    minutes, s = divmod(whole, 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"


def count_text(candidates: Mapping[str, int]) -> str:
    """``120``, or ``120 (3 wrong, 1 crashed)``: all trials, and those that did not end well."""
    counts = {str(status): count for status, count in candidates.items() if count}
    failed = ", ".join(
        f"{count} {status}" for status, count in sorted(counts.items()) if status != "ok"
    )
    total = str(sum(counts.values()))
    return f"{total} ({failed})" if failed else total


def gain_text(gain: float | None, interval: Interval | None) -> str:
    """``gain 1.35x (1.31 to 1.38)``; ``no difference (0.98 to 1.03)`` where 1 is among that; ``gain
    unknown`` where nothing says how sure it is.
    """
    if gain is None or interval is None:
        return "gain unknown"
    low, high = interval
    digits = _digits(low, gain, high)
    said = f"({low:.{digits}f} to {high:.{digits}f})"
    return f"no difference {said}" if low <= 1.0 <= high else f"gain {gain:.{digits}f}x {said}"


def gain_cell(gain: float | None, interval: Interval | None) -> str:
    """The same in a table, ``1.35x (1.31-1.38)``; ``-`` where it is unknown."""
    if gain is None or interval is None:
        return UNKNOWN
    if interval[0] <= 1.0 <= interval[1]:
        return "no difference"
    return gain_text(gain, interval).removeprefix("gain ").replace(" to ", "-")


def _digits(*ratios: float) -> int:
    """Decimals that tell ratios from 1, where they are near it."""
    return 2 if all(r == 1.0 or abs(r - 1.0) >= _NEAR_ONE for r in ratios) else 3


def peak_text(percent: float | None) -> str:
    """Return a share of the machine's peak as text.

    A kernel above 100 % shows that the peak was measured in a busy moment, or that its data lay in
    a cache whose bandwidth was not measured; by how much it is above says nothing then.
    """
    if percent is None:
        return UNKNOWN
    return f"{percent:.1f}" if percent <= 100.0 else "> 100"


def number(value: float | None, decimals: int = 1) -> str:
    """A number with so many decimals; ``-`` where it is unknown."""
    return UNKNOWN if value is None else f"{value:.{decimals}f}"


def percent(part: float | None) -> str:
    """A part of one as per cent, with one decimal."""
    return UNKNOWN if part is None else f"{100 * part:.1f}"


def times(ratio: float | None, decimals: int = 2) -> str:
    """``1.35x``; ``-`` where it is unknown."""
    return UNKNOWN if ratio is None else f"{ratio:.{decimals}f}x"


def threads_text(threads: int) -> str:
    """``1 thread``, ``8 threads``."""
    return f"{threads} thread{'s' if threads != 1 else ''}"


def shortened(text: str, most: int) -> str:
    """The text in at most so many letters, with ``...`` where it was longer."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def plain(text: str) -> str:
    """The text on one line, without characters that are not printable."""
    return printable(text).replace("\n", "\\n")


def when(moment_s: float) -> str:
    """A moment in UTC, to the minute."""
    try:
        return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{moment_s:g} s"
