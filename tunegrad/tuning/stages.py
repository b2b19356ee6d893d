"""The stages of a session, one after the other, over values.

plan     how images are stored, where graphs are cut, which variants are near;
         raced in whole models
search   defaults, seeds, rounds of near variants: those behind leave
race     variants, in whole models
search   the kernels of the variants that won, while more is expected of it
race     schedules, in whole models
measure  whole models, before and after
report
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import partial
from math import inf

from tunegrad.config import TuneSettings
from tunegrad.db import Store
from tunegrad.events import KernelStanding, SessionFinished, Warned
from tunegrad.opts import SPACE_VERSION, Schedule, Space
from tunegrad.reports import Deviation, TuneReport
from tunegrad.search import KernelSearch, StopReason, StopRule

from .budget.account import LEAST_S
from .budget.costs import Costs
from .budget.deadlines import Ends
from .budget.goal import goal_of
from .end_to_end import Whole, latency_s, measured_deviation, measured_whole
from .executor.site import Site
from .interrupt import Interrupt, OutOfTimeError
from .machine.load import CpuUse, cpu_use, others_cpus
from .machine.roofline import needed_flops
from .models import Models
from .progress import Progress
from .questions.candidates import Rivals, leave_but, narrowed_in_rounds
from .questions.plan import Deciding
from .questions.schedule import Schedules
from .report import Finish, report_of
from .reporting.facts import session_facts
from .searching import Searching
from .soundness import Withdrawals
from .transfer.training import missing_model
from .workload import Workload, shared_kernels

__all__ = ["Stages"]

_NUMPY_FLOPS_PER_S, _SHORT_S = 1e9, 0.2
"""Speed at which a graph in 16 bits is evaluated, about; and a time that is not worth a look at the
clock.
"""

_ROUNDS_SHARE = 0.25
"""The part of a budget in which near variants are searched."""

_UNSETTLED = (
    "the budget ended before every winner was settled; the others stay as they were, and what was "
    "measured is kept: the same command with a larger budget goes on from here"
)


@dataclass(slots=True)
class Stages:
    """A session while it runs. Mutable: ``workloads`` are the models as far as they are decided.

    ``began_s`` is when it began, in seconds since the epoch; ``used`` what processors had done
    then; ``only`` the kernels that are searched, by key, where not all are.
    """

    settings: TuneSettings
    workloads: list[Workload]
    site: Site
    store: Store
    interrupt: Interrupt
    costs: Costs
    began_s: float
    searching: Searching
    ends: Ends
    used: CpuUse
    only: Set[str] = frozenset()

    def run(self) -> tuple[TuneReport, ...]:
        """Plan, search, race, search, race, measure, report."""
        left_s, ready_s = self.ends.budget_s, time.monotonic()
        self._announce()
        self.progress.phase("plans")
        with self.costs.part("plans"):
            rivals = self._planned(left_s)
        self.workloads = [r.favourite for r in rivals]
        searches = self._searches(rivals)
        stopped: StopReason | None = None
        if left_s >= LEAST_S:
            stopped = self._searched(searches, rivals, left_s)
        else:
            self.progress.tell(Warned(self.progress.account.nothing_left))
        searches = _of_models(searches, self.workloads)
        search_s = time.monotonic() - ready_s
        self.progress.phase("race")
        before = self._promotions(searches)
        with self.costs.part("finals", sealed=True):
            self._raced(searches)
        fresh = {key for key, count in self._promotions(searches).items() if count > before[key]}
        used_s, interrupted = self.costs.total_s, self.interrupt.requested
        saved_s = self.progress.account.charge_used(stopped, left_s, used_s, interrupted)
        self.progress.phase("whole model")
        with self.costs.part("whole model", sealed=True):
            wholes = self.measured(fresh)
            deviations = [self.deviation(work) for work in self.workloads]
        self.site.close()
        return self.reported(searches, wholes, deviations, stopped, saved_s, search_s)

    def _promotions(self, searches: Sequence[KernelSearch]) -> dict[str, int]:
        """Number of promotions, by kernel."""
        keys = (s.task.key for s in searches)
        return {key: len(self.store.promotions(key, self.site.here)) for key in keys}

    # ---- plan

    def _planned(self, left_s: float) -> list[Rivals]:
        """The models as plans that measuring decides on, with the variants that are near."""
        self._expect()
        share_s, now_s = left_s / len(self.workloads), time.monotonic()
        each_s = max(0.0, self.ends.plans_s - now_s) / len(self.workloads)
        rivals = []
        for n, work in enumerate(self.workloads, 1):
            with self.interrupt.until(now_s + n * each_s):
                rivals.append(self._deciding.opened(work, share_s))
        return rivals

    def _expect(self) -> None:
        """Begin to evaluate the models, for which the compile workers have time while their plans
        are looked at.

        Not where other machines measure: one of them may be this one.
        """
        if self.settings.ray is None:
            try:
                self.site.bench.expect([(work.graph, work.inputs) for work in self.workloads])
            except KeyboardInterrupt:
                if not self.interrupt.requested:
                    raise

    # ---- search

    def _searches(self, rivals: Sequence[Rivals]) -> tuple[KernelSearch, ...]:
        """Of all kernels that the models may launch in the end."""
        if missing := missing_model(self.settings):
            self.progress.tell(Warned(missing))
        uses = [u for u in shared_kernels(rivals) if not u.kernel.fixed]
        return self.searching.searches(uses, self.settings.warm_start)

    def _searched(
        self,
        searches: tuple[KernelSearch, ...],
        rivals: list[Rivals],
        left_s: float,
    ) -> StopReason:
        """Search the kernels of near variants, decide between these, and search on.

        Why that ended.
        """
        goal = goal_of(
            self.settings,
            lambda: _of_models(searches, self.workloads),
            lambda: self._latency_s(searches),
        )
        rule = StopRule(self.settings.patience, self.searching.trials_left(), goal)
        begun_s = time.monotonic()
        search = self.searching.begin(searches, max(LEAST_S, self.ends.search_s - begun_s), rule)
        stopped: StopReason | None = None
        self.progress.standings = lambda: self._standings(searches)
        self.progress.phase("defaults")
        try:
            with self.interrupt.until(self.ends.defaults_given_up(begun_s)):
                self.searching.prepare(searches)
                search.open()
            self._learn(searches)
            self.progress.phase("search")
            search.budget_s = max(LEAST_S, self.ends.search_s - begun_s)
            with self.interrupt.until(self.ends.given_up(self.ends.search_s)):
                until_s = time.monotonic() + _ROUNDS_SHARE * left_s
                rivals = narrowed_in_rounds(search, rivals, until_s)
                self.workloads = self._variants(rivals, search.searches, left_s)
                leave_but(search, self.workloads)
                search.leave(self._not_asked(searches))
                search.run()
        except OutOfTimeError:
            stopped = "budget"
        except KeyboardInterrupt:
            if not self.interrupt.requested:
                raise
        finally:
            search.close()
        self._learn(searches)
        return stopped or search.stopped

    def _not_asked(self, searches: Sequence[KernelSearch]) -> set[str]:
        """The kernels that are not to be searched; none where the models run none of the others."""
        keys = {s.task.key for s in _of_models(searches, self.workloads)}
        return keys - self.only if keys & self.only else set()

    def _standings(self, searches: Sequence[KernelSearch]) -> list[KernelStanding]:
        """Standings of the kernels that the models run, as far as is decided, under the names that
        their searches have: fewer kernels may need fewer names of their own.
        """
        found = {s.task.key: s for s in searches}
        return [
            KernelStanding(s.task.name, use.key, use.uses, s.default_s, s.best_s)
            for use in shared_kernels(self.workloads)
            if (s := found.get(use.key)) is not None
        ]

    def _learn(self, searches: Sequence[KernelSearch]) -> None:
        """Tell the deadlines what the models take, both ways, for what is reserved of the
        budget.
        """
        kernels = self._standings(searches)
        self.ends.both_s = sum(
            k.uses * s for k in kernels for s in (k.default_s, k.best_s) if s < inf
        )

    def _variants(
        self, rivals: Sequence[Rivals], searches: Sequence[KernelSearch], left_s: float
    ) -> list[Workload]:
        """Models as races of their variants decide, with the fastest schedules so far.

        Nothing else works meanwhile.
        """
        fastest = {s.task.key: s.winner.actions for s in searches}
        self.site.measurer.wait_idle()
        with self.costs.part("plans"):
            return [self._deciding.decided(r, fastest, left_s / len(rivals)) for r in rivals]

    def _latency_s(self, searches: Sequence[KernelSearch]) -> float:
        """Of the model with the fastest schedules so far, in seconds; infinity where it does not
        run.
        """
        self.site.measurer.wait_idle()
        with self.costs.part("whole model", sealed=True):
            fastest = {s.task.key: s.winner.actions for s in searches}
            return latency_s(self.workloads[0], fastest, self.models, self.progress.tell)

    # ---- race

    def _raced(self, searches: tuple[KernelSearch, ...]) -> None:
        """Settle the winner of every kernel."""
        now_s, interrupted = time.monotonic(), self.interrupt.requested
        deadline_s = now_s if interrupted else self.ends.race_s
        models = self.models
        void, tell = self.withdrawals.trial, self.progress.tell
        schedules = Schedules(self.site.measurer, models, self.store, self.site.here, void, tell)
        self.interrupt.forgive()
        try:
            with self.interrupt.until(self.ends.race_given_up(now_s, interrupted)):
                self.site.measurer.wait_idle()
                schedules.promote_proved(searches, self.workloads, deadline_s)
        except OutOfTimeError:
            tell(Warned(_UNSETTLED))
        except KeyboardInterrupt:
            if not self.interrupt.requested:
                raise
            tell(
                Warned(
                    "interrupted before every winner was settled; the others are the fastest "
                    "measured so far"
                )
            )
        else:
            self.described(searches)

    # ---- measure and report: winners described, whole models measured

    def described(self, searches: tuple[KernelSearch, ...]) -> None:
        """Store what the compiler's listings say of the winners, unless their images said it."""
        found = [
            (search.task.kernel, winner)
            for search in searches
            if (winner := self.store.winner(search.task.key, self.site.here, SPACE_VERSION))
            and "instructions" not in dict(winner.measurement.facts)
        ]
        work = [(kernel, Schedule.parse(winner.actions)) for kernel, winner in found]
        for (_, winner), facts in zip(found, self.site.measurer.counted_code(work), strict=True):
            row = self.store.id_of(winner) if facts else None
            if row is not None:
                self.store.describe(row, facts)

    def measured(self, fresh: Set[str]) -> list[Whole | None]:
        """Measure the models, each in its part of the time that is left; ``fresh`` are the kernels
        that a new schedule won in this session.
        """
        found: list[Whole | None] = []
        interrupted, count = self.interrupt.requested, len(self.workloads)
        for n, work in enumerate(self.workloads):
            now_s = time.monotonic()
            left_s = max(0.0, self.ends.whole_s - now_s) / (count - n)
            if not work.kernels:  # none of its outputs depends on an input
                found.append(None)
                continue
            with self.interrupt.until(self.ends.whole_given_up(now_s + left_s, interrupted)):
                models, withdrawals = self.models, self.withdrawals
                others = {u.key for w in self.workloads if w is not work for u in w.kernels}
                mine = fresh - others
                found.append(
                    measured_whole(work, models, withdrawals, self.interrupt, left_s, mine)
                )
        return found

    def deviation(self, work: Workload) -> Deviation | None:
        """Measure what 16 bits cost the model; None after an interrupt, or where that is expected
        to take long and to end late.
        """
        takes_s = sum(u.uses * needed_flops(u.kernel) for u in work.kernels) / _NUMPY_FLOPS_PER_S
        late = takes_s > _SHORT_S and time.monotonic() + takes_s > self.ends.over_s
        return None if late or self.interrupt.requested else measured_deviation(work)

    def reported(
        self,
        searches: tuple[KernelSearch, ...],
        wholes: Sequence[Whole | None],
        deviations: Sequence[Deviation | None],
        stopped: StopReason | None,
        saved_s: float,
        search_s: float,
    ) -> tuple[TuneReport, ...]:
        """The reports, one a model; the session's facts are stored, and its end is told."""
        others = self.progress.measured - sum(
            (Counter(s.statuses) for s in searches), Counter[str]()
        )
        finish = Finish(
            self.interrupt.requested,
            stopped,
            saved_s,
            search_s,
            self.costs.seconds,
            others,
            self.began_s,
            others_cpus(self.used, cpu_use()),
        )
        facts = session_facts(self.progress.roofline, self.costs, self.workloads, wholes)
        self.store.add_facts(self.searching.session, facts)
        found = zip(self.workloads, wholes, deviations, strict=True)
        reports = tuple(self._report(w, searches, finish, whole, off) for w, whole, off in found)
        self.progress.tell(SessionFinished(reports[0], reports[1:]))
        return reports

    def _report(
        self,
        work: Workload,
        searches: tuple[KernelSearch, ...],
        finish: Finish,
        whole: Whole | None,
        deviation: Deviation | None,
    ) -> TuneReport:
        uses = {u.key: u.uses for u in work.kernels}
        mine = tuple(s for s in searches if s.task.key in uses)
        roofline, session = self.progress.roofline, self.searching.session
        return report_of(
            self.settings,
            work,
            mine,
            self.store,
            self.site.here,
            roofline,
            session,
            finish,
            whole,
            deviation,
        )

    # ---- what the steps share

    @property
    def _deciding(self) -> Deciding:
        spared = len(shared_kernels(self.workloads))
        return Deciding(
            self.site.target,
            self.site.here,
            self.store,
            self.searching.session,
            self.settings.numerics,
            self.models,
            partial(self.searching.default_seconds, spared),
            self.interrupt,
            self.progress.tell,
        )

    def _announce(self) -> None:
        kernels = shared_kernels(self.workloads)
        known = sum(
            len(self.store.trials(u.key, self.site.here, self.searching.policy)) for u in kernels
        )
        names = " + ".join(w.name for w in self.workloads)
        self.progress.announce(self.settings, self.searching.session, names, len(kernels), known)
        for use in kernels:
            if use.kernel.fixed:
                Space(
                    use.kernel, self.site.target
                ).fixed()  # an illegal one is the user's error, at once

    @property
    def progress(self) -> Progress:
        """The observer of the session's events while it runs."""
        return self.searching.progress

    @property
    def models(self) -> Models:
        """Whole models of this machine, ready to run."""
        return Models(self.store, self.site.target, self.site.here, self.site.bench)

    @property
    def withdrawals(self) -> Withdrawals:
        """Withdraws trials in the name of the session."""
        return Withdrawals(self.store, self.site.here, self.searching.session, self.progress.tell)


def _of_models(
    searches: Sequence[KernelSearch], models: Sequence[Workload]
) -> tuple[KernelSearch, ...]:
    """Those of the kernels that the models run."""
    kept = {use.key for use in shared_kernels(models)}
    return tuple(s for s in searches if s.task.key in kept)
