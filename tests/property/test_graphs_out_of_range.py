"""Random graphs that read by position: what is out of range raises, compiled as by its meaning."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests import fuzzing
from tests.compiled_graphs import CompiledKernels
from tests.graph_fuzzer import random_graph, random_inputs
from tunegrad.errors import IndexOutOfRange
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BOOL, F32, I32, I64, U8
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.rewrites import guarded, interval

DTYPES = (F32, I32, I64, U8, BOOL)


def drawn(case: int) -> tuple[tuple[Node, ...], dict[str, np.ndarray]]:
    rng = fuzzing.rng("positions out of range", case)
    outputs = random_graph(rng, rng.randint(2, 10), DTYPES, held=True)
    return outputs, random_inputs(rng.randrange(1 << 32), outputs)


def raised(outputs: tuple[Node, ...], inputs: dict[str, np.ndarray], code: CompiledKernels) -> bool:
    """Whether the compiled plan of a graph says that a position is out of range.

    Otherwise its values are compared with the graph's.
    """
    try:
        whole, guards = guarded(outputs)
    except IndexOutOfRange:
        return True
    plan = schedule(whole)
    code.add([x.kernel for x in plan.launches])
    values = code.run(plan, inputs)
    count = len(outputs)
    try:
        for guard, farthest in zip(guards, values[count:], strict=True):
            guard.check(farthest.reshape(-1)[0])
    except IndexOutOfRange:
        return True
    for got, want in zip(values[:count], evaluate(whole[:count], inputs), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), 2e-5, 2e-5, equal_nan=True
        )
    return False


def means_an_error(outputs: tuple[Node, ...], inputs: dict[str, np.ndarray]) -> bool:
    try:
        evaluate(outputs, inputs)
    except IndexOutOfRange:
        return True
    return False


def test_compiled_graphs_raise_where_their_meaning_does() -> None:
    code, counts = CompiledKernels(0), Counter[bool]()
    total = fuzzing.count(400)
    for case in range(total):
        outputs, inputs = drawn(case)
        if not any(n.op is GraphOp.WITHIN for n in g.topological(outputs)):
            continue
        found = raised(outputs, inputs, code)
        assert found == means_an_error(outputs, inputs), f"case {case}"
        counts[found] += 1
    assert min(counts[True], counts[False]) > total // 40  # of 400 about 55 and 35


def test_values_are_inside_of_their_intervals() -> None:
    seen = 0
    for case in range(fuzzing.count(400)):
        outputs, inputs = drawn(1_000_000 + case)
        if means_an_error(outputs, inputs):
            continue
        nodes = tuple(n for n in g.topological(outputs) if n.dtype in (I32, I64, U8, BOOL))
        for node, values in zip(nodes, evaluate(nodes, inputs), strict=True):
            low, high = interval(node)
            assert not values.size or low <= values.min() <= values.max() <= high, f"case {case}"
            seen += (low, high) != (node.dtype.least, node.dtype.greatest)
    assert seen > 100


@pytest.mark.slow
def test_two_thousand_graphs_raise_where_their_meaning_does() -> None:
    code = CompiledKernels(0)
    for case in range(2_000_000, 2_000_000 + fuzzing.count(2000)):
        outputs, inputs = drawn(case)
        assert raised(outputs, inputs, code) == means_an_error(outputs, inputs), f"case {case}"
