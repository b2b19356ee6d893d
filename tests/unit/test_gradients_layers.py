"""Gradients of layers with respect to their parameters, and training with them, as PyTorch's."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests.gradients import values, weights
from tunegrad.errors import WeightsError

nn = tg.nn
LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (lambda nn: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), (3, 4)),
    "images": (
        lambda nn: nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.GELU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3),
        ), (2, 2, 8, 8),
    ),
    "turned images": (lambda nn: nn.ConvTranspose2d(2, 3, 3, 2, 1, 1), (1, 2, 3, 4)),
    "norms": (lambda nn: nn.Sequential(nn.LayerNorm(4), nn.SiLU(), nn.LayerNorm(4)), (3, 4)),
    "lstm": (lambda nn: nn.LSTM(4, 3, batch_first=True), (2, 3, 4)),
    "gru": (lambda nn: nn.GRU(4, 3), (3, 2, 4)),
    "encoder": (
        lambda nn: nn.TransformerEncoderLayer(
            8, 2, 12, dropout=0.0, activation="gelu", batch_first=True
        ), (2, 3, 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_layers_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    theirs, ours = make(torch.nn), make(nn)
    ours.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    given = torch.tensor(x, requires_grad=True)
    wanted = theirs(given)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    (wanted * torch.tensor(weights(tuple(wanted.shape)))).sum().backward()

    def loss(parameters: dict[str, tg.Tensor], x: tg.Tensor) -> tg.Tensor:
        y = nn.functional_call(ours, parameters, x)
        y = y[0] if isinstance(y, tuple) else y
        return (y * weights(y.shape).astype(np.float32)).sum()

    slopes, slope = tg.grad(loss, (0, 1))(ours.state_dict(), x)
    rows = [(slope, given.grad), *((slopes[n], p.grad) for n, p in theirs.named_parameters())]
    for found, want in zip(values([r[0] for r in rows]), [r[1].numpy() for r in rows], strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-5 * max(1, np.abs(want).max()))


def test_layers_keep_their_weights_where_others_are_given_for_a_call() -> None:
    layer = nn.Linear(2, 1, bias=False)
    layer.load({"weight": np.array([[1.0, 2.0]], np.float32)})
    x = tg.Tensor(np.ones((1, 2), np.float32))
    found = nn.functional_call(layer, {"weight": np.array([[3.0, 4.0]], np.float32)}, x)
    assert (found.item(), layer(x).item()) == (7, 3)
    with pytest.raises(WeightsError, match="no such parameter"):
        nn.functional_call(layer, {"bias": np.ones(1, np.float32)}, x)
    with pytest.raises(WeightsError, match=r"shape \(1,\)"):
        nn.functional_call(layer, {"weight": np.ones(1, np.float32)}, x)


def test_calls_with_given_parameters_in_two_threads_do_not_meet() -> None:
    both = threading.Barrier(2)

    class Waiting(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(1, 1, bias=False)

        def forward(self, x: tg.Tensor) -> tg.Tensor:
            self.meet()
            y = self.layer(x)
            self.meet()
            return y

        def meet(self) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.3)  # both are here at once only where nothing keeps them apart

    model = Waiting()
    model.load({"layer.weight": np.full((1, 1), 5, np.float32)})
    x = tg.Tensor(np.ones((1, 1), np.float32))

    def called(weight: float) -> float:
        given = {"layer.weight": np.full((1, 1), weight, np.float32)}
        return float(nn.functional_call(model, given, x).item())

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(called, (2.0, 3.0))) == [2, 3]
    assert model(x).item() == 5


def test_training_a_perceptron_gives_pytorchs_losses() -> None:
    """Plain descent, compiled once, for 30 steps."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    theirs = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 5))
    ours = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 5))
    ours.load_state_dict(theirs.state_dict())
    parameters = ours.state_dict()
    rng = np.random.default_rng(5)
    data = rng.standard_normal((64, 16)).astype(np.float32)
    classes = rng.integers(0, 5, 64)
    names = list(parameters)

    def step(x: tg.Tensor, t: tg.Tensor, *given: tg.Tensor) -> list[tg.Tensor]:
        def loss(parameters: dict[str, tg.Tensor]) -> tg.Tensor:
            return nn.functional.cross_entropy(nn.functional_call(ours, parameters, x), t)

        value, slopes = tg.value_and_grad(loss)(dict(zip(names, given, strict=True)))
        return [value, *(p - 0.5 * slopes[n] for n, p in zip(names, given, strict=True))]

    batch, labels = data[:16], classes[:16]
    compiled = tg.compile(step, batch, labels, *parameters.values())
    descent = torch.optim.SGD(theirs.parameters(), lr=0.5)
    state = list(parameters.values())
    for i in range(30):
        at = slice(16 * (i % 4), 16 * (i % 4) + 16)
        value, *state = compiled(data[at], classes[at], *state)
        descent.zero_grad()
        y = theirs(torch.tensor(data[at]))
        wanted = torch.nn.functional.cross_entropy(y, torch.tensor(classes[at]))
        wanted.backward()
        descent.step()
        np.testing.assert_allclose(float(value), wanted.item(), rtol=1e-4)
    for found, p in zip(state, theirs.parameters(), strict=True):
        np.testing.assert_allclose(np.asarray(found), p.detach().numpy(), rtol=1e-3, atol=1e-5)
