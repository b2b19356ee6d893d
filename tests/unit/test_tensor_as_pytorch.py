"""Where PyTorch has a meaning for odd arguments, tensors have that one."""

import numpy as np
import pytest
from tensor_values import same, value

import tunegrad as tg
from tunegrad.errors import AxisError, DTypeError, IndexTypeError, ModelError, ShapeError
from tunegrad.frontend import Tensor, functional
from tunegrad.ir.interpret.evaluate import evaluate

S = np.float32(-1.5)
X = np.arange(12, dtype=np.float32).reshape(3, 4)

SCALARS = {
    "sum": (lambda x, d: x.sum(d), S),
    "mean": (lambda x, d: x.mean(d, keepdim=True), S),
    "max": (lambda x, d: x.max(d).values, S),
    "max place": (lambda x, d: x.max(d).indices, np.int64(0)),
    "all": (lambda x, d: x.all(d), np.True_),
    "logsumexp": (lambda x, d: x.logsumexp(d), S),
    "norm": (lambda x, d: x.norm(2, d), -S),
    "softmax": (lambda x, d: x.softmax(d), np.float32(1)),
    "log_softmax": (lambda x, d: x.log_softmax(d), np.float32(0)),
    "argmin": (lambda x, d: x.argmin(d), np.int64(0)),
    "cumsum": (lambda x, d: x.cumsum(d), S),
    "cummax": (lambda x, d: x.cummax(d).indices, np.int64(0)),
    "logcumsumexp": (lambda x, d: x.logcumsumexp(d), S),
    "sort": (lambda x, d: x.sort(d).values, S),
    "topk": (lambda x, d: x.topk(1, d).indices, np.int64(0)),
    "kthvalue": (lambda x, d: x.kthvalue(1, d).values, S),
    "median": (lambda x, d: x.median(d).values, S),
    "quantile": (lambda x, d: x.quantile(0.5, d), S),
    "squeeze": (lambda x, d: x.squeeze(d), S),
    "flip": (lambda x, d: x.flip(d), S),
    "transpose": (lambda x, d: x.transpose(d, 0), S),
    "movedim": (lambda x, d: x.movedim(d, 0), S),
    "gather": (lambda x, d: x.gather(d, Tensor(np.array(0))), S),
    "index_select": (lambda x, d: x.index_select(d, Tensor([0])), S),
    "index_fill": (lambda x, d: x.index_fill(d, Tensor([0]), 2.0), np.float32(2)),
    "scatter": (lambda x, d: x.scatter(d, Tensor(np.array(0)), 2.0), np.float32(2)),
}


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", SCALARS)
def test_scalar_is_taken_along_its_only_dimension(name, dim):
    operation, expected = SCALARS[name]
    same(operation(Tensor(S), dim), expected)


@pytest.mark.parametrize("name", SCALARS)
def test_scalar_has_no_dimension_of_another_number(name):
    operation, _ = SCALARS[name]
    with pytest.raises(AxisError, match="axis 1 is not in shape"):
        operation(Tensor(S), 1)


