"""Where PyTorch has a meaning for odd arguments, tensors have that one."""

import numpy as np
import pytest
from tensor_values import same, value

import tunegrad as tg
from tunegrad.errors import AxisError, DTypeError, ModelError, ShapeError
from tunegrad.frontend import Tensor, functional

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
    "roll": (lambda x, d: x.roll(1, d), S),
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
