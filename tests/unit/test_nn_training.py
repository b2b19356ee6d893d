"""Modules in ``train()``: batch statistics, running ones, dropout, and how new values come out."""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import nn
from tunegrad.errors import ModelError, ShapeError
from tunegrad.frontend.random import draws_from, start_of

F = nn.functional
NORMS = [("BatchNorm1d", (6, 3)), ("BatchNorm1d", (4, 3, 5)), ("BatchNorm2d", (2, 3, 4, 4)),
         ("BatchNorm3d", (2, 3, 2, 3, 2))]  # fmt: skip


def drawn(shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 2 + 1).astype(np.float32)


def test_train_reaches_all_modules_and_eval_takes_it_back():
    net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3)))
    assert not any(m.training for m in net.modules())
    assert net.train() is net
    assert all(m.training for m in net.modules())
    assert net.eval() is net
    assert not any(m.training for m in net.modules())


@pytest.mark.parametrize(("name", "shape"), NORMS)
def test_batch_norms_normalise_by_the_batch_and_count_running_statistics(name, shape):
    norm = getattr(nn, name)(3, momentum=0.3).train()
    norm.load(seed=1)
    before, x = norm.state_dict(), drawn(shape)
    out = norm(tg.Tensor(x)).numpy()
    over = tuple(a for a in range(x.ndim) if a != 1)
    wide = x.astype(np.float64)
    mean, var = wide.mean(over), wide.var(over)
    spread = (1, 3, *(1 for _ in shape[2:]))
    wanted = (wide - mean.reshape(spread)) / np.sqrt(var + 1e-5).reshape(spread)
    wanted = wanted * before["weight"].reshape(spread) + before["bias"].reshape(spread)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
    after, count = norm.state_dict(), x.size // 3
    unbiased = var * count / (count - 1)
    np.testing.assert_allclose(
        after["running_mean"], 0.7 * before["running_mean"] + 0.3 * mean, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        after["running_var"], 0.7 * before["running_var"] + 0.3 * unbiased, rtol=1e-5
    )


def test_statistics_without_momentum_are_means_of_all_batches():
    torch = pytest.importorskip("torch")
    mine, theirs = nn.BatchNorm1d(3, momentum=None), torch.nn.BatchNorm1d(3, momentum=None)
    mine.load_state_dict(theirs.state_dict())
    mine.train()
    for seed in range(3):
        x = drawn((6, 3), seed)
        theirs(torch.tensor(x))
        mine(tg.Tensor(x))
    for name, wanted in theirs.state_dict().items():
        np.testing.assert_allclose(mine.state_dict()[name], wanted.numpy(), rtol=1e-5)


