"""Tuning: search for fast schedules of a model's kernels within a budget, and store the winners.

    report = tune(settings, observers)                          what `tunegrad tune` calls
    report = tune("resnet18", budget_s=300, store="tuned.db")   the same from Python
    report = tune(Model.of("mine", Mine, inputs))               a model of one's own
    report = tune_callable(lambda a, b: a @ b, a, b, budget_s=10, store="tuned.db")

The parts are in ``tunegrad.tuning``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tunegrad.config import (
    DEFAULT_BUDGET_S,
    DEFAULT_DEVICE,
    ModelDtype,
    ModelSpec,
    Numerics,
    Searcher,
    TuneSettings,
    allowed_threads,
    check_dtype,
    check_numerics,
    check_searcher,
    check_settings,
    default_store,
    parse_budget,
    resolve_settings,
)
from tunegrad.errors import ConfigError, ModelError
from tunegrad.events import Event, Observer
from tunegrad.frontend import Example, Model, as_model
from tunegrad.reports import (
    CompiledReport,
    CompiledRow,
    DoctorReport,
    ExplainReport,
    ShowRow,
    TuneReport,
)

if TYPE_CHECKING:
    from tunegrad.tuning.one_kernel import FormReport, Stage, TraceReport
    from tunegrad.tuning.workload import Workload

__all__ = [
    "EXPLAIN_BUDGET_S",
    "compile_models",
    "doctor",
    "explain",
    "explain_form",
    "explain_trace",
    "show",
    "tune",
    "tune_callable",
    "tune_models",
    "workload_of_model",
]

EXPLAIN_BUDGET_S = 20.0
"""How long ``explain`` times, unless it is told otherwise."""

_WORKERS = ("tunegrad.tuning.models.work",)
"""What the workers of a session need: they are forked from a process that imports it while the
model is built.
"""


def tune(
    model: TuneSettings | Model | Example | str,
    observers: Sequence[Observer] = (),
    *,
    device: str | None = None,
    budget_s: float | None = None,
    store: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    seed: int | None = None,
    searcher: Searcher | None = None,
    numerics: Numerics | None = None,
    patience: int | None = None,
    target_ms: float | None = None,
    max_trials: int | None = None,
    ray: str | None = None,
    ray_kind: str | None = None,
    warm_start: bool | None = None,
    dtype: ModelDtype | None = None,
) -> TuneReport:
    """Tune a model: a Model, a pair of a function or ``torch.nn.Module`` and its examples, or a
    model's name, with the settings that are not its defaults, or resolved settings and nothing
    else.

    Every trial is in the store before the next one starts (with ``ray``: batch by batch, in their
    order). The same call again goes on where this one stopped, and measures nothing once
    ``budget_s`` seconds are spent, or once the search has stopped early (``patience``,
    ``target_ms``, ``max_trials``, ``warm_start`` and ``dtype`` are as in ``TuneSettings``). ``ray``
    is the address of a Ray cluster to measure on, or ``local``; ``ray_kind`` the kind of its
    machines that measures, where there are several. Raises UserError in one line.
    """
    model = _taken(model)
    settings = _settled(
        model,
        device=device,
        budget_s=budget_s,
        store=store,
        threads=threads,
        seed=seed,
        searcher=searcher,
        numerics=numerics,
        patience=patience,
        target_ms=target_ms,
        max_trials=max_trials,
        ray=ray,
        ray_kind=ray_kind,
        warm_start=warm_start,
        dtype=dtype,
    )
    if isinstance(model, Model):
        return _tuned(settings, partial(workload_of_model, model, settings), observers)
    return tune_models(settings, observers)[0]


def _tuned(
    settings: TuneSettings, work: Callable[[], Workload], observers: Sequence[Observer]
) -> TuneReport:
    """Tune what no name stands for; in the store it goes by its kernels."""
    from tunegrad.devices.processes.isolated import start_fork_server

    _check_places(settings)
    start_fork_server(_WORKERS)
    from tunegrad.tuning.costs import Costs
    from tunegrad.tuning.session import run_session

    costs = Costs()
    with costs.part("model"):
        found = work()
    spec = ModelSpec(found.name, f"kernels:{found.key}", source=settings.model.source)
    return run_session(replace(settings, model=spec), found, observers, costs=costs)


def workload_of_model(model: Model, settings: TuneSettings) -> Workload:
    """The work of a model under settings; its weights are drawn from their seed."""
    from tunegrad import devices
    from tunegrad.tuning.workload import workload_of

    target = devices.open(settings.device, settings.threads).target
    return workload_of(model, model.name, settings.seed, settings.numerics, target, settings.dtype)


def tune_models(
    settings: TuneSettings, observers: Sequence[Observer] = (), began_s: float | None = None
) -> tuple[TuneReport, ...]:
    """Tune all ``settings.models`` in one session, within one budget; a report of each, in their
    order.

    The budget is of wall-clock time since ``began_s`` of the monotonic clock, now by default.

    A kernel that several models share is searched once; its time counts as often as all of them use
    it.
    """
    from tunegrad.devices.processes.isolated import start_fork_server

    began_s = time.monotonic() if began_s is None else began_s
    _check_places(settings)
    start_fork_server(_WORKERS)
    from tunegrad import devices
    from tunegrad.tuning.costs import Costs
    from tunegrad.tuning.session import run_sessions
    from tunegrad.tuning.workload import workload_of_spec

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
    return run_sessions(settings, works, observers, costs=costs)


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
    from tunegrad.tuning.compiled import compile_model
    from tunegrad.tuning.workload import workload_of_spec

    device = devices.open(settings.device, settings.threads)
    works = (
        workload_of_spec(spec, settings.seed, settings.numerics, device.target, settings.dtype)
        for spec in settings.models
    )
    return tuple(compile_model(work, device, tell) for work in works)


def tune_callable(
    function: Callable[..., Any],
    *arrays: Any,
    device: str = DEFAULT_DEVICE,
    budget_s: float = DEFAULT_BUDGET_S,
    store: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    seed: int = 0,
    searcher: Searcher = "portfolio",
    observers: Sequence[Observer] = (),
    numerics: Numerics = "contract",
    patience: int | None = None,
    target_ms: float | None = None,
    max_trials: int | None = None,
    warm_start: bool = True,
    dtype: ModelDtype = "f32",
) -> TuneReport:
    """Tune a function of tensors, for arrays of these shapes and dtypes; arrays that it captures
    are constants.

    The settings are those of ``tune``. Raises UserError in one line.
    """
    settings = TuneSettings(
        model=ModelSpec("function", "", source="a function"),
        device=device,
        threads=allowed_threads() if threads is None else threads,
        budget_s=parse_budget(budget_s),
        searcher=check_searcher(searcher),
        store=default_store() if store is None else Path(store).expanduser(),
        seed=seed,
        numerics=check_numerics(numerics),
        patience=patience,
        target_ms=target_ms,
        max_trials=max_trials,
        warm_start=warm_start,
        dtype=check_dtype(dtype),
    )
    check_settings(settings)

    def work() -> Workload:
        from tunegrad import devices
        from tunegrad.tuning.workload import workload_of_function

        target = devices.open(device, settings.threads).target
        return workload_of_function(function, arrays, numerics, target, dtype)

    return _tuned(settings, work, observers)


def show(
    model: TuneSettings | Model | Example | str,
    *,
    store: str | os.PathLike[str] | None = None,
    device: str | None = None,
    threads: int | None = None,
    numerics: Numerics | None = None,
    dtype: ModelDtype | None = None,
) -> list[ShowRow]:
    """One row per distinct kernel: what it would run with, and where that comes from.

    Measures nothing.

    A Model, or a model's name, with the settings that are not its defaults, or resolved settings.
    Raises UserError in one line.
    """
    from tunegrad.tuning.show import show as rows

    model = _taken(model)
    settings = _settled(
        model, store=store, device=device, threads=threads, numerics=numerics, dtype=dtype
    )
    return rows(settings, _made(model, settings))


def explain(
    model: TuneSettings | Model | Example | str,
    observers: Sequence[Observer] = (),
    *,
    kernel: str = "",
    budget_s: float | str = EXPLAIN_BUDGET_S,
    asm: bool = False,
    top: int | None = None,
    dump: Path | None = None,
    store: str | os.PathLike[str] | Literal[False] | None = None,
    device: str | None = None,
    threads: int | None = None,
    seed: int | None = None,
    numerics: Numerics | None = None,
    dtype: ModelDtype | None = None,
) -> ExplainReport:
    """Where a model's time goes: per kernel its bounds, its time now, and what each action of its
    schedule bought.

    Measures for about ``budget_s`` seconds, in processes that can be killed; reads the store and
    never writes to it. ``kernel`` names one (or its key): that one is taken apart alone; else the
    ``top`` heaviest are, all where it is None. ``asm`` reads every kernel's machine code. ``dump``
    is a folder for every form of each kernel, by the beginning of its key. ``store`` as in
    ``load``: None is the default one if it exists, False is none; beside resolved settings it may
    say the one that they name, or False. Raises UserError in one line.
    """
    from tunegrad.tuning.explain import explain as explained

    model = _taken(model)
    settings, with_store = _explained(
        model, store, device=device, threads=threads, seed=seed, numerics=numerics, dtype=dtype
    )

    def observe(event: Event) -> None:
        for observer in observers:
            observer.observe(event)

    return explained(
        settings, observe, kernel=kernel, budget_s=parse_budget(budget_s), asm=asm, top=top,
        dump=dump, with_store=with_store, made=_made(model, settings),
    )  # fmt: skip


def explain_form(
    model: TuneSettings | Model | Example | str,
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
    from tunegrad.tuning.one_kernel import form_of_kernel

    model = _taken(model)
    settled, with_store = _explained(model, store, **settings)
    return form_of_kernel(settled, kernel, stage, with_store, _made(model, settled))


def explain_trace(
    model: TuneSettings | Model | Example | str,
    *,
    kernel: str = "",
    store: str | os.PathLike[str] | Literal[False] | None = None,
    **settings: Any,
) -> TraceReport:
    """What every action and pass changed on the way from the kernel to its text.

    As ``explain_form``.
    """
    from tunegrad.tuning.one_kernel import trace_of_kernel

    model = _taken(model)
    settled, with_store = _explained(model, store, **settings)
    return trace_of_kernel(settled, kernel, with_store, _made(model, settled))


def _explained(
    model: TuneSettings | Model | str,
    store: str | os.PathLike[str] | Literal[False] | None,
    **given: Any,
) -> tuple[TuneSettings, bool]:
    """The settings of what is explained, and whether a store says its schedules."""
    place = Path(store).expanduser() if store else None
    if isinstance(model, TuneSettings) and place == model.store:
        place = None
    settings = _settled(model, store=place, **given)
    return settings, bool(store) or (store is None and settings.store.is_file())


def doctor() -> DoctorReport:
    """What this machine is, what is installed, and its measured peaks."""
    from tunegrad.tuning.doctor import doctor as examine

    return examine()


def _taken(model: TuneSettings | Model | Example | str) -> TuneSettings | Model | str:
    """A pair of a function or a ``torch.nn.Module`` and its examples as a Model."""
    return as_model(model) if isinstance(model, tuple) else model


def _made(model: TuneSettings | Model | str, settings: TuneSettings) -> Workload | None:
    """The work of a model that is there; None of one that is named."""
    return workload_of_model(model, settings) if isinstance(model, Model) else None


def _settled(model: TuneSettings | Model | str, **given: Any) -> TuneSettings:
    """The settings of one model: those that are resolved already, or a model, or its name, with
    what is given (not None).

    Raises ConfigError for both together: neither would hold; and for settings of several models.
    """
    said = {name: value for name, value in given.items() if value is not None}
    if isinstance(model, TuneSettings):
        if said:
            raise ConfigError(
                f"{', '.join(said)}: given beside resolved settings, which say that themselves; "
                "change those, or give the model's name"
            )
        if model.others:
            names = ", ".join(m.name for m in model.models)
            raise ConfigError(
                f"settings of {len(model.models)} models ({names}): only tune_models takes several"
            )
        return model
    if "budget_s" in said:
        said["budget"] = said.pop("budget_s")
    if "store" in said:
        said["store"] = os.fspath(said["store"])
    if isinstance(model, Model):
        return resolve_settings(ModelSpec(model.name, "", source="a Model"), **said)
    if not isinstance(model, str):
        raise ModelError(
            f"model {model!r:.80} is a {type(model).__name__}; it must be a name, a TOML file, "
            "'package.module:function', a Model, or a pair (function or torch.nn.Module, "
            "[examples]); tune_callable(function, *arrays) takes functions"
        )
    return resolve_settings(model, **said)
