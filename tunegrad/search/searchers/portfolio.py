"""Portfolio search: several searchers share the trials, each gets what it has earned, all hear
everything.

    the first 32 are beam search's; then shares: a floor for each, the rest by gain per trial

    ask(n) --> beam | evolutionary | bayesian | random --> promising? --> proposals --> measured
                 ^         ^             ^        ^            |                         |
                 |         |             |        |            +--> put off              |
                 +---------+-------------+--------+---------------- tell ----------------+--> credit

The gain of a trial is by how many log seconds it beats the few fastest so far. This is a bandit as
in Fialho et al., "Analyzing bandit-based adaptive operator selection", 2010, and in OpenTuner
(Ansel et al., PACT 2014); gains that fade, and asking again for what another had, brought nothing
(decision 0114).

What evolutionary search's cost model takes to be hopeless is put off, from any searcher, until
nothing else is left; one in ten is measured all the same, so that the model hears where it is
wrong. Those schedules were a fifth of a search's trials and more of its time: they are long
programs as well as slow ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tunegrad.trial import Measurement

from ..protocols import Proposal, Searcher, SearchSpace
from .bayesian import BayesianSearcher, optuna_installed
from .beam import BeamSearcher
from .evolution import EvolutionarySearcher
from .exhaustive import ExhaustiveSearcher
from .ledger import Ledger, Traces, log_seconds
from .random import RandomSearcher

_TRIALS = 6.0
"""Number of trials that the trust in a searcher weighs as much as."""

_TRUST = {"beam": 1.0, "evolutionary": 0.8, "bayesian": 0.6, "random": 0.4}
"""Assumed worth of a searcher before it has earned anything, against the best; 1 for others."""

_ALONE = 32
"""Schedules with decisions that are known before trials are divided: the first needs fewest."""

_ELITE, _GREED, _SWEEP = 5, 2.0, 4096
"""Fastest times whose mean a gain is against; the power of expected gains by which trials are
divided; lists of decisions that exhaustive search looks through.
"""

_HOPELESS, _HOPELESS_LATER, _LATER = 1.1, 0.7, 100
"""Log seconds behind the fastest at which a forecast puts off: 3 times, later twice."""

_ANYWAY = 0.1
"""The part of these that is measured all the same."""


@dataclass(slots=True)
class _Account:
    """Running account of a searcher: trials spent, gains earned, and the trials ``due`` to it."""

    trust: float
    trials: float = 0.0
    gain: float = 0.0
    due: float = 0.0

    def earn(self, gain: float) -> None:
        self.trials, self.gain = self.trials + 1.0, self.gain + gain

    def expected(self, usual: float) -> float:
        """Gain of the next trial; at first it is taken to be ``trust`` times the usual one."""
        return (_TRIALS * self.trust * usual + self.gain) / (_TRIALS + self.trials)


class PortfolioSearcher:
    """Divides what it is asked for among ``searchers``; by default beam, evolutionary and random
    search, and Bayesian search where Optuna is installed.

    The first ``alone`` trials are the first searcher's. Then each gets the share ``floor`` at
    least; the rest is divided by a power of the expected gain. When all have run dry, exhaustive
    search looks for what is left.
    """

    origin = "portfolio"

    def __init__(
        self,
        space: SearchSpace,
        rng: Random,
        searchers: Mapping[str, Searcher] | None = None,
        floor: float = 0.03,
        alone: int = _ALONE,
    ) -> None:
        self.floor, self.alone = floor, alone
        self.searchers = dict(searchers) if searchers is not None else _default(space, rng)
        self._judge = next(
            (s for s in self.searchers.values() if isinstance(s, EvolutionarySearcher)), None
        )
        self._rng = Random(rng.getrandbits(64))
        self._put_off: dict[str, Proposal] = {}
        self._last = ExhaustiveSearcher(space, rng)
        self._left = _SWEEP
        self._accounts = {name: _Account(_TRUST.get(name, 1.0)) for name in self.searchers}
        self._ledger = Ledger(space)
        self._seen: set[str] = set()
        self._from: dict[str, str] = {}
        self._fastest: list[float] = []
        self._done = False

    @property
    def done(self) -> bool:
        return self._done

    @property
    def skipped(self) -> int:
        return self._last.skipped + sum(s.skipped for s in self.searchers.values())

    @property
    def shares(self) -> dict[str, float]:
        """The part of the next trials that each searcher gets; they add up to 1."""
        usual = max(1e-6, *(a.gain / (_TRIALS + a.trials) for a in self._accounts.values()))
        worth = {name: a.expected(usual) ** _GREED for name, a in self._accounts.items()}
        free, total = 1.0 - self.floor * len(worth), sum(worth.values())
        return {name: self.floor + free * w / total for name, w in worth.items()}

    def ask(self, n: int) -> list[Proposal]:
        found: list[Proposal] = []
        if len(self._ledger.rows) < self.alone:
            found += self._new(next(iter(self.searchers)), n)
        found += self._divided(n - len(found))
        if len(found) < n:
            found += self._swept(n - len(found))
        while len(found) < n and self._put_off:
            found.append(self._put_off.pop(next(iter(self._put_off))))
        self._done = len(found) < n
        return found

    def tell(self, proposal: Proposal, measurement: Measurement) -> None:
        text = proposal.schedule.text
        self._seen.add(text)
        self._put_off.pop(text, None)
        if not self._ledger.take(proposal, measurement):
            return
        self._done = False
        for searcher in self.searchers.values():
            searcher.tell(proposal, measurement)
        self._last.tell(proposal, measurement)
        self._credit(self._from.pop(text, None), measurement)

    def _credit(self, name: str | None, measurement: Measurement) -> None:
        log_s, ran = log_seconds(measurement), measurement.ran
        if name is not None:
            # Against the mean of the few fastest, so that a steady supply of good ones counts, too.
            mark = sum(self._fastest) / len(self._fastest) if self._fastest else log_s
            self._accounts[name].earn(max(0.0, mark - log_s) if ran else 0.0)
        if ran:
            self._fastest = sorted([*self._fastest, log_s])[:_ELITE]

    # ---- proposing

    def _divided(self, n: int) -> list[Proposal]:
        """Up to ``n`` proposals, of each searcher as many as are due to it; the others stand in for
        one that is dry.

        Where none is owed a trial, the first one goes into debt.
        """
        found: list[Proposal] = []
        for name, share in self.shares.items():
            self._accounts[name].due += share * n
        dry: set[str] = set()
        while len(found) < n and len(dry) < len(self.searchers):
            left = [a for a in self._accounts if a not in dry]
            ready = [a for a in left if self._accounts[a].due >= 1.0]
            name = max(ready, key=lambda a: self._accounts[a].due) if ready else left[0]
            count = max(1, min(n - len(found), int(self._accounts[name].due)))
            new = self._new(name, count)
            self._accounts[name].due -= len(new)
            found += new
            if len(new) < count:
                dry.add(name)
        for name in dry:
            self._accounts[name].due = 0.0
        return found

    def _new(self, name: str, count: int) -> list[Proposal]:
        """Up to ``count`` ideas of one searcher that no other has had."""
        asked = self.searchers[name].ask(count)
        fresh = [p.schedule for p in asked if p.schedule.text not in self._seen]
        self._seen.update(s.text for s in fresh)
        self._from.update((s.text, name) for s in fresh)
        found = [Proposal(s, f"{self.origin}:{name}") for s in fresh]
        return found if self.searchers[name] is self._judge else self._promising(found)

    def _promising(self, proposals: list[Proposal]) -> list[Proposal]:
        """Those not expected to be hopeless, and a few that are; the others are put off."""
        if self._judge is None or not proposals:
            return proposals
        found, limit = [], _HOPELESS if len(self._ledger.rows) < _LATER else _HOPELESS_LATER
        for proposal, behind in zip(
            proposals, self._judge.behind([p.schedule for p in proposals]), strict=True
        ):
            if behind < limit or self._rng.random() < _ANYWAY:
                found.append(proposal)
            else:
                self._put_off[proposal.schedule.text] = proposal
        return found

    def _swept(self, count: int) -> list[Proposal]:
        """Proposals that the others did not find, as far as the sweep goes."""
        found: list[Proposal] = []
        while len(found) < count and self._left > 0 and (asked := self._last.ask(1)):
            self._left -= 1
            schedule = asked[0].schedule
            if schedule.text not in self._seen:
                self._seen.add(schedule.text)
                found.append(Proposal(schedule, f"{self.origin}:{self._last.origin}"))
        return found


def _default(space: SearchSpace, rng: Random) -> dict[str, Searcher]:
    """The searchers worth having together, each with its randomness; one looks for a trace."""
    traces: Traces = {}
    beam, evolutionary, bayesian, random = (Random(rng.getrandbits(64)) for _ in range(4))
    found: dict[str, Searcher] = {
        "beam": BeamSearcher(space, beam, traces=traces),
        "evolutionary": EvolutionarySearcher(space, evolutionary, traces=traces),
    }
    if optuna_installed():
        found["bayesian"] = BayesianSearcher(space, bayesian, traces=traces)
    return found | {"random": RandomSearcher(space, random)}
