"""Explanation of a model's time, kernel by kernel: the roofline, the schedule that was chosen, and
the gain of its actions.

    model   -->   kernels, as the variants that are picked
    kernel  -->   bounds, the stored schedule or the default, its time now
            -->   prefixes of the action list, and the list less one action:
                  the heaviest kernel first, while the budget lasts

Everything is compiled and timed in worker processes; the store is read and never written.

Every form of the kernels may be kept as files to read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from tunegrad import compiling, devices, errors, events, inference, planning, tuning
from tunegrad.config import TuneSettings
from tunegrad.db import Store, open_store
from tunegrad.ir import expr
from tunegrad.ir.fusion import layers_of
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopKind, LoopTree
from tunegrad.ir.program import executed_flops
from tunegrad.ir.target import Target
from tunegrad.ir.variants import DIRECT, multiplies_bytes, parts_of, runs_on
from tunegrad.opts import SPACE_VERSION, Schedule, Space, dump_to_folder
from tunegrad.reports import (
    ExplainReport,
    ExplainRow,
    Neighbour,
    Promotion,
    QuantisedLayer,
    VariantOption,
    VariantRow,
)
from tunegrad.trial import Fingerprint, Status

from . import ablation


def dump_forms(
    uses: Sequence[tuning.KernelUse],
    rows: Sequence[ExplainRow],
    device: devices.Device,
    folder: Path | None,
) -> None:
    """Write what every pass makes of each kernel under the actions of its row.

    A kernel has a folder named by the first 12 digits of its key; None writes nothing. Raises
    ConfigError where it can not be written, IllegalAction for a schedule that is not legal on the
    device.
    """
    if folder is None:
        return
    for use, row in zip(uses, rows, strict=True):
        own = folder / use.kernel.key[:12]
        try:
            observe = dump_to_folder(own)
            title = f"# {use.kernel.name}\n{row.actions}".rstrip()
            (own / "actions.txt").write_text(f"{title}\n", encoding="utf-8")
            compiling.build(use.kernel, Schedule.parse(row.actions), device, observe)
        except OSError as error:
            raise errors.ConfigError(f"dump {own}: {error.strerror or error}") from error


_LIMITS = devices.Limits(compile_s=3.0)
"""Schedules that were verified when they were found are verified on one set of inputs here."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The kernels of an ``explain``, by name, and what is looked at.

    Schedules are timed for about ``budget_s`` seconds. Only the ``top`` heaviest are taken apart,
    all where it is None. ``asm`` reads every kernel's machine code too; ``dump``: see
    ``dump_forms``.
    """

    kernel: str = ""
    budget_s: float = 20.0
    asm: bool = False
    top: int | None = None
    dump: Path | None = None


def explain(
    settings: TuneSettings,
    observe: Callable[[events.Event], None],
    asked: Asked,
    *,
    with_store: bool = True,
    hooks: devices.Hooks = compiling.HOOKS,
    made: tuning.Workload | None = None,
) -> ExplainReport:
    """Explain a model's kernels, or those that are named; ``made`` is the model where its name is
    none. Raises UserError.
    """
    kernel, top = asked.kernel, asked.top
    begun_s, used = time.monotonic(), tuning.cpu_use()
    device = devices.running(settings.device, settings.threads)
    target, here = device.target, device.fingerprint(settings.numerics)
    direct = made or tuning.workload_of_spec(
        settings.model, settings.seed, settings.numerics, target, settings.dtype
    )
    with ExitStack() as stack:
        store = stack.enter_context(open_store(settings.store)) if with_store else None
        direct = tuning.cut_as_stored(direct, here, store, target)
        picks = planning.picked(direct.plan, target, here, store, settings.numerics)
        workload = tuning.with_variants(direct, picks)
        uses = selected(workload, kernel)
        workers = stack.enter_context(devices.DeviceMeasurer(device, hooks, _LIMITS, settings.seed))
        roofline = tuning.Roofline(workers.machine_limits(), target)
        timer = ablation.ScheduleTimer(workers, device, time.monotonic() + asked.budget_s)
        look = "loop" if asked.asm and kernel else "facts" if asked.asm or kernel else ""
        rows = explain_rows(uses, timer, roofline, store, here, observe, look, top)
        roofline = tuning.Roofline(workers.machine_limits(again=True), target)
        dump_forms(uses, rows, device, asked.dump)
        rows = tuple(
            _bounded(row, use.kernel, roofline) for row, use in zip(rows, uses, strict=True)
        )
        rows = _placed(rows, uses, workload, target, store, here)
        wall_s = None if kernel or store is None else _wall_s(store, workload.name, here)
        variants = () if kernel else variant_rows(direct, settings, roofline, store, here, picks)
        quantised = () if kernel else quantised_layers(direct, settings, target, picks, variants)
        others = tuning.others_cpus(used, tuning.cpu_use())
    floor_s = sum(use.uses * roofline.bound_s(use.kernel) for use in direct.kernels)
    return ExplainReport(
        model=workload.name, device=settings.device, threads=settings.threads,
        store=str(settings.store) if with_store else "",
        peak_gflops=roofline.peak_flops_per_s / 1e9,
        cache_gb_per_s=roofline.cache_bytes_per_s / 1e9,
        memory_gb_per_s=roofline.memory_bytes_per_s / 1e9, rows=rows, variants=variants,
        direct_floor_ms=1e3 * floor_s,
        budget_s=asked.budget_s, seconds=time.monotonic() - begun_s, top=top,
        wall_ms=None if wall_s is None else 1e3 * wall_s, others_cpus=others,
        busy=tuning.busy_text(others, settings.threads), quantised=quantised,
    )  # fmt: skip


def _wall_s(store: Store, model: str, here: Fingerprint) -> float | None:
    """Seconds that the whole model took when it was last tuned here."""
    found = [x for x in store.latencies(model, here) if x.kind == "tuned" and not x.imported]
    return found[-1].seconds if found else None


def _placed(
    rows: Sequence[ExplainRow],
    uses: Sequence[tuning.KernelUse],
    workload: tuning.Workload,
    target: Target,
    store: Store | None,
    here: Fingerprint,
) -> tuple[ExplainRow, ...]:
    """The rows with the layers of their origin, and those taken apart with their neighbours."""
    layers = layers_of(workload.plan)
    found = []
    for row, use in zip(rows, uses, strict=True):
        near: tuple[Neighbour, ...] = ()
        if row.steps and store is not None:
            trials = [t for t in store.trials(use.key, here) if t.space_version == SPACE_VERSION]
            near = ablation.neighbours(use.kernel, target, Schedule.parse(row.actions), trials)
        found.append(replace(row, layers=layers.get(use.key, ()), neighbours=near))
    return tuple(found)


def selected(workload: tuning.Workload, kernel: str) -> tuple[tuning.KernelUse, ...]:
    """The kernels of a name, or of a key or its beginning (6 digits or more); all of them for "".

    Raises ConfigError, listing the names, where there is none.
    """
    if not kernel:
        return workload.kernels
    found = [u for u in workload.kernels if kernel in (u.name, u.kernel.name)]
    if not found and len(kernel) >= 6:
        found = [u for u in workload.kernels if u.key.startswith(kernel)]
    if not found:
        names = ", ".join(repr(u.name) for u in workload.kernels)
        raise errors.ConfigError(
            f"kernel {kernel!r} is not one of model {workload.name}; valid: {names}, or a key"
        )
    return tuple(found)


def explain_rows(
    uses: Sequence[tuning.KernelUse],
    timer: ablation.ScheduleTimer,
    roofline: tuning.Roofline,
    store: Store | None,
    here: Fingerprint,
    observe: Callable[[events.Event], None],
    look: str = "",
    top: int | None = None,
) -> tuple[ExplainRow, ...]:
    """A row per kernel, in order: all are timed first; then the heaviest, ``top`` at most, are
    taken apart while the budget lasts.

    ``look``: "" reads no machine code, "facts" counts in it, "loop" keeps the hot loop's text too.
    """
    found = [_Chosen(use, *chosen(use.kernel, timer.device, here, store)) for use in uses]
    timer.compile([(c.use.kernel, c.schedule.text) for c in found])
    rows = {}
    for c in found:
        needs = tuning.needed_flops(c.use.kernel), c.use.kernel.unique_bytes
        observe(events.KernelStarted(c.use.name, c.use.key, c.use.uses, *needs))
        rows[c.use.key] = _row(c, timer, roofline, store, here, look)
    heaviest = sorted(found, key=lambda c: -c.use.uses * (rows[c.use.key].ms or 0.0))
    for c in heaviest[:top]:
        rows[c.use.key] = _taken_apart(rows[c.use.key], c, timer, observe, alone=len(found) == 1)
    total_ms = sum(r.uses * (r.ms or 0.0) for r in rows.values())
    if total_ms and len(found) > 1:
        rows = {
            k: replace(r, share=None if r.ms is None else r.uses * r.ms / total_ms)
            for k, r in rows.items()
        }
    late = sum(1 for r in rows.values() if r.note)
    if late:
        observe(
            events.Warned(
                f"{late} of {len(found)} kernels were not taken apart; a larger --budget goes "
                "further"
            )
        )
    return tuple(rows[c.use.key] for c in found)


def _bounded(row: ExplainRow, kernel: Kernel, roofline: tuning.Roofline) -> ExplainRow:
    """The row under limits that were measured again."""
    bounds = roofline.bounds(kernel)
    return replace(row, flops_ms=1e3 * bounds.flops_s, bytes_ms=1e3 * bounds.bytes_s)


def _taken_apart(
    row: ExplainRow,
    c: _Chosen,
    timer: ablation.ScheduleTimer,
    observe: Callable[[events.Event], None],
    alone: bool,
) -> ExplainRow:
    """The row with what its actions bought; alone, there is time to time every list twice."""
    if row.ms is None or not c.schedule.actions:
        return row
    if timer.left_s <= 0:
        return replace(row, note="its actions were not timed: the budget is spent")
    observe(events.KernelStarted(row.kernel, row.key, row.uses, row.flops, row.unique_bytes))
    unscheduled, steps = ablation.time_steps(
        timer, c.use.kernel, c.schedule, rounds=2 if alone else 1
    )
    return replace(row, ms=steps[-1].after.ms, unscheduled=unscheduled, steps=steps)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A kernel with what it runs with."""

    use: tuning.KernelUse
    choice: inference.Choice
    schedule: Schedule
    tree: LoopTree
    executed: int | None


