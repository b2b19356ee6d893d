"""Plans of whole models from PyTorch, in full size, beside a count by hand: kernels, and bytes that
they read and write.

A plan that costs more than is written here fails, and one that costs less should lower the figure.
Where a plan is above the count by hand, the table says why; docs/PLANS.md shows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import tunegrad as tg
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.target import Target
from tunegrad.planning import prepared

pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.hand_counts import HAND
from tests.torch_zoo import ZOO

CPU = Target("cpu", "cpu", "x86-64", view_bytes=1)
SLACK = 1.001
PAGE = Path(__file__).parents[2] / "docs" / "PLANS.md"


@dataclass(frozen=True)
class Cost:
    """Launches, different kernels, and bytes of all parameters of all launches."""

    launches: int
    kernels: int
    nbytes: int

    @staticmethod
    def of(plan: LaunchPlan) -> Cost:
        moved = sum(x.kernel.unique_bytes for x in plan.launches)
        return Cost(len(plan.launches), len(plan.kernels()), moved)


BUDGETS = {
    "mobilenet_v2": Cost(54, 32, 68_926_272),
    "unet": Cost(27, 26, 215_339_528),
    "vit_s": Cost(111, 13, 250_318_784),
    "bert_6": Cost(56, 10, 269_221_888),
    "llama_block": Cost(19, 17, 187_190_184),
    "lstm": Cost(257, 8, 137_063_504),
}


def plan_of(name: str) -> LaunchPlan:
    module, inputs = ZOO[name](True)
    model = tg.from_torch(module, *inputs)
    nodes = tuple(t.node for t in model.build(model.weights(seed=0)))
    return schedule(prepared(nodes, "contract", CPU), view_bytes=CPU.view_bytes)


def rows() -> dict[str, tuple[str, ...]]:
    """The table of the page: by model, launches, kernels, by hand, MB, by hand, why."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = tuple(c.strip() for c in line.strip("|").split("|"))
        if line.startswith("| ") and cells[0] in HAND:
            found[cells[0]] = cells[1:]
    return found


@pytest.mark.parametrize("name", ZOO)
def test_plans_of_models_cost_what_the_table_says(name: str) -> None:
    cost, budget = Cost.of(plan_of(name)), BUDGETS[name]
    assert cost.launches <= budget.launches, cost
    assert cost.kernels <= budget.kernels, cost
    assert cost.nbytes <= SLACK * budget.nbytes, cost


def test_the_page_has_these_figures_and_a_reason_for_each_that_is_above_the_count() -> None:
    assert rows().keys() == BUDGETS.keys() == HAND.keys() == ZOO.keys()
    for name, (launches, kernels, by_hand, moved, moved_by_hand, why) in rows().items():
        budget, hand = BUDGETS[name], HAND[name]()
        assert (launches, kernels) == (str(budget.launches), str(budget.kernels)), name
        assert by_hand == str(hand.kernels), name
        assert moved == f"{budget.nbytes / 1e6:.1f}", name
        assert moved_by_hand == f"{hand.nbytes / 1e6:.1f}", name
        assert 0.9 * hand.nbytes < budget.nbytes, name
        above = budget.launches > hand.kernels or budget.nbytes > 1.01 * hand.nbytes
        assert bool(re.search(r"\w", why)) >= above, name
