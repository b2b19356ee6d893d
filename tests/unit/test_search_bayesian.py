"""What Bayesian search does beyond the contract: it learns what fails, forgets in time, and
disturbs nobody.
"""

import logging
import random
from random import Random

import numpy as np
import optuna
from search_surface import SurfaceSpace, choices_of, failing, played, separable

from tunegrad.opts import Schedule
from tunegrad.search import BayesianSearcher, Proposal, RandomChooser
from tunegrad.trial import Measurement, Status


def test_bayesian_learns_which_options_fail():
    space, surface = failing()
    asked = played(BayesianSearcher(space, Random(1)), surface, 96)
    failed = [surface.measure(s).status is not Status.OK for s in asked]
    assert sum(failed[:16]) >= 4
    assert sum(failed[-32:]) <= 8  # 21 at random


def test_bayesian_looks_at_a_bounded_number_of_trials():
    space, surface = separable(Random(2))
    searcher = BayesianSearcher(space, Random(1), most=40)
    played(searcher, surface, 16)
    for _ in range(20):
        played(searcher, surface, 8)
        assert len(searcher._study.get_trials(deepcopy=False)) <= 40 + 8


def test_bayesian_keeps_the_fastest_when_the_study_is_made_anew():
    space, surface = separable(Random(2))
    searcher = BayesianSearcher(space, Random(1), most=40)
    asked = played(searcher, surface, 200)
    best = min(asked, key=surface.seconds)
    values = [t.value for t in searcher._study.get_trials(deepcopy=False) if t.value is not None]
    assert min(values) == np.log(surface.seconds(best))


def test_bayesian_takes_up_a_stored_schedule_without_a_trace():
    space, surface = separable(Random(4), decisions=5)
    best = min((space.sample(RandomChooser(Random(i))) for i in range(300)), key=surface.seconds)
    searcher = BayesianSearcher(space, Random(0))
    default = space.defaults()[0]
    searcher.tell(Proposal(default, "default"), surface.measure(default))
    searcher.tell(Proposal(Schedule.parse(best.text), "store"), surface.measure(best))
    searcher.ask(1)
    assert [choices_of(r.schedule) for r in searcher.ledger.fastest(1)] == [choices_of(best)]
    assert searcher.ledger.fastest(1)[0].schedule.trace


def test_bayesian_leaves_global_random_states_and_logging_alone():
    level = optuna.logging.get_verbosity()
    handlers = list(logging.getLogger().handlers)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002  # the global state is what is looked at
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    space, surface = separable(Random(2))
    played(BayesianSearcher(space, Random(1)), surface, 40)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002
    assert optuna.logging.get_verbosity() == level
    assert logging.getLogger().handlers == handlers


def test_bayesian_says_nothing(capfd):
    space, surface = separable(Random(2))
    played(BayesianSearcher(space, Random(1)), surface, 24)
    assert capfd.readouterr() == ("", "")


def test_bayesian_takes_failures_told_before_anything_ran():
    space = SurfaceSpace({"a": 5, "b": 5, "c": 5})
    searcher = BayesianSearcher(space, Random(0))
    for p in searcher.ask(20):
        searcher.tell(p, Measurement(Status.TIMED_OUT))
    assert len(searcher.ask(8)) == 8
