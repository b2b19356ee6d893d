"""Operators mean what numpy's do: broadcasting, promotion, weak Python numbers, rounding of 16-bit
floats.
"""

import math
import operator

import numpy as np
import pytest
from tensor_values import nodes, numbers, same, value

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.frontend import Tensor, bf16_bits, bf16_values, maximum, minimum, where
from tunegrad.ir.graph import GraphOp

A = np.array([[1.5, -2.0, 0.25], [3.0, -0.5, 4.0]], np.float32)
B = np.array([2.0, -3.0, 0.5], np.float32)
I = np.array([[7, -7, 5], [-5, 6, 0]], np.int32)  # noqa: E741
J = np.array([2, -3, 4], np.int32)
P = np.array([True, False, True])
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32)

ARITHMETIC = [operator.add, operator.sub, operator.mul]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize(
    "op", [*ARITHMETIC, operator.truediv, operator.floordiv, operator.mod], ids=lambda f: f.__name__
)
def test_float_operator_equals_numpy(op):
    same(op(Tensor(A), Tensor(B)), op(A, B))


@pytest.mark.parametrize(
    "op", [*ARITHMETIC, operator.floordiv, operator.mod], ids=lambda f: f.__name__
)
def test_integer_operator_equals_numpy(op):
    same(op(Tensor(I), Tensor(J)), op(I, J))


@pytest.mark.parametrize("op", COMPARISONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("other", [SPECIAL[::-1].copy(), np.float32(0)], ids=["tensor", "zero"])
def test_comparison_equals_numpy_on_special_values(op, other):
    same(op(Tensor(SPECIAL), Tensor(other)), op(SPECIAL, other))


@pytest.mark.parametrize("op", COMPARISONS, ids=lambda f: f.__name__)
def test_comparison_of_integers_and_bools_equals_numpy(op):
    same(op(Tensor(I), Tensor(J)), op(I, J))
    same(op(Tensor(P), Tensor(P[::-1].copy())), op(P, P[::-1]))


@pytest.mark.parametrize(
    "op", [operator.and_, operator.or_, operator.xor], ids=lambda f: f.__name__
)
def test_bitwise_operator_equals_numpy(op):
    same(op(Tensor(I), Tensor(J)), op(I, J))
    same(op(Tensor(P), Tensor(P[::-1].copy())), op(P, P[::-1]))


@pytest.mark.parametrize("op", [operator.add, operator.mul], ids=lambda f: f.__name__)
def test_bool_arithmetic_is_logic(op):
    same(op(Tensor(P), Tensor(P[::-1].copy())), op(P, P[::-1]))


def test_not_and_negation_equal_numpy():
    same(~Tensor(P), ~P)
    same(~Tensor(I), ~I)
    same(-Tensor(I), -I)
    same(-Tensor(SPECIAL), -SPECIAL)


@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [
        ("f32", "f64", "f64"), ("i32", "i64", "i64"), ("i64", "f32", "f32"), ("bool", "i32", "i32"),
        ("bool", "f16", "f16"), ("f16", "bf16", "f32"), ("bf16", "f32", "f32"),
        ("i32", "f16", "f16"),
        ("f32", 2, "f32"), ("f32", 2.5, "f32"), ("f16", 2.5, "f16"), ("bf16", 1, "bf16"),
        ("f64", 1.5, "f64"),
        ("i32", 2, "i32"), ("i64", 2, "i64"), ("i32", 2.5, "f32"), ("bool", 2, "i64"),
        ("bool", 2.5, "f32"),
        ("i32", True, "i32"), ("f32", True, "f32"),
    ],
)  # fmt: skip
def test_sum_of_two_dtypes_is_promoted(left, right, dtype):
    a = Tensor(np.ones(3, np.float32), left)
    b = Tensor(np.ones(3, np.float32), right) if isinstance(right, str) else right
    assert (a + b).dtype.name == dtype
    assert (b + a).dtype.name == dtype