def chosen(
    kernel: Kernel, device: devices.Device, here: Fingerprint, store: Store | None
) -> tuple[inference.Choice, Schedule, LoopTree, int | None]:
    """The stored winner if legal here, else the default; its loop tree and its operations."""
    for choice in inference.choices(
        kernel, device, here, store, "default", inference.process_compiler()
    ):
        try:
            schedule = Schedule.parse(choice.actions)
            space = Space(kernel, device.target)
            return choice, schedule, space.tree(schedule), executed_flops(space.lower(schedule))
        except errors.IllegalAction:
            if choice.trial is None:
                raise
    raise errors.InternalError(f"kernel {kernel.name}: no schedule at all")


def _row(
    c: _Chosen,
    timer: ablation.ScheduleTimer,
    roofline: tuning.Roofline,
    store: Store | None,
    here: Fingerprint,
    look: str,
) -> ExplainRow:
    kernel, trial = c.use.kernel, c.choice.trial
    bounds = roofline.bounds(kernel)
    timed = timer.time(kernel, c.schedule.text)
    found = _machine_code(kernel, c.schedule, timer.device) if look else devices.Inspection()
    return ExplainRow(
        kernel=c.use.name, key=c.use.key, uses=c.use.uses, operations=kernel.origin, share=None,
        flops=tuning.needed_flops(kernel), executed_flops=c.executed,
        unique_bytes=kernel.unique_bytes,
        const_bytes=sum(p.nbytes for p in kernel.params if p.role == "const"),
        flops_ms=1e3 * bounds.flops_s, bytes_ms=1e3 * bounds.bytes_s, level=bounds.level,
        ms=None if timed.over else timed.ms,
        stored_ms=None if trial is None else 1e3 * trial.measurement.seconds,
        outcome=c.choice.outcome,
        origin=trial.origin if trial else "fixed" if c.choice.outcome == "fixed" else "default",
        session="" if trial is None else trial.session, differs=c.choice.differs,
        promotion=_promotion(c.choice, store, here), actions=c.schedule.text,
        registers=_registers(c.tree), code=found.facts, resources=found.resources,
        hot_loop=found.hot_loop if look == "loop" else "",
        note=timed.note or ("stopped: it takes too long" if timed.over else ""),
        facts={} if trial is None else dict(trial.measurement.facts),
    )  # fmt: skip


