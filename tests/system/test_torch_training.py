"""``torch.compile(module, backend="tunegrad")`` in a training loop: as PyTorch trains."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, F = torch.nn, torch.nn.functional
backends = pytest.importorskip("tunegrad.torch")

QUIET = {"store": False, "threads": 1}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models that the backend loads."""
    seen: list[Any] = []
    original = backends.load

    def counted(model: Any, **settings: Any) -> Any:
        seen.append(model)
        return original(model, **settings)

    monkeypatch.setattr(backends, "load", counted)
    return seen


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend="tunegrad", options={**QUIET, **options})


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, 1e-3)


def images(i: int, rows: int = 4, channels: int = 1, side: int = 8, classes: int = 5) -> Any:
    torch.manual_seed(i)
    return torch.randn(rows, channels, side, side), torch.randint(classes, (rows,))


def classified(f: Any, x: Any, y: Any) -> Any:
    return F.cross_entropy(f(x), y)


def trained(
    module: Any, data: Callable[[int], Any], loss: Any, optimizer: Any = sgd, steps: int = 4
) -> list[Any]:
    """Train copies in PyTorch and here; losses, weights and statistics are the same.

    The gradients of some weights are nothing but rounding, and Adam scales these up: they are left
    out, by their size in PyTorch.
    """
    theirs, mine = module, copy.deepcopy(module)
    ends = []
    for m, f in ((theirs, theirs), (mine, compiled(mine))):
        made = optimizer(m.parameters())
        losses = []
        for i in range(steps):
            batch = data(i)
            made.zero_grad()
            torch.manual_seed(i)
            found = loss(f, *batch)
            found.backward()
            made.step()
            losses.append(found.item())
        ends.append(losses)
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-3, atol=1e-5)
    gradients = {n: p.grad for n, p in theirs.named_parameters()}
    for name, want in theirs.state_dict().items():
        gradient = gradients.get(name)
        if gradient is None or float(gradient.abs().max()) > 1e-6:
            got = mine.state_dict()[name]
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3 * float(want.abs().max()))
    return ends


def mlp() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 5))


def lenet() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.2), nn.Conv2d(4, 6, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(6, 5),
    )  # fmt: skip


def test_an_mlp_trains_as_in_pytorch(loads: list[Any]) -> None:
    trained(mlp(), images, classified)
    assert len(loads) == 2  # forward and backward


def test_a_convolution_network_with_batch_statistics_and_dropout_trains_as_in_pytorch(
    loads: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Masks of dropout are PyTorch's own, so that the losses are the same."""
    with caplog.at_level(logging.WARNING, logger="tunegrad.torch"):
        trained(lenet(), images, classified, adam)
    assert len(loads) == 2
    assert not caplog.records
