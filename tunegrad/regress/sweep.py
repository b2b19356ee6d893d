"""A sweep: every model on every device, each recorded when it is measured, so that a sweep that was
killed goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from tunegrad.compiling import HOOKS
from tunegrad.config import TuneSettings, labelled
from tunegrad.db import Latency, Properties, Store, clean_text
from tunegrad.devices import Hooks
from tunegrad.errors import CandidateFailure, UserError
from tunegrad.tuning import Interrupt, machine_state, versions
from tunegrad.version import __version__

from .measured import ModelTimes, measure_model
from .nights import (
    DONE,
    FAILED,
    LACKING,
    PEER,
    SWEEP,
    YARDSTICK,
    failures_of,
    kernel_series,
    sweeps_of,
)
from .report import Failed
from .settings import SweepSettings

__all__ = ["Swept", "sweep"]

_GOES_ON_S = 12 * 3600.0
"""A sweep that was interrupted longer ago is not gone on with: it would be two nights in one."""

_LONGEST = 2000
"""Characters of what is kept of an error."""

_PEERS = (("schedule", "peer"),)


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep: its id, what failed, before an interruption too, and whether it was
    interrupted.
    """

    sweep: str
    failed: tuple[Failed, ...]
    interrupted: bool


def sweep(
    settings: SweepSettings,
    store: Store,
    tell: Callable[[str], None],
    hooks: Hooks = HOOKS,
    *,
    fresh: bool = False,
) -> Swept:
    """Measure what no earlier, interrupted run of the same sweep has measured (``fresh``: all).

    What fails is reported, and the sweep goes on.
    """
    now_s = time.time()
    earlier = None if fresh else _unfinished(settings, store, now_s)
    record = settings.record() | ({"sweep": earlier} if earlier else {})
    noted = failures_of(store.sessions(), earlier) if earlier else {}
    failed: list[Failed] = []
    with (
        store.session(SWEEP, 0, record, __version__, state=machine_state()) as session,
        Interrupt() as interrupt,
    ):
        name = earlier or session.id
        known = _measured(store, name)
        if earlier:
            tell(f"going on with sweep {name}")
        try:
            for device, model in _targets(settings):
                one = settings.of(device, model)
                target = labelled(one.model.name, one.dtype), device
                if target in known:
                    tell(f"{one.model.name} on {device}: measured already")
                    failed += noted.get(target, [])
                    continue
                began_s = time.monotonic()
                found = _timed(one, settings, store, interrupt, tell, hooks)
                lost = _lost(found, *target)
                if lost or target in noted:
                    _note(store, name, target, lost)
                failed += lost
                if isinstance(found, ModelTimes):
                    for row in rows_of(found, device, session.id, time.time()):
                        store.record_latency(row)
                took_s = time.monotonic() - began_s
                for line in _said(found, settings.turns, took_s):
                    tell(f"{target[0]} on {device}: {line}")
        except KeyboardInterrupt:
            return Swept(name, tuple(failed), interrupted=True)
    lines = [f"{f.device} {f.model} {f.kernel}: {f.why}"[:200] for f in failed]
    with store.session(DONE, 0, {"sweep": name, "failed": lines}, __version__):
        pass
    return Swept(name, tuple(failed), interrupted=False)


def _targets(settings: SweepSettings) -> Iterator[tuple[str, str]]:
    for device in settings.devices:
        for model in settings.models:
            yield device, model


def _timed(
    one: TuneSettings,
    settings: SweepSettings,
    store: Store,
    interrupt: Interrupt,
    tell: Callable[[str], None],
    hooks: Hooks,
) -> ModelTimes | CandidateFailure | UserError:
    """Measure a model; why it could not be."""
    try:
        return measure_model(one, store, settings.turns, interrupt, hooks, tell, settings.peers)
    except (CandidateFailure, UserError) as error:
        return error


