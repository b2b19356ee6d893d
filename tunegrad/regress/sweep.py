"""A sweep from beginning to end: is the machine quiet, measure, judge, tune again what got slower.

regress --> busy? --> sweep, model by model --> busy? --> judge by the history --> retune
bless   --> what is slower now is the level from its first night on

Each model is recorded when it is measured, so that a sweep that was killed goes on where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import msgspec

from tunegrad.compiling import HOOKS
from tunegrad.config import TuneSettings, resolve_settings
from tunegrad.db import Latency, Properties, Store, check_store, clean_text, open_store
from tunegrad.devices import Hooks
from tunegrad.errors import CandidateFailure, ConfigError, UserError
from tunegrad.events import Observer
from tunegrad.ir.dtypes import labelled
from tunegrad.tuning import Interrupt, machine_state, revision, versions
from tunegrad.version import __version__

from . import nights as history
from .bisecting import revision_of_models
from .measured import ModelTimes, measure_model
from .report import Accepted, Failed, Finding, SweepReport
from .settings import SweepSettings, load_sweep
from .verdict import judge

_GOES_ON_S = 12 * 3600.0
"""A sweep that was interrupted longer ago is not gone on with: it would be two nights in one."""

_LONGEST = 2000
"""Characters of what is kept of an error."""

_PEERS = (("schedule", "peer"),)


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep: its id, what failed, and True if it was interrupted."""

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
    noted = history.failures_of(store.sessions(), earlier) if earlier else {}
    failed: list[Failed] = []
    with (
        store.session(history.SWEEP, 0, record, __version__, state=machine_state()) as session,
        Interrupt() as interrupt,
    ):
        name = earlier or session.id
        known, source = _measured(store, name), revision_of_models(settings.folder)
        if earlier:
            tell(f"going on with sweep {name}")
        try:
            for device, model in product(settings.devices, settings.models):
                one = settings.of(device, model)
                target = labelled(one.model.name, one.dtype), device
                if target in known:
                    tell(f"{one.model.name} on {device}: measured already")
                    failed += noted.get(target, [])
                    continue
                began_s = time.monotonic()
                found: ModelTimes | CandidateFailure | UserError
                try:
                    found = measure_model(
                        one, store, settings.turns, interrupt, hooks, tell, settings.peers
                    )
                except (CandidateFailure, UserError) as error:
                    found = error
                lost = _lost(found, *target)
                if lost or target in noted:
                    _note(store, name, target, lost)
                failed += lost
                if isinstance(found, ModelTimes):
                    for row in rows_of(found, device, session.id, time.time(), source):
                        store.record_latency(row)
                took_s = time.monotonic() - began_s
                for line in _said(found, settings.turns, took_s):
                    tell(f"{target[0]} on {device}: {line}")
        except KeyboardInterrupt:
            return Swept(name, tuple(failed), interrupted=True)
    lines = [f"{f.device} {f.model} {f.kernel}: {f.why}"[:200] for f in failed]
    with store.session(history.DONE, 0, {"sweep": name, "failed": lines}, __version__):
        pass
    return Swept(name, tuple(failed), interrupted=False)


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
    with store.session(history.FAILED, 0, record, __version__):
        pass


def rows_of(
    found: ModelTimes, device: str, session: str, moment_s: float, source: str = ""
) -> list[Latency]:
    """The rows of a model: the whole of it last, so that it says that all are there. ``source`` is
    the revision of the repository of models.
    """
    common = (*versions(found.here), *([("models", source)] if source else []))
    seen = dict(machine_state(others=found.others_cpus, device=found.state))
    lacking = {history.LACKING: round(found.lacking_cpus, 2)}
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
        row(history.kernel_series(found.model, history.YARDSTICK + name), program, (seconds, ()))
        for name, (seconds, program) in found.yardsticks.items()
    ]
    rows += [
        row(
            history.kernel_series(found.model, history.PEER + name),
            found.key,
            (seconds, ()),
            _PEERS,
        )
        for name, seconds in found.peers.items()
    ]
    for k in found.kernels:
        schedule = "stored" if k.stored else "default"
        code = (("program", k.program), ("schedule", schedule), ("uses", float(k.uses)))
        series = history.kernel_series(found.model, k.name)
        rows.append(row(series, k.key, (k.tuned_s, k.default_s), code))
    return [*rows, row(found.model, found.key, found.whole)]


def _clock() -> dict[str, float]:
    """The highest clock of the processors, in MHz, where the machine says it."""
    import psutil

    found = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return {"clock_mhz": float(found.max)} if found and found.max else {}


def _measured(store: Store, sweep: str) -> set[tuple[str, str]]:
    """(model, device) pairs that a sweep has measured as a whole."""
    parts, _, _ = history.sweeps_of(store.sessions())
    mine = {session for session, name in parts.items() if name == sweep}
    return {
        (row.model, str(dict(row.state).get("asked", "")))
        for row in store.latencies()
        if row.session in mine
    }


def _unfinished(settings: SweepSettings, store: Store, now_s: float) -> str | None:
    """The newest sweep, where it is the same and was not finished."""
    parts, _, done = history.sweeps_of(store.sessions())
    mine = [s for s in store.sessions() if s.command == history.SWEEP]
    if not mine:
        return None
    last = mine[-1]
    name, asked = parts[last.id], msgspec.json.decode(last.settings, type=dict[str, object])
    asked.pop("sweep", None)
    same = asked == msgspec.json.decode(msgspec.json.encode(settings.record()))
    first_s = next((s.started_s for s in mine if s.id == name), last.started_s)
    return name if same and name not in done and now_s - first_s < _GOES_ON_S else None