LAST = np.array([-128, 127, -127, 5], np.int8)
ODD = np.array([np.nan, -np.inf, np.inf, -0.0, 2], np.float32)
HALVES = np.linspace(-9, 9, 1999).astype(np.float16)
TENTH = np.float32(np.float16(0.1))
"""As a half beside which a tenth stands has it."""
WIDE = HALVES.astype(np.float32)
EXTREMES = {
    "lerp by 1 to something small": (Tensor(np.float32([1e10])).lerp(1.5, 1.0), np.float32([1.5])),
    "lerp by a tensor": (
        Tensor(np.float32([1e10, 8])).lerp(Tensor(S), Tensor(np.float32([1, 0.25]))),
        np.float32([S, 8 - 9.5 / 4]),
    ),
    "half plus a number": (Tensor(HALVES) + 0.1, (WIDE + TENTH).astype("f2")),
    "half less a scalar": (Tensor(HALVES) - Tensor(np.float32(0.1)), (WIDE - TENTH).astype("f2")),
    "scalar by a half": (Tensor(np.float32(0.1)) * Tensor(HALVES), (TENTH * WIDE).astype("f2")),
    "half by a scalar": (
        Tensor(HALVES) * Tensor(np.float32(0.1)),
        (WIDE * np.float32(0.1)).astype("f2"),
    ),
    "half beside a tenth": (Tensor(np.float16([0.1])) == 0.1, np.array([True])),
    "half beside a whole": (Tensor(np.float16([1])) + Tensor(np.int32([2049])), np.float16([2048])),
    "halves with alpha": (
        Tensor(HALVES).add(Tensor(HALVES[::-1].copy()), alpha=0.3),
        (WIDE + WIDE[::-1] * np.float32(np.float16(0.3))).astype("f2"),
    ),
    "a half with alpha beside a wider one": (
        Tensor(WIDE).sub(Tensor(np.float16([7.7])), alpha=0.3),
        WIDE - np.float32(np.float16(7.7)) * np.float32(0.3),
    ),
    "halves by one whole": (
        Tensor(HALVES) * Tensor(np.int64([2049])),
        (WIDE * np.float32(2049)).astype("f2"),
    ),
    "addcmul of halves": (
        Tensor(HALVES).addcmul(Tensor(HALVES), Tensor(HALVES)),
        (WIDE + WIDE * WIDE).astype("f2"),
    ),
    "addcmul in the type of all": (
        Tensor(np.int32([1, 2])).addcmul(Tensor(np.int8(100)), Tensor(np.uint8([3, 200])), value=3),
        np.int32([901, 60002]),
    ),
    "addcdiv in the type of all": (
        Tensor(np.float32([1, 2])).addcdiv(Tensor(np.float16([1, 1])), Tensor(np.float16([3, 7]))),
        np.float32([1, 2]) + np.float32([1, 1]) / np.float32([3, 7]),
    ),
    "addcdiv of the largest": (
        Tensor(np.float32([3e38])).addcdiv(
            Tensor(np.float32([3e38])), Tensor(np.float32([-0.5])), value=0.5
        ),
        np.float32([0]),
    ),
    "addcmul of the largest": (
        Tensor(np.float32([3e38])).addcmul(
            Tensor(np.float32([3e38])), Tensor(np.float32([-2])), value=0.5
        ),
        np.float32([0]),
    ),
    "fmod": (Tensor(LAST).fmod(3), np.int8([-2, 1, -1, 2])),
    "fmod by a float": (Tensor(LAST).fmod(3.0), np.float32([-2, 1, -1, 2])),
    "fmod of a float": (Tensor(np.float32([5, -200])).fmod(Tensor(LAST[:1])), np.float32([5, -72])),
    "fmod by the least": (Tensor(LAST).fmod(Tensor(LAST[:1])), np.int8([0, 127, -127, 5])),
    "threshold": (functional.threshold(Tensor(ODD), 1, 7), np.float32([np.nan, 7, np.inf, 7, 2])),
    "heaviside": (Tensor(ODD).heaviside(Tensor(S)), np.float32([0, 0, 1, S, 1])),
    "root": (Tensor(ODD[1:]) ** 0.5, np.float32([np.nan, np.inf, -0.0, np.sqrt(np.float32(2))])),
    "root of f16": (Tensor(ODD[1:], "f16") ** 0.5, np.float16([np.inf, np.inf, 0, np.sqrt(2)])),
    "root of a constant": (
        Tensor.constant(ODD[1:]) ** Tensor.constant(np.float32(0.5)),
        np.float32([np.inf, np.inf, 0, np.sqrt(2)]),
    ),
    "one by a root": (Tensor(ODD[1:]) ** -0.5, np.float32([np.nan, 0, -np.inf, np.sqrt(0.5)])),
    "cube": (Tensor(np.float32([0.1, -3])) ** 3, np.float32([0.1, -3]) * np.float32([0.01, 9])),
    "logcumsumexp": (
        Tensor(np.float32([*[0] * 17, np.nan])).logcumsumexp(0)[:17],
        np.log(np.arange(1, 18)).astype(np.float32),
    ),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_ends_of_types_have_the_values_that_pytorch_gives_them(name):
    same(*EXTREMES[name])


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("rows", [1, 3, 50])
def test_nan_as_a_bound_gives_nan_in_kernels_too(rows, dtype):
    x = Tensor(np.tile(X, (rows, 1))).cast(dtype)
    for bounded in (
        x.maximum(np.nan),
        x.minimum(np.nan),
        x.clamp(0, np.nan),
        (x + 1).clamp(np.nan),
    ):
        assert np.isnan(bounded.numpy()).all()


def test_gradient_of_rrelu_at_zero_is_its_slope():
    found = tg.grad(lambda x: x.rrelu(0.1, 0.3).sum())(Tensor(np.float32([-1, 0, 1])))
    same(found, np.float32([0.2, 0.2, 1]))


def test_numpy_reads_a_parameter_as_its_values():
    layer = tg.nn.Linear(3, 2)
    layer.load({"weight": X[:2, :3], "bias": X[0, :2]})
    assert np.asarray(layer.weight).dtype == np.float32
    assert np.array_equal(np.asarray(layer.weight), X[:2, :3])
    assert np.asarray(layer.bias, np.float64).dtype == np.float64


REFUSED = {
    "axis": (lambda: Tensor(X).sum(2), (ShapeError, IndexError, ValueError)),
    "position": (lambda: Tensor(X)[3], (ShapeError, IndexError, ValueError)),
    "many positions": (lambda: Tensor(X)[0, 0, 0], (ShapeError, IndexError)),
    "list of positions": (lambda: Tensor(X)[[0, 3]], (ShapeError, IndexError)),
    "narrow": (lambda: Tensor(X).narrow(0, 2, 2), (ShapeError, IndexError, RuntimeError)),
    "shapes": (lambda: Tensor(X) + Tensor(X[:2]), (ShapeError, RuntimeError, ValueError)),
    "product": (lambda: Tensor(X) @ Tensor(X), (ShapeError, RuntimeError, ValueError)),
    "dtype": (lambda: -Tensor(X > 1), (DTypeError, RuntimeError, TypeError)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_those_that_pytorch_and_numpy_raise(name):
    call, kinds = REFUSED[name]
    for kind in kinds:
        with pytest.raises(kind):
            call()


def test_tuples_and_ranges_inside_of_a_key_are_positions():
    same(Tensor(X)[0, (0, 1)], X[0, (0, 1)])
    same(Tensor(X)[(2, 0), 1:3], X[(2, 0), 1:3])
    same(Tensor(X)[:, range(3, 0, -2)], X[:, range(3, 0, -2)])


def test_widths_of_padding_may_cut_and_add():
    same(Tensor(X).pad([(-1, 2), (1, -3)]), np.pad(X[1:, :1], [(0, 2), (1, 0)]))
    same(functional.pad(Tensor(X), (1, -3, -1, 2)), np.pad(X[1:, :1], [(0, 2), (1, 0)]))


FLOATS = np.array([1.54, -0.29, -1.08, -2.18, 300.7, -129.3, 70000.9, 3e9], np.float32)


@pytest.mark.parametrize("kind", ["u8", "i8", "u16", "i16", "u32"])
def test_floats_beyond_a_narrow_integer_wrap_around(kind):
    wraps = FLOATS[: None if kind == "u32" else -1]  # from 2^31 on nothing is defined
    expected = wraps.astype(np.int64).astype({"u": "uint", "i": "int"}[kind[0]] + kind[1:])
    same(Tensor(wraps).cast(kind), expected)
    same(Tensor(np.array([np.nan], np.float32)).cast(kind), expected[:1] * 0)


def test_hypotenuse_is_infinite_where_one_side_is():
    a = np.array([np.inf, -np.inf, np.nan, np.nan, 3, 0, 3e38], np.float32)
    b = np.array([np.nan, np.nan, 1, -np.inf, 4, 0, 1e38], np.float32)
    same(Tensor(a).hypot(Tensor(b)), np.hypot(a, b))


@pytest.mark.parametrize(
    ("factor", "rows"),
    [(1.3, [0, 1, 2]), (1.4, [0, 0, 1, 2]), (2.0, [0, 0, 1, 1, 2, 2]), (2.3, [0, 0, 1, 1, 2, 2])],
)
def test_nearest_rows_are_those_of_pytorch(factor, rows):
    image = np.arange(3, dtype=np.float32).reshape(1, 1, 3, 1)
    found = functional.interpolate(Tensor(image), scale_factor=(factor, 1.5), mode="nearest")
    same(found, image[:, :, rows])


@pytest.mark.parametrize(
    ("factor", "places"), [(1.3, [0, 0, 1]), (2.0, [0, 0, 1, 1, 2, 2]), (2.3, [0, 0, 0, 1, 1, 2])]
)
@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 1, 3, 1, 1), (1, 1, 1, 1, 3)])
def test_nearest_places_of_lines_and_volumes_follow_the_factor(factor, places, shape):
    """PyTorch counts rows of images otherwise, where they are as many, or twice as many."""
    line = np.arange(3, dtype=np.float32).reshape(shape)
    at = shape.index(3)
    factors = [factor if axis == at else 1.0 for axis in range(2, len(shape))]
    found = functional.interpolate(Tensor(line), scale_factor=factors, mode="nearest")
    same(found, line.take(places, at))


