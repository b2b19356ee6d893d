"""A compiled function changes the arguments that it writes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import GradientError, ModelError

X, Y = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2, 3], np.float32)


def written(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    """Doubles x as it was, and adds y to its first row."""
    before = x * 2
    x[0] += y
    return before


def changed() -> np.ndarray[Any, Any]:
    wanted = X.copy()
    wanted[0] += Y
    return wanted


def test_array_is_written_to() -> None:
    program, x = tg.compile(written, X, Y, store=False), X.copy()
    assert np.array_equal(program(x, Y), X * 2)
    assert np.array_equal(x, changed())
    program(y=Y, x=x)
    assert np.array_equal(x[0], X[0] + 2 * Y)


def test_tensor_has_the_new_value_and_so_have_its_views() -> None:
    program, x = tg.compile(written, X, Y, store=False), tg.Tensor(X)
    row, lazy = x[0], x + 1
    program(x, Y)
    assert np.array_equal(x.numpy(), changed())
    assert np.array_equal(row.numpy(), changed()[0])
    assert np.array_equal(lazy.numpy(), X + 1)


def test_view_that_is_given_changes_its_base() -> None:
    program, base = tg.compile(written, X, Y, store=False), tg.zeros(3, 4)
    program(base.T[:2, :], Y)
    wanted = np.zeros((3, 4), np.float32)
    wanted[:, 0] = Y
    assert np.array_equal(base.numpy(), wanted)


def test_leaf_that_is_given_stays_a_leaf() -> None:
    program, w = tg.compile(written, X, Y, store=False), tg.Tensor(X, requires_grad=True)
    program(w, Y)
    assert w.is_leaf
    (w * 2).sum().backward()
    assert w.grad is not None
    assert np.array_equal(w.detach().numpy(), changed())


def test_function_that_only_writes_gives_none() -> None:
    def doubled(x: tg.Tensor) -> None:
        x.mul_(2)

    x = Y.copy()
    assert tg.compile(doubled, Y, store=False)(x) is None  # type: ignore[arg-type]
    assert x.tolist() == [2.0, 4.0, 6.0]


def test_changed_argument_can_be_a_result_too() -> None:
    def more(x: tg.Tensor) -> tg.Tensor:
        x += 1
        return x

    x = Y.copy()
    assert tg.compile(more, Y, store=False)(x).tolist() == [2.0, 3.0, 4.0]
    assert x.tolist() == [2.0, 3.0, 4.0]


def test_write_that_is_undone_changes_nothing() -> None:
    def same(x: tg.Tensor) -> tg.Tensor:
        before = x.clone()
        x.zero_()
        x.copy_(before)
        return before * 2

    fixed = Y.copy()
    fixed.flags.writeable = False
    assert tg.compile(same, Y, store=False)(fixed).tolist() == [2.0, 4.0, 6.0]


def test_views_of_arguments_are_one_program() -> None:
    def step(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        low, high = x[1:], x[:-1]
        low += high
        y.copy_(x.T)
        return low.sum()

    square = np.arange(9, dtype=np.float32).reshape(3, 3)
    x, y = square.copy(), np.zeros((3, 3), np.float32)
    total = tg.compile(step, x, y, store=False)(x, y)
    wanted = square.copy()
    wanted[1:] += square[:-1]
    assert np.array_equal(x, wanted)
    assert np.array_equal(y, wanted.T)
    assert total == wanted[1:].sum()


def test_step_of_training_is_written_as_in_pytorch() -> None:
    def step(w: tg.Tensor, moment: tg.Tensor, x: tg.Tensor) -> tg.Tensor:
        leaf = w.detach().requires_grad_()
        loss = ((x @ leaf) ** 2).mean()
        loss.backward()
        moment.mul_(0.5).add_(leaf.grad)
        w -= 0.1 * moment
        return loss

    w, m = tg.Tensor(X.T / 4), tg.zeros(3, 2)
    program = tg.compile(step, w, m, X, store=False)
    losses = [float(program(w, m, X)) for _ in range(6)]
    assert losses[-1] < losses[0] / 4
    assert not w.requires_grad


def test_saved_program_changes_its_argument(tmp_path: Path) -> None:
    tg.compile(written, X, Y, store=False).save(tmp_path / "w.plan")
    program, x = tg.load(str(tmp_path / "w.plan")), tg.Tensor(X)
    assert np.array_equal(program(x, Y), X * 2)
    assert np.array_equal(x.numpy(), changed())


def test_changed_argument_must_be_writable() -> None:
    program, fixed = tg.compile(written, X, Y, store=False), X.copy()
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="'x' is donated, and its array is read-only"):
        program(fixed, Y)
    with pytest.raises(TypeError, match="'x' is donated, so it must be an array"):
        program(X.tolist(), Y)


def test_arguments_that_share_elements_are_refused() -> None:
    def swapped(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        x += y
        return x

    program = tg.compile(swapped, Y, Y, store=False)
    x, t = Y.copy(), tg.Tensor(Y)
    with pytest.raises(ValueError, match="'x' is donated, and shares memory with input 'y'"):
        program(x, x)
    with pytest.raises(ValueError, match="'x' is changed, and shares elements with input 'y'"):
        program(t, t[:])
    assert t.tolist() == x.tolist() == Y.tolist()


def test_donated_argument_is_not_changed_as_well() -> None:
    with pytest.raises(ModelError, match="input x is donated, and the function changes it, too"):
        tg.compile(written, X, Y, store=False, donate=["x"])


def test_tensor_that_is_no_argument_is_not_changed() -> None:
    kept = tg.zeros(3)
    row = kept[1:]

    def counted(x: tg.Tensor) -> tg.Tensor:
        row.add_(x[1:])
        return x * 2

    with pytest.raises(ModelError, match=r"changes .* which is none of its arguments"):
        tg.compile(counted, Y, store=False)
    assert kept.tolist() == [0.0, 0.0, 0.0]
    assert row.tolist() == [0.0, 0.0]


def test_tensor_that_the_function_makes_is_written_to_freely() -> None:
    def table(x: tg.Tensor) -> tg.Tensor:
        made = tg.zeros(2, 3)
        made[1] = x
        made[0, ::2] += made[1, 1:] * 2
        return made

    found = tg.compile(table, Y, store=False)(Y)
    assert found.tolist() == [[4.0, 0.0, 6.0], [1.0, 2.0, 3.0]]


def test_leaf_is_not_written_to_by_a_compiled_function_either() -> None:
    def step(w: tg.Tensor) -> tg.Tensor:
        w.requires_grad_()
        w += 1
        return w

    with pytest.raises(GradientError, match="changed in place"):
        tg.compile(step, Y, store=False)
