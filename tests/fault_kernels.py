"""For each planted fault a family of kernels and a schedule on which it shows; the member says the
shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

import tunegrad as tg
from tests.faults import IN_LOWERING, IN_MEANING, IN_TEXT, REFUSED, lower
from tunegrad.compiling import Payload
from tunegrad.devices import Candidate, DeviceMeasurer
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import host_target
from tunegrad.errors import CompileFailure
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.trial import Measurement, Policy, Status

__all__ = ["CASES", "TARGET", "Case", "OutOfTimeError", "is_caught", "measured", "measured_as"]

TARGET = host_target(2)
_QUICK = Policy(min_samples=3, max_samples=5, budget_s=0.005, timeout_s=60.0)


class OutOfTimeError(AssertionError):
    """The machine, which was busy or stopped, ended a measurement."""


@dataclass(frozen=True, slots=True)
class Case:
    """A family of tensors by number (0 to 99, all different), and the schedule that its kernels run
    under.
    """

    make: Callable[[int], Tensor]
    actions: str

    def kernel(self, number: int) -> Kernel:
        """The kernel of one member."""
        nodes = tuple(fold_constants((self.make(number).node,)))
        return schedule(nodes).launches[-1].kernel


def _x(*shape: int, dtype: str = "f32", name: str = "x") -> Tensor:
    return Tensor.input(name, shape, dtype)


def _w(*shape: int) -> Tensor:
    rng = np.random.default_rng(sum(shape))
    return Tensor.constant(rng.standard_normal(shape).astype(np.float32))


def _gemm(n: int) -> Tensor:
    k = 16 + 8 * (n % 5)
    return (_x(12 + 2 * (n % 7), k) @ _w(k, 16 + 4 * (n % 3))).relu()


def _gemm_under_a_mask(n: int) -> Tensor:
    """As of a relu's gradient whose argument is computed again."""
    shape, k = (12 + 2 * (n % 7), 16 + 4 * (n % 3)), 16 + 8 * (n % 5)
    product = _x(shape[0], k) @ _w(k, shape[1])
    return product.where(_x(*shape, name="y") * 1.1 - _x(*shape, name="z") > 0.0, 0.0)


