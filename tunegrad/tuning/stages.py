"""The stages of a session, one after the other, over values.

plan     how images are stored, where graphs are cut, which variants are near  raced in whole models
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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tunegrad.config import TuneSettings
from tunegrad.db import Store
from tunegrad.events import SessionFinished, Warned
from tunegrad.opts import SPACE_VERSION, Schedule, Space
from tunegrad.reports import Deviation, TuneReport
from tunegrad.search import KernelSearch, StopReason, StopRule

from .account import LEAST_S
from .costs import Costs
from .deciding import RACE_SHARE, Deciding
from .goal import goal_of
from .interrupt import Interrupt
from .lessons import missing_model
from .models import Models
from .progress import Progress
from .report import Finish, report_of
from .rivals import Rivals, leave_but, narrowed_in_rounds
from .schedules import Schedules
from .searching import Searching
from .sites import Site
from .whole import Whole, latency_s, measured_deviation, measured_whole
from .withdrawals import Withdrawals
from .workload import Workload, shared_kernels

__all__ = ["Stages"]

_ROUNDS_SHARE = 0.25
"""The part of a budget in which near variants are searched."""


@dataclass(slots=True)
class Stages:
    """A session while it runs. Mutable: ``workloads`` are the models as far as they are decided.

    ``began_s`` is when it began, in seconds since the epoch.
    """

    settings: TuneSettings
    workloads: list[Workload]
    site: Site
    store: Store
    interrupt: Interrupt
    costs: Costs
    began_s: float
    searching: Searching

    def run(self) -> tuple[TuneReport, ...]:
        """Plan, search, race, search, race, measure, report."""
        left_s, begun_s = self._progress.account.left_s, time.monotonic()
        self._announce()
        with self.costs.part("plans"):
            rivals = self._planned(left_s)
        self.workloads = [r.favourite for r in rivals]
        searches = self._searches(rivals)
        stopped: StopReason | None = None
        if left_s >= LEAST_S:
            search_s = max(LEAST_S, left_s - (time.monotonic() - begun_s))
            stopped = self._searched(searches, rivals, search_s, left_s)
        else:
            self._progress.tell(Warned(self._progress.account.nothing_left))
        searches = _of_models(searches, self.workloads)
        search_s = time.monotonic() - begun_s
        with self.costs.part("finals", sealed=True):
            self._raced(searches)
        used_s, interrupted = time.monotonic() - begun_s, self.interrupt.requested
        saved_s = self._progress.account.charge_used(stopped, left_s, used_s, interrupted)
        self.site.measurer.wait_idle()
        with self.costs.part("whole model", sealed=True):
            wholes = [self._measured(work) for work in self.workloads]
            deviations = [self._deviation(work) for work in self.workloads]
        self.site.close()
        return self._reported(searches, wholes, deviations, stopped, saved_s, search_s)

    # ---- plan

    def _planned(self, left_s: float) -> list[Rivals]:
        """The models as plans that measuring decides on, with the variants that are near."""
        self._expect()
        share_s = left_s / len(self.workloads)
        return [self._deciding.opened(work, share_s) for work in self.workloads]

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
            self._progress.tell(Warned(missing))
        uses = [u for u in shared_kernels(rivals) if not u.kernel.fixed]
        return self.searching.searches(uses, self.settings.warm_start)

    def _searched(
        self,
        searches: tuple[KernelSearch, ...],
        rivals: list[Rivals],
        search_s: float,
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
        search = self.searching.begin(searches, search_s, rule)
        try:
            self.searching.prepare(searches)
            search.open()
            rivals = narrowed_in_rounds(search, rivals, time.monotonic() + _ROUNDS_SHARE * left_s)
            self.workloads = self._variants(rivals, search.searches, left_s)
            leave_but(search, self.workloads)
            search.run()
        except KeyboardInterrupt:
            if not self.interrupt.requested:
                raise
        finally:
            search.close()
        self._progress.account.charge(search.spent_s)
        return search.stopped

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
            return latency_s(self.workloads[0], fastest, self._models, self._progress.tell)

    # ---- race

    def _raced(self, searches: tuple[KernelSearch, ...]) -> None:
        """Settle the winner of every kernel."""
        share_s = 0.0 if self.interrupt.requested else RACE_SHARE * self.settings.budget_s
        models = self._models
        void, tell = self._withdrawals.trial, self._progress.tell
        schedules = Schedules(self.site.measurer, models, self.store, self.site.here, void, tell)
        self.interrupt.forgive()
        try:
            schedules.promote_proved(searches, self.workloads, time.monotonic() + share_s)
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
            self._described(searches)

    def _described(self, searches: tuple[KernelSearch, ...]) -> None:
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

    # ---- measure, report

    def _measured(self, work: Workload) -> Whole | None:
        return measured_whole(work, self._models, self._withdrawals, self.interrupt)

    def _deviation(self, work: Workload) -> Deviation | None:
        """What 16 bits cost the model; not measured where the user waits for the end."""
        return None if self.interrupt.requested else measured_deviation(work)

    def _reported(
        self,
        searches: tuple[KernelSearch, ...],
        wholes: Sequence[Whole | None],
        deviations: Sequence[Deviation | None],
        stopped: StopReason | None,
        saved_s: float,
        search_s: float,
    ) -> tuple[TuneReport, ...]:
        others = self._progress.measured - sum(
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
        )
        found = zip(self.workloads, wholes, deviations, strict=True)
        reports = tuple(self._report(w, searches, finish, whole, off) for w, whole, off in found)
        self._progress.tell(SessionFinished(reports[0], reports[1:]))
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
        roofline, session = self._progress.roofline, self.searching.session
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
    def _progress(self) -> Progress:
        return self.searching.progress

    @property
    def _models(self) -> Models:
        return Models(self.store, self.site.target, self.site.here, self.site.bench)

    @property
    def _withdrawals(self) -> Withdrawals:
        return Withdrawals(self.store, self.site.here, self.searching.session, self._progress.tell)

    @property
    def _deciding(self) -> Deciding:
        spared = len(shared_kernels(self.workloads))
        return Deciding(
            self.site.target,
            self.site.here,
            self.store,
            self.searching.session,
            self.settings.numerics,
            self._models,
            partial(self.searching.default_seconds, spared),
            self.interrupt,
            self._progress.tell,
        )

    def _announce(self) -> None:
        kernels = shared_kernels(self.workloads)
        known = sum(
            len(self.store.trials(u.key, self.site.here, self.searching.policy)) for u in kernels
        )
        names = " + ".join(w.name for w in self.workloads)
        self._progress.announce(self.settings, self.searching.session, names, len(kernels), known)
        for use in kernels:
            if use.kernel.fixed:
                Space(
                    use.kernel, self.site.target
                ).fixed()  # an illegal one is the user's error, at once


def _of_models(
    searches: Sequence[KernelSearch], models: Sequence[Workload]
) -> tuple[KernelSearch, ...]:
    """Those of the kernels that the models run."""
    kept = {use.key for use in shared_kernels(models)}
    return tuple(s for s in searches if s.task.key in kept)
