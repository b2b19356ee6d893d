"""Buffers share an arena: never two that live together, and close to the least that is possible."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from tunegrad.frontend import Model
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.models import encoder_layer, mlp, resnet18, resnet50
from tunegrad.runtime import Lifetime, lifetimes, lower_bound, plan_memory


def drawn(seed: int) -> list[Lifetime]:
    rng = random.Random(seed)
    steps = rng.randint(1, 30)
    found = []
    for _ in range(rng.randint(0, 60)):
        first = rng.randrange(steps)
        found.append(
            Lifetime(
                rng.choice((0, 1, 63, 64, 65, 1000, rng.randint(1, 1 << 20))),
                first,
                rng.randint(first, steps),
            )
        )
    return found


@pytest.mark.parametrize("seed", range(60))
def test_nothing_that_lives_together_overlaps(seed: int) -> None:
    plan = drawn(seed)
    arena = plan_memory(plan)
    for i, a in enumerate(plan):
        assert arena.offsets[i] % 64 == 0
        assert arena.offsets[i] + a.nbytes <= arena.nbytes
        for j in range(i):
            b = plan[j]
            if a.first <= b.last and b.first <= a.last:
                assert (
                    arena.offsets[i] + a.nbytes <= arena.offsets[j]
                    or arena.offsets[j] + b.nbytes <= arena.offsets[i]
                )


@pytest.mark.parametrize("seed", range(20))
def test_parts_overlap_nothing_that_lives_with_them(seed: int) -> None:
    rng = random.Random(seed)
    plan = drawn(100 + seed)
    for _ in range(3):
        sizes = [rng.randint(1, 3000) for _ in range(rng.randint(2, 8))]
        last = rng.randint(1, 30)
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        parts = [(at, Lifetime(n, rng.randint(0, last), last))
                 for at, n in zip(starts, sizes, strict=True)]  # fmt: skip
        first = min(x.first for _, x in parts)
        plan.append(Lifetime(sum(sizes), first, last, tuple(parts)))
    arena = plan_memory(plan)
    assert arena.nbytes >= lower_bound(plan)
    pieces = [
        (i, arena.offsets[i] + at, x) for i, whole in enumerate(plan) for at, x in whole.pieces
    ]
    for n, (i, at, a) in enumerate(pieces):
        assert at + a.nbytes <= arena.nbytes
        for j, there, b in pieces[:n]:
            if i != j and a.meets(b):
                assert at + a.nbytes <= there or there + b.nbytes <= at


def test_a_buffer_lies_where_parts_of_another_are_written_later() -> None:
    parts = ((0, Lifetime(640, 5, 9)), (640, Lifetime(64, 1, 9)))
    arena = plan_memory([Lifetime(704, 1, 9, parts), Lifetime(640, 0, 4)])
    assert arena.nbytes == 704


def test_nothing_needs_no_memory() -> None:
    assert plan_memory([]).nbytes == 0


def test_buffers_of_disjoint_lifetimes_share_an_address() -> None:
    arena = plan_memory([Lifetime(100, 0, 1), Lifetime(100, 2, 3)])
    assert (arena.offsets, arena.nbytes) == ((0, 0), 100)
    assert plan_memory([Lifetime(100, 0, 1), Lifetime(100, 0, 3)]).nbytes == 228


def test_a_kernel_never_writes_where_it_reads() -> None:
    arena = plan_memory([Lifetime(64, 0, 1), Lifetime(64, 1, 2)])
    assert sorted(arena.offsets) == [0, 64]


def test_the_plan_is_the_same_in_another_process() -> None:
    code = (
        "from tunegrad.runtime import Lifetime, plan_memory\n"
        f"print(plan_memory({[(x.nbytes, x.first, x.last) for x in drawn(7)]!r} and "
        f"[Lifetime(*t) for t in {[(x.nbytes, x.first, x.last) for x in drawn(7)]!r}]).offsets)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(plan_memory(drawn(7)).offsets)


@pytest.mark.parametrize(
    "model",
    [
        resnet18(image=64),
        resnet18(),
        resnet50(image=64),
        encoder_layer(sequence=16, hidden=64, heads=4, ffn=128),
        mlp(),
    ],
    ids=["resnet18 of 64", "resnet18 of 224", "resnet50 of 64", "encoder", "mlp"],
)
def test_the_peak_is_close_to_the_lower_bound(model: Model) -> None:
    outputs = model.build(model.weights())
    found = list(lifetimes(schedule(fold_constants(tuple(t.node for t in outputs)))).values())
    assert plan_memory(found).nbytes <= 1.15 * lower_bound(found)
