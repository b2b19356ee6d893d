"""Exhaustive search: everything once, fewest changes first, and what counts as small."""

from itertools import product
from random import Random

from search_surface import SurfaceSpace, choices_of

from tunegrad.search import ExhaustiveSearcher
from tunegrad.search.searchers.exhaustive import decision_lists

BOX = SurfaceSpace({"a": 3, "b": 2, "c": 4})


def listed(space):
    return [tuple(choices_of(s).values()) for s in decision_lists(space) if s is not None]


def test_exhaustive_lists_every_combination_once():
    found = listed(BOX)
    assert sorted(found) == sorted(product(range(3), range(2), range(4)))


def test_exhaustive_lists_fewest_changes_of_the_default_first():
    changes = [sum(c != 0 for c in choices) for choices in listed(BOX)]
    assert changes == sorted(changes)
    assert changes[0] == 0


def test_exhaustive_keeps_to_the_order_of_decisions_and_options():
    assert listed(SurfaceSpace({"a": 3, "b": 2})) == [
        (0, 0),
        (1, 0),
        (2, 0),
        (0, 1),
        (1, 1),
        (2, 1),
    ]


def test_exhaustive_finds_decisions_that_only_some_answers_ask():
    space = SurfaceSpace({"gate": 2, "extra": 3, "last": 2})
    assert sorted(listed(space)) == sorted(
        [(0, 0), (0, 1), *((1, e, last) for e in range(3) for last in range(2))]
    )


def test_exhaustive_goes_round_a_default_that_is_not_legal():
    space = SurfaceSpace({"a": 3, "b": 3}, illegal=((("a", 0), ("b", 0)), (("a", 1), ("b", 2))))
    assert sorted(listed(space)) == sorted({*product(range(3), range(3))} - {(0, 0), (1, 2)})
    assert sum(s is None for s in decision_lists(space)) == 2


def test_exhaustive_is_done_when_it_is_through():
    searcher = ExhaustiveSearcher(BOX, Random(0))
    assert len(searcher.ask(24)) == 24
    assert not searcher.done
    assert searcher.ask(1) == []
    assert searcher.done
