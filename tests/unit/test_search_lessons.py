"""Rows of other kernels: a cost model knows something before it has a row of its own, which then
count for more.
"""

import math
from random import Random
from statistics import fmean

from search_surface import Surface, SurfaceSpace, choices_of

from tunegrad.errors import IllegalAction
from tunegrad.search import (
    CostModel,
    EvolutionarySearcher,
    Lessons,
    PortfolioSearcher,
    Proposal,
    ScheduleFeatures,
)

TAUGHT = Lessons(
    tuple({"@x": float(i % 10), "@y": float(i)} for i in range(60)),
    tuple(0.1 * (i % 10) for i in range(60)),
)
"""The larger x, the slower."""


def x_only(values):
    return [{"@x": float(x), "@y": 7.0} for x in values]


def test_lessons_rank_without_a_row_of_their_own():
    model = CostModel(0, lessons=TAUGHT)
    model.fit([], [])
    low, middle, high = model.predict(x_only((0, 5, 9)))
    assert low < middle < high


def test_lessons_give_way_to_the_kernels_own_rows():
    model = CostModel(0, lessons=TAUGHT)
    model.fit(x_only([i % 10 for i in range(90)]), [-0.1 * (i % 10) for i in range(90)])
    low, high = model.predict(x_only((0, 9)))
    assert low > high


def test_lessons_of_failures_are_to_be_avoided():
    taught = Lessons(
        tuple({"@x": float(i % 2)} for i in range(60)),
        tuple(math.inf if i % 2 else 0.0 for i in range(60)),
    )
    model = CostModel(0, lessons=taught)
    model.fit([], [])
    ran, failed = model.predict([{"@x": 0.0}, {"@x": 1.0}])
    assert ran < failed


def test_facts_are_worked_out_once_and_no_decision_has_their_names():
    space, asked = SurfaceSpace({"x": 3}), []
    facts = ScheduleFeatures(lambda s: asked.append(s.text) or {"x": 0.5})
    schedule = space.defaults()[0]
    assert facts.of(schedule) == facts.of(schedule) == {"@x": 0.5, "x": 0}
    assert asked == [schedule.text]


def test_facts_of_a_schedule_without_any_are_its_decisions():
    def none(_):
        raise IllegalAction("it has none")

    space = SurfaceSpace({"x": 3})
    assert (
        ScheduleFeatures(none).of(space.defaults()[0])
        == ScheduleFeatures().of(space.defaults()[0])
        == {"x": 0}
    )


def test_portfolio_hands_lessons_to_its_evolutionary_search():
    portfolio = PortfolioSearcher(
        SurfaceSpace({"x": 3}), Random(0), features=lambda _: {"x": 0.5}, lessons=TAUGHT
    )
    assert portfolio.searchers["evolutionary"]._facts_model.lessons is TAUGHT


def test_evolution_with_lessons_of_another_kernel_is_faster_early():
    """Two kernels whose time follows from the same fact; the second has other decisions that lead
    to it.
    """
    sizes = {f"d{i}": 6 for i in range(6)}
    space = SurfaceSpace(sizes)
    hidden = {(name, c): Random(f"{name}{c}").uniform(0.0, 1.0) for name in sizes for c in range(6)}
    surface = Surface({point: math.exp(h) for point, h in hidden.items()})

    def features(schedule):
        return {"slow": sum(hidden[c] for c in choices_of(schedule).items())}

    rng = Random(1)
    slow = [rng.uniform(0.0, 6.0) for _ in range(200)]
    lessons = Lessons(tuple({"@slow": s} for s in slow), tuple(slow))

    def early(lessons):
        found = []
        for seed in range(4):
            searcher = EvolutionarySearcher(space, Random(seed), features=features, lessons=lessons)
            default = space.defaults()[0]
            searcher.tell(Proposal(default, "default"), surface.measure(default))
            for _ in range(4):
                for p in searcher.ask(8):
                    searcher.tell(p, surface.measure(p.schedule))
                    found.append(math.log(surface.seconds(p.schedule)))
        return fmean(found)

    assert early(lessons) < early(None) - 0.1