def _promotion(
    choice: inference.Choice, store: Store | None, here: Fingerprint
) -> Promotion | None:
    """The newest evidence for what was chosen; None where nothing promoted it."""
    if store is None or choice.trial is None:
        return None
    for trial, evidence in reversed(store.promotions(choice.kernel.key, here)):
        if trial.actions == choice.actions and trial.space_version == SPACE_VERSION:
            before, after = evidence.incumbent_samples_s, evidence.challenger_samples_s
            medians = _median_ms(before), _median_ms(after)
            return Promotion(evidence.test, evidence.p_value, *medians, evidence.cold)
    return None


def _median_ms(samples_s: Sequence[float]) -> float | None:
    return 1e3 * median(samples_s) if samples_s else None


def _registers(tree: LoopTree) -> str:
    """The register tile, as ``a1:6 x b1:16v``; "" where registers keep just one value."""
    loops = [x for x in tree.loops if x.kind in (LoopKind.UPCAST, LoopKind.VECTOR, LoopKind.GROUP)]
    lanes = (LoopKind.VECTOR, LoopKind.GROUP)
    return " x ".join(f"{x.name}:{x.extent}{'v' if x.kind in lanes else ''}" for x in loops)


def _machine_code(kernel: Kernel, schedule: Schedule, device: devices.Device) -> devices.Inspection:
    """Report of the device's compiler on the kernel; empty where it gives none."""
    try:
        return device.inspect(compiling.build(kernel, schedule, device)) or devices.Inspection()
    except errors.CandidateFailure:
        return devices.Inspection()


