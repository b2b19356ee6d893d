"""``loss.backward()``, ``grad`` and writes under gradients mean what they mean in PyTorch."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.errors import DTypeError, GradientError
from tunegrad.inference import realizing

W = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
X = np.arange(6, dtype=np.float32).reshape(2, 3) / 5


def leaf(array: Any = W) -> tg.Tensor:
    return tg.Tensor(array, requires_grad=True)


def in_both(program: Any) -> None:
    """Run a function of a library in both, and compare the lists that they give."""
    torch = pytest.importorskip("torch")
    for mine, theirs in zip(program(tg), program(torch), strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), 1e-5, 1e-6)


def test_loop_with_momentum_is_pytorchs() -> None:
    def loop(lib: Any) -> list[Any]:
        w, b, m = lib.tensor(W).requires_grad_(), lib.zeros(4).requires_grad_(), lib.zeros(3, 4)
        x, said = lib.tensor(X), []
        for _ in range(5):
            hidden = lib.relu(x @ w + b).softmax(-1)
            kept = lib.zeros(2, 4)
            kept[:, 1:] = hidden[:, 1:] * 2
            kept[0] += hidden[1]
            loss = (kept.mul_(3) ** 2).mean()
            loss.backward()
            said += [loss.item(), w.grad.tolist(), b.grad.tolist()]
            with lib.no_grad():
                m.mul_(0.9).add_(w.grad)
                w -= 0.5 * m
                b -= 0.5 * b.grad
            w.grad = None
        return [*said, w.tolist(), m.tolist()]

    in_both(loop)


def test_steps_of_a_loop_share_one_program() -> None:
    w, m, x = leaf(), tg.zeros(3, 4), tg.Tensor(X)
    plans = []
    for _ in range(5):
        loss = ((x @ w).tanh() ** 2).mean()
        loss.backward()
        with tg.no_grad():
            m.mul_(0.9).add_(w.grad)
            w -= 0.5 * m
        w.grad = None
        loss.item()
        plans.append(set(realizing._plans))
    assert plans[3] | plans[4] <= plans[2]


def test_module_trains_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")

    def network(nn: Any) -> Any:
        return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))

    theirs, ours = network(torch.nn).train(), network(tg.nn)
    state = {n: v.numpy().copy() for n, v in theirs.state_dict().items() if "batches" not in n}
    ours.load(state)
    ours.train()
    for lib, module in ((torch, theirs), (tg, ours)):
        x = lib.tensor(np.concatenate([X, X * 2 - 1, -X]))
        y = lib.tensor([0, 1, 2, 3, 0, 1])
        for _ in range(4):
            lib.nn.functional.cross_entropy(module(x), y).backward()
            with lib.no_grad():
                for p in module.parameters():
                    p -= 0.3 * p.grad
                    p.grad = None
    for name, array in ours.state_dict().items():
        np.testing.assert_allclose(array, theirs.state_dict()[name].numpy(), 1e-4, 1e-6)


def test_gradients_are_added_up() -> None:
    w = leaf()
    (w * 2).sum().backward()
    held = w.grad
    (w * w).sum().backward()
    assert held is w.grad
    np.testing.assert_allclose(np.asarray(held), 2 + 2 * W, 1e-6)
    w.grad = None
    assert w.grad is None


def test_write_to_a_leaf_is_refused_outside_no_grad() -> None:
    w = leaf()
    for write in (w.zero_, lambda: w[0].add_(1), lambda: w.T.mul_(2), lambda: w.assign(W)):
        with pytest.raises(GradientError, match="is changed in place; do so inside no_grad"):
            write()
    with tg.no_grad():
        w[0] += 1
    w.data[1] = 0
    w.detach().T[3] = 5
    assert w.requires_grad
    assert w.is_leaf
    wanted = W.copy()
    wanted[0] += 1
    wanted[1] = 0
    wanted[:, 3] = 5
    assert np.array_equal(np.asarray(w), wanted)


def test_loss_of_before_a_write_has_the_slope_of_before() -> None:
    w = leaf()
    loss = (w**2).sum()
    with tg.no_grad():
        w.zero_()
    loss.backward()
    np.testing.assert_allclose(np.asarray(w.grad), 2 * W, 1e-6)


def test_what_is_made_inside_no_grad_is_a_constant() -> None:
    w = leaf()
    with tg.no_grad():
        y, view = w * 2, w[0]
    assert not y.requires_grad
    assert not view.requires_grad
    (w * y).sum().backward()
    np.testing.assert_allclose(np.asarray(w.grad), 2 * W, 1e-6)


def test_write_inside_no_grad_is_not_recorded() -> None:
    def slopes(lib: Any) -> list[Any]:
        w = lib.tensor(W).requires_grad_()
        y = w * 3
        with lib.no_grad():
            y[0] = 7
        (y * lib.tensor(W)).sum().backward()
        return [w.grad.tolist()]

    in_both(slopes)


def test_gradient_of_a_result_is_retained() -> None:
    def slopes(lib: Any) -> list[Any]:
        w = lib.tensor(W).requires_grad_()
        y = (w * 3)[1:]
        y.retain_grad()
        (y**2).sum().backward()
        return [y.grad.tolist(), w.grad.tolist(), w.is_leaf, y.is_leaf]

    in_both(slopes)


def test_graph_is_kept_where_it_is_asked_for() -> None:
    w = leaf()
    loss = (w**3).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    np.testing.assert_allclose(np.asarray(w.grad), 6 * W**2, 1e-5)
    with pytest.raises(GradientError, match="made of no tensor that requires a gradient"):
        loss.backward()


def test_gradients_have_gradients_with_create_graph() -> None:
    w = leaf()
    (w**3).sum().backward(create_graph=True)
    slope, w.grad = w.grad, None
    assert slope is not None
    (slope * slope).sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(np.asarray(w.grad), 36 * W**3, 1e-5, 1e-6)


def test_gradient_of_several_elements_is_given() -> None:
    w = leaf()
    with pytest.raises(RuntimeError, match="several elements; give a gradient"):
        (w * 2).backward()
    with pytest.raises(RuntimeError, match=r"a gradient of shape \(2,\)"):
        (w * 2).backward(tg.ones(2))
    (w * 2).backward(tg.Tensor(W))
    np.testing.assert_allclose(np.asarray(w.grad), 2 * W, 1e-6)


def test_what_can_not_require_a_gradient_is_refused() -> None:
    with pytest.raises(DTypeError, match="gradients are of floats"):
        tg.ones(2, dtype="i64").requires_grad_()
    with pytest.raises(GradientError, match="made of tensors that require"):
        (leaf() * 2).requires_grad_(False)
    with pytest.raises(GradientError, match="backward"):
        tg.ones(()).backward()
    with pytest.raises(GradientError, match="has no gradient"):
        tg.ones(2).retain_grad()
    with pytest.raises(GradientError, match="grad"):
        leaf().grad = tg.ones(2)


def test_view_can_require_a_gradient_of_its_own() -> None:
    x = tg.Tensor(W)
    row = x[1].requires_grad_()
    (row * row).sum().backward()
    np.testing.assert_allclose(np.asarray(row.grad), 2 * W[1], 1e-6)
    row.requires_grad_(False)
    row += 1
    assert np.array_equal(np.asarray(x)[1], W[1] + 1)


def test_frozen_parameters_get_no_gradient() -> None:
    module = tg.nn.Sequential(tg.nn.Linear(3, 2), tg.nn.Linear(2, 1))
    module.load(seed=0)
    module[0].requires_grad_(False)
    module.train()
    module(tg.Tensor(X)).sum().backward()
    found = {n: p.grad is not None for n, p in module.named_parameters()}
    assert found == {"0.weight": False, "0.bias": False, "1.weight": True, "1.bias": True}
    module.zero_grad()
    assert all(p.grad is None for p in module.parameters())


def test_module_of_inference_has_constants() -> None:
    module = tg.nn.Linear(3, 2)
    module.load(seed=0)
    assert not module(tg.Tensor(X)).requires_grad
    assert module.weight.tensor.node.op == "const"


def test_loaded_weights_reach_those_who_hold_the_parameters() -> None:
    module = tg.nn.Linear(3, 2)
    module.load(seed=0)
    held = list(module.parameters())
    module.load({"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)})
    assert [p.tolist() for p in held] == [[[1.0] * 3] * 2, [0.0, 0.0]]
    assert held[0].requires_grad


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_a_leaf_are_leaves_of_their_own(copied: Any) -> None:
    w = leaf()
    other = copied(w)
    (other * 2).sum().backward()
    assert w.grad is None
    assert other.grad is not None
    assert other.is_leaf


def test_function_with_a_leaf_compiles_as_it_is() -> None:
    w = leaf()
    program = tg.compile(lambda x: (x @ w).softmax(-1), X, store=False)
    wanted = np.exp(X @ W)
    np.testing.assert_allclose(program(X), wanted / wanted.sum(-1, keepdims=True), 1e-5)


def test_backward_inside_a_compiled_function_is_part_of_it() -> None:
    def slope(w: tg.Tensor, x: tg.Tensor) -> tuple[tg.Tensor, Any]:
        w.requires_grad_()
        loss = ((x @ w) ** 2).sum()
        loss.backward()
        return loss, w.grad

    loss, found = tg.compile(slope, W, X, store=False)(W, X)
    np.testing.assert_allclose(found, 2 * X.T @ X @ W, 1e-5)
    np.testing.assert_allclose(loss, ((X @ W) ** 2).sum(), 1e-5)


def test_checkpoint_has_the_gradient_of_the_function() -> None:
    w, v = leaf(), leaf()
    tg.checkpoint(lambda a: (a.exp() * 2).tanh(), w).sum().backward()
    (v.exp() * 2).tanh().sum().backward()
    np.testing.assert_allclose(np.asarray(w.grad), np.asarray(v.grad), 1e-6)


def test_sign_that_is_copied_has_a_gradient_of_zeros_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    a, b = np.array([1.5, -2.0, 0.0, -0.0], np.float32), np.array([[-1.0], [2.0]], np.float32)
    given = [tg.tensor(x, requires_grad=True) for x in (a, b)]
    theirs = [torch.tensor(x, requires_grad=True) for x in (a, b)]
    (tg.copysign(*given) * 3.0).sum().backward()
    (torch.copysign(*theirs) * 3.0).sum().backward()
    for x, y in zip(given, theirs, strict=True):
        np.testing.assert_array_equal(x.grad.numpy(), y.grad.numpy())
