"""The live comparison of searchers: what its figures are made of. No search runs here."""

from __future__ import annotations

import math
from random import Random

import pytest
from search_surface import played, separable

from benchmarks.hand_schedules import AVX512, gemm
from benchmarks.plain_beam import BareBeam, PlainBeam
from benchmarks.searchers import Played, copied, kernel_of
from benchmarks.workloads import select
from tunegrad.opts import Schedule, Space
from tunegrad.search import Proposal
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial


def test_area_leaves_the_defaults_out():
    played = Played((9.0, math.e, 1.0), "")
    assert played.area(1.0) == pytest.approx(0.5)


def test_memory_has_no_row_of_the_kernel_itself():
    names = ("conv 1x1 64-64 @56", "softmax 1024")
    mine, other = (kernel_of(w) for w in select("kernels", names))
    here = Fingerprint((("device", "cpu"),))
    rows = [
        Trial(
            k.key,
            k.text,
            here,
            "",
            "p",
            1,
            Policy(),
            Measurement(Status.OK, (1.0,)),
            "default",
            "s",
        )
        for k in (mine, other)
    ]
    with copied(rows, mine.key) as store:
        assert [key for key, _ in store.kernels()] == [other.key]


def test_plain_beam_measures_every_neighbour_and_ends_at_the_best_of_a_separable_surface():
    space, surface = separable(Random(1), decisions=4, options=3)
    beam = PlainBeam(space, Random(0))
    (default,) = space.defaults()
    beam.tell(Proposal(default, "default"), surface.measure(default))
    first = beam.ask(100)
    assert len(first) == 4 * 2, "each of four decisions has two other options"
    assert all(
        sum(a != b for a, b in zip(p.schedule.trace, default.trace, strict=True)) == 1
        for p in first
    )
    for p in first:
        beam.tell(p, surface.measure(p.schedule))
    later = played(beam, surface, 1000)
    assert beam.done
    assert len(first) + len(later) < 3**4 - 1, "not everything is a neighbour of the beam"
    fastest = surface.base_s * math.prod(
        min(surface.factors.get((name, c), 1.0) for c in range(size))
        for name, size in space.sizes.items()
    )
    assert min(map(surface.seconds, later)) == pytest.approx(fastest)


def test_bare_beam_begins_without_a_schedule_and_adds_one_action_at_a_time():
    space = Space(gemm(16, 16, 16), AVX512)
    beam = BareBeam(space, Random(0), width=2)
    (default, *_) = space.defaults()
    beam.tell(Proposal(default, "default"), Measurement(Status.OK, (1e-9,)))
    (bare,) = beam.ask(5)
    assert (bare.schedule.text, beam.done) == ("", True)
    beam.tell(bare, Measurement(Status.OK, (1.0,)))
    steps = list(space.actions(Schedule(())))
    level = beam.ask(len(steps) + 1)
    assert sorted(p.schedule.text for p in level) == sorted(Schedule((a,)).text for a in steps)
    for place, p in enumerate(level):
        beam.tell(p, Measurement(Status.OK, (0.5 + 0.01 * place,)))
    parents = {level[0].schedule.actions, level[1].schedule.actions}
    later = beam.ask(20)
    assert len(later) == 20
    assert {p.schedule.actions[:1] for p in later} == parents
    assert all(len(p.schedule.actions) == 2 for p in later)
