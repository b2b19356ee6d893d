"""Bounds of how far a kernel's results may be from float64: never below an error that single
precision makes, and small enough that one term shows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests import fuzzing
from tunegrad.compiling.candidate import Payload, inputs, lower, reference
from tunegrad.devices import host_device
from tunegrad.frontend import Tensor
from tunegrad.ir import rounding
from tunegrad.ir.dtypes import DType
from tunegrad.ir.expr import nodes
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.rounding import decisions_of, error_bounds_at, has_jumps

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": Tensor.exp,
    "log": Tensor.log,
    "log to base 2": Tensor.log2,
    "log to base 10": Tensor.log10,
    "tangent": Tensor.tan,
    "root": Tensor.sqrt,
    "sigmoid": Tensor.sigmoid,
    "tanh": Tensor.tanh,
    "gelu": Tensor.gelu,
    "softmax": lambda t: t.softmax(-1),
    "variance": lambda t: t.var(1),
    "norm": lambda t: t * ((t * t).mean(1, keepdim=True) + 1e-6).rsqrt(),
    "quotient": lambda t: (t + 1.0) / (t * t + 0.5),
    "difference": lambda t: (t * 1.1 - t).exp() - 1.0,
    "power": lambda t: t.abs() ** 1.7,
}


def kernel_of(t: Tensor) -> Kernel:
    return schedule(tuple(fold_constants((t.node,)))).launches[0].kernel


def bounds_of(k: Kernel, arrays: dict[str, np.ndarray]) -> np.ndarray:
    found = error_bounds_at(k, arrays, None)
    assert found is not None
    offsets, bounds = found["p0"]
    return bounds[np.argsort(offsets)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_single_precision_is_within_the_bounds_wherever_they_are_known(name: str) -> None:
    k = kernel_of(FUNCTIONS[name](Tensor.input("x", (3, 200), "f32")))
    rng = np.random.default_rng(fuzzing.seed())
    size = 2.0 ** rng.uniform(-20, 12, 600)
    arrays = {"p1": (size * rng.choice([-1, 1], 600)).astype(np.float32)}
    narrow, wide = interpret(k, arrays)["p0"], interpret(k, arrays, as_float64=True)["p0"]
    bounds = bounds_of(k, arrays)
    known = np.isfinite(bounds) & (np.abs(wide) < 3.4e38)
    assert known.mean() > 0.3
    with np.errstate(invalid="ignore", over="ignore"):
        assert (np.abs(narrow - wide) <= bounds)[known].all()


def test_sums_of_what_is_exact_have_no_error_and_one_term_shows() -> None:
    k = kernel_of(Tensor.input("x", (2, 32768), "f32").softmax(-1))
    bounds = bounds_of(k, {"p1": np.zeros(65536, np.float32)})
    assert 0 < bounds.max() < 0.05 / 32768**2, "a term of n is a share of 1 / n of 1 / n"


def test_an_exact_result_has_no_bound_but_zero() -> None:
    k = kernel_of(Tensor.input("x", (64,), "f32") * 0.5)
    assert not bounds_of(k, {"p1": np.arange(64, dtype=np.float32)}).any()


def test_what_may_go_either_way_is_undecided() -> None:
    k = kernel_of((Tensor.input("x", (4,), "f32") * 1.1).floor())
    assert has_jumps(k)
    at = np.array([10.0 / 1.1, 3.0, 1e30, 0.5], np.float32)
    assert np.isinf(bounds_of(k, {"p1": at})).tolist() == [True, False, True, False]


def test_a_comparison_beside_a_sum_is_undecided_where_a_rounding_turns_it() -> None:
    """As of a relu's gradient whose argument is computed again in a convolution."""
    x, w, a, b = (
        Tensor.input(n, s, "f32")
        for n, s in (("x", (2, 8)), ("w", (8, 2)), ("a", (2, 2)), ("b", (2, 2)))
    )
    k = kernel_of((x @ w).where(a * 1.1 - b > 0.0, 0.0))
    assert k.reduces
    beside = decisions_of(k)
    assert beside is not None
    assert not beside.reduces
    loads = {p.name: np.ones(p.size, np.float32) for p in k.params}
    sizes = {p.name: p.size for p in k.params if p.role == "in" and p.size == 4}
    first, second = sizes
    loads[first] = np.array([10.0, 3.0, 7.0, 3.0], np.float32)
    loads[second] = np.array([11.0, 1.0, 9.0, 3.3], np.float32)
    found = np.isinf(bounds_of(beside, loads))
    assert found.tolist() == [True, False, False, True]
    bounds = reference(Payload(k, "", host_device()), loads)["p0"].bounds
    assert bounds is not None
    assert np.isinf(bounds).tolist() == found.tolist()


