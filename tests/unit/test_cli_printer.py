"""Tables: plain and stable where they are piped, within the columns of a terminal elsewhere."""

from __future__ import annotations

import os
import pty
import sys
import termios

import pytest

from tunegrad.cli.output import page_width, wrapped
from tunegrad.cli.tables import printer, table

HEADER = ("kernel", "uses", "share %", "default ms", "gain (95 %)", "candidates")
ROWS = [
    ("winograd4 output of conv3x3 64->64 56x56 +add +relu", "2", "0.4", "0.2023",
     "1.35x (1.31-1.38)", "120 (3 wrong, 1 crashed)"),
    ("conv7x7s2", "1", "28.2", "30.76", "no difference", "0"),
]  # fmt: skip


def on_a_terminal(columns: int | None, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(printer, "page_width", lambda: columns)
    return table(HEADER, ROWS, left=("kernel", "candidates"))


def test_piped_table_is_as_wide_as_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on_a_terminal(None, monkeypatch).splitlines()
    assert len(found) == 4
    assert found[2].startswith("winograd4 output of conv3x3 64->64 56x56 +add +relu     2  ")
    assert found == on_a_terminal(200, monkeypatch).splitlines()


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_table_fits_a_terminal_and_keeps_every_figure_whole(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = on_a_terminal(columns, monkeypatch)
    assert max(map(len, found.splitlines())) <= columns
    for row in ROWS:
        for cell in row[1:5]:
            assert cell in found
    assert all(word in found for word in ROWS[0][0].split())


@pytest.mark.parametrize("columns", [20, 40])
def test_table_that_does_not_fit_is_a_block_a_row(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = on_a_terminal(columns, monkeypatch)
    assert max(map(len, found.splitlines())) <= columns
    assert "gain (95 %) no difference" in " ".join(found.split())


def test_cells_of_a_terminal_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printer, "page_width", lambda: 30)
    found = table(("name", "n"), [("bad \x1b[2J name that is rather long", "1")], left=("name",))
    assert "\x1b" not in found
    assert "\\x1b" in found


def test_width_is_that_of_stdout_where_it_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    try:
        with os.fdopen(slave, "w") as terminal:
            monkeypatch.setattr(sys, "stdout", terminal)
            termios.tcsetwinsize(slave, (30, 91))
            assert page_width() == 91
        with open(os.devnull, "w", encoding="utf-8") as nothing:  # noqa: PTH123  a device
            monkeypatch.setattr(sys, "stdout", nothing)
            assert page_width() is None
    finally:
        os.close(master)
    monkeypatch.setattr(sys, "stdout", None)
    assert page_width() is None


def test_long_lines_break_between_words_and_keep_their_indent() -> None:
    text = "short\n    stage(param=p2, at=load) vectorize(axis=b1) upcast(axis=a1)\n\nend"
    assert wrapped(text, 40).split("\n") == [
        "short",
        "    stage(param=p2, at=load)",
        "      vectorize(axis=b1) upcast(axis=a1)",
        "",
        "end",
    ]
    assert wrapped(text, 100) == text
    assert wrapped("x" * 50 + " y", 20) == "x" * 50 + "\n  y"
