"""Split reductions: which kernels have them, what they are made of, and where one is expected to be
faster.
"""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest
from variant_builders import constant, kernel_of, only

import tunegrad as tg
from benchmarks.hand_schedules import AVX512
from tunegrad.errors import InternalError
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import I64
from tunegrad.ir.fusion.axes import all_indices
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.variants import exact, parts_of, rewrite, split, variants_of
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.planning import allowed, expected

ONE = replace(AVX512, threads=1)
TWO = replace(ONE, threads=2)
MANY = replace(ONE, threads=32)


def total(*shape: int, axis: int | None = None, op: str = "sum") -> Kernel:
    return kernel_of(only(getattr(Tensor.input("x", shape), op)(axis=axis)))


# ---- which kernels have one


@pytest.mark.parametrize(
    ("kernel", "names"),
    [
        (total(1 << 26), ("split64", "split512")),
        (total(1 << 15), ("split64",)),
        (total((1 << 24) + 43, op="max"), ("split64", "split512")),
        (total(1 << 24, 4, axis=0), ("split64x16", "split512x16")),
        (total(1 << 21, 3, axis=0), ("split64x16", "split512x16")),
        (total(1 << 20, 64, axis=0), ("split64", "split512")),
        (total(1, 1 << 24, axis=1), ("split64", "split512")),
        (total(8, 1 << 15, axis=1), ("split64",)),
    ],
    ids=["sum", "least", "prime", "four", "three", "columns", "row", "rows"],
)
def test_long_reductions_with_few_results_have_splits(
    kernel: Kernel, names: tuple[str, ...]
) -> None:
    assert variants_of(kernel) == ("direct", *names)


@pytest.mark.parametrize(
    "kernel",
    [
        total(1 << 14),
        total(4096, 4096, axis=1),
        total(4096, 4096, axis=0),
        kernel_of(only(Tensor.input("x", (64, 1 << 16)).softmax())),
        kernel_of(only(Tensor.input("x", (1 << 20,)) * 2)),
        kernel_of(only(Tensor.input("x", (1, 3, 64, 64)).conv2d(constant(8, 3, 3, 3)))),
    ],
    ids=["short", "rows", "columns", "softmax", "map", "convolution"],
)
def test_other_kernels_have_none(kernel: Kernel) -> None:
    assert not [v for v in variants_of(kernel) if v.startswith("split")]


def test_splits_keep_their_terms_so_strict_allows_them() -> None:
    kernel = total(1 << 20)
    assert all(exact(v) for v in variants_of(kernel))
    assert allowed(kernel, "strict") == allowed(kernel, "contract") == ("direct", "split64")


@pytest.mark.parametrize("name", ["split63", "split", "split64x2", "split64x", "split0"])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(InternalError, match=f"has no variant '{name}'; it has direct, split64$"):
        parts_of(total(1 << 20), name)


# ---- what they are


def text(kernel: Kernel, variant: str) -> str:
    return "\n".join(part.text for part in parts_of(kernel, variant))


def test_text_of_a_whole_sum() -> None:
    assert text(total(1 << 20), "split64") == dedent(
        """
        kernel
          param p0 f32[64] out row
          param p1 f32[1048576] in row
          axis a:64
          v0 = add over ra:16384 in f32: p1[16384*a+ra]
          store p0[a] = v0
        kernel
          param p0 f32[] out row
          param p1 f32[64] in row
          axis 
          v0 = add over ra:64 in f32: p1[ra]
          store p0[] = v0
        """  # noqa: W291
    ).strip("\n")


def test_neighbouring_results_and_rows_are_one_run() -> None:
    """Four results by sixteen rows: 64 numbers that one step reads."""
    assert text(total(1 << 24, 4, axis=0, op="max"), "split64x16") == dedent(
        """
        kernel
          param p0 f32[64,64] out row
          param p1 f32[67108864] in row
          axis a:64 b:64
          v0 = max over ra:16384 in f32: p1[1048576*a+b+64*ra]
          store p0[a, b] = v0
        kernel
          param p0 f32[4] out row
          param p1 f32[1024,4] in row
          axis a:4
          v0 = max over ra:1024 in f32: p1[ra, a]
          store p0[a] = v0
        """
    ).strip("\n")


