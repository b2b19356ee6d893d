"""Tables: the value, its printer as text, and figures and words as reports write them.

    Table.of(report.rows, words("kernel", lambda r: r.kernel), figure("ms", lambda r: r.ms, ms))

    a terminal     rich lays the table out for its width: names and lists fold, headers break at
                   spaces, figures stay whole; columns that a table can spare are left out
                   where names had no room; a block a row where not even the figures fit
    anything else  plain columns as wide as their cells, the same on every machine: for pipes,
                   files and tests

Cells are data that others may have written: what a terminal would act on is escaped.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from tunegrad.cli.output import page_width, printable
from tunegrad.lazy import dataclass

if TYPE_CHECKING:
    from tunegrad.paired import Interval

UNKNOWN = "-"

_NEAR_ONE = 0.005


def ms(value: float | None) -> str:
    """Milliseconds with as many decimals as are worth reading."""
    if value is None:
        return UNKNOWN
    decimals = 1 if value >= 100 else 2 if value >= 10 else 4 if value >= 0.001 or not value else 6
    return f"{value:.{decimals}f}"


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


def plural(count: int, noun: str, shown: str = "") -> str:
    """``1 candidate``, ``120 candidates``; ``shown`` is the count as text, where that says more."""
    return f"{shown or count} {noun}{'' if count == 1 else 's'}"


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
    return f"{percent:.1f}" if round(percent, 1) <= 100.0 else "> 100"


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
    return plural(threads, "thread")


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


Row = TypeVar("Row")

_LEAST_NAME = 12

_GOOD_NAME = 24
"""Columns in which the longest names of a table fold onto few lines."""

_Lines = Sequence[Sequence[str]]
"""The header, then the rows."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column: its name, and its cell of a row, None where there is nothing to show.

    ``left``: words rather than figures. ``spare``: a terminal that is too narrow may leave it out,
    the lowest number above 0 first.
    """

    name: str
    cell: Callable[[Row], object]
    left: bool = False
    spare: int = 0


def words(name: str, cell: Callable[[Row], object], spare: int = 0) -> Column[Row]:
    """A column of words, aligned left."""
    return Column(name, cell, left=True, spare=spare)


def figure(
    name: str,
    value: Callable[[Row], Any],
    written: Callable[[Any], object] = lambda value: value,
    spare: int = 0,
) -> Column[Row]:
    """A column of figures, aligned right; ``written`` makes the text of a value."""
    return Column(name, lambda row: written(value(row)), spare=spare)


@dataclass(frozen=True, slots=True)
class Table:
    """Names of columns and rows of cells, which text and HTML are printed from.

    ``left`` names the columns of words, ``spare`` those that may be left out, the first one first.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    left: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Row], *columns: Column[Row] | None) -> Self:
        """The table of these rows; a column that is None is left out."""
        shown = [c for c in columns if c is not None]
        spare = sorted((c for c in shown if c.spare), key=lambda c: c.spare)
        return cls(
            tuple(c.name for c in shown),
            tuple(tuple(c.cell(row) for c in shown) for row in rows),
            tuple(c.name for c in shown if c.left),
            tuple(c.name for c in spare),
        )

    def text(self, indent: int = 0) -> str:
        """The table as text, within the terminal less ``indent`` columns."""
        cells = [[UNKNOWN if c is None else str(c) for c in row] for row in self.rows]
        return table(self.header, cells, self.left, indent, self.spare)


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[str] = (),
    indent: int = 0,
    spare: Sequence[str] = (),
) -> str:
    """Columns aligned right, but those named in ``left``; a rule under the header; no trailing
    blanks.

    As wide as it needs to be, or as the terminal is less ``indent`` columns. Where that is too
    narrow it leaves out columns that are named in ``spare``, the first of them first.
    """
    lines: _Lines = [header, *rows]
    width = page_width()
    if width is None:
        return _plain(lines, left)
    width -= indent
    whole = lines
    for name in spare:
        if _plain_width(lines) <= width or _least_width(lines, left, _GOOD_NAME) <= width:
            break
        lines = _without(name, lines)
    if _plain_width(lines) <= width:
        return _plain(lines, left)
    if rows and _least_width(lines, left, _LEAST_NAME) > width:
        return _records(whole, width)
    return _laid_out(lines, left, width)


def _without(name: str, lines: _Lines) -> _Lines:
    """The table without a column, if it has that."""
    if name not in lines[0]:
        return lines
    at = lines[0].index(name)
    return [[*line[:at], *line[at + 1 :]] for line in lines]


def _widths(lines: _Lines) -> list[int]:
    """The longest cell of every column."""
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _plain_width(lines: _Lines) -> int:
    widths = _widths(lines)
    return sum(widths) + 2 * (len(widths) - 1)


def _least_width(lines: _Lines, left: Sequence[str], longest: int) -> int:
    """Columns in which it can be laid out, with so many for its longest names."""
    names = sorted(w for w, name in zip(_widths(lines), lines[0], strict=True) if name in left)
    folded = [*(min(w, _LEAST_NAME) for w in names[:-1]), *(min(w, longest) for w in names[-1:])]
    figures = [w for w, name in zip(_figures(lines), lines[0], strict=True) if name not in left]
    return sum(folded) + sum(figures) + 2 * (len(lines[0]) - 1)


def _figures(lines: _Lines) -> list[int]:
    """The longest cell of every column, where its name breaks at spaces."""
    header, *rows = lines
    return _widths([[max(name.split(" "), key=len) for name in header], *rows])


def _records(lines: _Lines, width: int) -> str:
    """A block a row, where not even the figures fit side by side."""
    header, *rows = lines
    blocks = []
    for row in rows:
        facts = "; ".join(f"{h} {c}" for h, c in zip(header[1:], row[1:], strict=True) if c)
        blocks += textwrap.wrap(row[0], width) or [""]
        blocks += textwrap.wrap(
            facts, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    return printable("\n".join(blocks))


def _plain(lines: _Lines, left: Sequence[str]) -> str:
    header, *rows = lines
    widths = _widths(lines)
    to_left = [name in left for name in header]

    def text(line: Sequence[str]) -> str:
        cells = (
            c.ljust(w) if lj else c.rjust(w) for c, w, lj in zip(line, widths, to_left, strict=True)
        )
        return "  ".join(cells).rstrip()

    return "\n".join(
        [text(header), "  ".join("-" * w for w in widths), *(text(row) for row in rows)]
    )


def _laid_out(lines: _Lines, left: Sequence[str], width: int) -> str:
    """The table within so many columns."""
    from rich.box import Box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    header, *rows = lines
    ruled = Box("    \n    \n -  \n    \n    \n    \n    \n    \n", ascii=True)
    found = Table(box=ruled, show_edge=False, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for name, natural, figure in zip(header, _widths(lines), _figures(lines), strict=True):
        if name in left:
            found.add_column(Text(name), overflow="fold", min_width=min(_LEAST_NAME, natural))
        else:
            broken = textwrap.fill(name, max(figure, 1))
            found.add_column(Text(broken), justify="right", no_wrap=True)
    for row in rows:
        found.add_row(*(Text(printable(cell)) for cell in row))
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, force_terminal=False).print(found)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))
