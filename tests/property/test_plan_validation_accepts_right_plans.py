"""Plans of the rules, of every variant, form of images and toggle are validated against their
graphs: none is refused, and none left out but for
positions that are compared as floats.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tunegrad as tg
from tests import fuzzing
from tests.graph_builders import run_schedule
from tests.graph_fuzzer import literal_graph, random_graph, random_inputs
from tests.kernel_corpus import GRAPHS, graph_of
from tests.rewrite_graph_laws import VNNI
from tests.rewrite_laws import same
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U32, DType
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import (
    LAST,
    ROWS,
    Fusion,
    LaunchPlan,
    blocked,
    in_place,
    least_memory,
    recompute,
    recomputed,
    schedule,
    separated,
)
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.numeric import Array
from tunegrad.ir.validate import numbers, validation
from tunegrad.ir.variants import rewrite, variants_of
from tunegrad.planning import prepared

DTYPES = ((F32,), (F32, I32), (F32, BF16, F16), (F32, I32, BOOL, U8, I64), (F64, I8, U32))


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No run of before says what is right."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _plans(fusion: Fusion) -> Iterator[LaunchPlan]:
    for images in (LAST, ROWS, blocked(4)):
        plan = fusion.storing(images).schedule()
        yield plan
        for key, (k, _) in plan.kernels().items():
            for variant in variants_of(k)[1:]:
                yield rewrite(plan, {key: variant})
    places = [*range(len(fusion.drafts.order)), *fusion.drafts.attentions()]
    for place in places:
        yield fusion.toggled({place}).schedule()


@pytest.mark.parametrize("name", GRAPHS)
def test_every_plan_of_the_corpus_is_validated(name: str) -> None:
    fusion = Fusion.of(graph_of(name))
    for plan in _plans(fusion):
        found = validation(plan, fusion.drafts.targets)
        assert found.buffers
        assert not found.left_out


def test_random_graphs_are_validated() -> None:
    for case in range(fuzzing.count(150)):
        rng = fuzzing.rng("plan validation", case)
        outputs = random_graph(rng, rng.choice((4, 8, 15, 25)), rng.choice(DTYPES))
        for graph in (outputs, fold_constants(outputs)):
            assert not validation(schedule(graph)).left_out


def _layer_of_bytes(rng: random.Random) -> Tensor:
    """A convolution of dequantised bytes, and what comes behind it, in bytes again or in floats."""
    drawn = np.random.default_rng(rng.randrange(1 << 30))
    kind, taps, stride = rng.choice(("u8", "i8")), rng.choice((1, 3, 3)), rng.choice((1, 1, 2))
    channels, outputs, last = rng.choice((8, 12, 32)), rng.choice((5, 8, 16)), rng.random() < 0.5
    shape = rng.randint(1, 2), channels, rng.randint(4, 9), rng.randint(4, 9)
    x = Tensor.input("x", tuple(shape[d] for d in (0, 2, 3, 1)) if last else shape, kind)
    x = (x.permute(0, 3, 1, 2) if last else x).cast("f32")
    x = (x - Tensor.constant(np.int8(rng.choice((0, 3, 100)))).cast("f32")) * 0.0173
    weights = drawn.integers(-128, 128, (outputs, channels, taps, taps)).astype(np.int8)
    scales = drawn.uniform(0.001, 0.003, (rng.choice((1, outputs)), 1, 1, 1)).astype(np.float32)
    zero = Tensor.constant(np.int8(rng.choice((0, 0, 5, -90)))).cast("f32")
    w = (Tensor.constant(weights).cast("f32") - zero) * Tensor.constant(scales)
    y = x.conv2d(w, padding=rng.randrange(taps), stride=stride)
    if rng.random() < 0.6:
        y = y + Tensor.constant(drawn.uniform(1, 2, (outputs, 1, 1)).astype(np.float32))
    y = y + Tensor.input("y", y.shape, "u8").cast("f32") * 0.02 if rng.random() < 0.3 else y
    y = y.relu() if rng.random() < 0.5 else y
    if rng.random() < 0.6:
        y = ((y / rng.choice((0.03, 0.5, 2.0))).round() + 7.0).clamp(0.0, 255.0).cast("u8")
    return y.permute(0, 2, 3, 1) if last and rng.random() < 0.7 else y


def test_a_deep_network_behind_a_part_that_is_not_read_is_left_out() -> None:
    """Heads of a detector: joined, joined again, and taken apart. Behind one element of what was
    joined beside it lie 16^25 terms of reductions.
    """
    weights = [np.random.default_rng(i).standard_normal((16, 16), np.float32) for i in range(24)]
    x = Tensor.input("x", (4, 16))
    for w in weights:
        x = (x @ w).relu()
    left, right = x @ weights[0], (x @ weights[1])[:, :8].relu()
    joined = tg.cat([tg.cat([part, right], 1) for part in (left, left * 2)], 0)
    outputs = joined[:, :16].softmax(1).node, joined[:, 16:].sigmoid().node
    assert not validation(schedule(fold_constants(outputs))).left_out


def test_bytes_on_floats_are_validated() -> None:
    """A model whose plan is refused does not load."""
    found: set[str] = set()
    for case in range(fuzzing.count(60)):
        rng = fuzzing.rng("bytes on floats", case)
        fusion = Fusion.of(prepared((_layer_of_bytes(rng).node,), "contract", VNNI))
        plan = fusion.storing(rng.choice((LAST, ROWS))).schedule()
        for key, (k, _) in plan.kernels().items():
            for variant in (v for v in variants_of(k) if v.startswith(("floats", "exact"))):
                made = validation(rewrite(plan, {key: variant}), fusion.drafts.targets)
                assert not made.left_out
                found.add(variant)
    wanted = {"exact_winograd4", "floats", "floats_winograd2", "floats_winograd4"}
    assert found == wanted or fuzzing.count(60) < 60


def test_graphs_of_literals_at_some_positions_are_validated() -> None:
    for case in range(fuzzing.count(150)):
        rng = fuzzing.rng("literals", case)
        outputs = literal_graph(rng, rng.choice(((F32,), (F16, BF16), (F64, I8, I32))))
        assert not validation(schedule(outputs)).left_out


def _flat_step(rng: random.Random) -> tuple[Node, ...]:
    """New values of a flat state and of its moment by a gradient that lies in parts, and what is
    read of that besides.
    """
    x, y = Tensor.input("x", (12, 16)), Tensor.input("y", (12, 16)).tanh()
    kinds: list[Callable[[int], Tensor]] = [
        lambda n: (x.T @ Tensor.input(f"g{n}", (12, n))).reshape(-1),
        lambda n: (y + float(n)).square().sum(rng.randrange(2)),
        lambda n: (y[: n % 12 + 1] - float(n)).reshape(-1).contiguous(),
    ]
    parts = [rng.choice(kinds)(n) for n in rng.sample(range(2, 40), rng.choice((2, 3, 20)))]
    parts += [(x * y).sum().reshape(1)] if rng.random() < 0.1 else []
    whole = tg.cat(parts, 0)
    whole = whole.contiguous() if rng.random() < 0.5 else whole
    w, m = (Tensor.input(n, whole.shape) for n in "wm")
    rate: Tensor | float = 0.9
    if rng.random() < 0.5:
        rate = Tensor.input("rates", (7,))[Tensor.input("k", whole.shape, "i32")]
    m = m * rate + whole
    outputs = [w - m * rng.choice((0.1, whole.square().sum(), whole, whole)), m]
    if rng.random() < 0.4:
        outputs.append(whole * 2.0)
    return tuple(t.node for t in outputs)


def test_plans_of_steps_are_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches in another order, some twice, in parts of a buffer, and over inputs."""
    monkeypatch.setattr(recompute, "_SHARE", 4.0)  # what it costs decides nothing here
    found = Counter[str]()
    for case in range(fuzzing.count(40)):
        rng = fuzzing.rng("steps in place", case)
        outputs = _flat_step(rng)
        plan = schedule(outputs, view_bytes=1)
        ordered = least_memory(recomputed(least_memory(plan)))
        made = in_place(ordered, [(0, "w"), (1, "m")], rng.choice((1, 4)))
        assert not validation(made).left_out
        inputs = random_inputs(case, outputs)
        if "k" in inputs:
            inputs["k"] %= 7
        wanted = run_schedule(plan, inputs)
        for a, b in zip(run_schedule(separated(made), inputs), wanted, strict=True):
            assert same(a, b), made
        found["over"] += bool(made.over)
        found["looked up in parts"] += bool(made.parts) and "k" in inputs
    assert min(found.values()) > 0, found


def test_both_sides_of_a_product_draw_its_elements_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    drawn = numbers.leaf

    def counted(seed: int, at: Array, dtype: DType) -> Array:
        sizes.append(at.size)
        return drawn(seed, at, dtype)

    monkeypatch.setattr(numbers, "leaf", counted)
    x, w = Tensor.input("x", (37, 1031), "f32"), Tensor.input("w", (1031, 53), "f32")
    assert not validation(schedule(((x @ w).node,))).left_out
    assert len([n for n in sizes if n > 1031]) == 4  # few places by all terms, and many by some
