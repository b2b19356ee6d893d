"""Chains of movement operations, compiled, against numpy moving the data."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.compiled_graphs import Case, CompiledKernels, check_cases
from tests.graph_fuzzer import movement_chain
from tunegrad.ir.evaluate import evaluate
from tunegrad.ir.fusion import schedule
from tunegrad.ir.fusion.axes import uses
from tunegrad.ir.graph import GraphOp, Node, topological


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


def is_run(out: Node, x: Node) -> bool:
    """Whether a chain gives neighbouring elements of its input in their order."""
    places = np.arange(1, x.size + 1).reshape(x.shape).astype(x.dtype.numpy)
    flat = evaluate((out,), {str(x.arg): places})[0].reshape(-1)
    return flat.size > 1 and int(flat.min()) >= 1 and bool((np.diff(flat) == 1).all())


def test_movement_chain_that_gives_a_run_of_its_input_is_one_linear_index() -> None:
    runs = 0
    for seed in range(6_000):
        out, _ = movement_chain(random.Random(seed), 8)
        inputs = [n for n in topological((out,)) if n.op is GraphOp.INPUT]
        if len(inputs) != 1 or not out.size or not is_run(out, inputs[0]):
            continue
        runs += 1
        (launch,) = schedule((out,)).launches
        for param, index in uses(launch.kernel):
            address = launch.kernel.param(param).layout.offset(index)
            assert not address.divisions(), (seed, address)
    assert runs > 60
