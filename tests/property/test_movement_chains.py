"""Chains of movement operations, compiled, against numpy moving the data."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests import fuzzing
from tests.compiled_graphs import Case, CompiledKernels, check_cases
from tests.graph_builders import run_schedule
from tests.graph_fuzzer import factorization, movement_chain
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import I32
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.fusion.axes import uses
from tunegrad.ir.graph import GraphOp, Node, topological
from tunegrad.ir.interpret.evaluate import evaluate


def check_chains(seeds: range, code: CompiledKernels, joins: bool = False) -> None:
    for first in range(seeds.start, seeds.stop, 100):
        drawn = [movement_chain(random.Random(s), 8, joins) for s in range(first, first + 100)]
        cases = [Case((out,), {"x": values}) for out, values in drawn]
        launches = check_cases(cases, code)
        assert joins or launches == sum(bool(out.size) for out, _ in drawn)


def test_movement_chain_of_eight_is_one_kernel_that_agrees_with_numpy() -> None:
    check_chains(range(100), CompiledKernels(1))


def test_movement_chain_with_joined_parts_agrees_with_numpy() -> None:
    first = fuzzing.seed() % 1_000_000
    check_chains(range(first, first + 100 * fuzzing.count(3)), CompiledKernels(1), joins=True)


def test_movement_chain_of_no_elements_launches_nothing() -> None:
    drawn = [x for s in range(500) if (x := movement_chain(random.Random(s), 8)[0]).shape]
    assert len(drawn) > 300
    for x in drawn:
        none = g.shrink(x, ((0, 0), *((0, extent) for extent in x.shape[1:])))
        assert not schedule((g.permute(none, tuple(range(len(x.shape)))[::-1]),)).launches


@pytest.mark.slow
def test_movement_chain_of_eight_agrees_with_numpy_twenty_thousand_times() -> None:
    code = CompiledKernels(0)
    check_chains(range(10_000, 30_000), code)
    assert len(code.programs) > 10_000


def there_and_back(rng: random.Random, views: int, *, mapped: bool) -> tuple[Node, Node]:
    """An input under so many reshapes and permutations and their inverses, eight operations for
    four; negated twice on the way where ``mapped``.
    """
    size = rng.choice((12, 16, 24, 30, 36, 60))
    x = y = g.graph_input("x", factorization(rng, size), I32)
    back: list[tuple[GraphOp, tuple[int, ...]]] = []
    for k in range(views):
        if k % 2 == 0:
            back.append((GraphOp.RESHAPE, y.shape))
            y = g.reshape(y, factorization(rng, size))
        else:
            order = tuple(rng.sample(range(len(y.shape)), len(y.shape)))
            back.append((GraphOp.PERMUTE, tuple(order.index(d) for d in range(len(order)))))
            y = g.permute(y, order)
    for k, (op, arg) in enumerate(reversed(back)):
        if mapped and k in (0, views // 2):
            y = g.elementwise(Op.NEG, y)
        y = g.reshape(y, arg) if op is GraphOp.RESHAPE else g.permute(y, arg)
    return y, x


@pytest.mark.parametrize("mapped", [False, True], ids=["views", "maps between"])
def test_views_and_their_inverses_leave_no_division(mapped: bool) -> None:
    for case in range(fuzzing.count(750)):
        rng = fuzzing.rng("there and back", case)
        out, x = there_and_back(rng, rng.choice((2, 4, 4, 6)), mapped=mapped)
        (launch,) = schedule((out,)).launches
        for param, index in uses(launch.kernel):
            address = launch.kernel.param(param).layout.offset(index)
            assert not address.divisions(), (out.shape, x.shape, address)
        values = np.arange(x.size, dtype=np.int32).reshape(x.shape)
        (found,) = run_schedule(schedule((out,)), {"x": values})
        np.testing.assert_array_equal(found, values)


def is_run(out: Node, x: Node) -> bool:
    """Whether a chain gives neighbouring elements of its input in their order."""
    places = np.arange(1, x.size + 1).reshape(x.shape).astype(x.dtype.numpy)
    flat = evaluate((out,), {str(x.arg): places})[0].reshape(-1)
    return flat.size > 1 and int(flat.min()) >= 1 and bool((np.diff(flat) == 1).all())


def test_movement_chain_that_gives_a_run_of_its_input_is_one_linear_index() -> None:
    runs = 0
    for seed in range(3_000):
        out, _ = movement_chain(random.Random(seed), 1 + seed % 8)
        inputs = [n for n in topological((out,)) if n.op is GraphOp.INPUT]
        if len(inputs) != 1 or not out.size or not is_run(out, inputs[0]):
            continue
        runs += 1
        (launch,) = schedule((out,)).launches
        for param, index in uses(launch.kernel):
            address = launch.kernel.param(param).layout.offset(index)
            assert not address.divisions(), (seed, address)
    assert runs > 30
