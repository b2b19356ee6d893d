"""A sweep from beginning to end: is the machine quiet, measure, judge, tune again what got slower.

regress --> busy? --> sweep, model by model --> busy? --> judge by the history --> retune
bless   --> what is slower now is the level from its first night on
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from tunegrad.compiling import HOOKS
from tunegrad.db import check_store, open_store
from tunegrad.devices import Hooks
from tunegrad.errors import ConfigError, UserError
from tunegrad.tuning import revision
from tunegrad.version import __version__

from .nights import BLESS, nights_of
from .quiet import busy
from .report import Accepted, SweepReport
from .retuning import Display, retuned
from .settings import SweepSettings, load_sweep
from .sweep import sweep
from .verdict import judge

__all__ = ["bless", "regress"]

_WORKERS = ("tunegrad.tuning.models.work",)


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

    began_s = time.monotonic()
    if not isinstance(settings, SweepSettings):
        config, settings = config or str(settings), load_sweep(settings, store)
    check_store(settings.store)
    before = busy()
    if before and settings.quiet == "require":
        raise UserError(f"the machine is not quiet, and the sweep requires that: {before}")
    if before:
        tell(f"warning: the machine is not quiet: {before}")
    start_fork_server(_WORKERS)
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
