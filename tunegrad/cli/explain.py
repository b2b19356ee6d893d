"""``tunegrad explain MODEL``: where its time goes, how near to the limits, what actions bought."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunegrad.cli.options import (
    dtype_options,
    example,
    json_option,
    model_options,
    place_options,
    seed_option,
    with_arguments,
)
from tunegrad.cli.output import emit, note

if TYPE_CHECKING:
    from tunegrad.config import TuneSettings
    from tunegrad.events import Event
    from tunegrad.explain import Stage


@click.command(epilog=example("tunegrad explain mlp --store tuned.db --budget 10s"))
@model_options
@click.option(
    "--kernel",
    metavar="NAME|KEY",
    default="",
    help="Explain this kernel alone, with all of the budget.",
)
@click.option(
    "--budget",
    "budget_s",
    metavar="TIME",
    default="20s",
    help="Time to measure for: 20s, 2m, or seconds.  [default: 20s]",
)
@click.option(
    "--asm",
    is_flag=True,
    help="Read the machine code of every kernel; with --kernel, print its hot loop too.",
)
@click.option(
    "--dump",
    metavar="DIR",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    help="Write every form of each kernel's schedule to DIR/KEY: from the kernel to the text.",
)
@click.option(
    "--top",
    metavar="N",
    type=click.IntRange(0),
    help="Take only the N heaviest kernels apart.  [default: all, while the budget lasts]",
)
@click.option(
    "--stage",
    type=click.Choice(("graph", "kernel", "loops", "program", "source", "asm")),
    help="Print this form of one kernel, and measure nothing.",
)
@click.option(
    "--trace",
    is_flag=True,
    help="Print what every action and pass changed of one kernel, and measure nothing.",
)
@place_options
@seed_option
@dtype_options
@json_option
def explain(
    model: str, kernel: str, stage: Stage | None, trace: bool, as_json: bool, **given: Any
) -> None:
    """Explain MODEL's kernels: their limits, their time now, what each action bought.

    Times every kernel with its stored winner, or its default schedule, next to what its arithmetic
    and its memory traffic allow on this machine; then takes the heaviest kernels apart, action by
    action, while the budget lasts, next to schedules that differ in one action. Never writes to
    the store. docs/EXPLAIN.md says how to read the answer.
    """
    if trace and stage is not None:
        raise click.UsageError("--stage and --trace exclude each other")
    from tunegrad.cli.tables import explain_text
    from tunegrad.config import resolve_settings

    model = with_arguments(model, given.pop("batch"), given.pop("arguments"))
    looked_at = {name: given.pop(name) for name in ("budget_s", "asm", "top", "dump")}
    settings = resolve_settings(model, json=as_json, **given)
    place = (
        None if given["store"] is None else settings.store
    )  # none given: the default one, if there is one
    if stage is not None or trace:
        _form(settings, kernel, stage, place, as_json=as_json)
        return
    from tunegrad.tune import explain as explain_model

    report = explain_model(settings, [_Lines()], kernel=kernel, store=place, **looked_at)
    emit(report, explain_text(report), as_json=as_json)


def _form(
    settings: TuneSettings, kernel: str, stage: Stage | None, place: Path | None, *, as_json: bool
) -> None:
    """Print one form of a kernel, or how each came of the one before."""
    from tunegrad.cli.tables import form_heading, trace_text
    from tunegrad.tune import explain_form, explain_trace

    if stage is None:
        trace = explain_trace(settings, kernel=kernel, store=place)
        note(form_heading(trace))
        emit(trace, trace_text(trace), as_json=as_json)
        return
    form = explain_form(settings, stage, kernel=kernel, store=place)
    note(form_heading(form))
    emit(form, form.text.expandtabs(4), as_json=as_json)


class _Lines:
    """Says on stderr which kernel is timed."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def observe(self, event: Event) -> None:
        """Take one event."""
        from tunegrad.events import KernelStarted, Warned

        if isinstance(event, Warned):
            note(f"warning: {event.message}")
        elif isinstance(event, KernelStarted):
            note(f"{'taking apart' if event.key in self._seen else 'timing'} {event.name}")
            self._seen.add(event.key)