def test_covariances_of_numbers_far_from_0_are_those_of_their_differences():
    x = np.random.default_rng(3).standard_normal((8, 1000)) + 1e6
    x = x.astype(np.float32)
    np.testing.assert_allclose(value(Tensor(x).cov()), np.cov(x.astype(np.float64)), atol=2e-6)


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin"])
def test_a_maximum_of_nothing_is_an_index_error(name):
    with pytest.raises(IndexError, match="no elements"):
        getattr(Tensor(np.zeros((0, 4), np.float32)), name)(0)


def test_bytes_stay_bytes_where_they_are_resized():
    image = np.array([[[[90, 31, 57], [147, 124, 131], [255, 0, 255]]]], np.uint8)
    found = functional.interpolate(Tensor(image), size=(5, 3), mode="bilinear", align_corners=True)
    between = (image[:, :, :-1].astype(np.float64) + image[:, :, 1:]) / 2
    rows = [image[0, 0, 0], between[0, 0, 0], image[0, 0, 1], between[0, 0, 1], image[0, 0, 2]]
    assert found.dtype.name == "u8"
    assert np.abs(value(found)[0, 0] - np.array(rows)).max() <= 0.5


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("form", ["bool", "numbers"])
def test_query_that_sees_no_key_gives_zeros(dtype, form):
    rng = np.random.default_rng(5)
    q, k, v = (Tensor(rng.standard_normal((1, 2, 5, 8))).cast(dtype) for _ in range(3))
    mask = np.ones((5, 5), bool)
    mask[2] = False
    given = Tensor(mask if form == "bool" else np.where(mask, 0.0, -np.inf).astype(np.float32))
    found = tg.scaled_dot_product_attention(q, k, v, given).cast("f32")
    plain = tg.scaled_dot_product_attention(q, k, v).cast("f32").numpy()
    plain[:, :, 2] = 0
    np.testing.assert_allclose(value(found), plain, rtol=0.02, atol=0.02)
    assert not value(found)[:, :, 2].any()


