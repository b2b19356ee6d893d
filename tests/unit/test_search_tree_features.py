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
GPU = Target(
    "opencl", "gpu", "generic", registers=64, threads=2, max_local=256, shared_bytes=1 << 15
)


def facts(name, text=None, target=TARGET):
    space = Space(corpus_kernel(name), target)
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


def test_tree_features_of_a_gpu_see_who_shares_a_sum():
    """One work-item adds up a row, or 16 do: registers, trips and bytes are the same."""
    one = facts("gemm_square", "thread(axis=a, count=0) thread(axis=b, count=0)", GPU)
    shared = facts(
        "gemm_square", "thread(axis=a, count=0) thread(axis=b, count=0) group(axis=ra)", GPU
    )
    assert {name for name in one if one[name] != shared[name]} == {"log_items"}
    assert (one["log_items"], shared["log_items"]) == (1.0, math.log2(1 + 16))


def test_tree_features_of_a_gpu_see_how_many_groups_there_are():
    """16 x 16 results as 256 groups of one item, or as 16 groups of 16."""
    text = "thread(axis=a, count=0) {}(axis=b{})"
    many = facts("gemm_square", text.format("thread", ", count=0"), GPU)
    few = facts("gemm_square", text.format("local", ""), GPU)
    assert (many["log_groups"], few["log_groups"]) == (math.log2(1 + 256), math.log2(1 + 16))
    assert few["log_items"] == math.log2(1 + 16)


def test_tree_features_of_a_cpu_have_none_of_a_gpu():
    assert facts("gemm", target=GPU).keys() - facts("gemm").keys() == {"log_items", "log_groups"}
