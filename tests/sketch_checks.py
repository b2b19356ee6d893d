"""Whether what a sketch draws is legal and computes what the kernel says, by the interpreter."""

from __future__ import annotations

import random

import numpy as np

from tests.interpreter import interpret, pack_buffers
from tests.verifiers.program import verify_program
from tunegrad.ir.interpret.kernel import interpret as interpret_kernel
from tunegrad.ir.interpret.numeric import to_compute, to_memory
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.search import RandomChooser

__all__ = ["agrees", "check_answers", "drawn_schedule"]

_DRAWS = 40


def agrees(kernel: Kernel, schedule: Schedule, target: Target) -> None:
    """The program of a schedule computes what the kernel says."""
    program = Space(kernel, target).lower(schedule)
    verify_program(program, target)
    rng = np.random.default_rng(0)
    made = {
        p.name: np.zeros(p.size, p.dtype.numpy)
        if p.role == "out"
        else to_memory(rng.standard_normal(p.size), p.dtype)
        for p in kernel.params
    }
    want = interpret_kernel(kernel, made, as_float64=True)
    done = pack_buffers(program, made)
    interpret(program, done)
    for p in kernel.outputs:
        got = to_compute(done[p.name], p.dtype).astype(np.float64)
        scale = 1e-2 if p.dtype.bits == 16 else 1e-4
        np.testing.assert_allclose(
            got, want[p.name].reshape(-1), rtol=scale, atol=scale, err_msg=schedule.text
        )


def drawn_schedule(kernel: Kernel, target: Target, seed: str) -> Schedule:
    """A schedule of random answers."""
    return Space(kernel, target).sample(RandomChooser(random.Random(seed)))


def check_answers(kernel: Kernel, target: Target, name: str) -> None:
    """Many random answers are legal, and lower."""
    space = Space(kernel, target)
    for seed in range(_DRAWS):
        space.lower(drawn_schedule(kernel, target, f"{name} {seed}"))
