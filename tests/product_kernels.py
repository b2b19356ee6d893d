"""Small products that a matrix unit multiplies: of every type and layout, convolutions, and with
epilogues. For tests, and for what is run on a GPU without pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tests.gpu_hand import gemm, image_kernel
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule as fuse
from tunegrad.ir.kernel import Kernel

__all__ = ["KERNELS", "MORE", "conv", "kernel_of", "residual", "summed", "weights", "x"]


def x(*shape: int, dtype: str = "f16") -> Tensor:
    return Tensor.input(f"x{'_'.join(map(str, shape))}", shape, dtype)


def weights(*shape: int, dtype: str = "f16") -> Tensor:
    values = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    return Tensor.constant(values).cast(dtype)


def summed(a: Tensor, b: Tensor) -> Tensor:
    return (a.cast("f32") @ b.cast("f32")).cast("f16")


def conv(
    channels: int, filters: int, size: int, side: int, stride: int = 1, dtype: str = "f16"
) -> Tensor:
    image, w = (
        x(1, channels, size, size, dtype=dtype),
        weights(filters, channels, side, side, dtype=dtype),
    )
    y = image.cast("f32").conv2d(w.cast("f32"), stride=stride, padding=side // 2)
    return y.relu().cast(dtype)


def kernel_of(tensor: Tensor) -> Kernel:
    launches = fuse(fold_constants((tensor.node,))).launches
    return max((x.kernel for x in launches), key=lambda k: k.flops)


def residual(m: int, n: int, k: int, dtype: str = "f16") -> Kernel:
    """relu(A @ B + bias + D) in 16 bits."""
    a, b, d = x(m, k, dtype=dtype), weights(k, n, dtype=dtype), x(m, n, dtype=dtype)
    bias = weights(n, dtype=dtype)
    y = a.cast("f32") @ b.cast("f32") + bias.cast("f32") + d.cast("f32")
    return kernel_of(y.relu().cast(dtype))


KERNELS: Mapping[str, Callable[[], Kernel]] = {
    "gemm": lambda: gemm(64, 64, 64),
    "gemm transposed": lambda: gemm(64, 32, 96, transposed=True),
    "gemm bf16": lambda: gemm(32, 64, 64, "bf16"),
    "gemm with tails": lambda: gemm(40, 21, 48),
    "gemm of one tile": lambda: gemm(16, 8, 16),
    "gemm i8": lambda: gemm(32, 64, 96, "i8", "i32"),
    "gemm i8 transposed": lambda: gemm(64, 32, 128, "i8", "i32", transposed=True),
    "gemm tf32": lambda: gemm(64, 64, 64, "tf32"),
    "gemm tf32 transposed": lambda: gemm(40, 32, 96, "tf32", transposed=True),
    "gemm f64": lambda: gemm(16, 16, 8, "f64", "f64"),
    "half a tile": lambda: gemm(14, 7, 32),
    "linear": lambda: kernel_of(summed(x(24, 64), weights(48, 64).transpose(0, 1))),
    "batched": lambda: kernel_of(summed(x(3, 16, 32), x(3, 32, 24))),
    "conv 3x3": lambda: kernel_of(conv(16, 24, 8, 3)),
    "conv 3x3 s2 bf16": lambda: kernel_of(conv(16, 16, 9, 3, stride=2, dtype="bf16")),
    "conv 1x1": lambda: kernel_of(conv(32, 16, 14, 1)),
}

MORE: Mapping[str, Callable[[], Kernel]] = {
    "residual": lambda: residual(64, 128, 64),
    "residual bf16": lambda: residual(32, 64, 64, "bf16"),
    "residual with tails of rows": lambda: residual(40, 64, 48),
    "residual with tails of columns": lambda: residual(64, 44, 48),
    "residual with odd rows": lambda: residual(64, 43, 48),
    "image": lambda: image_kernel(2, 32, 8),
}
