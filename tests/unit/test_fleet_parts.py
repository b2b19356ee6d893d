"""Plans and graphs as they travel: without their constants, and back as they were."""

import numpy as np

from tunegrad.frontend import Tensor
from tunegrad.tuning.fleet.host import packed, unpacked
from tunegrad.tuning.workload import workload_of_function

W = np.random.default_rng(0).standard_normal((64, 48), dtype=np.float32)
WORK = workload_of_function(
    lambda x: (x @ Tensor.constant(W)).relu() @ Tensor.constant(W.T),
    (np.zeros((4, 64), np.float32),),
)
GRAPH = WORK.graph


def test_a_plan_and_its_graph_share_constants_and_hold_none():
    plan, graph = packed(WORK.plan), packed(GRAPH)
    assert plan.constants.keys() == graph.constants.keys() == set(plan.part.constants)
    assert sum(c.array.nbytes for c in plan.constants.values()) >= 2 * W.nbytes
    assert max(len(p.part.blob) for p in (plan, graph)) < W.nbytes


def test_what_is_unpacked_is_what_was_packed():
    plan, graph = packed(WORK.plan), packed(GRAPH)
    again = unpacked(plan.part, plan.constants)
    assert again == WORK.plan
    for mine, theirs in zip(again.buffers, WORK.plan.buffers, strict=True):
        assert (mine.data is None) == (theirs.data is None)
        assert mine.data is None or np.array_equal(mine.data.array, theirs.data.array)
    assert all(a is b for a, b in zip(unpacked(graph.part, graph.constants), GRAPH, strict=True))


def test_other_plans_have_other_names():
    assert packed(WORK.plan).name == packed(WORK.plan).name
    assert packed(WORK.plan).name != packed(GRAPH).name
