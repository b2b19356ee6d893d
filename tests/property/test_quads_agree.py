"""Schedules of sums of products of bytes, and of the kernels that make words, compute what their
kernels say: odd shapes too.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from quad_builders import CONVS, MATMULS, Case, conv, in_fours, matmul, memory
from word_checks import interpreted

from tunegrad.ir.interpret.kernel import interpret as interpret_kernel
from tunegrad.ir.target import Target
from tunegrad.search import RandomChooser

CPU = Target("cpu", "cpu", "x86-64", vector_bytes=16, registers=16, threads=3, l2_bytes=4096)
CASES = [
    of(*shape, a, b, constant=constant)
    for of, shapes in ((matmul, MATMULS), (conv, CONVS))
    for shape in shapes
    for a, b, constant in (("u8", "i8", False), ("i8", "i8", True))
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c.output))
def test_random_schedules_of_words_agree_with_their_kernels(case: Case, seed: int) -> None:
    for launch in in_fours(case).launches:
        kernel, chooser = launch.kernel, RandomChooser(random.Random(seed)) if seed else None
        ran = interpreted(kernel, CPU, seed, chooser, memory)
        if ran is None:
            continue
        text, before, after = ran
        ((name, want),) = interpret_kernel(kernel, before).items()
        ((_, fast),) = interpret_kernel(kernel, before, as_float64=True).items()
        np.testing.assert_array_equal(after[name], want, err_msg=text)
        np.testing.assert_array_equal(fast, want)
