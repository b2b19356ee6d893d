"""One tuning session: the kernels of models searched within a budget, winners raced, everything
in the store.

begin    defaults of the model as it is expected to run: its latency is on the screen;
         a batch of the heaviest kernel
plan     how images are stored, where graphs are cut, which variants are near;
         raced in whole models
search   defaults, seeds, rounds of near variants: those behind leave
race     variants, in whole models
search   the kernels of the variants that won, while more is expected of it
race     schedules, in whole models, halfway and in the end: a slow spell of the machine spoils one
measure  whole models, before and after
report
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from tunegrad import events, opts
from tunegrad.compiling import HOOKS
from tunegrad.config import TuneSettings
from tunegrad.db import open_store
from tunegrad.devices import Hooks, Limits
from tunegrad.ir.target import Target
from tunegrad.planning import expected_s
from tunegrad.reports import Deviation, TuneReport
from tunegrad.search import KernelSearch, StopReason, StopRule, check_searcher
from tunegrad.trial import Policy
from tunegrad.version import __version__

from . import budget, end_to_end, machine, race, report, searching, state
from . import workload as works
from .executor import open_executor
from .interrupt import Interrupt, OutOfTimeError
from .questions import variant
from .questions.plan import RACE_SHARE, PlanDecisions
from .questions.schedule import Schedules
from .reporting import records
from .roofline import Roofline, needed_flops

_LIMITS = Limits(compile_s=3.0)
_BUSY = "times are worse and less sure than on a quiet machine"

_NUMPY_FLOPS_PER_S, _SHORT_S = 1e9, 0.2
"""About the speed of evaluating a graph in 16 bits; and seconds not worth a look."""

_HALFWAY_SHARE, _RACE_SHARE = RACE_SHARE / 3, 2 * RACE_SHARE / 3
"""Parts of a budget for the races of schedules, halfway and in the end. Two halves proved fewer
small gains than one race does (decision 0035).
"""

_ROUNDS_SHARE = 0.25
"""The part of a budget in which near variants are searched."""

_UNSETTLED = (
    "the budget ended before every winner was settled; the others stay as they were, and what was "
    "measured is kept: the same command with a larger budget goes on from here"
)


def run_session(
    settings: TuneSettings,
    workload: works.Workload,
    observers: Sequence[events.Observer],
    hooks: Hooks = HOOKS,
    costs: budget.Costs | None = None,
) -> TuneReport:
    """Tune one model: ``run_sessions`` of one."""
    return run_sessions(settings, [workload], observers, hooks, costs)[0]


def run_sessions(
    settings: TuneSettings,
    workloads: Sequence[works.Workload],
    observers: Sequence[events.Observer],
    hooks: Hooks = HOOKS,
    costs: budget.Costs | None = None,
    only: Set[str] = frozenset(),
) -> tuple[TuneReport, ...]:
    """Tune models together: one budget, one search of all their kernels, a report of each.

    The session's row is closed however this ends, and what was measured stays. ``hooks`` are what
    the workers do with a candidate, ``costs`` a watch that runs already, ``only`` the keys of the
    kernels that are searched, once variants are decided; none: all. Raises UserError for an
    unknown device, a searcher whose packages are not installed, or an unusable store.
    """
    check_searcher(settings.searcher)
    with _opened(settings, workloads, observers, hooks, costs or budget.Costs()) as context:
        left_s, began_s = context.progress.account.left_s, context.costs.began_s
        deadlines = budget.Deadlines(left_s, began_s, time.monotonic(), _RACE_SHARE)
        deadlines.data_s = sum(map(race.data_s, workloads))
        return Session(context, list(workloads), deadlines, only).run()


@contextmanager
def _opened(
    settings: TuneSettings,
    workloads: Sequence[works.Workload],
    observers: Sequence[events.Observer],
    hooks: Hooks,
    costs: budget.Costs,
) -> Iterator[state.Context]:
    """Open the store, the workers and the session's row, all closed however this ends."""
    began_s, used = time.time() - costs.total_s, machine.cpu_use()
    with ExitStack() as stack:
        with costs.part("start-up"):
            store = stack.enter_context(open_store(settings.store, "write"))
            interrupt = stack.enter_context(Interrupt(partial(_tell, observers, events.Stopping())))
            policy_of, warn = partial(search_policy, workloads), partial(_warn, observers)
            executor = stack.enter_context(
                open_executor(settings, policy_of, _LIMITS, hooks, interrupt, costs, warn)
            )
            settings = replace(settings, in_flight=executor.in_flight(searching.BATCH))
            _tell(observers, events.PhaseStarted("limits"))
            others = machine.probed()
            if busy := machine.busy_text(others, settings.threads):
                _tell(observers, events.MachineBusy(others, f"{busy}: {_BUSY}"))
            record = budget.session_record(settings, executor.policy, workloads)
            row = stack.enter_context(
                store.session(
                    "tune",
                    settings.seed,
                    record,
                    __version__,
                    versions=machine.versions(executor.here),
                    state=machine.machine_state(others=others, device=executor.bench.state()),
                )
            )
            for text in works.not_a_number(workloads):
                warn(text)
            with interrupt.breakable():
                roofline = Roofline(executor.machine_limits(), executor.target)
            work = works.work_key(workloads)
            account = budget.Account(settings, executor.policy, store, executor.here, work, costs)
            progress = state.Progress(observers, account, roofline, settings.budget_s)
            resumed = budget.resumed_sessions(store, record, settings.seed, row.id)
            context = state.Context(
                settings,
                executor,
                store,
                row.id,
                resumed,
                interrupt,
                costs,
                progress,
                began_s,
                used,
            )
        yield context


