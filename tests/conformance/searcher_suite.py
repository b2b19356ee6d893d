"""What every searcher must do, as one test class.

Subclass it, give it a ``make``: it runs against that searcher.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest
from search_surface import Surface, SurfaceSpace, choices_of, separable

from tunegrad.opts import DefaultChooser, Schedule
from tunegrad.search import Proposal, Searcher, SearchSpace
from tunegrad.trial import Measurement, Status

Make = Callable[[SearchSpace, Random], Searcher]
SMALL = SurfaceSpace({"a": 3, "b": 2})
CLASHING = SurfaceSpace({"a": 4, "b": 4}, illegal=((("a", 1), ("b", 1)), (("a", 2), ("b", 3))))


def ok(seconds: float) -> Measurement:
    return Measurement(Status.OK, (seconds,))


def seed(space: SurfaceSpace) -> Proposal:
    return Proposal(space.sample(DefaultChooser()), "default")


def play(
    searcher: Searcher, space: SurfaceSpace, surface: Surface, trials: int, batch: int = 4
) -> list[str]:
    """Tell the default, then ask and tell; the texts that were proposed, in order."""
    default = seed(space)
    searcher.tell(default, surface.measure(default.schedule))
    texts: list[str] = []
    while len(texts) < trials and (found := searcher.ask(batch)):
        for proposal in found:
            texts.append(proposal.schedule.text)
            searcher.tell(proposal, surface.measure(proposal.schedule))
    return texts


class SearcherSuite:
    """The contract of ``tunegrad.search.Searcher``."""

    @pytest.fixture
    def make(self) -> Make:
        raise NotImplementedError

    def test_searcher_never_proposes_a_text_twice(self, make):
        space, surface = separable(Random(1), decisions=5, options=4)
        texts = play(make(space, Random(0)), space, surface, 300)
        assert len(texts) == len(set(texts)) >= 300

    def test_searcher_never_proposes_what_was_told(self, make):
        searcher = make(SMALL, Random(0))
        told = [SMALL.sample(_Fixed(a, b)) for a in range(3) for b in range(2)][:4]
        for schedule in told:
            searcher.tell(Proposal(schedule, "seed"), ok(1.0))
        found = {p.schedule.text for p in searcher.ask(10)}
        assert len(found) == 2
        assert not found & {s.text for s in told}

    def test_searcher_never_repeats_a_told_text_without_a_trace(self, make):
        searcher = make(SMALL, Random(0))
        stored = Schedule.parse(SMALL.sample(_Fixed(2, 1)).text)
        assert not stored.trace
        searcher.tell(Proposal(stored, "store"), ok(0.5))
        assert stored.text not in {p.schedule.text for p in searcher.ask(10)}

    def test_searcher_covers_a_small_space_and_is_done(self, make):
        searcher = make(SMALL, Random(0))
        texts = play(searcher, SMALL, Surface({}), 100)
        assert len(texts) == 5
        assert searcher.done

    def test_searcher_is_not_done_before_it_was_asked(self, make):
        assert not make(SMALL, Random(0)).done

    def test_searcher_asks_without_being_told_anything(self, make):
        assert len(make(SMALL, Random(0)).ask(4)) == 4

    def test_searcher_gives_no_more_than_asked(self, make):
        space, surface = separable(Random(1))
        searcher = make(space, Random(0))
        searcher.tell(seed(space), surface.measure(seed(space).schedule))
        assert [len(searcher.ask(n)) for n in (0, 1, 7)] == [0, 1, 7]

    def test_searcher_asked_for_nothing_is_not_done(self, make):
        searcher = make(SMALL, Random(0))
        searcher.ask(0)
        assert not searcher.done

    def test_searcher_skips_and_counts_illegal_samples(self, make):
        searcher = make(CLASHING, Random(0))
        texts = play(searcher, CLASHING, Surface({}), 100)
        assert len(texts) == 13  # 16, less two illegal ones and the default
        assert searcher.skipped > 0

    def test_searcher_survives_a_space_with_nothing_legal(self, make):
        space = SurfaceSpace(
            {"a": 2, "b": 2}, illegal=tuple((("a", i), ("b", j)) for i in (0, 1) for j in (0, 1))
        )
        searcher = make(space, Random(0))
        assert searcher.ask(3) == []
        assert searcher.done
        assert searcher.skipped > 0

    @pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
    def test_searcher_goes_on_after_failures_of_every_kind(self, make, status):
        space, surface = separable(Random(2), decisions=4, options=4)
        fails = {("d0", c): status for c in range(1, 4)}
        texts = play(make(space, Random(0)), space, Surface(surface.factors, fails=fails), 60)
        assert len(texts) >= 60
        assert any("d0, size=1" in t for t in texts)

    def test_searcher_goes_on_when_everything_fails(self, make):
        space = SurfaceSpace({"a": 5, "b": 5, "c": 5})
        surface = Surface({}, fails={("a", c): Status.CRASHED for c in range(5)})
        assert len(play(make(space, Random(0)), space, surface, 50)) >= 50

    def test_searcher_goes_on_when_asks_are_not_told(self, make):
        space, surface = separable(Random(1))
        searcher = make(space, Random(0))
        searcher.tell(seed(space), surface.measure(seed(space).schedule))
        texts = [p.schedule.text for _ in range(10) for p in searcher.ask(5)]
        assert len(set(texts)) == 50

    def test_searcher_same_seed_and_tells_give_same_asks(self, make):
        space, surface = separable(Random(3))
        runs = [play(make(space, Random(7)), space, surface, 120) for _ in range(2)]
        assert runs[0] == runs[1]

    def test_searcher_other_seed_gives_other_asks(self, make):
        space, surface = separable(Random(3))
        assert play(make(space, Random(7)), space, surface, 40) != play(
            make(space, Random(8)), space, surface, 40
        )

    def test_searcher_telling_again_changes_nothing(self, make):
        space, surface = separable(Random(3))
        asked = []
        for again in (False, True):
            searcher = make(space, Random(7))
            for _ in range(1 + again):
                searcher.tell(seed(space), surface.measure(seed(space).schedule))
            first = searcher.ask(6)
            for p in first:
                for _ in range(1 + again):
                    searcher.tell(p, surface.measure(p.schedule))
            asked.append([p.schedule.text for p in (*first, *searcher.ask(20))])
        assert asked[0] == asked[1]

    def test_searcher_accepts_conditional_decisions(self, make):
        space = SurfaceSpace({"gate": 2, "extra": 4, "last": 3})
        surface = Surface({("gate", 1): 0.9, ("extra", 3): 0.1})
        texts = play(make(space, Random(0)), space, surface, 100)
        assert len(texts) == 4 * 3 + 3 - 1  # gate=1, gate=0, less the default

    def test_searcher_names_itself_in_its_proposals(self, make):
        searcher = make(SMALL, Random(0))
        # A searcher made of others says which of them it was: portfolio:beam.
        assert {p.origin.partition(":")[0] for p in searcher.ask(3)} == {type(searcher).origin}

    def test_searcher_takes_infinite_or_zero_times(self, make):
        searcher = make(SMALL, Random(0))
        for proposal, seconds in zip(searcher.ask(3), (0.0, math.inf, 1e-3), strict=True):
            searcher.tell(proposal, ok(seconds))
        rest = searcher.ask(10)
        for proposal in rest:
            searcher.tell(proposal, ok(0.0))
        assert len(rest) == 3

    def test_searcher_gets_faster_than_the_default(self, make):
        space, surface = separable(Random(5))
        texts = play(make(space, Random(0)), space, surface, 60)
        assert min(surface.seconds(Schedule.parse(t)) for t in texts) < surface.seconds(
            seed(space).schedule
        )
        assert all(choices_of(Schedule.parse(t)).keys() <= space.sizes.keys() for t in texts)


class _Fixed:
    """Takes the given choices in order."""

    def __init__(self, *choices: int) -> None:
        self.choices = list(choices)

    def choose(self, name: str, options: object, default: int) -> int:
        return self.choices.pop(0)
