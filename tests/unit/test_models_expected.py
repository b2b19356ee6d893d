"""What a model's outputs must be, and how far off they may be."""

from __future__ import annotations

import numpy as np
import pytest
from quad_builders import VNNI

from tunegrad.errors import WrongResult
from tunegrad.frontend import Tensor, substitute
from tunegrad.ir.dtypes import BF16, BOOL, F16, F32, F64, I32, I64, U8, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.graph import Node, graph_input, topological
from tunegrad.ir.interpret.evaluate import evaluate, flat, graph_in_float64, unflat
from tunegrad.ir.interpret.numeric import to_compute
from tunegrad.ir.rewrites import pair_dots
from tunegrad.planning import prepared
from tunegrad.runtime import Argument
from tunegrad.tuning.models.expected import Expected, Judge, ToleranceTerms, evaluated
from tunegrad.tuning.models.work import SETS, drawn

X = Argument("x", (1, 8, 12, 12), F32)
W = np.random.default_rng(0).standard_normal((8, 8, 3, 3), dtype=np.float32) / 8


def convolution() -> tuple[Node, ...]:
    x = Tensor.input(X.name, X.shape, X.dtype)
    y = x.conv2d(Tensor.constant(W), padding=1).relu()
    return ((y.conv2d(Tensor.constant(W), padding=1) + x).node,)


def test_a_graph_as_a_list_is_the_same_graph() -> None:
    graph = convolution()
    assert unflat(*flat(graph)) == graph


def test_a_deep_graph_is_a_list_that_can_be_pickled() -> None:
    import pickle

    x = Tensor.input("x", (4,))
    for _ in range(5000):
        x = x.exp()
    nodes, outputs = pickle.loads(pickle.dumps(flat((x.node,))))
    assert len(topological(unflat(nodes, outputs))) == 5001


def test_the_float64_form_of_a_graph_is_far_more_exact() -> None:
    graph = convolution()
    wide = graph_in_float64(graph)
    assert all(n.dtype != F32 for n in topological(wide))
    x = drawn([X], 0)["x"]
    (native,), (exact,) = evaluate(graph, {"x": x}), evaluate(wide, {"x": x.astype(np.float64)})
    assert exact.dtype == np.float64
    error = np.abs(native - exact).max() / np.abs(exact).max()
    assert 1e-9 < error < 1e-5


def test_casts_to_sixteen_bits_stay_roundings() -> None:
    x = Tensor.input("x", (64,))
    (wide,) = graph_in_float64(((x * 3.0).cast("bf16").cast("f32").node,))
    values = np.random.default_rng(1).standard_normal(64, dtype=np.float32)
    (got,) = evaluate((wide,), {"x": values.astype(np.float64)})
    assert wide.dtype == F64
    assert np.array_equal(got.astype(np.float32).view(np.uint32) & 0xFFFF, np.zeros(64, np.uint32))


def test_without_roundings_casts_to_sixteen_bits_do_nothing() -> None:
    x = Tensor.input("x", (64,))
    made = ((x * 3.0).cast("bf16").cast("f32").node,)
    values = np.random.default_rng(2).standard_normal(64)
    (got,) = evaluate(graph_in_float64(made, rounded=False), {"x": values})
    assert np.array_equal(got, values * 3.0)


def test_sums_of_pairs_are_two_sums_in_float64() -> None:
    a, b = Tensor.input("a", (8, 7), "bf16"), Tensor.constant(W[0, 0, :, :].repeat(7, 0)[:7], BF16)
    paired = fold_constants(pair_dots(((a @ b).cast("f32").node,)))
    assert any(n.dtype.is_pair for n in topological(paired))
    (wide,) = graph_in_float64(paired)
    assert not any(n.dtype.is_pair for n in topological((wide,)))
    bits = drawn([Argument("a", (8, 7), BF16)], 0)["a"]
    values = to_compute(bits, BF16).astype(np.float64)
    (plain,) = graph_in_float64(((a @ b).cast("f32").node,))
    (got,), (want,) = evaluate((wide,), {"a": values}), evaluate((plain,), {"a": values})
    assert np.array_equal(got, want)


def rounded_layers() -> tuple[Node, ...]:
    """Two products; what is between them is rounded to bf16."""
    x = Tensor.input("x", (4, 64))
    rng = np.random.default_rng(3)
    first, second = (rng.standard_normal((64, 64), dtype=np.float32) / 8 for _ in range(2))
    hidden = (x @ Tensor.constant(first)).cast("bf16").cast("f32")
    return ((hidden @ Tensor.constant(second)).node,)


