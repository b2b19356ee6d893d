"""How soon the sum of the best kernel times was near its final value, told from rows."""

from __future__ import annotations

from search_surface import MACHINE, kernel

from tunegrad.trial import Measurement, Policy, Status, Trial
from tunegrad.tuning.report import near_s

K = kernel("k")


def row(at_s: float, ms: float | None, session: str = "mine") -> Trial:
    found = Measurement(Status.CRASHED) if ms is None else Measurement(Status.OK, (1e-3 * ms,))
    return Trial(
        K.key, K.text, MACHINE, f"{at_s}", "", 1, Policy(), found, session, "beam", 1000.0 + at_s
    )


def test_pace_is_the_moment_the_weighted_sum_was_within_five_per_cent() -> None:
    heavy = (10, [row(1, 2.0), row(5, 1.0), row(20, 0.99)])
    light = (1, [row(2, 4.0), row(3, None), row(9, 1.0), row(30, 0.9)])
    # In the end 10.8 ms; after 5 s it is 14, after 9 s 11, which is within 5 %.
    assert near_s([heavy, light], "mine", 1000.0) == 9.0


def test_pace_of_what_was_known_before_is_zero() -> None:
    assert near_s([(3, [row(-500, 1.0, "earlier"), row(40, 0.98)])], "mine", 1000.0) == 0.0
    assert near_s([(3, [row(-500, 1.0, "earlier"), row(40, 0.5)])], "mine", 1000.0) == 40.0


def test_pace_leaves_out_kernels_that_never_ran_and_is_none_where_none_did() -> None:
    assert near_s([(1, [row(4, 1.0)]), (9, [row(7, None)])], "mine", 1000.0) == 4.0
    assert near_s([(1, [row(7, None)]), (1, [])], "mine", 1000.0) is None
