"""Costs of a session: each of its seconds belongs to one part, so that the parts add up to the
whole.

    part "plans"    |====          ===|
      part "asking"      |==|            a part inside a part takes its time out of the outer one
      window "waiting"       |=====|     divided afterwards: what workers say they did, and the rest
    no part open: "other"

Work that several processes do at once counts with what it took of the session's time, not of
theirs. What they do while this one works counts as what this one did, and only the wait for the
rest is theirs:

    this process    |== asks for B ==|== waits for A ==|
    its workers     |=========== compile A ============|
    counts as       "asking"         "lowering", "compiling", or "waiting"
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["PARTS", "Costs", "Part", "Window", "compiling"]

Part = Literal[
    "start-up",
    "model",
    "plans",
    "asking",
    "lowering",
    "compiling",
    "verifying",
    "timing",
    "waiting",
    "store",
    "finals",
    "whole model",
    "other",
]
"""``plans``: whole models compared to decide their cut and variants. ``asking``: the space and the
searcher.

``lowering`` and ``compiling``: as far as the session waited for them; what is done while it asks is
``asking``. ``waiting``: for workers to start and answer, and for the slowest of a batch.
``verifying`` holds inputs and references.
"""

PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(slots=True)
class Window:
    """The time that one opened part took of its own, in seconds; divided once it is over."""

    seconds: float
    book: dict[Part, float]
    part: Part
    sealed: bool

    def divide(self, shares: Mapping[Part, float]) -> None:
        """Give some of the time to other parts: their seconds, or less where together they say more
        than it took.
        """
        if self.sealed:
            return
        claimed_s = sum(shares.values())
        scale = min(1.0, self.seconds / claimed_s) if claimed_s > 0.0 else 0.0
        for part, seconds in shares.items():
            self.book[part] += scale * seconds
            self.book[self.part] -= scale * seconds
        self.seconds -= scale * claimed_s


class Costs:
    """A stopwatch with parts. ``clock`` is monotonic, in seconds; ``began_s`` of it is when a
    command began, whose time until now was start-up. Not for several threads.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, began_s: float | None = None
    ) -> None:
        self._clock = clock
        self._mark_s = clock()
        self.began_s = self._mark_s if began_s is None else min(began_s, self._mark_s)
        self._book: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        self._book["start-up"] = self._mark_s - self.began_s
        self._open: list[Window] = []

    @property
    def total_s(self) -> float:
        """Seconds since it was made."""
        return self._clock() - self.began_s

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of every part that took any, in the order of ``PARTS``; they add up to
        ``total_s`` of this moment.
        """
        self._charge()
        return {part: self._book[part] for part in PARTS if self._book[part] > 0.0}

    @contextmanager
    def part(self, part: Part, sealed: bool = False) -> Iterator[Window]:
        """Charge a part while the block runs.

        ``sealed``: parts that are opened inside count as this one.
        """
        outer = self._open[-1] if self._open else None
        if outer is not None and outer.sealed:
            yield Window(0.0, self._book, part, True)
            return
        self._charge()
        window = Window(0.0, self._book, part, sealed)
        self._open.append(window)
        try:
            yield window
        finally:
            self._charge()
            self._open.pop()

    def _charge(self) -> None:
        now_s = self._clock()
        took_s, self._mark_s = now_s - self._mark_s, now_s
        if self._open:
            self._open[-1].seconds += took_s
        self._book[self._open[-1].part if self._open else "other"] += took_s


def compiling(measurements: Sequence[tuple[float, float]], workers: int) -> dict[Part, float]:
    """Seconds of the session's time that a batch compiled by ``workers`` at once took, from
    (lower_s, compile_s) of each.
    """
    busy = max(1, min(workers, len(measurements)))
    return {
        "lowering": sum(lower_s for lower_s, _ in measurements) / busy,
        "compiling": sum(compile_s for _, compile_s in measurements) / busy,
    }
