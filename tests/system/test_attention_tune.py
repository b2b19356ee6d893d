"""A tune races attention as one kernel against three, and what it finds is what a model loads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compared import track_of
from small_models import THREADS, here
from test_plans_tune import Samples, faster

from tunegrad.db import Store, open_store
from tunegrad.devices.host.facts import host_target
from tunegrad.frontend import Tensor, functional
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import ATTENTION, Alternatives, Fusion, LaunchPlan, is_attention
from tunegrad.planning import plan_launches, stored_toggles
from tunegrad.tuning.questions.cut import choose_cuts
from tunegrad.tuning.questions.question import PlanContext

Q, K, V = (Tensor.input(n, (1, 8, 64, 8)) for n in "qkv")
FUSION = Fusion.of(fold_constants((functional.scaled_dot_product_attention(Q, K, V).node,)))


def one_kernel(plan: LaunchPlan) -> bool:
    return any(is_attention(x.kernel) for x in plan.launches)


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(":memory:", "write") as opened, opened.session("tune", 0, {}, "0", "s1"):
        yield opened


def context(store: Store, compare: object) -> PlanContext:
    return PlanContext(
        host_target(THREADS), here(), store, "s1", "contract", track_of(compare), lambda _: None
    )


def test_attention_that_is_faster_as_one_kernel_is_stored_and_loaded(store: Store) -> None:
    chosen = choose_cuts(FUSION, context(store, faster(one_kernel)))
    assert chosen == {*FUSION.drafts.attentions()}
    assert [d.choice for d in store.decisions(None, here(), "cut") if d.chosen][-1] == ATTENTION
    planned = plan_launches(FUSION.drafts.targets, host_target(THREADS), here(), store, "contract")
    assert planned.toggles == chosen
    assert [is_attention(x.kernel) for x in planned.plan.launches] == [True]


def test_attention_that_is_slower_as_one_kernel_stays_three(store: Store) -> None:
    asked: list[LaunchPlan] = []

    def compare(plan: LaunchPlan, other: LaunchPlan) -> Samples:
        asked.append(other)
        return faster(lambda p: len(p.launches) == 3 and not one_kernel(p))(plan, other)

    choose_cuts(FUSION, context(store, compare))
    assert any(map(one_kernel, asked))
    assert not stored_toggles(FUSION, here(), store) & {*FUSION.drafts.attentions()}


def test_an_edge_that_only_adds_a_copy_is_an_alternative_without_kernels_that_go() -> None:
    """What such an edge costs is its copy: it is reckoned, and is no question."""
    found = [Alternatives(FUSION).alternative(e) for e in Alternatives(FUSION).edges()]
    assert any(a is not None and not a.before for a in found)
