"""Sessions of tuning, and a model's kernels compiled and not run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from tunegrad.config import ModelSpec, TuneOptions, TuneSettings, resolve_settings
from tunegrad.events import Observer, check_observers
from tunegrad.frontend import Example, Model
from tunegrad.reports import CompiledReport, CompiledRow, TuneReport
from tunegrad.tune.given import model_of, settings_of, workload_of_model

if TYPE_CHECKING:
    from tunegrad.tuning import Workload

WORKER_MODULES = (
    "numpy.random", "tunegrad.compiling.candidate", "tunegrad.devices.cpu.device",
    "tunegrad.devices.cpu.engine", "tunegrad.devices.cpu.machine_code",
    "tunegrad.devices.cpu.peak", "tunegrad.devices.cpu.readonly",
    "tunegrad.devices.verifying.referee", "tunegrad.ir.verify.races",
    "tunegrad.opts.lowering.lower", "tunegrad.pipeline", "tunegrad.tuning.models.work",
)  # fmt: skip
"""Modules that the workers of a session need: they are forked from a process that imports them
while the model is built.
"""


def tune(
    model: TuneSettings | Model | Example | str | os.PathLike[str],
    observers: Sequence[Observer] = (),
    **options: Unpack[TuneOptions],
) -> TuneReport:
    """Tune a model: a Model, a pair of a function or ``torch.nn.Module`` and its examples, or a
    model's name, with the settings that are not its defaults, or resolved settings and nothing
    else.

    Every trial is in the store before the next one starts (with ``ray``: batch by batch, in their
    order). The same call again goes on where this one stopped, and measures nothing once
    ``budget_s`` seconds are spent, or once the search has stopped early. The settings are those of
    ``TuneSettings``: ``device``, ``threads``, ``budget_s`` (seconds, or a text such as "5m"),
    ``store``, ``seed``, ``searcher``, ``numerics``, ``dtype``, ``patience``, ``target_ms``,
    ``max_trials`` and ``warm_start``. ``ray`` is the address of a Ray cluster to measure on, or
    ``local``; ``ray_kind`` the kind of its machines that measures, where there are several. Raises
    UserError in one line.
    """
    model = model_of(model)
    settings = settings_of(model, **options)
    if isinstance(model, Model):
        return _tuned(settings, partial(workload_of_model, model, settings), observers)
    return tune_models(settings, observers)[0]


def _tuned(
    settings: TuneSettings, work: Callable[[], Workload], observers: Sequence[Observer]
) -> TuneReport:
    """Tune what no name stands for; in the store it goes by its kernels."""
    from tunegrad.devices import start_fork_server

    check_observers(observers)
    _check_places(settings)
    start_fork_server(WORKER_MODULES)
    from tunegrad.tuning import Costs, run_session

    costs = Costs()
    with costs.part("model"):
        found = work()
    return run_session(settings, found, observers, costs=costs)


def tune_models(
    settings: TuneSettings,
    observers: Sequence[Observer] = (),
    began_s: float | None = None,
    only: Set[str] = frozenset(),
) -> tuple[TuneReport, ...]:
    """Tune all ``settings.models`` in one session, within one budget; a report of each, in their
    order.

    The budget is of wall-clock time since ``began_s`` of the monotonic clock, now by default.

    A kernel that several models share is searched once; its time counts as often as all of them use
    it. Of kernels whose keys are not among ``only``, where it has some of the models', nothing but
    the default schedules is measured.
    """
    from tunegrad.devices import start_fork_server

    began_s = time.monotonic() if began_s is None else began_s
    check_observers(observers)
    _check_places(settings)
    start_fork_server(WORKER_MODULES)
    from tunegrad import devices
    from tunegrad.tuning import Costs, run_sessions, workload_of_spec

    costs = Costs(began_s=began_s)
    with costs.part("model"):
        # Machines of a fleet are asked later what they are: the session's own may have no such
        # device.
        here = (
            devices.host_device()
            if settings.ray
            else devices.running(settings.device, settings.threads)
        )
        works = [
            workload_of_spec(spec, settings.seed, settings.numerics, here.target, settings.dtype)
            for spec in settings.models
        ]
    return run_sessions(settings, works, observers, costs=costs, only=only)


def _check_places(settings: TuneSettings) -> None:
    """Raise UserError for a device or a store that can not be used: before anything takes time."""
    from tunegrad import devices
    from tunegrad.db import check_store

    if settings.ray is None:
        devices.running(settings.device, settings.threads)
    check_store(settings.store)


def compile_models(
    settings: TuneSettings, tell: Callable[[CompiledRow], None] = lambda _: None
) -> tuple[CompiledReport, ...]:
    """Compile every kernel of ``settings.models`` by its default schedule, and run nothing.

    What a device that is not here is for: ``null:sm_90a``. Nothing is stored. ``tell`` hears of
    each kernel. Raises UserError in one line.
    """
    from tunegrad import devices
    from tunegrad.tune.compiled import compile_model
    from tunegrad.tuning import workload_of_spec

    device = devices.open(settings.device, settings.threads)
    works = (
        workload_of_spec(spec, settings.seed, settings.numerics, device.target, settings.dtype)
        for spec in settings.models
    )
    return tuple(compile_model(work, device, tell) for work in works)


def tune_callable(
    function: Callable[..., Any],
    *arrays: Any,
    observers: Sequence[Observer] = (),
    **options: Unpack[TuneOptions],
) -> TuneReport:
    """Tune a function of tensors, for arrays of these shapes and dtypes; arrays that it captures
    are constants.

    The settings are those of ``tune``. Raises UserError in one line.
    """
    settings = resolve_settings(ModelSpec("function", "", source="a function"), **options)

    def work() -> Workload:
        from tunegrad import devices
        from tunegrad.tuning import workload_of_function

        s = settings
        target = devices.open(s.device, s.threads).target
        return workload_of_function(function, arrays, s.numerics, target, s.dtype)

    return _tuned(settings, work, observers)
