"""Reductions of what repeats itself are computed and stored once: kernels and bytes are counted."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests import fuzzing
from tests.graph_builders import Array, add, matmul, run_schedule, tensor, weight
from tests.graph_fuzzer import random_graph
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import F32, I32
from tunegrad.ir.expr import Op
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.fusion.drafts import Drafts
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.rewrites.sums import Repeats

X = tensor("x", 16, 1, 24)
SPREAD = g.expand(X, (16, 8, 24))


def checked(output: Node) -> LaunchPlan:
    (folded,) = fold_constants((output,))
    plan = schedule((folded,))
    rng = np.random.default_rng(0)
    inputs: dict[str, Array] = {
        str(n.arg): rng.integers(-3, 4, n.shape).astype(n.dtype.numpy)
        for n in g.topological((output,))
        if n.op is GraphOp.INPUT
    }
    got, want = run_schedule(plan, inputs)[0], evaluate((output,), inputs)[0]
    np.testing.assert_allclose(got, want, rtol=1e-5)
    return plan


def sums(x: Node) -> Node:
    """The sum of each row of 24, times a matrix."""
    rows = g.reshape(g.reduce(Op.ADD, x, (2,)), (16, 8))
    return matmul(rows, weight("w", 8, 4))


def test_a_sum_of_what_was_expanded_is_stored_once() -> None:
    plan = checked(sums(SPREAD))
    first, second = (x.kernel for x in plan.launches)
    assert [b.nbytes for b in plan.buffers if b.role == "temp"] == [16 * 4]
    assert first.flops == 16 * 24, "each sum is computed once, not once per copy"
    assert first.unique_bytes == (16 + 16 * 24) * 4
    assert second.unique_bytes == (16 + 8 * 4 + 16 * 4) * 4


def test_what_repeats_together_is_reduced_once() -> None:
    y = g.expand(tensor("y", 1, 1, 24), SPREAD.shape)
    both = g.elementwise(Op.MAX, g.elementwise(Op.NEG, SPREAD), y)
    plan = checked(sums(both))
    assert [b.nbytes for b in plan.buffers if b.role == "temp"] == [16 * 4]


def test_a_sum_of_what_differs_stays() -> None:
    full = tensor("z", 16, 8, 24)
    for x in (full, add(SPREAD, full)):
        (folded,) = fold_constants((sums(x),))
        assert folded is sums(x)


def test_a_sum_over_the_copies_stays_a_sum() -> None:
    total = g.reduce(Op.ADD, SPREAD, (1,))
    assert fold_constants((total,)) == (total,)
    checked(total)


def test_repetition_is_seen_through_movement() -> None:
    turned = g.flip(g.permute(SPREAD, (2, 1, 0)), (0,))
    padded = g.pad(turned, ((1, 1), (0, 0), (0, 0)))
    (folded,) = fold_constants((g.reduce(Op.MAX, padded, (0,)),))
    assert folded.op is GraphOp.EXPAND
    assert folded.srcs[0].shape == (1, 1, 16)
    checked(folded)


def test_positions_repeat_along_all_but_their_own_dimension() -> None:
    places = g.cast(g.iota((3, 5, 4), 1), F32)
    (folded,) = fold_constants((g.reduce(Op.ADD, g.elementwise(Op.EXP, places), (1,)),))
    assert folded.op is GraphOp.EXPAND
    assert folded.srcs[0].shape == (1, 1, 1)


def test_no_reduction_of_a_random_graph_stores_a_number_twice() -> None:
    found = 0
    for seed in range(300):
        outputs = fold_constants(random_graph(random.Random(seed), 12))
        repeats = Repeats()
        for n in g.topological(outputs):
            found += n.op is GraphOp.REDUCE
            assert n.op is not GraphOp.REDUCE or not repeats.of(n), seed
    assert found > 50


def test_no_intermediate_of_a_random_graph_stores_a_number_twice() -> None:
    stored = 0
    for case in range(fuzzing.count(300)):
        outputs = fold_constants(random_graph(fuzzing.rng("stored once", case), 12))
        drafts = Drafts.of(outputs)
        repeats = Repeats()
        for n in drafts.order:
            repeats.of(n)
        for n in drafts.drafts.keys() - drafts.fixed:
            stored += 1
            assert not repeats.of(n), (case, n)
    assert stored > 60


def test_computed_positions_that_repeat_are_stored_once() -> None:
    at = g.elementwise(Op.MUL, g.graph_input("i", (1, 8), I32), g.full(2, (1, 8), I32))
    plan = schedule((g.gather(tensor("x", 24, 8), g.expand(at, (16, 8)), 0),))
    assert [b.shape for b in plan.buffers if b.role == "temp"] == [(1, 8)]


@pytest.mark.parametrize(
    ("source", "index", "stored"),
    [
        (tensor("x", 12, 1, 2), g.iota((12, 3, 2), 1), (12, 1, 2)),
        (g.iota((6, 1, 2), 2), g.iota((6, 3, 2), 1), (1, 1, 2)),
        (tensor("x", 4, 5), g.expand(g.graph_input("i", (1, 5), I32), (8, 5)), (1, 5)),
        (g.expand(tensor("x", 4, 1), (4, 5)), g.graph_input("i", (3, 5), I32), (3, 5)),
    ],
    ids=["one element to read", "positions", "one index", "indices that differ"],
)
def test_functions_of_what_was_gathered_are_stored_once(
    source: Node, index: Node, stored: tuple[int, ...]
) -> None:
    """Of random graphs 7089 and 7210, where the copies were stored."""
    y = g.elementwise(Op.TANH, g.cast(g.gather(source, index, len(source.shape) - 2), F32))
    widths = tuple((1, 0) for _ in y.shape)
    plan = schedule((g.reduce(Op.ADD, y, (0,)), g.pad(y, widths)))
    assert [b.shape for b in plan.buffers if b.role == "temp"] == [stored]
