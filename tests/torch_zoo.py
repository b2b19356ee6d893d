"""Models in plain PyTorch: what people bring. Each has a small size for tests, and a full one.

``ZOO[name](full)`` gives a module in eval mode, with weights of a seed, and its example inputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["ZOO", "Case", "spelled_out"]

Case = tuple[nn.Module, tuple[Tensor, ...]]


class _InvertedResidual(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int, widen: int) -> None:
        super().__init__()
        hidden = cin * widen
        self.joins = stride == 1 and cin == cout
        layers: list[nn.Module] = []
        if widen != 1:
            layers += [nn.Conv2d(cin, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()]
        layers += [
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, cout, 1, bias=False),
            nn.BatchNorm2d(cout),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.joins else self.conv(x)


class MobileNetV2(nn.Module):
    """Sandler et al. 2018; ``rows`` are expansion, channels, repeats, stride."""

    ROWS = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    )  # fmt: skip

    def __init__(self, rows: tuple[tuple[int, ...], ...] = ROWS, last: int = 1280) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(),
        ]  # fmt: skip
        cin = 32
        for widen, cout, count, stride in rows:
            for i in range(count):
                layers.append(_InvertedResidual(cin, cout, stride if i == 0 else 1, widen))
                cin = cout
        layers += [nn.Conv2d(cin, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU6()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def _double(cin: int, cout: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    """Ronneberger et al. 2015, with batch normalisation and padded convolutions."""

    def __init__(self, width: int, depth: int, classes: int = 2) -> None:
        super().__init__()
        sizes = [width << i for i in range(depth + 1)]
        self.stem = _double(3, sizes[0])
        self.down = nn.ModuleList(_double(a, b) for a, b in pairwise(sizes))
        pairs = list(zip(sizes[::-1], sizes[-2::-1], strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.merge = nn.ModuleList(_double(a, b) for a, b in pairs)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.stem(x)]
        for block in self.down:
            kept.append(block(functional.max_pool2d(kept[-1], 2)))
        y = kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            y = merge(torch.cat([kept.pop(), up(y)], 1))
        return self.head(y)


class _Block(nn.Module):
    """A transformer's encoder block with one fused projection; normalised before, or after."""

    def __init__(self, size: int, heads: int, hidden: int, before: bool) -> None:
        super().__init__()
        self.heads, self.before = heads, before
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.fc1, self.fc2 = nn.Linear(size, hidden), nn.Linear(hidden, size)

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        n, length, size = x.shape
        qkv = self.qkv(x).reshape(n, length, 3, self.heads, size // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(y.transpose(1, 2).reshape(n, length, size))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.before:
            x = x + self.attend(self.norm1(x), mask)
            return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))
        x = self.norm1(x + self.attend(x, mask))
        return self.norm2(x + self.fc2(functional.gelu(self.fc1(x))))


class ViT(nn.Module):
    """Dosovitskiy et al. 2021; S is 384 wide, 12 deep, of 6 heads and patches of 16."""

    def __init__(self, image: int, patch: int, size: int, depth: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, size, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, size))
        self.position = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, size) * 0.02)
        self.blocks = nn.ModuleList(_Block(size, heads, 4 * size, True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1) + self.position
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y)[:, 0])


