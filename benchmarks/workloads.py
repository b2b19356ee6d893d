"""What is timed: the two suites as plain data, and the arrays of each workload.

A kernel workload is one operation with its shapes. ``inputs`` change from call to call; ``constants`` (the weights of a
convolution or a layer norm) are known when the model is loaded, so every contestant may prepare them beforehand.
A model workload (``op == "model"``) carries the shape of its one input; ``torch_models`` builds the network.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["KERNELS", "MODELS", "SUITES", "Array", "Op", "Shape", "Workload", "arrays", "select"]

Array = NDArray[np.float32]
Shape = tuple[int, ...]
Op = Literal[
    "add", "conv2d", "gelu", "layer_norm", "matmul", "max_pool2d", "model", "softmax", "sum", "transpose"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing to time, f32.

    ``stride``, ``padding`` and ``window`` belong to conv2d and max_pool2d; ``axis`` to softmax (the last) and sum.
    conv2d is a convolution, a bias and a relu.
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
    def tolerance(self) -> float:
        """Largest allowed difference from PyTorch, as a share of the largest absolute value of its result."""
        return 1e-3 if self.is_model else 1e-4


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


KERNELS: tuple[Workload, ...] = (
    _matmul("gemm 512", (512, 512), (512, 512)),
    _matmul("gemm 1024", (1024, 1024), (1024, 1024)),
    _matmul("gemm 1024x64x1024", (1024, 64), (64, 1024)),
    _matmul("gemv 4096", (4096, 4096), (4096, 1)),
    _matmul("batched 12x128x64x128", (12, 128, 64), (12, 64, 128)),
    _conv(3, 64, 224, 7, 2),
    _conv(64, 64, 56, 3),
    _conv(64, 128, 56, 3, 2),
    _conv(128, 128, 28, 3),
    _conv(256, 256, 14, 3),
    _conv(512, 512, 7, 3),
    _conv(64, 128, 56, 1, 2),
    Workload("softmax 1024", "softmax", ((1024, 1024),), axis=-1),
    Workload("layer norm 1024x768", "layer_norm", ((1024, 768),), ((768,), (768,))),
    Workload("gelu 1M", "gelu", ((1024, 1024),)),
    Workload("row sum 4096", "sum", ((4096, 4096),), axis=1),
    Workload("column sum 4096", "sum", ((4096, 4096),), axis=0),
    Workload("add 16M", "add", ((4096, 4096), (4096, 4096))),
    Workload("transpose 2048", "transpose", ((2048, 2048),)),
    Workload("max pool 3x3 s2 64 @112", "max_pool2d", ((1, 64, 112, 112),), stride=2, padding=1, window=3),
)

MODELS: tuple[Workload, ...] = (
    Workload("resnet18", "model", ((1, 3, 224, 224),)),
    Workload("resnet50", "model", ((1, 3, 224, 224),)),
    Workload("encoder", "model", ((1, 128, 768),)),
    Workload("mlp", "model", ((1, 784),)),
)

SUITES: dict[str, tuple[Workload, ...]] = {"kernels": KERNELS, "models": MODELS}


def select(suite: str, only: Sequence[str] = ()) -> tuple[Workload, ...]:
    """The suite's workloads, or those whose name is in ``only``, in the suite's order.

    Raises:
        ValueError: a name in ``only`` is in no workload of the suite.
    """
    workloads = SUITES[suite]
    unknown = sorted(set(only) - {w.name for w in workloads})
    if unknown:
        raise ValueError(f"--only {unknown[0]!r}: the {suite} suite has {', '.join(w.name for w in workloads)}")
    return tuple(w for w in workloads if not only or w.name in only)


@functools.lru_cache(maxsize=2)
def arrays(workload: Workload) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Inputs and constants: standard normal, the same in every process. Constants are scaled by their fan-in."""
    rng = np.random.default_rng(zlib.crc32(workload.name.encode()))
    inputs = tuple(rng.standard_normal(shape, dtype=np.float32) for shape in workload.inputs)
    constants = tuple(
        rng.standard_normal(shape, dtype=np.float32) / np.float32(math.sqrt(max(1, math.prod(shape[1:]))))
        for shape in workload.constants
    )
    return inputs, constants