def test_scalars_of_numpy_are_as_weak_as_pythons():
    assert (Tensor(A) + np.float64(1)).dtype.name == "f32"
    assert (Tensor(I) + np.int64(1)).dtype.name == "i32"
    assert (Tensor(A) * np.sqrt(2.0)).dtype.name == "f32"


def test_array_on_the_left_leaves_the_operator_to_the_tensor():
    same(A - Tensor(B), A - B)
    same(np.ones((3, 2), np.float32) @ Tensor(A), np.ones((3, 2), np.float32) @ A)


def test_number_on_the_left_is_the_left_operand():
    same(2 - Tensor(A), 2 - A)
    same(2 / Tensor(A), 2 / A)
    same(7 // Tensor(J), 7 // J)
    same(7 % Tensor(J), 7 % J)
    same(2.0 ** Tensor(B), 2.0**B)


def test_integers_divide_to_f32():
    same(Tensor(I) / Tensor(J), (I / J).astype(np.float32))


def test_scalar_operand_makes_no_buffer():
    y = Tensor(A) * 2 + 1
    assert len(nodes(y, GraphOp.INPUT)) == 1
    assert not nodes(y, GraphOp.CONST)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, 2.5])
def test_power_by_a_number_equals_numpy(exponent):
    x = np.array([0.0, 0.5, 1.0, 3.0, np.inf], np.float32)
    with np.errstate(divide="ignore"):
        same(Tensor(x) ** exponent, x**exponent)


def test_power_of_integers_stays_integer():
    for exponent in (0, 1, 2, 3, 7, 64):
        same(Tensor(I) ** exponent, I**exponent)


def test_power_of_integers_wraps_around():
    same(Tensor(I) ** 65, I ** np.int32(65))
    same(Tensor(I) ** np.abs(J), I ** np.abs(J))


def test_negative_power_of_an_integer_is_zero_but_for_one_and_minus_one():
    x = np.array([1, -1, -1, 0, 2, -3], np.int32)
    got = Tensor(x) ** np.array([-1, -2, -3, -1, -1, -2], np.int32)
    same(got, np.array([1, 1, -1, 0, 0, 0], np.int32))
    with pytest.raises(DTypeError, match="pow: i32 to the negative power -1"):
        Tensor(x) ** -1


X = np.array([-3.0, -1.0, -0.1, 0.0, 0.3, 1.0, 5.0, 100.0], np.float32)


def erf(x):
    return np.array([math.erf(v) for v in np.ravel(x)], x.dtype).reshape(np.shape(x))


UNARY = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "erf": erf,
    "sin": np.sin,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x.astype(np.float64))).astype(np.float32),
    "silu": lambda x: (x / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32),
    "gelu": lambda x: (x * 0.5 * (1 + erf(x.astype(np.float64) / math.sqrt(2)))).astype(np.float32),
    "leaky_relu": lambda x: np.where(x > 0, x, np.float32(0.01) * x),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_function_equals_its_formula(name):
    with np.errstate(all="ignore"):
        same(getattr(Tensor(X), name)(), UNARY[name](X), 2e-6)


@pytest.mark.parametrize(
    "name", ["exp", "log", "sqrt", "tanh", "sigmoid", "gelu", "silu", "reciprocal"]
)
@pytest.mark.parametrize(
    ("given", "result"), [("i32", "f32"), ("f64", "f64"), ("f16", "f16"), ("bf16", "bf16")]
)
def test_float_function_has_a_float_dtype(name, given, result):
    y = getattr(Tensor(np.ones(4, np.float32), given), name)()
    assert y.dtype.name == result
    value(y)


def test_gelu_by_tanh_is_near_the_one_by_erf():
    x = Tensor(np.linspace(-4, 4, 101, dtype=np.float32))
    exact, near = value(x.gelu()), value(x.gelu("tanh"))
    assert 1e-5 < np.abs(exact - near).max() < 2e-3


