"""What a cost model is told of a program: the same names for all, and numbers that follow the schedule."""

import math
from random import Random

import pytest
from kernel_corpus import NAMES, corpus_kernel

from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.search import RandomChooser, program_features

CPU = Target("cpu", "cpu", "x86-64", vector_bytes=16, registers=16, threads=3, l2_bytes=4096)


def features(name, text=""):
    space = Space(corpus_kernel(name), CPU)
    return program_features(space.lower(Schedule.parse(text)))


@pytest.mark.parametrize("name", NAMES)
def test_features_have_the_same_names_for_every_kernel_and_are_finite(name):
    space = Space(corpus_kernel(name), CPU)
    found = program_features(space.lower(space.sample(RandomChooser(Random(0)))))
    assert found.keys() == features("gemm").keys()
    assert all(math.isfinite(v) for v in found.values())


def test_features_count_the_work_of_a_product():
    assert features("gemm_square")["log_work"] == pytest.approx(math.log2(1 + 2 * 16**3), abs=0.1)


def test_features_see_vectors():
    assert features("gemm_square")["vector_share"] == 0.0
    space = Space(corpus_kernel("gemm_square"), CPU)
    assert program_features(space.lower(space.defaults()[0]))["vector_share"] > 0.9


def test_features_give_extents_from_the_inside():
    found = features("gemm_square")
    assert found["depth"] == 3.0
    assert [found[f"log_extent{i}"] for i in (1, 2, 3, 4)] == pytest.approx([math.log2(17)] * 3 + [1.0])


def test_features_give_bytes_touched_at_each_level():
    """Innermost, a row of one operand and a column of the other; two levels out, all of both and the result."""
    found = features("gemm_square")
    touched = [2 ** found[f"log_bytes{i}"] - 1 for i in (1, 2, 3)]
    assert touched[0] == pytest.approx(4 * (16 + 16), rel=0.1)
    assert touched[0] < touched[1] < touched[2]
    assert touched[2] <= 4 * 3 * 256 + 8


def test_features_tell_schedules_of_one_kernel_apart():
    space = Space(corpus_kernel("gemm_prime"), CPU)
    rng = Random(1)
    found = {tuple(program_features(space.lower(space.sample(RandomChooser(rng)))).values()) for _ in range(20)}
    assert len(found) >= 10
