"""Schedules of sums of products of bytes, and of the kernels that make words, compute what their
kernels say: odd shapes too.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from quad_builders import CONVS, MATMULS, Case, conv, in_fours, matmul, memory

from tunegrad.errors import IllegalAction
from tunegrad.ir.interpret_kernel import interpret as interpret_kernel
from tunegrad.ir.interpret_program import interpret as interpret_program
from tunegrad.ir.interpret_program import pack_buffers
from tunegrad.ir.target import Target
from tunegrad.ir.verify_program import verify_program
from tunegrad.opts import Space
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
        kernel, space = launch.kernel, Space(launch.kernel, CPU)
        try:
            made = space.sample(RandomChooser(random.Random(seed))) if seed else space.defaults()[0]
            program = space.lower(made)
        except IllegalAction:
            continue
        verify_program(program)
        buffers = {p.name: memory(p.dtype, p.size, seed) for p in kernel.params}
        buffers[kernel.outputs[0].name][:] = 0
        buffers = pack_buffers(program, buffers)
        before = {n: b.copy() for n, b in buffers.items()}
        ((name, want),) = interpret_kernel(kernel, before).items()
        ((_, fast),) = interpret_kernel(kernel, before, as_float64=True).items()
        interpret_program(program, buffers)
        np.testing.assert_array_equal(buffers[name], want, err_msg=made.text)
        np.testing.assert_array_equal(fast, want)
