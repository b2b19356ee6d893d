"""One space of schedules, for every searcher.

``sample(chooser)`` builds a whole schedule by asking a ``Chooser`` at each decision: the default
chooser takes every decision's default (that is the heuristic schedule), a random one draws, a
searcher replays a trace with some decisions changed. ``actions(schedule)`` lists legal single steps
to append. Both give schedules of the same kind: action lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass

from .actions import ACTIONS, Action, parse_actions, print_actions
from .decisions import Chooser, DefaultChooser, Recorder, SpaceDecision
from .passes import LOOPS, LOWER, RACES, SCHEDULE, SPACE_VERSION, Context, Form, Pass, run_passes

if TYPE_CHECKING:
    from tunegrad.ir.program import Program


@dataclass(frozen=True, slots=True)
class Schedule:
    """An action list, and its decisions (none when it was written or extended by hand)."""

    actions: tuple[Action, ...]
    trace: tuple[SpaceDecision, ...] = ()
    _text: str = field(default="", init=False, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The actions as text; the schedule's identity."""
        if not self._text:
            object.__setattr__(
                self, "_text", print_actions(self.actions)
            )  # once: it is asked for often
        return self._text

    @staticmethod
    def parse(text: str) -> Schedule:
        """The schedule that prints as ``text``; IllegalAction when it does not parse."""
        return Schedule(parse_actions(text))


class Space:
    """The schedules of one kernel for one target."""

    version = SPACE_VERSION

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target

    def sample(self, chooser: Chooser) -> Schedule:
        """The schedule of a chooser's answers; IllegalAction when they do not go together."""
        from .sketches import sketch  # a schedule that is known needs none

        recorder = Recorder(chooser)
        actions = sketch(self.kernel, self.target, recorder)
        return Schedule(actions, tuple(recorder.trace))

    def defaults(self) -> tuple[Schedule, ...]:
        """Heuristic schedules, best guess first.

        They seed every search, which ends with nothing slower.

        A kernel with a fixed schedule has that one, where it is legal.
        """
        if self.kernel.fixed:
            return (self.fixed(),)
        return (self.sample(DefaultChooser()),)

    def fixed(self) -> Schedule:
        """The schedule that a fence prescribes; IllegalAction, naming the kernel, where it is not
        legal here.
        """
        try:
            schedule = Schedule.parse(self.kernel.fixed)
            self.lower(schedule)
        except IllegalAction as error:
            asked = f"contiguous(schedule={self.kernel.fixed!r})"
            raise IllegalAction(f"kernel {self.kernel.name}: {asked}: {error}") from None
        return schedule

    def tree(self, schedule: Schedule) -> LoopTree:
        """The loop tree after the schedule's actions; IllegalAction when one is not legal."""
        tree: LoopTree = self._run((LOOPS, SCHEDULE), schedule)
        return tree

    def lower(self, schedule: Schedule) -> Program:
        """The program of a schedule; IllegalAction if not legal, or a race is not ruled out."""
        program: Program = self._run((LOOPS, SCHEDULE, LOWER, RACES), schedule)
        return program

    def _run(self, passes: tuple[Pass[Context], ...], schedule: Schedule) -> Form:
        return run_passes(passes, self.kernel, Context(self.kernel, self.target, schedule.actions))

    def actions(self, schedule: Schedule) -> Iterator[Action]:
        """Legal single steps that may be appended to a schedule, in a fixed order."""
        tree = self.tree(schedule)
        for name in sorted(ACTIONS):
            for action in ACTIONS[name].options(tree):
                try:
                    action.check(tree)
                except IllegalAction:
                    continue
                yield action
