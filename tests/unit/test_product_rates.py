"""Products are bounded, planned and searched at the rate of the unit that multiplies them."""

from dataclasses import replace

import pytest
from pair_builders import DOT

from tests.gpu_hand import gemm
from tunegrad.devices import MachineLimits
from tunegrad.devices.cuda.architectures import typical
from tunegrad.devices.host.facts import AMX_BF16, declared
from tunegrad.opts import kernel_flops_per_s, product_cycles, product_rate
from tunegrad.opts.sketches.cycles import Block, Problem, cycles
from tunegrad.planning import expected_s
from tunegrad.search import SearchTask
from tunegrad.search.budget import BudgetPolicy, _Prospect
from tunegrad.search.promote import LEAST_EFFECT
from tunegrad.tuning.roofline import Roofline

ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_120a")
N = 4096


def roofline(target, products=()):
    """Of a device that does in f32 what was declared of it."""
    flops, read = target.flops_per_s(), target.rates.memory_bytes_per_s
    at = target.threads
    limits = MachineLimits(((at, flops),), ((at, read),), ((at, read),), (), products)
    return Roofline(limits, target)


@pytest.mark.parametrize(
    ("arch", "dtype", "factor"),
    [
        ("sm_80", "f16", 16), ("sm_80", "bf16", 16), ("sm_80", "tf32", 8), ("sm_80", "f64", 1),
        ("sm_89", "f16", 4), ("sm_90a", "f16", 8), ("sm_80", "f32", 1),
    ],
)  # fmt: skip
def test_a_product_has_the_rate_of_the_unit_that_takes_it(arch, dtype, factor):
    target, total = typical(arch), "f64" if dtype == "f64" else "f32"
    kernel = gemm(256, 256, 256, dtype, total)
    assert kernel_flops_per_s(kernel, target) == pytest.approx(factor * target.flops_per_s())
    flops_s = 2 * 256**3 / (factor * target.flops_per_s())
    assert roofline(target).bounds(kernel).flops_s == pytest.approx(flops_s)


def test_a_product_that_no_unit_takes_has_f32_s_rate():
    assert product_rate(gemm(256, 256, 3), typical("sm_80")) == "f32"
    assert product_rate(gemm(256, 256, 256), replace(typical("sm_80"), units=())) == "f32"


def test_what_was_measured_of_a_unit_counts_before_what_is_declared():
    target, kernel = typical("sm_80"), gemm(256, 256, 256)
    (unit,) = (u for u in target.units if u.dtypes[0] == "f16")
    assert roofline(target, ((unit.name, 1e14),)).flops_per_s(kernel) == 1e14
    assert roofline(target, (("another", 1e14),)).flops_per_s(kernel) > 1e14


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_search_hopes_for_more_of_a_product_by_a_unit_than_the_least_effect(arch):
    """Its default schedule, at the time of the model of cycles: it was beyond the floor."""
    kernel, target = gemm(N, N, N), typical(arch)
    current_s = product_cycles(kernel, target) / target.cycles_per_s
    task = replace(SearchTask.of(kernel), floor_s=roofline(target).bound_s(kernel))
    assert task.floor_s < current_s
    assert _Prospect(task, BudgetPolicy()).gain_s(current_s) > 1.5 * LEAST_EFFECT * current_s


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_product_by_hand_does_not_pass_the_peak(arch):
    """128 x 128 x 32 by 4 x 2 warps of 32 x 64, 4 slots."""
    target = typical(arch)
    block, problem = Block((2, 8), (4, 2), 32, 4), Problem(1, N, N, N, 2, 4)
    seconds = cycles(block, problem, target.units[0], target) / target.cycles_per_s
    assert 40 < roofline(target).pct_peak(gemm(N, N, N), seconds) < 100


@pytest.mark.parametrize("dtype", ["f16", "tf32"])
def test_a_plan_reckons_with_the_unit(dtype):
    target, kernel = typical("sm_80"), gemm(N, N, N, dtype)
    by_unit = 2 * N**3 / kernel_flops_per_s(kernel, target)
    assert expected_s(kernel, target, "strict") == pytest.approx(by_unit, rel=0.1)
    assert by_unit < 0.2 * expected_s(gemm(N, N, N, "f32"), target, "strict")


def test_pairs_are_multiplied_by_vectors_and_faster_by_tiles():
    vectors = declared(DOT)
    tiles = declared(replace(DOT, units=(AMX_BF16,), features=(*DOT.features, "+amx-tile")))
    assert vectors.rates.speedup("bf16x2") == 2
    assert tiles.rates.speedup("bf16x2") == 0.5  # as Intel's do; the tiles are for them
    assert tiles.rates.speedup(AMX_BF16.name) == 16
    assert vectors.rates.speedup(AMX_BF16.name) == 1
