"""Bounds of sums with quotients: what is proved holds, and what copies need is proved."""

from __future__ import annotations

from itertools import product
from random import Random

from tests.verifiers.program import within
from tunegrad.ir.index import Index, Range, Valid, as_index, var
from tunegrad.ir.verify.races import below, condition_facts

EXTENTS = {"a": 5, "b": 4, "r": 3}


def values(index: Index, at: dict[str, int]) -> int:
    found = index.substitute({n: as_index(v) for n, v in at.items()})
    assert found.is_const
    return found.const


def every() -> list[dict[str, int]]:
    points = product(*map(range, EXTENTS.values()))
    return [dict(zip(EXTENTS, point, strict=True)) for point in points]


def test_prove_bounds_of_quotients_hold_for_all_values():
    rng, proved = Random(0), 0
    a, b, r = (var(n, e) for n, e in EXTENTS.items())
    for _ in range(400):
        q = a * rng.randint(1, 6) + b * rng.randint(1, 3) + r * rng.randint(5, 20)
        limit = rng.randint(5, 60)
        step = rng.randint(2, 9)
        index = (q // step) * rng.randint(1, 5) + (q % step) * rng.randint(0, 2) + rng.randint(0, 3)
        digit, least = q // step % rng.randint(2, 4) + b, rng.randint(0, 2)
        held = [Range(q, 0, limit), Range(digit, least, least + rng.randint(1, 3))]
        held = held[: rng.randint(1, 2)]
        facts = condition_facts(Valid(held))
        points = [p for p in every() if all(r.lo <= values(r.index, p) < r.hi for r in held)]
        most = max((values(index, p) for p in points), default=0)
        for bound in range(max(0, most - 2), most + 12):
            if below(index, bound, facts):
                proved += 1
                assert most < bound, (index, q, limit)
    assert proved > 1000


def test_prove_the_last_round_of_a_copy_stays_in_its_rows():
    """The digits of q, of 28 work-items in three rounds over 64 elements of 4 x 4 x 4."""
    q = var("i", 3) * 28 + var("a", 4) * 7 + var("b", 7)
    low = (q // 4 // 4) * 4 + q // 4 % 4
    assert not below(low, 17, ())
    assert below(low, 17, condition_facts(Valid((Range(q // 4 // 4, 0, 4),))))


def test_prove_a_quotient_by_its_digit_that_a_condition_bounds():
    """A copy of the gradient of a strided convolution: rows of 4 by 3 of them by 4 work-items."""
    q, c, r = var("q", 48), var("c", 2), var("r", 2)
    offset = (q % 4) * 6 + (q // 4) * 30 + var("a", 6) + c * 30 + r * 24 - 120
    held = (Range(q // 4 % 3 + c, 1, 4), Range(q % 4 + r * 4, 0, 5), Range(q, 12, 48))
    assert within(offset, 270, condition_facts(Valid(held)))
    assert not within(offset, 269, condition_facts(Valid(held)))
    for n in range(3):
        assert not within(offset, 270, condition_facts(Valid(held[:n] + held[n + 1 :])))


def test_prove_sums_of_multiples_are_rounded_to_them():
    """The last kernel of a scan over 21 elements in blocks of 8, two blocks a work-item."""
    a, b, r = var("a", 2), var("b", 2), var("r", 4)
    for least in range(1, 9):
        facts = condition_facts(Valid((Range(a * 16 + b * 8, least, 21),)))
        assert within(a * 2 + b - 1, 2, facts)
    assert not within(a * 2 + b - 1, 2, condition_facts(Valid((Range(a * 16 + b * 8, 0, 21),))))
    b = var("b", 8)
    facts = condition_facts(Valid((Range(a * 32 + b * 4 + r, 8, 70),)))
    assert below(1 - a * 8 - b, 0, facts)
    assert not below(2 - a * 8 - b, 0, facts)
