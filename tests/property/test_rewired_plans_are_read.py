"""Passes that move, repeat and redirect launches leave none that nothing reads: random plans of
training steps, wired at random or made of gradients.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tunegrad as tg
from tests import fuzzing
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import (
    Buffer,
    Fusion,
    Launch,
    LaunchPlan,
    New,
    in_place,
    least_memory,
    recompute,
    recomputed,
)
from tunegrad.ir.layout import Layout

SHAPE = (4, 4)
VIEW_BYTES = 64


@pytest.fixture(autouse=True)
def _anything_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it costs decides nothing here."""
    monkeypatch.setattr(recompute, "_SHARE", 4.0)


def _launch_kinds() -> list[Launch]:
    """Of one input or two and one result or two, elementwise or a product."""
    x, y = (Tensor.input(n, SHAPE, "f32") for n in "xy")
    graphs = [[x.exp()], [x * 2 - y], [x.tanh(), x * 3], [x + y, x - y], [x @ y]]
    made = [Fusion.of(tuple(t.node for t in g)).schedule().launches for g in graphs]
    assert [len(launches) for launches in made] == [1] * len(graphs)
    return [launches[0] for launches in made]


def _wired(rng: random.Random, kinds: list[Launch]) -> tuple[LaunchPlan, list[New]]:
    """Launches that read what others wrote, mostly what is new; none that nothing needs. The last
    results are new values of inputs.
    """
    layout, dtype = Layout.row_major(SHAPE), kinds[0].kernel.outputs[0].dtype
    inputs = rng.randint(2, 4)
    buffers = [Buffer(i, dtype, SHAPE, layout, "input", f"w{i}") for i in range(inputs)]
    launches: list[Launch] = []
    for _ in range(rng.randint(4, 20)):
        kind, ready = rng.choice(kinds), len(buffers)
        args: list[int] = []
        for p in kind.kernel.params:
            if p.role == "out":
                args.append(len(buffers))
                name = f"t{len(buffers)}"
                buffers.append(Buffer(len(buffers), dtype, SHAPE, layout, "temp", name))
            else:
                near = range(max(0, ready - 5), ready) if rng.random() < 0.7 else range(ready)
                args.append(rng.choice([i for i in near if i not in args]))
        launches.append(replace(kind, args=tuple(args)))
    results = [b.id for b in buffers if b.role == "temp"]
    outputs = results[-rng.randint(1, inputs) :]
    needed, kept = set(outputs), list[Launch]()
    for x in reversed(launches):
        if not needed.isdisjoint(x.writes):
            needed |= set(x.args)
            kept.append(x)
    for i in outputs:
        buffers[i] = replace(buffers[i], role="output")
    plan = LaunchPlan(tuple(buffers), tuple(kept[::-1]), tuple(range(inputs)), tuple(outputs))
    plan.verify()
    return plan, [(place, f"w{place}") for place in range(len(outputs))]


LAYERS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, w: x @ w,
    lambda x, w: (x @ w).tanh(),
    lambda x, w: tg.nn.functional.gelu(x) * w[0],
    lambda x, w: x - x.mean(-1, keepdim=True) * 0.5,
    lambda x, w: x.softmax(-1) + w[0],
    lambda x, w: x.relu() @ w + x,
    lambda x, w: (x * w.sum(0)).where(x > 0.1, x * 0.5),
    lambda x, w: x.exp().contiguous() * w[1],
    lambda x, w: tg.cat([x[:, 1:], x[:, :1]], 1) * w[0],
)


def _trained(rng: random.Random) -> tuple[LaunchPlan, list[New]]:
    """The plan of a step with momentum of a few layers, some of them computed again."""
    count, n = rng.randint(1, 3), rng.choice((2, 6))
    given = [[Tensor.input(f"{kind}{i}", (n, n), "f32") for i in range(count)] for kind in "wm"]
    layers = [(rng.choice(LAYERS), rng.randrange(count)) for _ in range(rng.randint(2, 5))]
    again = rng.random() < 0.4

    def loss(weights: Any) -> Any:
        y = Tensor.input("x", (8, n), "f32")
        for layer, at in layers:
            y = tg.checkpoint(layer, y, weights[at]) if again else layer(y, weights[at])
        return (y * y).mean()

    value, slopes = tg.value_and_grad(loss)(given[0])
    moments = [m * 0.9 + s for m, s in zip(given[1], slopes, strict=True)]
    weights = [w - m * 0.1 for w, m in zip(given[0], moments, strict=True)]
    outputs = (*weights, *moments, value)
    plan = Fusion.of(tuple(t.node for t in outputs)).schedule()
    return plan, [(i, f"{'wm'[i // count]}{i % count}") for i in range(2 * count)]


def _rewired(plan: LaunchPlan, news: list[New], rng: random.Random) -> str:
    """Verify the plan after each pass; what became of it."""
    ordered = least_memory(plan)
    ordered.verify()
    again = recomputed(ordered)
    again.verify()
    last = least_memory(again)
    last.verify()
    in_place(last, sorted(rng.sample(news, rng.randint(1, len(news)))), VIEW_BYTES).verify()
    grown = len(again.launches) - len(ordered.launches)
    return "repeated" if grown else "as it was"


def test_every_launch_of_a_rewired_plan_is_read() -> None:
    kinds, found = _launch_kinds(), Counter[str]()
    for case in range(fuzzing.count(300)):
        rng = fuzzing.rng("rewired plans", case)
        found[_rewired(*_wired(rng, kinds), rng)] += 1
    assert found["repeated"], found


def test_every_launch_of_a_rewired_step_is_read() -> None:
    found = Counter[str]()
    for case in range(fuzzing.count(16)):
        rng = fuzzing.rng("rewired steps", case)
        found[_rewired(*_trained(rng), rng)] += 1
    assert found["repeated"], found
