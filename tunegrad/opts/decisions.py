"""Decisions of a schedule: a ``Chooser`` answers them, a ``Recorder`` asks and keeps answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from tunegrad.errors import IllegalAction
from tunegrad.lazy import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SpaceDecision:
    """One answered question: the option taken, of how many, and which one is the default."""

    name: str
    choice: int
    options: int
    default: int = 0


class Chooser(Protocol):
    """Answers the questions that ``Space.sample`` asks, in order."""

    def choose(self, name: str, options: Sequence[object], default: int) -> int:
        """The position of the option to take; ``default`` is the heuristic's choice.

        Names are unique in a sample.
        """


class DefaultChooser:
    """Takes every default: the heuristic schedule."""

    def choose(self, name: str, options: Sequence[object], default: int) -> int:  # noqa: ARG002  # the protocol's
        return default


class TraceChooser:
    """Takes the recorded choice where the question has that many options, else the fallback's."""

    def __init__(self, choices: Mapping[str, int], fallback: Chooser | None = None) -> None:
        self.choices = dict(choices)
        self.fallback: Chooser = fallback or DefaultChooser()

    def choose(self, name: str, options: Sequence[object], default: int) -> int:
        found = self.choices.get(name)
        return (
            found
            if found is not None and found < len(options)
            else self.fallback.choose(name, options, default)
        )


class Recorder:
    """Asks a chooser, checks its answers and keeps them."""

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser
        self.trace: list[SpaceDecision] = []

    def pick(self, name: str, options: Sequence[T], default: int = 0) -> T:
        """The option taken; a single one is not asked about."""
        if len(options) == 1:
            return options[0]
        choice = self.chooser.choose(name, options, default)
        if not 0 <= choice < len(options):
            raise IllegalAction(
                f"decision {name}: choice {choice} is not one of {len(options)} options"
            )
        self.trace.append(SpaceDecision(name, choice, len(options), default))
        return options[choice]
