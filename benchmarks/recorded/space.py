"""A recorded space: every schedule of a part of a kernel's space, with what came of it on one
device.

    questions  tile: (8,2) (4,1)*   order: rows* lanes   the decisions that were varied;
                                                         * the default
    trials     tile=(8,2) order=rows  --> actions, program, measurement
               ...                        one for each combination that is legal

A search on it asks the recorded questions and no others; the decisions that were not varied stay at
their defaults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import pairwise

from tunegrad.errors import IllegalAction
from tunegrad.ir.looptree import LoopTree
from tunegrad.lazy import dataclass
from tunegrad.opts import Action, Chooser, DefaultChooser, Schedule, SpaceDecision
from tunegrad.trial import Fingerprint, Measurement, Policy

__all__ = [
    "Answer",
    "Option",
    "Question",
    "RecordedSpace",
    "RecordedTrial",
    "Recording",
    "conflicts",
]

Option = bool | int | str | tuple["Option", ...]
"""The name of an option: a plain value, or a tuple of them."""

Answer = tuple[int, int]
"""(position in the recording's questions, position in that question's options)"""


@dataclass(frozen=True, slots=True)
class Question:
    """A decision with the options that were recorded.

    Decisions of one name may differ in options: they depend.
    """

    name: str
    options: tuple[Option, ...]
    default: int


@dataclass(frozen=True, slots=True)
class RecordedTrial:
    """One schedule and what came of it.

    ``paths`` are the answers that lead to it; several may print the same text.
    """

    actions: str
    program_hash: str
    measurement: Measurement
    paths: tuple[tuple[Answer, ...], ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """All that was recorded of one kernel on one device under one policy.

    ``points`` is how many combinations of answers are legal; a recording of fewer is cut short or
    damaged. The trials of a ``foreign`` one are configurations of another tuner: texts, in the
    place of actions.
    """

    kernel_name: str
    kernel_key: str
    kernel_text: str
    fingerprint: Fingerprint
    policy: Policy
    space_version: int
    points: int
    questions: tuple[Question, ...]
    trials: tuple[RecordedTrial, ...]
    foreign: bool = False

    @property
    def complete(self) -> bool:
        """True when every legal combination of answers has its trial."""
        return sum(len(t.paths) for t in self.trials) == self.points

    @property
    def times_s(self) -> tuple[float, ...]:
        """Seconds of every schedule that ran, fastest first."""
        return tuple(sorted(t.measurement.seconds for t in self.trials if t.measurement.ran))

    @property
    def best_s(self) -> float:
        """The optimum; infinity when nothing ran."""
        return self.times_s[0] if self.times_s else math.inf

    @property
    def programs(self) -> int:
        """Different programs; schedules that could not be lowered count one each."""
        return len({t.program_hash or t.actions for t in self.trials})


@dataclass(slots=True)
class _Node:
    """A question in its place; ``children`` by option: the next question, or the position of a
    trial.
    """

    question: int
    children: dict[int, _Node | int] = field(default_factory=dict)


@dataclass(slots=True)
class _Tree:
    """The questions in the order in which they are asked. Mutable while it grows."""

    root: _Node | int | None = None

    def add(self, path: Sequence[Answer], trial: int) -> str:
        """Lead ``path`` to a trial; what it contradicts in words, the tree unchanged, or ''."""
        fault = self._fault(path)
        if fault:
            return fault
        if not path:
            self.root = trial
            return ""
        if self.root is None:
            self.root = _Node(path[0][0])
        node = self.root
        for (_, choice), (following, _) in pairwise(path):
            assert isinstance(node, _Node)
            node = node.children.setdefault(choice, _Node(following))
        assert isinstance(node, _Node)
        node.children[path[-1][1]] = trial
        return ""

    def _fault(self, path: Sequence[Answer]) -> str:
        node = self.root
        for i, (question, choice) in enumerate(path):
            if node is None:
                return ""
            if not isinstance(node, _Node):
                return f"answer {i} comes after the last question of another trial"
            if node.question != question:
                return (
                    f"answer {i} is to question {question}, that of another trial to "
                    f"question {node.question}"
                )
            node = node.children.get(choice)
        return "" if node is None else "another trial has the same answers, or they end too early"


def conflicts(trials: Sequence[RecordedTrial]) -> Iterator[tuple[int, str]]:
    """(position, why) of each trial whose answers contradict those of trials before it.

    Such a one must be left out.
    """
    tree = _Tree()
    texts: set[str] = set()
    for i, trial in enumerate(trials):
        if trial.actions in texts:
            yield i, f"the actions {trial.actions!r} have a trial already"
            continue
        texts.add(trial.actions)
        if fault := next(filter(None, (tree.add(path, i) for path in trial.paths)), ""):
            yield i, fault


@dataclass(frozen=True, slots=True)
class _Configuration(Action):
    """Another tuner's configuration in the place of actions: it can be named, and not applied."""

    text: str

    def apply(self, tree: LoopTree) -> LoopTree:
        raise self.fail(tree, "a configuration of another tuner is not an action")

    @classmethod
    def options(cls, tree: LoopTree) -> Iterator[Action]:  # noqa: ARG003  # an action's protocol
        return iter(())

    def __str__(self) -> str:
        return self.text


