"""One wall-clock budget over the kernels of a model, spent where it is expected to buy most.

    every kernel's    -->  one batch each,   -->  the best batch next,
    defaults, seeds        most promising         again and again
                           first
                      ^
                      before: rounds of some kernels, some of which leave

The worth of a kernel's next batch, in model seconds a second:

    uses * current_s * expected improvement / cost of a batch

where the expected improvement is what recent batches brought, but at least an optimistic prior that
is a half after one batch that brought nothing, a third after two ...; and never more than the
headroom 1 - floor_s / current_s. While nothing improves, kernels are thus served by their share of
the model's time above its floor. Gradient task scheduling is from Ansor (OSDI'20, section 6); here
in seconds, since a trial of one kernel may cost a hundred of another.

All of it is reckoned from rows, never from the clock, so a resumed search takes the same decisions.
The clock only says when to stop, where no rule of ``stopping`` has said so before.

A batch may be begun before those before it are told, until ``in_flight`` proposals are unanswered:
many machines measure at once, and one machine compiles a batch while the next one is asked for.
They are told in the order in which they were begun, whenever they arrive, so decisions depend on
``in_flight`` and never on the order of arrival. A batch that is under way counts as one that
brought nothing, until it is told.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from tunegrad.events import BudgetSpent, Event

from .driver import KernelSearch
from .promote import LEAST_EFFECT
from .steps import Begun, SearchTask, Step
from .stopping import StopReason, StopRule, Watch

_MOST_STEPS = 256
"""Batches, or groups of them, that are looked ahead."""


@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """The rules by which a budget is spent.

    ``batch`` candidates are measured between two decisions. ``optimism`` is the part of a kernel's
    headroom that its first batch is expected to save. ``charge_resumed``: rows of resumed sessions
    count against the budget with what they cost then, so that a run that was cut short ends where
    it would have. New batches are begun while fewer than ``in_flight`` proposals are unanswered,
    for ``machines`` measuring at once.
    """

    batch: int = 8
    optimism: float = 0.5
    charge_resumed: bool = True
    in_flight: int = 1
    machines: int = 1


@dataclass(slots=True)
class _Prospect:
    """Running estimate of what a kernel's batches cost and bring.

    ``stale`` counts those without a notable gain; a gain halves it.
    """

    task: SearchTask
    policy: BudgetPolicy
    stale: float = 0.0
    recent: float = 0.0
    trial_cost_s: float = 0.1

    def observe(self, step: Step) -> None:
        """Learn from a batch."""
        if step.results:
            self.trial_cost_s = 0.5 * (self.trial_cost_s + _trial_cost_s(step))
        self.recent = 0.5 * (self.recent + step.improvement)
        self.stale = 0.5 * self.stale if step.improvement >= LEAST_EFFECT else self.stale + 1.0

    def gain_s(self, current_s: float, ahead: int = 0) -> float:
        """Model seconds that the next batch, or that after ``ahead`` vain ones, should save."""
        current_s = current_s if current_s < math.inf else self.task.guess_s
        headroom = (
            max(LEAST_EFFECT, 1.0 - self.task.floor_s / current_s) if current_s > 0.0 else 0.0
        )
        prior = self.policy.optimism * headroom / (1.0 + self.stale + ahead)
        return self.task.uses * current_s * min(headroom, max(prior, self.recent * 0.5**ahead))


class ModelSearch:
    """Searches every kernel of a model within one budget of wall-clock seconds.

    ``clock`` is monotonic, in seconds. Without a ``rule`` it goes on while there are time and
    ideas. However small the budget, every kernel has a ``winner`` afterwards: the default,
    unmeasured, if nothing else; that of the heaviest is measured where there is a budget at all.
    ``run`` may be interrupted anywhere (KeyboardInterrupt passes through): what was measured is
    stored, and the winners are those found so far. ``stopped`` says why it ended, ``searches`` are
    those of the kernels that did not ``leave``.
    """

    def __init__(
        self,
        searches: Sequence[KernelSearch],
        budget_s: float,
        clock: Callable[[], float],
        observe: Callable[[Event], None],
        policy: BudgetPolicy | None = None,
        rule: StopRule | None = None,
    ) -> None:
        self._all, self.policy = tuple(searches), policy or BudgetPolicy()
        self.budget_s = budget_s  # may be made less while it runs
        self._clock, self._observe = clock, observe
        self._started_s = clock()
        self._charged_s = 0.0
        self._prospects = [_Prospect(s.task, self.policy) for s in self._all]
        self._current: KernelSearch | None = None
        self._under_way: deque[tuple[int, Begun]] = deque()
        self._watch = Watch(self._all, rule or StopRule(patience=0))
        self._served: set[int] = set()
        self._opened = False
        self.stopped: StopReason = "interrupted"

    @property
    def searches(self) -> tuple[KernelSearch, ...]:
        """The kernels that are still searched, or were to the end."""
        return tuple(s for i, s in enumerate(self._all) if i not in self._watch.gone)

    @property
    def spent_s(self) -> float:
        """Seconds since the start, and what resumed rows cost where they are charged."""
        return self._clock() - self._started_s + self._charged_s

    @property
    def left_s(self) -> float:
        """Seconds left to search; negative when overdrawn."""
        return self.budget_s - self.spent_s

    @property
    def done(self) -> bool:
        """True when no kernel has anything left to try."""
        return next(self._open(), None) is None

    def open(
        self, prime: Callable[[Sequence[KernelSearch]], None] = lambda _: None, group: int = 1 << 30
    ) -> None:
        """Measure defaults and seeds, once; then rounds may be asked for.

        ``prime`` is called before the defaults of each ``group`` of kernels.
        """
        if not self._opened:
            self._opened = True
            self._measure_defaults(prime, group)
            self._measure_seeds()

    def run(self) -> None:
        """Spend the budget, first on unmeasured defaults and seeds; closes the search."""
        try:
            self.open()
            self.stopped = self._search()
            self._settle(1)
        finally:
            self.close()

    def close(self) -> None:
        """Give up what is under way: to be called where ``run`` is not reached."""
        self._give_up()
        self._turn_to(None)

    def half(self) -> bool:
        """Spend half of what is left. True where ``run`` may use the rest; else see ``stopped``."""
        whole_s, self.budget_s = self.budget_s, self.spent_s + 0.5 * self.left_s
        try:
            stopped = self._search()
            self._settle(1)
        finally:
            self.budget_s = whole_s
        if stopped == "budget" and self.left_s > 0.0:
            return True
        self.stopped = stopped
        return False

    def round(self, keys: Collection[str], within_s: float) -> bool:
        """One batch of each of these kernels, the most promising first, all told on return.

        Whether it was held: not where it is expected to take over ``within_s`` seconds, or more
        trials than are left.
        """
        wanted = [i for i in self._open() if self._all[i].task.key in keys]
        cost_s = sum(self._batch_cost_s(i) for i in wanted)
        if (
            not wanted
            or cost_s > min(within_s, self.left_s)
            or len(wanted) * self.policy.batch > self._allowed
        ):
            return False
        for i in self._by_worth(wanted):
            self._batch(i)
        self._settle(1)
        return True

    def leave(self, keys: Collection[str]) -> None:
        """These kernels are not searched any more."""
        for i, s in enumerate(self._all):
            if s.task.key in keys:
                self._watch.leave(i)

    def _search(self) -> StopReason:
        """Batch after batch: one of every kernel first, then the best one next. Why it is over."""
        first = self._by_worth(i for i in self._open() if i not in self._served)
        while self.left_s > 0.0:
            if reason := self._watch.reason():
                return reason
            if self._allowed < 1:
                if not self._under_way:
                    return "trials"
                self._finish()  # a program that was known gives its place back
            elif order := first or self._by_worth(self._open()):
                if self._under_way and self._affordable(order[0]) < 1:
                    self._finish()  # what is under way takes the time that is left
                    continue
                self._batch(order[0])
                first = first[1:]
            elif self._under_way:
                self._finish()  # what it tells may give new ideas
            else:
                return "exhausted"
        return "budget"

    def expected_gain_s(self, within_s: float = 60.0) -> float:
        """Model seconds that the next ``within_s`` seconds of search are expected to save."""
        ahead = dict.fromkeys(self._open(), 0)
        current_s = {i: self._all[i].best_s for i in ahead}
        # Many machines do many batches: then several are taken for one, so that this stays a matter
        # of microseconds.
        shortest_s = min((self._batch_cost_s(i) for i in ahead), default=within_s)
        stride = max(1, math.ceil(within_s / shortest_s / _MOST_STEPS))
        order = [(-self._rate(i, current_s[i]), i) for i in ahead]
        heapify(order)
        total_s = 0.0
        while order and within_s > 0.0:
            _, i = heappop(order)
            gain_s = self._prospects[i].gain_s(current_s[i], ahead[i] + (stride - 1) // 2)
            if current_s[i] < math.inf:
                uses = self._all[i].task.uses
                if stride > 1:
                    gain_s = (
                        uses
                        * current_s[i]
                        * (1.0 - (1.0 - gain_s / (uses * current_s[i])) ** stride)
                    )
                total_s += gain_s
                current_s[i] = max(0.0, current_s[i] - gain_s / uses)
            ahead[i] += stride
            within_s -= stride * self._batch_cost_s(i)
            heappush(order, (-self._rate(i, current_s[i], ahead[i]), i))
        return total_s

    # ---- one batch

    def _measure_defaults(
        self, prime: Callable[[Sequence[KernelSearch]], None], group: int
    ) -> None:
        """Defaults of every kernel, the heaviest first.

        A budget too small for that is spent.

        Those of the heaviest kernel are measured however small it is, so that no session is in
        vain.
        """
        at_least = 1 if self.budget_s > 0.0 else 0
        order = sorted(range(len(self._all)), key=self._heaviest_first)
        for n, i in enumerate(order):
            if n % group == 0:
                while self._under_way:
                    self._finish_defaults()
            if (n >= at_least and self.spent_s >= self.budget_s) or self._allowed < len(
                self._all[i].defaults
            ):
                break
            if n % group == 0:
                prime([self._all[j] for j in order[n : n + group]])
            self._under_way.append((i, self._all[i].begin_defaults()))
            while self._unanswered >= self.policy.in_flight:
                self._finish_defaults()
        while self._under_way:
            self._finish_defaults()

    def _measure_seeds(self) -> None:
        """Measure the seeds of the nearest kernels, the heaviest kernel first."""
        for i in sorted(range(len(self._all)), key=self._heaviest_first):
            if self.left_s <= 0.0 or self._allowed < 1:
                break
            begun = self._all[i].begin_seeds(self._allowed)
            if begun.proposals:
                self._under_way.append((i, begun))
                self._settle(self.policy.in_flight)
        self._settle(1)

    def _finish_defaults(self) -> None:
        i, step = self._oldest()
        if step.results:
            self._prospects[i].trial_cost_s = _trial_cost_s(step)
        self._watch.observe(i, step)
        self._charge(step)

    def _batch(self, i: int) -> None:
        self._served.add(i)
        count = max(1, min(self.policy.batch, self._affordable(i)))
        self._under_way.append((i, self._all[i].begin(count)))
        self._settle(self.policy.in_flight)

    def _settle(self, below: int) -> None:
        """Finish what was begun first, until fewer than ``below`` proposals are unanswered."""
        while self._under_way and (
            self._unanswered >= below or not self._under_way[0][1].proposals
        ):
            self._finish()

    def _finish(self) -> None:
        i, step = self._oldest()
        self._prospects[i].observe(step)
        self._watch.observe(i, step)
        self._charge(step)

    def _oldest(self) -> tuple[int, Step]:
        i, begun = self._under_way[0]
        self._turn_to(self._all[i])
        step = self._all[i].finish(begun)
        self._under_way.popleft()
        return i, step

    def _give_up(self) -> None:
        """Close what is under way, oldest first: its measurements are kept; measurers may stop."""
        try:
            while self._under_way:
                i, begun = self._under_way.popleft()
                self._all[i].give_up(begun)
        finally:
            while self._under_way:
                self._under_way.pop()[1].found.close()

    @property
    def _unanswered(self) -> int:
        return sum(len(begun.proposals) for _, begun in self._under_way)

    def _affordable(self, i: int) -> int:
        """Number of further candidates of a kernel that fit into the time expected to be left."""
        under_way_s = sum(
            len(begun.proposals) * self._prospects[j].trial_cost_s for j, begun in self._under_way
        )
        left_s = self.left_s * self.policy.machines - under_way_s
        return int(min(self._allowed, left_s / self._prospects[i].trial_cost_s))

    @property
    def _allowed(self) -> float:
        """Number of candidates that may still be measured."""
        return self._watch.allowed(sum(len(begun.fresh) for _, begun in self._under_way))

    def _charge(self, step: Step) -> None:
        if self.policy.charge_resumed:
            self._charged_s += step.resumed_s
        self._observe(BudgetSpent(self.spent_s, self.budget_s, self.expected_gain_s()))

    def _turn_to(self, search: KernelSearch | None) -> None:
        if search is self._current:
            return
        if self._current is not None:
            self._observe(self._current.finished())
        self._current = search
        if search is not None:
            self._observe(search.started())

    # ---- what to do next

    def _open(self) -> Iterator[int]:
        return (i for i, s in enumerate(self._all) if not s.done and i not in self._watch.gone)

    def _by_worth(self, kernels: Iterable[int]) -> list[int]:
        under_way = Counter(i for i, _ in self._under_way)

        def worth(i: int) -> float:
            return self._rate(i, self._all[i].best_s, under_way[i])

        return sorted(kernels, key=lambda i: (-worth(i), i))

    def _rate(self, i: int, current_s: float, ahead: int = 0) -> float:
        return self._prospects[i].gain_s(current_s, ahead) / self._batch_cost_s(i)

    def _batch_cost_s(self, i: int) -> float:
        return self._prospects[i].trial_cost_s * self.policy.batch / self.policy.machines

    def _heaviest_first(self, i: int) -> tuple[float, int, int]:
        task = self._all[i].task
        return -task.uses * task.floor_s, -task.uses * (task.flops + task.nbytes), i


def _trial_cost_s(step: Step) -> float:
    """Mean cost of a batch's trials; programs that were known cost little, but never nothing."""
    return max(1e-3, step.cost_s / len(step.results))
