"""Which dtype arithmetic has: PyTorch's rule, in which a tensor without dimensions is weaker than
one that has some, and a number weaker still.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest

from tunegrad.errors import DTypeError
from tunegrad.frontend import Tensor, where

NAMES = ("bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")
TORCH = {
    "bool": "bool", "u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
}  # fmt: skip
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (3,), (2, 3), (0,))
NUMBERS = (True, 2, 2.5)
OPERATIONS = (operator.add, operator.mul, operator.truediv, operator.lt)


def ours(name: str, shape: tuple[int, ...]) -> Tensor:
    return Tensor(np.ones(shape), name)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def dtype_name(torch: Any, dtype: object) -> str:
    return next(name for name, word in TORCH.items() if getattr(torch, word) is dtype)


@pytest.mark.parametrize("left", NAMES)
def test_every_pair_of_dtypes_and_ranks_gives_pytorchs_dtype(left: str, torch: Any) -> None:
    wrong = []
    for right, (a, b) in itertools.product(NAMES, itertools.product(SHAPES, SHAPES)):
        if {a, b} == {(0,), (3,)} or {a, b} == {(0,), (2, 3)}:
            continue  # they do not broadcast
        theirs = torch.ones(a, dtype=getattr(torch, TORCH[left])) + torch.ones(
            b, dtype=getattr(torch, TORCH[right])
        )
        mine = ours(left, a) + ours(right, b)
        if mine.dtype.name != dtype_name(torch, theirs.dtype):
            wrong.append(f"{left}{a} + {right}{b}: {mine.dtype}, PyTorch {theirs.dtype}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(), (3,)], ids=["scalar", "vector"])
def test_numbers_are_the_weakest_on_both_sides(
    operation: Any, shape: tuple[int, ...], torch: Any
) -> None:
    wrong = []
    for name, number in itertools.product(NAMES, NUMBERS):
        given = torch.ones(shape, dtype=getattr(torch, TORCH[name]))
        mine = ours(name, shape)
        for found, theirs in (
            (operation(mine, number), operation(given, number)),
            (operation(number, mine), operation(number, given)),
        ):
            expected = dtype_name(torch, theirs.dtype)
            if found.dtype.name != expected:
                wrong.append(f"{name}{shape}, {number}: {found.dtype}, PyTorch {expected}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "operation",
    ["maximum", "minimum", "where", "remainder", "floor_divide", "eq", "pow", "atan2", "clamp"],
)
def test_functions_of_two_tensors_promote_as_operators_do(operation: str, torch: Any) -> None:
    wrong = []
    for left, right in itertools.product(("u8", "i32", "f16", "f32"), ("i64", "f32", "f64")):
        for a, b in itertools.product(((), (3,)), repeat=2):
            given = (ours(left, a), ours(right, b))
            theirs = (
                torch.ones(a, dtype=getattr(torch, TORCH[left])),
                torch.ones(b, dtype=getattr(torch, TORCH[right])),
            )
            if operation == "where":
                mine = where(Tensor(np.ones(a, np.bool_)), *given)
                expected = torch.where(torch.ones(a, dtype=torch.bool), *theirs)
            else:
                mine = getattr(given[0], operation)(given[1])
                expected = getattr(theirs[0], operation)(theirs[1])
            if mine.dtype.name != dtype_name(torch, expected.dtype):
                wrong.append(f"{left}{a}, {right}{b}: {mine.dtype}, PyTorch {expected.dtype}")
    assert not wrong, "\n".join(wrong)


def test_values_are_those_of_the_type_that_won(torch: Any) -> None:
    """0.1 of an f64 tensor without dimensions is rounded to f32 before it is compared."""
    x, tenth = np.array([0.1, 0.3], np.float32), np.array(0.1, np.float64)
    equal = (Tensor(x) == Tensor(tenth)).numpy()
    np.testing.assert_array_equal(equal, (torch.tensor(x) == torch.tensor(tenth)).numpy())
    assert equal.tolist() == [True, False]
    small = np.array([200, 100, 7], np.uint8)
    wrapped = (Tensor(small) + Tensor(np.array(100, np.int64))).numpy()
    np.testing.assert_array_equal(wrapped, (torch.tensor(small) + torch.tensor(100)).numpy())
    assert wrapped.dtype == np.uint8


def test_rule_holds_where_pytorch_is_not_installed() -> None:
    f64, i64 = Tensor(np.array(2.0)), Tensor(np.array(2))
    assert (Tensor(np.ones(3, np.float32)) * f64).dtype.name == "f32"
    assert (Tensor(np.ones(3, np.int8)) * f64).dtype.name == "f64"
    assert (Tensor(np.ones(3, np.int8)) * i64).dtype.name == "i8"
    assert (Tensor(np.array(1.0, np.float32)) * f64).dtype.name == "f64"
    assert (Tensor(np.ones(3, np.uint64)) * i64).dtype.name == "u64"
    with pytest.raises(DTypeError, match="no integer type holds both u64 and i64"):
        Tensor(np.ones(3, np.uint64)) * Tensor(np.ones(1, np.int64))
