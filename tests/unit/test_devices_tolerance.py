"""Tolerances follow from dtype and reduction length, and every wrong element is found."""

from __future__ import annotations

import numpy as np
import pytest

from tunegrad.devices.job import Reference
from tunegrad.devices.verifying.tolerance import Bar, compare, tolerance
from tunegrad.ir.dtypes import F16, F32, F64, I32

RNG = np.random.default_rng(1)


@pytest.mark.parametrize("terms", [1, 16, 576, 4608, 65536])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_sequential_float32_sums_pass(terms, shift):
    a = (RNG.standard_normal((64, terms)) + shift).astype(np.float32)
    b = (RNG.standard_normal((64, terms)) + shift).astype(np.float32)
    got = np.zeros(64, np.float32)
    for k in range(terms):
        got += a[:, k] * b[:, k]
    exact = (a.astype(np.float64) * b).sum(1)
    assert compare(got, "f32", Reference(exact, terms)).first == -1


@pytest.mark.parametrize("terms", [1, 16, 576, 4608, 65536])
def test_lost_term_fails(terms):
    a, b = RNG.standard_normal((2, 8, terms))
    exact = (a * b).sum(1)
    got = exact.copy()
    got[5] -= np.copysign(1.0, got[5])
    verdict = compare(got.astype(np.float32), "f32", Reference(exact, terms))
    assert verdict.first == 5
    assert verdict.bad == 1


def test_tolerance_grows_with_the_root_of_the_terms():
    ones = np.ones(4)
    small, large = tolerance(F32, 10_000, ones), tolerance(F32, 1_000_000, ones)
    assert 7 < large[0] / small[0] < 10


def test_half_precision_allows_its_own_rounding_only():
    exact = RNG.standard_normal(1000)
    assert compare(exact.astype(np.float16), "f16", Reference(exact)).first == -1
    assert tolerance(F16, 1, np.ones(1))[0] < 2.0**-10
    off = exact.astype(np.float16)
    off[3] *= np.float16(1.004)
    assert compare(off, "f16", Reference(exact)).first == 3


def test_bfloat16_is_read_from_its_bits():
    exact = RNG.standard_normal(1000)
    bits = exact.astype(np.float32).view(np.uint32)
    stored = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    assert compare(stored, "bf16", Reference(exact)).first == -1
    stored[2] ^= 0x0004
    assert compare(stored, "bf16", Reference(exact)).first == 2


def test_double_precision_is_held_to_double_precision():
    assert tolerance(F64, 1, np.ones(1))[0] < 1e-13


def test_integers_are_exact():
    assert not tolerance(I32, 1000, np.ones(3)).any()
    assert compare(np.array([1, 2, 4], np.int32), "i32", Reference(np.array([1, 2, 3]))).first == 2


def test_bool_that_is_neither_fails():
    stored = np.array([0, 1, 255], np.uint8).view(bool)
    assert compare(stored, "bool", Reference(np.array([0, 1, 1]))).first == 2


def test_nan_must_be_where_the_reference_has_it():
    exact = np.array([np.nan, 1.0, np.inf])
    assert compare(np.array([np.nan, 1.0, np.inf], np.float32), "f32", Reference(exact)).first == -1
    assert (
        compare(np.array([np.nan, np.nan, np.inf], np.float32), "f32", Reference(exact)).first == 1
    )
    assert compare(np.array([0.0, 1.0, np.inf], np.float32), "f32", Reference(exact)).first == 0
    assert compare(np.array([np.nan, 1.0, -np.inf], np.float32), "f32", Reference(exact)).first == 2


def test_infinity_where_the_reference_is_finite_fails():
    assert compare(np.array([np.inf], np.float32), "f32", Reference(np.array([1.0]))).first == 0


def test_sampled_reference_reports_the_buffers_index():
    got = np.arange(100, dtype=np.float32)
    sample = Reference(np.array([10.0, 99.0]), 1, np.array([10, 50]))
    verdict = compare(got, "f32", sample)
    assert (verdict.first, verdict.got, verdict.expected) == (50, 50.0, 99.0)


def test_reference_of_another_size_fails():
    assert compare(np.zeros(3, np.float32), "f32", Reference(np.zeros(4))).bad == 1


def test_max_error_is_that_of_the_worst_element():
    verdict = compare(np.array([1.0, 2.5], np.float32), "f32", Reference(np.array([1.0, 2.0])))
    assert verdict.max_error == 0.5


def test_empty_output_is_right():
    assert compare(np.zeros(0, np.float32), "f32", Reference(np.zeros(0))).first == -1


def test_exact_results_have_no_tolerance():
    exact = np.array([3.0, -(2.0**23)])
    assert compare(exact.astype(np.float32), "f32", Reference(exact, roundings=0)).first == -1
    off = np.array([3.0, np.nextafter(np.float32(-(2.0**23)), np.float32(0))], np.float32)
    assert compare(off, "f32", Reference(exact, roundings=0)).first == 1
    assert not tolerance(F32, 1 << 26, exact, 0).any()


def test_exact_results_are_rounded_once_to_a_narrow_dtype():
    exact = np.array([2049.0])
    assert compare(exact.astype(np.float16), "f16", Reference(exact, roundings=0)).first == -1
    assert compare(np.array([2052.0], np.float16), "f16", Reference(exact, roundings=0)).first == 0


