"""Random search: independent draws from the space. The yardstick for every other searcher."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tunegrad.errors import IllegalAction
from tunegrad.opts import Schedule
from tunegrad.trial import Measurement

from .protocols import Proposal, SearchSpace

__all__ = ["RandomChooser", "RandomSearcher"]


class RandomChooser:
    """Draws each decision uniformly, or takes its default with probability ``default_share``."""

    def __init__(self, rng: Random, default_share: float = 0.0) -> None:
        self.rng, self.default_share = rng, default_share

    def choose(self, name: str, options: Sequence[object], default: int) -> int:  # noqa: ARG002  # the Chooser protocol
        if self.default_share and self.rng.random() < self.default_share:
            return default
        return self.rng.randrange(len(options))


class RandomSearcher:
    """Draws schedules uniformly, decision by decision, without repeats.

    It is done when ``patience`` draws in a row gave nothing new: then the space is (nearly) used up.
    """

    origin = "random"

    def __init__(self, space: SearchSpace, rng: Random, patience: int = 200) -> None:
        self.space, self.patience = space, patience
        self._chooser = RandomChooser(rng)
        self._seen: set[str] = set()
        self._skipped = 0
        self._done = False

    @property
    def done(self) -> bool:
        return self._done

    @property
    def skipped(self) -> int:
        return self._skipped

    def ask(self, n: int) -> list[Proposal]:
        found: list[Proposal] = []
        while len(found) < n and (schedule := self._draw()) is not None:
            found.append(Proposal(schedule, self.origin))
        self._done = len(found) < n
        return found

    def tell(self, proposal: Proposal, measurement: Measurement) -> None:  # noqa: ARG002  # it learns nothing from times
        self._seen.add(proposal.schedule.text)

    def _draw(self) -> Schedule | None:
        for _ in range(self.patience):
            try:
                schedule = self.space.sample(self._chooser)
            except IllegalAction:
                self._skipped += 1
                continue
            text = schedule.text
            if text not in self._seen:
                self._seen.add(text)
                return schedule
        return None
