"""The corpus on a real OpenCL device: default and drawn schedules give what the kernel says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_corpus import NAMES

from benchmarks.hand_schedules import GPU
from tests.opencl_batches import (
    Case,
    Platform,
    check_cases,
    corpus_cases,
    has_barriers,
    platform_of,
    uses_shared,
)
from tests.opencl_device import opencl_device

WIDE = replace(GPU, vector_bytes=32, max_local=64, threads=16)
"""A device that likes wide vectors and small groups, with units to fill."""


@pytest.fixture(scope="module")
def on() -> Platform:
    return platform_of(opencl_device())


def shared_of(cases: list[Case]) -> list[Case]:
    return [c for c in cases if uses_shared(c.program) and has_barriers(c.program)]


@pytest.mark.timeout(900)  # a compiler takes a second for each kernel, on a quiet machine
@pytest.mark.parametrize(
    "target", [GPU, pytest.param(WIDE, marks=pytest.mark.slow)], ids=["least", "wide"]
)
def test_opencl_runs_the_corpus_as_its_kernels_say(on, target):
    plain = [n for n in NAMES if n not in NAMES[::3]]
    cases = [*corpus_cases(NAMES[::3], target, draws=1), *corpus_cases(plain, target, draws=0)]
    check_cases(on, cases)
    assert {c.name for c in cases} == set(NAMES)
    assert len(shared_of(cases)) >= 20, "of some 80"


@pytest.mark.parametrize("target", [GPU, WIDE], ids=["least", "wide"])
def test_opencl_default_schedules_of_the_corpus_share_memory(target):
    cases = list(corpus_cases(NAMES, target, draws=0))
    assert len(shared_of(cases)) >= sum(len(c.kernel.reduces) > 0 for c in cases) // 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1, 6))
def test_opencl_runs_many_draws_of_the_corpus_as_its_kernels_say(on, first):
    cases = list(corpus_cases(NAMES, (GPU, WIDE)[first % 2], draws=12, first=first))
    check_cases(on, cases)
    assert len(shared_of(cases)) >= 100
