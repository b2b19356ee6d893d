"""The searches of a session's kernels: how they are made and start; seconds of defaults."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from tunegrad.devices import usable_cores
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule, Space
from tunegrad.search import (
    BudgetPolicy,
    KernelSearch,
    ModelSearch,
    SearchTask,
    StopRule,
    TrialLog,
    make_searcher,
)

from .budget import sessions_since
from .executor import standing
from .questions.plan import OutOfTrialsError
from .roofline import needed_flops
from .seeding import Seeding
from .state import Context
from .workload import KernelUse

BATCH = 16
"""Candidates between two decisions."""

_PRIMED = 8
"""Kernels whose defaults each core compiles before they are measured."""


@dataclass(frozen=True, slots=True)
class Searching:
    """Makes the searches of one session, and what they share."""

    context: Context

    def searches(self, uses: Sequence[KernelUse], seeded: bool = False) -> tuple[KernelSearch, ...]:
        """One search a kernel, in order. ``seeded``: the store's other kernels lend seeds."""
        c = self.context
        seeding = None
        if seeded:
            since = sessions_since(c.store, c.resumed | {c.session})
            seeding = Seeding(c.store, c.here, c.policy, since)
        charged = c.costs.part
        # What this session measured before comes to light when it is asked for again.
        asked = c.resumed | {c.session}
        log = TrialLog(c.store, c.here, c.policy, c.session, time.time, asked, charged)
        return tuple(self._search(use, log, seeding) for use in uses)

    def _search(self, use: KernelUse, log: TrialLog, seeding: Seeding | None) -> KernelSearch:
        c = self.context
        c.progress.named[use.name] = use.kernel
        c.store.name_kernel(use.kernel.text, use.name)
        with c.costs.part("asking"):
            space = Space(use.kernel, c.target)
            rng = Random(f"{c.settings.seed} {use.key}")
            searcher = make_searcher(c.settings.searcher, space, rng)
            seeds = tuple if seeding is None else partial(self._seeds, seeding, use.kernel, space)
            task, measurer = self._task(use), c.executor.measurer
            return KernelSearch(task, space, searcher, measurer, log, c.tell, seeds)

    def _seeds(self, seeding: Seeding, kernel: Kernel, space: Space) -> Sequence[Schedule]:
        with self.context.costs.part("asking"):
            return seeding.seeds(kernel, space)

    def _task(self, use: KernelUse) -> SearchTask:
        k = use.kernel
        floor_s = self.context.progress.roofline.bound_s(k)
        return SearchTask(
            k, use.name, use.key, k.text, use.uses, needed_flops(k), k.unique_bytes, floor_s
        )

    # ---- what they start from

    def begin(self, searches: Sequence[KernelSearch], left_s: float, rule: StopRule) -> ModelSearch:
        """A search of all these kernels, of which nothing was asked yet."""
        c = self.context
        policy = BudgetPolicy(
            batch=BATCH,
            charge_resumed=False,
            in_flight=c.executor.in_flight(BATCH),
            machines=c.executor.machines,
        )
        return ModelSearch(searches, left_s, time.monotonic, c.progress.tell, policy, rule)

    def open(self, search: ModelSearch) -> None:
        """Measure defaults and seeds, beside what earlier sessions timed candidates beside."""
        c, searches = self.context, search.searches
        held = [(s.task.kernel, t) for s in searches if (t := standing(s.trials)) is not None]
        c.executor.measurer.stand(
            [(k, Schedule.parse(t.actions), t.measurement.seconds) for k, t in held]
        )
        if c.settings.max_trials is None:
            search.open(self._prime, self._group)
        else:  # trials are counted: no default is compiled that may not be measured
            search.open()

    def default_seconds(self, spared: int, kernels: Sequence[Kernel]) -> dict[str, float]:
        """Seconds of default schedules by key, verified and with their rows; infinity where
        none ran.

        Raises OutOfTrialsError where too few trials would be left for ``spared`` kernels that will
        be searched.
        """
        searches = self.searches([KernelUse(k, k.key, k.name, 1) for k in kernels])
        left = self.trials_left()
        if (
            left is not None
            and sum(d.text not in s.texts for s in searches for d in s.defaults) > left - spared
        ):
            raise OutOfTrialsError
        for at in range(0, len(searches), self._group):
            some = searches[at : at + self._group]
            self._prime(some)
            under_way = deque((s, s.begin_defaults()) for s in some)
            try:
                while under_way:
                    search, begun = under_way[0]
                    search.finish(begun)
                    under_way.popleft()
            finally:
                for search, begun in under_way:
                    search.give_up(begun)
        return {s.task.key: s.default_s for s in searches}

    def trials_left(self) -> int | None:
        """Number of candidates that may still be measured; None for any number."""
        c = self.context
        most = c.settings.max_trials
        return (
            None
            if most is None
            else max(0, most - c.store.count({c.session, *c.resumed}, c.policy))
        )

    @property
    def _group(self) -> int:
        """Kernels whose defaults are compiled, then measured: so many that no core waits for long,
        and so few that little is lost at a deadline. Machines of a fleet compile by themselves.
        """
        return _PRIMED * usable_cores() if self.context.executor.machines == 1 else 1 << 30

    def _prime(self, searches: Sequence[KernelSearch]) -> None:
        """Compile the defaults of these kernels."""
        work = [(s.task.kernel, d) for s in searches for d in s.defaults if d.text not in s.texts]
        self.context.executor.measurer.prime(work)
