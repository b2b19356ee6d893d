"""The timed suites as plain data, and the arrays of each workload.

A kernel workload is one operation with its shapes. ``inputs`` change from call to call;
``constants`` (the weights of a convolution or a layer norm) are known when the model is loaded, so
every contestant may prepare them beforehand. A model workload (``op == "model"``) carries the shape
of its one input; ``torch_models`` builds the network.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "KERNELS",
    "MODELS",
    "SUITES",
    "Array",
    "Op",
    "Shape",
    "Workload",
    "arrays",
    "group_of",
    "laid_out",
    "resnet_convolutions",
    "select",
    "touched",
]

Array = NDArray[np.float32]
Shape = tuple[int, ...]
_PAGE = 4096
Op = Literal[
    "add", "attention", "conv2d", "copy", "gelu", "layer_norm", "linear", "matmul", "max_pool2d",
    "model", "softmax", "sum", "transpose",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing to time, f32.

    ``stride``, ``padding`` and ``window`` belong to conv2d and max_pool2d; ``axis`` to softmax (the
    last) and sum. conv2d is a convolution, a bias and a relu; linear is a product with a constant.
    attention has queries, keys and values, (batch, heads, tokens, width) each: scores over the root
    of the width, softmax, weighted sum.
    """

    name: str
    op: Op
    inputs: tuple[Shape, ...]
    constants: tuple[Shape, ...] = ()
    stride: int = 1
    padding: int = 0
    window: int = 0
    axis: int = -1

    @property
    def is_model(self) -> bool:
        return self.op == "model"

    @property
    def has_images(self) -> bool:
        """True if its input is a batch of images, of which a contestant may choose the memory
        layout.
        """
        return self.op in ("conv2d", "max_pool2d") or (self.is_model and len(self.inputs[0]) == 4)

    @property
    def has_images_out(self) -> bool:
        """True if its result is a batch of images too."""
        return self.has_images and not self.is_model

    @property
    def tolerance(self) -> float:
        """Largest allowed difference from PyTorch, as a share of the largest absolute value of its
        result.
        """
        long_sum = (
            self.op == "sum" and self.inputs[0][self.axis] > 1 << 20
        )  # rounding grows with the root of the length
        return 1e-3 if self.is_model or long_sum else 1e-4


def _matmul(name: str, a: Shape, b: Shape) -> Workload:
    return Workload(name, "matmul", (a, b))


def _conv(channels_in: int, channels_out: int, size: int, window: int, stride: int = 1) -> Workload:
    strided = f" s{stride}" if stride > 1 else ""
    return Workload(
        name=f"conv {window}x{window}{strided} {channels_in}-{channels_out} @{size}",
        op="conv2d",
        inputs=((1, channels_in, size, size),),
        constants=((channels_out, channels_in, window, window), (channels_out,)),
        stride=stride,
        padding=window // 2,
    )


def resnet_convolutions(depths: Sequence[int], *, bottleneck: bool) -> tuple[Workload, ...]:
    """The distinct convolutions of a ResNet for one 224x224 image, in the order in which they first
    run.

    As in torchvision: the stride of a bottleneck is in its 3x3, a shortcut is a 1x1 where shapes
    change.
    """
    return tuple(dict.fromkeys(_resnet_layers(depths, bottleneck)))


