"""Constants that share memory with their owner: equal ones stay two, and a write is no other's."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.frontend import Tensor


def view_of(array: np.ndarray) -> np.ndarray:
    """What a module of PyTorch hands over: a view that can not be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def test_equal_arrays_that_others_may_write_to_are_two_constants() -> None:
    a, b = np.zeros(4, "f4"), np.zeros(4, "f4")
    first, second = Tensor.constant(view_of(a)), Tensor.constant(view_of(b))
    assert first.node is not second.node
    a += 1
    np.testing.assert_array_equal(second.numpy(), np.zeros(4))


def test_one_array_is_one_constant_while_it_is_not_written_to() -> None:
    a = np.zeros(4, "f4")
    first = Tensor.constant(view_of(a))
    assert Tensor.constant(view_of(a)).node is first.node
    a += 1
    later = Tensor.constant(view_of(a))
    assert later.node is not first.node
    np.testing.assert_array_equal(later.numpy(), np.ones(4))


def test_equal_arrays_that_nobody_else_has_are_one_constant() -> None:
    a = np.zeros((2, 2), "f4")
    assert Tensor.constant(a).node is Tensor.constant([[0.0, 0.0], [0.0, 0.0]]).node
    assert Tensor.constant(a).node is Tensor.constant(a.copy()).node


def test_a_parameter_that_was_equal_to_another_model_s_has_its_own_values() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b, x = torch.nn.LayerNorm(8), torch.nn.LayerNorm(8), torch.randn(3, 8)
    first = tg.from_torch(a, x)
    kept = first.build(first.weights())  # its constants stay alive
    with torch.no_grad():
        a.bias.add_(1)
        a.weight.mul_(2)
        got, want = tg.load(tg.from_torch(b, x), store=False)(x.numpy()), b(x).numpy()
    np.testing.assert_allclose(got, want, atol=1e-5)
    del kept
