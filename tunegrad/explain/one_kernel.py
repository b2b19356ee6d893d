"""One kernel of a model, lowered and not run: any of its forms, or what each action and pass
changed.

graph -> kernel -> loops -> program -> source -> asm

The schedules that a model would run with here are in ``show``: each kernel's stored winner, or its
default and why it has no winner.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from statistics import median
from typing import Literal

from tunegrad import compiling, db, devices, errors, opts, paired, tuning
from tunegrad.config import TuneSettings, default_store
from tunegrad.frontend import substitute
from tunegrad.inference import process_compiler, stale
from tunegrad.ir.fusion import Draft, LaunchPlan, layers_of
from tunegrad.ir.graph import Node, graph_input
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.parse_kernel import read_back
from tunegrad.ir.target import Target
from tunegrad.ir.text import print_graph
from tunegrad.planning import picked, stored_toggles
from tunegrad.reports import Outcome, ShowRow
from tunegrad.trial import Fingerprint, Measured, Measurement, Policy, Status

from .legality import device_of
from .model import chosen, selected


def show(settings: TuneSettings, made: tuning.Workload | None = None) -> list[ShowRow]:
    """One row per distinct kernel of the model, in launch order; ``made`` is the model where its
    name is none. Reads the store, or none where the default one is not there; measures nothing.

    Raises UserError for an unknown device or an unusable store.
    """
    device = devices.open(settings.device, settings.threads)
    target, here = device.target, device.fingerprint(settings.numerics)
    workload = made or tuning.workload_of_spec(
        settings.model, settings.seed, settings.numerics, target, settings.dtype
    )
    none = not settings.store.is_file() and settings.store == default_store()
    with db.open_store(Path(":memory:") if none else settings.store) as store:
        workload = tuning.cut_as_stored(workload, here, store, target)
        picks = picked(workload.plan, target, here, store, settings.numerics)
        workload = tuning.with_variants(workload, picks)
        layers = layers_of(workload.plan)
        return [
            replace(
                _row(use, store, here, device),
                operations=use.kernel.origin,
                layers=layers[use.key],
                tried=len(store.trials(use.key, here)),
                space=_space(use.kernel, device.target),
            )
            for use in workload.kernels
        ]


def _space(kernel: Kernel, target: Target) -> float:
    """The lists of decisions beside a kernel's default one; 1 where nothing is decided."""
    if kernel.fixed:
        return 1.0
    return prod(float(d.options) for d in opts.Space(kernel, target).defaults()[0].trace)


def _row(
    use: tuning.KernelUse, store: db.Store, here: Fingerprint, device: devices.Device
) -> ShowRow:
    row = partial(ShowRow, use.name, use.key, use.uses)
    space = opts.Space(use.kernel, device.target)
    if use.kernel.fixed:
        return row("fixed", space.fixed().text, "fixed")
    found = store.lookup(use.key, here, opts.SPACE_VERSION)
    if isinstance(found, db.Hit):
        trial, ms = found.trial, 1e3 * found.trial.measurement.seconds
        fault = stale(use.kernel, trial, device, process_compiler())
        if not fault:
            facts = dict(trial.measurement.facts)
            return row("hit", trial.actions, trial.origin, trial.session, ms, facts=facts)
        differs: tuple[str, ...] = (fault,)
    else:
        differs = tuple(d.brief for d in found.differences)
    default = space.defaults()[0].text
    outcome: Outcome = "near" if isinstance(found, db.Near) else "miss"
    return row(outcome, default, "default", differs=differs)


Stage = Literal["graph", "kernel", "loops", "program", "source", "asm"]


@dataclass(frozen=True, slots=True)
class FormReport:
    """One form of a kernel under the schedule that it runs with."""

    model: str
    kernel: str
    key: str
    outcome: str
    actions: str
    stage: Stage
    text: str


@dataclass(frozen=True, slots=True)
class TraceReport:
    """The changes that every action and pass made to a kernel, in order."""

    model: str
    kernel: str
    key: str
    outcome: str
    actions: str
    steps: tuple[opts.TraceStep, ...]


def form_of_kernel(
    settings: TuneSettings,
    kernel: str,
    stage: Stage,
    with_store: bool,
    made: tuning.Workload | None,
) -> FormReport:
    """A form of the kernel that ``kernel`` names ("" where the model has only one).

    Nothing is measured. Raises ConfigError for no kernel or several, and for a form that the device
    does not show.
    """
    one = _one(settings, kernel, with_store, made)
    text = _graph(one) if stage == "graph" else _form(one, stage)
    return FormReport(
        one.model, one.use.name, one.use.key, one.outcome, one.schedule.text, stage, text.rstrip()
    )


def trace_of_kernel(
    settings: TuneSettings, kernel: str, with_store: bool, made: tuning.Workload | None
) -> TraceReport:
    """Trace the changes that every action and pass make to a kernel. As above."""
    one, trace = _one(settings, kernel, with_store, made), opts.Trace()
    compiling.build(one.use.kernel, one.schedule, one.device, trace.passed, trace.acted)
    return TraceReport(
        one.model, one.use.name, one.use.key, one.outcome, one.schedule.text, tuple(trace.steps)
    )


@dataclass(frozen=True, slots=True)
class _One:
    """A kernel with what it runs with; ``drafts`` are those of the graph as it is cut here, and
    ``direct`` is its plan before variants.
    """

    model: str
    device: devices.Device
    use: tuning.KernelUse
    outcome: str
    schedule: opts.Schedule
    drafts: tuple[Draft, ...]
    direct: LaunchPlan
    plan: LaunchPlan


