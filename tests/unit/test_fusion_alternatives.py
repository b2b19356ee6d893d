"""The edges of a graph: which are listed, which count as one, and what they do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from tests.graph_builders import (
    add,
    attention,
    conv_bn,
    layer_norm,
    relu,
    resnet18,
    run_schedule,
    scale,
    softmax,
    tensor,
)
from tests.graph_fuzzer import random_inputs
from tests.verifiers.program import verify_program
from tunegrad.ir.fusion import Alternatives, Fusion, drafts
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.target import Target
from tunegrad.opts import Space


def conv_bn_relu() -> Node:
    return relu(conv_bn(tensor("x", 1, 4, 6, 6), "w", 4))


NAMED: dict[str, Callable[[], Node]] = {
    "softmax": lambda: softmax(tensor("x", 5, 8)),
    "layer norm": lambda: layer_norm(tensor("x", 5, 8)),
    "conv, bn, relu": conv_bn_relu,
    "attention": lambda: attention(2, 5, 4),
}


@pytest.mark.parametrize("name", NAMED)
def test_alternatives_give_three_plans_and_more_that_agree(name: str) -> None:
    outputs = (NAMED[name](),)
    inputs = random_inputs(5, outputs)
    (want,) = evaluate(outputs, inputs)
    fusion = Fusion.of(outputs)
    plans = {tuple(x.kernel.key for x in fusion.schedule().launches): fusion.schedule()}
    for edge in Alternatives(fusion).edges():
        plan = fusion.toggled(set(edge.places)).schedule()
        plans[tuple(x.kernel.key for x in plan.launches)] = plan
    assert len(plans) >= 4
    for plan in plans.values():
        (got,) = run_schedule(plan, inputs)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMED)
def test_alternatives_have_default_schedules(name: str) -> None:
    alternatives = Alternatives(Fusion.of((NAMED[name](),)))
    target = Target("avx2", "cpu", "x86-64-v3", ("avx2", "fma"), vector_bytes=32, threads=2)
    for edge in alternatives.edges():
        found = alternatives.alternative(edge)
        for kernel in () if found is None else found.after:
            space = Space(kernel, target)
            verify_program(space.lower(space.defaults()[0]))


def blocks(count: int) -> Fusion:
    """Equal residual blocks in a row, with weights of their own."""
    x = tensor("x", 1, 8, 6, 6)
    for i in range(count):
        x = relu(add(conv_bn(relu(conv_bn(x, f"a{i}", 8)), f"b{i}", 8), x))
    return Fusion.of((x,))


def test_edges_of_equal_regions_are_one() -> None:
    """The first block reads the caller's row-major input, the last writes the caller's output."""
    few, many = (Alternatives(blocks(n)).edges() for n in (4, 8))
    assert [(e.name, e.key) for e in few] == [(e.name, e.key) for e in many]
    assert max(len(e.places) for e in few) < max(len(e.places) for e in many) <= 2 * 8


def test_edges_do_not_depend_on_the_process() -> None:
    code = (
        "from tests.unit.test_fusion_alternatives import blocks\n"
        "from tunegrad.ir.fusion import Alternatives\n"
        "print([(e.name, e.key, e.places) for e in Alternatives(blocks(3)).edges()])\n"
    )
    env = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    ).stdout
    assert out.strip() == str([(e.name, e.key, e.places) for e in Alternatives(blocks(3)).edges()])


def test_edges_are_listed_without_drafting_and_an_alternative_drafts_its_region_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alternatives = Alternatives(blocks(12))
    made = []
    original = drafts.draft_kernel

    def counted(root: Node, buffers: set[Node]) -> object:
        made.append(root)
        return original(root, buffers)

    monkeypatch.setattr(drafts, "draft_kernel", counted)
    edges = alternatives.edges()
    assert made == []
    for edge in edges:
        made.clear()
        alternatives.alternative(edge)
        assert len(made) <= 8, edge.name


def test_alternatives_that_change_no_kernel_are_none() -> None:
    """A chain that is one kernel anyway: what is stored is all that is stored."""
    alternatives = Alternatives(Fusion.of((relu(scale(tensor("x", 4, 6), 2.0)),)))
    (edge,) = alternatives.edges()
    found = alternatives.alternative(edge)
    assert edge.name.startswith("store_mul_")
    assert found is not None
    assert (len(found.before), len(found.after)) == (1, 2)


def test_edges_that_store_know_their_bytes_and_those_that_inline_store_none() -> None:
    edges = Alternatives(Fusion.of((attention(2, 5, 4),))).edges()
    inline = ("inline", "attention")
    assert {e.stored_bytes for e in edges if e.name in inline} == {0}
    assert all(e.stored_bytes > 0 for e in edges if e.name not in inline)


def test_toggles_of_several_edges_leave_out_what_a_former_one_changed() -> None:
    alternatives = Alternatives(blocks(2))
    edges = alternatives.edges()
    chosen = alternatives.toggles(edges)
    touched = [set(map(id, alternatives.region(e))) for e in edges if e.places[0] in chosen]
    assert len(touched) >= 2
    assert sum(map(len, touched)) == len(set().union(*touched))
    assert all(alternatives.overlap(e, chosen) for e in edges)


def test_edges_of_resnet18_are_fewer_than_its_toggles() -> None:
    edges = Alternatives(Fusion.of((resnet18(tensor("x", 1, 3, 64, 64), 8, 10),))).edges()
    assert len(edges) < sum(len(e.places) for e in edges)