def test_unmasked_attention_keeps_its_nan():
    q = np.ones((1, 1, 2, 4), np.float32)
    q[0, 0, 0, 0] = np.nan
    y = value(tg.scaled_dot_product_attention(Tensor(q), Tensor(q), Tensor(q), Tensor([[True]])))
    assert np.isnan(y).all()


def test_draw_inside_of_a_compiled_function_is_refused():
    with pytest.raises(ModelError, match=r"noisy draws random numbers"):
        tg.compile(noisy, np.zeros(3, np.float32))
    noise = tg.rand(3)
    y = tg.compile(lambda x: x + noise, np.zeros(3, np.float32))(np.ones(3, np.float32))
    np.testing.assert_allclose(np.asarray(y), noise.numpy() + 1, rtol=1e-6)


def noisy(x):
    return x + tg.rand(3)


INTEGERS = """
F.avg_pool1d(c, 2)
F.avg_pool2d(im, 2, 1, 1)
F.avg_pool2d(im, 2, 1, 1, count_include_pad=False)
F.avg_pool2d(im, 2, divisor_override=3)
F.avg_pool3d(im.unsqueeze(2), (1, 2, 2))
F.max_pool2d(im, 2)
F.hardtanh(x)
F.hardtanh(x, 0, 2.5)
F.hardtanh(x, -0.5, 1.5)
F.threshold(x, 0.5, 2.5)
F.relu(x)
F.relu6(x)
F.bilinear(x, y, m[:, None].expand(4, 4, 4))
F.linear(x, m)
F.pad(c, (1, 1), mode='reflect')
x.tanh()
x.sigmoid()
x.sqrt()
x.square()
x.floor()
x.clamp(0.5, 2)
x.clamp(max=1)
x / 2
x // 2
x % 3
x ** 2
x + 0.5
x.add(y, alpha=2)
y.sub(y, alpha=2)
T.addcmul(x, y, y, value=2)
T.addmm(x, x, m, beta=2, alpha=3)
T.addmv(w, x, v, beta=2, alpha=3)
T.addr(x, w, v)
T.baddbmm(c, c, m[None].expand(2, 4, 4), beta=2, alpha=3)
T.addbmm(x, c, m[None].expand(2, 4, 4))
x @ m
T.einsum('ij->j', x)
T.einsum('ij,jk->ik', x, m)
T.einsum('ij,k->k', x, v)
x.sum(0)
x.prod(0)
x.cumsum(0)
x.cumprod(0)
x.all()
x.any(0)
x.amax(0)
x.masked_fill(x > 1, 2)
""".strip().splitlines()


