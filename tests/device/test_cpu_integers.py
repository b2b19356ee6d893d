"""Every operation on integers, compiled, against numpy: vectors and what is left over, all threads;
quotients and remainders of floats as well.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import tunegrad as tg
from tunegrad import Tensor
from tunegrad.ir.dtypes import DTYPES, DType
from tunegrad.ir.interpret.numeric import convert, integer_power

INTEGERS = [t for t in DTYPES.values() if t.is_int]
COUNT = 1003
"""Elements: no multiple of any vector."""

BINARY = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "neg": lambda a, _: -a,
    "invert": lambda a, _: ~a, "abs": lambda a, _: abs(a), "cube": lambda a, _: a**3,
}  # fmt: skip


def compiled(functions, *arrays):
    """Results of several functions of the same arrays, in one model."""
    threads = os.cpu_count()

    def all_of(*tensors):
        return tuple(f(*tensors) for f in functions)

    found = tg.compile(all_of, *arrays, store=False, threads=threads)(*arrays)
    return found if isinstance(found, tuple) else (found,)


def values(dtype: DType, seed: int) -> np.ndarray:
    """Numbers of the whole range, half of them at its ends or near 0."""
    rng = np.random.default_rng(seed)
    wide = rng.integers(dtype.least, dtype.greatest, COUNT, dtype=dtype.numpy.str, endpoint=True)
    edges = convert(np.array([0, 1, 2, 3, 7, 8, -1]), dtype)
    edges = np.append(edges, np.array([dtype.least, dtype.greatest], dtype.numpy))
    return np.where(rng.random(COUNT) < 0.5, wide, edges[rng.integers(0, len(edges), COUNT)])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_operations_on_integers_are_those_of_numpy(dtype):
    a, b = values(dtype, 1), values(dtype, 2)
    with np.errstate(all="ignore"):
        expected = [f(a, b) for f in BINARY.values()]
    for name, got, want in zip(BINARY, compiled(BINARY.values(), a, b), expected, strict=True):
        assert got.dtype == want.dtype, name
        np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_powers_and_extrema_of_integers(dtype):
    a, b = values(dtype, 3), values(dtype, 4)
    functions = (
        lambda x, y: x**y, tg.maximum, tg.minimum, lambda x, _: x.max(), lambda x, _: x.min(),
        lambda x, _: x.sum(),
    )  # fmt: skip
    power, most, least, top, low, total = compiled(functions, a, b)
    np.testing.assert_array_equal(power, integer_power(a, b))
    np.testing.assert_array_equal(most, np.maximum(a, b))
    np.testing.assert_array_equal(least, np.minimum(a, b))
    assert (top, low) == (a.max(), a.min())
    with np.errstate(over="ignore"):
        assert total == a.sum(dtype=total.dtype)


def test_sums_of_integers_are_pytorchs():
    assert Tensor(np.ones(3, np.uint8)).sum().dtype.name == "i64"
    assert Tensor(np.ones(3, np.int32)).sum().dtype.name == "i64"
    assert Tensor(np.ones(3, np.uint64)).sum().dtype.name == "u64"


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_casts_of_integers_wrap_around(dtype):
    a = values(dtype, 5)
    kinds = [t for t in DTYPES.values() if not t.is_half and t != dtype]
    casts = [lambda x, t=t: x.cast(t) for t in kinds]
    for kind, got in zip(kinds, compiled(casts, a), strict=True):
        np.testing.assert_array_equal(got, convert(a, kind), err_msg=str(kind))


@pytest.mark.parametrize("source", ["f32", "f64"])
def test_casts_of_floats_are_the_nearest_integer_of_32_bits_or_more(source):
    rng = np.random.default_rng(6)
    a = rng.standard_normal(COUNT) * np.exp2(rng.integers(0, 70, COUNT))
    edges = [np.nan, np.inf, -np.inf, -0.9, 127.9, 255.9, 2.0**31, 2.0**63, -(2.0**63), 2.0**64]
    a = np.concatenate([edges, a]).astype(DTYPES[source].numpy)
    casts = [lambda x, t=t: x.cast(t) for t in INTEGERS]
    for kind, got in zip(INTEGERS, compiled(casts, a), strict=True):
        by_way = DTYPES["i32"] if kind.bits < 32 else DTYPES["i64"] if kind.name == "u32" else kind
        want = convert(convert(a, by_way), kind)  # narrow ones wrap around, as PyTorch's do
        np.testing.assert_array_equal(got, want, err_msg=str(kind))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_quotients_and_remainders_of_floats_are_numpys(kind):
    special = [5, -5, 1, -1, 7.5, -7.5, 1e30, -1e30, 0.1, -0.1, 3e-39, np.inf, -np.inf, np.nan, 0.0]
    special.append(-0.0)
    pairs = np.array([(x, y) for x in special for y in special], kind)
    rng = np.random.default_rng(7)
    more = rng.standard_normal((500, 2)) * np.exp2(rng.integers(-30, 30, (500, 2)))
    a, b = (np.ascontiguousarray(v) for v in np.concatenate([pairs, more.astype(kind)]).T)
    quotient, rest = compiled((lambda x, y: x // y, lambda x, y: x % y), a, b)
    with np.errstate(all="ignore"):
        for got, want in ((quotient, a // b), (rest, a % b)):
            np.testing.assert_array_equal(got, want)
            known = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))


def test_images_of_bytes_are_normalised():
    image = np.arange(3 * 17 * 19, dtype=np.uint8).reshape(3, 17, 19)
    (got,) = compiled([lambda x: (x.cast("f32") / 255 - 0.5) / 0.25], image)
    want = (image.astype(np.float32) / np.float32(255) - np.float32(0.5)) / np.float32(0.25)
    np.testing.assert_allclose(got, want, rtol=1e-6)
