"""A tensor that meets itself in a sum of products is two parameters of one buffer.

Scores of attention read queries and keys from one projection: they are a matrix product, and get
the default schedule of one.
"""

import numpy as np
import pytest
from tensor_values import numbers, same

from tunegrad.devices import host_device
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.opts import Space
from tunegrad.planning import prepared

TOKENS, HEADS, WIDTH = 37, 3, 16


def scores(x: Tensor, y: Tensor) -> Tensor:
    """Of queries in ``x`` and keys in ``y``, both (token, which, head, width)."""
    q = x.reshape(TOKENS, 3, HEADS, WIDTH).permute(1, 2, 0, 3)[0]
    k = y.reshape(TOKENS, 3, HEADS, WIDTH).permute(1, 2, 0, 3)[1]
    return q @ k.transpose(-2, -1)


def plan_of(tensor: Tensor):
    return schedule(prepared((tensor.node,), "contract", host_device(2).target))


def projection(name: str) -> Tensor:
    return Tensor.input(name, (TOKENS, 3 * HEADS * WIDTH))


def test_scores_of_a_fused_projection_are_the_product_of_separate_ones() -> None:
    x = projection("x")
    (fused,) = plan_of(scores(x, x)).launches
    (apart,) = plan_of(scores(x, projection("y"))).launches
    assert fused.name == apart.name == f"matmul {HEADS}x{TOKENS}x{TOKENS}x{WIDTH}"
    assert fused.kernel.key == apart.kernel.key
    assert fused.args[1] == fused.args[2]


def test_second_factor_of_a_product_with_itself_is_packed_by_default() -> None:
    x = Tensor.input("x", (256, 64))
    (launch,) = plan_of(x[:128] @ x[128:].T).launches
    actions = Space(launch.kernel, host_device(2).target).defaults()[0].text
    assert "stage(param=p2" in actions


def test_scores_of_a_fused_projection_equal_numpy() -> None:
    data = numbers(TOKENS, 3 * HEADS * WIDTH)
    parts = data.reshape(TOKENS, 3, HEADS, WIDTH).transpose(1, 2, 0, 3)
    x = Tensor(data)
    same(scores(x, x), parts[0] @ parts[1].transpose(0, 2, 1), 1e-4)


def test_gram_matrix_is_a_product_of_two_parameters() -> None:
    x = Tensor.input("x", (24, 40))
    (launch,) = plan_of(x @ x.T).launches
    assert launch.name == "matmul 24x24x40"


@pytest.mark.parametrize("power", [2, 3])
def test_sum_of_powers_reads_one_parameter(power: int) -> None:
    x = Tensor.input("x", (24, 40))
    (launch,) = plan_of((x**power if power == 2 else x * x * x).sum(-1)).launches
    assert len(launch.kernel.params) == 2


def test_gram_matrix_equals_numpy() -> None:
    data = numbers(24, 40)
    same(Tensor(data) @ Tensor(data).T, data @ data.T, 1e-4, np.float32)
