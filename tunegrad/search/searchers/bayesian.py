"""Bayesian search: Optuna's tree-structured Parzen estimator answers the questions of the space,
one by one.

    told rows --> study --> l(x): options of the fastest tenth --> each decision takes
                            g(x): options of all the others        the option of the best l/g

    g(x) counts failures, and the schedules that are being measured.

The estimator is from Bergstra et al., "Algorithms for hyper-parameter optimization", NeurIPS 2011;
each decision is drawn for itself. Drawing decisions that occur together jointly costs up to four
times as much in the mean, a model of each of some twenty groups for every proposal, and was no
better (``docs/SEARCH.md``). Proposals that are not told yet count as bad ones, so that a batch does
not ask for the same thing many times (the constant liar of Ginsbourger et al., 2010).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING

from tunegrad.opts import Schedule, TraceChooser

from ..protocols import SearchSpace
from .ledger import Row, Traces
from .one_by_one import TRIES, OneByOne, cautious

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial, Trial

_FAILED = 1e9
"""The log seconds that a failure is told with: behind all that ran, so that it is avoided."""

_SUGGESTIONS = 3
"""Number of times that the estimator is asked for one proposal; a suggestion that comes again and
again is then changed at random.
"""

_STARTUP, _EXPLORE = 6, 0.05
"""The first proposals, and the part of all others, that are random draws."""


def optuna_installed() -> bool:
    """True where the package that this searcher asks is there."""
    return find_spec("optuna") is not None


class _TrialChooser:
    """Asks an Optuna trial. A decision with another number of options is another parameter."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def choose(self, name: str, options: Sequence[object], default: int) -> int:  # noqa: ARG002  # the protocol's
        count = len(options)
        return int(self.trial.suggest_categorical(_parameter(name, count), tuple(range(count))))


def _parameter(name: str, options: int) -> str:
    return f"{name}/{options}"


class BayesianSearcher(OneByOne):
    """Optuna's TPE over the space's decisions, define-by-run, in memory, seeded.

    The study holds at most ``most`` trials, so that asking stays cheap: when it is full, a new one
    is made of the ``most / 4`` fastest and the ``most / 4`` latest rows. It is done when ``TRIES``
    ideas in a row were old ones.
    """

    origin = "bayesian"

    def __init__(
        self, space: SearchSpace, rng: Random, most: int = 160, traces: Traces | None = None
    ) -> None:
        super().__init__(space, traces)
        self.rng, self.most = rng, most
        self._study: Study | None = None
        self._pending: dict[str, Trial] = {}
        self._latest: Schedule | None = None
        self._used = 0
        self._size = 0

    def prepare(self, n: int) -> None:  # noqa: ARG002  # however many
        self.ledger.retrace_best()

    # ---- proposing

    def propose(self) -> Schedule | None:
        """One schedule not seen before; None when ``TRIES`` ideas in a row were old or illegal."""
        self._learn()
        informed = self._used >= _STARTUP and self.rng.random() >= _EXPLORE
        for attempt in range(TRIES):
            if informed and attempt < _SUGGESTIONS:
                schedule = self._suggested()
            elif informed and attempt < 4 * _SUGGESTIONS and self._latest is not None:
                schedule = self._near(self._latest)
            else:
                schedule = self.claimed(cautious(self.rng, attempt))
            if schedule is not None:
                return schedule
        return None

    def _near(self, schedule: Schedule) -> Schedule | None:
        """An old suggestion with one decision drawn anew: cheap, and where good ones are."""
        if not schedule.trace:
            return None
        choices = {d.name: d.choice for d in schedule.trace}
        changed = self.rng.choice(schedule.trace)
        choices[changed.name] = self.rng.randrange(changed.options)
        return self.claimed(TraceChooser(choices))

    def _suggested(self) -> Schedule | None:
        """Return the schedule that the estimator suggests; None where it is old or not legal, in
        which case the study keeps nothing of it.
        """
        from optuna.trial import TrialState

        study = self._open()
        trial = study.ask()
        self._size += 1
        suggested = self.ledger.sample(_TrialChooser(trial))
        self._latest = suggested or self._latest
        schedule = suggested if suggested is not None and self.ledger.claim(suggested) else None
        if schedule is None:
            study.tell(trial, state=TrialState.FAIL)
        else:
            self._pending[schedule.text] = trial
        return schedule

    # ---- the study

    def _open(self) -> Study:
        """The study, made when it is first needed and whenever it is full."""
        if self._study is None or self._size >= self.most:
            self._study = _new_study(self.rng.getrandbits(31))
            self._pending.clear()
            chosen = self.ledger.telling(self.most // 4)
            self._study.add_trials(map(_frozen, chosen))
            self._size, self._used = len(chosen), len(self.ledger.rows)
        return self._study

    def _learn(self) -> None:
        """Tell the study what came in since."""
        rows = self.ledger.rows[self._used :]
        self._used += len(rows)
        if self._study is None:
            return
        if self._size + len(rows) >= self.most:
            self._study = (
                None  # it would be full: the next one is made of what is best and what is latest
            )
            return
        for row in rows:
            trial = self._pending.pop(row.schedule.text, None)
            if trial is not None:
                self._study.tell(trial, _value(row))
            else:
                self._study.add_trial(_frozen(row))
                self._size += 1


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Leave out Optuna's log ("a new study created") and warnings of experimental options."""
    import optuna

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(level)


def _new_study(seed: int) -> Study:
    """A study in memory that says nothing."""
    import optuna

    with quiet_optuna():
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, constant_liar=True)
        return optuna.create_study(sampler=sampler, storage=optuna.storages.InMemoryStorage())


def _value(row: Row) -> float:
    return row.log_s if row.log_s < math.inf else _FAILED


@lru_cache(maxsize=256)
def _distribution(options: int) -> BaseDistribution:
    """The distribution that a decision of so many options is drawn from; Optuna takes copies."""
    from optuna.distributions import CategoricalDistribution

    return CategoricalDistribution(tuple(range(options)))


def _frozen(row: Row) -> FrozenTrial:
    """A row as a finished trial."""
    from optuna.trial import create_trial

    trace = row.schedule.trace
    asked: dict[str, BaseDistribution] = {
        _parameter(d.name, d.options): _distribution(d.options) for d in trace
    }
    params = {_parameter(d.name, d.options): d.choice for d in trace}
    return create_trial(value=_value(row), params=params, distributions=asked)