@pytest.mark.parametrize(("name", "shape"), NORMS)
def test_batch_norms_are_pytorchs_with_their_gradients(name, shape):
    torch = pytest.importorskip("torch")
    mine, theirs = getattr(nn, name)(3).train(), getattr(torch.nn, name)(3)
    mine.load(seed=2)
    held = {k: torch.tensor(v) for k, v in mine.state_dict().items()}
    theirs.load_state_dict(held, strict=False)
    x, g = drawn(shape), drawn(shape, 1)
    leaf = torch.tensor(x, requires_grad=True)
    out = theirs(leaf)
    out.backward(torch.tensor(g))
    weights = {n: w for n, w in mine.state_dict().items() if n in ("weight", "bias")}

    def loss(weights, x):
        y, after = nn.stateful_call(mine, {**mine.state_dict(), **weights}, x)
        return (y * g).sum(), (y, after)

    (_, (y, after)), (slopes, of_x) = tg.value_and_grad(loss, (0, 1), True)(weights, x)
    np.testing.assert_allclose(y.numpy(), out.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of_x.numpy(), leaf.grad.numpy(), rtol=1e-4, atol=1e-5)
    for n in weights:
        wanted = dict(theirs.named_parameters())[n].grad.numpy()
        np.testing.assert_allclose(slopes[n].numpy(), wanted, rtol=1e-4, atol=1e-4)
    for n in ("running_mean", "running_var"):
        wanted = dict(theirs.named_buffers())[n].numpy()
        np.testing.assert_allclose(after[n].numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_functional_call_leaves_a_modules_statistics_as_they_were():
    norm = nn.BatchNorm1d(2).train()
    norm.load(seed=0)
    before = norm.state_dict()
    _, after = nn.stateful_call(norm, before, tg.Tensor(drawn((4, 2))))
    assert set(after) == {"running_mean", "running_var"}
    assert not np.array_equal(after["running_mean"].numpy(), before["running_mean"])
    nn.functional_call(norm, before, tg.Tensor(drawn((4, 2))))
    for name, value in norm.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_statistics_that_a_compiled_function_would_lose_are_an_error():
    norm = nn.BatchNorm1d(2).train()
    norm.load(seed=0)
    with pytest.raises(ModelError, match=r"layer in train\(\) whose statistics change"):
        tg.compile(norm, drawn((4, 2)))


def test_one_value_a_channel_has_no_statistics():
    norm = nn.BatchNorm1d(2).train()
    norm.load(seed=0)
    with pytest.raises(ShapeError, match="has one value a channel"):
        norm(tg.Tensor(drawn((1, 2))))


@pytest.mark.parametrize(
    ("function", "shape", "whole"),
    [("dropout", (40, 50), 0), ("dropout1d", (30, 40, 3), 1), ("dropout2d", (30, 40, 2, 2), 2),
     ("dropout3d", (30, 40, 2, 1, 2), 3)],
)  # fmt: skip
def test_dropout_drops_a_share_and_scales_the_rest(function, shape, whole):
    tg.manual_seed(5)
    kept = getattr(F, function)(tg.ones(shape), 0.25, training=True).numpy()
    each = kept.reshape(*shape[: len(shape) - whole], -1)
    assert (each == each[..., :1]).all() or not whole
    share = (each[..., 0] == 0).mean()
    assert 0.2 < share < 0.3
    np.testing.assert_allclose(kept[kept != 0], 4 / 3, rtol=1e-6)


def test_dropout_of_all_gives_zeros_and_of_nothing_the_input():
    x = drawn((3, 4))
    assert (F.dropout(x, 1.0, training=True).numpy() == 0).all()
    np.testing.assert_array_equal(F.dropout(x, 0.0, training=True).numpy(), x)
    np.testing.assert_array_equal(F.dropout(x, 0.5).numpy(), x)


def test_a_probability_beyond_one_is_refused():
    with pytest.raises(ShapeError, match=r"dropout: p=1\.5 must be from 0 to 1"):
        F.dropout(tg.ones(3), 1.5, training=True)


def test_alpha_dropout_keeps_mean_and_variance():
    tg.manual_seed(6)
    x = np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32)
    found = F.alpha_dropout(x, 0.3, training=True).numpy()
    assert abs(found.mean()) < 0.02
    assert abs(found.std() - 1) < 0.02


def test_gradients_flow_through_what_was_kept():
    tg.manual_seed(7)
    x = np.ones((20, 20), np.float32)

    def dropped(x):
        y = F.dropout(x, 0.5, training=True)
        return y.sum(), y

    slope, y = tg.grad(dropped, has_aux=True)(x)
    np.testing.assert_array_equal(slope.numpy(), np.where(y.numpy() != 0, 2.0, 0.0))


def test_draws_of_a_program_count_from_its_input():
    def step(start, x):
        with draws_from(start) as draws:
            y = F.dropout(x, 0.5, training=True) + 2 * F.dropout(x, 0.5, training=True)
        return y, draws.rest()

    x, start = np.ones(64, np.float32), np.array(start_of(3), np.uint64)
    compiled = tg.compile(step, start, x)
    first, after = compiled(start, x)
    second, _ = compiled(after, x)
    again, _ = compiled(start, x)
    assert set(np.unique(first)) == {0.0, 2.0, 4.0, 6.0}
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, again)
    tg.manual_seed(3)
    eager = F.dropout(x, 0.5, training=True) + 2 * F.dropout(x, 0.5, training=True)
    np.testing.assert_array_equal(eager.numpy(), first)


def test_layers_of_a_transformer_drop_in_training_only():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
    layer.load(seed=0)
    x = tg.Tensor(drawn((2, 5, 8)))
    plain = layer(x).numpy()
    tg.manual_seed(1)
    first, second = (layer.train()(x).numpy() for _ in range(2))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(layer.eval()(x).numpy(), plain)


def test_recurrent_layers_drop_between_layers_only():
    x = tg.Tensor(drawn((3, 2, 4)))
    one, two = (nn.LSTM(4, 4, layers, dropout=0.9) for layers in (1, 2))
    for net, same in ((one, True), (two, False)):
        net.load(seed=0)
        plain = net(x)[0].numpy()
        assert np.array_equal(net.train()(x)[0].numpy(), plain) == same
