"""The replay device: recorded measurements given back in microseconds, and a search played on them.

    ask --> the recording's rows --> tell   no compiler, no clock: same seed, same curve, anywhere

Scores are the area under the curve of best times so far, compared with random search:

    excess(n) = ln(best time after n trials / optimum)  0 at the optimum, 0.69 at twice its time
    area      = mean of excess(n) over n = 1 .. trials  the smaller the better
    score     = 1 - area / area of random search        1 at the optimum at once, 0 no better
                                                        than random

Both areas of a score are means over the same number of seeds, on the same space, with the same
number of trials.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from tunegrad.errors import InternalError
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule
from tunegrad.search.protocols import Measured, Proposal, Searcher, SearchSpace
from tunegrad.trial import Measurement, Status

from .space import Recording

__all__ = ["ReplayMeasurer", "area", "excess", "play", "score", "trials_within"]

_NOTHING = 1e-12
"""Areas below this are none: every search stood at the optimum all the time."""


class ReplayMeasurer:
    """``search.Measurer`` on a recording.

    What was not recorded ends as a compile error that says so.
    """

    def __init__(self, recording: Recording) -> None:
        self.kernel_key = recording.kernel_key
        self._rows = {t.actions: Measured(t.program_hash, t.measurement) for t in recording.trials}

    def measure(
        self,
        kernel: Kernel,
        schedules: Sequence[Schedule],
        best_s: float,  # noqa: ARG002  # a recorded loser was timed to the end
        known: Collection[str],
    ) -> Iterator[Measured | None]:
        """The recorded result of each schedule, in order; None where its program is known or came
        before.
        """
        if kernel.key != self.kernel_key:
            raise InternalError(
                f"kernel {kernel.name} has key {kernel.key}; the recording is of {self.kernel_key}"
            )
        seen = set(known)
        for schedule in schedules:
            yield self.take(schedule.text, seen)

    def take(self, text: str, seen: set[str]) -> Measured | None:
        """The recorded result of a schedule by its text; None where its program is in ``seen``, to
        which it is added.

        A schedule that could not be lowered has no program and is never known.
        """
        found = self._rows.get(text)
        if found is None:
            return Measured("", Measurement(Status.COMPILE_ERROR, error=f"not recorded: {text}"))
        if found.program_hash and found.program_hash in seen:
            return None
        seen.add(found.program_hash)
        return found


def play(
    searcher: Searcher, space: SearchSpace, measurer: ReplayMeasurer, trials: int, batch: int = 8
) -> tuple[float, ...]:
    """The best time, in seconds, after the defaults and after each further trial: ``trials`` + 1
    figures.

    As in a session: the defaults are measured first and told, a known program costs no trial and is
    not told. A searcher that has nothing left stays where it is. Infinity until something ran.
    """
    seen: set[str] = set()
    best_s = float("inf")
    for schedule in space.defaults():
        found = measurer.take(schedule.text, seen)
        if found is not None:
            searcher.tell(Proposal(schedule, "default"), found.measurement)
            best_s = min(best_s, found.measurement.seconds)
    curve = [best_s]
    while len(curve) <= trials and (proposals := searcher.ask(min(batch, trials + 1 - len(curve)))):
        for proposal in proposals:
            found = measurer.take(proposal.schedule.text, seen)
            if found is None:
                continue
            searcher.tell(proposal, found.measurement)
            best_s = min(best_s, found.measurement.seconds)
            curve.append(best_s)
    return (*curve, *(best_s for _ in range(trials + 1 - len(curve))))


def excess(curve_s: Sequence[float], recording: Recording) -> tuple[float, ...]:
    """ln(time / optimum) of each time; one where nothing had run yet counts as the slowest schedule
    that was recorded.

    No curve of a recording in which nothing ran has an excess: all are 0.
    """
    times = recording.times_s
    if not times:
        return tuple(0.0 for _ in curve_s)
    return tuple(math.log(min(s, times[-1]) / times[0]) for s in curve_s)


def area(excesses: Sequence[float]) -> float:
    """The mean excess over all trials; that of the defaults alone, which is the same for every
    search, is left out.
    """
    counted = excesses[1:]
    return math.fsum(counted) / len(counted) if counted else 0.0


def score(mean_area: float, random_area: float) -> float:
    """1 - area / area of random search; 0 where neither has any area, minus infinity where only
    random has none.
    """
    if random_area < _NOTHING:
        return 0.0 if mean_area < _NOTHING else -math.inf
    return 1.0 - mean_area / random_area


def trials_within(excesses: Sequence[float], share: float) -> int | None:
    """After how many trials the time was at most ``share`` above the optimum (0: with the
    defaults); None: never.
    """
    bound = math.log1p(share) + _NOTHING
    return next((n for n, e in enumerate(excesses) if e <= bound), None)
