"""Names of dtypes, promotion, and what each integer type holds."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from tunegrad.errors import DTypeError
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import DTYPES, F16, F32, I32, I64, U8, DType, dtype_of, promote
from tunegrad.ir.interpret.numeric import convert

INTEGERS = [t for t in DTYPES.values() if t.is_int]
PAIRS = list(itertools.product(DTYPES.values(), repeat=2))
UNSIGNED = ("u16", "u32", "u64")
"""PyTorch promotes these with floats only."""


@pytest.mark.parametrize(("name", "numpy"), [(t.name, t.numpy) for t in DTYPES.values()])
def test_names_are_tunegrads(name, numpy):
    assert dtype_of(name).name == name
    if name != "bf16":
        assert dtype_of(numpy) == dtype_of(numpy.name) == dtype_of(name)


@pytest.mark.parametrize(
    ("word", "dtype"), [("float", F32), ("half", F16), ("int", I32), ("long", I64), ("uint8", U8)]
)
def test_words_are_pytorchs(word, dtype):
    assert dtype_of(word) == dtype


@pytest.mark.parametrize("word", ["i4", "f4", "u1", "int7", np.dtype(complex), None])
def test_other_words_are_refused_with_the_valid_ones(word):
    with pytest.raises(DTypeError, match="valid: bool, i8, i16, i32, i64, u8, u16, u32, u64, bf16"):
        dtype_of(word)


def test_promotion_is_that_of_pytorch():
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def of(t: DType) -> object:
        word = "bfloat16" if t.name == "bf16" else t.numpy.name
        return getattr(torch, word)

    for a, b in PAIRS:
        if {a.category, b.category} <= {"bool", "int"} and {a.name, b.name} & {*UNSIGNED}:
            continue
        assert of(promote(a, b)) == torch.promote_types(of(a), of(b)), (a, b)


def test_promotion_of_wide_unsigned_integers_is_that_of_numpy():
    for a, b in itertools.product(INTEGERS, repeat=2):
        expected = np.promote_types(a.numpy, b.numpy)
        if expected.kind == "f":
            with pytest.raises(DTypeError, match=r"no integer type holds both u64 and i\d+"):
                promote(a, b)
        else:
            assert promote(a, b).numpy == expected, (a, b)


def test_promotion_is_symmetric():
    for a, b in PAIRS:
        if {a.name, b.name} != {"u64"} and "u64" in (a.name, b.name) and a.is_int and b.is_int:
            continue
        assert promote(a, b) == promote(b, a)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_bounds_are_those_of_numpy(dtype):
    limits = np.iinfo(dtype.numpy.name)
    assert (dtype.least, dtype.greatest) == (limits.min, limits.max)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_floats_become_the_nearest_integer_there_is(dtype):
    low, high = float(dtype.least), float(dtype.greatest + 1)
    given = [np.nan, np.inf, -np.inf, 2 * high, -2 * high, low, 1.9, -0.9]
    expected = [0, dtype.greatest, dtype.least, dtype.greatest, dtype.least, dtype.least, 1, 0]
    for kind in (np.float32, np.float64):
        assert convert(np.array(given, kind), dtype).tolist() == expected


def test_arrays_of_bf16_come_from_ml_dtypes():
    x = np.array([1.5, -2.0, 3.0], ml_dtypes.bfloat16)
    assert Tensor(x).dtype.name == "bf16"
    assert Tensor(x).numpy().tolist() == x.view(np.uint16).tolist()
    assert Tensor(x, "f32").numpy().tolist() == [1.5, -2.0, 3.0]


def test_images_of_bytes_come_as_they_are():
    x = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert Tensor(x).dtype.name == "u8"
    assert (Tensor(x) / 255).dtype.name == "f32"
    np.testing.assert_array_equal((Tensor(x) + 1).numpy(), x + np.uint8(1))