def test_a_comparison_of_a_sum_itself_is_none_that_stands_beside_it() -> None:
    x, w = Tensor.input("x", (2, 8), "f32"), Tensor.input("w", (8, 2), "f32")
    k = kernel_of((x @ w).where((x @ w) > 0.5, 0.0))
    assert has_jumps(k)
    assert decisions_of(k) is None
    assert decisions_of(kernel_of(x @ w)) is None


def test_what_overflows_on_the_way_is_undecided_and_what_overflows_in_the_end_is_not() -> None:
    x = Tensor.input("x", (2,), "f32")
    at = {"p1": np.array([100.0, 1.0], np.float32)}
    assert np.isinf(bounds_of(kernel_of(x.exp() * 1e-30), at)).tolist() == [True, False]
    assert np.isfinite(bounds_of(kernel_of(x.exp()), at)).tolist() == [True, True]
    assert np.isfinite(bounds_of(kernel_of(1.0 / (1.0 + x.exp())), at)).all()


HUGE: dict[str, Callable[[Tensor], Tensor]] = {
    "sums": lambda t: t.sum(1),
    "combination": lambda t: t[:, 0] * 4.0 - t[:, 1] * 5.0 + t[:, 2] - (t[:, 3] + t[:, 4]) * 2.0,
    "clamped": lambda t: ((t[:, 0] + t[:, 1]) - (t[:, 2] + t[:, 3]) * 4.0 + t[:, 4]).relu(),
}


@pytest.mark.parametrize("name", HUGE)
def test_sums_of_which_both_signs_overflow_are_undecided(name: str) -> None:
    """Such a sum is infinite or NaN by its order; every other result is decided."""
    k = kernel_of(HUGE[name](Tensor.input("x", (4000, 5), "f32")))
    rng = np.random.default_rng(7)
    size = 2.0 ** rng.uniform(120, 127.9, 20_000)
    arrays = {"p1": (size * rng.choice([-1, 1], 20_000)).astype(np.float32)}
    with np.errstate(all="ignore"):
        narrow, wide = interpret(k, arrays)["p0"], interpret(k, arrays, as_float64=True)["p0"]
        decided = np.isfinite(bounds := bounds_of(k, arrays))
        beyond = np.abs(wide) >= 2.0**128
        assert (decided & beyond).sum() > 50
        assert (decided & ~beyond).sum() > 50
        assert (~decided).sum() > 50
        np.testing.assert_array_equal(
            narrow[decided & beyond], np.copysign(np.inf, wide[decided & beyond])
        )
        assert (np.abs(narrow - wide) <= bounds)[decided & ~beyond].all()


@pytest.mark.parametrize("extreme", [Tensor.maximum, Tensor.minimum])
def test_a_reciprocal_of_a_maximum_of_both_zeros_is_undecided(
    extreme: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """Processors give the one or the other, so every kernel was called wrong beside such zeros."""
    x, y = (Tensor.input(name, (5,), "f32") for name in "xy")
    arrays = {
        "p1": np.array([0.0, -0.0, 0.0, -0.0, 2.0], np.float32),
        "p2": np.array([-0.0, 0.0, 0.0, -0.0, 2.0], np.float32),
    }
    for made in (1.0 / extreme(x, y), 3.0 / (extreme(x, y) * 2.0)):
        k = kernel_of(made)
        assert np.isinf(bounds_of(k, arrays)).tolist() == [True, True, False, False, False]
        assert decisions_of(k) is k  # so they are looked for at every element of a large one
    assert decisions_of(kernel_of(extreme(x, y) * 2.0)) is None


@pytest.mark.parametrize("dtype", ["bool", "u8"])
def test_special_inputs_are_drawn_for_a_comparison_of_a_sum(dtype: str) -> None:
    """Whether its terms may cancel was asked with a difference, which bools have none of."""
    x, w = Tensor.input("x", (64, 100), "f32"), Tensor.input("w", (100, 64), "f32")
    k = kernel_of((x @ w > 0.0).cast(dtype))
    payload = Payload(k, "", host_device())
    assert inputs(payload, lower(payload).io, 0, "special").keys() == {"p1", "p2"}


def test_a_value_is_looked_at_for_overflows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step reads ``x`` and the step before it; ``over`` is asked of every argument."""
    x = Tensor.input("x", (64,), "f32")
    t = x
    for step in range(1, 9):
        t = t * x + float(step)
    k = kernel_of(t)
    looked: list[int] = []
    beyond = rounding._beyond

    def counted(v: np.ndarray, dtype: DType) -> np.ndarray:
        looked.append(1)
        return beyond(v, dtype)

    monkeypatch.setattr(rounding, "_beyond", counted)
    bounds_of(k, {"p1": np.ones(64, np.float32)})
    assert 0 < len(looked) <= len({id(v) for s in k.stages for v in nodes(s.expr)})
