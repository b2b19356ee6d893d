"""What is passed to a model is checked: each fault is one line that names the input, the value and
the rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir.dtypes import BF16, F32, I64
from tunegrad.runtime import Argument, Signature

X, N = Argument("x", (2, 3), F32), Argument("n", (), I64)
ARRAY = np.zeros((2, 3), np.float32)


def check(*positional: Any, **named: Any) -> dict[str, Any]:
    return Signature("model", (X, N)).check(positional, named)


def test_positions_and_names_mix() -> None:
    found = check(ARRAY, n=np.int64(4))
    assert found["x"] is ARRAY
    assert found["n"] == 4


def test_lists_are_arrays() -> None:
    assert check(ARRAY, 4)["n"].dtype == np.int64


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
        (([[1.0, 2.0], [3.0]], 1), {}, "input 'x' is no array"),
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
