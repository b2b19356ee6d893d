"""A challenger wins only when it is surely and noticeably faster; alike ones seldom replace what
stands.
"""

import math
from itertools import product
from random import Random

import pytest

from tunegrad.errors import InternalError
from tunegrad.paired import signed_rank_p
from tunegrad.search import decide, fastest_ratio


def noisy(rng: Random, seconds: float, n: int, spread: float = 0.03) -> list[float]:
    """Times as machines give them: a sharp lower edge, a tail, an outlier now and then."""
    return [
        seconds * (1.0 + spread * rng.expovariate(1.0) + (0.5 if rng.random() < 0.03 else 0.0))
        for _ in range(n)
    ]


def interleaved(
    rng: Random, a_s: float, b_s: float, n: int, drift: float = 0.0
) -> tuple[list[float], list[float]]:
    """Samples of both while the machine slows down by ``drift`` from the first to the last."""
    a, b = noisy(rng, a_s, n), noisy(rng, b_s, n)
    return [x * (1 + drift * i / n) for i, x in enumerate(a)], [
        x * (1 + drift * i / n) for i, x in enumerate(b)
    ]


@pytest.mark.parametrize("drift", [0.0, 0.1])
@pytest.mark.parametrize("n", [5, 15, 30])
def test_search_promote_alike_candidates_at_most_one_time_in_twenty(n, drift):
    rng = Random(n)
    wrong = sum(decide(*interleaved(rng, 1e-3, 1e-3, n, drift)).promoted for _ in range(600))
    assert wrong <= 0.05 * 600


def test_search_promote_a_clearly_faster_challenger_within_three_looks():
    rng = Random(0)
    right = 0
    for _ in range(100):
        a, b = interleaved(rng, 1e-3, 0.93e-3, 36)
        right += any(decide(a[:n], b[:n]).promoted for n in (12, 24, 36))
    assert right >= 95


def test_search_promote_never_a_slower_challenger():
    rng = Random(0)
    assert not any(decide(*interleaved(rng, 1e-3, 1.03e-3, 15)).promoted for _ in range(200))


def test_search_promote_keeps_the_incumbent_on_a_tie():
    found = decide([1e-3] * 10, [1e-3] * 10)
    assert (found.promoted, found.ratio, found.n) == (False, 1.0, 10)
    assert found.p_value >= 0.5


def test_search_promote_needs_a_per_cent_however_sure_it_is():
    stands = [1.0 + 1e-6 * i for i in range(30)]
    assert not decide(stands, [0.993 * x for x in stands]).promoted
    assert decide(stands, [0.988 * x for x in stands]).promoted


@pytest.mark.parametrize(("looks", "enough"), [(1, 5), (3, 6)])
def test_search_promote_needs_some_turns_the_more_the_more_looks_there_are(looks, enough):
    stands, challenger = [2.0 + i / 10 for i in range(12)], [1.0 + i / 9 for i in range(12)]
    assert not decide(stands[: enough - 1], challenger[: enough - 1], looks).promoted
    assert decide(stands[:enough], challenger[:enough], looks).promoted


def test_search_promote_sees_through_states_of_the_machine_that_meet_both():
    rng = Random(0)
    states = [rng.choice((1.0, 1.4, 2.0)) for _ in range(15)]
    stands = [s * x for s, x in zip(states, noisy(rng, 1e-3, 15), strict=True)]
    challenger = [s * x for s, x in zip(states, noisy(rng, 0.93e-3, 15), strict=True)]
    assert decide(stands, challenger).promoted
    assert not decide(challenger, stands).promoted


def test_search_promote_says_what_is_undecided():
    found = decide([1.0] * 6, [0.9, 0.9, 1.2, 0.9, 1.2, 0.9])
    assert (found.promoted, found.undecided) == (False, True)
    assert not decide([1.0] * 6, [1.1] * 6).undecided
    assert not decide([1.0] * 9, [0.9 + 0.01 * i for i in range(9)]).undecided, "proved"


def test_search_promote_is_not_fooled_by_one_lucky_sample():
    assert not decide([1.0] * 15, [1.0] * 14 + [0.1]).promoted


def test_search_promote_of_three_looks_at_equals_one_in_twenty_promotes_at_most():
    rng, wrong = Random(1), 0
    for _ in range(600):
        a, b = interleaved(rng, 1e-3, 1e-3, 36)
        wrong += any(decide(a[:n], b[:n]).promoted for n in (12, 24, 36))
    assert wrong <= 0.05 * 600


def test_search_promote_reports_the_ratio_within_turns_and_how_many_there_are():
    found = decide([2.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    assert (found.ratio, found.n, found.test) == (0.5, 3, "wilcoxon")


def test_search_promote_few_turns_are_told_by_the_fastest_of_each():
    assert fastest_ratio([2.0, 9.0, 2.2], [8.0, 1.0, 1.1]) == 0.5


def test_search_promote_refuses_samples_that_were_not_taken_in_turns():
    with pytest.raises(InternalError, match="2 standing and 3 challenger samples"):
        decide([1.0, 1.0], [1.0, 1.0, 1.0])


@pytest.mark.parametrize("bad", [[], [math.inf], [math.nan], [0.0], [-1.0]])
def test_search_promote_refuses_samples_that_are_no_times(bad):
    with pytest.raises(InternalError, match="challenger samples"):
        decide([1.0], bad)
    with pytest.raises(InternalError, match="standing samples"):
        decide(bad, [1.0])


@pytest.mark.parametrize(
    "differences",
    [
        [-3.0], [2.0, -1.0], [-1.0, -1.0, 2.0], [0.0, -1.0, -2.0, 3.0, -4.0],
        [1.0, -1.0, 1.0, -1.0, 2.0, -2.0, -2.0],
        [-0.1, -0.2, -0.3, -0.3, 0.1, -0.5, -0.6, 0.0, -0.2],
    ],
)  # fmt: skip
def test_search_promote_counts_every_choice_of_signs(differences: list[float]) -> None:
    """The probability is the share of choices whose positive ranks sum to as little; equal sizes
    share the mean of their ranks.
    """
    taken = [d for d in differences if d]
    in_order = sorted(abs(d) for d in taken)
    ranks = [
        sum(i for i, x in enumerate(in_order, 1) if x == abs(d)) / in_order.count(abs(d))
        for d in taken
    ]
    found = sum(r for r, d in zip(ranks, taken, strict=True) if d > 0)
    sums = [
        sum(r for r, up in zip(ranks, signs, strict=True) if up)
        for signs in product((False, True), repeat=len(ranks))
    ]
    assert signed_rank_p(differences) == sum(x <= found for x in sums) / len(sums)


def test_search_promote_is_sure_of_nothing_where_nothing_differs() -> None:
    assert signed_rank_p([]) == signed_rank_p([0.0, 0.0]) == 1.0
