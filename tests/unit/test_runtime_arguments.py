"""What is passed to a model is checked: each fault is one line that names the input, the value and
the rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir.dtypes import BF16, BOOL, F16, F32, I64, U8, DType
from tunegrad.runtime import Argument, Signature

X, N = Argument("x", (2, 3), F32), Argument("n", (), I64)
ARRAY = np.zeros((2, 3), np.float32)


def check(*positional: Any, **named: Any) -> dict[str, Any]:
    return Signature("model", (X, N)).check(positional, named)


def test_positions_and_names_mix() -> None:
    found = check(ARRAY, n=np.int64(4))
    assert found["x"] is ARRAY
    assert found["n"] == 4


@pytest.mark.parametrize(
    ("value", "dtype", "same"),
    [
        ([0.1, 2.0], F32, np.array([0.1, 2.0], np.float32)),
        ((1, 2), F32, np.array([1, 2], np.float32)),
        ([np.float64(0.1), float("inf")], F16, np.array([0.1, np.inf], np.float16)),
        ([0, 255], U8, np.array([0, 255], np.uint8)),
        ([True, False], F32, np.array([1, 0], np.float32)),
        ([True, False], BOOL, np.array([True, False])),
    ],
)
def test_lists_take_the_dtype_of_the_input(value: Any, dtype: DType, same: Any) -> None:
    found = Signature("m", (Argument("x", (2,), dtype),)).check((value,), {})["x"]
    assert found.dtype == same.dtype
    assert (found == same).all()


def test_numbers_take_the_dtype_of_the_input() -> None:
    assert check(ARRAY, 4)["n"].dtype == np.int64
    found = Signature("m", (Argument("x", (), F32),)).check((0.5,), {})["x"]
    assert (found.dtype, found) == (np.float32, 0.5)


@pytest.mark.parametrize(
    ("value", "dtype", "has"),
    [
        ([1.0, 2.0], I64, "float64"),
        ([0, 1], BOOL, "int64"),
        ([0, 256], U8, "int64"),
        ([-1, 0], U8, "int64"),
        ([1.0, 1e300], F32, "float64"),
        (["1", "2"], F32, "<U1"),
        ([1j, 0], F32, "complex128"),
        ([1, 2], BF16, "int64"),
        (np.array([1.0, 2.0]), F32, "float64"),
        ([None, 1.0], F32, "object"),
    ],
)
def test_lists_of_another_kind_or_range_are_refused(value: Any, dtype: DType, has: str) -> None:
    with pytest.raises(DTypeError, match=rf"^m\(x {dtype}\[2\]\): input 'x' has dtype {has}, "):
        Signature("m", (Argument("x", (2,), dtype),)).check((value,), {})


@pytest.mark.parametrize(
    ("positional", "named", "message"),
    [
        ((ARRAY, 1, 2), {}, "3 inputs were given, it takes 2"),
        ((ARRAY,), {}, "input 'n' is missing"),
        ((), {}, "input 'x', 'n' is missing"),
        ((ARRAY, 1), {"y": 2}, "there is no input 'y'; valid: x, n"),
        ((ARRAY, 1), {"x": ARRAY}, "input 'x' was given twice"),
        ((ARRAY,), {"x": ARRAY}, "input 'x' was given twice"),
        ((ARRAY,), {"y": np.zeros((), np.int64)}, "there is no input 'y'; valid: x, n"),
        ((np.zeros((), np.int64), ARRAY), {}, r"input 'x' has shape \(\), it must be \(2, 3\)"),
        ((ARRAY[:1], 1), {}, r"input 'x' has shape \(1, 3\), it must be \(2, 3\)"),
        (([[1.0, 2.0], [3.0]], 1), {}, "input 'x' is not an array"),
    ],
)
def test_a_wrong_number_name_or_shape_is_a_shape_error(
    positional: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(ShapeError, match=rf"^model\(x f32\[2,3\], n i64\[\]\): {message}"):
        check(*positional, **named)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", ">f4", "U1", "object"])
def test_another_dtype_is_a_dtype_error(dtype: str) -> None:
    with pytest.raises(
        DTypeError, match=rf"input 'x' has dtype {np.dtype(dtype)}, it must be float32$"
    ):
        check(ARRAY.astype(dtype), 1)


def test_a_bf16_input_is_asked_for_as_bit_patterns() -> None:
    with pytest.raises(DTypeError, match=r"it must be uint16 \(bit patterns of bf16\)"):
        Signature("m", (Argument("x", (1,), BF16),)).check((np.zeros(1, np.float32),), {})
