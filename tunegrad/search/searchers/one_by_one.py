"""The base of most searchers: schedules are asked for one by one, until there are enough or no new
one was found.

    ask(n) --> prepare --> propose, propose ... --> claimed in the ledger --> Proposals
    tell   --> ledger  --> not done any more
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random

from tunegrad.opts import Chooser, Schedule
from tunegrad.trial import Measurement

from ..protocols import Proposal, SearchSpace
from .ledger import Ledger, Traces

TRIES = 200
"""Ideas in a row that were old or not legal, after which a searcher is done."""


class RandomChooser:
    """Draws each decision uniformly, or takes its default with probability ``default_share``."""

    def __init__(self, rng: Random, default_share: float = 0.0) -> None:
        self.rng, self.default_share = rng, default_share

    def choose(self, name: str, options: Sequence[object], default: int) -> int:  # noqa: ARG002  # the Chooser protocol
        if self.default_share and self.rng.random() < self.default_share:
            return default
        return self.rng.randrange(len(options))


class OneByOne(ABC):
    """A searcher over ``propose``.

    Mutable. What is told lands in the ledger, whose rows a learner reads when asked.
    """

    origin: str
    learns = True
    """False where times give no new ideas, so that what is done stays done."""

    def __init__(self, space: SearchSpace, traces: Traces | None = None) -> None:
        self.ledger = Ledger(space, traces)
        self._done = False

    @property
    def done(self) -> bool:
        return self._done

    @property
    def skipped(self) -> int:
        return self.ledger.skipped

    def ask(self, n: int) -> list[Proposal]:
        found: list[Proposal] = []
        if n > 0:
            self.prepare(n)
        while len(found) < n and (schedule := self.propose()) is not None:
            found.append(Proposal(schedule, self.origin))
        self._done = len(found) < n
        return found

    def tell(self, proposal: Proposal, measurement: Measurement) -> None:
        if self.ledger.take(proposal, measurement) and self.learns:
            self._done = False

    def prepare(self, n: int) -> None:  # noqa: B027  # most need nothing
        """Get ready for being asked for ``n`` > 0 schedules."""

    @abstractmethod
    def propose(self) -> Schedule | None:
        """One schedule not seen before, claimed in the ledger; None where none was found."""

    def claimed(self, chooser: Chooser) -> Schedule | None:
        """The schedule of a chooser's answers, if it is legal and new; then it is taken."""
        schedule = self.ledger.sample(chooser)
        return schedule if schedule is not None and self.ledger.claim(schedule) else None


def cautious(rng: Random, attempt: int) -> RandomChooser:
    """A random draw for a searcher that knows little: most of the time many answers are defaults.

    In the last half of its ``TRIES``, before it gives up, options that are no defaults get their
    full chance as well.
    """
    shy = 2 * attempt < TRIES and rng.random() < 0.7
    return RandomChooser(rng, rng.choice((0.5, 0.8)) if shy else 0.0)