def _resnet_layers(depths: Sequence[int], bottleneck: bool) -> Iterator[Workload]:
    yield _conv(3, 64, 224, 7, 2)
    channels, size = 64, 56
    for i, depth in enumerate(depths):
        planes = 64 << i
        wide = 4 * planes if bottleneck else planes
        for block in range(depth):
            stride = 2 if i > 0 and block == 0 else 1
            if bottleneck:
                yield _conv(channels, planes, size, 1)
                yield _conv(planes, planes, size, 3, stride)
                yield _conv(planes, wide, size // stride, 1)
            else:
                yield _conv(channels, planes, size, 3, stride)
                yield _conv(planes, planes, size // stride, 3)
            if stride > 1 or channels != wide:
                yield _conv(channels, wide, size, 1, stride)
            channels, size = wide, size // stride


_GEMM = (
    _matmul("gemm 512", (512, 512), (512, 512)),
    _matmul("gemm 1024", (1024, 1024), (1024, 1024)),
    _matmul("gemm 2048", (2048, 2048), (2048, 2048)),
    _matmul("gemm 1024x64x1024", (1024, 64), (64, 1024)),
    _matmul("batched 12x128x64x128", (12, 128, 64), (12, 64, 128)),
)

_MEMORY = (
    _matmul("gemv 4096", (4096, 4096), (4096, 1)),
    Workload("row sum 4096", "sum", ((4096, 4096),), axis=1),
    Workload("column sum 4096", "sum", ((4096, 4096),), axis=0),
    Workload("add 16M", "add", ((4096, 4096), (4096, 4096))),
    Workload("transpose 2048", "transpose", ((2048, 2048),)),
    Workload("copy 64 MB", "copy", ((4096, 4096),)),
    Workload("sum 2^26", "sum", ((1 << 26,),), axis=0),
    Workload("column sum 2^24x4", "sum", ((1 << 24, 4),), axis=0),
    Workload(
        "max pool 3x3 s2 64 @112", "max_pool2d", ((1, 64, 112, 112),), stride=2, padding=1, window=3
    ),
)

_CONVS = tuple(
    dict.fromkeys(
        (
            *resnet_convolutions((2, 2, 2, 2), bottleneck=False),
            *resnet_convolutions((3, 4, 6, 3), bottleneck=True),
        )
    )
)

_ROWS = (
    Workload("softmax 1024", "softmax", ((1024, 1024),), axis=-1),
    Workload("layer norm 1024x768", "layer_norm", ((1024, 768),), ((768,), (768,))),
    Workload("gelu 1M", "gelu", ((1024, 1024),)),
    Workload("attention 12x128x64", "attention", ((1, 12, 128, 64),) * 3),
)

KERNELS: tuple[Workload, ...] = (*_GEMM, *_MEMORY, *_CONVS, *_ROWS)

MODELS: tuple[Workload, ...] = (
    Workload("resnet18", "model", ((1, 3, 224, 224),)),
    Workload("resnet50", "model", ((1, 3, 224, 224),)),
    Workload("encoder", "model", ((1, 128, 768),)),
    Workload("mlp", "model", ((1, 784),)),
)

_IMAGE = (3, 224, 224)
_BATCHES: tuple[Workload, ...] = (
    *(Workload(f"resnet18[batch={n}]", "model", ((n, *_IMAGE),)) for n in (8, 32)),
    *(Workload(f"resnet50[batch={n}]", "model", ((n, *_IMAGE),)) for n in (8, 32)),
    Workload("encoder[batch=8]", "model", ((8, 128, 768),)),
)

_GROUPS: dict[str, tuple[Workload, ...]] = {
    "gemm": _GEMM,
    "memory": _MEMORY,
    "convs": _CONVS,
    "rows": _ROWS,
    "models": MODELS,
    "batches": _BATCHES,
}
SUITES: dict[str, tuple[Workload, ...]] = {"kernels": KERNELS, **_GROUPS}


def group_of(name: str) -> str:
    """The group (gemm, memory, convs, rows, models or batches) of the workload with this name;
    empty for any other name.
    """
    return next(
        (group for group, workloads in _GROUPS.items() if any(w.name == name for w in workloads)),
        "",
    )


def select(suite: str, only: Sequence[str] = ()) -> tuple[Workload, ...]:
    """The suite's workloads, or those whose name is in ``only``, in the suite's order.

    Raises:
        ValueError: a name in ``only`` is in no workload of the suite.
    """
    workloads = SUITES[suite]
    unknown = sorted(set(only) - {w.name for w in workloads})
    if unknown:
        raise ValueError(
            f"--only {unknown[0]!r}: the {suite} suite has {', '.join(w.name for w in workloads)}"
        )
    return tuple(w for w in workloads if not only or w.name in only)


@functools.lru_cache(maxsize=2)
def arrays(workload: Workload) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Inputs and constants: standard normal, the same in every process.

    Constants are scaled by their fan-in.
    """
    rng = np.random.default_rng(zlib.crc32(workload.name.encode()))
    inputs = tuple(touched(shape) for shape in workload.inputs)
    for array in inputs:
        rng.standard_normal(dtype=np.float32, out=array)
    constants = tuple(
        rng.standard_normal(shape, dtype=np.float32)
        / np.float32(math.sqrt(max(1, math.prod(shape[1:]))))
        for shape in workload.constants
    )
    return inputs, constants


def laid_out(workload: Workload, layout: str) -> tuple[Array, ...]:
    """The inputs, images as arrays in ``layout``."""
    inputs, _ = arrays(workload)
    return tuple(map(_channels_last, inputs)) if layout == "nhwc" else inputs


def _channels_last(images: Array) -> Array:
    n, c, h, w = images.shape
    array = touched((n, h, w, c))
    array[...] = images.transpose(0, 2, 3, 1)
    return array


def touched(shape: Shape) -> Array:
    """Zeros on a page boundary, in pages that are there already.

    All contestants read them and, where they can, write to them.

    numpy asks for huge pages for large arrays, as tunegrad's buffers do.
    """
    count = math.prod(shape)
    whole = np.empty(4 * count + _PAGE, np.uint8)
    start = -whole.ctypes.data % _PAGE
    array = whole[start : start + 4 * count].view(np.float32).reshape(shape)
    array.fill(0)
    return array
