"""Text as Markdown: fenced blocks, tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["fence", "table"]


def fence(text: str, language: str = "text") -> str:
    """``text`` as a code block, without spaces at line ends."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join([f"```{language}", *lines, "```"])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
