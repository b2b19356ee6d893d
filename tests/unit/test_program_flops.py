"""What a program executes: tails and padding are counted, threads share their loop."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernel_corpus import corpus_kernel
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import executed_flops
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.tuning.workload import workload_of_function

TARGET = Target("cpu", "cpu", "x", threads=2, vector_bytes=16, registers=16)


BY_HAND: dict[str, tuple[int, int]] = {
    # Arithmetic by the shapes, with what is done to each result; bytes of what is read and written.
    "gemm": (2 * 13 * 21 * 9, 4 * (13 * 9 + 9 * 21 + 13 * 21)),
    "gemm_square": (2 * 16**3, 4 * 3 * 16**2),
    "gemm_prime": (2 * 7 * 17 * 11 + 6 * 7 * 17, 4 * (7 * 11 + 11 * 17 + 17 + 7 * 17)),
    "linear": (2 * 5 * 19 * 24, 4 * (5 * 24 + 24 * 19 + 5 * 19)),
    "gemv": (2 * 37 * 40, 4 * (37 * 40 + 40 + 37)),
    "batched": (2 * 3 * 5 * 18 * 8, 4 * 3 * (5 * 8 + 8 * 18 + 5 * 18)),
    "scores": (2 * 2 * 6 * 7 * 8 + 2 * 6 * 7, 4 * 2 * (6 * 8 + 7 * 8 + 6 * 7)),
    "conv3x3": (17 * 36 * (2 * 4 * 9 + 3), 4 * (4 * 36 + 17 * 4 * 9 + 17 + 17 * 36)),
    "conv3x3s2": (8 * 25 * (2 * 3 * 9 + 3), 4 * (3 * 81 + 8 * 3 * 9 + 8 + 8 * 25)),
    "conv1x1": (16 * 25 * (2 * 8 + 3), 4 * (8 * 25 + 16 * 8 + 16 + 16 * 25)),
    "conv1x1s2": (18 * 9 * (2 * 5 + 3), 4 * (5 * 36 + 18 * 5 + 18 + 18 * 9)),
    "conv5x5": (5 * 49 * (2 * 2 * 25 + 3), 4 * (2 * 49 + 5 * 2 * 25 + 5 + 5 * 49)),
    "conv_dilated": (6 * 81 * (2 * 2 * 9 + 3), 4 * (2 * 81 + 6 * 2 * 9 + 6 + 6 * 81)),
    "conv_grouped": (8 * 25 * (2 * 2 * 9 + 3), 4 * (4 * 25 + 8 * 2 * 9 + 8 + 8 * 25)),
    "conv_depthwise": (6 * 25 * (2 * 9 + 3), 4 * (6 * 25 + 6 * 9 + 6 + 6 * 25)),
    "conv_residual": (6 * 25 * (2 * 6 * 9 + 3), 4 * (6 * 25 + 6 * 6 * 9 + 6 + 6 * 25)),
    "max_pool": (5 * 25 * 9 * 2, 4 * (5 * 81 + 5 * 25)),
    "avg_pool": (6 * 16 * (4 + 1), 4 * (6 * 64 + 6 * 16)),
    "global_pool": (20 * (25 + 1), 4 * (20 * 25 + 20)),
    "softmax": (5 * 23 * (1 + 3 + 4), 4 * 2 * 5 * 23),
    "row_sum": (6 * 45, 4 * (6 * 45 + 6)),
    "column_sum": (45 * 21, 4 * (45 * 21 + 21)),
    "full_sum": (7 * 19, 4 * (7 * 19 + 1)),
    "row_max": (6 * 37, 4 * (6 * 37 + 6)),
    "transpose": (0, 4 * 2 * 22 * 19),
    "add": (3 * 50, 4 * (2 * 3 * 50 + 50)),
    "gelu": (131 * 5, 4 * 2 * 131),
    "flip": (6 * 18, 4 * 2 * 6 * 18),
    "doubles": (9 * 12, 8 * (9 * 12 + 9)),
    "halves": (40, 2 * 2 * 40),
    "embedding": (0, 4 * (9 * 20 + 12 + 12 * 20)),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_kernel_s_flops_and_bytes_are_those_by_hand(name: str) -> None:
    kernel = corpus_kernel(name)
    assert (kernel.flops, kernel.unique_bytes) == BY_HAND[name]


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
    monkeypatch.setattr("tunegrad.ir.program._MAX_STEPS", 1)
    assert executed(matmul(5, 6, 7), "") is None
