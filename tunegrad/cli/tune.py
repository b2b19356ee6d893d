"""``tunegrad tune MODEL``: search for fast schedules within a budget, and store the winners."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunegrad.cli import options as shared
from tunegrad.cli.app import EXIT_INTERRUPTED, EXIT_MISMATCH, EXIT_USER_ERROR
from tunegrad.cli.files import make_default_place
from tunegrad.cli.output import emit, note
from tunegrad.cli.progress import search_display
from tunegrad.errors import NothingRunsError

_STARTING_S = 30.0
"""Longest start-up of a command that counts towards its budget: a longer one is other work."""

if TYPE_CHECKING:
    from tunegrad.config import TuneSettings
    from tunegrad.inference import Quantized
    from tunegrad.reports import TuneReport


@click.command(
    epilog=shared.example(
        "tunegrad tune mlp --budget 20s --store tuned.db",
        "tunegrad tune mlp mlp[batch=32] --budget 30s --patience 200 --store tuned.db",
        "tunegrad tune mlp --train --batch 32 --budget 20s --store tuned.db",
        "tunegrad tune mlp --dry-run",
        "tunegrad tune mlp --dtype int8 --calibrate batches.npz --budget 20s --store tuned.db",
    )
)
@shared.models_argument
@shared.batch_option
@shared.set_option
@click.option(
    "--train",
    is_flag=True,
    help="Tune a step of training instead of inference: forward, loss, backward and update by SGD "
    "with momentum; --set train=adamw is another optimiser (sgd, adam, adamw, lamb, rmsprop), "
    "--set loss=mse another loss.",
)
@shared.device_option
@shared.threads_option
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
    "warm_start",
    flag_value=False,
    default=None,
    type=bool,
    help="Take no seeds from similar kernels in the store.",
)
@shared.store_option
@shared.seed_option
@shared.dtype_options
@click.option(
    "--calibrate",
    metavar="DATA",
    help="With --dtype int8: a folder of .npz and .npy files, or one, with batches of the inputs. "
    "Scales are kept beside the store, where run, explain, show and tune find them.",
)
@click.option(
    "--method",
    metavar="NAME",
    default="minmax",
    help="Range of a tensor in bytes: minmax, percentile or mse.  [default: minmax]",
)
@click.option(
    "--smooth",
    type=float,
    metavar="SHARE",
    help="Share of the spread of a tensor's channels that moves into the weights, 0 to 1, as 0.5.",
)
@click.option(
    "--max-error",
    type=float,
    metavar="ERROR",
    help="Layers that cost most stay in f32 until the outputs' relative error is at most that.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="NAME",
    help="A layer that stays in f32, by how its weight's name begins; several times for several.",
)
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
@click.option(
    "--dry-run", is_flag=True, help="Say what would be searched; measure and store nothing."
)
@shared.json_option
@click.option(
    "--log", metavar="FILE.jsonl", help="Append every event of the search to this file, one a line."
)
@click.pass_context
def tune(
    ctx: click.Context,
    /,
    models: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    calibrate: str | None,
    **given: Any,
) -> None:
    """Search for fast, correct schedules for MODEL, or for several within one budget; store the
    winners.

    MODEL is a name (`tunegrad models` lists them), a path to a TOML or an ONNX file, or
    package.module:function, which gives a model, a function of tensors with its examples, or a
    torch.nn.Module with its examples.

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

    --dtype int8 --calibrate DATA makes a model in bytes of the model's convolutions and linear
    layers, and tunes that one. At the end it prints the time in f32, bf16 and int8 beside the error
    of each on batches that were held out.
    """
    from tunegrad.config import resolve_settings

    batch, arguments = given.pop("batch"), given.pop("arguments")
    if given.pop("train") and not any(said.startswith("train=") for said in arguments):
        arguments = (*arguments, "train=sgd")
    names = [shared.with_arguments(model, batch, arguments) for model in models]
    quantised: Quantized | None = None
    bytes_of = {name: given.pop(name) for name in ("method", "smooth", "max_error", "keep")}
    if calibrate is not None:
        if dry_run:
            raise click.UsageError("--dry-run stores nothing, and --calibrate does: leave one out")
        quantised = _calibrated(names, calibrate, given, bytes_of)
    settings = resolve_settings(names, json=as_json, **given)
    if dry_run:
        _planned(settings, names, as_json=as_json)
        return
    if given["store"] is None:
        make_default_place(settings.store)
    try:
        reports = _tuned(settings, quantised, as_json=as_json)
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


def _planned(settings: TuneSettings, names: Sequence[str], *, as_json: bool) -> None:
    """Print the kernels that a search would be about, and its settings; nothing is measured."""
    from tunegrad.cli.tables import Table, duration, figure, ms, words
    from tunegrad.tune import show

    known = settings if settings.store.is_file() else replace(settings, store=Path(":memory:"))
    models = (settings.model, *settings.others)
    found = {
        name: show(replace(known, model=m, others=()))
        for name, m in zip(names, models, strict=True)
    }
    parts = []
    for label, rows in found.items():
        table = Table.of(
            rows,
            words("kernel", lambda r: r.kernel),
            figure("uses", lambda r: r.uses),
            words("now", lambda r: r.outcome),
            figure("ms", lambda r: r.tuned_ms, ms),
            figure("tried", lambda r: r.tried),
            figure("of about", lambda r: f"{r.space:.2g}"),
        )
        parts += [f"{label}:", table.text(), ""]
    searched = {r.key for rows in found.values() for r in rows if r.outcome != "fixed"}
    parts.append(
        f"{len(searched)} kernels would be searched for {duration(settings.budget_s)} by "
        f"{settings.searcher} on {settings.device} with --threads {settings.threads}; results "
        f"would go to {settings.store}. Other variants and cuts of the model may be searched, too."
    )
    emit(found, "\n".join(parts), as_json=as_json)


def _calibrated(
    names: list[str], data: str, given: dict[str, Any], options: dict[str, Any]
) -> Quantized:
    """Quantise the one model that is named, and write its scales beside the store.

    Raises ConfigError for another dtype than int8, or several models.
    """
    from tunegrad.config import calibration_file, resolve_settings
    from tunegrad.errors import ConfigError

    if given["dtype"] != "int8" or len(names) != 1:
        raise ConfigError(f"--calibrate {data}: it is for one model, with --dtype int8")
    settings = resolve_settings(names, **{**given, "dtype": "f32"})
    if given["store"] is None:
        make_default_place(settings.store)
    from tunegrad.inference import quantize

    note(f"calibrating {settings.model.name} on {data}")
    made = quantize(
        names[0], data, **options, seed=settings.seed, device=settings.device,
        threads=settings.threads, store=settings.store if settings.store.is_file() else False,
        numerics=settings.numerics,
    )  # fmt: skip
    made.save(calibration_file(settings.model.name, settings.store), names[0])
    return made


def _tuned(
    settings: TuneSettings, quantised: Quantized | None, *, as_json: bool
) -> tuple[TuneReport, ...]:
    """Tune, and print what came of it; of a model in bytes also its prices."""
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
        if quantised is not None and not reports[0].interrupted:
            priced = quantised.priced(settings.store)
            reports = (replace(reports[0], quantised=priced),)
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
