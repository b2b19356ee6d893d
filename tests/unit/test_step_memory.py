"""Bytes that temporary buffers of steps of training take, next to what PyTorch needs for them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.training import MODELS, drawn, our_step
from tunegrad.devices.cpu.device import device_of
from tunegrad.devices.host.facts import fingerprint
from tunegrad.ir.rewrites import guarded
from tunegrad.planning import plan_launches, prepared
from tunegrad.runtime import lifetimes, plan_memory

EAGER = {
    "mlp": 2940976, "resnet18": 58.3e6, "resnet18_3x3": 187.1e6, "resnet18_224": 211e6,
    "bert": 37.8e6, "gpt2": 40.178e6, "gpt6": 107.4e6, "unet": 44.72e6,
}  # fmt: skip
"""Of PyTorch 2.13's allocator in a step that begins without gradients, above parameters, momentum
and batch (its profiler's records of memory).
"""
FAST = {"mlp", "gpt2"}


@pytest.mark.parametrize(
    "name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in EAGER]
)
def test_step_needs_no_more_memory_than_pytorch(name: str) -> None:
    """Both count parameters, momentum and batch apart. The plan is the one that runs without a
    store, whose convolutions may be Winograd's tiles, and the memory is its arena's.
    """
    parameters, x, y = drawn(MODELS[name])
    step = our_step(MODELS[name], parameters).step_model(x, y)
    target = device_of(2).target
    outputs = tuple(t.node for t in step.build({}))
    nodes, _ = guarded(outputs)
    graph = prepared(nodes, "contract", target, model=True)
    news = step.news(outputs)
    plan = plan_launches(graph, target, fingerprint(target), None, "contract", news=news).plan
    assert plan_memory(tuple(lifetimes(plan).values())).nbytes <= EAGER[name]
