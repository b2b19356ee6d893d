"""``tunegrad run MODEL``: latency with the stored winners, next to the default schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

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
from tunegrad.cli.output import emit


@click.command(epilog=example("tunegrad run mlp --store tuned.db"))
@model_options
@place_options
@click.option(
    "--on-miss",
    type=click.Choice(["default", "nearest", "error"]),
    default="default",
    metavar="default|nearest|error",
    help="Schedule of a kernel without a stored winner.  [default: default]",
)
@click.option(
    "--weights",
    metavar="FILE.safetensors",
    help="A checkpoint.  [default: weights drawn from the seed]",
)
@seed_option
@dtype_options
@json_option
def run(
    model: str,
    batch: int | None,
    arguments: tuple[str, ...],
    on_miss: Literal["default", "nearest", "error"],
    weights: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure MODEL's latency: stored winners, then default schedules.

    Never searches, never writes to the store. The table says, for each kernel, whether the store
    had a winner for it, and which field of the machine's fingerprint differed where it had not.
    With --dtype it also says how far the outputs are from those of the model in f32.
    """
    from tunegrad.cli.tables import run_text
    from tunegrad.config import resolve_settings

    model = with_arguments(model, batch, arguments)
    settings = resolve_settings(model, json=as_json, **given)
    dtype = given["dtype"] or settings.dtype  # bytes are another model, whose settings are in f32
    from tunegrad.inference import load

    loaded = load(
        model,
        device=settings.device,
        # None given: the default one, if there is one.
        store=None if given["store"] is None else settings.store,
        on_miss=on_miss,
        threads=settings.threads,
        weights=weights,
        seed=settings.seed,
        numerics=settings.numerics,
        dtype=dtype,
    )
    from tunegrad.tuning import busy_text, cpu_use, others_cpus

    used = cpu_use()
    report = loaded.benchmark()
    others = others_cpus(used, cpu_use())
    busy = busy_text(others, settings.threads)
    report = replace(report, others_cpus=others, busy=busy)
    if dtype != "f32":
        from tunegrad.inference import measured_deviation

        found = measured_deviation(loaded, model, weights, settings.seed)
        report = replace(report, deviation=found, dtype=dtype)
    emit(report, run_text(report), as_json=as_json)
