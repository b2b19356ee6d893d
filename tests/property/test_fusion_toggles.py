"""Any edge of a graph may become a buffer or stop being one: results stay, kernels stay legal."""

from __future__ import annotations

import random
from collections.abc import Callable, Set

import numpy as np
import pytest

from tests.graph_builders import (
    Array,
    add,
    attention,
    conv_bn,
    encoder_layer,
    gelu,
    layer_norm,
    linear,
    max_pool,
    relu,
    run_schedule,
    scale,
    softmax,
    tensor,
)
from tests.graph_fuzzer import literal_graph, random_graph, random_inputs
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BOOL, F32, F64, I32, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import Fusion
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.verify.kernel import verify_kernel

MIXED = (F32, F64, I32, BOOL)


def residual() -> Node:
    x = tensor("x", 1, 4, 6, 6)
    return relu(add(conv_bn(relu(conv_bn(x, "a", 4)), "b", 4), x))


GRAPHS: dict[str, Callable[[], Node]] = {
    "softmax": lambda: softmax(scale(tensor("x", 5, 8), 0.5)),
    "layer norm": lambda: layer_norm(add(tensor("x", 5, 8), tensor("y", 5, 8))),
    "conv, bn, residual add, relu": residual,
    "attention": lambda: attention(2, 5, 4),
    "mlp": lambda: linear(gelu(linear(tensor("x", 3, 6), "a", 7)), "b", 4),
    "pooling": lambda: max_pool(relu(conv_bn(tensor("x", 1, 3, 7, 7), "w", 4))),
    "encoder layer": lambda: encoder_layer(tensor("x", 4, 6), 2, 8),
}


