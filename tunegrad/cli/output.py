"""Where a command's result goes: stdout, as text for people or as JSON.

Names, actions and messages come from stores and files that others may have written: what a terminal
would act on is escaped here, whatever a command prints.
"""

from __future__ import annotations

import json

import click

from tunegrad.reports import to_json

__all__ = ["emit", "note", "printable"]


def emit(report: object, text: str, *, as_json: bool) -> None:
    """Print the report on stdout: ``text``, or the report itself as JSON."""
    click.echo(
        json.dumps(to_json(report), indent=2, allow_nan=False) if as_json else printable(text)
    )


def note(message: str) -> None:
    """Print one line for the reader on stderr."""
    click.echo(printable(message), err=True)


def printable(text: str) -> str:
    """The text with every character but line ends that is not printable as an escape."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
