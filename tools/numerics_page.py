"""The tables of docs/NUMERICS.md that a tool measures, each between two marks."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DOCUMENT", "table_of", "write_table"]

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
