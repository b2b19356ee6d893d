"""Schedules of sums of pairs, and of the kernels that make pairs, compute what their kernels say:
odd shapes too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from pair_builders import CONVS, MATMULS, Case, conv, matmul, memory, paired
from word_checks import interpreted

from tunegrad.ir.dtypes import BF16
from tunegrad.ir.interpret.kernel import interpret as interpret_kernel
from tunegrad.ir.interpret.numeric import to_compute
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target

CPU = Target("cpu", "cpu", "x86-64", vector_bytes=16, registers=16, threads=3, l2_bytes=4096)
CASES = [matmul(*shapes) for shapes in MATMULS] + [conv(*shape) for shape in CONVS]


class _Drawn:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def choose(self, name: str, options: Sequence[object], default: int) -> int:
        return default if self.rng.random() < 0.3 else self.rng.randrange(len(options))


def _kernels(case: Case) -> list[Kernel]:
    return [launch.kernel for launch in paired(case).launches]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c.output))
def test_random_schedules_of_pairs_agree_with_their_kernels(case: Case, seed: int) -> None:
    for kernel in _kernels(case):
        ran = interpreted(kernel, CPU, seed, _Drawn(seed) if seed else None, memory)
        if ran is None:
            continue
        text, before, after = ran
        ((name, want),) = interpret_kernel(kernel, before).items()
        if kernel.param(name).dtype.is_pair:
            np.testing.assert_array_equal(after[name], want, err_msg=text)
        else:
            np.testing.assert_allclose(after[name], want, rtol=1e-5, atol=1e-5, err_msg=text)


@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c.output))
def test_kernels_of_pairs_in_a_row_give_the_products_of_numpy(case: Case) -> None:
    plan = paired(case)
    values: dict[int, np.ndarray] = {}
    for place in plan.inputs:
        buffer = plan.buffers[place]
        values[place] = buffer.layout.pack(case.values[buffer.name])
    for launch in plan.launches:
        named = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
        read = {
            p.name: values[named[p.name]].view(p.dtype.numpy)  # rows of bf16 are read as pairs
            for p in launch.kernel.params
            if p.role != "out"
        }
        for name, made in interpret_kernel(launch.kernel, read).items():
            values[named[name]] = made
    (place,) = plan.outputs
    buffer = plan.buffers[place]
    got = buffer.layout.unpack(values[place]).reshape(case.output.shape)
    a, b = (to_compute(case.values[n], BF16).astype(np.float64) for n in "ab")
    want = a @ b if a.ndim != 4 or b.ndim != 4 else _convolved(a, b, case.output.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def _convolved(image: np.ndarray, taps: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """3x3 with a padding of 1; the stride follows from the shape."""
    stride = -(-image.shape[2] // shape[2])
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[
        :, :, ::stride, ::stride
    ]
    return np.einsum("ncyxhw,ochw->noyx", windows, taps)
