"""The pipeline from a graph to text: the order of its passes, and what they hand each other."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np

from benchmarks.hand_schedules import AVX512
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import LAST, Fusion, LaunchPlan
from tunegrad.ir.graph import Node
from tunegrad.opts import run_passes
from tunegrad.pipeline import (
    GRAPH_PASSES,
    KERNEL_PASSES,
    PLAN_PASSES,
    GraphContext,
    Plan,
    PlanContext,
    Rewritten,
)
from tunegrad.planning import prepared


class Rules:
    """No decision: everything as the rules have it."""

    def images(self, _: Fusion) -> object:
        return LAST

    def toggles(self, _: Fusion) -> frozenset[int]:
        return frozenset()

    def variants(self, _: LaunchPlan) -> dict[str, str]:
        return {}


def product() -> tuple[Node, ...]:
    """relu of a matrix product with a constant."""
    weights = Tensor.constant(np.ones((8, 4), np.float32))
    return ((Tensor.input("x", (3, 8)) @ weights).relu().node,)


def names(passes: tuple) -> list[str]:
    return [p.name for p in passes]


def test_pipeline_is_these_passes_in_this_order() -> None:
    assert names(GRAPH_PASSES) == [
        "pack bytes", "join scales", "widen", "narrow", "tf32", "pack pairs", "fold", "known",
        "validate",
    ]  # fmt: skip
    assert names(PLAN_PASSES) == [
        "fuse", "layout", "cut", "launches", "order", "overwrite", "variant", "validate",
    ]  # fmt: skip
    assert names(KERNEL_PASSES) == ["loops", "schedule", "lower", "races", "limit", "render"]


def test_pipeline_graph_passes_with_nothing_to_do_hand_on_the_same_value() -> None:
    first = Rewritten(product())
    assert run_passes(GRAPH_PASSES, first, GraphContext(first.outputs, AVX512)) is first


def test_pipeline_narrow_pass_alone_makes_a_graph_narrow() -> None:
    changed = []
    prepared(
        product(), "contract", AVX512, "f16",
        observe=lambda name, before, after: changed.append(name) if after is not before else None,
    )  # fmt: skip
    assert changed == ["narrow"]


def test_pipeline_plan_passes_hand_each_other_what_they_made() -> None:
    seen: list[tuple[object, object]] = []
    outputs = product()
    context = PlanContext(AVX512, Rules())  # type: ignore[arg-type]
    plan: Plan = run_passes(PLAN_PASSES, outputs, context, lambda _, *forms: seen.append(forms))
    assert seen[0][0] is outputs
    assert seen[-1][1] is plan
    assert all(after is before for (_, after), (before, _) in pairwise(seen))
    assert len(plan.launches.launches) == 1


def test_pipeline_is_imported_without_actions_and_lowering() -> None:
    """A model whose texts were lowered before is loaded without them."""
    script = (
        "import sys, tunegrad.pipeline\n"
        "print([m for m in sys.modules if m.startswith(('tunegrad.opts.actions', "
        "'tunegrad.opts.lowering', 'tunegrad.opts.sketches'))])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert found.stdout.strip() == "[]", found.stderr