def test_rows_that_are_in_no_chunk_are_folded_with_the_parts() -> None:
    rows = (1 << 20) + 7
    partial, finish = parts_of(total(rows), "split64")
    assert finish.text == dedent(
        f"""
        kernel
          param p0 f32[] out row
          param p1 f32[{rows}] in row
          param p2 f32[64] in row
          axis 
          v0 = add over ra:64 in f32: p2[ra]
          v1 = add over rb:7 in f32: p1[rb+{1 << 20}]
          store p0[] = add(v0, v1)
        """  # noqa: W291
    ).strip("\n")
    assert partial.reduces[0].axes[0].extent == 1 << 14


def test_an_epilogue_stays_with_the_second_kernel() -> None:
    x, b = Tensor.input("x", (4, 1 << 18)), Tensor.input("b", (4,))
    plan = only(((x * x).sum(axis=1) + b).sqrt())
    made = rewrite(plan, {kernel_of(plan).key: "split64"})
    made.verify()
    partial, finish = made.launches
    assert [made.buffers[i].name for i in partial.args[1:]] == ["x"]
    assert [made.buffers[i].role for i in finish.args] == ["output", "input", "temp"]
    assert [p.shape for p in finish.kernel.params] == [(4,), (4,), (4, 64)]


def test_the_outermost_axis_that_is_long_enough_is_cut() -> None:
    kernel = kernel_of(only(Tensor.input("x", (96, 8, 500)).sum(axis=(0, 2))))
    made = split(kernel, 64)
    assert made is not None
    for part in (made.partial, made.finish):
        verify_kernel(part)
    assert [a.extent for a in made.partial.axes] == [8, 48]
    assert [a.extent for a in made.partial.reduces[0].axes] == [2, 500]
    assert len(made.finish.reduces) == 1


# ---- where one is expected


def test_one_core_sums_rows_directly() -> None:
    for kernel in (total(1 << 26), total(1 << 20), total(8, 1 << 20, axis=1)):
        assert expected(kernel, ONE) == "direct"


def test_cores_share_what_has_one_result() -> None:
    for rows in (1 << 15, 1 << 20, 1 << 26, 16777259):
        assert expected(total(rows), TWO) == expected(total(rows), MANY) == "split64"


def test_vectors_that_would_be_partly_empty_are_filled_on_one_core_too() -> None:
    assert expected(total(1 << 24, 4, axis=0), ONE) == "split64x16"
    assert expected(total(1 << 20, 64, axis=0), ONE) == "direct"


def test_rows_enough_for_all_cores_stay() -> None:
    kernel = total(8, 1 << 20, axis=1)
    assert expected(kernel, TWO) == "direct"
    assert expected(kernel, MANY) == "split64"


def test_positions_from_a_buffer_stay_parameters_of_both_halves() -> None:
    """The loss of each pixel is read at the class that a buffer holds."""
    scores, kinds = Tensor.input("x", (64, 32, 32, 3)), Tensor.input("k", (64, 32, 32, 1), I64)
    kernel = kernel_of(only(scores.gather(-1, kinds).sum()))
    names = [v for v in variants_of(kernel) if v != "direct"]
    assert names
    for name in names:
        for part in parts_of(kernel, name):
            verify_kernel(part)
            inputs = {p.name for p in part.params}
            assert {e.buffer for i in all_indices(part) for e in i.elements()} <= inputs


def test_split_sum_of_looked_up_elements_equals_numpy() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((64, 32, 32, 3)).astype(np.float32)
    kinds = rng.integers(0, 3, (64, 32, 32, 1))
    total = tg.compile(lambda x, k: x.gather(-1, k).sum(), scores, kinds, store=False)
    wanted = np.take_along_axis(scores, kinds, -1).sum(dtype=np.float64)
    assert abs(float(total(scores, kinds)) - wanted) < 1e-2
