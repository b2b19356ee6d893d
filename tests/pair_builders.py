"""Sums of products of bf16 tensors for tests: their graphs, their kernels in pairs, and their
values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tunegrad.frontend import Tensor, bf16_bits, bf16_values
from tunegrad.ir.dtypes import BF16, DType
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.planning import prepared

__all__ = ["CONVS", "DOT", "MATMULS", "Case", "conv", "dot_kernel", "matmul", "memory", "paired"]

DOT = Target(
    "cpu", "cpu", "znver4", ("+avx512bf16", "+avx512f", "+avx512vl"), vector_bytes=64, registers=32
)  # fmt: skip
"""A CPU that multiplies pairs."""

MATMULS = (
    ((5, 7), (7, 3)), ((2, 9), (9, 4)), ((13, 2), (2, 11)), ((17, 31), (31, 19)),
    ((4, 16), (16, 32)),
    ((2, 3, 5), (2, 5, 7)), ((3, 1, 6, 11), (2, 11, 5)),
)  # fmt: skip
"""Shapes with odd, prime and even inner extents, with and without batches."""

CONVS = ((2, 3, 1), (3, 4, 1), (4, 5, 2), (5, 2, 1))
"""(channels, filters, stride) of 3x3 convolutions with padding."""


@dataclass(frozen=True)
class Case:
    """A sum of products that leaves its f32 accumulator as it is, and its operands' values."""

    output: Tensor
    values: dict[str, NDArray[np.uint16]]

    @property
    def wide(self) -> dict[str, NDArray[np.float32]]:
        return {name: bf16_values(bits) for name, bits in self.values.items()}


def matmul(left: tuple[int, ...], right: tuple[int, ...]) -> Case:
    """``a @ b`` of bf16 inputs, in f32."""
    a, b = Tensor.input("a", left, "bf16"), Tensor.input("b", right, "bf16")
    return Case(a.cast("f32") @ b.cast("f32"), {"a": _bits(left), "b": _bits(right)})


def conv(channels: int, filters: int, stride: int) -> Case:
    """A padded 3x3 convolution of two small images of bf16, in f32."""
    image, taps = (2, channels, 6, 5), (filters, channels, 3, 3)
    a, b = Tensor.input("a", image, "bf16"), Tensor.input("b", taps, "bf16")
    made = a.cast("f32").conv2d(b.cast("f32"), stride=stride, padding=1)
    return Case(made, {"a": _bits(image), "b": _bits(taps)})


def paired(case: Case) -> LaunchPlan:
    """The kernels that make pairs and multiply them, as for a CPU that can."""
    return schedule(prepared((case.output.node,), "bf16-dot", DOT))


def dot_kernel(case: Case) -> Kernel:
    """The kernel that multiplies pairs; the others make them."""
    return paired(case).launches[-1].kernel


def memory(dtype: DType, size: int, seed: int) -> NDArray[np.generic]:
    """Values of a buffer; of pairs, two bf16 that are no subnormal numbers."""
    rng = np.random.default_rng([seed, size])
    if dtype.is_pair:
        halves = bf16_bits(rng.standard_normal(2 * size) + 2).astype(np.uint32)
        return halves[0::2] | halves[1::2] << 16
    if dtype == BF16:
        return bf16_bits(rng.standard_normal(size))
    return rng.standard_normal(size).astype(dtype.numpy)


def _bits(shape: tuple[int, ...]) -> NDArray[np.uint16]:
    return bf16_bits(np.random.default_rng(list(shape)).standard_normal(shape))