_LOOK_S = 0.5

_SHARE = 0.1
"""Of the time of all processors: what a desktop or a daemon takes is less, a build is more."""


def busy(look_s: float = _LOOK_S) -> str:
    """Description of how busy other processes keep this machine; empty where it is quiet.

    Looks for ``look_s`` seconds, in which this process does nothing. ``load_1m`` is said, and
    decides nothing: it lags by a minute, and counts what this process did before.
    """
    import psutil

    share = float(psutil.cpu_percent(interval=look_s)) / 100.0
    if share <= _SHARE:
        return ""
    return f"other processes take {share:.0%} of the processors (load {os.getloadavg()[0]:.2f})"


Display = Callable[[], AbstractContextManager[Observer | None]]
"""Opens what shows a search while it runs."""


def retuned(
    settings: SweepSettings,
    findings: Sequence[Finding],
    retune_s: float,
    tell: Callable[[str], None],
    display: Display = nullcontext,
) -> tuple[str, ...]:
    """Tune the models that got slower again, each on its device, for an equal part of the time;
    their names, as far as it came.

    Searched are the kernels that got slower; all of them where only the whole model did. With a
    seed of its own: the budget of the last tune's seed may be spent. What the store knows is not
    measured again. Ctrl-C keeps the best so far, and begins no other model.
    """
    from tunegrad.tune import tune_models

    slower: dict[tuple[str, str], set[str]] = {}
    for f in findings:
        if f.kind == "regression":
            model, kernel = history.split_series(f.series)
            slower.setdefault((f.device, model), set()).update([f.key] if kernel else [])
    if not slower or retune_s <= 0.0:
        return ()
    done: list[str] = []
    for number, ((device, name), kernels) in enumerate(slower.items()):
        each_s = retune_s / len(slower)
        tell(f"tuning {name} on {device} again for {each_s:.0f} s")
        one = _settings(settings, device, name, each_s, int(time.time()) + number)
        try:
            with display() as observer:
                watching = [] if observer is None else [observer]
                report = tune_models(one, watching, only=frozenset(kernels))[0]
        except UserError as error:
            tell(f"{name} on {device}: not tuned again: {error}")
            continue
        except KeyboardInterrupt:
            tell(f"{name} on {device}: interrupted; nothing else is tuned again")
            break
        done.append(name)
        if report.interrupted:
            tell("interrupted; nothing else is tuned again")
            break
    return tuple(done)


def _settings(
    settings: SweepSettings, device: str, name: str, budget_s: float, seed: int
) -> TuneSettings:
    """Of the model that the sweep calls so."""
    asked = {resolve_settings(m, dtype=settings.dtype).model.name: m for m in settings.models}
    model = asked.get(name) or asked.get(name.removesuffix(f" {settings.dtype}"), name)
    return settings.of(device, model, budget_s=budget_s, seed=seed)


def regress(
    settings: SweepSettings | str | Path,
    tell: Callable[[str], None] = lambda _: None,
    *,
    config: str = "",
    store: str | Path | None = None,
    fresh: bool = False,
    retune_s: float = 0.0,
    display: Display = nullcontext,
    hooks: Hooks = HOOKS,
) -> SweepReport:
    """Time the stored winners of a sweep's models again, and say what changed. A sweep is settings,
    or the file (and a ``store`` that is not the file's).

    A sweep that was interrupted goes on, unless it shall be ``fresh``. ``retune_s`` seconds are
    spent on what got slower, and ``display`` shows that. Raises UserError for a store that can not
    be used, and on a busy machine where quiet is required.
    """
    from tunegrad.devices import start_fork_server
    from tunegrad.tune import WORKER_MODULES

    began_s = time.monotonic()
    if not isinstance(settings, SweepSettings):
        config, settings = config or str(settings), load_sweep(settings, store)
    check_store(settings.store)
    before = busy()
    if before and settings.quiet == "require":
        raise UserError(f"the machine is not quiet, and the sweep requires that: {before}")
    if before:
        tell(f"warning: the machine is not quiet: {before}")
    start_fork_server(WORKER_MODULES)
    with open_store(settings.store, "write") as opened:
        swept = sweep(settings, opened, tell, hooks, fresh=fresh)
        after = busy()
        found = judge(opened, swept.sweep)
    again_s = 0.0 if swept.interrupted else retune_s
    tuned = retuned(settings, found.findings, again_s, tell, display)
    said = [("before", before), ("after", after)]
    return SweepReport(
        sweep=swept.sweep,
        config=config,
        store=str(settings.store),
        revision=revision(),
        seconds=time.monotonic() - began_s,
        rows=found.rows,
        findings=found.findings,
        failed=swept.failed,
        busy=tuple(f"{when}: {text}" for when, text in said if text),
        uncounted=found.uncounted,
        retuned=tuned,
        interrupted=swept.interrupted,
    )


def bless(settings: SweepSettings, reason: str) -> Accepted:
    """Accept what is slower now as the level since it got so, and keep the reason.

    Raises ConfigError for no reason, and where no sweep was ever stored.
    """
    if not reason.strip():
        raise ConfigError("a level is accepted for a reason: --bless REASON says it")
    with open_store(settings.store, "write") as store:
        nights, _ = history.nights_of(store)
        if not nights:
            raise ConfigError(f"store {settings.store}: it has no sweep whose levels to accept")
        found = judge(store, nights[-1].sweep)
        record = {"sweep": nights[-1].sweep, "reason": reason, "levels": found.levels}
        with store.session(history.BLESS, 0, record, __version__):
            pass
    levels = tuple(f for f in found.findings if f.kind == "regression")
    return Accepted(reason, str(settings.store), levels)
