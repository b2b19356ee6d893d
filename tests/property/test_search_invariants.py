"""On any surface, whatever fails, repeats or dies: nothing twice, nothing lost, never slower than
the default.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_surface import Killed, Surface, SurfaceMeasurer, SurfaceSpace, kernel, trial_log

from tunegrad.db import open_store
from tunegrad.search import BeamSearcher, KernelSearch, RandomSearcher, SearchTask
from tunegrad.trial import Status

FAILURES = [s for s in Status if s is not Status.OK]
K = kernel("k")


@st.composite
def surfaces(draw):
    names = ["gate", "extra", "d0", "d1", "d2"][: draw(st.integers(1, 5))]
    sizes = {n: draw(st.integers(1, 5)) for n in names}
    points = [(n, c) for n in names for c in range(sizes[n])]
    factors = {p: draw(st.floats(0.3, 3.0)) for p in points}
    fails = draw(st.dictionaries(st.sampled_from(points), st.sampled_from(FAILURES), max_size=2))
    merged = frozenset(draw(st.lists(st.sampled_from(names), max_size=1)))
    clash = draw(st.lists(st.tuples(st.sampled_from(points), st.sampled_from(points)), max_size=3))
    illegal = tuple((a, b) for a, b in clash if a[1] and b[1])  # the default stays legal
    raw = tuple("xyz"[: draw(st.integers(0, 3))])
    return SurfaceSpace(sizes, illegal, raw), Surface(factors, fails=fails, merged=merged)


def start(case, cls, seed, store, session="s1", resumed=(), kill_after=1 << 30):
    space, surface = case
    measurer = SurfaceMeasurer({"k": surface}, kill_after=kill_after)
    log = trial_log(store, session, resumed)
    return KernelSearch(SearchTask.of(K), space, cls(space, Random(seed)), measurer, log), measurer


def play(search, batches, batch):
    for _ in range(batches):
        search.step(batch)


@pytest.mark.parametrize("cls", [BeamSearcher, RandomSearcher])
@settings(max_examples=25)
@given(case=surfaces(), seed=st.integers(0, 9), batch=st.integers(1, 9))
def test_search_measures_nothing_twice_and_is_never_slower_than_the_default(cls, case, seed, batch):
    with open_store(":memory:", "write") as store:
        search, measurer = start(case, cls, seed, store)
        play(search, 8, batch)
        rows = store.trials(K.key)
    texts = [text for _, text in measurer.calls]
    assert texts == [t.actions for t in rows]
    assert len(texts) == len(set(texts))
    programs = [t.program_hash for t in rows]
    assert len(programs) == len(set(programs))
    assert search.winner.seconds <= search.default_s
    assert search.winner.seconds == min(t.measurement.seconds for t in rows)


@pytest.mark.parametrize("cls", [BeamSearcher, RandomSearcher])
@settings(max_examples=25)
@given(case=surfaces(), seed=st.integers(0, 9), batch=st.integers(1, 9), data=st.data())
def test_search_killed_anywhere_ends_where_it_would_have(cls, case, seed, batch, data):
    with open_store(":memory:", "write") as store:
        whole, measurer = start(case, cls, seed, store)
        play(whole, 6, batch)
    k = data.draw(st.integers(0, len(measurer.calls) - 1))
    with open_store(":memory:", "write") as store:
        cut, before = start(case, cls, seed, store, kill_after=k)
        with pytest.raises(Killed):
            play(cut, 6, batch)
        again, after = start(case, cls, seed, store, "s2", {"s1"})
        play(again, 6, batch)
    assert before.calls + after.calls == measurer.calls
    assert again.winner.actions == whole.winner.actions
