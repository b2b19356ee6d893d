"""One tuning session: the kernels of models searched within a budget, winners settled, everything in the store.

    workloads  -->  searches, resumed from the store  -->  finals  -->  whole models, before and after  -->  reports

A search, a device and a store meet here and nowhere else.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from random import Random
from statistics import median

from tunegrad import __version__, devices
from tunegrad.candidate import HOOKS
from tunegrad.config import TuneSettings
from tunegrad.db import Evidence, Store, open_store
from tunegrad.devices import Hooks, Limits
from tunegrad.errors import CandidateFailure, InternalError, WrongResult
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
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.reports import TuneReport
from tunegrad.search import (
    LEARNED,
    OPENMP,
    BudgetPolicy,
    KernelSearch,
    Lending,
    ModelSearch,
    Searcher,
    SearchSpace,
    SearchTask,
    StopReason,
    StopRule,
    TrialLog,
    check_searcher,
    cost_model_installed,
    make_searcher,
    taken_over,
)
from tunegrad.trial import Fingerprint, Policy, Trial

from .account import LEAST_S, Account, resumed_sessions, session_record, sessions_since
from .conditions import machine_state, record_latency, versions
from .costs import ChargedSearcher, ChargedTrials, Costs
from .deciding import Deciding, OutOfTrialsError
from .decisions import in_model
from .finals import Contestant, Effort, Weighed, finals
from .goal import Goal
from .heats import Heats
from .interrupt import Interrupt
from .lessons import Teacher, features_of
from .measuring import SessionMeasurer
from .model_finals import settle_in_model
from .models import Models
from .pace import near_s
from .references import standing
from .report import Finish, Whole, report_of
from .rivals import Rivals
from .roofline import Roofline, needed_flops
from .seeding import Seeding
from .sites import Site, open_site
from .soundness import Soundness, made_sound
from .workload import KernelUse, Workload, shared_kernels, work_key

__all__ = ["SEARCH_POLICY", "run_session", "run_sessions", "search_policy"]

SEARCH_POLICY = Policy(cache="warm", min_samples=3, max_samples=10, tolerance=0.03, budget_s=0.01, timeout_s=10.0)
"""How candidates of small models are timed during a search; finalists are timed again, cold and interleaved."""

_BATCH, _SHORT_BATCH = 16, 8
"""Candidates between two decisions; the second where the budget is short for the number of kernels."""

_LIMITS = Limits(compile_s=3.0)
_RESERVE = 0.1
"""The part of a budget that is kept for the finals."""

_WEIGHING = 0.2
"""The part of the finals that is kept for what comes after the whole models: winners weighed against the defaults."""

_LATENCY_RUNS = 20
"""Of the whole model, where a latency is wanted."""

_HEATS_SHARE, _VARIANTS_SHARE = 0.25, 0.1
"""The parts of a budget in which near variants are searched, and in which whole models choose among them."""


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
) -> tuple[TuneReport, ...]:
    """Tune models together: one budget, one search of all their kernels, a report of each.

    The session's row is closed however this ends, and what was measured stays. ``hooks`` are what the workers do with a
    candidate, ``costs`` a watch that runs already. Raises UserError for an unknown device, a searcher
    whose packages are not installed, or an unusable store.
    """
    check_searcher(settings.searcher)
    policy = search_policy(workloads, devices.open(settings.device, settings.threads).target)
    costs = costs or Costs()
    began_s = time.time() - costs.total_s
    with ExitStack() as stack:
        starting = stack.enter_context(ExitStack())
        starting.enter_context(costs.part("start-up"))
        store = stack.enter_context(open_store(settings.store, "write"))
        interrupt = stack.enter_context(Interrupt())
        site = stack.enter_context(
            open_site(settings, policy, _LIMITS, hooks, interrupt, costs, partial(_warn, observers))
        )
        settings = replace(settings, in_flight=site.in_flight(_BATCH))
        record = session_record(settings, policy)
        row = stack.enter_context(
            store.session(
                "tune", settings.seed, record, __version__, versions=versions(site.here), state=machine_state()
            )
        )
        with interrupt.breakable():
            roofline = Roofline(site.machine_limits(), site.target)
        session = _Session(
            settings,
            list(workloads),
            site,
            store,
            tuple(observers),
            roofline,
            interrupt,
            row.id,
            costs,
            began_s,
            Account(settings, policy, store, site.here, work_key(workloads), costs),
            resumed_sessions(store, settings, policy, row.id),
            policy,
        )
        starting.close()
        return session.run()


def search_policy(workloads: Sequence[Workload], target: Target) -> Policy:
    """How candidates of these models are timed: constants evicted, where the cores' own caches do not hold them all.

    Between two runs of a kernel a model reads all its other constants, so that what one kernel that runs alone has in
    its caches says little of it: see decision 0020.
    """
    held = target.threads * target.l2_bytes
    constants = sum(b.nbytes for w in workloads for b in w.plan.buffers if b.role == "const")
    return replace(SEARCH_POLICY, cache="constants") if constants > held else SEARCH_POLICY


@dataclass(slots=True)
class _Session:
    """What the steps of one session share. Mutable.

    ``began_s`` is when it began, in seconds since the epoch. ``resumed`` are the sessions that it goes on from.
    ``measured`` counts its trials by status.
    """

    settings: TuneSettings
    workloads: list[Workload]
    site: Site
    store: Store
    observers: tuple[Observer, ...]
    roofline: Roofline
    interrupt: Interrupt
    id: str
    costs: Costs
    began_s: float
    account: Account
    resumed: frozenset[str]
    policy: Policy
    named: dict[str, Kernel] = field(default_factory=dict)
    measured: Counter[str] = field(default_factory=Counter)

    @property
    def target(self) -> Target:
        return self.site.target

    @property
    def here(self) -> Fingerprint:
        return self.site.here

    @property
    def models(self) -> Models:
        return Models(self.store, self.target, self.here, self.site.bench)

    def run(self) -> tuple[TuneReport, ...]:
        """Search, settle the winners, measure the whole models, report."""
        measurer = self.site.measurer
        left_s = self.account.left_s
        self._announce()
        for use in shared_kernels(self.workloads):
            if use.kernel.fixed:
                Space(use.kernel, self.target).fixed()  # an illegal one is the user's error, at once
        begun_s = time.monotonic()
        with self.costs.part("plans"):
            self._expect()
            deciding = self._deciding(measurer)
            share_s = left_s / len(self.workloads) if self.site.runs_models else 0.0
            heats = Heats(
                [deciding.opened(work, share_s) for work in self.workloads],
                partial(self._decided, deciding, _VARIANTS_SHARE * share_s),
                _HEATS_SHARE * left_s,
            )
        if self.settings.searcher in LEARNED and not cost_model_installed():
            self.tell(
                Warned(f"searcher {self.settings.searcher}: no cost model: lightgbm can not be imported; {OPENMP}")
            )
        uses = [u for u in shared_kernels(heats.rivals) if not u.kernel.fixed]
        searches = self._searches(measurer, uses, self.settings.warm_start)
        stopped: StopReason | None = None
        if left_s >= LEAST_S:
            stopped = self._search(searches, heats, measurer, max(LEAST_S, left_s - (time.monotonic() - begun_s)))
        else:
            self.tell(Warned(self._nothing_left()))
        self.workloads = heats.workloads
        searches = _of_models(searches, self.workloads)
        search_s = time.monotonic() - begun_s
        with self.costs.part("finals", sealed=True):
            weighed = self._finals(searches, measurer)
        saved_s = self._settle_account(stopped, left_s, time.monotonic() - begun_s)
        self.site.measurer.settle()
        with self.costs.part("whole model", sealed=True):
            wholes = [self._whole(work) for work in self.workloads]
        self.site.close()
        others = self.measured - sum((Counter(s.statuses) for s in searches), Counter[str]())
        finish = Finish(self.interrupt.requested, stopped, saved_s, search_s, self.costs.seconds, weighed, others)
        reports = tuple(
            self._report(w, searches, finish, whole) for w, whole in zip(self.workloads, wholes, strict=True)
        )
        self.tell(SessionFinished(reports[0], reports[1:]))
        return reports

    def tell(self, event: Event) -> None:
        """Hand an event to every observer; what was spent is stored, per cents are of the nearer of the two bounds."""
        match event:
            case BudgetSpent():
                self.account.charge(event.spent_s)
                spent_s = self.account.before_s + event.spent_s
                event = replace(event, spent_s=spent_s, budget_s=self.settings.budget_s)
            case CandidateMeasured():
                self.measured[str(event.status)] += 1
                event = replace(event, pct_peak=self._pct(event.kernel, event.best_s))
            case KernelFinished():
                event = replace(event, pct_peak=self._pct(event.kernel, event.best_s))
            case _:
                pass
        for observer in self.observers:
            observer.observe(event)

    # ---- steps

    def _expect(self) -> None:
        """Begin to evaluate the models, for which the compile workers have time while their plans are looked at.

        Not where other machines measure: one of them may be this one.
        """
        if self.site.runs_models and self.settings.ray is None:
            try:
                self.site.bench.expect([(work.fusion.drafts.targets, work.inputs) for work in self.workloads])
            except KeyboardInterrupt:
                if not self.interrupt.requested:
                    raise

    def _deciding(self, measurer: SessionMeasurer) -> Deciding:
        seconds = partial(self._default_seconds, measurer)
        numerics, models = self.settings.numerics, self.models
        return Deciding(
            self.target, self.here, self.store, self.id, numerics, models, self._void_actions, seconds,
            self.interrupt, self.tell,
        )  # fmt: skip

    def _decided(self, deciding: Deciding, share_s: float, rivals: Rivals, actions: Mapping[str, str]) -> Workload:
        """A model as whole models of it decide, while nothing else works on this machine."""
        self.site.measurer.settle()
        with self.costs.part("plans"):
            return deciding.decided(rivals, actions, share_s)

    def _default_seconds(self, measurer: SessionMeasurer, kernels: Sequence[Kernel]) -> dict[str, float]:
        """Seconds of default schedules by key, verified and with their rows; infinity where none ran."""
        searches = self._searches(measurer, [KernelUse(k, k.key, k.name, 1) for k in kernels])
        self._check_trials(searches)
        self._prime(searches, measurer)
        under_way = deque((s, s.begin_defaults()) for s in searches)
        try:
            while under_way:
                search, begun = under_way[0]
                search.finish(begun)
                under_way.popleft()
        finally:
            for search, begun in under_way:
                search.give_up(begun)
        return {s.task.key: s.default_s for s in searches}

    def _check_trials(self, searches: Sequence[KernelSearch]) -> None:
        """Raise OutOfTrialsError unless the defaults of the kernels can be measured as well, in the end."""
        if (left := self._trials_left()) is not None:
            fresh = sum(d.text not in s.texts for s in searches for d in s.defaults)
            if fresh > left - len(shared_kernels(self.workloads)):
                raise OutOfTrialsError

    def _trials_left(self) -> int | None:
        """How many more candidates may be measured; None for any number."""
        most = self.settings.max_trials
        return None if most is None else max(0, most - self.store.count({self.id, *self.resumed}, self.policy))

    def _searches(
        self, measurer: SessionMeasurer, uses: Sequence[KernelUse], seeded: bool = False
    ) -> tuple[KernelSearch, ...]:
        since = sessions_since(self.store, self.resumed | {self.id}) if seeded else frozenset[str]()
        seeding = Seeding(self.store, self.here, self.policy, since)
        store = ChargedTrials(self.store, self.costs)
        log = TrialLog(store, self.here, self.policy, self.id, time.time, self.resumed)
        searches = []
        self.named.update((use.name, use.kernel) for use in uses)
        with self.costs.part("asking"):
            learned = self.settings.searcher in LEARNED and cost_model_installed()
            teacher = Teacher({})
            if learned and seeded:
                others = dict(self.store.kernels(self.here))
                teacher = Teacher.of([use.kernel for use in uses], self.target, log, others, since)
        for use in uses:
            self.store.name_kernel(use.kernel.text, use.name)
            with self.costs.part("asking"):
                space = Space(use.kernel, self.target)
                searcher = ChargedSearcher(_searcher(self.settings, space, use.key, teacher), self.costs)
                seeds = partial(self._seeds, seeding, use.kernel, space) if seeded else tuple
                searches.append(KernelSearch(self._task(use), space, searcher, measurer, log, self.tell, seeds=seeds))
        return tuple(searches)

    def _seeds(self, seeding: Seeding, kernel: Kernel, space: Space) -> Sequence[Schedule]:
        with self.costs.part("asking"):
            return seeding.seeds(kernel, space)

    def _taken_over(self, space: SearchSpace, schedule: Schedule) -> Schedule | None:
        with self.costs.part("asking"):
            return taken_over(space, schedule)

    def _task(self, use: KernelUse) -> SearchTask:
        k = use.kernel
        floor_s = self.roofline.bound_s(k)
        return SearchTask(k, use.name, use.key, k.text, use.uses, needed_flops(k), k.unique_bytes, floor_s)

    def _announce(self) -> None:
        s, kernels = self.settings, shared_kernels(self.workloads)
        known = sum(len(self.store.trials(u.key, self.here, self.policy)) for u in kernels)
        peak = self.roofline.peak_flops_per_s
        self.tell(
            SessionStarted(
                self.id, " + ".join(w.name for w in self.workloads), s.device, s.threads, s.searcher, s.seed,
                s.budget_s, len(kernels), str(s.store), known, peak,
            )
        )  # fmt: skip

    def _nothing_left(self) -> str:
        if self.account.over:
            return (
                f"the search stopped early before, and is over within {self.settings.budget_s:g} s; a larger budget "
                "or other limits (patience, target, trials) go on from here"
            )
        return f"the budget of {self.settings.budget_s:g} s is spent; a larger one goes on from here"

    def _search(
        self, searches: tuple[KernelSearch, ...], heats: Heats, measurer: SessionMeasurer, left_s: float
    ) -> StopReason:
        batch = _SHORT_BATCH if left_s < 2.0 * len(searches) else _BATCH
        policy = BudgetPolicy(
            batch=batch,
            reserve=_RESERVE,
            charge_resumed=False,
            in_flight=self.site.in_flight(batch),
            machines=self.site.machines,
        )
        rule = StopRule(self.settings.patience, self._trials_left(), self._goal(searches, heats))
        lending = Lending(searches, self._taken_over)
        search = ModelSearch(searches, left_s, time.monotonic, self.tell, policy, rule, lending)
        try:
            self._stand(searches, measurer)
            if rule.trials is None:
                self._prime(searches, measurer)
            search.run(partial(heats.run, search))
        except KeyboardInterrupt:
            if not self.interrupt.requested:
                raise
        self.account.charge(search.spent_s)
        return search.stopped

    def _goal(self, searches: tuple[KernelSearch, ...], heats: Heats) -> Goal | None:
        """Whether the latency that the user wants is reached; None where none is wanted."""
        if self.settings.target_ms is None:
            return None

        def latency_s() -> float:
            (work,) = heats.workloads
            fastest = {s.task.key: s.winner.actions for s in searches}
            self.site.measurer.settle()
            with self.costs.part("whole model", sealed=True):
                try:
                    used = {u.key: fastest[u.key] for u in work.kernels if u.key in fastest}
                    return median(self.site.bench.latencies(self.models.of(work, used), _LATENCY_RUNS))
                except CandidateFailure as error:
                    self.tell(Warned(f"the whole model was not measured: {error}"))
                    return inf

        return Goal(1e-3 * self.settings.target_ms, lambda: _of_models(searches, heats.workloads), latency_s)

    def _settle_account(self, stopped: StopReason | None, left_s: float, used_s: float) -> float:
        """Charge what was used, and remember a search that stopped early. Returns the seconds that this saved."""
        if stopped is None:
            return 0.0
        if stopped in ("budget", "interrupted"):
            # A search that ran to its end has used its budget, whether its finals took less or more than was left.
            self.account.charge(used_s if self.interrupt.requested else left_s)
            return 0.0
        self.account.charge(used_s)
        self.account.stop()
        return max(0.0, left_s - used_s)

    def _stand(self, searches: tuple[KernelSearch, ...], measurer: SessionMeasurer) -> None:
        """Let candidates be timed beside what earlier sessions timed theirs beside."""
        held = [(s.task.kernel, t) for s in searches if (t := standing(s.trials)) is not None]
        measurer.stand([(kernel, Schedule.parse(t.actions), t.measurement.seconds) for kernel, t in held])

    def _prime(self, searches: tuple[KernelSearch, ...], measurer: SessionMeasurer) -> None:
        """Compile the defaults of all kernels in one batch."""
        measurer.prime([(s.task.kernel, d) for s in searches for d in s.defaults if d.text not in s.texts])

    def _finals(self, searches: tuple[KernelSearch, ...], measurer: SessionMeasurer) -> dict[str, Weighed]:
        weighed: dict[str, Weighed] = {}
        share_s = 0.0 if self.interrupt.requested else _RESERVE * self.settings.budget_s
        effort = Effort(deadline_s=time.monotonic() + share_s)
        in_model = partial(self._finals_in_model, effort.deadline_s - _WEIGHING * share_s)
        self.interrupt.forgive()
        try:
            finals(searches, measurer, self.store, self.here, effort, self.tell, weighed, in_model)
        except KeyboardInterrupt:
            if not self.interrupt.requested:
                raise
            self.tell(Warned("interrupted before every winner was settled; the others are the fastest measured so far"))
        return weighed

    def _finals_in_model(
        self, deadline_s: float, contestants: Sequence[Contestant]
    ) -> dict[str, tuple[Trial, Evidence]]:
        """Who is proved faster than the winners in the models; a kernel of several counts in the first of them."""
        found: dict[str, tuple[Trial, Evidence]] = {}
        for work in self.workloads if self.site.runs_models else ():
            left = [c for c in contestants if c.key not in found]
            found |= settle_in_model(work, left, self.models, self._void, deadline_s)
        return found

    def _void(self, trial: Trial, failure: CandidateFailure) -> None:
        """Withdraw a trial for what it did in a whole model: nobody ever gets it again."""
        number = self.store.id_of(trial)
        if number is None:
            raise InternalError(f"kernel {trial.kernel_key}: {trial.actions!r} ran in a model and is not in the store")
        self.store.withdraw(number, in_model(failure), self.id)
        name = self.store.kernel_name(trial.kernel_key)
        self.tell(Warned(f"kernel {name}: {trial.actions!r} is withdrawn: {in_model(failure)}"))

    def _void_actions(self, key: str, actions: str, failure: CandidateFailure) -> None:
        """Withdraw every trial of a kernel here that has these actions."""
        for trial in self.store.trials(key, self.here):
            if trial.actions == actions and trial.measurement.ran:
                self._void(trial, failure)

    def _whole(self, work: Workload) -> Whole | None:
        """The tuned model held to what it must compute, and timed next to its default schedules."""
        if not self.site.runs_models:
            return None
        sound = Soundness()
        try:
            sound = made_sound(work, self.models, self._void_actions)
            if sound.mismatch:
                raise WrongResult(sound.mismatch)
            if not sound.judged:
                self.tell(Warned(f"model {work.name}: its outputs were not compared: nothing could evaluate it"))
            tuned, default = self.models.of(work), self.models.of(work, stored=False)
            samples = self.site.bench.paired(tuned, default, 0.3 if self.interrupt.requested else 2.0)
            record_latency(self.store, work, self.here, self.id, samples)
            return Whole(median(samples[1]), median(samples[0]), sound)
        except CandidateFailure as error:
            self.tell(Warned(f"the whole model was not measured: {error}"))
        except KeyboardInterrupt:
            if not self.interrupt.requested:
                raise
            self.tell(Warned("interrupted before the whole model was compared and measured"))
        return Whole(None, None, sound)

    def _report(
        self, work: Workload, searches: tuple[KernelSearch, ...], finish: Finish, whole: Whole | None
    ) -> TuneReport:
        uses = {u.key: u.uses for u in work.kernels}
        mine = tuple(s for s in searches if s.task.key in uses)
        near = near_s([(uses[s.task.key], s.trials) for s in mine], self.id, self.began_s)
        return report_of(self.settings, work, mine, self.store, self.here, self.roofline, self.id, finish, whole, near)

    def _pct(self, name: str, seconds: float) -> float:
        return self.roofline.pct_peak(self.named[name], seconds)


def _of_models(searches: Sequence[KernelSearch], models: Sequence[Workload]) -> tuple[KernelSearch, ...]:
    """Those of the kernels that the models run."""
    kept = {use.key for use in shared_kernels(models)}
    return tuple(s for s in searches if s.task.key in kept)


def _warn(observers: Sequence[Observer], message: str) -> None:
    for observer in observers:
        observer.observe(Warned(message))


def _searcher(settings: TuneSettings, space: Space, key: str, teacher: Teacher) -> Searcher:
    rng = Random(f"{settings.seed} {key}")
    return make_searcher(settings.searcher, space, rng, features_of(space), teacher.lessons(key))
