"""One tuning session: a model's kernels searched within a budget, their winners settled, everything in the store.

    workload  -->  searches, resumed from the store  -->  finals  -->  whole model, before and after  -->  report

A search, a device and a store meet here and nowhere else.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from tunegrad import __version__
from tunegrad.artifact import OPT_LEVEL
from tunegrad.candidate import HOOKS
from tunegrad.config import TuneSettings
from tunegrad.db import Store, open_store
from tunegrad.devices import CpuMeasurer, Hooks, Limits, fingerprint, host_target
from tunegrad.errors import CandidateFailure, DeviceError
from tunegrad.events import (
    BudgetSpent,
    CandidateMeasured,
    Event,
    KernelFinished,
    Observer,
    SessionFinished,
    SessionStarted,
    Warned,
)
from tunegrad.inference import LoadedModel
from tunegrad.ir.fusion import Schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION, Space
from tunegrad.planning import stored_toggles
from tunegrad.reports import RunReport, TuneReport
from tunegrad.search import (
    LEARNED,
    BudgetPolicy,
    KernelSearch,
    ModelSearch,
    Searcher,
    SearchTask,
    TrialLog,
    cost_model_installed,
    make_searcher,
)
from tunegrad.trial import Fingerprint, Policy
from tunegrad.variants import pick_variants, picked

from .contest import Contest, bound
from .costs import ChargedSearcher, ChargedTrials, Costs
from .finals import Effort, Weighed, finals
from .interrupt import Interrupt
from .measuring import CandidateMeasurer
from .pace import near_s
from .plans import settle_plan
from .report import Finish, report_of
from .roofline import Roofline, needed_flops
from .variants import settle_variants
from .whole import measure_whole
from .workload import KernelUse, Workload, with_toggles, with_variants

__all__ = ["SEARCH_POLICY", "run_session"]

SEARCH_POLICY = Policy(cache="warm", min_samples=3, max_samples=20, tolerance=0.02, budget_s=0.015, timeout_s=10.0)
"""How candidates are timed during a search; finalists are timed again, cold and interleaved."""

_LIMITS = Limits(compile_s=3.0, second_set_s=0.1)
_RESERVE = 0.1
PLAN_SHARE = 0.06
"""The part of a budget in which edges of the graph are decided."""

PLAN_LEAST_S = 1.5
"""Where that part is less than this, nothing can be decided in it: the edges stay as they are."""

_LEAST_S = 0.05
"""A budget with less than this left is spent."""

_log = logging.getLogger(__name__)


def run_session(
    settings: TuneSettings,
    workload: Workload,
    observers: Sequence[Observer],
    hooks: Hooks = HOOKS,
    costs: Costs | None = None,
) -> TuneReport:
    """Tune. The session's row is closed however this ends, and what was measured stays.

    ``hooks`` are what the workers do with a candidate, ``costs`` a watch that runs already.
    Raises UserError for an unknown device or an unusable store.
    """
    if settings.device != "cpu":
        raise DeviceError(f"device {settings.device!r} can not be tuned; valid: cpu")
    costs = costs or Costs()
    began_s = time.time() - costs.total_s
    with ExitStack() as stack:
        starting = stack.enter_context(ExitStack())
        starting.enter_context(costs.part("start-up"))
        target = host_target(settings.threads)
        store = stack.enter_context(open_store(settings.store, "write"))
        interrupt = stack.enter_context(Interrupt())
        device = stack.enter_context(CpuMeasurer(target, hooks, _LIMITS, settings.seed, opt_level=OPT_LEVEL))
        row = stack.enter_context(store.session("tune", settings.seed, _record(settings), __version__))
        with interrupt.breakable():
            roofline = Roofline(device.machine_limits(), target)
        session = _Session(
            settings,
            workload,
            target,
            fingerprint(target, settings.numerics),
            store,
            tuple(observers),
            roofline,
            interrupt,
            row.id,
            workload.key,
            costs,
            began_s,
        )
        starting.close()
        return session.run(device)


@dataclass(slots=True)
class _Session:
    """What the steps of one session share. Mutable.

    ``began_s`` is when it began, in seconds since the epoch. ``before_s`` of the budget were
    spent by earlier sessions, ``spent_s`` is what this one has charged so far.
    """

    settings: TuneSettings
    workload: Workload
    target: Target
    here: Fingerprint
    store: Store
    observers: tuple[Observer, ...]
    roofline: Roofline
    interrupt: Interrupt
    id: str
    work_key: str
    costs: Costs
    began_s: float
    before_s: float = 0.0
    spent_s: float = 0.0
    named: dict[str, Kernel] = field(default_factory=dict)

    def run(self, device: CpuMeasurer) -> TuneReport:
        """Search, settle the winners, measure the whole model, report."""
        measurer = CandidateMeasurer(device, SEARCH_POLICY, self.interrupt, self.costs)
        self.before_s = self.store.spent(self.work_key, self.here, self._spend_key)
        left_s = self.settings.budget_s - self.before_s
        self._announce()
        for use in self.workload.kernels:
            if use.kernel.fixed:
                Space(use.kernel, self.target).fixed()  # an illegal one is the user's error, at once
        begun_s = time.monotonic()
        with self.costs.part("plans"):
            self._settle_plan(measurer, left_s)
            self._settle_variants(measurer, left_s)
        if self.settings.searcher in LEARNED and not cost_model_installed():
            self.tell(Warned(f"searcher {self.settings.searcher}: no cost model without lightgbm (tunegrad[learn])"))
        searches = self._searches(measurer, [u for u in self.workload.kernels if not u.kernel.fixed])
        if left_s >= _LEAST_S:
            self._search(searches, measurer, max(_LEAST_S, left_s - (time.monotonic() - begun_s)))
        else:
            self.tell(Warned(f"the budget of {self.settings.budget_s:g} s is spent; a larger one goes on from here"))
        search_s = time.monotonic() - begun_s
        with self.costs.part("finals", sealed=True):
            weighed = self._finals(searches, measurer)
        if left_s >= _LEAST_S:
            used_s = time.monotonic() - begun_s
            # A search that ran to its end has used its budget, also the part that its finals did not need.
            self._charge(used_s if self.interrupt.requested else max(used_s, left_s))
        device.close()
        with self.costs.part("whole model", sealed=True):
            whole = self._whole()
        near = near_s([(s.task.uses, s.trials) for s in searches], self.id, self.began_s)
        finish = Finish(self.interrupt.requested, search_s, self.costs.seconds, near, weighed, whole)
        report = report_of(
            self.settings, self.workload, searches, self.store, self.here, self.roofline, self.id, finish
        )
        self.tell(SessionFinished(report))
        return report

    def tell(self, event: Event) -> None:
        """Hand an event to every observer; what was spent is stored, per cents are of the nearer of the two bounds."""
        match event:
            case BudgetSpent():
                self._charge(event.spent_s)
                event = replace(event, spent_s=self.before_s + event.spent_s, budget_s=self.settings.budget_s)
            case CandidateMeasured():
                event = replace(event, pct_peak=self._pct(event.kernel, event.best_s))
            case KernelFinished():
                event = replace(event, pct_peak=self._pct(event.kernel, event.best_s))
            case _:
                pass
        for observer in self.observers:
            observer.observe(event)

    # ---- steps

    def _settle_plan(self, measurer: CandidateMeasurer, left_s: float) -> None:
        """Decide which edges of the graph are buffers, where the budget's share allows to measure any."""
        fusion, share_s = self.workload.fusion, PLAN_SHARE * left_s
        toggles = stored_toggles(fusion, self.here, self.store)
        if share_s >= PLAN_LEAST_S:
            try:
                toggles = settle_plan(
                    fusion,
                    self.target,
                    self.here,
                    self.store,
                    partial(self._default_seconds, measurer),
                    Contest(self._planned),
                    self.id,
                    self.settings.numerics,
                    time.monotonic() + share_s,
                    self.tell,
                )
            except KeyboardInterrupt:
                if not self.interrupt.requested:
                    raise
                toggles = stored_toggles(fusion, self.here, self.store)
        if toggles:
            self.workload = with_toggles(self.workload, toggles)

    def _planned(self, plan: Schedule) -> LoadedModel:
        """A plan with the variants that are picked for it, ready to run."""
        rewritten, _ = pick_variants(plan, self.target, self.here, self.store, self.settings.numerics)
        return bound(self.workload.name, rewritten, self.workload.inputs, self.target, self.here, self.store)

    def _default_seconds(self, measurer: CandidateMeasurer, kernels: Sequence[Kernel]) -> dict[str, float]:
        """Seconds of default schedules by key, verified and with their rows; infinity where none ran."""
        searches = self._searches(measurer, [KernelUse(k, k.key, k.name, 1) for k in kernels])
        self._prime(searches, measurer)
        for s in searches:
            s.measure_defaults()
        return {s.task.key: s.default_s for s in searches}

    def _settle_variants(self, measurer: CandidateMeasurer, left_s: float) -> None:
        """Decide which variant every kernel runs as; from here on the work is that of the decided plan."""
        if left_s < _LEAST_S:
            picks = picked(self.workload.plan, self.target, self.here, self.store, self.settings.numerics)
            self.workload = with_variants(self.workload, picks)
            return

        deadline_s = time.monotonic() + 0.15 * left_s
        try:
            picks = settle_variants(
                self.workload,
                self.target,
                self.here,
                self.store,
                partial(self._default_seconds, measurer),
                self.id,
                self.settings.numerics,
                deadline_s,
            )
        except KeyboardInterrupt:
            if not self.interrupt.requested:
                raise
            picks = picked(self.workload.plan, self.target, self.here, self.store, self.settings.numerics)
        self.workload = with_variants(self.workload, picks)

    def _searches(self, measurer: CandidateMeasurer, uses: Sequence[KernelUse]) -> tuple[KernelSearch, ...]:
        store = ChargedTrials(self.store, self.costs)
        log = TrialLog(store, self.here, SEARCH_POLICY, self.id, time.time, self._resumed())
        searches = []
        self.named.update((use.name, use.kernel) for use in uses)
        for use in uses:
            self.store.name_kernel(use.kernel.text, use.name)
            with self.costs.part("asking"):
                space = Space(use.kernel, self.target)
                searcher = ChargedSearcher(_searcher(self.settings, space, use.key), self.costs)
                searches.append(KernelSearch(self._task(use), space, searcher, measurer, log, self.tell))
        return tuple(searches)

    def _task(self, use: KernelUse) -> SearchTask:
        k = use.kernel
        floor_s = self.roofline.bound_s(k)
        return SearchTask(k, use.name, use.key, k.text, use.uses, needed_flops(k), k.unique_bytes, floor_s)

    def _resumed(self) -> frozenset[str]:
        """Sessions that asked the same questions: rows answer them now, in the same order, and this one goes on."""
        mine = _same(_record(self.settings))
        same = [s for s in self.store.sessions() if s.id != self.id and s.command == "tune"]
        return frozenset(s.id for s in same if s.seed == self.settings.seed and _same(_parsed(s.settings)) == mine)

    def _announce(self) -> None:
        s = self.settings
        known = sum(len(self.store.trials(u.key, self.here, SEARCH_POLICY)) for u in self.workload.kernels)
        peak = self.roofline.peak_flops_per_s
        self.tell(
            SessionStarted(
                self.id, self.workload.name, s.device, s.threads, s.searcher, s.seed, s.budget_s,
                len(self.workload.kernels), str(s.store), known, peak,
            )
        )  # fmt: skip

    def _search(self, searches: tuple[KernelSearch, ...], measurer: CandidateMeasurer, left_s: float) -> None:
        batch = 8 if left_s < 2.0 * len(searches) else 16
        policy = BudgetPolicy(batch=batch, reserve=_RESERVE, charge_resumed=False)
        search = ModelSearch(searches, left_s, time.monotonic, self.tell, policy)
        try:
            self._prime(searches, measurer)
            search.run()
        except KeyboardInterrupt:
            if not self.interrupt.requested:
                raise
        self._charge(search.spent_s)

    def _prime(self, searches: tuple[KernelSearch, ...], measurer: CandidateMeasurer) -> None:
        """Compile the defaults of all kernels in one batch."""
        stored = {(s, t.actions) for s in searches for t in s.log.stored(s.task.key, s.space.version)}
        fresh = [(s.task.kernel, d) for s in searches for d in s.defaults if (s, d.text) not in stored]
        measurer.prime(fresh)

    def _finals(self, searches: tuple[KernelSearch, ...], measurer: CandidateMeasurer) -> dict[str, Weighed]:
        weighed: dict[str, Weighed] = {}
        share_s = 0.0 if self.interrupt.requested else _RESERVE * self.settings.budget_s
        effort = Effort(deadline_s=time.monotonic() + share_s)
        self.interrupt.forgive()
        try:
            finals(searches, measurer, self.store, self.here, effort, self.tell, weighed)
        except KeyboardInterrupt:
            self.tell(Warned("interrupted before every winner was settled; the others are the fastest measured so far"))
        return weighed

    def _whole(self) -> RunReport | None:
        try:
            return measure_whole(
                self.workload, self.store, self.target, self.here, 0.3 if self.interrupt.requested else 2.0
            )
        except CandidateFailure as error:
            self.tell(Warned(f"the whole model was not measured: {error}"))
            return None

    # ---- the budget

    @property
    def _spend_key(self) -> str:
        """What a budget is for: the same search of the same model with the same seed."""
        return f"searcher={self.settings.searcher} seed={self.settings.seed} space={SPACE_VERSION} {SEARCH_POLICY.text}"

    def _charge(self, total_s: float) -> None:
        """Note that this session has spent ``total_s`` in all."""
        if total_s > self.spent_s:
            with self.costs.part("store"):
                self.store.add_spend(self.work_key, self.here, self._spend_key, total_s - self.spent_s)
            self.spent_s = total_s

    def _pct(self, name: str, seconds: float) -> float:
        return self.roofline.pct_peak(self.named[name], seconds)


def _searcher(settings: TuneSettings, space: Space, key: str) -> Searcher:
    return make_searcher(settings.searcher, space, Random(f"{settings.seed} {key}"))


def _record(settings: TuneSettings) -> dict[str, object]:
    """The settings as the session's row keeps them."""
    learned = {"cost_model": cost_model_installed()} if settings.searcher in LEARNED else {}
    return {
        "model": settings.model.name,
        "builder": settings.model.builder,
        "batch": settings.model.batch,
        "args": [[name, list(value) if isinstance(value, tuple) else value] for name, value in settings.model.args],
        "device": settings.device,
        "threads": settings.threads,
        "budget_s": settings.budget_s,
        "searcher": settings.searcher,
        "space_version": SPACE_VERSION,
        "policy": SEARCH_POLICY.text,
        "numerics": settings.numerics,
        **learned,
    }


def _parsed(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _same(record: Mapping[str, object]) -> Mapping[str, object]:
    """The settings that decide what a search asks: all but the length of its budget."""
    return {name: value for name, value in record.items() if name != "budget_s"}
