"""Bytes of temporary buffers that steps of training need, next to what PyTorch needs for them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import tunegrad as tg
from benchmarks.training import MODELS, OURS, drawn
from tunegrad.devices.cpu.device import device_of
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import LAST, live_bytes
from tunegrad.ir.rewrites import guarded
from tunegrad.planning import planned_as, prepared

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
    """Ours holds no gradients besides; both count parameters, momentum and batch apart."""
    model = MODELS[name]
    parameters, x, y = drawn(model)
    names = tuple(parameters)
    state = {n: Tensor.input(f"p{i}", v.shape) for i, (n, v) in enumerate(parameters.items())}
    speeds = {n: Tensor.input(f"v{i}", v.shape) for i, (n, v) in enumerate(parameters.items())}
    given = [
        Tensor.input(n, a.shape, "f32" if a.dtype.kind == "f" else "i64")
        for n, a in (("x", x), ("y", y))
    ]
    value, slopes = tg.value_and_grad(
        lambda p: model.loss(OURS, lambda name, *_, **__: p[name], *given)
    )(state)
    faster = {n: 0.9 * speeds[n] + slopes[n] for n in names}
    outputs = [value, *(state[n] - 0.01 * faster[n] for n in names), *faster.values()]
    many = len(names)
    news = [(1 + i, f"p{i}") for i in range(many)] + [(1 + many + i, f"v{i}") for i in range(many)]
    target = device_of(2).target
    nodes, _ = guarded(tuple(t.node for t in outputs))
    graph = prepared(nodes, "contract", target, known=True)
    plan = planned_as(graph, frozenset(), {}, LAST, target, tuple(news))
    assert live_bytes(plan) <= EAGER[name]
