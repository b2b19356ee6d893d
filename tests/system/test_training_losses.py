"""Losses of networks in training beside PyTorch's in f64: equal weights, equal batches, ten steps.

In f32 PyTorch differs from itself by more than the limit: of ResNet-18, whose last norms see eight
numbers a channel, by 3.8e-3 between one and two threads after eight steps.
"""

from __future__ import annotations

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import nn
from tunegrad.nn import optim

F = nn.functional
torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Basic(torch.nn.Module):
    """torchvision's BasicBlock."""

    def __init__(self, channels, planes, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, planes, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(planes)
        self.conv2 = torch.nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or channels != planes:
            self.downsample = torch.nn.Sequential(
                torch.nn.Conv2d(channels, planes, 1, stride, bias=False),
                torch.nn.BatchNorm2d(planes),
            )

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet18(torch.nn.Module):
    """torchvision's resnet18, whose names of weights are ours."""

    def __init__(self, classes):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(64)
        channels = 64
        for i in range(4):
            blocks = []
            for j in range(2):
                blocks.append(Basic(channels, 64 << i, 2 if i and not j else 1))
                channels = 64 << i
            setattr(self, f"layer{i + 1}", torch.nn.Sequential(*blocks))
        self.fc = torch.nn.Linear(channels, classes)

    def forward(self, x):
        y = torch.nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        return self.fc(y.mean((2, 3)))


def compared(step, theirs, optimizer, loss, batches, limit=1e-5):
    """Compare the losses of each step; parameters begin as the step's."""
    weights = {n: torch.tensor(w) for n, w in step.weights().items()}
    missing = theirs.load_state_dict(weights, strict=False)
    assert not missing.unexpected_keys
    assert all(n.endswith("num_batches_tracked") for n in missing.missing_keys)
    theirs.double().train()
    other = optimizer(theirs.parameters())
    for batch in batches:
        given = (torch.tensor(a) for a in batch)
        value = loss(theirs, *(a.double() if a.is_floating_point() else a for a in given))
        other.zero_grad()
        value.backward()
        other.step()
        assert step(*batch) == pytest.approx(value.item(), rel=limit)


def test_resnet18_trains_as_in_pytorch():
    rng = np.random.default_rng(0)
    batches = [
        (rng.standard_normal((8, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, 8))
        for _ in range(10)
    ]
    step = tg.TrainStep(
        "resnet18[batch=8,image=32,classes=10]", F.cross_entropy,
        optim.SGD(0.01, momentum=0.9, weight_decay=5e-4), store=False,
    )  # fmt: skip
    compared(
        step, ResNet18(10),
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=5e-4),
        lambda m, x, y: torch.nn.functional.cross_entropy(m(x), y), batches, 1e-2,
    )  # fmt: skip


def test_an_encoder_trains_as_in_pytorch():
    class Mine(nn.Module):
        def __init__(self):
            layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, "gelu", batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.fc = nn.Linear(64, 5)

        def forward(self, x):
            return self.fc(self.encoder(x).mean(1))

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(64, 4, 128, 0.0, "gelu", batch_first=True)
            self.encoder = torch.nn.TransformerEncoder(layer, 2)
            self.fc = torch.nn.Linear(64, 5)

        def forward(self, x):
            return self.fc(self.encoder(x).mean(1))

    rng = np.random.default_rng(1)
    batches = [
        (rng.standard_normal((4, 16, 64)).astype(np.float32), rng.integers(0, 5, 4))
        for _ in range(10)
    ]
    step = tg.TrainStep(Mine(), F.cross_entropy, optim.AdamW(1e-3), store=False)
    compared(
        step, Theirs(), lambda p: torch.optim.AdamW(p, lr=1e-3),
        lambda m, x, y: torch.nn.functional.cross_entropy(m(x), y), batches,
    )  # fmt: skip


def gpt(n, base):
    """A decoder of two layers, by our layers or by PyTorch's."""

    class Block(base):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = n.LayerNorm(64), n.LayerNorm(64)
            self.qkv, self.out = n.Linear(64, 192), n.Linear(64, 64)
            self.up, self.down = n.Linear(64, 256), n.Linear(256, 64)

        def forward(self, x):
            rows, length, width = x.shape
            q, k, v = (
                t.reshape(rows, length, 4, 16).transpose(1, 2)
                for t in self.qkv(self.norm1(x)).chunk(3, -1)
            )
            y = n.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(rows, length, width))
            return x + self.down(n.functional.gelu(self.up(self.norm2(x))))

    class Gpt(base):
        def __init__(self):
            super().__init__()
            self.token, self.place = n.Embedding(30, 64), n.Embedding(16, 64)
            self.first, self.second, self.norm = Block(), Block(), n.LayerNorm(64)
            self.head = n.Linear(64, 30)

        def forward(self, tokens):
            x = self.token(tokens) + self.place.weight_of()
            return self.head(self.norm(self.second(self.first(x))))

    return Gpt()


def test_a_gpt_trains_as_in_pytorch():
    nn.Embedding.weight_of = lambda self: self.weight.tensor
    torch.nn.Embedding.weight_of = lambda self: self.weight
    try:
        mine, theirs = gpt(nn, nn.Module), gpt(torch.nn, torch.nn.Module)
        rng = np.random.default_rng(2)
        batches = [(t[:, :-1], t[:, 1:]) for t in (rng.integers(0, 30, (4, 17)) for _ in range(10))]

        def loss(out, wanted):
            return F.cross_entropy(out.reshape(-1, 30), wanted.reshape(-1))

        step = tg.TrainStep(mine, loss, optim.Adam(3e-4), store=False)

        def others(m, x, y):
            return torch.nn.functional.cross_entropy(m(x).reshape(-1, 30), y.reshape(-1))

        compared(step, theirs, lambda p: torch.optim.Adam(p, lr=3e-4), others, batches)
    finally:
        del nn.Embedding.weight_of, torch.nn.Embedding.weight_of