def _one(
    settings: TuneSettings, kernel: str, with_store: bool, made: tuning.Workload | None
) -> _One:
    device = devices.open(settings.device, settings.threads)
    target, here = device.target, device.fingerprint(settings.numerics)
    direct = made or tuning.workload_of_spec(
        settings.model, settings.seed, settings.numerics, target, settings.dtype
    )
    with ExitStack() as stack:
        store = stack.enter_context(db.open_store(settings.store)) if with_store else None
        direct = tuning.cut_as_stored(direct, here, store, target)
        fusion = direct.fusion.toggled(stored_toggles(direct.fusion, here, store, target))
        picks = picked(direct.plan, target, here, store, settings.numerics)
        workload = tuning.with_variants(direct, picks)
        found = selected(workload, kernel)
        if len(found) != 1:
            names = ", ".join(repr(u.name) for u in found)
            raise errors.ConfigError(
                f"model {workload.name} has {len(found)} kernels; name one: {names}"
            )
        choice, schedule, *_ = chosen(found[0].kernel, device, here, store)
    drafts = fusion.launched()
    return _One(
        workload.name, device, found[0], choice.outcome, schedule, drafts, direct.plan,
        workload.plan,
    )  # fmt: skip


def _form(one: _One, stage: Stage) -> str:
    kernel, space = one.use.kernel, opts.Space(one.use.kernel, one.device.target)
    if stage == "kernel":
        return opts.form_text(kernel)
    if stage == "loops":
        return opts.form_text(space.tree(one.schedule))
    if stage == "program":
        return opts.form_text(space.lower(one.schedule))
    lowered = compiling.build(kernel, one.schedule, one.device)
    if stage == "source":
        return lowered.text
    shown = one.device.inspect(lowered)
    if shown is None or not shown.listing:
        raise errors.ConfigError(f"device {one.device.name}: its compiler shows no machine code")
    return shown.listing


@lru_cache(512)
def code_of(text: str, actions: str, machine: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    """Source and assembly of a stored kernel under stored actions, each empty where it is not
    known: on another machine than that of these fields, of another version, by a compiler that
    shows none.
    """
    device, kernel = device_of(Fingerprint(machine)), read_back(text)
    if device is None or kernel is None:
        return "", ""
    try:
        lowered = compiling.build(kernel, opts.Schedule.parse(actions), device)
        shown = device.inspect(lowered)
    except (errors.CandidateFailure, errors.IllegalAction):
        return "", ""
    return lowered.text.rstrip(), shown.listing.rstrip() if shown else ""


def _graph(one: _One) -> str:
    """The operations of a kernel on what it reads; of a variant's part, the direct kernel's."""
    origin = next(x.origin for x in one.plan.launches if x.kernel.key == one.use.key)
    places = [i for i, x in enumerate(one.direct.launches) if x.kernel.key == one.use.key]
    places += [i for i, x in enumerate(one.direct.launches) if x.origin == origin]
    draft = one.drafts[places[0]]
    leaves: dict[Node, Node] = {
        n: graph_input(f"{name}.{number}", n.shape, n.dtype)
        for number, (name, n) in enumerate(draft.reads.items())
        if n.srcs
    }
    return print_graph(substitute(draft.nodes, leaves))


_TURNS = Policy(
    cache="warm", min_samples=30, max_samples=200, tolerance=0.002, budget_s=2.0, timeout_s=30.0
)
"""The policy for timing two schedules in turns."""


@dataclass(frozen=True, slots=True)
class TimedReport:
    """A schedule in turns with another one: medians in milliseconds, and the gain of the first over
    the other with its 95 % interval. ``against_is``: given, hit, near, miss, fixed.
    """

    model: str
    kernel: str
    key: str
    schedule: str
    against: str
    against_is: str
    ms: float
    against_ms: float
    gain: float | None
    interval: paired.Interval | None
    turns: int


def time_schedule(
    settings: TuneSettings,
    kernel: str,
    schedule: str,
    against: str | None,
    with_store: bool,
    made: tuning.Workload | None = None,
) -> TimedReport:
    """Time two schedules of one kernel in turns, after both were verified; ``against`` None is the
    one that the kernel runs with here.

    Raises ConfigError for a schedule that is not legal, or whose results are wrong.
    """
    one = _one(settings, kernel, with_store, made)
    named = one.use.kernel, one.device
    texts = (
        opts.print_actions(opts.parse_actions(schedule)),
        one.schedule.text if against is None else opts.print_actions(opts.parse_actions(against)),
    )
    candidates = [
        devices.Candidate(one.use.key, compiling.Payload(named[0], text, named[1]))
        for text in texts
    ]
    with devices.DeviceMeasurer(one.device, compiling.HOOKS, seed=settings.seed) as workers:
        mine, other = workers.compile(candidates)
        if isinstance(other, Measured):
            raise _refused(texts[1], other.measurement)
        if isinstance(mine, Measured):
            raise _refused(texts[0], mine.measurement)
        base = workers.measure_compiled(candidates[1], other, _TURNS)
        if base.status is not Status.OK:
            raise _refused(texts[1], base)
        beside = devices.Beside(other, base.seconds)
        found = workers.measure_compiled(candidates[0], mine, _TURNS, beside=beside)
    if found.status is not Status.OK:
        raise _refused(texts[0], found)
    before, after = found.reference_samples_s, found.samples_s
    other_is = one.outcome if against is None else "given"
    return TimedReport(
        one.model, one.use.name, one.use.key, *texts, other_is,
        1e3 * median(after), 1e3 * median(before),
        paired.paired_gain(before, after), paired.gain_interval(before, after), len(after),
    )  # fmt: skip


def _refused(text: str, m: Measurement) -> errors.ConfigError:
    why = m.error.splitlines()[0] if m.error else ""
    return errors.ConfigError(f"schedule {text or '(no actions)'!r}: {m.status.value}: {why}")
