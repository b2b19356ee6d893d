"""A recorded space is the part of the space that was recorded: the same questions, the same
schedules, nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from recordings import GATED, recording_of, small_recording
from search_surface import Surface, SurfaceSpace

from benchmarks.recorded import RecordedSpace, conflicts
from benchmarks.recorded.points import decisions, points_of, settle_vary
from tunegrad.errors import IllegalAction
from tunegrad.opts import DefaultChooser, TraceChooser

SPACE = RecordedSpace(small_recording())
WIDE = SurfaceSpace({"a": 9, "b": 2, "c": 3})


def test_recorded_space_gives_the_schedule_of_every_combination() -> None:
    for values in product(*(range(n) for n in GATED.sizes.values())):
        chooser = TraceChooser(dict(zip(GATED.sizes, values, strict=True)))
        try:
            live = GATED.sample(chooser)
        except IllegalAction:
            with pytest.raises(IllegalAction, match="nothing was recorded for option 2"):
                SPACE.sample(chooser)
        else:
            assert SPACE.sample(chooser) == live


def test_recorded_space_asks_only_what_was_varied() -> None:
    space = RecordedSpace(recording_of(WIDE, Surface({}), {"a": 3, "c": 0}))
    trace = space.sample(DefaultChooser()).trace
    assert [(d.name, d.options, d.default) for d in trace] == [("a", 3, 0), ("c", 3, 0)]
    assert space.defaults() == (space.sample(DefaultChooser()),)
    assert space.defaults()[0].text == WIDE.defaults()[0].text


def test_recorded_space_without_its_default_starts_near_it() -> None:
    whole = small_recording()
    default = RecordedSpace(whole).defaults()[0].text
    cut = replace(whole, trials=tuple(t for t in whole.trials if t.actions != default))
    near = RecordedSpace(cut).defaults()[0]
    assert [d.choice for d in near.trace] == [0, 0, 1]
    assert not cut.complete
    assert whole.complete


def test_conflicting_trials_are_named() -> None:
    first, second, *rest = small_recording().trials
    doubled = (first, replace(second, paths=first.paths), *rest)
    assert [i for i, _ in conflicts(doubled)] == [1]
    again = (first, second, first)
    assert [why for _, why in conflicts(again)] == [
        f"the actions {first.actions!r} have a trial already"
    ]
    short = (first, replace(second, paths=(first.paths[0][:1],)))
    assert [i for i, _ in conflicts(short)] == [1]
    with pytest.raises(IllegalAction, match="trial 1"):
        RecordedSpace(replace(small_recording(), trials=doubled))


# ---- points
# --------------------------------------------------------------------------------------------------


def test_points_are_every_legal_combination_once() -> None:
    texts = [p.schedule.text for p in points_of(GATED, dict.fromkeys(GATED.sizes, 0))]
    legal = (5 * 3 - 1) * (1 + 3)  # gate 0, then gate 1 with three extras
    assert len(texts) == len(set(texts)) == legal


@pytest.mark.parametrize(
    ("count", "kept"),
    [(2, ("0", "8")), (3, ("0", "4", "8")), (4, ("0", "3", "5", "8")), (0, tuple("012345678"))],
)
def test_points_spread_over_the_options(count: int, kept: tuple[str, ...]) -> None:
    found = {p.answers[0][0].options for p in points_of(WIDE, {"a": count})}
    assert found == {tuple(map(int, kept))}


def test_vary_takes_every_decision_as_finely_as_fits() -> None:
    assert decisions(GATED) == ["gate", "tile", "order", "extra"] or set(decisions(GATED)) == set(
        GATED.sizes
    )
    assert settle_vary(GATED, {}, 1000) == dict.fromkeys(decisions(GATED), 64)
    assert set(settle_vary(GATED, {}, 20).values()) == {2}
