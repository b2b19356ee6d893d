"""ResNet-18 and ResNet-50 (He et al.

2015; the stride of a bottleneck is in its 3x3, as in torchvision).

Parameter names are torchvision's, so its checkpoints load.
"""

from __future__ import annotations

from functools import partial

from tunegrad.frontend import InputSpec, Model, Tensor
from tunegrad.frontend.nn import BatchNorm2d, Conv2d, Linear, Module, conv_norm

from .mlp import positive

# The weights of a block's last norm are drawn around this: small, so that sums of many branches
# stay O(1).
_BRANCH = 0.3


class BasicBlock(Module):
    """Two 3x3 convolutions and a residual."""

    expansion = 1

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        self.conv1, self.bn1 = (
            Conv2d(channels, planes, 3, stride, 1, bias=False),
            BatchNorm2d(planes),
        )
        self.conv2, self.bn2 = (
            Conv2d(planes, planes, 3, 1, 1, bias=False),
            BatchNorm2d(planes, scale=_BRANCH),
        )
        self.downsample = _shortcut(channels, planes, stride)

    def __call__(self, x: Tensor) -> Tensor:
        y = conv_norm(x, self.conv1, self.bn1).relu()
        return (conv_norm(y, self.conv2, self.bn2) + _skip(x, self.downsample)).relu()


class Bottleneck(Module):
    """1x1 down, 3x3, 1x1 up, and a residual."""

    expansion = 4

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        wide = planes * self.expansion
        self.conv1, self.bn1 = Conv2d(channels, planes, 1, bias=False), BatchNorm2d(planes)
        self.conv2, self.bn2 = Conv2d(planes, planes, 3, stride, 1, bias=False), BatchNorm2d(planes)
        self.conv3, self.bn3 = Conv2d(planes, wide, 1, bias=False), BatchNorm2d(wide, scale=_BRANCH)
        self.downsample = _shortcut(channels, wide, stride)

    def __call__(self, x: Tensor) -> Tensor:
        y = conv_norm(x, self.conv1, self.bn1).relu()
        y = conv_norm(y, self.conv2, self.bn2).relu()
        return (conv_norm(y, self.conv3, self.bn3) + _skip(x, self.downsample)).relu()


Shortcut = tuple[Conv2d, BatchNorm2d]


def _shortcut(channels: int, wide: int, stride: int) -> Shortcut | None:
    if stride == 1 and channels == wide:
        return None
    return Conv2d(channels, wide, 1, stride, bias=False), BatchNorm2d(wide, scale=0.5)


def _skip(x: Tensor, shortcut: Shortcut | None) -> Tensor:
    return x if shortcut is None else conv_norm(x, *shortcut)


class ResNet(Module):
    """(N, 3, H, W) to (N, classes)."""

    def __init__(
        self, block: type[BasicBlock | Bottleneck], depths: tuple[int, int, int, int], classes: int
    ) -> None:
        self.conv1, self.bn1 = Conv2d(3, 64, 7, 2, 3, bias=False), BatchNorm2d(64)
        channels = 64
        layers: list[list[BasicBlock | Bottleneck]] = []
        for i, depth in enumerate(depths):
            planes, blocks = 64 << i, []
            for j in range(depth):
                blocks.append(block(channels, planes, 2 if i and not j else 1))
                channels = planes * block.expansion
            layers.append(blocks)
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.fc = Linear(channels, classes)

    def __call__(self, x: Tensor) -> Tensor:
        y = conv_norm(x, self.conv1, self.bn1).relu().max_pool2d(3, 2, 1)
        for block in (*self.layer1, *self.layer2, *self.layer3, *self.layer4):
            y = block(y)
        scores: Tensor = self.fc(y.mean((2, 3)))
        return scores


def _resnet(
    name: str,
    block: type[BasicBlock | Bottleneck],
    depths: tuple[int, int, int, int],
    batch: int,
    image: int,
    classes: int,
) -> Model:
    positive(name, batch=batch, image=image, classes=classes)
    image_spec = InputSpec("image", (batch, 3, image, image))
    return Model.of(name, partial(ResNet, block, depths, classes), (image_spec,))


def resnet18(batch: int = 1, image: int = 224, classes: int = 1000) -> Model:
    """ResNet-18: (batch, 3, image, image) to (batch, classes)."""
    return _resnet("resnet18", BasicBlock, (2, 2, 2, 2), batch, image, classes)


def resnet50(batch: int = 1, image: int = 224, classes: int = 1000) -> Model:
    """ResNet-50: (batch, 3, image, image) to (batch, classes)."""
    return _resnet("resnet50", Bottleneck, (3, 4, 6, 3), batch, image, classes)
