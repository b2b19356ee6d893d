"""A printed gain lies in its interval: both are of the same turns."""

from __future__ import annotations

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from tunegrad.paired import gain_interval, paired_gain
from tunegrad.reports import LookupRow, RunReport

SECONDS = st.lists(st.tuples(st.floats(1e-5, 1e-2), st.floats(1e-5, 1e-2)), min_size=6, max_size=40)

ROWS = (LookupRow("k", "0", 1, "hit"),)


@given(SECONDS)
def test_gain_lies_in_its_interval(turns: list[tuple[float, float]]) -> None:
    default_s, stored_s = (list(side) for side in zip(*turns, strict=True))
    interval, by_turns = gain_interval(default_s, stored_s), paired_gain(default_s, stored_s)
    report = RunReport(
        "m", "cpu", 1, "s.db", 1e3 * median(stored_s), 1e3 * median(default_s), len(turns), ROWS,
        interval=interval, by_turns=by_turns,
    )  # fmt: skip
    assert report.gain is not None
    assert interval is not None
    assert interval[0] <= report.gain <= interval[1]