def _evaluated(line, namespace, functions, values):
    return eval(line, {**values, "T": namespace, "F": functions})  # noqa: S307  # our own lines


@pytest.mark.parametrize("kind", ["int64", "int32", "int16", "int8", "uint8", "bool"])
def test_integers_give_what_pytorch_gives(kind: str) -> None:
    """Its types and its numbers, wherever it takes them."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    low = 0 if kind in ("uint8", "bool") else -4
    shapes = {
        "x": (3, 4), "y": (3, 4), "m": (4, 4), "c": (2, 3, 4), "im": (1, 2, 5, 5), "w": 3, "v": 4,
    }  # fmt: skip
    arrays = {n: rng.integers(low, 5, s).astype(kind) for n, s in shapes.items()}
    compared = 0
    for line in INTEGERS:
        theirs = {n: torch.from_numpy(a.copy()) for n, a in arrays.items()}
        try:
            want = _evaluated(line, torch, torch.nn.functional, theirs)
        except (RuntimeError, TypeError):
            continue
        ours = {n: Tensor(a) for n, a in arrays.items()}
        got = _evaluated(line, tg, functional, ours)
        (found,) = evaluate((got.node,), got.bindings)
        assert found.dtype == want.numpy().dtype, line
        np.testing.assert_allclose(found, want.numpy(), rtol=1e-5, err_msg=line)
        compared += 1
    assert compared > (20 if kind == "bool" else 35)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x.add(x, alpha=0.5)", r"add: alpha=0\.5 is no integer, and the tensors are i32 and i32"),
        ("T.addmm(x, x, x, beta=0.5)", "addmm: beta=0.5 is no integer"),
        ("T.addmv(x[0], x, x[0], alpha=1.5)", "addmv: alpha=1.5 is no integer"),
        ("T.addcmul(x, x, x, value=float('inf'))", "addcmul: value=inf is no integer"),
        ("F.hardtanh(x.to('u8'))", "hardtanh: min_val=-1 is not a value of u8"),
    ],
)
def test_factors_and_bounds_that_integers_do_not_hold_are_refused(line: str, said: str) -> None:
    with pytest.raises(DTypeError, match=said):
        _evaluated(line, tg, functional, {"x": Tensor(np.ones((2, 2), np.int32))})


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_has_the_type_that_is_asked_for(name: str) -> None:
    x = Tensor(np.array([1, 2], np.float16))
    assert getattr(x, name)(0, dtype="f32").dtype == tg.f32
    assert getattr(x, name)(0).dtype == tg.f16


RANGES = [
    (0, 5, 0.5), (0, 5, 1.5), (0.5, 5), (0.5, 5, 2), (0, 5.5), (0, 5.5, 2), (5, 0, -1.5), (-2.5, 3),
    (-2.5, 3, 1.5), (0.9, 3.2), (1, 7.9, 2.0), (5, 0.5, -1), (0, 200, 50.5), (2.7,), (0, 0.5),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["int64", "int32", "int16", "int8", "float32"])
def test_arange_of_fractions_is_pytorchs(kind: str) -> None:
    torch = pytest.importorskip("torch")
    for given in RANGES:
        try:
            want = torch.arange(*given, dtype=getattr(torch, kind))
        except (RuntimeError, ValueError):
            with pytest.raises(ShapeError, match="never ends"):
                tg.arange(*given, dtype=kind)
            continue
        np.testing.assert_allclose(value(tg.arange(*given, dtype=kind)), want.numpy(), rtol=1e-6)


TRUTHS = {
    "true": True, "false": False, "of numpy": np.True_, "after a slice": (slice(None), True),
    "before an index": (True, 1), "after an index": (1, False), "beside a list": (True, [0, 2]),
    "beside a mask": (True, np.array([True, False, True])), "twice": (True, 0, True),
    "before dots": (True, ..., 1),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUTHS)
def test_a_truth_as_an_index_is_a_new_dimension(name):
    torch = pytest.importorskip("torch")
    key = TRUTHS[name]
    theirs = torch.from_numpy(X)[torch.tensor(True) if key is np.True_ else key].numpy()
    found = value(Tensor(X)[key])
    assert found.shape == theirs.shape
    np.testing.assert_array_equal(found, theirs)


def test_what_a_truth_selects_is_written():
    x, y = Tensor(X.copy()), X.copy()
    x[True], y[True] = 3, 3
    x[False], y[False] = 4, 4
    np.testing.assert_array_equal(value(x), y)


NO_INDICES = {
    "a float": lambda x: x[1.5],
    "a text": lambda x: x["a"],
    "floats": lambda x: x[np.array([1.5])],
    "a tensor of floats": lambda x: x[Tensor(S)],
    "a slice by floats": lambda x: x[1.0:2],
    "a mask of another shape": lambda x: x[np.array([True, False])],
    "lists that do not broadcast": lambda x: x[[0, 1], [0, 1, 2]],
    "dots twice": lambda x: x[..., ...],
}


@pytest.mark.parametrize("name", NO_INDICES)
def test_what_is_no_index_is_an_index_error(name):
    with pytest.raises(IndexError) as caught:
        NO_INDICES[name](Tensor(X))
    assert isinstance(caught.value, AxisError | IndexTypeError)


@pytest.mark.parametrize("of", [len, iter])
def test_a_scalar_has_no_length(of):
    with pytest.raises(TypeError, match=r"a tensor of shape \(\) has no length"):
        of(Tensor(S))


PADS = [
    ("reflect", (-3, 3)), ("reflect", (2, -3)), ("reflect", (1, 1, -2, 2)), ("replicate", (-5, 6)),
    ("replicate", (-4, 9)), ("circular", (-2, 1)), ("circular", (1, 1, -1, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "widths"), PADS)
def test_pads_that_cut_give_what_pytorch_gives(mode, widths):
    """More than what is left may be mirrored and repeated."""
    torch = pytest.importorskip("torch")
    x = np.arange(36, dtype=np.float32).reshape(3, 3, 4)
    theirs = torch.nn.functional.pad(torch.from_numpy(x), widths, mode=mode).numpy()
    np.testing.assert_array_equal(value(Tensor(x).pad(widths, mode)), theirs)


def test_one_hot_has_a_number_of_classes():
    with pytest.raises(ShapeError, match=r"positions of shape \(2,\) without num_classes"):
        Tensor([0, 1]).one_hot()
