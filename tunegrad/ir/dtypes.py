"""Scalar types: what a value is, how wide it is, and which of two wins.

f16 and bf16 can be stored and loaded; arithmetic on them happens in f32. A bf16 array is a numpy
``uint16`` array of the upper halves of f32 bit patterns, since numpy has no such type. ``BF16X2``
is two bf16 in one word, the first in the low half: what instructions that multiply pairs read. It
is made by rewrites only, no user's tensor has it, and a numpy array of it is ``uint32``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tunegrad.errors import DTypeError

__all__ = [
    "BF16",
    "BF16X2",
    "BOOL",
    "DTYPES",
    "F16",
    "F32",
    "F64",
    "I32",
    "I64",
    "DType",
    "buffer_dtype",
    "dtype_of",
    "promote",
]

Category = Literal["bool", "int", "float", "pair"]


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type. ``bits`` is its width in memory; ``rank`` orders promotion."""

    name: str
    category: Category
    bits: int
    rank: int

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.category == "float"

    @property
    def is_int(self) -> bool:
        return self.category == "int"

    @property
    def is_bool(self) -> bool:
        return self.category == "bool"

    @property
    def is_pair(self) -> bool:
        return self.category == "pair"

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype of an array that holds this type in memory."""
        return np.dtype(_NUMPY[self.name])

    @property
    def compute(self) -> DType:
        """The type arithmetic on this one happens in: itself, or f32 for f16 and bf16."""
        return F32 if self.is_float and self.bits == 16 else self

    def __str__(self) -> str:
        return self.name


BOOL = DType("bool", "bool", 8, 0)
I32 = DType("i32", "int", 32, 1)
I64 = DType("i64", "int", 64, 2)
BF16 = DType("bf16", "float", 16, 3)
F16 = DType("f16", "float", 16, 4)
F32 = DType("f32", "float", 32, 5)
F64 = DType("f64", "float", 64, 6)
BF16X2 = DType("bf16x2", "pair", 32, 7)

DTYPES: dict[str, DType] = {t.name: t for t in (BOOL, I32, I64, BF16, F16, F32, F64)}
"""The types that a tensor may have, by name."""

_NUMPY = {
    "bool": "bool", "i32": "int32", "i64": "int64",
    "bf16": "uint16", "f16": "float16", "f32": "float32", "f64": "float64", "bf16x2": "uint32",
}  # fmt: skip


def dtype_of(value: DType | str | np.dtype[np.generic] | type) -> DType:
    """The DType that a name, numpy dtype or Python scalar type stands for.

    Raises DTypeError for one that tunegrad does not have.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    if value is bool:
        return BOOL
    if value is int:
        return I64
    if value is float:
        return F32
    try:
        name = np.dtype(value).name
    except TypeError:
        name = str(value)
    for key, numpy_name in _NUMPY.items():
        if numpy_name == name and key not in ("bf16", "bf16x2"):
            return DTYPES[key]
    raise DTypeError(f"dtype {value!r} is not supported; valid: {', '.join(DTYPES)}")


def buffer_dtype(name: str) -> DType:
    """The DType of that name of a kernel's buffer, which may be one that no tensor has.

    Raises DTypeError.
    """
    return BF16X2 if name == BF16X2.name else dtype_of(name)


def promote(a: DType, b: DType) -> DType:
    """The type that holds a result of both: the higher rank, and f32 for f16 with bf16.

    bool < i32 < i64 < bf16, f16 < f32 < f64; an integer with a float gives the float.
    """
    if {a, b} == {F16, BF16}:
        return F32
    return a if a.rank >= b.rank else b
