"""Replay gives back what was recorded, and a search on it does what it does on the device."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest
from recordings import GATED, KERNEL, recording_of, small_recording
from search_surface import SEARCHERS, Surface, SurfaceMeasurer, kernel, separable, trial_log

from benchmarks.recorded import (
    RecordedSpace,
    ReplayMeasurer,
    area,
    excess,
    play,
    score,
    trials_within,
)
from tunegrad.db import MEMORY, open_store
from tunegrad.errors import InternalError
from tunegrad.opts import DefaultChooser, Schedule
from tunegrad.search import KernelSearch, Measured, SearchTask, make_searcher
from tunegrad.trial import Status

RECORDING = small_recording()


def schedules(*texts: str) -> list[Schedule]:
    return [Schedule.parse(text) for text in texts]


def test_replay_gives_back_every_trial() -> None:
    measurer = ReplayMeasurer(RECORDING)
    for trial in RECORDING.trials:
        found = list(measurer.measure(KERNEL, schedules(trial.actions), math.inf, frozenset()))
        assert found == [Measured(trial.program_hash, trial.measurement)]


def test_replay_leaves_out_known_programs() -> None:
    a, b = RECORDING.trials[:2]
    measurer = ReplayMeasurer(RECORDING)
    found = list(
        measurer.measure(KERNEL, schedules(a.actions, b.actions, a.actions), 1.0, {b.program_hash})
    )
    assert found == [Measured(a.program_hash, a.measurement), None, None]


def test_replay_of_what_was_not_recorded_is_a_failure() -> None:
    (found,) = ReplayMeasurer(RECORDING).measure(KERNEL, schedules("unroll(axis=zz)"), 1.0, ())
    assert found is not None
    assert found.measurement.status is Status.COMPILE_ERROR
    assert found.measurement.error == "not recorded: unroll(axis=zz)"


def test_replay_of_another_kernel_is_a_bug() -> None:
    with pytest.raises(InternalError, match="the recording is of"):
        list(ReplayMeasurer(RECORDING).measure(kernel("other", 65), [], 1.0, ()))


def searched(space, measurer, name: str, steps: int) -> list[tuple[str, float]]:
    """What a kernel's search asked, and how far it was then."""
    store = open_store(MEMORY, "write")
    search = KernelSearch(
        SearchTask.of(KERNEL),
        space,
        make_searcher(name, space, Random("7")),
        measurer,
        trial_log(store),
    )
    found = []
    for _ in range(steps):
        step = search.step(4)
        found += [(r.proposal.schedule.text, step.after_s) for r in step.results]
    return found


@pytest.mark.parametrize("name", SEARCHERS)
def test_search_on_a_recording_is_the_search_on_the_device(name: str) -> None:
    space, surface = separable(Random(3), decisions=4, options=4)
    recording = recording_of(space, surface)
    live = searched(space, SurfaceMeasurer({KERNEL.name: surface}), name, 12)
    replayed = searched(RecordedSpace(recording), ReplayMeasurer(recording), name, 12)
    assert replayed == live
    assert len(live) > 30


@pytest.mark.parametrize("name", ["beam", "random"])
def test_play_takes_the_decisions_of_a_kernels_search(name: str) -> None:
    space, surface = separable(Random(5), decisions=4, options=4)
    recording = recording_of(space, surface)
    recorded, measurer = RecordedSpace(recording), ReplayMeasurer(recording)
    curve = play(make_searcher(name, recorded, Random("7")), recorded, measurer, 40, batch=4)
    asked = searched(recorded, measurer, name, 11)
    assert len(curve) == 41
    assert [curve[4 * i] for i in range(11)] == [
        asked[0][1],
        *(asked[4 * i][1] for i in range(1, 11)),
    ]


def test_play_ends_flat_when_nothing_is_left() -> None:
    recorded, measurer = RecordedSpace(RECORDING), ReplayMeasurer(RECORDING)
    curve = play(make_searcher("random", recorded, Random(0)), recorded, measurer, 500)
    assert len(curve) == 501
    assert curve[-1] == curve[-400] == RECORDING.best_s
    assert all(a >= b for a, b in pairwise(curve))


def test_play_gives_a_known_program_no_trial() -> None:
    merged = recording_of(
        GATED, Surface({("tile", 1): 0.5}, merged=frozenset({"order", "extra", "gate"}))
    )
    assert merged.programs == 5
    recorded, measurer = RecordedSpace(merged), ReplayMeasurer(merged)
    curve = play(make_searcher("random", recorded, Random(0)), recorded, measurer, 4)
    assert curve[-1] == merged.best_s


# ---- scores
# --------------------------------------------------------------------------------------------------


def test_excess_is_the_log_of_the_ratio_to_the_optimum() -> None:
    best = RECORDING.best_s
    assert excess([4 * best, 2 * best, best], RECORDING)[1:] == pytest.approx((math.log(2), 0.0))
    worst = RECORDING.times_s[-1]
    assert excess([math.inf], RECORDING) == pytest.approx((math.log(worst / best),))


def test_area_is_the_mean_after_the_default() -> None:
    assert area([9.0, 1.0, 0.5, 0.0]) == 0.5
    assert area([9.0]) == 0.0


def test_score_is_the_part_of_randoms_area_that_was_saved() -> None:
    assert score(0.1, 0.4) == 0.75
    assert score(0.4, 0.4) == 0.0
    assert score(0.8, 0.4) == -1.0
    assert score(0.0, 0.0) == 0.0
    assert score(0.1, 0.0) == -math.inf


def test_trials_within_counts_from_the_default() -> None:
    assert trials_within([0.5, 0.2, math.log(1.05), 0.0], 0.05) == 2
    assert trials_within([0.5, 0.2], 0.05) is None
    assert trials_within([0.0], 0.0) == 0


def test_default_is_the_start_of_a_curve() -> None:
    recorded, measurer = RecordedSpace(RECORDING), ReplayMeasurer(RECORDING)
    default = recorded.sample(DefaultChooser()).text
    row = next(t for t in RECORDING.trials if t.actions == default)
    assert (
        play(make_searcher("beam", recorded, Random(0)), recorded, measurer, 1)[0]
        == row.measurement.seconds
    )
