"""The search of one kernel: ask, leave out what is known, measure, commit, tell.

    step:  Searcher.ask --> text in the store? --> its row answers           --> tell
                                     no        --> measure --> commit a row  --> tell
                                                   program known: no row, nothing to tell
           |________ begin _________|             |____________ finish ______________|

The defaults are measured before anything else, then seeds: schedules that did well on the nearest
kernels. Seeds of similar kernels come with the batches. The best schedule so far is
the fastest that ran, and the defaults among them, so a search never ends with something slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tunegrad.errors import IllegalAction, InternalError
from tunegrad.events import CandidateMeasured, Event, KernelFinished, KernelStarted, Warned
from tunegrad.opts import Schedule
from tunegrad.trial import Trial

from .protocols import Measured, Measurer, Proposal, Results, Searcher, SearchSpace
from .steps import Begun, Result, SearchTask, Step, Winner
from .trial_log import TrialLog, different

SEED = "seed"
"""Origin of a proposal that is a seed of a nearest kernel of the store."""


@dataclass(slots=True)
class _Tally:
    """This session's measured trials by status, and those that were left out."""

    statuses: dict[str, int] = field(default_factory=dict)
    same_program: int = 0


class KernelSearch:
    """One kernel's search, in steps.

    Mutable; everything it decided can be had again from its rows and its seed.

    Stored trials of other sessions are told to the searcher first. No stored trial is measured
    again, but for a default that could not be compiled in time: what wins has to meet one.
    ``best`` is the fastest schedule that came to light so far, with its decisions where they are
    known; ``told`` are the texts of all that came to light: of what a resumed session measured,
    only what was asked for again.
    """

    def __init__(
        self,
        task: SearchTask,
        space: SearchSpace,
        searcher: Searcher,
        measurer: Measurer,
        log: TrialLog,
        observe: Callable[[Event], None] = lambda _: None,
        seeds: Callable[[], Sequence[Schedule]] = tuple,
    ) -> None:
        self.task, self.space, self.searcher = task, space, searcher
        self.measurer, self.log = measurer, log
        self._observe, self._seeds = observe, seeds
        self.defaults = self._defaults()
        self._tally = _Tally()
        defaults = {s.text for s in self.defaults}
        self._known: dict[str, Trial] = {
            t.actions: t
            for t in log.stored(task.key, space.version)
            if not (t.measurement.uncompiled and t.actions in defaults)
        }
        self._programs = {t.program_hash: None for t in self._known.values() if t.program_hash}
        self._best: Trial | None = None
        self.best: Schedule | None = None
        self.told: set[str] = set()
        self._answered: set[str] = set()
        self.defaults_measured = False
        self._tell_stored()

    # ---- what is known

    @property
    def best_s(self) -> float:
        """The fastest time that came to light so far; infinity when nothing ran."""
        return self._best.measurement.seconds if self._best is not None else math.inf

    @property
    def default_s(self) -> float:
        """The time of the first default that ran; infinity when none did."""
        rows = [self._known[s.text] for s in self.defaults if s.text in self._known]
        return next((t.measurement.seconds for t in rows if t.measurement.ran), math.inf)

    @property
    def seed_s(self) -> float:
        """The best time of the seeds that this search or a resumed one measured, or infinity."""
        mine = {self.log.session, *self.log.resumed}
        seeds = (
            t
            for t in self._known.values()
            if t.origin == SEED and t.session in mine and t.measurement.ran
        )
        return min((t.measurement.seconds for t in seeds), default=math.inf)

    @property
    def done(self) -> bool:
        """True when the searcher has nothing left to propose."""
        return self.defaults_measured and self.searcher.done

    @property
    def statuses(self) -> dict[str, int]:
        """This session's measured trials by status."""
        return dict(self._tally.statuses)

    def count(self, statuses: Mapping[str, int]) -> None:
        """Count trials that another search of the kernel measured in this session."""
        for status, n in statuses.items():
            self._tally.statuses[status] = self._tally.statuses.get(status, 0) + n

    @property
    def winner(self) -> Winner:
        """The fastest of everything known, stored rows included; else the default."""
        finalists = self.finalists(1)
        if finalists:
            return Winner(finalists[0].actions, finalists[0].origin, finalists[0])
        return Winner(self.defaults[0].text, "default", None)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every row that is known of this kernel here, oldest first."""
        return tuple(self._known.values())

    @property
    def texts(self) -> Collection[str]:
        """The action texts that have a row."""
        return self._known.keys()

    def finalists(self, count: int) -> list[Trial]:
        """The fastest ``count`` trials of different programs; among equals a default first."""
        texts = {s.text for s in self.defaults}
        ran = [t for t in self._known.values() if t.measurement.ran]
        ran.sort(key=lambda t: (t.measurement.seconds, t.actions not in texts))
        return different(ran)[:count]

    # ---- steps

    def step(self, count: int) -> Step:
        """Measure the next ``count`` proposals, or defaults where they were not measured yet."""
        return self.finish(self.begin(count))

    def begin_defaults(self) -> Begun:
        """Hand the default schedules to the measurer, once."""
        proposals = (
            [] if self.defaults_measured else [Proposal(s, "default") for s in self.defaults]
        )
        self.defaults_measured = True
        # Known programs are not left out here: a default's own time is wanted.
        return self._begin(proposals, frozenset(), repeats=True)

    def begin_seeds(self, most: float = math.inf) -> Begun:
        """Measure the seeds of the nearest kernels once, right after defaults; at most so many."""
        proposals = [Proposal(s, SEED) for s in self._seeds()]
        self._seeds = tuple
        return self._begin(proposals[: int(min(most, len(proposals)))], self._programs.keys())

    def begin(self, count: int) -> Begun:
        """Ask for ``count`` proposals and hand them to the measurer, or the defaults where they
        were not measured yet.

        Several may be begun before the first is finished: then they know nothing of each other's
        results.
        """
        if not self.defaults_measured:
            return self.begin_defaults()
        with self.log.part("asking"):
            proposals = self.searcher.ask(count)
        return self._begin(proposals, self._programs.keys())

    def finish(self, begun: Begun) -> Step:
        """Take the results: commit and tell them in the order in which they were proposed, whenever
        they came.

        Each is committed before the next is measured. Where many are measured at once there is no
        such order: then a batch is waited for, and committed as one, up to what breaks the telling
        off, if anything does.
        """
        if not begun.found.at_once:
            return self._finish(begun)
        begun.found.wait()
        with ExitStack() as commit:
            commit.enter_context(self.log.together())
            try:
                return self._finish(begun)
            finally:
                commit.close()

    def give_up(self, begun: Begun) -> None:
        """End a batch without waiting: what was measured of it is committed, and nothing is told.

        Closes it.
        """
        try:
            if begun.found.at_once:
                with self.log.together():
                    self._keep(begun, begun.found.arrived())
        finally:
            begun.found.close()

    def _keep(self, begun: Begun, arrived: Sequence[Measured | None]) -> None:
        fresh = [p for p in begun.proposals if p.schedule.text in begun.fresh]
        for proposal, measured in zip(fresh[len(fresh) - len(arrived) :], arrived, strict=True):
            if measured is None or proposal.schedule.text in self._known:
                continue
            if measured.program_hash in self._programs and not begun.repeats:
                self._tally.same_program += 1
            else:
                self._see(proposal.schedule, self._commit(proposal, measured))

    def _finish(self, begun: Begun) -> Step:
        before_s, results, cost_s, resumed_s = self.best_s, [], 0.0, 0.0
        for proposal in begun.proposals:
            text = proposal.schedule.text
            stored = text not in begun.fresh
            trial = self._answer(text) if stored else self._measured(proposal, begun)
            self._answered.add(text)
            results.append(
                Result(proposal, trial.measurement if trial is not None else None, stored)
            )
            if trial is None:
                continue
            cost_s += self.log.cost_s(trial.measurement)
            resumed_s += (
                self.log.cost_s(trial.measurement)
                if stored and trial.session in self.log.resumed
                else 0.0
            )
            self._take(proposal, trial)
        if next(begun.found, begun) is not begun:  # the measurer finishes
            raise InternalError(
                f"kernel {self.task.name}: the measurer gave more results than it got schedules"
            )
        return Step(tuple(results), cost_s, resumed_s, before_s, self.best_s)

    def _answer(self, text: str) -> Trial | None:
        """The row of a text; None where a proposal had it before, and it is known by now."""
        return None if text in self._answered else self._known[text]

    def _begin(
        self, proposals: Sequence[Proposal], programs: Collection[str], repeats: bool = False
    ) -> Begun:
        fresh = [p.schedule for p in proposals if p.schedule.text not in self._known]
        texts = frozenset(s.text for s in fresh)
        if not fresh:
            return Begun(tuple(proposals), texts, Results(()))
        found = self.measurer.measure(self.task.kernel, fresh, self.best_s, frozenset(programs))
        results = found if isinstance(found, Results) else Results(found)
        return Begun(tuple(proposals), texts, results, repeats)

    def _measured(self, proposal: Proposal, begun: Begun) -> Trial | None:
        """The row of the next result, committed; None where its program is known by now."""
        try:
            measured = next(begun.found)
        except StopIteration:
            raise InternalError(
                f"kernel {self.task.name}: the measurer gave fewer results than schedules"
            ) from None
        if measured is None or (measured.program_hash in self._programs and not begun.repeats):
            self._tally.same_program += 1
            return None
        return self._commit(proposal, measured)

    def _commit(self, proposal: Proposal, measured: Measured) -> Trial:
        task = self.task
        trial = self.log.record(task.key, task.text, self.space.version, proposal, measured)
        self._known[trial.actions] = trial
        if trial.program_hash:
            self._programs[trial.program_hash] = None
        status = str(measured.measurement.status)
        self._tally.statuses[status] = self._tally.statuses.get(status, 0) + 1
        seconds = measured.measurement.seconds
        best_s = min(self.best_s, seconds)
        self._observe(
            CandidateMeasured(
                task.name,
                trial.actions,
                measured.measurement.status,
                seconds,
                best_s,
                0.0,
                trial.origin,
            )
        )
        return trial

    def _take(self, proposal: Proposal, trial: Trial) -> None:
        """A row comes to light: tell it, and keep it if it is the best."""
        with self.log.part("asking"):
            self.searcher.tell(proposal, trial.measurement)
        self._see(proposal.schedule, trial)

    def _see(self, schedule: Schedule, trial: Trial) -> None:
        self.told.add(trial.actions)
        if trial.measurement.ran and trial.measurement.seconds < self.best_s:
            self.best, self._best = schedule, trial

    # ---- starting

    def _defaults(self) -> tuple[Schedule, ...]:
        try:
            found = self.space.defaults()
        except IllegalAction as error:
            self._observe(Warned(f"kernel {self.task.name} has no legal default schedule: {error}"))
            found = ()
        return tuple({s.text: s for s in found}.values()) or (Schedule(()),)

    def _tell_stored(self) -> None:
        """Tell what other sessions measured.

        A row that does not parse any more is known, and nothing else.
        """
        defaults = {s.text: s for s in self.defaults}
        for trial in self._known.values():
            if trial.session in self.log.resumed:
                continue
            try:
                schedule = defaults.get(trial.actions) or Schedule.parse(trial.actions)
            except IllegalAction:
                continue
            self._take(Proposal(schedule, trial.origin), trial)

    # ---- saying so

    def started(self) -> KernelStarted:
        """The event that the search turns to this kernel."""
        return KernelStarted(
            self.task.name, self.task.key, self.task.uses, self.task.flops, self.task.nbytes
        )

    def finished(self) -> KernelFinished:
        """The event that the search leaves this kernel."""
        winner = self.winner
        best_s = winner.seconds
        return KernelFinished(
            self.task.name,
            self.task.key,
            self.default_s,
            best_s,
            0.0,
            winner.actions,
            self.statuses,
        )
