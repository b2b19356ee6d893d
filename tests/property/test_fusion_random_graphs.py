"""Random graphs: the fused kernels, interpreted, against the plain meaning of the graph."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.graph_builders import run_schedule
from tests.graph_fuzzer import random_graph, random_inputs, with_constants
from tests.verifiers.graph import verify_graph
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BOOL, F32, F64, I8, I16, I32, U8, U64, DType
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.verify.kernel import verify_kernel

MIXED = (F32, F64, I32, BOOL)
NARROW = (I8, U8, I16, U64, F32)


def check_graph(seed: int, dtypes: tuple[DType, ...]) -> None:
    rng = random.Random(seed)
    outputs = random_graph(rng, rng.randint(1, 14), dtypes)
    verify_graph(outputs)
    plan = schedule(outputs)
    for launch in plan.launches:
        verify_kernel(launch.kernel)
    inputs = random_inputs(seed, outputs)
    for got, want in zip(run_schedule(plan, inputs), evaluate(outputs, inputs), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=f"graph {seed}")


@pytest.mark.parametrize("dtypes", [(F32,), MIXED, NARROW], ids=["f32", "mixed", "narrow"])
def test_fusion_of_random_graphs_keeps_their_meaning(dtypes: tuple[DType, ...]) -> None:
    for seed in range(150):
        check_graph(seed, dtypes)


@pytest.mark.slow
@pytest.mark.parametrize("dtypes", [(F32,), MIXED], ids=["f32", "mixed"])
def test_fusion_of_many_random_graphs_keeps_their_meaning(dtypes: tuple[DType, ...]) -> None:
    for seed in range(10_000, 25_000):
        check_graph(seed, dtypes)


def test_fusion_never_computes_a_reduction_in_two_kernels() -> None:
    for seed in range(150):
        outputs = random_graph(random.Random(seed), 14)
        reduces = sum(n.op is GraphOp.REDUCE for n in g.topological(outputs))
        stages = sum(len(launch.kernel.reduces) for launch in schedule(outputs).launches)
        assert stages <= reduces, f"graph {seed}"


def plans() -> str:
    """The schedules of a hundred graphs, with the names of their kernels' parameters and buffers,
    as text.
    """
    return "\n".join(str(schedule(random_graph(random.Random(seed), 12))) for seed in range(100))


PRINT_PLANS = "from tests.property.test_fusion_random_graphs import plans; print(plans())"


def test_fusion_is_the_same_in_another_process() -> None:
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4242",
        "PYTHONPATH": os.pathsep.join([str(root), *sys.path]),
    }
    command = [sys.executable, "-c", PRINT_PLANS]
    other = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert other.splitlines() == plans().splitlines()


def test_fusion_after_constant_folding_keeps_the_meaning() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        outputs = with_constants(rng, random_graph(rng, rng.randint(1, 12), MIXED), 0.7)
        folded = fold_constants(outputs)
        verify_graph(folded)
        inputs = random_inputs(seed, outputs)
        wants = evaluate(outputs, inputs)
        for got, again, want in zip(
            evaluate(folded, inputs), run_schedule(schedule(folded), inputs), wants, strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=f"graph {seed}")
            np.testing.assert_allclose(again, want, rtol=2e-5, atol=2e-5, err_msg=f"graph {seed}")


def test_fusion_after_constant_folding_computes_nothing_that_no_input_reaches() -> None:
    for seed in range(100):
        rng = random.Random(seed)
        outputs = fold_constants(with_constants(rng, random_graph(rng, 10), 0.7))
        reached: dict[Node, bool] = {}
        holds: dict[Node, bool] = {}
        for n in g.topological(outputs):
            reached[n] = n.op is GraphOp.INPUT or any(reached[s] for s in n.srcs)
            holds[n] = n.op is GraphOp.CONST or any(holds[s] for s in n.srcs)
            computes = n.op in (GraphOp.MAP, GraphOp.CAST, GraphOp.REDUCE)
            assert reached[n] or not computes or not holds[n], f"graph {seed}: {n}"
