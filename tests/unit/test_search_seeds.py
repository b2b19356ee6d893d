"""What one kernel lends another: distances, texts as they stand, decisions of the nearest
schedule.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tunegrad.devices.host.facts import host_target
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule, Space, TraceChooser, lower
from tunegrad.search import RandomChooser, Shape, adapted, distance, seeds, seeds_from
from tunegrad.tuning.workload import workload_of_function


def product(m: int, n: int, k: int, relu: bool = False) -> Kernel:
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    (use,) = workload_of_function(lambda a, b: (a @ b).relu() if relu else a @ b, (a, b)).kernels
    return use.kernel


def shape(kernel: Kernel) -> Shape:
    return Shape.of(kernel.text)


def space(kernel: Kernel) -> Space:
    return Space(kernel, host_target(1))


TILED = (
    "tile(axis=b, size=32) tile(axis=b1, size=16) tile(axis=a, size=6) tile(axis=ra, size=8) "
    "reorder(order=(a0, b0, a1, b1, b2, ra0, ra1)) upcast(axis=a1) upcast(axis=b1) "
    "vectorize(axis=b2) unroll(axis=ra1)"
)


def test_distance_of_equal_structures_is_how_far_their_extents_are() -> None:
    assert shape(product(64, 64, 64)).extents == (64, 64, 64)
    assert distance(shape(product(64, 64, 64)), shape(product(64, 64, 64))) == (0, 0.0)
    assert distance(shape(product(64, 64, 64)), shape(product(128, 64, 16))) == (0, 3.0)
    assert distance(shape(product(128, 64, 16)), shape(product(64, 64, 64))) == (0, 3.0)


def test_distance_to_another_epilogue_comes_after_every_equal_structure() -> None:
    far = distance(shape(product(64, 64, 64)), shape(product(512, 512, 64)))
    other = distance(shape(product(64, 64, 64)), shape(product(64, 64, 64, relu=True)))
    assert far is not None
    assert other == (1, 0.0)
    assert far < other


def test_shape_of_a_text_of_nobody_has_no_numbers_that_are_too_large() -> None:
    text = product(64, 64, 64).text
    huge = Shape.of(text.replace(" a:64", f" a:{'9' * 5_000}"))
    assert huge.extents == (64, 64)
    assert distance(shape(product(64, 64, 64)), huge) is None


def test_distance_to_another_pattern_or_far_away_is_none() -> None:
    rows = np.ones((64, 64), np.float32)
    (sums,) = workload_of_function(lambda x: x.sum(axis=1), (rows,)).kernels
    assert distance(shape(product(64, 64, 64)), shape(sums.kernel)) is None
    assert distance(shape(product(64, 64, 64)), shape(product(4096, 4096, 4096))) is None


def test_seed_that_is_a_schedule_of_the_space_is_found_with_its_decisions() -> None:
    target = space(product(96, 64, 64))
    found = adapted(target, Schedule.parse(target.defaults()[0].text))
    assert found is not None
    assert found == target.defaults()[0]


@pytest.mark.parametrize("sizes", [(96, 128, 64), (50, 70, 33), (7, 300, 16)])
def test_seeds_are_legal_and_take_over_the_sizes_that_fit(sizes: tuple[int, int, int]) -> None:
    target = space(product(*sizes))
    seeds = seeds_from(target, [TILED], 4)
    assert 1 <= len(seeds) <= 2
    for seed in seeds:
        lower(target.tree(seed))
    assert seeds[-1].trace, "the nearest schedule of the space has decisions"
    assert "tile(axis=a, size=6)" in seeds[-1].text


def test_seed_is_nearer_to_what_was_lent_than_the_default_is() -> None:
    target = space(product(96, 128, 64))
    found = adapted(target, Schedule.parse(TILED))
    assert found is not None

    def shared(schedule: Schedule) -> int:
        return len(set(map(str, schedule.actions)) & set(map(str, Schedule.parse(TILED).actions)))

    assert shared(found) > shared(target.defaults()[0])


def test_no_single_decision_brings_an_adapted_schedule_nearer() -> None:
    lent, target = (
        Space(product(*sizes), host_target(2)) for sizes in ((96, 128, 64), (64, 64, 64))
    )
    rng = Random(1)
    for _ in range(7):
        wanted = Schedule(lent.sample(RandomChooser(rng, 0.3)).actions)
        found = adapted(target, wanted, samples=2000)
        assert found is not None
        taken = {d.name: d.choice for d in found.trace}
        for decision in found.trace:
            for option in range(decision.options):
                try:
                    near = target.sample(TraceChooser(taken | {decision.name: option}))
                except IllegalAction:
                    continue
                assert seeds._likeness(near, wanted) <= seeds._likeness(found, wanted)


def test_seed_that_is_not_legal_here_is_adapted_only() -> None:
    # 48 does not divide 32, which is no outermost loop.
    lent = "tile(axis=b, size=32) tile(axis=b1, size=12) vectorize(axis=b2)"
    target = space(product(64, 64, 64))
    assert all(seed.text != lent for seed in seeds_from(target, [lent], 4))
    assert seeds_from(target, [lent], 4)


@pytest.mark.parametrize(
    "text", ["__import__('os')", "tile(axis=a, size=6", "dance(axis=a)", "variant(winograd4)"]
)
def test_text_that_is_no_schedule_lends_nothing(text: str) -> None:
    assert seeds_from(space(product(64, 64, 64)), [text], 4) == ()


def test_seeds_are_no_more_than_asked_for_and_the_same_each_time() -> None:
    target = space(product(96, 128, 64))
    lent = [TILED, TILED.replace("size=6", "size=4"), TILED.replace("size=6", "size=12")]
    assert len(seeds_from(target, lent, 3)) == 3
    assert seeds_from(target, lent, 4) == seeds_from(space(product(96, 128, 64)), lent, 4)