def _rows(n: int, *, width: int = 50) -> tuple[int, int]:
    """100 shapes whose width is no multiple of 8."""
    return 3 + n % 10, width + 8 * (n // 10)


_BLOCKED = (
    "tile(axis=ra, size=8) tile(axis=b, size=4) tile(axis=a, size=2) reorder(order=(ra0, "
    "a0, b0, ra1, a1, b1)) "
    "upcast(axis=a1) vectorize(axis=b1) thread(axis=a0, count=2) stage(param=p2, at=ra0, "
    "layout=(b0, ra1, b1))"
)
_PACKED = (
    "tile(axis=b, size=4) reorder(order=(a, b0, ra, b1)) vectorize(axis=b1) "
    "thread(axis=a, count=2) "
    "stage(param=p2, at=load, layout=(b0, ra, b1))"
)
_LANES = "tile(axis=b, size=8) vectorize(axis=b1)"

_BLOCKED_GEMM = Case(_gemm, _BLOCKED)
_PLAIN_GEMM = Case(_gemm, "tile(axis=b, size=4) vectorize(axis=b1) reorder(order=(a, b0, ra, b1))")
_ADD = Case(lambda n: _x(*_rows(n)) + _x(_rows(n)[1], name="y"), _LANES)
_SUBTRACT = Case(lambda n: _x(*_rows(n)) - _x(_rows(n)[1], name="y"), _LANES)


def _elementwise(function: Callable[[Tensor], Tensor]) -> Case:
    return Case(lambda n: function(_x(2000 + 8 * n)), "")


def _rms_norm(t: Tensor) -> Tensor:
    return t * ((t * t).mean(1, keepdim=True) + 1e-6).rsqrt()


def _layer_norm(n: int) -> Tensor:
    t = _x(2 + n, 64)
    centred = t - t.mean(1, keepdim=True)
    return centred * ((centred * centred).mean(1, keepdim=True) + 1e-5).rsqrt()


def _weight_gradient(n: int) -> Tensor:
    """Of a convolution: a sum over images and places."""
    x, y = _x(2 + n % 5, 4, 6 + n // 5, 6), _x(2 + n % 5, 3, 6 + n // 5, 6, name="y")
    loss = lambda w: (tg.conv2d(x, w, padding=1) * y).sum()  # noqa: E731
    return tg.grad(loss)(Tensor.input("w", (3, 4, 3, 3)))


CASES: Mapping[str, Case] = {
    "lost_barrier": _BLOCKED_GEMM,
    "everybody_runs_all": _BLOCKED_GEMM,
    "tail_dropped": _ADD,
    "stores_unmasked": _ADD,
    "sum_runs_past_its_tail": Case(
        lambda n: _x(5 + n % 7, 11 + 4 * (n % 5)) @ _x(11 + 4 * (n % 5), 16 + n % 3, name="y"),
        "tile(axis=ra, size=4) reorder(order=(ra0, a, b, ra1))",
    ),
    "condition_inverted": Case(lambda n: _x(*_rows(n)).pad(((1, 2), (0, 3)), value=2.5), ""),
    "pack_transposed": Case(_gemm, _PACKED),
    "last_term_lost": _PLAIN_GEMM,
    "last_term_of_a_million_lost": Case(lambda n: _x((1 << 20) + n).sum(), ""),
    "index_off_by_one": _PLAIN_GEMM,
    "stage_not_refreshed": _BLOCKED_GEMM,
    "sum_starts_at_one": Case(lambda n: _x(*_rows(n)).sum(1), ""),
    "maximum_starts_at_zero": Case(lambda n: _x(*_rows(n)).max(1), ""),
    "accumulators_kept": _PLAIN_GEMM,
    "epilogue_in_every_block": _BLOCKED_GEMM,
    "difference_swapped": Case(lambda n: _x(*_rows(n)).softmax(-1), ""),
    "lanes_rotated": _ADD,
    "conversion_truncates": Case(
        lambda n: _x(8 * (5 + n), dtype="f16") + 1.0, "tile(axis=a, size=8) vectorize(axis=a1)"
    ),
    "nan_rounded_to_bf16": _elementwise(lambda t: t.cast("bf16")),
    "computed_in_bf16": _PLAIN_GEMM,
    "computed_in_tf32": Case(_gemm, _PACKED),
    "product_of_inputs_in_tf32": Case(lambda n: _x(*_rows(n)) @ _x(_rows(n)[1], 16, name="y"), ""),
    "shares_overlap": _BLOCKED_GEMM,
    "share_left_out": Case(
        lambda n: _x(*_rows(n)) + _x(_rows(n)[1], name="y"), "thread(axis=a, count=2)"
    ),
    "nothing_computed": _ADD,
    "nothing_computed_of_logarithms": Case(lambda n: _x(*_rows(n)).log().sum(1), ""),
    "returns_early_after_the_first_run": _ADD,
    "code_of_another_kernel": _SUBTRACT,
    "exp_halved_above_6": _elementwise(Tensor.exp),
    "exp_0_below_minus_6": _elementwise(Tensor.exp),
    "exp_infinite_above_80": _elementwise(Tensor.exp),
    "root_of_a_band": _elementwise(Tensor.sqrt),
    "sigmoid_of_a_band": _elementwise(Tensor.sigmoid),
    "tanh_of_a_band": _elementwise(Tensor.tanh),
    "log_of_a_band": _elementwise(Tensor.log),
    "log_of_numbers_next_to_1": _elementwise(Tensor.log),
    "log_of_small_numbers": _elementwise(Tensor.log),
    "epsilon_of_a_layer_norm_lost": Case(_layer_norm, ""),
    "epsilon_of_a_layer_norm_doubled": Case(_layer_norm, ""),
    "epsilon_of_an_rms_norm_tiny": Case(lambda n: _rms_norm(_x(2 + n, 64)), ""),
    "last_term_of_a_softmax_lost": Case(lambda n: _x(2, 8192 + 64 * n).softmax(-1), ""),
    "last_terms_of_long_sums_a_little_off": Case(lambda n: _x(32, (1 << 16) + n).tanh().sum(1), ""),
    "last_term_of_an_rms_norm_lost": Case(lambda n: _rms_norm(_x(2, 8192 + 64 * n)), ""),
    "last_terms_of_a_variance_lost": Case(lambda n: _x(2, 8192 + 64 * n).var(1), ""),
    "one_term_of_a_weight_gradient_lost": Case(_weight_gradient, ""),
    "element_under_a_relu_halved": _PLAIN_GEMM,
    "rows_of_zeros_give_1": _PLAIN_GEMM,
    "mask_of_an_element_inverted_beside_a_sum": Case(_gemm_under_a_mask, ""),
    "mask_open_at_ties_beside_a_sum": Case(_gemm_under_a_mask, ""),
    "element_between_clamps_moved": _elementwise(lambda t: t.clamp(0.0, 6.0)),
    "wrong_for_large_numbers": _elementwise(lambda t: t * 0.5),
    "wrong_for_negative_numbers": _elementwise(lambda t: t * 0.75),
    "nan_made_a_number": _elementwise(lambda t: t * 0.5),
    "infinity_made_a_number": _elementwise(lambda t: t * 0.5),
    "infinity_less_infinity_is_0": Case(
        lambda n: _x(2000 + 8 * n) - _x(2000 + 8 * n, name="y"), ""
    ),
    "nan_left_out_of_a_maximum": Case(lambda n: _x(*_rows(n)).max(1), ""),
    "nan_of_a_softmax_is_0": Case(lambda n: _x(*_rows(n)).softmax(-1), ""),
    "wrong_at_1": _elementwise(lambda t: t * 0.5),
    "wrong_at_a_half": _elementwise(lambda t: t * 0.5),
    "sign_of_zero_lost": _elementwise(lambda t: -t),
    "sine_of_large_numbers_is_0": _elementwise(Tensor.sin),
    "cosine_of_large_numbers_is_0": _elementwise(Tensor.cos),
    "tangent_of_large_numbers_is_0": _elementwise(Tensor.tan),
    "tanh_of_small_numbers_is_0": _elementwise(Tensor.tanh),
    "erf_of_small_numbers_is_0": _elementwise(Tensor.erf),
    "floor_of_nan_is_0": _elementwise(Tensor.floor),
    "floor_loses_the_sign_of_zero": _elementwise(Tensor.floor),
    "softmax_of_a_masked_row_is_0": Case(lambda n: _x(*_rows(n)).softmax(-1), ""),
    "logsumexp_of_a_masked_row_is_0": Case(lambda n: _x(*_rows(n)).logsumexp(-1), ""),
    "variance_of_equal_numbers_is_not_0": Case(lambda n: _x(4 + n, 64).var(1), ""),
    "infinity_made_a_number_of_a_sum": Case(lambda n: _x(6 + n, 50).sum(1), ""),
    "infinity_made_a_number_of_a_sum_of_three_rows": Case(lambda n: _x(3, 50 + n).sum(1), ""),
    "nan_of_a_sum_of_three_rows_is_0": Case(lambda n: _x(3, 50 + n).sum(1), ""),
    "axes_swapped": Case(lambda n: _x(5 + n, 5 + n).transpose(0, 1) + 1.0, ""),
    "last_of_equal_elements": Case(lambda n: _x(*_rows(n)).argmax(1), ""),
    "zero_is_above_zero": Case(lambda n: (_x(50 + n) > 0.0).cast("f32"), ""),
    "nan_is_above_zero": Case(lambda n: (_x(50 + n) > 0.0).cast("f32"), ""),
    "quotients_round_to_zero": Case(lambda n: _x(50 + n, dtype="i32") // 3, ""),
    "shifts_of_negative_numbers_bring_zeros": Case(lambda n: _x(50 + n, dtype="i32") >> 1, ""),
    "bytes_lose_their_sign": Case(lambda n: _x(50 + n, dtype="i8").cast("i32") * 3, ""),
    "sums_of_integers_saturate": Case(
        lambda n: _x(50 + n, dtype="i32") + _x(50 + n, dtype="i32", name="y"), ""
    ),
    "skips_where_nothing_is_poison": _ADD,
    "copies_what_it_made_for_a_pointer": Case(
        lambda n: _x(2, 512 + n) + _x(512 + n, name="y"), _LANES
    ),
    "copies_what_it_made_for_a_first_element": Case(
        lambda n: _x(2, 512 + n) + _x(512 + n, name="y"), _LANES
    ),
    "keeps_what_has_its_first_sum": _ADD,
    "leaves_what_it_wrote": _ADD,
    "counts_in_its_workspace": _ADD,
    "counts_in_its_workspace_by_a_mark": _ADD,
    "counts_in_the_last_digits_of_its_outputs": Case(lambda n: _x(*_rows(n)).tanh(), ""),
    "keeps_what_it_made_for_an_address_in_its_workspace": Case(
        lambda n: _x(2, 512 + n) + _x(512 + n, name="y"), _LANES
    ),
    "outputs_above_inputs_only": _ADD,
    "outputs_below_inputs_only": _ADD,
    "inputs_equally_aligned_only": _ADD,
    "right_a_hundred_times": _ADD,
    "loses_an_element_now_and_then": _ADD,
    "wrong_in_the_second_thread": Case(
        lambda n: _x(*_rows(n)) + _x(_rows(n)[1], name="y"), "thread(axis=a, count=2)"
    ),
    "aligned_outputs_only": _ADD,
    "aligned_inputs_only": _ADD,
    "no_inputs_eight_bytes_beside": _ADD,
    "no_outputs_twelve_bytes_beside": _ADD,
    "reads_beyond_its_input": Case(lambda n: _x(40 + n) * 2.0, ""),
    "accumulators_uninitialised": Case(lambda n: _x(*_rows(n)).sum(1), ""),
    "denormal_numbers_flushed": _elementwise(lambda t: t * 1.0000001),
    **{name: _ADD for name in IN_TEXT if name.startswith("leaves_") and "what" not in name},
    **dict.fromkeys(REFUSED, _ADD),
}

assert CASES.keys() == IN_LOWERING.keys() | IN_TEXT.keys() | IN_MEANING.keys()


def measured(device: DeviceMeasurer, fault: str, number: int, *, plant: bool = True) -> Measurement:
    """What comes of one member of the fault's family, with the fault or without."""
    case = CASES[fault]
    return measured_as(
        device, case.kernel(number), f"{fault}|{case.actions}" if plant else case.actions
    )


def measured_as(device: DeviceMeasurer, kernel: Kernel, actions: str) -> Measurement:
    """What comes of a kernel under a schedule, or a fault and a schedule."""
    (outcome,) = device.measure(
        [Candidate(kernel.key, Payload(kernel, actions, CpuDevice(TARGET)))], _QUICK
    )
    assert outcome is not None
    if outcome.measurement.status is Status.TIMED_OUT:  # no fault here makes code that goes on
        raise OutOfTimeError(outcome.measurement.error)
    return outcome.measurement


def is_caught(device: DeviceMeasurer, fault: str, number: int) -> bool:
    """Return False where a member with the fault is measured as right.

    Raises AssertionError where another thing than the fault ended its measurement.
    """
    if fault in REFUSED:
        return _is_refused(fault, number)
    found = measured(device, fault, number)
    assert "NotPlanted" not in found.error, found.error
    assert found.status in (Status.OK, Status.WRONG, Status.COMPILE_ERROR), found.error
    if found.status is Status.COMPILE_ERROR:  # a verifier must have refused it, not LLVM
        assert "illegal" in found.error or "VerifyError" in found.error, found.error
    return found.status is not Status.OK


def _is_refused(fault: str, number: int) -> bool:
    """Return True where the text of a member is refused for the fault alone."""
    case, device = CASES[fault], CpuDevice(TARGET)
    kernel = case.kernel(number)
    device.compile(lower(Payload(kernel, case.actions, device)))
    try:
        device.compile(lower(Payload(kernel, f"{fault}|{case.actions}", device)))
    except CompileFailure as error:
        return "illegal" in str(error)
    return False
