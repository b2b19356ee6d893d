"""Random networks of images: channels-last, row-major or with blocked channels, they compute the
same.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.graph_builders import add, conv, max_pool, relu, run_schedule, tensor, weight
from tests.graph_fuzzer import random_inputs
from tunegrad.ir import graph as g
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import LAST, ROWS, Fusion, Images, blocked
from tunegrad.ir.fusion.axes import all_indices
from tunegrad.ir.graph import Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.verify.kernel import verify_kernel

FORMS = (LAST, ROWS, blocked(4), blocked(2))
CHANNELS = (2, 3, 4, 6, 8, 12)


def network(rng: random.Random, groups: bool) -> Node:
    """Convolutions of any stride, sums of images, pools, channels cut and flipped, a mean."""
    x = tensor(
        "x", rng.choice((1, 1, 2)), rng.choice(CHANNELS), rng.randint(4, 7), rng.randint(4, 7)
    )
    for i in range(rng.randint(2, 5)):
        n, c, h, w = x.shape
        kind = rng.choice(("conv", "conv", "conv", "residual", "pool", "cut", "relu"))
        size = rng.choice((1, 3)) if min(h, w) > 2 else 1
        if kind == "conv":
            parts = rng.choice([d for d in (1, 1, 2, c) if c % d == 0]) if groups else 1
            out = rng.choice([o for o in CHANNELS if o % parts == 0] or [parts])
            x = conv(
                x,
                weight(f"w{i}", out, c // parts, size, size),
                rng.choice((1, 1, 2)),
                size // 2,
                parts,
            )
        elif kind == "residual":
            x = relu(add(conv(relu(x), weight(f"w{i}", c, c, size, size), 1, size // 2), x))
        elif kind == "pool" and min(h, w) > 2:
            x = max_pool(x)
        elif kind == "cut" and groups:
            begin = rng.randrange(c)
            x = g.flip(
                g.shrink(x, ((0, n), (begin, rng.randint(begin + 1, c)), (0, h), (0, w))), (1,)
            )
        else:
            x = relu(x)
    return g.reduce(Op.ADD, x, (2, 3)) if rng.random() < 0.3 else x


def check(seed: int, images: Images, groups: bool) -> int:
    """Compares one network with the meaning of its graph; how many tensors have blocked
    channels.
    """
    out = network(random.Random(seed), groups)
    fusion = Fusion.of((out,), images=images)
    plan = fusion.schedule()
    for launch in plan.launches:
        verify_kernel(launch.kernel)
        if not groups:  # every axis is used whole or by its digits
            assert sum(i.divisions() for i in all_indices(launch.kernel)) == 0, launch.kernel.text
    inputs = random_inputs(seed, (out,))
    (got,), (want,) = run_schedule(plan, inputs), evaluate((out,), inputs)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=f"network {seed}, {images}")
    return sum(len(b.layout.parts) > 4 for b in plan.buffers)


@pytest.mark.parametrize("groups", [False, True], ids=["dense", "groups-and-cuts"])
@pytest.mark.parametrize("images", FORMS, ids=str)
def test_networks_mean_the_same_in_every_form_of_images(images: Images, groups: bool) -> None:
    blocks = sum(check(seed, images, groups) for seed in range(40))
    assert (blocks > 10) == (images.form == "blocked")
