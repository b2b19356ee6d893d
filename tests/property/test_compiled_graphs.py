"""Random graphs of operations, compiled, against numpy; what fails is cut down to a few nodes."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import fuzzing
from tests.compiled_graphs import Case, CompiledKernels, agrees, as_test, check_cases, same, shrunk
from tests.graph_fuzzer import random_graph, random_inputs, row_graph, sibling_graph
from tunegrad.ir import dtypes
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BOOL, F32, F64, I32, U8
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import schedule
from tunegrad.ir.graph import GraphOp, Node

MIXED = (F32, F64, I32, BOOL)
SIBLINGS = (F32, F64, I32, U8, BOOL)
ROWS = (F32, F64, I32)


EXACT_EDGES = frozenset((12512,))
"""Seeds of graphs whose result hangs on the last bit, which contraction may change: 12512 asks
whether ``sin(x) - sum(sin(x))`` is ``floor(sin(x))``, where both are 0 without rounding.
"""


def check_graphs(seeds: range, code: CompiledKernels) -> int:
    launches = 0
    for first in range(seeds.start, seeds.stop, 50):
        cases = []
        for seed in sorted({*range(first, first + 50)} - EXACT_EDGES):
            rng = random.Random(seed)
            outputs = random_graph(rng, rng.randint(1, 14), MIXED if seed % 2 else (F32,))
            cases.append(Case(outputs, random_inputs(seed, outputs)))
        launches += check_cases(cases, code)
    return launches


def test_compiled_graphs_agree_with_numpy() -> None:
    code = CompiledKernels(1)
    assert check_graphs(range(200), code) > 300
    assert len(code.programs) > 200


def test_an_element_that_jumps_is_no_fault_and_any_other_is() -> None:
    x = g.graph_input("x", (3,), F32)
    case = Case(
        (
            g.elementwise(Op.LT, x, g.full(1.0, (3,), F32)),
            g.elementwise(Op.MUL, x, x),
            g.cast(g.elementwise(Op.FLOOR, x), I32),
        ),
        {"x": np.array([1, 2, 3], np.float32)},
    )

    def taken(below: list[bool], squares: list[float], floors: tuple[int, ...] = (1, 2, 3)) -> bool:
        outputs = np.array(below), np.array(squares, np.float32), np.array(floors, np.int32)
        code: Any = SimpleNamespace(run=lambda *_: outputs)
        return same(code, schedule(case.outputs), case)

    assert taken([False] * 3, [1, 4, 9])
    assert taken([True, False, False], [1, 4, 9])
    assert not taken([False, True, False], [1, 4, 9])
    assert not taken([True, False, False], [1, 4, 9.01])
    assert taken([False] * 3, [1, 4, 9], (0, 1, 3))
    assert not taken([False] * 3, [1, 4, 9], (7, 2, 3))


@pytest.mark.slow
def test_five_thousand_compiled_graphs_agree_with_numpy() -> None:
    code = CompiledKernels(1)
    assert check_graphs(range(10_000, 15_000), code) > 7_500
    assert len(code.programs) > 5_000


def sibling_cases(fuzzer: str, count: int) -> list[Case]:
    """Graphs of several outputs of one shape; numbers are exact in all types but rounded ones."""
    cases = []
    for case in range(count):
        rng = fuzzing.rng(fuzzer, case)
        outputs = row_graph(rng, ROWS) if case % 3 == 2 else sibling_graph(rng, SIBLINGS)
        cases.append(Case(outputs, random_inputs(case, outputs)))
    return cases


def several(code: CompiledKernels) -> int:
    return sum(sum(b.role == "out" for b in p.params) > 1 for p in code.programs.values())


def test_compiled_kernels_of_several_outputs_agree_with_numpy() -> None:
    code = CompiledKernels(1)
    check_cases(sibling_cases("siblings", fuzzing.count(60)), code)
    assert several(code) > 10


@pytest.mark.slow
def test_two_thousand_compiled_kernels_of_several_outputs_agree_with_numpy() -> None:
    code = CompiledKernels(1)
    for first in range(40):
        check_cases(sibling_cases(f"siblings {first}", 50), code)
    assert several(code) > 500


def has_a_flip(case: Case) -> bool:
    return any(n.op is GraphOp.FLIP for n in g.topological(case.outputs))


def test_a_failing_graph_is_cut_down_to_what_fails_and_printed_as_a_test() -> None:
    x = g.graph_input("x", (2, 3), F32)
    y = g.elementwise(Op.TANH, g.elementwise(Op.ADD, x, g.full(1, x.shape, F32)))
    y = g.reduce(Op.ADD, g.elementwise(Op.NEG, g.flip(y, (1,))), (1,))
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    small = shrunk(Case((y, x), {"x": values}), has_a_flip)
    assert [n.op for n in g.topological(small.outputs)] == [GraphOp.INPUT, GraphOp.FLIP]
    np.testing.assert_array_equal(small.inputs["cut1"], np.tanh(values + 1))
    names = {
        "np": np, "Node": Node, "GraphOp": GraphOp, "Op": Op, "Case": Case, "agrees": agrees,
        **vars(dtypes),
    }  # fmt: skip
    exec(as_test(small), names)  # noqa: S102  # what the fuzzer prints has to run
    names["test_compiled_graph_agrees"]()


def test_a_wrong_graph_is_told_from_a_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x = g.graph_input("x", (2, 3), F32)
    y = g.elementwise(Op.ADD, g.flip(x, (1,)), g.full(1, x.shape, F32))
    case = Case((y,), {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    assert agrees(case)
    run = CompiledKernels.run
    monkeypatch.setattr(CompiledKernels, "run", lambda *a: [v + 1 for v in run(*a)])
    with pytest.raises(AssertionError, match="def test_compiled_graph_agrees"):
        check_cases([case], CompiledKernels(1))
