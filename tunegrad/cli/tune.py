"""``tunegrad tune MODEL``: search for fast schedules within a budget, and store the winners."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import click

from tunegrad.cli.app import EXIT_INTERRUPTED, EXIT_MISMATCH, EXIT_USER_ERROR
from tunegrad.cli.files import make_default_place
from tunegrad.cli.options import (
    batch_option,
    device_option,
    dtype_option,
    example,
    json_option,
    models_argument,
    numerics_option,
    seed_option,
    set_option,
    store_option,
    threads_option,
    with_arguments,
)
from tunegrad.cli.output import emit, note
from tunegrad.cli.progress import search_display
from tunegrad.errors import NothingRunsError

_STARTING_S = 30.0
"""Longest start-up of a command that counts towards its budget: a longer one is other work."""

if TYPE_CHECKING:
    from tunegrad.config import TuneSettings
    from tunegrad.reports import TuneReport

__all__ = ["tune"]


@click.command(
    epilog=example(
        "tunegrad tune mlp --budget 20s --store tuned.db",
        "tunegrad tune mlp mlp[batch=32] --budget 30s --patience 200 --store tuned.db",
        "tunegrad tune mlp --train --batch 32 --budget 20s --store tuned.db",
    )
)
@models_argument
@batch_option
@set_option
@click.option(
    "--train",
    is_flag=True,
    help="Tune a step of training instead of inference: forward, loss, backward and update by SGD "
    "with momentum; --set train=adamw is another optimiser (sgd, adam, adamw, lamb, rmsprop), "
    "--set loss=mse another loss.",
)
@device_option
@threads_option
@click.option(
    "--budget",
    "budget_s",
    metavar="TIME",
    help="Wall-clock time of the whole command: 30s, 5m, 1h, or seconds.  [default: 5m]",
)
@click.option(
    "--searcher",
    metavar="NAME",
    help="How to search: portfolio, beam, evolutionary, bayesian, "
    "random or exhaustive.  "
    "[default: portfolio]",
)
@click.option(
    "--patience",
    type=int,
    metavar="N",
    help="Stop when N candidates in a row brought less than 1 %; 0: never.  [default: when "
    "less than 1 % is expected]",
)
@click.option(
    "--target-ms", type=float, metavar="MS", help="Stop when the whole model is that fast."
)
@click.option("--max-trials", type=int, metavar="N", help="Stop when N candidates were measured.")
@click.option(
    "--no-warm-start",
    is_flag=True,
    help="Take no seeds from similar kernels in the store.",
)
@store_option
@seed_option
@numerics_option
@dtype_option
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Measure on the machines of a Ray cluster: its HOST:6379, or local for one of this "
    "machine alone.",
)
@click.option(
    "--ray-kind",
    metavar="KIND",
    help="The kind of machine of the cluster that measures; the others are left out.",
)
@json_option
@click.option(
    "--log", metavar="FILE.jsonl", help="Append every event of the search to this file, one a line."
)
@click.pass_context
def tune(
    ctx: click.Context,
    /,
    models: tuple[str, ...],
    batch: int | None,
    arguments: tuple[str, ...],
    train: bool,
    no_warm_start: bool,
    as_json: bool,
    log: str | None,
    **given: Any,
) -> None:
    """Search for fast, correct schedules for MODEL, or for several within one budget; store the
    winners.

    MODEL is a name (resnet, resnet18, resnet50, encoder, mlp), a path to a TOML file, or
    package.module:function.

    The search stops early when less than 1 % is expected, and says how much time it saved. Several
    models are one search: a kernel that they share is searched once, and time goes where it saves
    most over all of them.

    Ctrl-C stops early: the best so far is kept, the table is printed, and the exit code is 130. Run
    the same command again to go on; nothing that was measured is measured twice.

    An absent device (null:sm_90a) runs nothing: all kernels are compiled by their default
    schedules, and the table says what each takes. Nothing is stored.

    At the end the outputs of the tuned model are compared with an independent evaluation. Winners
    that make them wrong are withdrawn from the store, the table says which, and the exit code is
    3. With --dtype the table says how far they are from those of the model in f32.
    """
    from tunegrad.config import resolve_settings

    if train and not any(said.startswith("train=") for said in arguments):
        arguments = (*arguments, "train=sgd")
    settings = resolve_settings(
        [with_arguments(model, batch, arguments) for model in models],
        json=as_json,
        log=log,
        warm_start=False if no_warm_start else None,
        **given,
    )
    if given["store"] is None:
        make_default_place(settings.store)
    try:
        reports = _tuned(settings, as_json=as_json)
    except NothingRunsError:
        ctx.exit(_compiled(settings, as_json=as_json))
    if reports[0].interrupted:
        note(
            f"interrupted: the best so far is kept in {reports[0].store}; run the same command "
            "again to go on"
        )
        ctx.exit(EXIT_INTERRUPTED)
    if any(r.voided or r.mismatch for r in reports):
        note(
            "a model computed something else than its graph says with what was tuned: see "
            "withdrawn and wrong outputs"
        )
        ctx.exit(EXIT_MISMATCH)


def _tuned(settings: TuneSettings, *, as_json: bool) -> tuple[TuneReport, ...]:
    """Tune, and print what came of it."""
    from tunegrad.cli.tables import tune_text
    from tunegrad.events import JsonlObserver, Observer, Warned

    with ExitStack() as stack:
        began_s = _began_s()
        observers: list[Observer] = []
        if settings.log is not None:
            log = JsonlObserver(settings.log, time.time, lambda text: display.observe(Warned(text)))
            observers.append(stack.enter_context(log))
        display = stack.enter_context(closing(search_display(began_s)))
        observers.append(display)
        from tunegrad.tune import tune_models

        reports = tune_models(settings, observers, began_s)
        emit(reports if settings.others else reports[0], tune_text(*reports), as_json=as_json)
        return reports


def _began_s() -> float:
    """Time at which this process began, on the monotonic clock: the budget is the command's."""
    import psutil

    age_s = time.time() - psutil.Process().create_time()
    # A clock that was set since then says anything.
    return time.monotonic() - (age_s if 0.0 <= age_s <= _STARTING_S else 0.0)


def _compiled(settings: TuneSettings, *, as_json: bool) -> int:
    """Compile for a device that runs nothing, and print what kernels take; the exit code."""
    from tunegrad.cli.tables import compiled_line, compiled_text
    from tunegrad.tune import compile_models

    reports = compile_models(settings, lambda row: note(compiled_line(row)))
    report = reports if settings.others else reports[0]
    emit(report, compiled_text(*reports), as_json=as_json)
    return EXIT_USER_ERROR if any(r.failed for r in reports) else 0
