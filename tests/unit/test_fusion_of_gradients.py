"""How rules cut the graphs of gradients: images stay images, and factors of several products are
stored.
"""

from __future__ import annotations

from math import prod

import numpy as np
import tensor_values  # noqa: F401 - float32 throughout

import tunegrad as tg
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import LaunchPlan, schedule

BATCH, WIDE, SIDE = 4, 16, 6


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    """A convolution, then batch norm by the batch's own statistics, then relu."""
    y = tg.nn.functional.conv2d(x, weight, padding=1)
    mean = y.mean((0, 2, 3))
    var = ((y - mean.reshape(1, -1, 1, 1)) ** 2).mean((0, 2, 3))
    return y.batch_norm(None, None, mean, var).relu()


def loss(w0: Tensor, w1: Tensor, x: Tensor) -> Tensor:
    return (normalised(normalised(x, w0), w1) ** 2).mean()


def parameters() -> list[Tensor]:
    return [Tensor.input(f"w{i}", (WIDE, WIDE, 3, 3)) for i in range(2)]


def plan() -> LaunchPlan:
    x = Tensor.input("x", (BATCH, WIDE, SIDE, SIDE))
    slopes = tg.grad(loss, argnums=(0, 1))(*parameters(), x)
    return schedule(tuple(s.node for s in slopes))


def test_gradients_of_images_are_stored_channels_last() -> None:
    size = BATCH * WIDE * SIDE * SIDE
    images = [b for b in plan().buffers if b.role == "temp" and b.layout.size == size]
    assert len(images) >= 4
    assert all(len(b.shape) == 4 and not b.layout.is_row_major for b in images)


def test_factor_of_several_products_is_no_part_of_any() -> None:
    """A normalised image is a factor of the next convolution and of its weight's gradient."""
    sums = [r for x in plan().launches for r in x.kernel.reduces if x.name.startswith("conv")]
    assert len(sums) == 5
    assert not any(op in str(r.expr) for r in sums for op in ("fma", "max"))


def test_gradients_of_normalised_convolutions_are_those_of_differences() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, WIDE, SIDE, SIDE)).astype(np.float32)
    w = [0.3 * rng.standard_normal((WIDE, WIDE, 3, 3)).astype(np.float32) for _ in range(2)]
    found = [s.numpy() for s in tg.grad(loss, argnums=(0, 1))(*w, x)]
    for i in range(2):
        step = rng.standard_normal(w[i].shape).astype(np.float32) * 1e-2
        ends = [[v + sign * step if j == i else v for j, v in enumerate(w)] for sign in (1, -1)]
        high, low = (float(loss(*map(tg.Tensor, end), tg.Tensor(x)).numpy()) for end in ends)
        assert abs((high - low) / 2 - (found[i] * step).sum()) < 2e-3


def sums(*slopes: Tensor) -> list[int]:
    """Steps of the reduction of each kernel that is one."""
    launches = schedule(tuple(s.node for s in slopes)).launches
    return [prod(a.extent for a in r.axes) for x in launches for r in x.kernel.reduces]


def linear(x: Tensor, *weights: Tensor) -> Tensor:
    """Layers one after the other, without a bias."""
    for w in weights:
        x = tg.nn.functional.linear(x, w)
    return x


def test_three_products_of_one_input_send_back_three_products() -> None:
    x, *w = (Tensor.input(n, (32, 16)) for n in "xqkv")
    g = Tensor.input("g", (32, 32))

    def total(x: Tensor) -> Tensor:
        return sum((linear(x, v) * g * (i + 2) for i, v in enumerate(w)), tg.Tensor(0.0)).sum()

    plan = schedule((tg.grad(total)(x).node,))
    reduces = [r for launch in plan.launches for r in launch.kernel.reduces]
    assert [prod(a.extent for a in r.axes) for r in reduces] == [32, 32, 32]
    assert not any("add(" in str(r.expr) for r in reduces)


def test_gradient_of_a_bias_adds_up_what_flows_on() -> None:
    """The bias of the first of two layers reads the gradient that its weight reads, too."""
    x, w0, w1 = (Tensor.input(n, (16, 16)) for n in ("x", "w0", "w1"))
    g = Tensor.input("g", (16, 16))

    def total(b: Tensor, w0: Tensor) -> Tensor:
        return (linear(linear(x, w0) + b, w1) * g).sum()

    slopes = tg.grad(total, (0, 1))(Tensor.input("b", (16,)), w0)
    assert sorted(sums(*slopes)) == [16, 16, 16]


