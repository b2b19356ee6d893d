"""The model suite in PyTorch: the reference every contestant is checked against, and the source of
all weights.

ResNets follow He et al. 2015 with the stride in the 3x3 of a bottleneck (the usual v1.5), and the
parameter names of torchvision, so that published weights would load. The encoder layer is
BERT-base's (post-norm, gelu with erf). Weights are random with a fixed seed; batch norm statistics
are random too, so that folding them wrongly shows.
"""

from __future__ import annotations

import functools
import itertools

import torch
from torch import nn
from torch.nn import functional

from benchmarks.workloads import Array

__all__ = ["Bottleneck", "Encoder", "Mlp", "ResNet", "build", "weights"]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a residual."""

    expansion = 1

    def __init__(self, channels_in: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels_in, planes * self.expansion, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class Bottleneck(nn.Module):
    """1x1 down, 3x3 (with the stride), 1x1 up, and a residual."""

    expansion = 4

    def __init__(self, channels_in: int, planes: int, stride: int) -> None:
        super().__init__()
        width = planes * self.expansion
        self.conv1 = nn.Conv2d(channels_in, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels_in, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


def _shortcut(channels_in: int, channels_out: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and channels_in == channels_out:
        return None
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
    )


class ResNet(nn.Module):
    """Image (1, 3, 224, 224) to 1000 logits."""

    def __init__(
        self, block: type[BasicBlock | Bottleneck], depths: tuple[int, int, int, int]
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = 64
        for i, depth in enumerate(depths):
            planes, blocks = 64 << i, []
            for j in range(depth):
                blocks.append(block(channels, planes, 2 if i > 0 and j == 0 else 1))
                channels = planes * block.expansion
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class Encoder(nn.Module):
    """One BERT-base encoder layer: (1, sequence, hidden) to the same."""

    def __init__(self, hidden: int = 768, heads: int = 12, ffn: int = 3072) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, hidden)
        self.norm1 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, ffn)
        self.down = nn.Linear(ffn, hidden)
        self.norm2 = nn.LayerNorm(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, sequence, hidden = x.shape
        q, k, v = (
            linear(x).view(batch, sequence, self.heads, hidden // self.heads).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        attended = (
            functional.scaled_dot_product_attention(q, k, v)
            .transpose(1, 2)
            .reshape(batch, sequence, hidden)
        )
        x = self.norm1(x + self.out(attended))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


class Mlp(nn.Module):
    """Three linear layers with relu between them: (1, 784) to (1, 10)."""

    def __init__(self, sizes: tuple[int, ...] = (784, 512, 512, 10)) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        return self.layers[-1](x)


@functools.lru_cache(maxsize=4)
def build(name: str) -> nn.Module:
    """The named model in evaluation mode, always with the same weights, whatever batch the name
    says (``resnet18[batch=8]``).

    The caller must not change it in place.
    """
    torch.manual_seed(0)
    factories = {
        "resnet18": lambda: ResNet(BasicBlock, (2, 2, 2, 2)),
        "resnet50": lambda: ResNet(Bottleneck, (3, 4, 6, 3)),
        "encoder": Encoder,
        "mlp": Mlp,
    }
    model = factories[name.partition("[")[0]]().eval().requires_grad_(False)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0.0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.uniform_(0.5, 1.0)
            module.bias.normal_(0.0, 0.1)
    return model


def weights(name: str) -> dict[str, Array]:
    """Parameters and batch norm statistics by name, without the counters that inference does not
    use.
    """
    state = build(name).state_dict()
    return {
        key: value.numpy()
        for key, value in state.items()
        if not key.endswith("num_batches_tracked")
    }
