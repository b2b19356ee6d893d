"""The accumulator of a sum is what the user asked for, and the documented default where nobody
did.
"""

import numpy as np
import pytest
from tensor_values import nodes, numbers, value

from tunegrad.errors import DTypeError
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import BF16, F16, F32, F64, I32, I64
from tunegrad.ir.graph import GraphOp

A, B = numbers(3, 5), numbers(5, 4)
IMAGE, TAPS = numbers(1, 2, 4, 4), numbers(3, 2, 3, 3)


def as_type(x, dtype):
    return Tensor(x).cast(dtype)


SUMS = {
    "matmul": lambda dtype, acc: as_type(A, dtype).matmul(as_type(B, dtype), accumulate=acc),
    "linear": lambda dtype, acc: as_type(A, dtype).linear(as_type(B.T, dtype), accumulate=acc),
    "conv2d": lambda dtype, acc: as_type(IMAGE, dtype).conv2d(as_type(TAPS, dtype), accumulate=acc),
    "sum": lambda dtype, acc: as_type(A, dtype).sum(1, accumulate=acc),
    "mean": lambda dtype, acc: as_type(A, dtype).mean(1, accumulate=acc),
}
every_sum = pytest.mark.parametrize("name", SUMS)


@every_sum
@pytest.mark.parametrize(
    ("dtype", "acc"), [(BF16, F32), (F16, F32), (F32, F32), (F64, F64)], ids=str
)
def test_accumulator_of_floats_is_by_default_what_they_are_computed_in(name, dtype, acc):
    (fold,) = nodes(SUMS[name](dtype, None), GraphOp.REDUCE)
    assert fold.dtype == acc


@every_sum
@pytest.mark.parametrize(
    ("dtype", "acc"), [(BF16, F32), (BF16, F64), (F16, F64), (F32, F64), (F64, F64)], ids=str
)
def test_accumulator_of_floats_can_be_wider_and_the_result_keeps_its_dtype(name, dtype, acc):
    made = SUMS[name](dtype, acc)
    (fold,) = nodes(made, GraphOp.REDUCE)
    assert (fold.dtype, made.dtype) == (acc, dtype)


@every_sum
@pytest.mark.parametrize(
    ("dtype", "acc", "valid"),
    [
        (F64, "f32", "f64"),
        (F32, "bf16", "f32, f64"),
        (BF16, "bf16", "f32, f64"),
        (F32, "i64", "f32, f64"),
    ],
    ids=str,
)
def test_accumulator_too_narrow_is_refused(name, dtype, acc, valid):
    with pytest.raises(DTypeError) as caught:
        SUMS[name](dtype, acc)
    assert str(caught.value) == f"{name}: accumulate={acc} can not add up {dtype}; valid: {valid}"


@pytest.mark.parametrize("name", ["matmul", "linear", "conv2d", "sum"])
def test_integer_result_has_the_accumulator_that_is_given(name):
    assert SUMS[name](I32, "i64").dtype == I64
    assert SUMS[name](I32, None).dtype == (I64 if name == "sum" else I32)


def test_matmul_of_bools_adds_up_nothing():
    with pytest.raises(
        DTypeError, match="matmul: accumulate=i32: the product of bools is a bool; cast them first"
    ):
        as_type(A, "bool").matmul(as_type(B, "bool"), accumulate="i32")


def test_sum_in_f64_loses_nothing_that_f32_would():
    x = Tensor(np.array([1e8, 1.0, -1e8], np.float32))
    assert value(x.sum(accumulate="f64")) == 1.0


def test_products_in_a_wider_accumulator_are_wider_too():
    x = np.array([[1 + 2.0**-12, -1.0]], np.float32)
    y = np.array([[1 + 2.0**-12], [1 + 2.0**-11]], np.float32)
    assert value(Tensor(x).matmul(y, accumulate="f64")) == np.float32(2.0**-24)
