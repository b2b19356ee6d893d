"""Gradients of every differentiable operation of the Tensor API: against central differences in
f64, and against PyTorch in f32 and f64.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tests import gradients
from tests.gradient_cases import CASES, STEPS, TIES, Shapes
from tests.gradients import checked, drawn, values, weighted

ROUNDED = {
    "F.celu(a, 1.3)", "F.hardsigmoid(a * 3)", "F.affine_grid(a, (2, 1, 3, 4), align_corners=False)",
}  # fmt: skip
"""Of doubles, PyTorch 2.13 has constants that are rounded to f32."""
INDEX = np.array([0, 2, 1, 5, 3, 4])
EVERY = CASES + [(line, ((2, 3, 4),)) for line in STEPS]
KINDS = [(*c, "f8") for c in EVERY] + [(*c, "f4") for c in EVERY[::3]]


def _function(line: str, torch_like: Any, functional: Any) -> Callable[..., Any]:
    """A line of the table as a function of its arguments."""
    index = torch_like.tensor(INDEX) if torch_like is not tg else tg.Tensor(INDEX)

    def function(*args: Any) -> Any:
        names = dict(zip("abc", args, strict=False))
        return eval(line, {"T": torch_like, "F": functional, "i": index, **names})  # noqa: S307

    return function


def _ours(line: str) -> Callable[..., Any]:
    return _function(line, tg, tg.nn.functional)


def _theirs(line: str, args: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """PyTorch's gradients of a line of the table."""
    torch = pytest.importorskip("torch")
    return _slopes(_function(line, torch, torch.nn.functional), args)


def _slopes(
    function: Callable[..., Any], args: Sequence[np.ndarray[Any, Any]], dtype: Any = None
) -> list[np.ndarray[Any, Any]]:
    """PyTorch's gradients of the weighted results; zeros where it has none."""
    import torch

    leaves = [torch.tensor(a, dtype=dtype, requires_grad=True) for a in args]
    y = function(*leaves)
    weights = torch.tensor(gradients.weights(tuple(y.shape)))
    total = (y * weights.to(y.dtype)).sum()
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    wide = [None if g is None else g.to(g.dtype if dtype is None else torch.float64) for g in found]
    return [np.zeros_like(a) if g is None else g.numpy() for g, a in zip(wide, args, strict=True)]


