"""A contest of variants goes on while one is ahead and not proved to be, and no longer."""

import math

import numpy as np
import pytest

from tunegrad.tuning import variants
from tunegrad.tuning.rivals import Group
from tunegrad.tuning.variants import _fastest, _sampled

OTHERS = [2.0, 1.0, 1.95, 1.0, 1.1, 1.9, 2.1, 1.05, 1.1, 2.05, 1.9, 0.95]
NOISY = [1.0, 2.0, 1.1, 1.9, 1.05, 2.1, 0.95, 2.05, 1.0, 1.9, 1.1, 2.0]
GROUP = Group(("k",), ("winograd2", "direct"))


class Contest:
    """Hands out scripted samples; ``calls`` counts how often it was asked."""

    def __init__(self, rounds):
        self.rounds, self.calls, self.groups = rounds, 0, [GROUP]

    def samples(self):
        direct, winograd = self.rounds[min(self.calls, len(self.rounds) - 1)]
        self.calls += 1
        return {"k": {"direct": list(direct), "winograd2": list(winograd)}}


class Rows:
    def __init__(self):
        self.promoted = []

    def challenged(self, text, variant, evidence, promoted):
        self.promoted.append(promoted)

    def stands(self, text, actions, policy, samples, test):
        self.promoted.append(test)


def test_noise_is_sampled_again_until_the_variant_is_proved_faster():
    slower = [1.12 * x for x in OTHERS]
    contest = Contest([(slower, NOISY), ([2.0] * 12, [1.0] * 12)])
    samples = _sampled(contest, math.inf)
    assert contest.calls == 2
    assert len(samples["k"]["direct"]) == len(samples["k"]["winograd2"]) == 24
    rows = Rows()
    assert _fastest(GROUP, samples, {"k": ""}, rows) == "winograd2"
    assert rows.promoted == [True]


def test_what_is_never_proved_stays_direct_after_a_number_of_rounds():
    contest = Contest([([1.01 * x for x in OTHERS], NOISY)])
    samples = _sampled(contest, math.inf)
    assert contest.calls == 1 + variants._AGAIN
    assert _fastest(GROUP, samples, {"k": ""}, Rows()) == "direct"


@pytest.mark.parametrize("ratio", [2.0, 1.001, 0.5])
def test_what_is_clear_is_sampled_once(ratio):
    contest = Contest([([ratio] * 12, [1.0] * 12)])
    _sampled(contest, math.inf)
    assert contest.calls == 1


def test_without_time_the_first_samples_stand():
    contest = Contest([([1.12 * x for x in OTHERS], NOISY)])
    _sampled(contest, 0.0)
    assert contest.calls == 1


def test_a_variant_as_fast_as_the_direct_one_is_rarely_promoted():
    rng = np.random.default_rng(0)
    promoted = 0
    for _ in range(200):
        contest = Contest([rng.lognormal(0.0, 0.1, (2, 12)) for _ in range(1 + variants._AGAIN)])
        rows = Rows()
        _fastest(GROUP, _sampled(contest, math.inf), {"k": ""}, rows)
        promoted += rows.promoted[0]
    assert promoted <= 10


def test_without_a_direct_kernel_that_runs_the_fastest_variant_stands():
    group = Group(("k",), ("winograd4", "winograd2"), direct_ran=False)
    rows = Rows()
    samples = {"k": {"winograd4": [2.0] * 12, "winograd2": [1.0] * 12}}
    assert _fastest(group, samples, {"k": ""}, rows) == "winograd2"
    assert rows.promoted == ["alone"]
