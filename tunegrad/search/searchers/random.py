"""Random search: independent draws from the space. Every other searcher is compared with it."""

from __future__ import annotations

from random import Random

from tunegrad.opts import Schedule
from tunegrad.trial import Measurement

from ..protocols import Proposal, SearchSpace
from .one_by_one import TRIES, OneByOne, RandomChooser


class RandomSearcher(OneByOne):
    """Draws schedules uniformly, decision by decision, without repeats.

    It is done when ``TRIES`` draws in a row gave nothing new: then the space is (nearly) used up.
    """

    origin = "random"

    def __init__(self, space: SearchSpace, rng: Random) -> None:
        super().__init__(space)
        self._chooser = RandomChooser(rng)

    def tell(self, proposal: Proposal, measurement: Measurement) -> None:
        self.ledger.take(
            proposal, measurement
        )  # it learns nothing from times, so that what is done stays done

    def propose(self) -> Schedule | None:
        for _ in range(TRIES):
            if (schedule := self.claimed(self._chooser)) is not None:
                return schedule
        return None