def test_results_that_were_rounded_twice_are_two_units_off_at_most():
    exact = np.array([1.0, 1e6])
    assert tolerance(F32, 1 << 26, exact, 2).tolist() == pytest.approx(
        [2 * 2.0**-24, 2e6 * 2.0**-24]
    )


def test_reference_with_a_fault_finds_nothing_right():
    exact = np.ones(3)
    verdict = compare(exact.astype(np.float32), "f32", Reference(exact, fault="why not"))
    assert (verdict.first, verdict.bad, verdict.fault) == (0, 3, "why not")


def test_numbers_beyond_the_dtype_are_infinities():
    exact = np.array([1e39, -1e39, 3e38])
    assert (
        compare(np.array([np.inf, -np.inf, 3e38], np.float32), "f32", Reference(exact)).first == -1
    )
    assert compare(np.array([3e38, -np.inf, 3e38], np.float32), "f32", Reference(exact)).first == 0
    assert (
        compare(np.array([np.inf], np.float16), "f16", Reference(np.array([65520.0]))).first == -1
    )
    assert (
        compare(np.array([65504.0], np.float16), "f16", Reference(np.array([65519.0]))).first == -1
    )


@pytest.mark.parametrize(("within", "unit"), [("bf16", 2.0**-8), ("f16", 2.0**-11)])
def test_what_is_rounded_on_the_way_may_be_a_neighbour(within: str, unit: float) -> None:
    exact = np.ones(8)
    near, far = (exact.copy() for _ in range(2))
    near[3] += 2 * unit  # the other neighbour, where a sum was next to the middle of two numbers
    far[3] += 16 * unit
    assert compare(near.astype(np.float32), "f32", Reference(exact)).first == 3
    assert compare(near.astype(np.float32), "f32", Reference(exact, within=within)).first == -1
    assert compare(far.astype(np.float32), "f32", Reference(exact, within=within)).first == 3


def test_what_is_stored_in_16_bits_has_half_a_spacing_and_not_two() -> None:
    """A sum next to a middle, not rounded in the reference: both neighbours are right, no other."""
    exact = np.full(4, 1 + 2.0**-8)
    for bits, right in ((0x3F80, True), (0x3F81, True), (0x3F82, False), (0x3F7F, False)):
        verdict = compare(np.full(4, bits, np.uint16), "bf16", Reference(exact, 64))
        assert (verdict.first == -1) == right


def test_next_to_the_end_of_f16_an_infinity_and_the_largest_number_are_right() -> None:
    exact = np.array([65520.0 * (1 - 2.0**-23), 65520.0 * (1 + 2.0**-23), 70000.0, 1.0])
    for first, second in ((65504, 65504), (np.inf, np.inf), (65504, np.inf)):
        got = np.array([first, second, np.inf, 1], np.float16)
        assert compare(got, "f16", Reference(exact, 64)).first == -1
        got[2] = 65504
        assert compare(got, "f16", Reference(exact, 64)).first == 2


def test_an_exact_zero_has_the_sign_of_the_expected_one_where_such_have_one():
    exact = np.array([0.0, -0.0, 1.0, -0.0])
    signed = Reference(exact, roundings=0, signed=True)
    assert compare(exact.astype(np.float32), "f32", signed).first == -1
    for at in (0, 1, 3):
        got = exact.astype(np.float32)
        got[at] = -got[at]
        assert compare(got, "f32", signed).first == at
        assert compare(got, "f32", Reference(exact, roundings=0)).first == -1
        bounds = np.where(np.arange(4) == at, 1e-9, 0.0).astype(np.float32)
        near = Reference(exact, bounds=bounds, signed=True)  # a zero that may be rounded to
        assert compare(got, "f32", near).first == -1
    halves = np.array([0x8000, 0x8000, 0x3C00, 0x8000], np.uint16).view(np.float16)
    assert compare(halves, "f16", signed).first == 0


def test_a_few_integers_behind_a_sum_that_rounds_may_be_one_off() -> None:
    """One in a thousand, by one; where nothing rounds none may."""
    expected = np.arange(2000, dtype=np.int64) % 251
    behind, exact = (Reference(expected, 100, roundings=n) for n in (None, 0))
    got = expected.astype(np.uint8)
    got[[3, 7]] += 1
    assert Bar.of("u8", behind).judge(got).first == -1
    assert Bar.of("u8", exact).judge(got).first == 3
    got[11] += 1
    assert Bar.of("u8", behind).judge(got).bad == 3
    got[[7, 11]] -= 1
    got[3] += 1
    assert Bar.of("u8", behind).judge(got).first == 3


def test_integers_that_bounds_decide_are_exact() -> None:
    """As of a mean, whose bounds say which integers may tip over: those are not compared."""
    expected = np.arange(2000, dtype=np.int64) % 251
    bounds = np.zeros(2000, np.float32)
    bounds[3] = np.inf
    got = expected.astype(np.uint8)
    got[3] += 1
    decided = Reference(expected, 100, roundings=None, bounds=bounds)
    assert Bar.of("u8", decided).judge(got).first == -1
    got[7] += 1
    assert Bar.of("u8", decided).judge(got).first == 7
    sampled = Reference(expected, 100, roundings=None, bounds=np.full(2000, np.nan, np.float32))
    assert Bar.of("u8", sampled).judge(got).first == -1
