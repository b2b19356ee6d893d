"""Output of a command's result: on stdout, as text for people or as JSON.

Names, actions and messages come from stores and files that others may have written: what a terminal
would act on is escaped here, whatever a command prints.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

import click

from tunegrad.errors import UserError

_NARROWEST = 20
_INDENT = 2


class OutputError(UserError):
    """stdout can not be written: it is closed, or its disk is full."""


def emit(report: object, text: str, *, as_json: bool) -> None:
    """Print the report on stdout: ``text``, or the report itself as JSON.

    Raises OutputError where stdout can not be written, BrokenPipeError where its reader left.
    """
    if as_json:
        from tunegrad.reports import to_json

        said = json.dumps(to_json(report), indent=2, allow_nan=False)
    else:
        said, width = printable(text), page_width()
        said = said if width is None else wrapped(said, width)
    say(f"{said}\n")


def page_width() -> int | None:
    """Columns of the terminal that stdout is; None where it is none."""
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    except (AttributeError, OSError, ValueError):
        return None
    return max(_NARROWEST, columns or 80) if sys.stdout.isatty() else None


def wrapped(text: str, width: int) -> str:
    """The text with lines longer than the terminal broken between words, and indented."""
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        if len(line) <= width or len(indent) + _INDENT >= width // 2:
            lines.append(line)
            continue
        lines += textwrap.wrap(
            line.strip(), width, initial_indent=indent, subsequent_indent=indent + " " * _INDENT,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join(lines)


@contextmanager
def stdout_of_results() -> Iterator[None]:
    """Leave stdout to ``say``: what a model's own code prints meanwhile goes to stderr, whether it
    is imported, made or traced.
    """
    before = sys.stdout
    if before is not None:
        _results.append(before)
        sys.stdout = sys.stderr
    try:
        yield
    finally:
        if before is not None:
            sys.stdout = _results.pop()


_results: list[TextIO] = []


def say(text: str) -> None:
    """Write text on stdout as it is, and flush it. Raises as ``emit`` does."""
    out = _results[-1] if _results else sys.stdout
    if out is None:
        raise OutputError("stdout: can not be written: it is closed")
    try:
        encoding = out.encoding or "utf-8"
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding), file=out, nl=False)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is still buffered must not fail again when Python exits.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        raise OutputError(f"stdout: can not be written: {error.strerror}") from error


def note(message: str) -> None:
    """Print one line for the reader on stderr; nothing where stderr can not be written."""
    with suppress(OSError):
        click.echo(printable(message), err=True)


def printable(text: str) -> str:
    """The text with every character but line ends that is not printable as an escape.

    Names of files that are UTF-8 are shown as such, whatever the locale made of them.
    """
    if any("\ud800" <= c <= "\udfff" for c in text):
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
