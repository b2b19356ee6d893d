"""Products whose sum is split: which have them, what they are, and where one is expected."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest
from variant_builders import constant, kernel_of, only

from benchmarks.hand_schedules import AVX512
from tests.gpu_hand import gemm
from tunegrad.devices.cuda.architectures import typical
from tunegrad.errors import InternalError
from tunegrad.frontend import Tensor
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import MatMul, walk
from tunegrad.ir.target import Rates
from tunegrad.ir.variants import exact, parts_of, rewrite, splits_k, variants_of
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.opts import Space, product_cycles
from tunegrad.planning import allowed, expected

RATES = Rates((("f32", 1e11),), 4e11, 2e11, 3e-7)
ONE, TWO, MANY = (replace(AVX512, threads=n, rates=RATES) for n in (1, 2, 64))


def product(m: int, n: int, k: int) -> Kernel:
    return kernel_of(only(Tensor.input("x", (m, k)) @ Tensor.input("y", (k, n))))


def conv(channels: int, size: int, side: int) -> Kernel:
    x = Tensor.input("x", (1, channels, size, size))
    return kernel_of(only(x.conv2d(constant(channels, channels, side, side), padding=side // 2)))


def names(kernel: Kernel) -> list[str]:
    return [v for v in variants_of(kernel) if splits_k(v)]


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (product(64, 64, 4096), ["split_k2", "split_k4", "split_k8", "split_k16"]),
        (product(64, 64, 1024), ["split_k2", "split_k4"]),
        (product(64, 64, 511), []),
        (product(64, 64, 1000), []),
        (product(1, 512, 8192), ["split_k2", "split_k4", "split_k8", "split_k16"]),
        (conv(256, 7, 3), ["split_k2", "split_k4", "split_k8"]),
        (kernel_of(only(Tensor.input("x", (512, 4096)).sum(axis=1))), []),
        (kernel_of(only((Tensor.input("x", (512, 4096)) ** 2).sum(axis=1))), []),
        (kernel_of(only(Tensor.input("x", (512, 4096)).softmax())), []),
    ],
    ids=["long", "shorter", "short", "no parts alike", "vector", "image", "sum", "squares", "rows"],
)
def test_products_of_long_sums_have_splits(kernel: Kernel, found: list[str]) -> None:
    if "winograd4" in variants_of(kernel):
        assert set(found) <= set(variants_of(kernel))
    assert names(kernel) == found
    assert all(exact(v) for v in found)


def test_a_product_that_is_a_long_reduction_has_those_splits_alone() -> None:
    """Of at most 64 results, which the chunks of a reduction are for."""
    assert variants_of(product(8, 8, 1 << 16)) == ("direct", "split64", "split512")


@pytest.mark.parametrize("name", ["split_k3", "split_k", "split_k32", "split_k4x2"])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(InternalError, match=f"has no variant '{name}'; it has direct, split_k2"):
        parts_of(product(64, 64, 1024), name)


def test_parts_are_the_outermost_axis_and_are_added_with_the_epilogue() -> None:
    x, y, b = (Tensor.input(n, s) for n, s in (("x", (32, 1024)), ("y", (1024, 48)), ("b", (48,))))
    plan = only((x @ y + b).relu())
    assert "\n".join(p.text for p in parts_of(kernel_of(plan), "split_k4")) == dedent(
        """
        kernel
          param p0 f32[4,32,48] out row
          param p1 f32[32,1024] in row
          param p2 f32[1024,48] in row
          axis a:4 b:32 c:48
          v0 = add over ra:256 in f32: mul(p1[b, 256*a+ra], p2[256*a+ra, c])
          store p0[a, b, c] = v0
        kernel
          param p0 f32[32,48] out row
          param p1 f32[48] in row
          param p2 f32[4,32,48] in row
          axis a:32 b:48
          v0 = add over ra:4 in f32: p2[ra, a, b]
          store p0[a, b] = max(add(v0, p1[b]), 0.0:f32)
        """
    ).strip("\n")
    made = rewrite(plan, {kernel_of(plan).key: "split_k4"})
    made.verify()
    assert [[made.buffers[i].role for i in x.args] for x in made.launches] == [
        ["temp", "input", "input"], ["output", "input", "temp"],
    ]  # fmt: skip


def test_parts_stay_outermost_where_both_factors_lie_along_k() -> None:
    x, y = Tensor.input("x", (32, 1024)), Tensor.input("y", (48, 1024))
    partial, finish = parts_of(kernel_of(only(x @ y.transpose(0, 1))), "split_k2")
    assert partial.outputs[0].shape == finish.params[1].shape == (2, 32, 48)


def test_halves_are_added_in_f32() -> None:
    x, y = (Tensor.input(n, s, "f16").cast("f32") for n, s in (("x", (32, 512)), ("y", (512, 64))))
    partial, finish = parts_of(kernel_of(only((x @ y).cast("f16"))), "split_k2")
    assert [p.dtype.name for p in (partial.outputs[0], finish.outputs[0])] == ["f32", "f16"]


def test_the_channels_of_an_image_are_split() -> None:
    partial, finish = parts_of(conv(256, 7, 3), "split_k4")
    for part in (partial, finish):
        verify_kernel(part)
    assert np.prod([a.extent for a in partial.reduces[0].axes]) == 9 * 64
    assert [a.extent for a in finish.reduces[0].axes] == [4]


# ---- where one is expected


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_gpus_split_the_sum_where_blocks_are_few(arch: str) -> None:
    target = typical(arch)
    assert splits_k(expected(gemm(128, 1024, 8192), target))
    for shape in ((4096, 4096, 4096), (16, 4096, 4096), (1024, 1024, 1024), (4096, 4096, 1024)):
        assert expected(gemm(*shape), target) == "direct"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_parts_are_multiplied_by_the_unit_in_fewer_cycles(arch: str) -> None:
    kernel, target = gemm(128, 1024, 8192), typical(arch)
    variant = expected(kernel, target)
    assert splits_k(variant)
    partial, _ = parts_of(kernel, variant)
    space = Space(partial, target)
    (schedule,) = space.defaults()
    program = space.lower(schedule)
    assert any(isinstance(i, MatMul) for i in walk(program.body))
    assert program.threads >= target.threads // 2
    cycles, of_partial = product_cycles(kernel, target), product_cycles(partial, target)
    assert cycles is not None
    assert of_partial is not None
    assert of_partial < cycles


def test_cores_without_results_of_their_own_get_a_part_of_the_sum() -> None:
    kernel = product(64, 64, 1 << 15)
    assert expected(kernel, ONE) == expected(kernel, TWO) == "direct"
    assert splits_k(expected(kernel, MANY))
    assert expected(product(1024, 1024, 1024), MANY) == "direct"


def test_a_device_of_which_nothing_was_declared_runs_directly() -> None:
    assert expected(product(64, 64, 4096), replace(MANY, rates=Rates())) == "direct"


def test_work_items_share_the_sum_of_a_vector_s_product() -> None:
    bare = replace(typical("sm_80"), units=())
    assert expected(product(1, 4096, 4096), bare) == "direct"
    assert splits_k(expected(product(16, 512, 8192), bare))


def test_what_a_target_does_not_gain_by_is_not_measured_for_it() -> None:
    kernel = product(64, 64, 4096)
    assert allowed(kernel, "strict") == variants_of(kernel)
    assert allowed(kernel, "strict", TWO) == ("direct",)
    assert set(allowed(kernel, "strict", MANY)) > {"direct"}