def variant_rows(
    direct: tuning.Workload,
    settings: TuneSettings,
    roofline: tuning.Roofline,
    store: Store | None,
    here: Fingerprint,
    picks: dict[str, str],
) -> tuple[VariantRow, ...]:
    """Variants considered for every kernel that has several, from the store's rows."""
    rows = []
    for use in direct.kernels:
        names = planning.allowed(use.kernel, settings.numerics, roofline.target)
        if len(names) < 2:
            continue
        picked_here = picks.get(use.key, DIRECT)
        options = tuple(_option(use.kernel, name, roofline, store, here) for name in names)
        stored = planning.stored_variant(use.kernel, names, here, store) == picked_here
        rows.append(VariantRow(use.name, use.key, use.uses, picked_here, stored, options))
    return tuple(rows)


def quantised_layers(
    direct: tuning.Workload,
    settings: TuneSettings,
    target: Target,
    picks: dict[str, str],
    rows: Sequence[VariantRow],
) -> tuple[QuantisedLayer, ...]:
    """The layers of dequantised bytes: on bytes, in 16 bits or on floats, and why.

    Milliseconds of variants are those that were measured, else those that a model of the machine
    expects.
    """
    layers, tried = layers_of(direct.plan), {r.key: r.options for r in rows}
    found = []
    for use in direct.kernels:
        if not any(
            isinstance(r.expr, expr.Apply) and r.expr.op is expr.Op.DOT4 for r in use.kernel.reduces
        ):
            continue
        runs = picks.get(use.key, DIRECT)
        names = planning.allowed(use.kernel, settings.numerics)
        known = {o.name: o.stored_ms or o.parts_ms for o in tried.get(use.key, ())}
        each = []
        for name in names:
            other = not multiplies_bytes(name) or name == runs or known.get(name)
            if name != DIRECT and not (other and runs_on(name, target)):
                continue
            ms, said = known.get(name), "measured"
            if ms is None:
                ms, said = 1e3 * planning.variant_s(use.kernel, name, target), "expected"
            each.append(f"{'bytes' if name == DIRECT else name} {ms:.3g} ms {said}")
        why = ", ".join(each) if len(each) > 1 else "its sum has no other form"
        found.append(QuantisedLayer(layers.get(use.key) or (use.name,), runs, why))
    refused: dict[str, list[str]] = {}
    for name, why in direct.on_floats:
        refused.setdefault(why, []).append(name)
    return (*found, *(QuantisedLayer(tuple(n), "f32", why) for why, n in refused.items()))


def _option(
    kernel: Kernel, name: str, roofline: tuning.Roofline, store: Store | None, here: Fingerprint
) -> VariantOption:
    parts = parts_of(kernel, name)
    bound_ms = 1e3 * sum(roofline.bound_s(p) for p in parts)
    if store is None:
        return VariantOption(name, len(parts), bound_ms, None, None)
    each = [_best_ms(store, p, here) for p in parts]
    sum_ms = None if None in each else sum(ms or 0.0 for ms in each)
    whole_ms = sum_ms if name == DIRECT else _compared_ms(store, kernel, here, name)
    return VariantOption(name, len(parts), bound_ms, whole_ms, sum_ms)


def _best_ms(store: Store, kernel: Kernel, here: Fingerprint) -> float | None:
    """The best stored time of a kernel under a schedule."""
    rows = [
        t.measurement.seconds
        for t in store.trials(kernel.key, here)
        if t.measurement.status is Status.OK and t.space_version == SPACE_VERSION
    ]
    return 1e3 * min(rows) if rows else None


def _compared_ms(store: Store, kernel: Kernel, here: Fingerprint, name: str) -> float | None:
    """The best time of a variant in the contests of whole models."""
    tried = [d for d in store.decisions(kernel.key, here, "variant") if d.choice == name]
    samples = [d.evidence.challenger_samples_s for d in tried if d.space_version == SPACE_VERSION]
    return min((1e3 * median(s) for s in samples if s), default=None)
