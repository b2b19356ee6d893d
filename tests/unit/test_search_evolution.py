"""What evolutionary search does beyond the contract: its model ranks, and it goes without one."""

from random import Random
from statistics import fmean

import pytest
from search_landscapes import area, landscape
from search_surface import Surface, SurfaceSpace, failing, played

from tunegrad.errors import IllegalAction
from tunegrad.opts import TraceChooser
from tunegrad.search import (
    EvolutionarySearcher,
    Proposal,
    RandomChooser,
    RandomSearcher,
)
from tunegrad.search.searchers import evolution
from tunegrad.trial import Status


def test_evolution_learns_which_options_fail():
    space, surface = failing()
    asked = played(EvolutionarySearcher(space, Random(1)), surface, 96)
    failed = [surface.measure(s).status is not Status.OK for s in asked]
    assert sum(failed[:16]) >= 4
    assert sum(failed[-32:]) <= 8  # 21 at random


def test_evolution_without_a_model_still_beats_random():
    mine = fmean(
        area(lambda sp, r: EvolutionarySearcher(sp, r, learned=False), s, s, 48) for s in range(9)
    )
    theirs = fmean(area(RandomSearcher, s, s, 48) for s in range(9))
    assert mine < theirs


def test_evolution_with_a_model_is_better_than_without():
    with_model = fmean(area(EvolutionarySearcher, s, s, 48) for s in range(9))
    without = fmean(
        area(lambda sp, r: EvolutionarySearcher(sp, r, learned=False), s, s, 48) for s in range(9)
    )
    assert with_model < without


@pytest.mark.parametrize("seed", range(3))
def test_evolution_crosses_and_mutates_within_the_options(seed):
    space, surface = landscape(seed)
    searcher = EvolutionarySearcher(space, Random(seed))
    for _ in range(20):
        try:
            drawn = space.sample(RandomChooser(Random(seed)))
        except IllegalAction:
            continue
        searcher.tell(Proposal(drawn, "seed"), surface.measure(drawn))
    for schedule in played(searcher, surface, 48):
        assert all(0 <= d.choice < d.options for d in schedule.trace)


def test_evolution_says_how_far_behind_others_schedules_are_once_it_is_sure():
    space = SurfaceSpace({"a": 4, "b": 6, "c": 6})
    surface = Surface({("a", 3): 10.0})
    searcher, drawn = EvolutionarySearcher(space, Random(0)), RandomSearcher(space, Random(1))
    slow, fast = (space.sample(TraceChooser({"a": a, "b": 5, "c": 5})) for a in (3, 1))

    def tell(count):
        for p in drawn.ask(count):
            searcher.tell(p, surface.measure(p.schedule))
        searcher.ask(1)  # learns

    tell(evolution._SURE - 4)
    assert searcher.behind([slow, fast]) == [0.0, 0.0]
    tell(32)
    behind = searcher.behind([slow, fast])
    assert behind[0] > 1.5
    assert abs(behind[1]) < 0.5
