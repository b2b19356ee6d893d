"""A sweep from beginning to end: is the machine quiet, measure, judge, tune again what got slower.

regress --> busy? --> sweep, model by model --> busy? --> judge by the history --> retune
bless   --> what is slower now is the level from its first night on
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from tunegrad.compiling import HOOKS
from tunegrad.config import TuneSettings, resolve_settings
from tunegrad.db import check_store, open_store
from tunegrad.devices import Hooks
from tunegrad.errors import ConfigError, UserError
from tunegrad.events import Observer
from tunegrad.tuning import revision
from tunegrad.version import __version__

from .nights import BLESS, nights_of, split_series
from .report import Accepted, Finding, SweepReport
from .settings import SweepSettings, load_sweep
from .sweep import sweep
from .verdict import judge

__all__ = [
    "Display",
    "bless",
    "busy",
    "regress",
    "retuned",
]

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
            model, kernel = split_series(f.series)
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
    from tunegrad.devices.processes.isolated import start_fork_server
    from tunegrad.tune.sessions import WORKER_MODULES

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
        nights, _ = nights_of(store)
        if not nights:
            raise ConfigError(f"store {settings.store}: it has no sweep whose levels to accept")
        found = judge(store, nights[-1].sweep)
        record = {"sweep": nights[-1].sweep, "reason": reason, "levels": found.levels}
        with store.session(BLESS, 0, record, __version__):
            pass
    levels = tuple(f for f in found.findings if f.kind == "regression")
    return Accepted(reason, str(settings.store), levels)
