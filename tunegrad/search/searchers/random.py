"""Random search: independent draws from the space. Every other searcher is compared with it."""

from __future__ import annotations

from random import Random

from tunegrad.opts import Schedule

from ..protocols import SearchSpace
from .one_by_one import TRIES, OneByOne, RandomChooser


class RandomSearcher(OneByOne):
    """Draws schedules uniformly, decision by decision, without repeats.

    It is done when ``TRIES`` draws in a row gave nothing new: then the space is (nearly) used up.
    """

    origin = "random"
    learns = False

    def __init__(self, space: SearchSpace, rng: Random) -> None:
        super().__init__(space)
        self._chooser = RandomChooser(rng)

    def propose(self) -> Schedule | None:
        for _ in range(TRIES):
            if (schedule := self.claimed(self._chooser)) is not None:
                return schedule
        return None