def _tell(observers: Sequence[events.Observer], event: events.Event) -> None:
    for observer in observers:
        observer.observe(event)


def _warn(observers: Sequence[events.Observer], message: str) -> None:
    _tell(observers, events.Warned(message))


SEARCH_POLICY = Policy(
    cache="warm", min_samples=3, max_samples=10, tolerance=0.03, budget_s=0.01, timeout_s=10.0
)
"""The policy for timing candidates of small models; finalists are raced in whole models."""


_LARGE_POLICY = replace(SEARCH_POLICY, cache="constants", min_samples=2, max_samples=6)
"""The same for large ones. Two turns tell as much as three with warm inputs did (decision 0147)."""


def search_policy(workloads: Sequence[works.Workload], target: Target) -> Policy:
    """Policy for timing candidates of these models: constants are evicted where the cores' own
    caches do not hold them all.

    Between two runs of a kernel a model reads all its other constants, so that what one kernel that
    runs alone has in its caches says little of it: see decision 0020.
    """
    held = target.threads * target.l2_bytes
    constants = sum(b.nbytes for w in workloads for b in w.plan.buffers if b.role == "const")
    return _LARGE_POLICY if constants > held else SEARCH_POLICY


@dataclass(slots=True)
class Session:
    """A session while it runs. Mutable: ``workloads`` are the models as far as they are decided.

    ``only`` are the kernels that are searched, by key, where not all are.
    """

    context: state.Context
    workloads: list[works.Workload]
    deadlines: budget.Deadlines
    only: Set[str] = frozenset()

    def run(self) -> tuple[TuneReport, ...]:
        """Begin, plan, search, race, search, race, measure, report."""
        c = self.context
        left_s, ready_s = self.deadlines.budget_s, time.monotonic()
        self._announce()
        begun: tuple[KernelSearch, ...] = ()
        if left_s >= budget.LEAST_S:
            self._expect()
            begun = self._begun(left_s)
        c.progress.phase("plans")
        with c.costs.part("plans"):
            candidates = self._planned(left_s)
        self.workloads = [r.favourite for r in candidates]
        c.store.add_facts(
            c.session, records.planned_facts(c.progress.roofline, self.workloads, "planned")
        )
        searches = self._searches(candidates, begun)
        before = self._promotions(searches)
        stopped: StopReason | None = None
        if left_s >= budget.LEAST_S:
            stopped = self._searched(searches, candidates, left_s)
        else:
            c.tell(events.Warned(c.progress.account.nothing_left))
        searches = _of_models(searches, self.workloads)
        search_s = time.monotonic() - ready_s
        c.progress.phase("race")
        with c.costs.part("finals", sealed=True):
            self._raced(searches)
        fresh = {key for key, count in self._promotions(searches).items() if count > before[key]}
        used_s, interrupted = c.costs.total_s, c.interrupt.requested
        saved_s = c.progress.account.charge_used(stopped, left_s, used_s, interrupted)
        c.progress.phase("whole model")
        with c.costs.part("whole model", sealed=True):
            wholes = self.measured(fresh)
            back = {key for whole in wholes if whole is not None for key in whole.back}
            self.described(tuple(s for s in searches if s.task.key in back))
            deviations = [self.deviation(work) for work in self.workloads]
        c.executor.close()
        return self.reported(searches, wholes, deviations, stopped, saved_s, search_s)

    def _promotions(self, searches: Sequence[KernelSearch]) -> dict[str, int]:
        """Number of promotions, by kernel."""
        c = self.context
        keys = (s.task.key for s in searches)
        return {key: len(c.store.promotions(key, c.here)) for key in keys}

    # ---- begin

    def _begun(self, left_s: float) -> tuple[KernelSearch, ...]:
        """Time the defaults of the models as they are expected to run, then a batch of the kernel
        that weighs most: plans are decided after that. Returns their searches.
        """
        c = self.context
        models = [self._decisions.expected(work) for work in self.workloads]
        uses = [u for u in works.shared_kernels(models) if not u.kernel.fixed]
        searches = self._searching.searches(uses, c.settings.warm_start)
        end_s = self.deadlines.plans_s
        search = self._searching.begin(
            searches,
            max(budget.LEAST_S, end_s - time.monotonic()),
            StopRule(0, self._searching.trials_left()),
        )
        c.progress.standings = lambda: self._standings(searches, models)
        c.progress.phase("defaults")
        c.progress.estimate()
        try:
            with suppress(OutOfTimeError), c.interrupt.until(self.deadlines.evaluated_s):
                c.executor.measurer.wait_idle()
            with c.interrupt.until(self.deadlines.given_up(end_s)):
                self._searching.open(search)
                weights = {k.key: k.uses * k.best_s for k in c.progress.standings()}
                if weights and c.settings.max_trials is None and c.settings.target_ms is None:
                    c.progress.phase("search")
                    search.round({max(weights, key=weights.__getitem__)}, RACE_SHARE * left_s)
        except OutOfTimeError:
            pass
        except KeyboardInterrupt:
            if not c.interrupt.requested:
                raise
        finally:
            search.close()
        return searches

    # ---- plan

    def _planned(self, left_s: float) -> list[variant.VariantCandidates]:
        """The models as plans that measuring decides on, with the variants that are near."""
        share_s, now_s = left_s / len(self.workloads), time.monotonic()
        each_s = max(0.0, self.deadlines.plans_s - now_s) / len(self.workloads)
        candidates = []
        for n, work in enumerate(self.workloads, 1):
            with self.context.interrupt.until(now_s + n * each_s):
                candidates.append(self._decisions.opened(work, share_s))
        return candidates

    def _expect(self) -> None:
        """Begin to evaluate the models, for which the compile workers have time while their plans
        are looked at.

        Not where other machines measure: one of them may be this one.
        """
        c = self.context
        if c.settings.ray is None:
            try:
                c.executor.bench.expect([(work.graph, work.inputs) for work in self.workloads])
            except KeyboardInterrupt:
                if not c.interrupt.requested:
                    raise

    # ---- search

    def _searches(
        self, candidates: Sequence[variant.VariantCandidates], begun: Sequence[KernelSearch]
    ) -> tuple[KernelSearch, ...]:
        """Of all kernels that the models may launch in the end; what was ``begun`` counts."""
        c = self.context
        uses = [u for u in works.shared_kernels(candidates) if not u.kernel.fixed]
        searches = self._searching.searches(uses, c.settings.warm_start)
        before = {s.task.key: s.statuses for s in begun}
        for s in searches:
            s.count(before.get(s.task.key, {}))
        return searches

    def _searched(
        self,
        searches: tuple[KernelSearch, ...],
        candidates: list[variant.VariantCandidates],
        left_s: float,
    ) -> StopReason:
        """Search the kernels of near variants, decide between these, and search on.

        Why that ended.
        """
        c = self.context
        goal = None
        if c.settings.target_ms is not None:
            goal = budget.Goal(
                1e-3 * c.settings.target_ms,
                lambda: _of_models(searches, self.workloads),
                lambda: self._latency_s(searches),
            )
        rule = StopRule(c.settings.patience, self._searching.trials_left(), goal)
        begun_s = time.monotonic()
        search = self._searching.begin(
            searches, max(budget.LEAST_S, self.deadlines.search_s - begun_s), rule
        )
        stopped: StopReason | None = None
        c.progress.standings = lambda: self._standings(searches)
        c.progress.phase("defaults")
        try:
            with c.interrupt.until(self.deadlines.defaults_given_up(begun_s)):
                self._searching.open(search)
            self._learn(searches)
            c.progress.phase("search")
            search.budget_s = max(budget.LEAST_S, self.deadlines.search_s - begun_s)
            with c.interrupt.until(self.deadlines.given_up(self.deadlines.search_s)):
                until_s = time.monotonic() + _ROUNDS_SHARE * left_s
                candidates = variant.narrowed_in_rounds(search, candidates, until_s)
                self.workloads = self._variants(candidates, search.searches, left_s)
                variant.leave_but(search, self.workloads)
                search.leave(self._not_asked(searches))
                if search.half():
                    self._raced_halfway(searches, left_s)
                    search.run()
        except OutOfTimeError:
            stopped = "budget"
        except KeyboardInterrupt:
            if not c.interrupt.requested:
                raise
        finally:
            search.close()
        self._learn(searches)
        return stopped or search.stopped

    def _not_asked(self, searches: Sequence[KernelSearch]) -> set[str]:
        """The kernels that are not to be searched; none where the models run none of the others."""
        keys = {s.task.key for s in _of_models(searches, self.workloads)}
        return keys - self.only if keys & self.only else set()

    def _standings(
        self, searches: Sequence[KernelSearch], models: Sequence[works.Workload] = ()
    ) -> list[events.KernelStanding]:
        """Standings of the kernels that the models run, as far as is decided, under the names that
        their searches have: fewer kernels may need fewer names of their own.
        """
        found = {s.task.key: s for s in searches}
        return [
            self._standing(s, use)
            for use in works.shared_kernels(models or self.workloads)
            if (s := found.get(use.key)) is not None
        ]

    def _standing(self, s: KernelSearch, use: works.KernelUse) -> events.KernelStanding:
        """The standing of a kernel: what the model of the machine expects until it is measured."""
        if any(d.text in s.texts for d in s.defaults):
            return events.KernelStanding(s.task.name, use.key, use.uses, s.default_s, s.best_s)
        guess_s = expected_s(use.kernel, self.context.target, self.context.numerics)
        return events.KernelStanding(
            s.task.name, use.key, use.uses, guess_s, guess_s, measured=False
        )

    def _learn(self, searches: Sequence[KernelSearch]) -> None:
        """Tell the deadlines what the models take, both ways, for what they reserve."""
        kernels = self._standings(searches)
        self.deadlines.both_s = sum(
            k.uses * s for k in kernels for s in (k.default_s, k.best_s) if s < inf
        )

    def _variants(
        self,
        candidates: Sequence[variant.VariantCandidates],
        searches: Sequence[KernelSearch],
        left_s: float,
    ) -> list[works.Workload]:
        """Models as races of their variants decide, with the fastest schedules so far.

        Nothing else works meanwhile.
        """
        c = self.context
        fastest = {s.task.key: s.winner.actions for s in searches}
        c.executor.measurer.wait_idle()
        with c.costs.part("plans"):
            return [
                self._decisions.decided(r, fastest, left_s / len(candidates)) for r in candidates
            ]

    def _latency_s(self, searches: Sequence[KernelSearch]) -> float:
        """Of the model with the fastest schedules so far, in seconds; infinity if it fails."""
        c = self.context
        c.executor.measurer.wait_idle()
        with c.costs.part("whole model", sealed=True):
            fastest = {s.task.key: s.winner.actions for s in searches}
            return end_to_end.latency_s(self.workloads[0], fastest, c.models, c.tell)

    # ---- race

    def _raced_halfway(self, searches: Sequence[KernelSearch], left_s: float) -> None:
        """Settle what is proved faster so far, unless the least race would take too long."""
        c, d = self.context, self.deadlines
        self._learn(searches)
        if race.least_s(d.both_s, d.data_s) > _RACE_SHARE * left_s:
            return
        c.progress.phase("race")
        with c.costs.part("finals", sealed=True):
            c.executor.measurer.wait_idle()
            kept = _of_models(searches, self.workloads)
            deadline_s = time.monotonic() + _HALFWAY_SHARE * left_s
            self._schedules.promote_proved(kept, self.workloads, deadline_s)
        c.progress.phase("search")

    def _raced(self, searches: tuple[KernelSearch, ...]) -> None:
        """Settle the winner of every kernel."""
        c, now_s = self.context, time.monotonic()
        interrupted, tell = c.interrupt.requested, c.tell
        deadline_s = self.deadlines.last_race_s(now_s, interrupted)
        c.interrupt.forgive()
        try:
            with c.interrupt.until(self.deadlines.race_given_up(now_s, interrupted)):
                c.executor.measurer.wait_idle()
                self._schedules.promote_proved(searches, self.workloads, deadline_s)
        except OutOfTimeError:
            tell(events.Warned(_UNSETTLED))
        except KeyboardInterrupt:
            if not c.interrupt.requested:
                raise
            tell(
                events.Warned(
                    "interrupted before every winner was settled; the others are the fastest "
                    "measured so far"
                )
            )
        else:
            self.described(searches)

    # ---- measure and report: winners described, whole models measured

    def described(self, searches: tuple[KernelSearch, ...]) -> None:
        """Store what the compiler's listings say of the winners, unless their images said it."""
        c = self.context
        found = [
            (search.task.kernel, winner)
            for search in searches
            if (winner := c.store.winner(search.task.key, c.here, opts.SPACE_VERSION))
            and "instructions" not in dict(winner.measurement.facts)
        ]
        work = [(kernel, opts.Schedule.parse(winner.actions)) for kernel, winner in found]
        for (_, winner), facts in zip(found, c.executor.measurer.counted_code(work), strict=True):
            row = c.store.id_of(winner) if facts else None
            if row is not None:
                c.store.describe(row, facts)

    def measured(self, fresh: Set[str]) -> list[end_to_end.EndToEnd | None]:
        """Measure the models, each in its part of the time that is left; ``fresh`` are the kernels
        that a new schedule won in this session.
        """
        c = self.context
        found: list[end_to_end.EndToEnd | None] = []
        interrupted, count = c.interrupt.requested, len(self.workloads)
        for n, work in enumerate(self.workloads):
            now_s = time.monotonic()
            left_s = max(0.0, self.deadlines.whole_s - now_s) / (count - n)
            if not work.kernels:  # none of its outputs depends on an input
                found.append(None)
                continue
            with c.interrupt.until(self.deadlines.whole_given_up(now_s + left_s, interrupted)):
                models, withdrawals = c.models, self._withdrawals
                others = {u.key for w in self.workloads if w is not work for u in w.kernels}
                mine = fresh - others
                found.append(
                    end_to_end.measured_end_to_end(
                        work, models, withdrawals, c.interrupt, left_s, mine
                    )
                )
        return found

    def deviation(self, work: works.Workload) -> Deviation | None:
        """Measure what 16 bits cost the model; None after an interrupt, or if it ends late."""
        takes_s = sum(u.uses * needed_flops(u.kernel) for u in work.kernels) / _NUMPY_FLOPS_PER_S
        late = takes_s > _SHORT_S and time.monotonic() + takes_s > self.deadlines.over_s
        return (
            None
            if late or self.context.interrupt.requested
            else end_to_end.measured_deviation(work)
        )

    def reported(
        self,
        searches: tuple[KernelSearch, ...],
        wholes: Sequence[end_to_end.EndToEnd | None],
        deviations: Sequence[Deviation | None],
        stopped: StopReason | None,
        saved_s: float,
        search_s: float,
    ) -> tuple[TuneReport, ...]:
        """The reports, one a model; the session's facts are stored, and its end is told."""
        c = self.context
        others = c.progress.measured - sum((Counter(s.statuses) for s in searches), Counter[str]())
        finish = report.Finish(
            c.interrupt.requested, stopped, saved_s, search_s, c.costs.seconds, others,
            machine.others_cpus(c.used, machine.cpu_use()),
        )  # fmt: skip
        facts = records.session_facts(c.costs, finish.others_cpus, wholes)
        planned = records.planned_facts(c.progress.roofline, self.workloads, "kernel")
        c.store.add_facts(c.session, tuple(sorted((*planned, *facts))))
        found = zip(self.workloads, wholes, deviations, strict=True)
        reports = tuple(
            report.report_of(c, w, searches, finish, whole, off) for w, whole, off in found
        )
        c.tell(events.SessionFinished(reports[0], reports[1:]))
        return reports

    # ---- what the steps share

    @property
    def _decisions(self) -> PlanDecisions:
        c = self.context
        uses = works.shared_kernels(self.workloads)
        spared = sum(not c.store.trials(u.key, c.here, c.policy) for u in uses)
        return PlanDecisions(self.context, partial(self._searching.default_seconds, spared))

    @property
    def _searching(self) -> searching.Searching:
        return searching.Searching(self.context)

    @property
    def _schedules(self) -> Schedules:
        c, void = self.context, self._withdrawals.trial
        return Schedules(c.executor.measurer, c.models, c.store, c.here, void, c.tell)

    @property
    def _withdrawals(self) -> end_to_end.Withdrawals:
        c = self.context
        return end_to_end.Withdrawals(c.store, c.here, c.session, c.tell)

    def _announce(self) -> None:
        kernels, c = works.shared_kernels(self.workloads), self.context
        known = sum(len(c.store.trials(u.key, c.here, c.policy)) for u in kernels)
        names = " + ".join(w.name for w in self.workloads)
        c.progress.announce(c.settings, c.session, names, len(kernels), known)
        for use in kernels:
            if use.kernel.fixed:
                # An illegal one is the user's error, at once.
                opts.Space(use.kernel, c.target).fixed()


def _of_models(
    searches: Sequence[KernelSearch], models: Sequence[works.Workload]
) -> tuple[KernelSearch, ...]:
    """Those of the kernels that the models run."""
    kept = {use.key for use in works.shared_kernels(models)}
    return tuple(s for s in searches if s.task.key in kept)
