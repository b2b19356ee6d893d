"""Kernels that store several tensors of equal points: which there are, and what they save."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.graph_builders import add, run_schedule, scale, tensor
from tests.graph_fuzzer import random_graph, random_inputs
from tunegrad.errors import WrongPlan
from tunegrad.frontend import Tensor
from tunegrad.ir import graph as g
from tunegrad.ir.dtypes import BOOL, I32
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import Alternatives, Fusion, LaunchPlan, schedule, siblings
from tunegrad.ir.fusion.build import Draft, draft_kernels
from tunegrad.ir.fusion.drafts import MAX_PENDING
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import For, Instr, Load, Program
from tunegrad.ir.target import Target
from tunegrad.ir.validate import validated
from tunegrad.opts import Space


def apply(op: Op, *args: Node) -> Node:
    return g.elementwise(op, *args)


def adam(*shape: int) -> tuple[Node, ...]:
    """New parameters, and both moments."""
    p, m, v, grad = (tensor(name, *shape) for name in ("p", "m", "v", "g"))
    first = add(scale(m, 0.9), scale(grad, 0.1))
    second = add(scale(v, 0.999), scale(apply(Op.MUL, grad, grad), 0.001))
    below = add(apply(Op.SQRT, second), g.full(1e-8, shape, p.dtype))
    return apply(Op.SUB, p, scale(apply(Op.DIV, first, below), 0.01)), first, second


def momentum(*shape: int) -> tuple[Node, ...]:
    p, m, grad = (tensor(name, *shape) for name in ("p", "m", "g"))
    moved = add(scale(m, 0.9), grad)
    return apply(Op.SUB, p, scale(moved, 0.1)), moved


def outputs_of(plan: LaunchPlan) -> list[int]:
    return [len(x.kernel.outputs) for x in plan.launches]


def bytes_of(plan: LaunchPlan) -> int:
    return sum(x.kernel.unique_bytes for x in plan.launches)


def test_adam_is_one_kernel_of_four_reads_and_three_writes() -> None:
    plan = schedule(adam(64, 32))
    assert outputs_of(plan) == [3]
    assert bytes_of(plan) == 7 * 4 * 64 * 32
    (launch,) = plan.launches
    assert len({x for _, x in launch.kernel.loads}) == 4
    assert launch.name.endswith("64x32 +2 outputs")


def test_momentum_is_one_kernel_of_three_reads_and_two_writes() -> None:
    plan = schedule(momentum(64, 32))
    assert outputs_of(plan) == [2]
    assert bytes_of(plan) == 5 * 4 * 64 * 32


def test_siblings_compute_what_their_graph_means() -> None:
    outputs = adam(5, 8)
    inputs = {name: abs(a) for name, a in random_inputs(0, outputs).items()}
    for got, want in zip(
        run_schedule(schedule(outputs), inputs), evaluate(outputs, inputs), strict=True
    ):
        assert (got == want).all()


def test_edge_apart_launches_the_parts() -> None:
    fusion = Fusion.of(adam(64, 32))
    alternatives = Alternatives(fusion)
    (edge,) = (e for e in alternatives.edges() if e.name == "apart")
    found = alternatives.alternative(edge)
    assert found is not None
    assert [len(k.outputs) for k in found.before] == [3]
    assert [len(k.outputs) for k in found.after] == [1, 1, 1]
    assert outputs_of(fusion.toggled(alternatives.toggles([edge])).schedule()) == [1, 1, 1]


def test_tensor_that_is_read_elsewhere_is_no_sibling_of_its_reader() -> None:
    x, y = tensor("x", 8, 8), tensor("y", 8, 8)
    turned = add(x, y)
    assert outputs_of(schedule((turned, add(x, g.permute(turned, (1, 0)))))) == [1, 1]


def test_siblings_whose_path_leads_through_a_third_launch_stay_apart() -> None:
    x = tensor("x", 8, 8)
    first = add(x, x)
    total = g.expand(g.reduce(Op.ADD, first, (0,)), (8, 8))
    plan = schedule((first, g.reduce(Op.MAX, total, (0, 1)), apply(Op.MUL, x, total)))
    assert 2 not in outputs_of(plan)
    plan.verify()


def test_tensors_that_share_no_tensor_of_their_size_stay_apart() -> None:
    b = tensor("b", 1, 8)
    plan = schedule(tuple(add(tensor(n, 8, 8), g.expand(b, (8, 8))) for n in ("x", "y")))
    assert outputs_of(plan) == [1, 1]


def test_tensor_that_nothing_else_reads_is_not_stored_by_its_reader() -> None:
    x = tensor("x", 8, 8)
    fusion = Fusion.of((scale(apply(Op.EXP, x), 2.0),))
    place = next(i for i, n in enumerate(fusion.drafts.order) if n.arg is Op.EXP)
    assert outputs_of(fusion.toggled({place}).schedule()) == [1, 1]


def test_fence_has_a_kernel_of_its_own() -> None:
    x = tensor("x", 8, 8)
    fenced = g.contiguous(scale(x, 2.0))
    plan = schedule((add(fenced, x), g.reduce(Op.MAX, fenced, (1,)), apply(Op.NEG, x)))
    assert outputs_of(plan) == [1, 2, 1]


def test_default_schedule_of_siblings_has_vectors_and_threads() -> None:
    (launch,) = schedule(adam(256, 64)).launches
    target = Target("cpu", "cpu", "x86-64", vector_bytes=32, threads=2)
    space = Space(launch.kernel, target)
    text = next(iter(space.defaults())).text
    assert "vectorize" in text
    assert "thread" in text


def test_two_outputs_in_each_others_place_are_refused() -> None:
    plan = schedule(momentum(64, 32))
    assert validated(plan) is plan
    (launch,) = plan.launches
    first, second, *reads = launch.args
    wrong = replace(plan, launches=(replace(launch, args=(second, first, *reads)),))
    with pytest.raises(WrongPlan, match="is not what the graph says"):
        validated(wrong)


def row_sums(rows: int, columns: int) -> tuple[Node, ...]:
    x, y = tensor("x", rows, columns), tensor("y", rows, columns)
    return g.reduce(Op.ADD, x, (1,)), g.reduce(Op.ADD, apply(Op.MUL, x, y), (1,))


def for_loops(body: tuple[Instr, ...]) -> list[For]:
    found = []
    for instr in body:
        if isinstance(instr, For):
            found += [instr, *for_loops(instr.body)]
    return found


def default_program(kernel: Kernel) -> Program:
    space = Space(kernel, Target("cpu", "cpu", "x86-64", vector_bytes=32, threads=2))
    return space.lower(next(iter(space.defaults())))


def test_sums_of_one_row_are_one_kernel() -> None:
    plan = schedule(row_sums(16, 64))
    assert outputs_of(plan) == [2]
    assert bytes_of(plan) == 4 * (2 * 16 * 64 + 2 * 16)
    assert plan.launches[0].name == "sums 16 +1 output"


def test_sums_of_one_row_run_in_the_loops_of_one() -> None:
    both, (one, _) = schedule(row_sums(16, 128)), row_sums(16, 128)
    (alone,) = schedule((one,)).launches
    loops = [for_loops(default_program(x.kernel).body) for x in (both.launches[0], alone)]
    reads = [x for x in loops[0][-1].body if isinstance(x, Load)]
    assert len(loops[0]) == len(loops[1])
    assert {x.buffer for x in reads} == {"p2", "p3"}


def test_sum_that_waits_for_another_has_loops_of_its_own() -> None:
    x = tensor("x", 16, 128)
    total = g.expand(g.reduce(Op.ADD, x, (1,)), x.shape)
    apart = g.reduce(Op.ADD, apply(Op.ABS, apply(Op.SUB, x, total)), (1,))
    (launch,) = schedule((apart,)).launches
    assert len(launch.kernel.reduces) == 2
    assert len(for_loops(default_program(launch.kernel).body)) == 3


def test_sums_of_columns_stay_apart() -> None:
    x, y = tensor("x", 64, 16), tensor("y", 64, 16)
    sums = g.reduce(Op.ADD, x, (0,)), g.reduce(Op.ADD, apply(Op.MUL, x, y), (0,))
    assert outputs_of(schedule(sums)) == [1, 1]


def test_few_long_rows_stay_apart() -> None:
    assert outputs_of(schedule(row_sums(4, 64))) == [1, 1]


def test_siblings_of_one_element_are_planned() -> None:
    """Their kernels have no axis; a drawn graph of which planning failed."""
    outputs = random_graph(random.Random("more 572"), 40)
    schedule(outputs).verify()


def test_a_kernel_that_is_full_is_tried_once_for_drafts_of_one_size(
    monkeypatch: pytest.MonkeyPatch,
):
    tried: list[int] = []

    def drafted(*given: Any) -> Draft:
        tried.append(len(given[0]))
        return draft_kernels(*given)

    monkeypatch.setattr(siblings, "draft_kernels", drafted)
    x, count = Tensor.input("x", (16, 64)), 48
    plan = schedule(tuple(((x * (i + 1.0)) * x).sum(1).node for i in range(count)))
    assert len(plan.launches) == count // MAX_PENDING
    assert len(tried) < 1.5 * count


def test_siblings_run_behind_what_they_read_together() -> None:
    """The third output alone asks ``b`` if it is not 0, and so needs no launch before it; as a
    sibling of the first it reads ``-b``, which is stored since it is an index.
    """
    a, b = g.graph_input("a", (4, 1), I32), g.graph_input("b", (1,), I32)
    same = apply(Op.EQ, a, a)
    other = apply(Op.NOT, same)
    at = g.reshape(apply(Op.NEG, b), (1, 1))
    row = g.gather(apply(Op.OR, same, g.cast(a, BOOL)), g.expand(at, (3, 1)), 0)
    either = apply(Op.OR, other, g.cast(g.expand(at, (4, 1)), BOOL))
    outputs = other, row, either
    plan = schedule(outputs)
    inputs = {"a": np.array([[0], [1], [2], [0]], np.int32), "b": np.array([-2], np.int32)}
    want, found = evaluate(outputs, inputs), run_schedule(plan, inputs)
    for x, y in zip(want, found, strict=True):
        np.testing.assert_array_equal(x, y)