def test_where_a_graph_rounds_the_other_neighbour_is_right_and_a_wrong_sum_is_not() -> None:
    graph = rounded_layers()
    hidden = next(n for n in topological(graph) if n.dtype == BF16)
    (expected,) = evaluated(*flat(graph), (Argument("x", (4, 64), F32),), 0) or ()
    x = drawn([Argument("x", (4, 64), F32)], 0)["x"]
    (bits,) = evaluate((hidden,), {"x": x})
    for place, steps, right in (
        (np.s_[:], 0, True),
        (np.s_[2, 5], 1, True),
        (np.s_[2, :], 8, False),
    ):
        other = bits.copy()
        other[place] += steps
        stored = substitute(graph, {hidden: graph_input("h", (4, 64), BF16)})
        (got,) = evaluate(stored, {"h": other, "x": x})
        assert (expected.fault(got.reshape(-1).astype(np.float64)) == "") == right


@pytest.mark.parametrize("number", range(SETS))
def test_an_output_that_is_right_passes_and_one_wrong_element_does_not(number: int) -> None:
    nodes, outputs = flat(convolution())
    (expected,) = evaluated(nodes, outputs, (X,), number) or ()
    right = expected.values.astype(np.float32).astype(np.float64)
    assert expected.fault(right) == ""
    scale = np.sqrt(np.mean(right**2))
    for off in (1e-3, -1e-3):
        wrong = right.copy()
        wrong[77] += off * scale
        assert "[77]: got" in expected.fault(wrong)
    assert expected.allowed < 1e-4 * scale


def test_a_kernel_wrong_in_one_pixel_of_the_first_layer_shows_at_the_end() -> None:
    """One element of 1152 in front of a convolution: the change is thousands of times the
    tolerance.
    """
    nodes, outputs = flat(convolution())
    (expected,) = evaluated(nodes, outputs, (X,), 0) or ()
    x = drawn([X], 0)["x"]
    x[0, 3, 5, 6] += 0.5
    (got,) = evaluate(convolution(), {"x": x})
    assert np.abs(got.reshape(-1) - expected.values).max() > 1000 * expected.allowed


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_poison_is_never_right(poison: float) -> None:
    values = np.ones(8)
    got = values.copy()
    got[2] = poison
    assert Expected.of(values, values, F32, ToleranceTerms()).fault(got)


def test_where_a_model_is_not_finite_nothing_finite_is_right() -> None:
    values = np.array([1.0, np.nan, np.inf, 2.0])
    expected = Expected.of(values, values, F32, ToleranceTerms())
    assert expected.fault(values) == ""
    assert expected.fault(np.array([1.0, 0.0, np.inf, 2.0]))


def test_integers_of_integers_are_exact_and_those_behind_floats_may_tip_over() -> None:
    values = np.arange(4000)
    off = values.copy()
    off[5] += 1
    exact, behind = (
        Expected.of(values, values, I32, ToleranceTerms(floats=False)),
        Expected.of(values, values, I32, ToleranceTerms()),
    )
    assert exact.fault(off)
    assert behind.fault(off) == ""
    off[:100] += 1
    assert behind.fault(off)


def test_bytes_behind_a_sum_of_bytes_may_tip_over_where_that_is_on_floats() -> None:
    """By one step, as Winograd's sums of such a layer do; not by more."""
    rng = np.random.default_rng(0)
    w, zero = (Tensor.constant(rng.integers(-99, 99, s, np.int8)) for s in ((64, 32), ()))
    x = (Tensor.input("x", (64, 64), "u8").cast("f32") * 0.25) @ (w.cast("f32") * 0.01)
    steps = ((x / 0.05).round() + zero.cast("f32")).clamp(0.0, 255.0).cast("u8")
    (graph,) = prepared(((steps.cast("f32") * 0.05).node,), "contract", VNNI)
    assert any(n.arg is Op.DOT4 for n in topological((graph,)))
    found = evaluated(*flat((graph,)), (Argument("x", (64, 64), U8),), 0)
    assert found is not None
    (expected,) = found
    got = expected.values.copy()
    assert expected.fault(got) == ""
    got[7] += 0.05
    assert expected.fault(got) == ""
    got[7] += 0.3
    assert expected.fault(got)


def test_of_a_sum_that_numpy_has_exactly_a_rounding_is_allowed() -> None:
    values = np.array([1000.0])
    expected = Expected.of(values, values, F32, ToleranceTerms(terms=1 << 20))
    assert expected.fault(values * (1 + 2.0**-15)) == ""
    assert expected.fault(values * (1 + 2.0**-12))


def test_bytes_that_are_no_outputs_are_wrong() -> None:
    judge = Judge((F32,), ((Expected(np.ones(2), 0.1),),) * SETS)
    judge.check([np.ones(2, np.float32).tobytes()], 0)
    for outputs in ([], [b"123"], [np.ones(3, np.float32).tobytes()], [b""]):
        with pytest.raises(WrongResult):
            judge.check(outputs, 0)


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, I32, BOOL])
def test_the_second_set_of_inputs_has_zeros_and_several_magnitudes(dtype) -> None:
    first, second = (drawn([Argument("x", (4096,), dtype)], i)["x"] for i in range(SETS))
    assert first.dtype == second.dtype == dtype.numpy
    values = to_compute(second, dtype)
    assert 0.15 < np.mean(values == 0) < (0.35 if dtype.is_float else 0.7)
    if dtype.is_float:
        assert np.isfinite(values).all()
        assert np.abs(values).max() > 8
        assert np.abs(values[values != 0]).min() < 0.1
    assert np.array_equal(second, drawn([Argument("x", (4096,), dtype)], 1)["x"])


