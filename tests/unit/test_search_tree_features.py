"""Facts of a schedule from its loop tree: the same names for every kernel, and numbers that say
what they should.
"""

import math

import pytest
from kernel_corpus import NAMES, corpus_kernel

from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.search import tree_features

TARGET = Target("cpu", "cpu", "generic", vector_bytes=64, registers=32, threads=2)


def facts(name, text=None):
    space = Space(corpus_kernel(name), TARGET)
    schedule = space.defaults()[0] if text is None else Schedule.parse(text)
    return tree_features(space.tree(schedule))


@pytest.mark.parametrize("name", NAMES)
def test_tree_features_have_the_same_names_for_every_kernel(name):
    found = facts(name)
    assert found.keys() == facts("gemm").keys()
    assert all(math.isfinite(v) for v in found.values())


def test_tree_features_of_a_gemm_tell_schedules_apart():
    """16 x 16 x 16: plain, then in registers, then on threads that do not divide it, then with a
    tile that does not.
    """
    plain = facts("gemm_square", "")
    tiled = facts(
        "gemm_square",
        "tile(axis=a, size=4) reorder(order=(a0, ra, a1, b)) upcast(axis=a1) vectorize(axis=b)",
    )
    assert (plain["lanes"], tiled["lanes"]) == (1.0, 16.0)
    assert (plain["log_tile"], tiled["log_tile"]) == (1.0, math.log2(65))
    assert tiled["accumulators"] == 4 / 32
    # Four rows share a vector of the other operand: (4 scalars + 1 vector) for 4 multiply-adds.
    assert tiled["log_loads_per_work"] == pytest.approx(math.log2(6) - math.log2(5))
    assert tiled["contiguous"] > plain["contiguous"]
    assert tiled["log_regions"] == math.log2(1 + 4)
    assert plain["waste"] == tiled["waste"] == 0.0
    assert facts("gemm_square", "tile(axis=a, size=3)")["waste"] == pytest.approx(
        math.log2(18 / 16)
    )


def test_tree_features_see_threads_that_idle():
    found = facts("gemm_square", "tile(axis=a, size=6) thread(axis=a0, count=2)")
    assert found["threads"] == 2.0
    assert found["idle"] == pytest.approx(0.25)  # three tiles on two threads
