"""Scores of searches: the area under the curve of best times so far, compared with random search.

    excess(n) = ln(best time after n trials / optimum)  0 at the optimum, 0.69 at twice its time
    area      = mean of excess(n) over n = 1 .. trials  the smaller the better
    score     = 1 - area / area of random search        1 at the optimum at once, 0 no better
                                                        than random

Both areas of a score are means over the same number of seeds, on the same space, with the same
number of trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .recorded import Recording

__all__ = ["area", "excess", "score", "trials_within"]

_NOTHING = 1e-12
"""Areas below this are none: every search stood at the optimum all the time."""


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