class Bert(nn.Module):
    """The encoder of Devlin et al. 2019: ids and a mask of which tokens are there."""

    def __init__(self, words: int, length: int, size: int, depth: int, heads: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(length, size)
        self.norm = nn.LayerNorm(size)
        self.blocks = nn.ModuleList(_Block(size, heads, 4 * size, False) for _ in range(depth))
        self.pooler = nn.Linear(size, size)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(ids.shape[1], device=ids.device)
        y = self.norm(self.words(ids) + self.places(places))
        bias = (1.0 - mask[:, None, None, :].to(y.dtype)) * torch.finfo(y.dtype).min
        for block in self.blocks:
            y = block(y, bias)
        return y, torch.tanh(self.pooler(y[:, 0]))


class LlamaBlock(nn.Module):
    """One decoder block for one new token: rotary positions, grouped queries, and a cache of keys
    and values that is read, written at ``place``, and given back (Touvron et al. 2023).
    """

    def __init__(self, size: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.groups, self.width = heads, groups, size // heads
        self.repeats = 1
        self.norm1, self.norm2 = nn.RMSNorm(size, 1e-5), nn.RMSNorm(size, 1e-5)
        self.q = nn.Linear(size, size, bias=False)
        self.k = nn.Linear(size, groups * self.width, bias=False)
        self.v = nn.Linear(size, groups * self.width, bias=False)
        self.o = nn.Linear(size, size, bias=False)
        self.gate = nn.Linear(size, hidden, bias=False)
        self.up = nn.Linear(size, hidden, bias=False)
        self.down = nn.Linear(hidden, size, bias=False)
        steps = torch.arange(0, self.width, 2).float() / self.width
        self.register_buffer("frequencies", 1e4**-steps, persistent=False)

    def turned(self, x: Tensor, place: Tensor) -> Tensor:
        angles = place.float()[:, None] * self.frequencies
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, place: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        n, length, size = x.shape
        y = self.norm1(x)
        q = self.q(y).view(n, length, self.heads, self.width).transpose(1, 2)
        k = self.k(y).view(n, length, self.groups, self.width).transpose(1, 2)
        v = self.v(y).view(n, length, self.groups, self.width).transpose(1, 2)
        q, k = self.turned(q, place), self.turned(k, place)
        keys, values = keys.index_copy(2, place, k), values.index_copy(2, place, v)
        seen = torch.arange(keys.shape[2], device=x.device)[None, :] <= place[:, None]
        k, v = keys, values
        if self.repeats > 1:
            k, v = k.repeat_interleave(self.repeats, 1), v.repeat_interleave(self.repeats, 1)
        y = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=seen, enable_gqa=self.repeats == 1
        )
        x = x + self.o(y.transpose(1, 2).reshape(n, length, size))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y)), keys, values


class Lstm(nn.Module):
    """A classifier of sequences: two layers, and a head on the last step."""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x)
        return self.head(y[:, -1])


class _SquareNorm(nn.Module):
    """``nn.RMSNorm``, spelled out."""

    def __init__(self, norm: nn.RMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def spelled_out(module: nn.Module) -> nn.Module:
    """A copy without what PyTorch's exporter of TorchScript does not know: RMS norms, and queries
    in groups, whose keys and values are repeated.
    """
    made = copy.deepcopy(module)
    for m in list(made.modules()):
        for name, child in m.named_children():
            if isinstance(child, nn.RMSNorm):
                setattr(m, name, _SquareNorm(child))
        if isinstance(m, LlamaBlock):
            m.repeats = m.heads // m.groups
    return made


def _settled(module: nn.Module) -> nn.Module:
    """In eval mode, with statistics of batches that are other than 0 and 1."""
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
    return module.eval()


def _mobilenet(full: bool) -> Case:
    if full:
        return MobileNetV2(), (torch.randn(1, 3, 224, 224),)
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 1, 2))
    return MobileNetV2(rows, 64), (torch.randn(1, 3, 32, 32),)


def _unet(full: bool) -> Case:
    return (UNet(32, 4), (torch.randn(1, 3, 256, 256),)) if full else (
        UNet(8, 2), (torch.randn(1, 3, 32, 32),)
    )  # fmt: skip


def _vit(full: bool) -> Case:
    if full:
        return ViT(224, 16, 384, 12, 6), (torch.randn(1, 3, 224, 224),)
    return ViT(32, 8, 48, 2, 3), (torch.randn(1, 3, 32, 32),)


def _bert(full: bool) -> Case:
    words, length, size, heads = (30522, 128, 768, 12) if full else (100, 16, 48, 3)
    ids = torch.randint(0, words, (1, length))
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, length * 3 // 4 :] = 0
    return Bert(words, length, size, 6, heads), (ids, mask)


def _llama(full: bool) -> Case:
    size, heads, groups, hidden, length = (2048, 32, 8, 5632, 512) if full else (64, 4, 2, 96, 16)
    cache = (1, groups, length, size // heads)
    place = torch.tensor([length // 2])
    inputs = (torch.randn(1, 1, size), torch.randn(cache), torch.randn(cache), place)
    return LlamaBlock(size, heads, groups, hidden), inputs


def _lstm(full: bool) -> Case:
    size, hidden, steps = (128, 256, 64) if full else (12, 16, 6)
    return Lstm(size, hidden), (torch.randn(1, steps, size),)


_CASES: dict[str, Callable[[bool], Case]] = {
    "mobilenet_v2": _mobilenet,
    "unet": _unet,
    "vit_s": _vit,
    "bert_6": _bert,
    "llama_block": _llama,
    "lstm": _lstm,
}


def _seeded(make: Callable[[bool], Case]) -> Callable[[bool], Case]:
    def made(full: bool = False) -> Case:
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            module, inputs = make(full)
            return _settled(module), inputs

    return made


ZOO: dict[str, Callable[[bool], Case]] = {name: _seeded(make) for name, make in _CASES.items()}