class RecordedSpace:
    """The schedules of a recording, as a space to search (``search.SearchSpace``).

    A combination of answers that has no trial is illegal, and no actions can be appended.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.version = recording.space_version
        self._schedules = tuple(_actions(t.actions, recording.foreign) for t in recording.trials)
        self._tree = _Tree()
        for i, trial in enumerate(recording.trials):
            for path in trial.paths:
                if fault := self._tree.add(path, i):
                    raise IllegalAction(f"recording of {recording.kernel_name}, trial {i}: {fault}")

    def sample(self, chooser: Chooser) -> Schedule:
        """The recorded schedule that a chooser's answers give; IllegalAction where none was
        recorded.
        """
        node, trace = self._tree.root, []
        while isinstance(node, _Node):
            asked = self.recording.questions[node.question]
            choice = chooser.choose(asked.name, asked.options, asked.default)
            if not 0 <= choice < len(asked.options):
                raise IllegalAction(
                    f"decision {asked.name}: choice {choice} is not one of "
                    f"{len(asked.options)} options"
                )
            trace.append(SpaceDecision(asked.name, choice, len(asked.options), asked.default))
            if choice not in node.children:
                raise IllegalAction(
                    f"decision {asked.name}: nothing was recorded for option "
                    f"{asked.options[choice]!r}"
                )
            node = node.children[choice]
        if node is None:
            raise IllegalAction(f"the recording of {self.recording.kernel_name} holds no trial")
        return Schedule(self._schedules[node], tuple(trace))

    def defaults(self) -> tuple[Schedule, ...]:
        """The heuristic schedule; where a damaged recording lacks it, the first one near it."""
        try:
            return (self.sample(DefaultChooser()),)
        except IllegalAction:
            return (self.sample(_NearestChooser(self._tree.root)),)

    def actions(self, schedule: Schedule) -> Iterator[Action]:  # noqa: ARG002  # the SearchSpace protocol
        """None: what they would give was not recorded."""
        return iter(())


def _actions(text: str, foreign: bool) -> tuple[Action, ...]:
    return (_Configuration(text),) if foreign else Schedule.parse(text).actions


class _NearestChooser:
    """Takes defaults where they lead somewhere, else the first option that does.

    Follows one sample.
    """

    def __init__(self, root: _Node | int | None) -> None:
        self._node = root

    def choose(self, name: str, options: Sequence[object], default: int) -> int:  # noqa: ARG002  # the Chooser protocol
        assert isinstance(self._node, _Node)
        choice = default if default in self._node.children else min(self._node.children)
        self._node = self._node.children[choice]
        return choice
