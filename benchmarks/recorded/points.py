"""The part of a space that is recorded: every combination of the options of some decisions.

    vary tile:3, order  -->  tile=(8,2) order=rows
                             tile=(8,2) order=lanes
                             tile=(4,1) order=rows  ...

Options depend on the answers before them, and so do the questions: they are walked as a tree, by
asking the space.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from tunegrad.errors import ConfigError, IllegalAction
from tunegrad.ir.kernel import Axis
from tunegrad.opts import Schedule
from tunegrad.search import SearchSpace

from .space import Option, Question

__all__ = ["MOST_POINTS", "Point", "Vary", "decisions", "points_of", "settle_vary", "vary_of"]

MOST_POINTS = 3_000
"""Points of a recording, unless the user asks for more."""

_CAPS = (64, 32, 16, 12, 8, 6, 5, 4, 3, 2)
"""Options of each decision, at most, that are tried in turn where no decision is given."""

Vary = Mapping[str, int]
"""Number of options, at most, of each decision that is varied; 0 for all."""

Answers = tuple[tuple[Question, int], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One legal combination: the schedule, and the questions with their answers."""

    schedule: Schedule
    answers: Answers


def vary_of(texts: Sequence[str]) -> dict[str, int]:
    """``tile:8`` as at most eight options of the decision tile, ``order`` as all of order's.

    Raises ConfigError.
    """
    found = {}
    for given in texts:
        name, colon, count = given.rpartition(":")
        if not colon:
            name, count = given, "0"
        if not name or not count.isdecimal() or (colon and int(count) < 2):
            raise ConfigError(f"vary {given!r} is not DECISION or DECISION:N with N from 2")
        found[name] = int(count)
    return found


class _Varied:
    """Answers the varied questions with ``prefix``, then with their first options; all others by
    default.

    Used once.
    """

    def __init__(self, vary: Vary, prefix: Sequence[int]) -> None:
        self.vary, self.prefix = vary, prefix
        self.answers: list[tuple[Question, int]] = []

    def choose(self, name: str, options: Sequence[object], default: int) -> int:
        if name not in self.vary:
            return default
        kept = _kept(len(options), default, self.vary[name])
        if len(kept) == 1:
            return kept[0]
        place = len(self.answers)
        choice = self.prefix[place] if place < len(self.prefix) else 0
        labels = tuple(_label(options[i]) for i in kept)
        self.answers.append((Question(name, labels, kept.index(default)), choice))
        return kept[choice]


def _kept(count: int, default: int, most: int) -> list[int]:
    """Positions of at most ``most`` options (0: all), evenly spread from first to last, the default
    among them.
    """
    if not most or count <= most:
        return list(range(count))
    spread = sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
    if default not in spread:
        nearest = min(range(len(spread)), key=lambda i: abs(spread[i] - default))
        spread[nearest] = default
    return spread


def _label(option: object) -> Option:
    if isinstance(option, Axis):
        return option.name
    if isinstance(option, tuple):
        return tuple(_label(o) for o in option)
    return option if isinstance(option, bool | int | str) else str(option)


def points_of(space: SearchSpace, vary: Vary) -> Iterator[Point]:
    """Every combination of the options of the varied decisions, in order; one that is not legal is
    no point.
    """
    prefix: list[int] | None = []
    while prefix is not None:
        chooser = _Varied(vary, prefix)
        try:
            schedule = space.sample(chooser)
        except IllegalAction:
            pass
        else:
            yield Point(schedule, tuple(chooser.answers))
        prefix = _following(chooser.answers)


def _following(answers: Sequence[tuple[Question, int]]) -> list[int] | None:
    """The choices that come next, as an odometer counts; None after the last ones."""
    choices = [choice for _, choice in answers]
    while choices and choices[-1] + 1 == len(answers[len(choices) - 1][0].options):
        choices.pop()
    return [*choices[:-1], choices[-1] + 1] if choices else None


def settle_vary(space: SearchSpace, vary: Vary, most: int) -> dict[str, int]:
    """The decisions to vary: ``vary`` where it is given, else every decision, with as many options
    of each as ``most`` allows.

    Raises ConfigError where ``vary`` names a decision that is never asked, or there are more points
    than ``most``.
    """
    if vary:
        asked = (
            {q.name for p in points_of(space, vary) for q, _ in p.answers}
            if _fits(space, vary, most)
            else None
        )
        if asked is None:
            raise ConfigError(
                f"more than {most} points; vary fewer decisions, or fewer options of them"
            )
        if missing := sorted(vary.keys() - asked):
            raise ConfigError(
                f"decision {missing[0]!r} is never asked; valid: {', '.join(decisions(space))}"
            )
        return dict(vary)
    names = decisions(space)
    for cap in _CAPS:
        if _fits(space, dict.fromkeys(names, cap), most):
            return dict.fromkeys(names, cap)
    raise ConfigError(
        f"two options of each decision are more than {most} points; name what to vary: "
        f"{', '.join(names)}"
    )


def _fits(space: SearchSpace, vary: Vary, most: int) -> bool:
    return sum(1 for _ in islice(points_of(space, vary), most + 1)) <= most


def decisions(space: SearchSpace) -> list[str]:
    """The decisions that the default schedule asks, and those that one other answer to one of them
    brings up.
    """
    asked: dict[str, None] = {}
    names = [d.name for d in space.defaults()[0].trace]
    for name in names:
        for point in points_of(space, {name: 0}):
            asked.update((d.name, None) for d in point.schedule.trace)
    return list(asked) or names
