"""The state of a session, and its end: winners described, whole models measured, reports made."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

from tunegrad.config import TuneSettings
from tunegrad.db import Store
from tunegrad.events import SessionFinished
from tunegrad.opts import SPACE_VERSION, Schedule
from tunegrad.reports import Deviation, TuneReport
from tunegrad.search import KernelSearch, StopReason

from .busy import CpuUse, cpu_use, others_cpus
from .costs import Costs
from .ends import Ends
from .facts import session_facts
from .interrupt import Interrupt
from .models import Models
from .progress import Progress
from .report import Finish, report_of
from .roofline import needed_flops
from .searching import Searching
from .sites import Site
from .whole import Whole, measured_deviation, measured_whole
from .withdrawals import Withdrawals
from .workload import Workload

__all__ = ["Closing"]

_NUMPY_FLOPS_PER_S, _SHORT_S = 1e9, 0.2
"""Speed at which a graph in 16 bits is evaluated, about; and a time that is not worth a look at the
clock.
"""


@dataclass(slots=True)
class Closing:
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