def test_floor_of_integers_is_themselves():
    same(Tensor(I).floor(), I)
    same(Tensor(I).ceil(), I)


def test_nan_goes_through_maximum_minimum_and_relu():
    pair = np.array([0.0, np.nan], np.float32), np.array([np.nan, 1.0], np.float32)
    assert np.isnan(value(maximum(*pair))).all()
    assert np.isnan(value(minimum(Tensor(pair[0]), pair[1]))).all()
    assert np.isnan(value(Tensor(pair[0]).relu())).tolist() == [False, True]


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (None, 0.5), (0.0, None)])
def test_clip_equals_numpy(low, high):
    same(Tensor(X).clip(low, high), np.clip(X, low, high))


def test_where_broadcasts_all_three():
    c = np.array([[True], [False]])
    same(where(Tensor(c), Tensor(B), 0), np.where(c, B, np.float32(0)))
    same(where(Tensor(A > 0), 1, 2.5), np.where(A > 0, np.float32(1), np.float32(2.5)))


def test_where_does_not_mix_in_the_value_not_chosen():
    same(
        where(Tensor(np.isnan(SPECIAL)), 0.0, SPECIAL),
        np.where(np.isnan(SPECIAL), np.float32(0), SPECIAL),
    )


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_sixteen_bit_arithmetic_is_f32_rounded_once(name):
    x, y = numbers(64), numbers(64, seed=1)
    a, b = Tensor(x, name), Tensor(y, name)
    if name == "f16":
        p, q = x.astype(np.float16).astype(np.float32), y.astype(np.float16).astype(np.float32)
        expected = (p * q).astype(np.float16)
    else:
        expected = bf16_bits(bf16_values(bf16_bits(x)) * bf16_values(bf16_bits(y)))
    np.testing.assert_array_equal(value(a * b), expected)


def test_sixteen_bit_types_stand_under_a_cast_or_a_movement_only():
    y = Tensor(A, "f16").softmax().gelu().sum()
    for node in nodes(y, GraphOp.MAP) + nodes(y, GraphOp.REDUCE):
        assert node.dtype.bits != 16


@pytest.mark.parametrize(
    ("x", "bits"),
    [
        (1.0, 0x3F80),
        (-2.0, 0xC000),
        (1.00390625, 0x3F80),
        (1.01171875, 0x3F82),
        (np.inf, 0x7F80),
        (3.4e38, 0x7F80),
    ],
)
def test_bf16_rounds_to_nearest_even(x, bits):
    assert bf16_bits(np.float32(x).reshape(1))[0] == bits


def test_bf16_nan_stays_nan():
    quiet = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(bf16_values(bf16_bits(quiet))).all()


@pytest.mark.parametrize("target", ["bool", "i32", "i64", "f16", "f32", "f64"])
def test_cast_equals_numpy(target):
    t = Tensor(A).cast(target)
    same(t, A.astype(t.dtype.numpy))


def test_cast_to_its_own_dtype_is_itself():
    x = Tensor(A)
    assert x.astype(np.float32).node is x.node


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
def test_integer_that_does_not_fit_is_refused(number):
    with pytest.raises(DTypeError, match=rf"add: {number} is not a value of i32"):
        Tensor(I) + number


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("op", [operator.floordiv, operator.mod], ids=lambda f: f.__name__)
def test_integers_by_a_zero_of_a_tensor_are_zero_as_numpys(op, kind):
    """PyTorch raises an error, which a program that is compiled can not."""
    x, y = np.array([7, 0, 100, 9], kind), np.array([0, 0, 3, 0], kind)
    with np.errstate(divide="ignore"):
        wanted = op(x, y)
    np.testing.assert_array_equal(value(op(Tensor(x), Tensor(y))), wanted)
    np.testing.assert_array_equal(value(op(Tensor(x), Tensor(kind(0)))), np.zeros(4, kind))
    with pytest.raises(ShapeError, match="divided by zero"):
        op(Tensor(x), 0)
