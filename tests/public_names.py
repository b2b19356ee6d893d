"""Public names as users write them, for type checkers: a name that is misspelt is an error, and no
other line is. ``./check`` reads this file by ``mypy --strict``, for which an ``ignore`` that hides
no error is an error, too; ``tests/unit/test_public_names.py`` runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

import tunegrad as tg
import tunegrad.nn.functional as F  # noqa: N812 - its name in the field
from tunegrad import nn
from tunegrad.nn import optim


class Classifier(nn.Module):
    """Layers with weights, and some without."""

    def __init__(self, classes: int) -> None:
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flat = nn.Flatten()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1))
        self.head = nn.Linear(16, classes)

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        """Logits of images."""
        x = self.act(self.norm(self.stem(x)))
        found: tg.Tensor = self.head(self.body(self.flat(self.pool(x))))
        return found


def creating() -> list[tg.Tensor]:
    """Tensors of nothing, of data, and drawn ones."""
    tg.manual_seed(7)
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    return [
        tg.zeros(2, 3),
        tg.ones(2, 3),
        tg.full((2, 3), 0.5),
        tg.eye(2, 3),
        tg.arange(6).reshape(2, 3).cast(tg.f32),
        tg.linspace(0.0, 1.0, 6).reshape(2, 3),
        tg.tensor(data),
        tg.as_tensor(data, dtype=tg.float32),
        tg.from_numpy(data),
        tg.Tensor(data, "f64").cast(tg.f32),
        tg.rand(2, 3),
        tg.randn(2, 3),
        tg.randint(0, 9, (2, 3)).float(),
        tg.zeros_like(tg.Tensor(data)),
        tg.ones_like(tg.Tensor(data)),
        tg.randperm(6).reshape(2, 3).cast(tg.f16).cast(tg.f32),
    ]


def computing(x: tg.Tensor, y: tg.Tensor) -> list[tg.Tensor]:
    """Functions of tensors, and methods: each gives a Tensor of the shape of its operand."""
    return [
        tg.relu(x),
        tg.sigmoid(x),
        tg.tanh(x),
        tg.exp(x),
        tg.log1p(tg.abs(x)),
        tg.sqrt(tg.square(x)),
        tg.softmax(x, dim=1),
        tg.log_softmax(x, 1),
        tg.where(x > y, x, y),
        tg.maximum(x, y),
        tg.minimum(x, y),
        tg.clamp(x, 0.0, 1.0),
        tg.add(x, y),
        tg.sub(x, y),
        tg.mul(x, y),
        tg.div(x, y + 1.5),
        tg.cumsum(x, 1),
        tg.flip(x, [1]),
        tg.roll(x, 1),
        tg.tril(x),
        tg.sort(x, 1).values,
        tg.cat([x, y], 0)[:2],
        tg.stack([x, y]).sum(0),
        tg.einsum("ij,ij->ij", x, y),
        tg.matmul(x, tg.transpose(y, 0, 1)) @ y,
        tg.logical_and(x > 0, y > 0).float(),
        tg.mean(x, dim=1, keepdim=True).expand(2, 3),
        tg.sum(x, dim=0, keepdim=True).expand(2, 3),
        tg.max(x, 1, keepdim=True).values.expand(2, 3),
        tg.argmax(x, 1, keepdim=True).expand(2, 3).float(),
        tg.var(x, 1, keepdim=True).expand(2, 3),
        tg.squeeze(tg.unsqueeze(x, 0), 0),
        tg.gather(x, 1, tg.zeros(2, 3, dtype=tg.int64)),
        tg.isfinite(x).float(),
        tg.erf(tg.sin(tg.cos(x))),
        x.masked_fill(x > 0, 0.0),
        x.permute(1, 0).contiguous().view(2, 3),
        tg.relu(np.ones((2, 3), np.float32)).detach(),
    ]


def layering(x: tg.Tensor) -> list[tg.Tensor]:
    """``torch.nn.functional`` by its names."""
    weight = tg.randn(3, 3)
    return [
        F.relu(x),
        F.gelu(x),
        F.silu(x),
        F.elu(x),
        F.softplus(x),
        F.hardtanh(x),
        F.leaky_relu(x, 0.1),
        F.linear(x, weight),
        F.layer_norm(x, (3,)),
        F.rms_norm(x, (3,)),
        F.dropout(x, 0.5, training=False),
        F.normalize(x, dim=1),
        F.one_hot(tg.zeros(2, dtype=tg.int64), 3).float(),
        F.pad(x, (0, 1))[:, :3],
        F.embedding(tg.zeros(2, dtype=tg.int64), weight),
        nn.functional.cross_entropy(x, tg.zeros(2, dtype=tg.i64)).expand(2, 3),
        F.mse_loss(x, x).expand(2, 3),
        F.scaled_dot_product_attention(x[None], x[None], x[None])[0],
    ]


def making() -> list[nn.Module]:
    """Layers, whose arguments have PyTorch's names."""
    return [
        nn.Embedding(10, 4),
        nn.LayerNorm(4),
        nn.LSTM(4, 4, batch_first=True),
        nn.MultiheadAttention(4, 2),
        nn.Conv1d(3, 4, 3),
        nn.MaxPool2d(2),
        nn.Softmax(1),
        nn.SiLU(),
        nn.ModuleList([nn.Identity(), nn.Tanh()]),
        nn.GroupNorm(2, 4),
        nn.TransformerEncoderLayer(4, 2, 8),
    ]