def test_masks_of_integers_are_zeros_and_ones() -> None:
    """``(1 - mask) * least`` as encoders have it overflows for a mask of 2."""
    x, mask = Tensor.input("x", (4, 16)), Tensor.input("mask", (4, 16), I64)
    bias = (1.0 - mask.cast("f32")) * float(np.finfo(np.float32).min)
    inputs = (Argument("x", (4, 16), F32), Argument("mask", (4, 16), I64))
    for number in range(SETS):
        (found,) = evaluated(*flat(((x + bias).softmax(-1).node,)), inputs, number) or (None,)
        assert found is not None
        assert np.isfinite(found.values).all()
        assert found.overflowed is None


def test_what_overflows_in_the_dtypes_of_a_graph_is_not_compared() -> None:
    x = Tensor.input("x", (4, 64))
    inputs = (Argument("x", (4, 64), F32),)
    some = (x * 1e38 * 4.0 / 1e38).node  # four in ten are beyond 3.4e38
    (found,) = evaluated(*flat((some,)), inputs, 0) or (None,)
    assert found is not None
    assert found.overflowed is not None
    assert 0.1 < found.overflowed.mean() < 0.9
    got = found.values.copy()
    got[found.overflowed] = np.nan
    assert found.fault(got) == ""
    got[~found.overflowed] *= 1.01
    assert found.fault(got) != ""
    assert evaluated(*flat(((x * 1e38 * 1e3 / 1e38).node,)), inputs, 0) is None


def relus(dtype: DType = F32) -> tuple[tuple[Node, ...], list[Argument]]:
    """Gradients of two layers of relus: each is a sum over what is above zero."""
    given = [
        Argument("x", (4096, 64), dtype),
        Argument("v", (64, 128), dtype),
        Argument("w", (128, 128), dtype),
        Argument("g", (4096, 128), dtype),
    ]
    x, v, w, g = (Tensor.input(a.name, a.shape, a.dtype) for a in given)
    h = x @ v
    y = h.relu() @ w
    dy = g * (y > 0).cast(dtype)
    dh = (dy @ w.T) * (h > 0).cast(dtype)
    return ((h.relu().T @ dy).node, (x.T @ dh).node), given


def as_off(
    graph: tuple[Node, ...], arrays: dict[str, np.ndarray], units: float
) -> list[np.ndarray]:
    """Outputs of a right model whose sums are off by so many units."""
    rng = np.random.default_rng(7)

    def moved(x: np.ndarray) -> np.ndarray:
        most = units * 2.0**-24 * np.sqrt(np.mean(x.astype(np.float64) ** 2))
        return (x + most * rng.uniform(-1, 1, x.shape)).astype(x.dtype)

    return list(evaluate(graph, arrays, moved))


def test_a_right_model_may_pass_other_jumps_than_float64() -> None:
    graph, given = relus()
    found = evaluated(*flat(graph), tuple(given), 0)
    assert found is not None
    arrays = drawn(given, 0)
    right = as_off(graph, arrays, 48.0)
    wide = evaluate(graph_in_float64(graph), {n: x.astype(np.float64) for n, x in arrays.items()})
    rounded = [np.abs(x - w).max() for x, w in zip(evaluate(graph, arrays), wide, strict=True)]
    off = [np.abs(x - w).max() for x, w in zip(right, wide, strict=True)]
    assert off[1] > 64 * rounded[1]  # a relu that the right model passes, and f64 does not
    assert not any(e.fault(x.reshape(-1)) for e, x in zip(found, right, strict=True))


def test_sums_in_float64_are_moved_by_its_own_units() -> None:
    graph, given = relus(F64)
    found = evaluated(*flat(graph), tuple(given), 0)
    assert found is not None
    assert found[1].typical < 1e-9 * np.abs(found[1].values).max()


def test_a_wrong_gradient_shows_beside_jumps_that_a_right_model_may_pass() -> None:
    graph, given = relus()
    found = evaluated(*flat(graph), tuple(given), 0)
    assert found is not None
    right = [x.reshape(-1) for x in evaluate(graph, drawn(given, 0))]
    assert "tolerance" in found[1].fault(right[1] * np.float32(1.05))
    one_row = right[1].copy()
    one_row[:128] = right[1][128:256]
    assert "tolerance" in found[1].fault(one_row)