def check(
    fusion: Fusion, toggles: Set[int], inputs: dict[str, Array], wants: tuple[Array, ...], name: str
) -> str:
    """The kernels of the toggled plan, which must be legal and compute the graph."""
    plan = fusion.toggled(toggles).schedule()
    for launch in plan.launches:
        verify_kernel(launch.kernel)
    for got, want in zip(run_schedule(plan, inputs), wants, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(
            got, want, rtol=2e-4, atol=2e-4, err_msg=f"{name}, toggles {sorted(toggles)}"
        )
    return " ".join(launch.kernel.key for launch in plan.launches)


@pytest.mark.parametrize("name", GRAPHS)
def test_toggles_of_any_single_edge_keep_results(name: str) -> None:
    outputs = (GRAPHS[name](),)
    inputs = random_inputs(1, outputs)
    wants = evaluate(outputs, inputs)
    fusion = Fusion.of(outputs)
    plans = {check(fusion, {i}, inputs, wants, name) for i in range(len(fusion.drafts.order))}
    assert len(plans) >= 3, "toggles that change nothing prove nothing"


@pytest.mark.parametrize("name", GRAPHS)
def test_toggles_of_random_sets_of_edges_keep_results(name: str) -> None:
    outputs = (GRAPHS[name](),)
    inputs = random_inputs(2, outputs)
    wants = evaluate(outputs, inputs)
    fusion = Fusion.of(outputs)
    rng = random.Random(name)
    nodes = range(len(fusion.drafts.order))
    for _ in range(12):
        check(fusion, frozenset(rng.sample(nodes, rng.randint(2, len(nodes)))), inputs, wants, name)


@pytest.mark.parametrize("dtypes", [(F32,), MIXED], ids=["f32", "mixed"])
def test_toggles_in_random_graphs_keep_results(dtypes: tuple[DType, ...]) -> None:
    changed = 0
    for seed in range(80):
        rng = random.Random(seed)
        outputs = random_graph(rng, rng.randint(3, 14), dtypes)
        inputs = random_inputs(seed, outputs)
        wants = evaluate(outputs, inputs)
        fusion = Fusion.of(outputs)
        nodes = range(len(fusion.drafts.order))
        rules = check(fusion, frozenset(), inputs, wants, f"graph {seed}")
        for _ in range(4):
            toggles = frozenset(rng.sample(nodes, min(len(nodes), rng.choice((1, 1, 2, 99)))))
            changed += check(fusion, toggles, inputs, wants, f"graph {seed}") != rules
    assert changed > 90


@pytest.mark.parametrize("most", [3, 4, 8])
def test_kernels_have_so_many_buffers_at_most_whatever_is_toggled(most: int) -> None:
    """Trees of 40 tensors, with sums of rows in them; each operation has two sources."""
    for seed in range(6):
        rng = random.Random(seed)
        parts = [tensor(f"x{i}", 3, 4) for i in range(40)]
        while len(parts) > 2:
            left, right = (parts.pop(rng.randrange(len(parts))) for _ in range(2))
            parts.append(g.elementwise(rng.choice((Op.ADD, Op.MAX)), left, right))
            if rng.random() < 0.2:
                rows = g.reduce(Op.ADD, parts.pop(), (1,))
                parts.append(g.expand(scale(rows, 0.25), left.shape))
        outputs = tuple(parts)
        inputs = random_inputs(seed, outputs)
        wants = evaluate(outputs, inputs)
        fusion = Fusion.of(outputs, max_buffers=most)
        nodes = range(len(fusion.drafts.order))
        for count in (0, 1, 3, 20):
            toggles = frozenset(rng.sample(nodes, count))
            check(fusion, toggles, inputs, wants, f"tree {seed}")
            plan = fusion.toggled(toggles).schedule()
            assert max(len(x.kernel.params) for x in plan.launches) <= most


@pytest.mark.parametrize("seed", ["literal 20046", *range(20)])
def test_toggles_keep_results_where_a_kernel_loses_a_read(seed: str | int) -> None:
    """A choice between equal literals, by a condition that a toggle stores, reads no condition."""
    outputs = fold_constants(literal_graph(random.Random(seed)))
    inputs = random_inputs(1, outputs)
    wants = evaluate(outputs, inputs)
    fusion = Fusion.of(outputs)
    for i in range(len(fusion.drafts.order)):
        check(fusion, {i}, inputs, wants, f"literals {seed}")


def test_toggles_do_the_same_whatever_was_toggled_before() -> None:
    """What is drafted again incrementally is what would be drafted from the start."""
    outputs = (residual(), attention(2, 5, 4))
    fusion = Fusion.of(outputs)
    once = Fusion.of(outputs)
    for i in range(len(fusion.drafts.order)):
        fusion.toggled({i}).schedule()
        assert str(fusion.toggled({i}).schedule()) == str(
            Fusion.of(outputs).toggled({i}).schedule()
        )
    assert str(fusion.schedule()) == str(once.schedule())


def test_toggles_of_leaves_outputs_and_fences_are_void() -> None:
    x = tensor("x", 4, 6)
    fence = g.contiguous(scale(x, 2.0))
    y = relu(add(fence, g.full(1, x.shape, F32)))
    fusion = Fusion.of((y,))
    place = fusion.drafts.place
    for n in (x, fence, fence.srcs[0], y):
        assert fusion.toggled({place[n]}).schedule() == fusion.schedule()


def test_toggles_of_long_chains_stay_within_bounds() -> None:
    """Everything inlined at once: the kernels are cut before their expressions outgrow a compiler's
    stack.
    """
    x = tensor("x", 4, 6)
    y = x
    for i in range(600):
        y = g.elementwise(Op.TANH if i % 7 == 0 else Op.ADD, *((y,) if i % 7 == 0 else (y, x)))
    fusion = Fusion.of((y,))
    inputs = random_inputs(3, (y,))
    check(
        fusion, frozenset(range(len(fusion.drafts.order))), inputs, evaluate((y,), inputs), "chain"
    )
    off = frozenset(fusion.drafts.place[n] for n in fusion.drafts.drafts)
    check(fusion, off, inputs, evaluate((y,), inputs), "chain")
