"""One tuning session: the kernels of models searched within a budget, winners raced, everything in
the store.

    open      store, site, the machine's peaks, the session's row
    stages    plan, search, race, search, race, measure, report

A search, a device and a store meet here and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from tunegrad import __version__
from tunegrad.compiling.candidate import HOOKS
from tunegrad.config import TuneSettings
from tunegrad.db import open_store
from tunegrad.devices import Hooks, Limits
from tunegrad.events import Event, MachineBusy, Observer, PhaseStarted, Stopping, Warned
from tunegrad.ir.target import Target
from tunegrad.reports import TuneReport
from tunegrad.search import check_searcher
from tunegrad.trial import Policy

from .budget.account import Account, resumed_sessions, session_record
from .budget.costs import Costs
from .budget.deadlines import Ends
from .executor.site import open_site
from .interrupt import Interrupt
from .machine.conditions import machine_state, versions
from .machine.load import busy_text, cpu_use, probed
from .machine.roofline import Roofline
from .progress import Progress
from .questions.plan import RACE_SHARE
from .searching import BATCH, Searching
from .stages import Stages
from .workload import Workload, not_a_number, work_key

__all__ = ["SEARCH_POLICY", "run_session", "run_sessions", "search_policy"]

_LIMITS = Limits(compile_s=3.0)
_BUSY = "times are worse and less sure than on a quiet machine"


def run_session(
    settings: TuneSettings,
    workload: Workload,
    observers: Sequence[Observer],
    hooks: Hooks = HOOKS,
    costs: Costs | None = None,
) -> TuneReport:
    """Tune one model: ``run_sessions`` of one."""
    return run_sessions(settings, [workload], observers, hooks, costs)[0]


def run_sessions(
    settings: TuneSettings,
    workloads: Sequence[Workload],
    observers: Sequence[Observer],
    hooks: Hooks = HOOKS,
    costs: Costs | None = None,
    only: Set[str] = frozenset(),
) -> tuple[TuneReport, ...]:
    """Tune models together: one budget, one search of all their kernels, a report of each.

    The session's row is closed however this ends, and what was measured stays. ``hooks`` are what
    the workers do with a candidate, ``costs`` a watch that runs already, ``only`` the keys of the
    kernels that are searched, once variants are decided; none: all. Raises UserError for an
    unknown device, a searcher whose packages are not installed, or an unusable store.
    """
    check_searcher(settings.searcher)
    costs = costs or Costs()
    began_s = time.time() - costs.total_s
    used = cpu_use()
    with ExitStack() as stack:
        starting = stack.enter_context(ExitStack())
        starting.enter_context(costs.part("start-up"))
        store = stack.enter_context(open_store(settings.store, "write"))
        interrupt = stack.enter_context(Interrupt(partial(_stopping, observers)))
        site = stack.enter_context(
            open_site(
                settings,
                partial(search_policy, workloads),
                _LIMITS,
                hooks,
                interrupt,
                costs,
                partial(_warn, observers),
            )
        )
        settings = replace(settings, in_flight=site.in_flight(BATCH))
        _tell(observers, PhaseStarted("limits"))
        others = probed()
        if busy := busy_text(others, settings.threads):
            _tell(observers, MachineBusy(others, f"{busy}: {_BUSY}"))
        policy = site.policy
        record = session_record(settings, policy)
        row = stack.enter_context(
            store.session(
                "tune",
                settings.seed,
                record,
                __version__,
                versions=versions(site.here),
                state=machine_state(others=others, device=site.bench.state()),
            )
        )
        for text in not_a_number(workloads):
            _warn(observers, text)
        with interrupt.breakable():
            roofline = Roofline(site.machine_limits(), site.target)
        account = Account(settings, policy, store, site.here, work_key(workloads), costs)
        progress = Progress(observers, account, roofline, settings.budget_s)
        resumed = resumed_sessions(store, settings, policy, row.id)
        searching = Searching(settings, site, store, progress, costs, policy, row.id, resumed)
        ends = Ends(account.left_s, costs.began_s, time.monotonic(), RACE_SHARE)
        stages = Stages(
            settings,
            list(workloads),
            site,
            store,
            interrupt,
            costs,
            began_s,
            searching,
            ends,
            used,
            only,
        )
        starting.close()
        return stages.run()


def _tell(observers: Sequence[Observer], event: Event) -> None:
    for observer in observers:
        observer.observe(event)


def _stopping(observers: Sequence[Observer]) -> None:
    _tell(observers, Stopping())


def _warn(observers: Sequence[Observer], message: str) -> None:
    _tell(observers, Warned(message))


SEARCH_POLICY = Policy(
    cache="warm", min_samples=3, max_samples=10, tolerance=0.03, budget_s=0.01, timeout_s=10.0
)
"""The policy for timing candidates of small models during a search; finalists are raced in whole
models.
"""


def search_policy(workloads: Sequence[Workload], target: Target) -> Policy:
    """Policy for timing candidates of these models: constants are evicted where the cores' own
    caches do not hold them all.

    Between two runs of a kernel a model reads all its other constants, so that what one kernel that
    runs alone has in its caches says little of it: see decision 0020.
    """
    held = target.threads * target.l2_bytes
    constants = sum(b.nbytes for w in workloads for b in w.plan.buffers if b.role == "const")
    return replace(SEARCH_POLICY, cache="constants") if constants > held else SEARCH_POLICY