def _said(
    found: ModelTimes | CandidateFailure | UserError, turns: int, took_s: float
) -> Iterator[str]:
    """Messages about a model, once it is stored."""
    if not isinstance(found, ModelTimes):
        yield f"not measured: {found}"
        return
    yield f"{len(found.kernels)} kernels, {turns} turns, {took_s:.1f} s"
    if found.lacking_cpus:
        yield f"other processes used {found.others_cpus:.1f} CPUs meanwhile: it does not count"
    for kernel, why in found.failed:
        yield f"kernel {kernel}: {why}"


def _lost(
    found: ModelTimes | CandidateFailure | UserError, model: str, device: str
) -> list[Failed]:
    """Failures of a model in a sweep."""
    kernels = found.failed if isinstance(found, ModelTimes) else (("", str(found)),)
    return [Failed(device, model, kernel, why) for kernel, why in kernels]


def _note(store: Store, sweep: str, target: tuple[str, str], lost: Sequence[Failed]) -> None:
    """Keep what could not be measured, before the rows say that the model is measured."""
    kernels = [[clean_text(f.kernel), clean_text(f.why, _LONGEST)] for f in lost]
    record = {"sweep": sweep, "model": target[0], "device": target[1], "kernels": kernels}
    with store.session(FAILED, 0, record, __version__):
        pass


def rows_of(found: ModelTimes, device: str, session: str, moment_s: float) -> list[Latency]:
    """The rows of a model: the whole of it last, so that it says that all are there."""
    common = versions(found.here)
    seen = dict(machine_state(others=found.others_cpus, device=found.state))
    lacking = {LACKING: round(found.lacking_cpus, 2)}
    state = tuple(sorted({**seen, **_clock(), **lacking, "asked": device}.items()))

    def row(
        series: str,
        key: str,
        samples: tuple[Sequence[float], Sequence[float]],
        of_code: Properties = (),
    ) -> Latency:
        said = tuple(sorted({**dict(common), **dict(of_code)}.items()))
        return Latency(
            series, key, "tuned", found.here, tuple(samples[0]), tuple(samples[1]), session,
            moment_s, said, state,
        )  # fmt: skip

    rows = [
        row(kernel_series(found.model, YARDSTICK + name), program, (seconds, ()))
        for name, (seconds, program) in found.yardsticks.items()
    ]
    rows += [
        row(kernel_series(found.model, PEER + name), found.key, (seconds, ()), _PEERS)
        for name, seconds in found.peers.items()
    ]
    for k in found.kernels:
        schedule = "stored" if k.stored else "default"
        code = (("program", k.program), ("schedule", schedule), ("uses", float(k.uses)))
        series = kernel_series(found.model, k.name)
        rows.append(row(series, k.key, (k.tuned_s, k.default_s), code))
    return [*rows, row(found.model, found.key, found.whole)]


def _clock() -> dict[str, float]:
    """The highest clock of the processors, in MHz, where the machine says it."""
    import psutil

    found = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return {"clock_mhz": float(found.max)} if found and found.max else {}


def _measured(store: Store, sweep: str) -> set[tuple[str, str]]:
    """(model, device) pairs that a sweep has measured as a whole."""
    parts, _, _ = sweeps_of(store.sessions())
    mine = {session for session, name in parts.items() if name == sweep}
    return {
        (row.model, str(dict(row.state).get("asked", "")))
        for row in store.latencies()
        if row.session in mine
    }


def _unfinished(settings: SweepSettings, store: Store, now_s: float) -> str | None:
    """The newest sweep, where it is the same and was not finished."""
    parts, _, done = sweeps_of(store.sessions())
    mine = [s for s in store.sessions() if s.command == SWEEP]
    if not mine:
        return None
    last = mine[-1]
    name, asked = parts[last.id], msgspec.json.decode(last.settings, type=dict[str, object])
    asked.pop("sweep", None)
    same = asked == msgspec.json.decode(msgspec.json.encode(settings.record()))
    first_s = next((s.started_s for s in mine if s.id == name), last.started_s)
    return name if same and name not in done and now_s - first_s < _GOES_ON_S else None
