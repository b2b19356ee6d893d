"""Where a command's result goes: stdout, as text for people or as JSON."""

from __future__ import annotations

import json

import click

from tunegrad.reports import to_json

__all__ = ["emit", "note"]


def emit(report: object, text: str, *, as_json: bool) -> None:
    """Print the report on stdout: ``text``, or the report itself as JSON."""
    click.echo(json.dumps(to_json(report), indent=2, allow_nan=False) if as_json else text)


def note(message: str) -> None:
    """Print one line for the reader on stderr."""
    click.echo(message, err=True)
