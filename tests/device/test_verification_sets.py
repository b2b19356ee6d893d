"""Input sets on which what is wrong shows: one lost term, nothing written, numbers at the ends of
their range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
from kernel_corpus import NAMES, corpus_kernel

import tunegrad as tg
from tunegrad.compiling import HOOKS, Payload, candidate
from tunegrad.compiling.candidate import inputs, lower, reference
from tunegrad.devices import DeviceMeasurer, host_device, run_on_host
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.job import Candidate, Limits
from tunegrad.devices.verifying.dataset import make_dataset
from tunegrad.devices.verifying.inputs import KINDS
from tunegrad.devices.verifying.tolerance import compare
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import I32
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule, Space
from tunegrad.trial import Policy, Status

TARGET = host_target(1)


def x(*shape: int, dtype: str = "f32") -> Tensor:
    return Tensor.input("x", shape, dtype)


def kernel_of(t: Tensor) -> Kernel:
    return schedule(fold_constants((t.node,))).launches[0].kernel


def payload_of(k: Kernel) -> Payload:
    return Payload(k, "", CpuDevice(TARGET))


def drawn(k: Kernel, kind: str, seed: int = 0) -> dict[str, np.ndarray]:
    payload = payload_of(k)
    return inputs(payload, lower(payload).io, seed, kind)


def unwritten(k: Kernel, kind: str, byte: int) -> list[bool]:
    """Whether each output is right where nothing was written on that poison."""
    found = reference(payload_of(k), drawn(k, kind))
    memory = {p.name: np.full(p.nbytes, byte, np.uint8).view(p.dtype.numpy) for p in k.outputs}
    return [compare(memory[p.name], p.dtype.name, found[p.name]).first < 0 for p in k.outputs]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("byte", [0xFF, 0x7B, 0])
@pytest.mark.parametrize(
    "make",
    [
        lambda: x(8, 32).log().sum(1),
        lambda: (x(64) - 3.0).log() * 2.0,
        lambda: (1.0 - x(64) * x(64)).sqrt().log(),
        lambda: x(8, 16).exp().exp().sum(1),
        lambda: (x(40) - 10.0).sqrt() * 2.0,
        lambda: x(16, 4).softmax(-1),
    ],
    ids=[
        "log sum",
        "log of shifted",
        "log of a root",
        "exponentials",
        "root beyond the range",
        "softmax",
    ],
)
def test_kernel_that_writes_nothing_is_wrong_on_every_set(make, kind, byte):
    assert not any(unwritten(kernel_of(make()), kind, byte))


def test_numbers_are_drawn_in_the_domain_of_the_kernel():
    k = kernel_of(x(8, 32).log().sum(1))
    for kind in ("ordinary", "exact"):
        (found,) = reference(payload_of(k), drawn(k, kind)).values()
        assert np.isfinite(found.values).all()


def test_kernel_that_is_defined_nowhere_can_not_be_verified():
    k = kernel_of((-1.0 - x(64) * x(64)).log())
    (found,) = reference(payload_of(k), drawn(k, "ordinary")).values()
    assert found.fault.startswith(
        "nothing can be verified: 0 of 64 elements of the reference are finite"
    )
    verdict = compare(found.values.astype(np.float32), "f32", found)
    assert (verdict.first, verdict.fault) == (0, found.fault)


def lose(k: Kernel, count: int, seed: int) -> bool:
    """Whether a sum without its last ``count`` terms is right on the exact set of that seed."""
    arrays = drawn(k, "exact", seed)
    (found,) = reference(payload_of(k), arrays).values()
    (name,) = arrays
    lost = arrays[name][-count:].astype(np.float64).sum()
    return compare((found.values - lost).astype(np.float32), "f32", found).first < 0


@pytest.mark.parametrize("count", [1, 2, 1024])
@pytest.mark.parametrize("terms", [1 << 12, 1 << 20, 1 << 24])
def test_sum_without_its_last_terms_is_wrong(terms, count):
    assert not lose(kernel_of(x(terms).sum()), count, seed=1)


@pytest.mark.slow
def test_one_lost_term_in_2_to_the_26_is_wrong():
    assert not lose(kernel_of(x(1 << 26).sum()), 1, seed=1)


def test_mean_of_many_without_one_term_is_wrong():
    k = kernel_of(x(1 << 22).mean())
    arrays = drawn(k, "exact")
    (found,) = reference(payload_of(k), arrays).values()
    (values,) = arrays.values()
    assert compare(found.values.astype(np.float32), "f32", found).first < 0
    lost = found.values - values[-1].astype(np.float64) / values.size
    assert compare(lost.astype(np.float32), "f32", found).first == 0


def test_lost_term_of_an_exact_product_is_wrong():
    k = corpus_kernel("gemm_square")
    arrays = drawn(k, "exact")
    (found,) = reference(payload_of(k), arrays).values()
    assert found.roundings == 0
    got = found.values.astype(np.float32)
    assert compare(got, "f32", found).first < 0
    got[17] += np.float32(0.25)  # the least product of its integers and constants
    assert compare(got, "f32", found).first == 17


def test_reference_that_the_interpreter_does_not_confirm_has_a_fault(
    monkeypatch: pytest.MonkeyPatch,
):
    """As after a mistake in lowering, rendering or LLVM, which candidates would share."""
    compiled = candidate._compiled

    def mistaken(*given: object) -> dict[str, np.ndarray]:
        found = compiled(*given)
        found["p0"][-1] *= 1.0 + 1e-6
        return found

    k = kernel_of(x(6, 5).relu())
    payload, arrays = payload_of(k), drawn(k, "ordinary")
    monkeypatch.setattr(candidate, "INTERPRETED_STEPS", 0)
    assert not reference(payload, arrays)["p0"].fault
    monkeypatch.setattr(candidate, "_compiled", mistaken)
    found = reference(payload, {**arrays, "p1": np.abs(arrays["p1"])})["p0"]
    assert found.fault.startswith("the reference is not to be trusted: element 29 is ")
    assert "no candidate of this kernel can win" in found.fault
    assert compare(found.values.astype(np.float32), "f32", found).fault == found.fault


def test_special_numbers_of_an_elementwise_kernel():
    (values,) = drawn(kernel_of(x(1 << 12).relu()), "special").values()
    assert np.isnan(values).any()
    assert {np.inf, -np.inf, 0.0, 2.0**16, -(2.0**16), 2.0**-40, -(2.0**-40)} <= set(
        values.tolist()
    )
    assert np.signbit(values[values == 0]).any()
    finite = np.abs(values[np.isfinite(values) & (values != 0)])
    assert finite.min() >= 2.0**-40  # no denormal number


BOUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "relu6": lambda t: t.maximum(0.0).minimum(6.0),
    "tanh": Tensor.tanh,
    "sigmoid": Tensor.sigmoid,
}


@pytest.mark.parametrize("kind", ["exact", "special"])
@pytest.mark.parametrize("bound", BOUNDED.values(), ids=BOUNDED)
def test_any_order_of_a_sum_is_right_where_results_are_bounded(bound, kind):
    """One sum in 300 of 20 large terms comes out small, with the roundings of large ones: a bound
    on the results hides how large the others are, and no candidate could meet the bar.
    """
    weights, rng = Tensor.input("w", (160, 960), "f32"), np.random.default_rng(0)
    k = kernel_of(bound(x(49, 160) @ weights))
    arrays = drawn(k, kind)
    (right,) = reference(payload_of(k), arrays).values()
    a, b = (arrays[p.name].reshape(p.shape) for p in k.params if p.role == "in")
    for order in (np.arange(160), rng.permutation(160), rng.permutation(160)):
        sums = np.zeros((49, 960), np.float32)
        for term in order:
            with np.errstate(invalid="ignore"):
                sums += a[:, term, None] * b[None, term]
        plain = kernel_of(bound(x(49, 960)))
        (name,) = (p.name for p in plain.params if p.role == "in")
        (got,) = interpret(plain, {name: sums.reshape(-1)}).values()
        assert compare(got, "f32", right).first < 0


def test_special_sets_of_bounded_sums_have_values_that_are_not_finite_and_none_that_is_large():
    k = kernel_of((x(49, 160) @ Tensor.input("w", (160, 960), "f32")).maximum(0.0).minimum(6.0))
    for values in drawn(k, "special").values():
        assert np.isnan(values).any()
        assert np.abs(values[np.isfinite(values)]).max() < 16.0
    plain = kernel_of((x(49, 160) @ Tensor.input("w", (160, 960), "f32")).maximum(0.0))
    for values in drawn(plain, "special").values():
        assert np.abs(values[np.isfinite(values)]).max() == 2.0**16


def test_sums_in_f64_keep_their_large_numbers():
    """They round 2^29 times as finely: their own roundings count, not those of f32."""
    k = kernel_of((x(49, 160, dtype="f64") @ Tensor.input("w", (160, 40), "f64")).relu())
    for values in drawn(k, "special").values():
        assert np.abs(values[np.isfinite(values)]).max() == 2.0**16


@pytest.mark.parametrize("dtype", ["u8", "i8", "i16"])
def test_short_integers_that_are_compared_with_far_positions_are_drawn(dtype):
    place = Tensor.input("place", (4, 1), dtype).cast("i64")
    k = kernel_of(x(4, 5000).masked_fill(place < tg.arange(5000).reshape(1, 5000), 0.0))
    first, second = drawn(k, "ordinary").values()
    places = first if first.dtype.kind in "iu" else second
    assert places.min() > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offset", [0, 3])
def test_integers_that_masks_compare_with_positions_lie_among_them(kind, offset):
    """Scores of a cache, of which ``place`` is filled: small integers mask nearly all of it."""
    place = Tensor.input("place", (), "i64")
    beyond = (place + offset).reshape(1, 1) < tg.arange(512).reshape(1, 512)
    scores = x(4, 64) @ Tensor.input("y", (64, 512), "f32")
    k = kernel_of(scores.masked_fill(beyond, float("-inf")))
    (found,) = reference(payload_of(k), drawn(k, kind)).values()
    assert not found.fault
    share = np.isfinite(found.values).mean()
    assert share > 0.2
    assert share < 0.8 or kind == "special"


def test_special_numbers_of_a_sum_leave_most_results_finite():
    k = kernel_of(x(64, 100) @ Tensor.input("y", (100, 40), "f32"))
    (found,) = reference(payload_of(k), drawn(k, "special")).values()
    assert 0.5 <= np.isfinite(found.values).mean() < 1.0


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_special_integers_are_of_the_whole_range_and_wrap_around(dtype):
    k = kernel_of(x(1 << 12, dtype=dtype) * 3 + 1)
    arrays = drawn(k, "special")
    (values,) = arrays.values()
    ends = np.iinfo(values.dtype)
    assert {ends.min, ends.max, 0, -1} <= set(values.tolist())
    (found,) = reference(payload_of(k), arrays).values()
    np.testing.assert_array_equal(
        found.values, values * values.dtype.type(3) + values.dtype.type(1)
    )


def test_constants_are_those_of_every_set():
    k = corpus_kernel("gemm_prime")
    sets = [drawn(k, kind, seed) for seed, kind in enumerate(KINDS)]
    constants = [p.name for p in k.params if p.role == "const"]
    assert constants
    assert all((a[name] == sets[0][name]).all() for a in sets for name in constants)


def test_heavy_kernels_have_every_set():
    k = kernel_of(x(1, 256, 14, 14).conv2d(Tensor.input("w", (256, 256, 3, 3), "f32"), padding=1))
    payload = payload_of(k)
    made = make_dataset(Candidate(k.key, payload), lower(payload).io, HOOKS, 0, None)
    *whole, changed = made.sets
    assert len(whole) == len(KINDS) == 3
    assert [r.roundings for s in whole for r in s.references.values()] == [None, 0, None]
    assert all(r.indices is None for s in whole for r in s.references.values())
    assert all(r.values.size > 2 for r in changed.references.values())


def test_a_changed_set_is_the_first_one_at_both_ends_and_another_between() -> None:
    k = kernel_of(x(7, 300) @ Tensor.input("w", (300, 5), "f32"))
    payload = payload_of(k)
    make = partial(make_dataset, Candidate(k.key, payload), lower(payload).io, HOOKS, 0, None)
    first, changed, other = make(3).sets[0], make(3).sets[-1], make(4).sets[-1]
    for name, values in first.inputs.items():
        new = changed.inputs[name]
        assert (new[:16] == values[:16]).all()
        assert (new[-16:] == values[-16:]).all()
        width = 300 if values.size == 7 * 300 else 5
        (zeros,) = np.flatnonzero((new.reshape(-1, width) == 0).all(axis=1))  # one drawn row
        others = np.delete(new.reshape(-1, width), zeros, axis=0)
        assert 0 < zeros < values.size // width - 1
        assert 0.3 < (new != values).mean() < 0.7
        assert np.isin(others, values).all()
        assert (new != other.inputs[name]).any()


def test_a_float_behind_a_rounded_sum_may_be_a_step_off_next_to_the_middle_of_two() -> None:
    y = x(96, 384) @ Tensor.input("w", (384, 96), "f32")
    payload = payload_of(kernel_of((y * 0.37).round().clamp(-128.0, 127.0) * 0.5))
    (found,) = reference(payload, inputs(payload, lower(payload).io, 0, "ordinary")).values()
    assert found.bounds is not None
    between = np.isinf(found.bounds)
    assert 0 < between.mean() < 0.01
    for place, bad in ((np.flatnonzero(between)[0], 0), (np.flatnonzero(~between)[0], 1)):
        got = found.values.astype(np.float32)
        got[place] += 0.5
        assert compare(got, "f32", found).bad == bad


def test_division_of_integers_never_overflows():
    from test_candidate_hooks import divided

    arrays = drawn(divided(), "special")
    least = np.iinfo(I32.numpy).min
    assert not any(0 in a or least in a for a in arrays.values())


@pytest.fixture(scope="module")
def measurer() -> Iterator[DeviceMeasurer]:
    with DeviceMeasurer(host_device(2), HOOKS, Limits()) as measurer:
        yield measurer


QUICK = Policy(min_samples=2, max_samples=2, budget_s=0.001, timeout_s=10.0)


@pytest.mark.parametrize("name", NAMES)
def test_default_schedules_are_right_on_every_set(measurer, name):
    k = corpus_kernel(name)
    for default in Space(k, measurer.device.target).defaults():
        (outcome,) = measurer.measure(
            [Candidate(k.key, Payload(k, default.text, measurer.device))], QUICK
        )
        assert outcome is not None
        assert (outcome.measurement.status, outcome.measurement.error) == (Status.OK, "")


@pytest.mark.parametrize(
    "make",
    [
        lambda: x(1024, 512) / x(1024, 512).sum(1, keepdims=True),
        lambda: (x(512, 256) - Tensor.input("m", (512, 1))).exp() / Tensor.input("s", (512, 1)),
        lambda: (x(512, 256) - x(512, 256).max(1, keepdims=True)).exp() * 2.0,
        lambda: x(512, 256).softmax(-1),
        lambda: x(512, 256).exp().sum(1),
    ],
    ids=["over its sum", "parts of a softmax", "shifted", "softmax", "sum of exponentials"],
)
def test_right_kernels_that_are_sensitive_are_right(make):
    k = kernel_of(make())
    schedules = [Space(k, host_target(1)).defaults()[0].text, ""]
    with DeviceMeasurer(host_device(1), HOOKS, Limits(), compile_workers=1) as measurer:
        found = measurer.measure(
            [Candidate(k.key, Payload(k, text, host_device(1))) for text in schedules], Policy()
        )
    rows = [o.measurement for o in found if o is not None]
    assert rows
    assert [row.error for row in rows if row.status is not Status.OK] == []


SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda t: t.sum(),
    "of a function": lambda t: t.tanh().sum(),
    "scaled": lambda t: (t * 0.3).sum() * 2 - 1,
    "two": lambda t: (t * 0.3).sum() + (t * t * t).sum(),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("terms", [1 << 12, 1 << 20])
def test_a_sum_whose_terms_cancel_is_right_and_one_without_a_term_is_wrong(
    name: str, terms: int
) -> None:
    """Roundings are as large as partial sums: nothing next to the result was allowed for them."""
    k = kernel_of(SUMS[name](x(terms)))
    half = np.random.default_rng(0).standard_normal(terms // 2).astype(np.float32)
    values = np.concatenate((half, -np.random.default_rng(1).permutation(half)))
    read, out = k.params[1].name, k.outputs[0].name
    expected = reference(payload_of(k), {read: values})[out]
    program = Space(k, TARGET).lower(Schedule(()))
    assert compare(run_on_host(program, {read: values})[out], "f32", expected).first < 0
    less = values.copy()
    less[np.argmax(np.abs(values))] = 0
    assert compare(run_on_host(program, {read: less})[out], "f32", expected).first == 0
