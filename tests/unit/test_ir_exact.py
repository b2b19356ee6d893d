"""Which results are exact: sums of small integers are, what was rounded once is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_corpus import corpus_kernel

from tunegrad.devices.cuda.architectures import typical
from tunegrad.devices.host.facts import host_target
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import BF16, F32
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.interpret.evaluate import unrounded
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.rounding import BLOCKED, Drawn, Rounded, rounded_within, roundings
from tunegrad.opts import longest_chain


def x(*shape: int, dtype: str = "f32") -> Tensor:
    return Tensor.input("x", shape, dtype)


def kernel_of(t: Tensor) -> Kernel:
    (launch,) = schedule(fold_constants((t.node,))).launches
    return launch.kernel


def rounded(k: Kernel, reach: float = 1.0, *, balanced: bool = True, unit: float = 1.0) -> Rounded:
    (found,) = roundings(k, {p.name: Drawn(reach, unit, balanced) for p in k.params}).values()
    return found


def test_sum_of_integers_is_exact_while_every_partial_sum_fits():
    assert rounded(kernel_of(x(1 << 20).sum()), 16, balanced=False) == Rounded(0, 0)
    assert rounded(kernel_of(x(1 << 20).sum()), 17, balanced=False) == Rounded(
        None, 1 << 20, BLOCKED
    )


def test_random_signs_make_longer_sums_exact():
    assert rounded(kernel_of(x(1 << 26).sum()), 128) == Rounded(0, 0)
    assert rounded(kernel_of(x(1 << 26).sum()), 128, balanced=False).count is None
    assert rounded(kernel_of(x(1 << 26).sum()), 1 << 10).count is None


def test_signs_of_squares_are_not_random():
    a = x(1 << 25)
    assert rounded(kernel_of((a * a).sum())).count is None
    p = a * x(1 << 25)
    assert rounded(kernel_of((p * p).sum())).count is None
    # read at two places it is two parameters, which are drawn apart
    assert rounded(kernel_of((a * a.flip(0)).sum())).count == 0


def test_double_precision_holds_more():
    assert rounded(kernel_of(x(1 << 25, dtype="f64").sum()), 128, balanced=False) == Rounded(0, 0)


def test_finer_units_leave_less_room():
    assert rounded(kernel_of(x(1 << 20).sum()), 16, balanced=False, unit=0.25).count is None


def test_mean_is_a_sum_that_is_rounded_relative_to_itself():
    found = rounded(kernel_of(x(4, 25).mean(1)), 16)
    assert found.terms == 0
    assert found.count in (1, 2, 3)


@pytest.mark.parametrize(
    "name", ["gemm", "conv3x3", "conv_residual", "row_sum", "transpose", "pad", "max_pool"]
)
def test_sums_and_products_of_small_integers_are_exact(name):
    assert rounded(corpus_kernel(name), 16) == Rounded(0, 0)


@pytest.mark.parametrize("name", ["softmax", "gelu", "layer_norm"])
def test_exponentials_and_roots_are_not_exact(name):
    assert rounded(corpus_kernel(name), 16).count is None


def test_terms_are_of_the_folds_that_round():
    """The row's maximum is exact, its sum of exponentials is not."""
    assert rounded(corpus_kernel("softmax"), 16).terms == 23


def test_unknown_values_are_exact_until_they_are_computed_with():
    k = corpus_kernel("transpose")
    assert set(roundings(k, {p.name: None for p in k.params}).values()) == {Rounded(0, 0)}
    k = corpus_kernel("add")
    assert set(roundings(k, {p.name: None for p in k.params}).values()) == {Rounded(1, 0)}


@pytest.mark.parametrize("name", ["gemm", "conv3x3", "winograd_product", "row_sum"])
def test_exact_results_are_the_same_in_single_precision_and_any_order(name):
    from tunegrad.ir.interpret.kernel import interpret

    k = corpus_kernel(name)
    rng = np.random.default_rng(3)
    arrays = {
        p.name: rng.integers(-16, 17, p.size).astype(np.float32)
        for p in k.params
        if p.role != "out"
    }
    wide, narrow = interpret(k, arrays, as_float64=True), interpret(k, arrays)
    for p in k.outputs:
        np.testing.assert_array_equal(wide[p.name], narrow[p.name])


def test_roundings_to_16_bits_on_the_way_are_known_and_those_of_stores_and_loads_are_not() -> None:
    a, w = x(4, 8), Tensor.input("w", (8, 4), "bf16")

    def within(made: Tensor) -> str:
        (launch,) = schedule((made.node,)).launches
        return rounded_within(launch.kernel)

    assert within((a @ w.cast("f32")).cast("bf16")) == ""
    assert within(a.cast("bf16") @ w) == ""
    assert within((a * 3.0).exp().cast("bf16").cast("f32") * 2.0) == "bf16"
    assert within((a * 3.0).cast("f16").cast("f32") + 1.0) == "f16"


def test_a_reference_has_what_is_stored_in_16_bits_before_it_is_rounded() -> None:
    kernel = kernel_of((x(4, 8) * 3.0).exp().cast("bf16"))
    bare = unrounded(kernel)
    assert [p.dtype for p in (*kernel.outputs, *bare.outputs)] == [BF16, F32]
    values = np.random.default_rng(0).standard_normal(32).astype(np.float32)
    (wide,) = interpret(bare, {"p1": values}, as_float64=True).values()
    assert np.array_equal(wide, np.exp(3.0 * values.astype(np.float64)))
    assert unrounded(bare) is bare


def test_integers_of_a_sum_that_rounds_are_known_to_be_so() -> None:
    k = kernel_of(x(1 << 20).sum().round().cast("i32"))
    assert rounded(k, 16, balanced=False) == Rounded(0, 0)
    assert rounded(k, 17, balanced=False) == Rounded(None, 1 << 20, BLOCKED)


def test_an_integer_of_a_comparison_is_exact_as_the_comparison_is() -> None:
    above = x(1 << 20).sum() > 0.0
    assert rounded(kernel_of(above.cast("i32")), 17, balanced=False).count == 0
    assert rounded(kernel_of(above), 17, balanced=False).count == 0


def test_a_chain_of_a_sum_in_blocks_is_as_long_as_lowering_makes_it() -> None:
    plain = replace(host_target(2), units=())
    assert longest_chain(plain) == BLOCKED
    assert longest_chain(typical("sm_80")) > BLOCKED