def training() -> tuple[optim.Optimizer, optim.Optimizer, Callable[..., object]]:
    """Gradients, optimisers and a step."""

    def loss(w: tg.Tensor) -> tg.Tensor:
        return (w * w).sum()

    with tg.no_grad():
        gradient = tg.grad(loss)(tg.ones(3))
    value, _ = tg.value_and_grad(loss)(tg.ones(3))
    assert isinstance(value, tg.Tensor), gradient
    return optim.Adam(lr=1e-3), nn.optim.SGD(lr=0.1), tg.TrainStep


def running(store: str) -> tuple[tg.LoadedModel, str, Path]:
    """A function compiled, with errors that have names."""
    with suppress(tg.errors.ModelError):
        tg.load("no_such_model", store=False)
    f = tg.compile(lambda a: a.relu().sum(1), np.ones((2, 3), np.float32), store=store or False)
    return f, tg.__version__, tg.default_store()


x = tg.ones(2, 3)

MISSPELT: list[Callable[[], object]] = [
    lambda: tg.sofmax(x, 1),  # type: ignore[attr-defined]
    lambda: tg.rellu(x),  # type: ignore[attr-defined]
    lambda: tg.matmull(x, x),  # type: ignore[attr-defined]
    lambda: tg.zeross(2),  # type: ignore[attr-defined]
    lambda: tg.flaot32,  # type: ignore[attr-defined]
    lambda: tg.complie,  # type: ignore[attr-defined]
    lambda: tg.Tenor(1),  # type: ignore[attr-defined]
    lambda: tg.manual_sed(1),  # type: ignore[attr-defined]
    lambda: tg.lod("mlp"),  # type: ignore[attr-defined]
    lambda: tg.TrainStp,  # type: ignore[attr-defined]
    lambda: nn.Linaer(1, 2),  # type: ignore[attr-defined]
    lambda: nn.Conv2D(1, 2, 3),  # type: ignore[attr-defined]
    lambda: nn.Sequental(nn.ReLU()),  # type: ignore[attr-defined]
    lambda: tg.nn.LayerNrom(3),  # type: ignore[attr-defined]
    lambda: tg.nn.functional.geluu(x),  # type: ignore[attr-defined]
    lambda: F.cross_entrpy(x, x),  # type: ignore[attr-defined]
    lambda: optim.Adm(lr=0.1),  # type: ignore[attr-defined]
    lambda: x.sofmax(1),  # type: ignore[attr-defined]
    lambda: x.reshap(6),  # type: ignore[attr-defined]
    lambda: tg.errors.ModelEror,  # type: ignore[attr-defined]
]
