"""The decisions of a stored text are found again where the space can print it."""

from random import Random

from search_surface import SurfaceSpace

from tunegrad.opts import Schedule
from tunegrad.search import RandomChooser
from tunegrad.search.searchers.ledger import retrace


def test_search_retrace_finds_the_decisions_of_a_text():
    space = SurfaceSpace({f"d{i}": 6 for i in range(6)})
    for seed in range(20):
        drawn = space.sample(RandomChooser(Random(seed)))
        assert retrace(space, Schedule.parse(drawn.text)) == drawn


def test_search_retrace_finds_decisions_that_others_open():
    space = SurfaceSpace({"gate": 2, "extra": 4, "last": 3})
    wanted = Schedule.parse(
        "tile(axis=gate, size=2) tile(axis=extra, size=3) tile(axis=last, size=2)"
    )
    found = retrace(space, wanted)
    assert found is not None
    assert [(d.name, d.choice) for d in found.trace] == [("gate", 1), ("extra", 2), ("last", 1)]


def test_search_retrace_gives_up_on_a_text_that_no_sample_prints():
    space = SurfaceSpace({"d0": 6, "d1": 6})
    assert retrace(space, Schedule.parse("tile(axis=d0, size=2) unroll(axis=d1)")) is None


def test_search_retrace_draws_no_more_than_it_may():
    class Counting(SurfaceSpace):
        def sample(self, chooser):
            draws.append(chooser)
            return super().sample(chooser)

    draws = []
    space = Counting({f"d{i}": 50 for i in range(9)})
    assert retrace(space, Schedule.parse("tile(axis=d8, size=49)"), samples=30) is None
    assert len(draws) == 31
