"""A search by any searcher that is killed and started again ends where it would have, and measures
nothing twice.
"""

from random import Random

import pytest
from search_landscapes import landscape
from search_surface import SEARCHERS, Killed, SurfaceMeasurer, kernel, trial_log

from tunegrad.db import open_store
from tunegrad.search import KernelSearch, SearchTask, make_searcher

K = kernel("k")


def start(name, store, session, resumed=(), kill_after=1 << 30):
    space, surface = landscape(2)  # some schedules fail, some are not legal
    measurer = SurfaceMeasurer({"k": surface}, kill_after=kill_after)
    searcher = make_searcher(name, space, Random(3))
    return KernelSearch(
        SearchTask.of(K), space, searcher, measurer, trial_log(store, session, resumed)
    ), measurer


def play(search):
    for _ in range(7):
        search.step(6)


@pytest.mark.parametrize("name", SEARCHERS)
def test_search_killed_and_resumed_ends_where_it_would_have(name):
    with open_store(":memory:", "write") as store:
        whole, measurer = start(name, store, "s1")
        play(whole)
    with open_store(":memory:", "write") as store:
        cut, before = start(name, store, "s1", kill_after=21)
        with pytest.raises(Killed):
            play(cut)
        again, after = start(name, store, "s2", {"s1"})
        play(again)
    assert before.calls + after.calls == measurer.calls
    assert again.winner.actions == whole.winner.actions


@pytest.mark.parametrize("name", SEARCHERS)
def test_search_started_on_anothers_rows_measures_none_of_them_again(name):
    with open_store(":memory:", "write") as store:
        first, before = start("random", store, "s1")
        play(first)
        second, after = start(name, store, "s2")
        play(second)
    assert not set(before.calls) & set(after.calls)
    assert second.winner.seconds <= first.winner.seconds
