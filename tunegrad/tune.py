"""Tuning: search for fast schedules of a model's kernels within a budget, and store the winners.

    report = tune(settings, observers)                          what `tunegrad tune` calls
    report = tune("resnet18", budget_s=300, store="tuned.db")   the same from Python
    report = tune_callable(lambda a, b: a @ b, a, b, budget_s=10, store="tuned.db")

The parts are in ``tunegrad.tuning``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from tunegrad.config import ModelSpec, TuneSettings, resolve_settings
from tunegrad.events import Observer
from tunegrad.reports import DoctorReport, ShowRow, TuneReport

__all__ = ["doctor", "show", "tune", "tune_callable"]


def tune(
    model: TuneSettings | str,
    observers: Sequence[Observer] = (),
    *,
    device: str | None = None,
    budget_s: float | None = None,
    store: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    seed: int | None = None,
    searcher: str | None = None,
) -> TuneReport:
    """Tune a model: resolved settings, or a model's name with the settings that are not its defaults.

    Every trial is in the store before the next one starts; the same call again goes on where this one stopped, and
    measures nothing once ``budget_s`` seconds are spent. Raises UserError in one line.
    """
    from tunegrad.tuning.session import run_session
    from tunegrad.tuning.workload import workload_of_spec

    settings = model
    if not isinstance(settings, TuneSettings):
        settings = resolve_settings(
            settings, device=device, threads=threads, budget=budget_s, searcher=searcher, store=_path(store), seed=seed
        )
    return run_session(settings, workload_of_spec(settings.model, settings.seed), observers)


def tune_callable(
    function: Callable[..., Any],
    *arrays: Any,
    budget_s: float | None = None,
    store: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    seed: int | None = None,
    searcher: str | None = None,
    observers: Sequence[Observer] = (),
) -> TuneReport:
    """Tune a function of tensors, for arrays of these shapes and dtypes; arrays that it captures are constants."""
    from tunegrad.tuning.session import run_session
    from tunegrad.tuning.workload import workload_of_function

    settings = resolve_settings(
        "mlp", device="cpu", threads=threads, budget=budget_s, searcher=searcher, store=_path(store), seed=seed
    )
    workload = workload_of_function(function, arrays)
    spec = ModelSpec(workload.name, f"kernels:{workload.key}", source="a function")
    from dataclasses import replace

    return run_session(replace(settings, model=spec), workload, observers)


def show(model: str, settings: TuneSettings) -> list[ShowRow]:
    """One row per distinct kernel: what it would run with, and where that comes from. Measures nothing."""
    from tunegrad.tuning.show import show as rows

    return rows(settings)


def doctor() -> DoctorReport:
    """What this machine is, what is installed, and its measured peaks."""
    from tunegrad.tuning.doctor import doctor as examine

    return examine()


def _path(store: str | os.PathLike[str] | None) -> str | None:
    return None if store is None else os.fspath(store)
