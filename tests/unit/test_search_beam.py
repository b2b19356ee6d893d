"""What beam search does beyond the contract: it climbs, learns, extends and comes loose."""

import math
from random import Random
from statistics import median

from search_surface import Surface, SurfaceSpace, choices_of, separable

from tunegrad.opts import Schedule
from tunegrad.search import BeamSearcher, Proposal, RandomSearcher
from tunegrad.trial import Measurement, Status


def trials_to(searcher, space, surface, target_s, most):
    """How many trials it takes to get to ``target_s``; ``most`` + 1 where it never does."""
    default = space.defaults()[0]
    searcher.tell(Proposal(default, "default"), surface.measure(default))
    done = 0
    while done < most and (found := searcher.ask(8)):
        for p in found:
            done += 1
            searcher.tell(p, surface.measure(p.schedule))
            if surface.seconds(p.schedule) <= target_s * (1 + 1e-9):
                return done
    return most + 1


def optimum(space, surface):
    best = (min(surface.factors.get((d, c), 1.0) for c in range(n)) for d, n in space.sizes.items())
    return surface.base_s * math.prod(best)


def told(searcher, schedule, seconds, origin="seed"):
    searcher.tell(Proposal(schedule, origin), Measurement(Status.OK, (seconds,)))


def test_search_beam_finds_a_planted_optimum_in_fewer_trials_than_random():
    beam, random = [], []
    for seed in range(21):
        space, surface = separable(Random(seed), decisions=5, options=5)  # 3125 schedules
        target = optimum(space, surface)
        beam.append(trials_to(BeamSearcher(space, Random(seed)), space, surface, target, 2000))
        random.append(trials_to(RandomSearcher(space, Random(seed)), space, surface, target, 2000))
    assert max(beam) <= 400
    assert 5 * median(beam) < median(random)


def test_search_beam_gets_out_of_a_local_optimum():
    # No single change and no pair of changes of the default helps: three decisions have to move
    # together.
    space = SurfaceSpace({f"d{i}": 3 for i in range(3)})

    class Trap(Surface):
        def seconds(self, schedule):
            moved = [c for c in choices_of(schedule).values() if c]
            return 1e-4 if moved == [2, 2, 2] else 1e-3 * (1 + len(moved))

    for seed in range(5):
        assert trials_to(BeamSearcher(space, Random(seed)), space, Trap({}), 1e-4, 30) <= 26


def test_search_beam_prefers_the_decision_that_paid_off():
    space = SurfaceSpace({f"d{i}": 12 for i in range(6)})
    surface = Surface({("d3", c): 1.0 - 0.07 * c for c in range(12)})
    best_s = optimum(space, surface)
    for seed in range(5):  # 59 to 71 where it does not learn which decisions paid off
        searcher = BeamSearcher(space, Random(seed), explore=0.0, append=0.0)
        assert trials_to(searcher, space, surface, best_s, 66) <= 48


def test_search_beam_tries_nearby_options_first():
    space = SurfaceSpace({"d0": 30})
    searcher = BeamSearcher(space, Random(0), explore=0.0, append=0.0)
    told(searcher, space.defaults()[0], 1.0)
    first = [choices_of(p.schedule)["d0"] for p in searcher.ask(8)]
    assert sorted(first)[:6] == [1, 2, 3, 4, 5, 6]


def test_search_beam_asks_less_for_an_option_that_fails():
    space, surface = separable(Random(4), decisions=6, options=4)
    fails = {("d2", 1): Status.TIMED_OUT, ("d2", 2): Status.TIMED_OUT}
    shares = {}
    for cls in (BeamSearcher, RandomSearcher):
        searcher, planted = cls(space, Random(0)), Surface(surface.factors, fails=fails)
        default = space.defaults()[0]
        searcher.tell(Proposal(default, "default"), planted.measure(default))
        bad = 0
        for _ in range(25):
            for p in searcher.ask(8):
                m = planted.measure(p.schedule)
                bad += m.status is Status.TIMED_OUT
                searcher.tell(p, m)
        shares[cls] = bad / 200
    assert shares[BeamSearcher] < 0.5 * shares[RandomSearcher]


def test_search_beam_extends_with_raw_actions_and_finds_a_good_one():
    space = SurfaceSpace({"d0": 6, "d1": 6}, raw=("x", "y", "z"))
    surface = Surface({("y", 1): 0.25})
    searcher = BeamSearcher(space, Random(0), append=0.2)
    assert trials_to(searcher, space, surface, 0.25e-3, 100) <= 100


def test_search_beam_extends_a_stored_schedule_that_has_no_trace():
    space = SurfaceSpace({"d0": 2}, raw=("x", "y"))
    searcher = BeamSearcher(space, Random(0))
    stored = Schedule.parse("tile(axis=elsewhere, size=9)")
    told(searcher, stored, 1e-6, "store")
    texts = {p.schedule.text for p in searcher.ask(40)}
    assert f"{stored.text} unroll(axis=x)" in texts
    assert f"{stored.text} unroll(axis=y)" in texts


def test_search_beam_lends_a_trace_to_a_stored_schedule_that_a_sample_prints():
    space = SurfaceSpace({"d0": 3, "d1": 3})
    searcher = BeamSearcher(space, Random(0))
    default = space.defaults()[0]
    stored = Schedule.parse(
        "tile(axis=d0, size=2) tile(axis=d1, size=1)"
    )  # one change away from the default
    told(searcher, default, 1.0)
    told(searcher, stored, 0.5, "store")
    searcher.ask(7)
    assert searcher.beam[0].text == stored.text
    assert [(d.name, d.choice) for d in searcher.beam[0].trace] == [("d0", 1), ("d1", 0)]


def test_search_beam_told_of_an_older_search_climbs_back_to_where_it_was():
    reached = 0
    for seed in range(15):
        space, surface = separable(Random(seed), decisions=6, options=5)
        older, rows = BeamSearcher(space, Random(seed)), []
        told(older, space.defaults()[0], surface.seconds(space.defaults()[0]))
        for _ in range(20):
            for p in older.ask(8):
                rows.append((p.schedule.text, surface.seconds(p.schedule)))
                told(older, p.schedule, rows[-1][1])
        newer = BeamSearcher(space, Random(100 + seed))
        for text, seconds in rows:
            told(newer, Schedule.parse(text), seconds, "store")
        told(newer, space.defaults()[0], surface.seconds(space.defaults()[0]))
        for _ in range(4):
            for p in newer.ask(8):
                told(newer, p.schedule, surface.seconds(p.schedule))
        reached += surface.seconds(newer.beam[0]) <= min(seconds for _, seconds in rows)
    assert reached >= 12


def test_search_beam_keeps_the_fastest_and_no_more_than_its_width():
    space = SurfaceSpace({"d0": 20})
    searcher = BeamSearcher(space, Random(0), width=3)
    times = {}
    for p, seconds in zip(searcher.ask(6), (5.0, 1.0, 4.0, 2.0, 6.0, 3.0), strict=True):
        told(searcher, p.schedule, seconds)
        times[p.schedule.text] = seconds
    assert [times[schedule.text] for schedule in searcher.beam] == [1.0, 2.0, 3.0]
