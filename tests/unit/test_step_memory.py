"""Bytes of temporary buffers that steps of training need, next to what PyTorch needs for them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.training import MODELS, drawn, step_of
from tunegrad.devices.cpu.device import device_of
from tunegrad.devices.host.facts import fingerprint
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import live_bytes
from tunegrad.ir.rewrites import guarded
from tunegrad.planning import plan_launches, prepared

EAGER = {
    "mlp": 2.94e6, "resnet18": 58.3e6, "resnet18_3x3": 187.1e6, "bert": 37.8e6, "gpt2": 40.1e6,
    "gpt6": 107.4e6, "unet": 47.2e6,
}  # fmt: skip
"""Of PyTorch 2.13's allocator in a step that begins without gradients, above parameters, momentum
and batch (its profiler's records of memory), rounded down.
"""
FAST = {"mlp", "gpt2"}


@pytest.mark.parametrize(
    "name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in EAGER]
)
def test_step_needs_no_more_memory_than_pytorch(name: str) -> None:
    """Ours holds no gradients besides; both count parameters, momentum and batch apart. The plan
    is the one that runs without a store, whose convolutions may be Winograd's tiles.
    """
    model = MODELS[name]
    parameters, x, y = drawn(model)
    both = [*parameters.values()] * 2
    state = [Tensor.input(f"state{i}", v.shape) for i, v in enumerate(both)]
    given = [
        Tensor.input(n, a.shape, "f32" if a.dtype.kind == "f" else "i64")
        for n, a in (("x", x), ("y", y))
    ]
    outputs = step_of(model, tuple(parameters))(*given, *state)
    news = tuple((1 + i, f"state{i}") for i in range(len(state)))
    target = device_of(2).target
    nodes, _ = guarded(tuple(t.node for t in outputs))
    graph = prepared(nodes, "contract", target, known=True)
    plan = plan_launches(graph, target, fingerprint(target), None, "contract", news=news).plan
    assert live_bytes(plan) <= EAGER[name]
