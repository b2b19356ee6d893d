"""Questions about a model or the machine; nothing is tuned, and no store is written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tunegrad.config import ModelOptions, TuneSettings, check_names, parse_budget
from tunegrad.events import Event, Observer, check_observers
from tunegrad.frontend import Example, Model
from tunegrad.reports import DoctorReport, ExplainReport, ShowRow
from tunegrad.tune.given import model_of, settings_of, work_of

if TYPE_CHECKING:
    from tunegrad.explain import FormReport, Stage, TimedReport, TraceReport

EXPLAIN_BUDGET_S = 20.0
"""Seconds that ``explain`` times, unless it is told otherwise."""


def show(
    model: TuneSettings | Model | Example | str | os.PathLike[str], **options: Unpack[ModelOptions]
) -> list[ShowRow]:
    """One row per distinct kernel: what it would run with, and where that comes from.

    Measures nothing.

    A Model, or a model's name, with the settings that are not its defaults, or resolved settings.
    Raises UserError in one line.
    """
    from tunegrad.explain import show as rows

    check_names(options, ModelOptions.__optional_keys__)
    model = model_of(model)
    settings = settings_of(model, **options)
    return rows(settings, work_of(model, settings))


def explain(
    model: TuneSettings | Model | Example | str | os.PathLike[str],
    observers: Sequence[Observer] = (),
    *,
    kernel: str = "",
    budget_s: float | str = EXPLAIN_BUDGET_S,
    asm: bool = False,
    top: int | None = None,
    dump: Path | None = None,
    **options: Any,
) -> ExplainReport:
    """Explain a model's time: per kernel its bounds, its time now, and the gain of each action of
    its schedule.

    Measures for about ``budget_s`` seconds, in processes that can be killed; reads the store and
    never writes to it. ``options`` are ``store``, ``device``, ``threads``, ``seed``, ``numerics``
    and ``dtype``. ``kernel`` names one (or its key): that one is taken apart alone; else the
    ``top`` heaviest are, all where it is None. ``asm`` reads every kernel's machine code. ``dump``
    is a folder for every form of each kernel, by the beginning of its key. ``store`` as in
    ``load``: None is the default one if it exists, False is none; beside resolved settings it may
    say the one that they name, or False. Raises UserError in one line.
    """
    from tunegrad.explain import Asked
    from tunegrad.explain import explain as explained

    check_observers(observers)
    model = model_of(model)
    settings, with_store = _explained(model, options.pop("store", None), **options)

    def observe(event: Event) -> None:
        for observer in observers:
            observer.observe(event)

    asked = Asked(kernel, parse_budget(budget_s), asm, top, dump)
    made = work_of(model, settings)
    return explained(settings, observe, asked, with_store=with_store, made=made)


def explain_form(
    model: TuneSettings | Model | Example | str | os.PathLike[str],
    stage: Stage,
    *,
    kernel: str = "",
    store: str | os.PathLike[str] | Literal[False] | None = None,
    **settings: Any,
) -> FormReport:
    """One form of the kernel that ``kernel`` names, under the schedule that it runs with here:
    ``graph``, ``kernel``, ``loops``, ``program``, ``source`` or ``asm``.

    Nothing is measured; a device that only compiles will do. Arguments are those of ``explain``.
    Raises UserError in one line.
    """
    from tunegrad.explain import form_of_kernel

    model = model_of(model)
    settled, with_store = _explained(model, store, **settings)
    return form_of_kernel(settled, kernel, stage, with_store, work_of(model, settled))


def explain_trace(
    model: TuneSettings | Model | Example | str | os.PathLike[str],
    *,
    kernel: str = "",
    store: str | os.PathLike[str] | Literal[False] | None = None,
    **settings: Any,
) -> TraceReport:
    """Trace the changes that every action and pass makes on the way from the kernel to its text.

    As ``explain_form``.
    """
    from tunegrad.explain import trace_of_kernel

    model = model_of(model)
    settled, with_store = _explained(model, store, **settings)
    return trace_of_kernel(settled, kernel, with_store, work_of(model, settled))


def time_schedule(
    model: TuneSettings | Model | Example | str | os.PathLike[str],
    *,
    kernel: str,
    schedule: str,
    against: str | None = None,
    store: str | os.PathLike[str] | Literal[False] | None = None,
    **settings: Any,
) -> TimedReport:
    """Time a schedule of the kernel that ``kernel`` names in turns with another one, by default the
    one that it runs with here, after both were verified.

    Nothing is stored. Other arguments are those of ``explain``. Raises UserError in one line, also
    for a schedule that is not legal or computes something else.
    """
    from tunegrad.explain import time_schedule as timed

    model = model_of(model)
    settled, with_store = _explained(model, store, **settings)
    return timed(settled, kernel, schedule, against, with_store, work_of(model, settled))


def _explained(
    model: TuneSettings | Model | str,
    store: str | os.PathLike[str] | Literal[False] | None,
    **given: Any,
) -> tuple[TuneSettings, bool]:
    """The settings of what is explained, and whether a store says its schedules."""
    check_names(given, ModelOptions.__optional_keys__)
    place = Path(store).expanduser() if store else None
    if isinstance(model, TuneSettings) and place == model.store:
        place = None
    settings = settings_of(model, store=place, **given)
    return settings, bool(store) or (store is None and settings.store.is_file())


def doctor() -> DoctorReport:
    """Report on this machine: its devices, installed software, and measured peaks."""
    from tunegrad.explain import doctor as examine

    return examine()
