"""Chains of movement operations, compiled, against numpy moving the data."""

from __future__ import annotations

import random

import pytest

from tests.compiled_graphs import Case, CompiledKernels, check_cases
from tests.graph_fuzzer import movement_chain
from tunegrad.ir.fusion import schedule


def check_chains(seeds: range, code: CompiledKernels) -> None:
    for first in range(seeds.start, seeds.stop, 100):
        drawn = [movement_chain(random.Random(s), 8) for s in range(first, first + 100)]
        cases = [Case((out,), {"x": values}) for out, values in drawn]
        assert check_cases(cases, code) == sum(bool(out.size) for out, _ in drawn)


def test_movement_chain_of_eight_is_one_kernel_that_agrees_with_numpy() -> None:
    check_chains(range(1_000), CompiledKernels(1))


def test_movement_chain_of_no_elements_launches_nothing() -> None:
    drawn = [movement_chain(random.Random(s), 8)[0] for s in range(2_000)]
    empty = [x for x in drawn if not x.size]
    assert all(not schedule((x,)).launches for x in empty)


@pytest.mark.slow
def test_movement_chain_of_eight_agrees_with_numpy_twenty_thousand_times() -> None:
    code = CompiledKernels(0)
    check_chains(range(10_000, 30_000), code)
    assert len(code.programs) > 10_000
