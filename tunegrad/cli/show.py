"""``tunegrad show MODEL``: its kernels, the actions each will run with, and their origin."""

from __future__ import annotations

from typing import Any

import click

from tunegrad.cli.options import (
    dtype_options,
    example,
    json_option,
    model_options,
    place_options,
    with_arguments,
)
from tunegrad.cli.output import emit


@click.command(epilog=example("tunegrad show mlp --store tuned.db"))
@model_options
@place_options
@dtype_options
@json_option
def show(
    model: str, batch: int | None, arguments: tuple[str, ...], as_json: bool, **given: Any
) -> None:
    """Show MODEL's kernels, their actions, and where each came from."""
    from tunegrad.cli.tables import show_text
    from tunegrad.config import resolve_settings

    model = with_arguments(model, batch, arguments)
    settings = resolve_settings(model, json=as_json, **given)
    from tunegrad.tune import show as show_model

    rows = show_model(settings)
    emit(rows, show_text(rows), as_json=as_json)
