"""Seeds are measured once, right after the defaults, under their own origin, and again by their
rows on resuming.
"""

from __future__ import annotations

from typing import Any

import pytest
from search_surface import SPACE, SURFACE, Killed, ModelCase

from tunegrad.events import CandidateMeasured
from tunegrad.opts import Schedule, TraceChooser
from tunegrad.search import BeamSearcher, RandomSearcher, StopRule

SEEDS = tuple(SPACE.sample(TraceChooser({"d0": c, "d1": 5})) for c in (1, 2, 3))


class Case(ModelCase):
    """Two kernels, of which the first one has seeds."""

    def __init__(self, seeds: tuple[Schedule, ...] = SEEDS, **more: Any) -> None:
        self.asked = 0

        def lend() -> tuple[Schedule, ...]:
            self.asked += 1
            return seeds

        super().__init__({"a": SURFACE, "b": SURFACE}, 20.0, seeds={"a": lend}, **more)

    @property
    def origins(self) -> list[tuple[str, str]]:
        return [(e.kernel, e.origin) for e in self.events if isinstance(e, CandidateMeasured)]


def test_seeds_come_right_after_the_defaults_of_all_kernels() -> None:
    case = Case().run()
    assert sorted(case.origins[:2]) == [("a", "default"), ("b", "default")]
    assert case.origins[2:5] == [("a", "seed")] * 3
    assert ("a", "seed") not in case.origins[5:]
    assert case.asked == 1
    assert [t.actions for t in case.model.searches[0].trials if t.origin == "seed"] == [
        s.text for s in SEEDS
    ]


def test_best_seed_is_known_apart_from_the_best_of_all() -> None:
    case = Case().run()
    a, b = case.model.searches
    assert a.seed_s == min(SURFACE.seconds(s) for s in SEEDS)
    assert a.best_s < a.seed_s
    assert b.seed_s == float("inf")


def test_seed_that_is_the_default_is_no_trial_of_its_own() -> None:
    case = Case((SPACE.defaults()[0], *SEEDS[:1])).run()
    assert case.origins.count(("a", "seed")) == 1
    assert case.origins.count(("a", "default")) == 1


@pytest.mark.parametrize("cls", [BeamSearcher, RandomSearcher])
def test_searcher_hears_of_seeds_and_proposes_none_of_them(cls: type) -> None:
    case = Case(cls=cls).run()
    texts = [text for name, text in case.measurer.calls if name == "a"]
    assert len(texts) == len(set(texts)) > 20


def test_seeds_count_as_candidates() -> None:
    case = Case(rule=StopRule(trials=4)).run()
    assert sorted(case.origins) == [
        ("a", "default"),
        ("a", "seed"),
        ("a", "seed"),
        ("b", "default"),
    ]


def test_seeded_search_killed_at_any_point_resumes_to_the_undisturbed_end() -> None:
    whole = Case(rule=StopRule(patience=40)).run()
    order = whole.measurer.calls
    for k in (1, 2, 3, 4, 5, 20, len(order) - 1):
        cut = Case(rule=StopRule(patience=40), kill_after=k)
        with pytest.raises(Killed):
            cut.run()
        again = Case(
            rule=StopRule(patience=40), store=cut.store, session="s2", resumed={"s1"}
        ).run()
        assert again.measurer.calls == order[k:]
        assert again.model.searches[0].seed_s == whole.model.searches[0].seed_s