def _found(line: str, args: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    every = tuple(range(len(args)))
    return values(tg.grad(weighted(_ours(line)), every)(*map(tg.Tensor, args)))


@pytest.mark.parametrize(("line", "shapes"), CASES, ids=[line for line, _ in CASES])
def test_gradients_of_operations_are_central_differences(line: str, shapes: Shapes) -> None:
    checked(_ours(line), shapes, near=1e-6)


@pytest.mark.parametrize(("line", "shapes", "dtype"), KINDS, ids=[f"{k[0]} {k[2]}" for k in KINDS])
def test_gradients_of_operations_are_pytorchs(line: str, shapes: Shapes, dtype: str) -> None:
    args = [a.astype(dtype) for a in drawn(shapes)]
    near = 1e-9 if dtype == "f8" and line not in ROUNDED else 3e-5
    for ours, theirs in zip(_found(line, args), _theirs(line, args), strict=True):
        assert ours.dtype == np.dtype(dtype)
        size = max(1.0, float(np.abs(theirs).max(initial=0)))
        np.testing.assert_allclose(ours, theirs, rtol=near, atol=near * size)


@pytest.mark.parametrize("line", TIES)
def test_gradients_at_ties_zeros_and_bounds_are_pytorchs(line: str) -> None:
    rng = np.random.default_rng(7)
    args = [rng.integers(-1, 2, (4, 4)).astype("f8") for _ in range(2)]
    args[0][0], args[0][1] = 0, 1
    args = args if re.search(r"\bb\b", line) else args[:1]
    for ours, theirs in zip(_found(line, args), _theirs(line, args), strict=True):
        near = 1e-7 if line in ROUNDED else 1e-12
        np.testing.assert_allclose(ours, theirs, rtol=near, atol=near)


@pytest.mark.parametrize(
    "line",
    ["a.norm()", "a.norm(dim=1)", "F.normalize(a)", "F.cosine_similarity(a, b)", "T.cdist(a, b)",
     "F.smooth_l1_loss(a, b)", "F.huber_loss(a, b, delta=0.5)"],
)  # fmt: skip
def test_second_derivatives_of_sums_of_squares_are_central_differences_at_zeros(line: str) -> None:
    a, b = np.array([[0.0, 0.4, -1.7]]), np.array([[0.0, -0.8, 0.3]])
    checked(_ours(line), ((1, 3), (1, 3)), second=True, args=[a, b] if "b" in line else [a])


def test_derivatives_of_a_whole_power_at_zero_are_zero_beyond_it() -> None:
    slope, found = (lambda x: x**3.0), []
    for _ in range(6):
        slope = tg.grad(slope)
        found.append(float(values([slope(tg.Tensor(0.0))])[0]))
    assert found == [0, 0, 6, 0, 0, 0]


def test_gradients_of_logsumexp_at_infinities_are_pytorchs_or_zero() -> None:
    inf = np.inf
    x = np.array([[0.0, 1.0, inf], [-inf, 2.0, 2.0], [-inf, -inf, -inf]])
    (found,) = values([tg.grad(lambda x: x.logsumexp(1).sum())(tg.Tensor(x))])
    np.testing.assert_allclose(found, [[0, 0, np.nan], [0, 0.5, 0.5], [0, 0, 0]])


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_gradients_of_logaddexp_do_not_lose_the_gap_of_large_numbers(name: str) -> None:
    a = tg.Tensor(np.array([1e15, 1e4, -1e4, 3.0], np.float32))
    b = tg.Tensor(np.array([1e15, 1e4, -1e4, 200.0], np.float32))
    found = values(tg.grad(lambda a, b: getattr(tg, name)(a, b).sum(), (0, 1))(a, b))
    np.testing.assert_allclose(found, [[0.5, 0.5, 0.5, 0], [0.5, 0.5, 0.5, 1]], atol=1e-12)


def test_gradients_of_hypot_hold_below_the_smallest_normal_number() -> None:
    x = tg.Tensor(np.array([6e-8, 3.0], np.float16))
    y = tg.Tensor(np.array([0.0, 4.0], np.float16))
    found = values([tg.grad(lambda x: tg.hypot(x, y).sum())(x)])
    np.testing.assert_allclose(found, [[1, 0.6]], rtol=1e-3)


_STRICTER = re.compile(r"conv2d|batch_norm|linalg|i\[:4\]\.reshape\(2, 2\) > 1")
"""Of no elements PyTorch takes these shapes, too, which are errors of ours."""
_ODD = re.compile(r"group_norm|conv1d")
"""Of no elements PyTorch's gradient of these is NaN, or lacks the bias."""


def _unlike(line: str, found: Sequence[Any], wanted: Sequence[Any]) -> str:
    near = 3e-5 if line in ROUNDED else 1e-9
    for ours, theirs in zip(found, wanted, strict=True):
        size = max(1.0, float(np.abs(theirs).max(initial=0)))
        if ours.shape != theirs.shape or not np.allclose(ours, theirs, near, near * size):
            return f"{line} at {[w.shape for w in wanted]}: {ours} is not {theirs}"
    return ""


def _emptied(shapes: Shapes) -> Iterator[Shapes]:
    """Shapes of which one extent is zero: of the first alone, or wherever it is."""
    first, *others = shapes
    for at, extent in enumerate(first):
        none = (*first[:at], 0, *first[at + 1 :])
        yield none, *others
        yield none, *(tuple(0 if e == extent else e for e in s) for s in others)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gradients_of_tensors_without_elements_are_pytorchs() -> None:
    failed, compared = [], 0
    for line, shapes in CASES:
        for some in dict.fromkeys(_emptied(shapes)):
            args = drawn(some, line)
            try:
                wanted = _theirs(line, args)
            except (RuntimeError, IndexError, ValueError, ZeroDivisionError):
                continue
            compared += 1
            try:
                said = "" if _ODD.search(line) else _unlike(line, _found(line, args), wanted)
            except Exception as error:  # noqa: BLE001  # all of them are told
                said = "" if _STRICTER.search(line) else f"{line} at {some}: {error!r}"
            failed.append(said)
    assert compared > 600
    assert not [*filter(None, failed)]


def _jumping(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of every second element of its arguments, whose dimensions lie in reverse."""

    def views(*given: Any) -> Any:
        order = [range(x.ndim)[::-1] for x in given]
        pairs = zip(given, order, strict=True)
        return function(*(x.permute(*o)[..., ::2] if o else x for x, o in pairs))

    return views


def test_gradients_flow_through_views_that_jump_elements_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    failed = []
    for line, shapes in CASES:
        args = [np.repeat(a, 2, -1).T.copy() if a.ndim else a for a in drawn(shapes, line)]
        number = weighted(_jumping(_ours(line)))
        found = values(tg.grad(number, tuple(range(len(args))))(*map(tg.Tensor, args)))
        theirs = _jumping(_function(line, torch, torch.nn.functional))
        failed.append(_unlike(line, found, _slopes(theirs, args)))
    assert not [*filter(None, failed)]


@pytest.mark.parametrize(("kind", "dtype"), [("f16", "float16"), ("bf16", "bfloat16")])
def test_gradients_of_16_bits_are_as_near_as_pytorchs(kind: str, dtype: str) -> None:
    """To those of the same numbers in f64: within twice its distance, or four roundings."""
    torch = pytest.importorskip("torch")
    failed, rounding = [], {"f16": 2.0**-11, "bf16": 2.0**-8}[kind]
    for line, shapes in (c for c in CASES if "linalg" not in c[0]):
        ours = [tg.Tensor(a).cast(kind) for a in drawn(shapes, line)]
        exact = values([x.cast("f64") for x in ours])
        theirs = _function(line, torch, torch.nn.functional)
        wanted = _slopes(theirs, exact)
        try:
            half = _slopes(theirs, exact, getattr(torch, dtype))
        except RuntimeError:  # an operation that it lacks
            half = wanted
        made = tg.grad(weighted(_ours(line)), tuple(range(len(ours))))(*ours)
        assert {g.dtype.name for g in made} == {kind}
        for f, h, w in zip(values([g.cast("f64") for g in made]), half, wanted, strict=True):
            allowed = max(2 * np.abs(h - w).max(), 4 * rounding * max(1.0, np.abs(w).max()))
            if not np.abs(f - w).max() <= allowed:
                failed.append(f"{line}: {f} is not {w}")
    assert not failed


_WITHOUT = """
    all allclose any arange argmax argmin argwhere as_tensor asarray assign backward become
    bernoulli bool broadcast_shapes bucketize checkpoint compile config_names constant count_nonzero
    cpu custom_vjp default_store describe dump element_size empty empty_like eq equal explain eye
    floor_divide from_numpy from_torch full full_like ge grad greater greater_equal gt heaviside
    input int is_floating_point is_tensor isclose isfinite isinf isnan isneginf isposinf item le
    less less_equal linspace load logspace long lt manual_seed multinomial ne new_full new_ones
    new_tensor new_zeros no_grad nonzero normal not_equal numel numpy of one_hot ones ones_like
    plain position_of quantize rand rand_like randint randn randn_like randperm realize retain_grad
    scalar_tensor searchsorted seed signbit tensor tolist tril_indices triu_indices tune
    tune_callable uniform value_and_grad zeros zeros_like
"""
"""Of the API: what gives integers, truths, new tensors or none."""
_OURS: list[tuple[str, Shapes]] = [
    ("a.cast('f64').astype('f64').to('f64').double()", ((3,),)), ("a.expand_dims(1)", ((2, 3),)),
    ("a.window(1, 2, 1)", ((2, 5),)), ("a.shrink(((0, 1), (1, 3)))", ((2, 5),)),
    ("a.global_avg_pool2d()", ((1, 2, 3, 3),)), ("a.masked_softmax()", ((2, 3),)),
    ("a.half().bfloat16().type('f64') * 0 + a", ((3,),)),
    ("F.dropout(a, 0.4, True)", ((4, 5),)), ("F.dropout(a, 1.0, True)", ((4, 5),)),
    ("F.dropout1d(a, 0.4, True)", ((3, 4, 2),)), ("F.dropout2d(a, 0.4, True)", ((2, 4, 2, 2),)),
    ("F.dropout3d(a, 0.4, True)", ((2, 3, 2, 1, 2),)), ("F.alpha_dropout(a, 0.4, True)", ((9,),)),
    ("F.feature_alpha_dropout(a, 0.4, True)", ((2, 5, 2),)),
]  # fmt: skip
"""What PyTorch spells otherwise, or draws otherwise."""


@pytest.mark.parametrize(("line", "shapes"), _OURS, ids=[line for line, _ in _OURS])
def test_gradients_of_what_is_ours_alone_are_central_differences(line: str, shapes: Shapes) -> None:
    def seeded(*args: Any) -> Any:
        tg.manual_seed(3)
        return _ours(line)(*args)

    checked(seeded, shapes, near=1e-6)


def test_every_function_of_the_api_is_in_a_line_that_is_compared() -> None:
    lines = " ".join([line for line, _ in [*EVERY, *_OURS]] + TIES)
    words = {*re.findall(r"\w+", lines), *_WITHOUT.split()}
    named = {
        (name, getattr(space, name))
        for space in (tg, tg.nn.functional, tg.Tensor, tg.linalg)
        for name in getattr(space, "__all__", None) or dir(space)
        if name[0] != "_" and callable(getattr(space, name, None))
    }
    compared = {id(f) for name, f in named if name in words}  # by another name, too
    left = {n for n, f in named if id(f) not in compared and not isinstance(f, type)}
    assert not {n for n in left if not re.search(r"_$|^bitwise_|^logical_", n)}


def _in_place(line: str) -> str:
    """A call as the method that writes to its tensor; '' where there is none."""
    found = re.match(r"(?:a\.(\w+)\(|T\.(\w+)\(a(?:, |(?=\))))", line)
    name = f"{found[1] or found[2]}_" if found else ""
    return f"a.clone().{name}({line[found.end() :]}" if found and hasattr(tg.Tensor, name) else ""


def test_gradients_of_methods_in_place_are_those_of_the_others() -> None:
    pairs = [(_in_place(line), line, shapes) for line, shapes in CASES if _in_place(line)]
    assert len(pairs) > 50
    for inside, line, shapes in pairs:
        args = drawn(shapes, line)
        assert not _unlike(line, _found(inside, args), _found(line, args))


_SMOOTH = [(n, s) for n, s in CASES if not re.search(r"floor|conv3d|bicubic|quantile", n)][::3]


@pytest.mark.parametrize(("line", "shapes"), _SMOOTH, ids=[line for line, _ in _SMOOTH])
def test_second_derivatives_of_operations_are_central_differences(
    line: str, shapes: Shapes
) -> None:
    checked(_ours(line), shapes, second=True, near=1e-6)


def test_gradients_of_bicubic_scales_are_central_differences() -> None:
    """PyTorch 2.13's are not, by its own ``gradcheck``: a fuzzer's find."""
    how = "scale_factor=(1.3, 1.5), mode='bicubic'"
    checked(_ours(f"F.interpolate(a, {how})"), ((1, 3, 3, 1),), near=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_second_derivatives_of_a_norm_at_a_zero_leave_other_elements_theirs() -> None:
    """That of the zero is infinite for an order between one and two."""

    def second(x: list[float]) -> Any:
        slope = tg.grad(lambda a: a.norm(1.5).sum())
        weight = tg.Tensor(np.array(x) + 2)
        return values([tg.grad(lambda a: (slope(a) * weight).sum())(tg.Tensor(np.array(x)))])[0]

    np.testing.assert_allclose(second([-1.0, 0.0, 2.0])[[0, 2]], second([-1.0, 2.0]), rtol=1e-12)
