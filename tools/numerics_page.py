"""The tables of docs/NUMERICS.md that a tool measures, each between two marks."""

from __future__ import annotations

import math
import sys
from pathlib import Path

__all__ = ["DOCUMENT", "error_cell", "put_out", "table_of", "write_table"]

DOCUMENT = Path(__file__).parent.parent / "docs" / "NUMERICS.md"
_END = "<!-- end -->\n"


def table_of(tool: str) -> str:
    """The table that ``python -m tools.TOOL --write`` wrote last.

    Raises ValueError where its marks are missing.
    """
    return _parts(tool)[1]


def write_table(tool: str, table: str) -> None:
    """Put a table in the place of the one that this tool wrote last.

    Raises ValueError where its marks are missing.
    """
    before, _, after = _parts(tool)
    DOCUMENT.write_text(before + table + after, encoding="utf-8")


def put_out(tool: str, table: str, write: bool) -> None:
    """Print a table, or ``write`` it as ``write_table``."""
    if write:
        write_table(tool, table)
    else:
        sys.stdout.write(table)


def error_cell(error: float, peer: float | None = None) -> str:
    """An error in ulps, empty where it is NaN; with a ``peer``'s, bold where it is no number, or
    over twice that one and over 1.
    """
    if peer is None and math.isnan(error):
        return ""
    text = f"{error:.0e}" if error >= 1e4 else f"{error:.2f}"
    return text if peer is None or error <= max(1.0, 2 * peer) else f"**{text}**"


def _parts(tool: str) -> tuple[str, str, str]:
    """The page up to and with the first mark, what is between the marks, and the rest."""
    begin = f"<!-- begin: python -m tools.{tool} --write -->\n"
    head, found, rest = DOCUMENT.read_text(encoding="utf-8").partition(begin)
    table, end, after = rest.partition(_END)
    if not (found and end):
        raise ValueError(
            f"{DOCUMENT.name}: has no place for the table of {tool}, marked {begin.strip()}"
        )
    return head + begin, table, end + after
