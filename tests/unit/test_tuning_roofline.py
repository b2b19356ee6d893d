"""The bound that per cents of peak refer to."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from pair_builders import DOT

from tunegrad.cli.tables.printer import peak_text
from tunegrad.devices import MachineLimits
from tunegrad.devices.host.facts import declared
from tunegrad.frontend import Tensor
from tunegrad.ir.index import Valid
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.tuning import roofline
from tunegrad.tuning.roofline import Roofline, needed_flops
from tunegrad.tuning.workload import workload_of_function

LIMITS = MachineLimits(
    fma_f32=((1, 100e9), (2, 200e9)),
    read_dram=((1, 10e9), (2, 15e9)),
    triad_dram=((1, 10e9), (2, 15e9)),
    read_l2=((1, 50e9), (2, 100e9)),
)
TARGET = Target("cpu", "cpu", "x", threads=2, l3_bytes=1 << 20)


def conv(size: int, stride: int = 1, padding: int = 1) -> Kernel:
    x, w = np.ones((1, 3, size, size), np.float32), np.ones((4, 3, 3, 3), np.float32)
    (use,) = workload_of_function(
        lambda x, w: x.conv2d(w, stride=stride, padding=padding), (x, w)
    ).kernels
    return use.kernel


@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(7, 1, 1), (8, 2, 1), (5, 1, 2), (6, 1, 0)]
)
def test_taps_on_the_padding_are_not_counted(size: int, stride: int, padding: int) -> None:
    out = (size + 2 * padding - 3) // stride + 1
    inside = sum(
        0 <= y * stride + dy - padding < size and 0 <= x * stride + dx - padding < size
        for y, x, dy, dx in product(range(out), range(out), range(3), range(3))
    )
    kernel = conv(size, stride, padding)
    assert kernel.flops == 2 * 4 * 3 * 9 * out * out
    assert needed_flops(kernel) == 2 * 4 * 3 * inside


def matmul(n: int) -> Kernel:
    a = np.ones((n, n), np.float32)
    (use,) = workload_of_function(lambda x, y: x @ y, (a, a)).kernels
    return use.kernel


def test_arithmetic_bounds_a_large_matmul() -> None:
    kernel = matmul(256)
    bound_s = 2 * 256**3 / 200e9
    assert Roofline(LIMITS, TARGET).bound_s(kernel) == pytest.approx(bound_s)
    assert Roofline(LIMITS, TARGET).pct_peak(kernel, 2 * bound_s) == pytest.approx(50.0)


@pytest.mark.parametrize(("features", "factor"), [(DOT.features, 2), ((), 1)])
def test_products_of_pairs_have_their_cpu_s_rate(features: tuple[str, ...], factor: int) -> None:
    a = Tensor(np.ones((256, 256), np.uint16), "bf16")
    *_, use = workload_of_function(lambda x, y: x @ y, (a, a), "bf16-dot", DOT).kernels
    roofline = Roofline(LIMITS, declared(replace(TARGET, features=features)))
    assert roofline.bounds(use.kernel).flops_s == pytest.approx(2 * 256**3 / (factor * 200e9))


def test_pairs_on_the_padding_are_not_counted() -> None:
    x, w = (
        Tensor(np.ones((1, 4, 7, 7), np.uint16), "bf16"),
        Tensor(np.ones((4, 4, 3, 3), np.uint16), "bf16"),
    )
    function = lambda x, w: x.conv2d(w, padding=1)  # noqa: E731
    *_, use = workload_of_function(function, (x, w), "bf16-dot", DOT).kernels
    assert use.kernel.flops == 2 * 4 * 4 * 9 * 49
    assert needed_flops(use.kernel) == 2 * 4 * 4 * 19**2


def test_bytes_bound_a_sum_in_cache_and_in_memory() -> None:
    for n, bandwidth in ((256, 100e9), (1024, 15e9)):
        (use,) = workload_of_function(lambda x: x.sum(1), (np.ones((n, n), np.float32),)).kernels
        bound_s = use.kernel.unique_bytes / bandwidth
        assert Roofline(LIMITS, TARGET).bound_s(use.kernel) == pytest.approx(bound_s)


def test_a_run_beyond_a_peak_raises_that_peak() -> None:
    product, roofline = matmul(256), Roofline(LIMITS, TARGET)
    bound_s = roofline.bound_s(product)
    raised = roofline.raised(product, bound_s / 1.25)
    assert raised.pct_peak(product, bound_s / 1.25) == pytest.approx(100.0)
    assert raised.peak_flops_per_s == pytest.approx(1.25 * roofline.peak_flops_per_s)
    assert raised.memory_bytes_per_s == roofline.memory_bytes_per_s
    assert roofline.raised(product, 2 * bound_s) is roofline.raised(product, float("inf"))
    (use,) = workload_of_function(lambda x: x.sum(1), (np.ones((256, 256), np.float32),)).kernels
    bytes_s = roofline.bound_s(use.kernel)
    found = roofline.raised(use.kernel, bytes_s / 2)
    assert found.cache_bytes_per_s == pytest.approx(2 * roofline.cache_bytes_per_s)
    assert found.memory_bytes_per_s == roofline.memory_bytes_per_s


def test_time_that_is_not_known_is_no_per_cent() -> None:
    assert Roofline(LIMITS, TARGET).pct_peak(matmul(8), float("inf")) == 0.0


def test_a_time_that_no_program_takes_is_refused_with_both_figures() -> None:
    """Three times the peak of arithmetic, or of memory beyond the caches, is no program."""
    roofline, kernel = Roofline(LIMITS, TARGET), matmul(256)
    least_s = 2 * 256**3 / 200e9
    assert roofline.refusal(kernel, least_s / 3.1) == (
        f"took {least_s / 3.1:.4g} s, at least {least_s:.4g} s are possible: {2 * 256**3} "
        "operations, at 200 GFLOP/s as the machine was measured"
    )
    assert roofline.refusal(kernel, least_s / 2.9) == ""
    (use,) = workload_of_function(lambda x: x + 1.0, (np.ones((1 << 20, 4), np.float32),)).kernels
    beyond = use.kernel.unique_bytes - TARGET.cached_bytes
    assert beyond > 0
    assert f"{beyond} bytes beyond what caches hold, at 15 GB/s" in roofline.refusal(
        use.kernel, beyond / 15e9 / 3.1
    )
    assert roofline.refusal(use.kernel, beyond / 15e9 / 2.9) == ""


def elementwise(n: int) -> Kernel:
    (use,) = workload_of_function(lambda x: x + 1.0, (np.ones(n, np.float32),)).kernels
    return use.kernel


def test_a_time_that_no_second_level_cache_allows_is_refused() -> None:
    """What returns at once takes less than it takes to read a few first-level caches."""
    roofline, kernel = Roofline(LIMITS, TARGET), elementwise(100_000)
    beyond = 400_000 - 2 * TARGET.l1_bytes
    assert kernel.unique_bytes < TARGET.cached_bytes
    assert f"{beyond} bytes beyond what first-level caches hold, at 100 GB/s" in roofline.refusal(
        kernel, beyond / 100e9 / 3.1
    )
    assert roofline.refusal(kernel, beyond / 100e9 / 2.9) == ""
    small = elementwise(16_000)  # the first level holds it
    least_s = 64_000 / 400e9
    assert "64000 bytes, at 400 GB/s" in roofline.refusal(small, least_s / 3.1)
    assert roofline.refusal(small, least_s / 2.9) == ""


PARTS = {
    "rows": lambda x: x[5:9] * 2.0,
    "each hundredth column": lambda x: x[:, ::100] * 2.0,
    "a diagonal": lambda x: x.diagonal() * 2.0,
    "a window of one row": lambda x: x[7:8].avg_pool1d(3, stride=1),
    "what a pad lets through": lambda x: x[:4].pad(((0, 2000), (0, 0))).sum(0),
    "what a long pad lets through": lambda x: x.reshape(-1)[:9].pad(((0, 5_000_000),)).sum(),
    "some of its rows": lambda x: x.index_select(0, Tensor(np.arange(4, dtype=np.int64))) * 2.0,
}


@pytest.mark.parametrize("part", PARTS)
def test_a_kernel_that_reads_a_part_of_a_large_tensor_may_be_fast(part: str) -> None:
    """As slices of a table are, which took a default for wrong."""
    roofline, shape = Roofline(LIMITS, TARGET), (2000, 2000)
    for use in workload_of_function(PARTS[part], (np.ones(shape, np.float32),)).kernels:
        assert roofline.refusal(use.kernel, 2e-5) == "", use.kernel.text


def test_a_mask_that_an_input_decides_may_hide_all() -> None:
    """As of rows of a padded table, at which the check itself failed."""
    uses = workload_of_function(
        lambda x, rows: x.pad(((1, 1), (0, 0))).index_select(0, rows) * 2.0,
        (np.ones((50, 40_000), np.float32), np.arange(4)),
    ).kernels
    masks = [r.index for use in uses for _, x in use.kernel.loads for r in x.valid]
    assert any(list(index.elements()) for index in masks)
    for use in uses:
        assert Roofline(LIMITS, TARGET).refusal(use.kernel, 1e-5) == ""


def test_facts_of_a_kernel_are_worked_out_once_for_all_of_its_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []

    def share(valid: Valid, unknown: float = 1.0) -> float:
        counted.append(1)
        return share_of(valid, unknown)

    share_of = roofline._share
    monkeypatch.setattr(roofline, "_share", share)
    kernel, limits = conv(9, 1, 1), Roofline(LIMITS, TARGET)
    limits.refusal(kernel, 1e-3)
    once = len(counted)
    for microseconds in range(1, 20):
        limits.refusal(conv(9, 1, 1), 1e-6 * microseconds)
        limits.pct_peak(kernel, 1e-6 * microseconds)
    assert 0 < len(counted) == once


def test_a_run_that_raised_the_peak_is_at_a_hundred_per_cent() -> None:
    """It was shown as more, where a division rounds."""
    kernel, line = conv(8), Roofline(LIMITS, TARGET)
    for share in range(34, 100):
        seconds = line.bound_s(kernel) * share / 100
        assert peak_text(line.raised(kernel, seconds).pct_peak(kernel, seconds)) == "100.0"
