"""Bayesian search with a Gaussian process: Optuna's ``GPSampler`` over the questions that were
asked so far.

    told rows --> points --> process of    --> the point of greatest --> answers
                    |        log seconds       expected improvement
                    one axis a question; where a row did not ask it,
                    the position of its default

A Gaussian process needs a box: the same axes for every row. Spaces are no boxes, since answers open
and close questions and change how many options later ones have. So an answer is its position among
the options, from first to last, and a question that a row did not ask counts as answered with its
default.

Expected improvement as in Ament et al., "Unexpected improvements to expected improvement for
Bayesian optimization", NeurIPS 2023. Proposals that are not told yet count as slow (the constant
liar of Ginsbourger et al., 2010).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING

from tunegrad.opts import Schedule

from .bayesian import BayesianSearcher, quiet_optuna
from .ledger import Row
from .protocols import SearchSpace

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

__all__ = ["GpSearcher", "gp_missing"]

_FAILED = 1.0
"""Log seconds by which a failure is told as slower than the slowest row that ran: 2.7 times."""


@cache
def gp_missing() -> tuple[str, ...]:
    """The packages of the extra ``gp`` that can not be imported here: what fits the process, fast,
    on one thread.
    """
    return tuple(name for name in ("torch", "greenlet", "threadpoolctl") if not _imports(name))


def _imports(name: str) -> bool:
    try:
        import_module(name)
    except (ImportError, OSError):
        return False
    return True


class _PointChooser:
    """Answers with the options at a point's positions; what the point does not say is drawn."""

    def __init__(self, point: Mapping[str, float], rng: Random) -> None:
        self.point, self.rng = point, rng

    def choose(self, name: str, options: Sequence[object], default: int) -> int:  # noqa: ARG002  # the protocol's
        position = self.point.get(name)
        if position is None:
            return self.rng.randrange(len(options))
        return round(position * (len(options) - 1))


class GpSearcher(BayesianSearcher):
    """Optuna's Gaussian process over one axis for each question that a row has asked, in memory,
    seeded.

    The first ``startup`` proposals, and a share ``explore`` of all others, are random draws. Of the
    rest every second is what the process suggests, the other one a change of one answer of that: a
    suggestion costs as much as a trial. The study is made anew whenever something was told. It is
    of all rows, or of the ``most / 2`` fastest and the ``most / 2`` latest, with the ``most / 4``
    latest proposals that are not told yet and as many illegal ones; it grows to twice ``most`` at
    most. It is done when ``tries`` ideas in a row were old ones. Needs what ``gp_missing`` names.
    """

    origin = "gp"

    def __init__(
        self,
        space: SearchSpace,
        rng: Random,
        startup: int = 6,
        explore: float = 0.05,
        most: int = 100,
        tries: int = 200,
    ) -> None:
        super().__init__(space, rng, startup, explore, most, tries)
        self._defaults: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self._asked: dict[str, Schedule] = {}
        self._illegal: list[Mapping[str, float]] = []
        self._slowest = 0.0
        self._resting = False

    # ---- proposing
    # ----------------------------------------------------------------------------------------------

    def propose(self) -> Schedule | None:
        """One schedule not seen before; None when ``tries`` ideas in a row were old or not
        legal.
        """
        schedule = super().propose()
        self._resting = not self._resting
        if schedule is not None:
            self._asked[schedule.text] = schedule
            if len(self._asked) > self.most // 4:
                del self._asked[next(iter(self._asked))]
            if self._study is not None:
                self._add(self._study, _point(schedule), self._slowest)
        return schedule

    def _suggested(self) -> Schedule | None:
        """Return the schedule that the process suggests; None where it is old or not legal, which
        the process is told.
        """
        if self._resting or not self._defaults:
            return None
        from threadpoolctl import threadpool_limits

        study = self._open()
        with (
            quiet_optuna(),
            threadpool_limits(1),
        ):  # matrices so small are ten times slower on threads that are busy
            trial = study.ask(dict(_box(self._defaults)))
        self._size += 1
        point = {name: float(trial.params[name]) for name in self._defaults}
        suggested = self.ledger.sample(_PointChooser(point, self.rng))
        if suggested is None:
            self._illegal = [*self._illegal, point][-(self.most // 4) :]
            study.tell(trial, self._slowest + _FAILED)
            return None
        study.tell(trial, self._value(self._told.get(suggested.text, self._slowest)))
        self._latest = suggested
        return suggested if self.ledger.claim(suggested) else None

    # ---- the study
    # ----------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Take up what came in since; the study is out of date then."""
        rows = self.ledger.rows[self._used :]
        self._used += len(rows)
        for row in rows:
            self._told[row.schedule.text] = row.log_s
            self._settle(row.schedule.text)
            for d in row.schedule.trace:
                if d.options > 1:
                    self._defaults.setdefault(d.name, _position(d.default, d.options))
        if rows:
            self._study = None

    def _settle(self, text: str) -> None:
        """Forget what was asked up to ``text``: tells come in the order of asks, and a known
        program is never told.
        """
        if text in self._asked:
            while (first := next(iter(self._asked))) != text:
                del self._asked[first]
            del self._asked[text]

    def _open(self) -> Study:
        """The study of what is known now."""
        if self._study is None or self._size >= 2 * self.most:
            rows = self._chosen()
            self._slowest = max((row.log_s for row in rows if row.ran), default=0.0)
            self._study = _new_study(self.rng.getrandbits(31))
            self._size = 0
            for row in rows:
                self._add(self._study, _point(row.schedule), row.log_s)
            for point in self._illegal:
                self._add(self._study, point, self._slowest + _FAILED)
            for schedule in self._asked.values():
                self._add(self._study, _point(schedule), self._slowest)
        return self._study

    def _chosen(self) -> Sequence[Row]:
        rows = self.ledger.rows
        return rows if len(rows) <= self.most else self.ledger.telling(self.most // 2)

    def _value(self, log_s: float) -> float:
        """The value that the process is told for a row: finite, and bounded so that outliers do not
        hide differences among the fast.
        """
        return min(log_s, self._slowest + _FAILED)

    def _add(self, study: Study, point: Mapping[str, float], log_s: float) -> None:
        known = {name: point.get(name, default) for name, default in self._defaults.items()}
        study.add_trial(_frozen(known, self._value(log_s)))
        self._size += 1


def _position(choice: int, options: int) -> float:
    """Position of a choice among several options, 0 to 1."""
    return choice / (options - 1)


def _point(schedule: Schedule) -> dict[str, float]:
    """Coordinates of a schedule on the axes of the questions that it asked."""
    return {d.name: _position(d.choice, d.options) for d in schedule.trace if d.options > 1}


def _box(names: Iterable[str]) -> Iterator[tuple[str, BaseDistribution]]:
    """An axis for each question."""
    from optuna.distributions import FloatDistribution

    for name in names:
        yield name, FloatDistribution(0.0, 1.0)


def _frozen(point: Mapping[str, float], value: float) -> FrozenTrial:
    """A point as a finished trial."""
    from optuna.trial import create_trial

    return create_trial(value=value, params=dict(point), distributions=dict(_box(point)))


def _new_study(seed: int) -> Study:
    """A study in memory that says nothing."""
    import optuna

    with quiet_optuna():
        sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=0)
        return optuna.create_study(sampler=sampler, storage=optuna.storages.InMemoryStorage())
