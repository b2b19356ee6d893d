"""The one printer of tables.

    a terminal     rich lays the table out for its width: names and lists fold, headers break at
                   spaces, figures stay whole; a block a row where not even the figures fit
    anything else  plain columns as wide as their cells, the same on every machine: for pipes,
                   files and tests

Cells are data that others may have written: what a terminal would act on is escaped.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence

from tunegrad.cli.output import page_width, printable

__all__ = ["table"]

_LEAST_NAME = 12


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[str] = (),
    indent: int = 0,
) -> str:
    """Columns aligned right, but those named in ``left``; a rule under the header; no trailing
    blanks.

    As wide as it needs to be, or as the terminal is less ``indent`` columns.
    """
    width = page_width()
    plain = _plain(header, rows, left)
    if width is None or max(map(len, plain.splitlines())) <= width - indent:
        return plain
    figures = [name not in left for name in header]
    widths = [
        max(*map(len, h.split(" ")), *(len(row[i]) for row in rows), 1)
        if figures[i]
        else _LEAST_NAME
        for i, h in enumerate(header)
    ]
    if rows and sum(widths) + len(widths) > width - indent:
        return _records(header, rows, width - indent)
    return _laid_out(header, rows, left, width - indent)


def _records(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """A block a row, where not even the figures fit side by side."""
    blocks = []
    for row in rows:
        facts = "; ".join(f"{h} {c}" for h, c in zip(header[1:], row[1:], strict=True) if c)
        blocks += textwrap.wrap(row[0], width) or [""]
        blocks += textwrap.wrap(
            facts, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    return printable("\n".join(blocks))


def _plain(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str]) -> str:
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    to_left = [name in left for name in header]

    def text(line: Sequence[str]) -> str:
        cells = (
            c.ljust(w) if lj else c.rjust(w) for c, w, lj in zip(line, widths, to_left, strict=True)
        )
        return "  ".join(cells).rstrip()

    return "\n".join(
        [text(header), "  ".join("-" * w for w in widths), *(text(row) for row in rows)]
    )


def _laid_out(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str], width: int
) -> str:
    """The table within so many columns."""
    from rich.box import Box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    ruled = Box("    \n    \n -  \n    \n    \n    \n    \n    \n", ascii=True)
    found = Table(box=ruled, show_edge=False, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for name in header:
        if name in left:
            least = min(_LEAST_NAME, max(len(name), 1))
            found.add_column(Text(name), overflow="fold", min_width=least)
        else:
            found.add_column(Text(name.replace(" ", "\n")), justify="right", no_wrap=True)
    for row in rows:
        found.add_row(*(Text(printable(cell)) for cell in row))
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, force_terminal=False).print(found)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))