def test_products_read_what_a_relu_gives_and_compute_none() -> None:
    """The slope of a relu is read off its result, so that what it is taken of has no memory."""
    x, *weights = (Tensor.input(n, (16, 16)) for n in ("x", "w0", "w1"))

    def loss(w0: Tensor, w1: Tensor) -> Tensor:
        return (((x @ w0).relu() @ w1) ** 2).mean()

    made = schedule(tuple(s.node for s in tg.grad(loss, argnums=(0, 1))(*weights)))
    products = [r for x in made.launches for r in x.kernel.reduces]
    assert len(products) == 5
    assert not any("max" in str(r.expr) for r in products)


def test_slope_of_a_relu_is_one_where_its_argument_is_no_number() -> None:
    x = np.array([-1, -0.0, 0, 2, np.nan, np.inf], np.float32)
    found = tg.grad(lambda x: x.relu().sum())(x).numpy()
    np.testing.assert_array_equal(found, [0, 0, 0, 1, 1, 1])


def launched(*outputs: Tensor) -> int:
    return len(schedule(tuple(t.node for t in outputs)).launches)


def tail(x: Tensor, of: int) -> Tensor:
    """Three operations of numbers that are in memory, as the tail of a norm."""
    return (x * Tensor.input("scale", (of,)) + Tensor.input("shift", (of,))).relu()


def test_factor_of_one_product_is_stored_where_computing_it_again_takes_longer() -> None:
    """Each of 1,024 results of a row computes what it reads, for 32 results at a time."""
    x, wide, narrow = (Tensor.input(n, (s, 256)) for n, s in (("x", 512), ("w", 1024), ("v", 4)))
    assert launched(tg.nn.functional.linear(tail(x, 256), wide)) == 2
    assert launched(tg.nn.functional.linear(tail(x, 256), narrow)) == 1


def test_factor_of_few_numbers_is_no_launch_of_its_own() -> None:
    x, w = Tensor.input("x", (1, 64)), Tensor.input("w", (64, 64))
    assert launched(tg.nn.functional.linear(tail(x, 64), w)) == 1


def test_rows_factor_that_is_constant_along_a_sum_is_not_stored() -> None:
    """It is computed before the loops of the sum."""
    x, row = Tensor.input("x", (4096, 512)), Tensor.input("row", (4096, 1))
    assert launched((x * (row * 2 + 1).relu().expand(4096, 512)).sum(1)) == 1


def test_normalised_image_of_one_convolution_is_stored_and_windows_of_it_are_not() -> None:
    x, w = Tensor.input("x", (1, 32, 28, 28)), Tensor.input("w", (64, 32, 3, 3))
    scale, shift = (Tensor.input(n, (32, 1, 1)) for n in ("scale", "shift"))
    made = schedule((tg.nn.functional.conv2d((x * scale + shift).relu(), w, padding=1).node,))
    assert [b.layout.size for b in made.buffers if b.role == "temp"] == [32 * 28 * 28]


def test_joined_images_are_stored_for_a_product_and_not_for_windows() -> None:
    """Winograd's transform reads both images, once; a product would choose for each of its rows."""
    one, other = (Tensor.input(n, (1, 32, 28, 28)) for n in "xy")
    joined = tg.cat([one, other], 1)
    w1, w3 = Tensor.input("w", (128, 64, 1, 1)), Tensor.input("v", (64, 64, 3, 3))
    assert launched(tg.nn.functional.conv2d(joined, w1)) == 2
    assert launched(tg.nn.functional.conv2d(joined, w3, padding=1)) == 1


def test_joined_images_are_stored_for_windows_that_no_transform_reads() -> None:
    """A convolution around a ring chose among its ends for each row of each product: 1.29 times."""
    x, w = Tensor.input("x", (1, 128, 600)), Tensor.input("w", (128, 128, 3))
    ring = tg.cat([x[:, :, -4:], x, x[:, :, :4]], 2)
    assert launched(tg.nn.functional.conv1d(ring, w, dilation=4)) == 2
    one, other = (Tensor.input(n, (1, 32, 28, 28)) for n in "xy")
    strided = tg.nn.functional.conv2d(
        tg.cat([one, other], 1), Tensor.input("v", (64, 64, 3, 3)), stride=2, padding=1
    )
    assert launched(strided) == 2


def test_image_that_is_stored_for_a_1x1_convolution_is_an_image() -> None:
    """Its windows of one element are views; those of six dimensions are laid out as rows."""
    x, w = Tensor.input("x", (1, 64, 28, 28)), Tensor.input("w", (128, 64, 1, 1))
    scale = Tensor.input("scale", (64, 1, 1))
    made = schedule((tg.nn.functional.conv2d((x * scale).relu(), w).node,))
    assert [b.shape for b in made.buffers if b.role == "temp"] == [(1, 64, 28, 28)]
