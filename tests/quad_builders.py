"""Sums of products of bytes for tests: their graphs, their kernels in fours, and their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import DType, dtype_of
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.planning import prepared

__all__ = [
    "CONVS", "MATMULS", "VNNI", "Case", "conv", "dot_kernel", "drawn", "in_fours", "matmul",
    "memory",
]  # fmt: skip

VNNI = Target(
    "cpu", "cpu", "znver4", ("+avx512f", "+avx512vl", "+avx512vnni"), vector_bytes=64, registers=32
)
"""A CPU that multiplies bytes in fours."""

MATMULS = (
    ((5, 7), (7, 3)), ((2, 9), (9, 4)), ((13, 4), (4, 11)), ((17, 31), (31, 19)),
    ((4, 16), (16, 32)),
    ((2, 3, 5), (2, 5, 7)), ((3, 1, 8, 12), (2, 12, 5)),
)  # fmt: skip
"""Shapes with inner extents that are multiples of four and others, with and without batches."""

CONVS = ((2, 3, 1), (4, 4, 1), (8, 5, 2), (5, 2, 1))
"""(channels, filters, stride) of 3x3 convolutions with padding."""


@dataclass(frozen=True)
class Case:
    """A sum of products of bytes in i32, and its operands' values, the extreme ones among them."""

    output: Tensor
    values: dict[str, NDArray[np.generic]]


def drawn(shape: tuple[int, ...], dtype: str, seed: int = 0) -> NDArray[np.generic]:
    """Bytes of the whole range, a quarter of them at its ends."""
    kind = dtype_of(dtype)
    rng = np.random.default_rng([seed, *shape])
    values = rng.integers(kind.least, kind.greatest + 1, shape)
    ends = np.where(rng.integers(0, 2, shape) == 0, kind.least, kind.greatest)
    return np.where(rng.integers(0, 4, shape) == 0, ends, values).astype(kind.numpy)


def matmul(
    left: tuple[int, ...], right: tuple[int, ...], a: str = "u8", b: str = "i8", *,
    constant: bool = False,
) -> Case:  # fmt: skip
    """``a @ b`` of those dtypes, in i32; ``constant``: b is known."""
    values = {"a": drawn(left, a, 1), "b": drawn(right, b, 2)}
    x = Tensor.input("a", left, a)
    y = Tensor.constant(values["b"]) if constant else Tensor.input("b", right, b)
    return Case(x.cast("i32") @ y.cast("i32"), values)


def conv(
    channels: int, filters: int, stride: int, a: str = "u8", b: str = "i8", *,
    constant: bool = False,
) -> Case:  # fmt: skip
    """A padded 3x3 convolution of two small images of bytes, in i32."""
    image, taps = (2, channels, 6, 5), (filters, channels, 3, 3)
    values = {"a": drawn(image, a, 3), "b": drawn(taps, b, 4)}
    x = Tensor.input("a", image, a).cast("i32")
    y = Tensor.constant(values["b"]) if constant else Tensor.input("b", taps, b)
    return Case(x.conv2d(y.cast("i32"), stride=stride, padding=1), values)


def in_fours(case: Case, target: Target = VNNI) -> LaunchPlan:
    """The kernels that make words and multiply them, as for a CPU that can."""
    return schedule(prepared((case.output.node,), "strict", target))


def dot_kernel(case: Case) -> Kernel:
    """The kernel that multiplies words; the others make them."""
    return in_fours(case).launches[-1].kernel


def memory(dtype: DType, size: int, seed: int) -> NDArray[np.generic]:
    """Values of a buffer: of words four bytes of any value, of others any integers."""
    if dtype.is_quad and dtype.of is not None:
        return drawn((4 * size,), dtype.of.name, seed).view(dtype.numpy)
    low, high = max(dtype.least, -(1 << 31)), min(dtype.greatest, (1 << 31) - 1)
    return np.random.default_rng([seed, size]).integers(low, high + 1, size).astype(dtype.numpy)
