"""Evolutionary search: traces of decisions are mutated and crossed, and a cost model says which
children to measure.

    told rows --> population (the fastest) --tournament--> parents --mutate, cross--> children
                                              ^                                          |
                                              +----- the children it thinks best --------+
                                                                                         |
        cost model, trained <-- measured <-- the best of them, and some random draws  <--+
        on all rows told

Children are lists of decisions until they are proposed, so that a generation costs microseconds a
child; only the chosen ones are sampled from the space. Evolution under a learned cost model is from
Zheng et al., "Ansor", OSDI 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tunegrad.opts import Schedule, TraceChooser

from ..cost_model import CostModel
from ..protocols import SearchSpace
from .ledger import Row, Traces
from .one_by_one import TRIES, OneByOne, RandomChooser, cautious

_Choices = dict[str, int]
_Key = frozenset[tuple[str, int]]

_FEWEST = 12
"""Rows before a model is trained and parents are bred from: fewer say nothing."""

_LEARNED = 256
"""Rows that a model is trained on, at most: half the fastest, half the latest."""

_SURE = 24
"""Rows before others' schedules are called slow: a model of fewer takes good ones for slow."""

_POPULATION, _GENERATIONS, _CHILDREN = 24, 3, 96
"""Schedules bred from; generations that a model ranks for a batch, and children of each."""

_EXPLORE = 0.05
"""The part of the proposals that are random draws."""

_STRANGERS = 0.1
"""The part of the children that have decisions drawn anew, all of them."""


class EvolutionarySearcher(OneByOne):
    """Evolves the fastest schedules; some proposals are random draws.

    With a cost model (``learned``), generations of children are bred for one batch and ranked by
    it; without one, children are proposed as they are bred. It is done when ``TRIES`` ideas in a
    row were old.
    """

    origin = "evolutionary"

    def __init__(
        self, space: SearchSpace, rng: Random, learned: bool = True, traces: Traces | None = None
    ) -> None:
        super().__init__(space, traces)
        self.rng = rng
        self._options: dict[str, int] = {}
        self._tried: set[_Key] = set()
        self._used = 0
        self._model = CostModel() if learned else None
        self._parents: list[Row] = []
        self._children: list[Schedule] = []

    def prepare(self, n: int) -> None:
        self.ledger.retrace_best()
        self._learn()
        grown = len(self.ledger.rows) >= _FEWEST
        self._parents = self.ledger.fastest(_POPULATION) if grown else []
        self._children = self._bred(n, self._parents) if self._parents else []

    def propose(self) -> Schedule | None:
        return self._children.pop(0) if self._children else self._draw(self._parents)

    def behind(self, schedules: Sequence[Schedule]) -> list[float]:
        """Log seconds by which each is expected to be slower than the fastest that was told; 0
        without a forecast.

        It is the forecast of the model as it was last trained: when this searcher was asked.
        """
        fastest = self.ledger.fastest(1)
        if self._model is None or not fastest or self._used < _SURE:
            return [0.0] * len(schedules)
        candidates = [*schedules, fastest[0].schedule]
        forecast = self._model.predict([{d.name: d.choice for d in s.trace} for s in candidates])
        return [float(f - forecast[-1]) for f in forecast[:-1]]

    # ---- learning

    def _learn(self) -> None:
        """Train the model on all rows, where some are new and there are enough."""
        rows = self.ledger.rows
        for row in rows[self._used :]:
            self._options.update((d.name, d.options) for d in row.schedule.trace)
            self._tried.add(_key(row.choices))
        fresh, self._used = len(rows) > self._used, len(rows)
        rows = self.ledger.telling(_LEARNED // 2) if len(rows) > _LEARNED else rows
        if self._model is not None and fresh and len(rows) >= _FEWEST:
            self._model.fit([r.choices for r in rows], [r.log_s for r in rows])

    # ---- breeding

    def _bred(self, n: int, parents: Sequence[Row]) -> list[Schedule]:
        """Up to ``n`` new schedules, most promising first; every so often a random draw."""
        ideas = self._ideas([r.choices for r in parents])
        found: dict[str, Schedule] = {}
        for choices in ideas:
            if len(found) >= n:
                break
            if self.rng.random() < _EXPLORE:
                schedule = self.ledger.sample(RandomChooser(self.rng, self.rng.choice((0.0, 0.5))))
            else:
                schedule = self.ledger.sample(TraceChooser(choices))
            if schedule is not None and not self.ledger.known(schedule):
                found.setdefault(schedule.text, schedule)
        return [s for s in found.values() if self.ledger.claim(s)]

    def _ideas(self, parents: list[_Choices]) -> list[_Choices]:
        """Children as decisions, each once; in the model's order, fastest first, if any."""
        model = self._model if self._model is not None and self._model.fitted else None
        pool: dict[_Key, _Choices] = {}
        forecast: dict[_Key, float] = {}
        for _ in range(_GENERATIONS if model is not None else 1):
            for _ in range(_CHILDREN):
                child = self._child(parents)
                pool.setdefault(_key(child), child)
            if model is not None:
                new = {key: child for key, child in pool.items() if key not in forecast}
                forecast.update(zip(new, model.predict(list(new.values())), strict=True))
                pool = {key: pool[key] for key in sorted(pool, key=forecast.__getitem__)}
                parents = list(pool.values())[:_POPULATION]
        return [child for key, child in pool.items() if key not in self._tried]

    def _child(self, parents: list[_Choices]) -> _Choices:
        """One or two parents by tournament (best first), some of their decisions changed."""
        first = self._pick(parents)
        child = dict(first)
        if self.rng.random() < _STRANGERS:
            return {name: self.rng.randrange(self._options.get(name, 1)) for name in child}
        if self.rng.random() < 0.4:
            other = self._pick(parents)
            for name, choice in other.items():
                if name not in child or self.rng.random() < 0.5:
                    child[name] = choice
            if child != first and self.rng.random() < 0.5:
                return child
        names = list(first)
        for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3))):
            if names:
                name = self.rng.choice(names)
                child[name] = self._other(name, child[name])
        return child

    def _pick(self, parents: list[_Choices]) -> _Choices:
        return parents[min(self.rng.randrange(len(parents)), self.rng.randrange(len(parents)))]

    def _other(self, name: str, choice: int) -> int:
        """Another option of a decision: a neighbour half of the time, else any."""
        count = self._options.get(name, 1)
        if count < 2:
            return choice
        if self.rng.random() < 0.5:
            near = choice + self.rng.choice((-2, -1, 1, 2))
            if 0 <= near < count:
                return near
        return (choice + self.rng.randrange(1, count)) % count

    def _draw(self, parents: Sequence[Row]) -> Schedule | None:
        """A new change of a parent or random draw; None when ``TRIES`` ideas were not new."""
        for attempt in range(TRIES):
            if parents and 4 * attempt < TRIES and self.rng.random() >= _EXPLORE:
                schedule = self.claimed(TraceChooser(self._child([r.choices for r in parents])))
            else:
                schedule = self.claimed(cautious(self.rng, attempt))
            if schedule is not None:
                return schedule
        return None


def _key(choices: _Choices) -> _Key:
    return frozenset(choices.items())
