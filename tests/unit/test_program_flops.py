"""What a program executes: tails and padding are counted, threads share their loop."""

from __future__ import annotations

import numpy as np
import pytest

from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program_flops import executed_flops
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.tuning.workload import workload_of_function

TARGET = Target("cpu", "cpu", "x", threads=2, vector_bytes=16, registers=16)


def matmul(m: int, n: int, k: int) -> Kernel:
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    (use,) = workload_of_function(lambda x, y: x @ y, (a, b)).kernels
    return use.kernel


def executed(kernel: Kernel, actions: str) -> int | None:
    space = Space(kernel.canonical(), TARGET)
    return executed_flops(space.lower(Schedule.parse(actions)))


def test_unscheduled_product_executes_what_it_needs() -> None:
    kernel = matmul(5, 6, 7)
    assert executed(kernel, "") == kernel.flops == 2 * 5 * 6 * 7


def test_tail_of_a_serial_loop_costs_nothing() -> None:
    assert executed(matmul(5, 6, 7), "tile(axis=a, size=2)") == 2 * 5 * 6 * 7


def test_sums_through_memory_are_additions_too() -> None:
    found = executed(matmul(5, 6, 7), "tile(axis=a, size=2) reorder(order=(a0, b, ra, a1))")
    assert found == 2 * 5 * 6 * 7 + 5 * 6 * (7 - 1)


def test_masked_lanes_are_executed() -> None:
    vectors = "tile(axis=b, size=4) reorder(order=(a, b0, ra, b1)) vectorize(axis=b1)"
    assert executed(matmul(5, 6, 7), vectors) == 2 * 5 * 8 * 7


def test_threads_share_their_loop() -> None:
    kernel = matmul(6, 8, 7)
    assert executed(kernel, "tile(axis=a, size=3) thread(axis=a0, count=2)") == kernel.flops


def test_products_with_the_padding_of_a_convolution_are_executed() -> None:
    x, w = np.ones((1, 1, 6, 6), np.float32), np.ones((1, 1, 3, 3), np.float32)
    (use,) = workload_of_function(lambda x, w: x.conv2d(w, padding=1), (x, w)).kernels
    found = executed_flops(Space(use.kernel, TARGET).lower(Schedule(())))
    assert found == use.kernel.flops == 2 * 36 * 9


def test_program_that_takes_too_long_to_follow_has_no_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tunegrad.ir.program_flops._MAX_STEPS", 1)
    assert executed(matmul(5, 6, 7), "") is None
