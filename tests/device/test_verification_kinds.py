"""Which input sets a kernel has: two where an exact one shows all that ordinary numbers would."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tunegrad.compiling import HOOKS, Payload
from tunegrad.compiling.candidate import inputs, kinds, lower, reference
from tunegrad.devices import Candidate
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.verifying.dataset import make_dataset
from tunegrad.devices.verifying.inputs import KINDS, _raising
from tunegrad.devices.verifying.tolerance import compare
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Apply, Expr, Load, Op
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.index import var
from tunegrad.ir.kernel import Kernel

TARGET = host_target(1)

Make = Callable[[], Tensor]


def x(*shape: int, dtype: str = "f32", name: str = "x") -> Tensor:
    return Tensor.input(name, shape, dtype)


def w(*shape: int) -> Tensor:
    return Tensor.constant(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def payload_of(make: Make) -> Payload:
    return Payload(kernel_of(make), "", CpuDevice(TARGET))


def kernel_of(make: Make) -> Kernel:
    return schedule(fold_constants((make().node,))).launches[-1].kernel


PLAIN: dict[str, Make] = {
    "product": lambda: x(24, 512) @ w(512, 16) + w(16),
    "convolution": lambda: x(1, 512, 7, 7).conv2d(w(8, 512, 3, 3), padding=1).maximum(0.0),
    "sum": lambda: x(64, 40) + x(64, 40, name="y"),
    "clamped sum": lambda: (x(64, 40) - x(64, 40, name="y")).maximum(0.0),
    "padded": lambda: x(5, 7).pad(((1, 2), (0, 3))),
}

OTHERS: dict[str, Make] = {
    "product of inputs": lambda: (
        x(24, 512) @ x(512, 16, name="y")
    ),  # two wide factors are too wide for f32
    "mean": lambda: x(64, 49).mean(1),
    "maximum over axes": lambda: x(64, 49).max(1),
    "softmax": lambda: x(8, 16).softmax(-1),
    "clamped between": lambda: x(64).maximum(0.0).minimum(6.0),  # large integers are all 6
    "16 bits": lambda: x(64, 40, dtype="f16") + 1.0,
    "padded with a number": lambda: x(5, 7).pad(((1, 2), (0, 3)), value=2.5),
    "integers": lambda: x(64, dtype="i32") * 3 + 1,
    "converted": lambda: x(64).cast("i32"),
}


@pytest.mark.parametrize("make", PLAIN.values(), ids=PLAIN)
def test_plain_kernels_have_an_exact_and_a_special_set(make: Make) -> None:
    payload = payload_of(make)
    assert kinds(payload)[:2] == ("exact", "special")
    assert "ordinary" not in kinds(payload)
    made = make_dataset(Candidate(payload.kernel.key, payload), lower(payload).io, HOOKS, 0, None)
    first = made.sets[0]
    assert [r.roundings for r in first.references.values()] == [0]


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_kernels_have_an_ordinary_set_first(make: Make) -> None:
    assert kinds(payload_of(make))[:3] == KINDS == ("ordinary", "exact", "special")


CLAMPED: dict[str, Make] = {
    "sum": lambda: (x(3, 64) + w(64)).maximum(0.0) @ w(64, 48),
    "difference": lambda: (x(3, 64) - x(3, 64, name="y")).maximum(0.0) @ w(64, 48),
    "negative": lambda: (-(x(3, 64) + w(64))).minimum(0.0) @ w(64, 48),
}


@pytest.mark.parametrize("make", CLAMPED.values(), ids=CLAMPED)
def test_any_lost_term_shows_where_terms_are_clamped_at_zero(make: Make) -> None:
    payload = payload_of(make)
    assert kinds(payload)[:2] == ("exact", "special")
    assert "ordinary" not in kinds(payload)
    arrays = inputs(payload, lower(payload).io, 0, "exact")
    (right,) = reference(payload, arrays).values()
    first = next(p.name for p in payload.kernel.params if p.role == "in")
    for term in range(64):
        lost = arrays[first].copy()
        lost[term::64] = -1e6  # in every row: the clamp makes it zero
        (got,) = reference(payload, {**arrays, first: lost}).values()
        verdict = compare(got.values.astype(np.float32), "f32", right)
        assert verdict.bad * 10 > 9 * right.values.size, term


def test_products_in_a_clamped_term_have_both_signs() -> None:
    """Which of them a clamp leaves over depends on both factors: one sign would leave out half for
    good.
    """
    payload = payload_of(lambda: (x(3, 64) * w(64)).maximum(0.0) @ w(64, 48))
    arrays = inputs(payload, lower(payload).io, 0, "exact")
    (name,) = [p.name for p in payload.kernel.params if p.role == "in"]
    assert 0.3 < float((arrays[name] > 0).mean()) < 0.7


def test_a_deep_sum_under_a_clamp_is_walked_once() -> None:
    x: Expr = Load("p1", (var("a", 8),), F32)
    for _ in range(2000):
        x = Apply(Op.ADD, (x, x), F32)  # 2^2000 paths
    assert list(_raising([(x, 1)])) == [("p1", 1)]
    assert set(_raising([(Apply(Op.SUB, (x, x), F32), 1)])) == {("p1", 1), ("p1", -1)}


@pytest.mark.parametrize("digits", [8, 11], ids=["bf16", "f16 and tf32"])
@pytest.mark.parametrize("make", PLAIN.values(), ids=PLAIN)
def test_one_input_in_a_shorter_type_is_wrong_on_the_exact_set(make: Make, digits: int) -> None:
    payload = payload_of(make)
    arrays = inputs(payload, lower(payload).io, 0, "exact")
    (right,) = reference(payload, arrays).values()
    assert compare(right.values.astype(np.float32), "f32", right).first < 0
    for p in payload.kernel.params:
        if p.role == "in":
            cut = arrays[p.name].view(np.uint32) & np.uint32(
                0xFFFFFFFF << (24 - digits) & 0xFFFFFFFF
            )
            (got,) = reference(payload, {**arrays, p.name: cut.view(np.float32)}).values()
            verdict = compare(got.values.astype(np.float32), "f32", right)
            assert verdict.bad * 50 > right.values.size  # every tile of an output has some


def test_constants_are_too_short_to_show_it() -> None:
    """So it is on ordinary sets: constants are the same in all sets, multiples of 1/4 up to 2."""
    payload = payload_of(PLAIN["product"])
    arrays = inputs(payload, lower(payload).io, 0, "ordinary")
    for p in payload.kernel.params:
        if p.role == "const":
            assert np.isin(np.abs(arrays[p.name]), np.arange(1, 9) / 4).all()


def test_unsigned_results_that_no_i64_holds_are_compared_as_they_are() -> None:
    payload = payload_of(lambda: x(4, dtype="i64").cast("u64").amax())
    out, given = (next(p for p in payload.kernel.params if p.role == r) for r in ("out", "in"))
    (expected,) = reference(payload, {given.name: np.array([-3, 5, -2, 7])}).values()
    right = np.array([2**64 - 2], np.uint64)
    assert compare(right, out.dtype.name, expected).first < 0
    assert compare(right - np.uint64(1), out.dtype.name, expected).first == 0
