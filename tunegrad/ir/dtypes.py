"""Scalar types: what a value is, how wide it is, and which of two wins.

f16 and bf16 can be stored and loaded; arithmetic on them happens in f32. A bf16 array is a numpy
``uint16`` array of the upper halves of f32 bit patterns, since numpy has no such type; only its
DType tells it from an array of u16.

Words of 32 bits are what instructions that add up several products read: ``BF16X2`` is two bf16,
the first in the low half, ``U8X4`` and ``I8X4`` are four bytes, the first the lowest. They are made
by rewrites only, no user's tensor has them. Numpy arrays of them are ``uint32``, and ``int32`` of
I8X4, so that an array says what sign its bytes have.

Integers wrap around, as numpy's. A float becomes an integer by truncation; beyond the type's range
it is the nearest integer of the type, and NaN is 0: on every device.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from tunegrad.errors import DTypeError
from tunegrad.lazy import dataclass

Category = Literal["bool", "int", "float", "pair", "quad"]


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type. ``bits`` is its width in memory; of two kinds the greater ``rank`` wins.

    Hashes of stored programs hold its fields.
    """

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
    def is_half(self) -> bool:
        """True for f16 and bf16: stored and loaded, never computed with."""
        return self.category == "float" and self.bits == 16

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
    def is_quad(self) -> bool:
        return self.category == "quad"

    @property
    def is_word(self) -> bool:
        """True for a word: several numbers, which operations put together and take apart."""
        return self.is_pair or self.is_quad

    @property
    def of(self) -> DType | None:
        """The dtype of the numbers in a word; None for another type."""
        return _PARTS.get(self.name)

    @property
    def signed(self) -> bool:
        """True if the type has negative numbers."""
        whole = self.is_int or self.is_quad
        return self.is_float or (whole and not self.name.startswith("u"))

    @property
    def least(self) -> int:
        """The least value of an integer type, or of a word as one number; pairs have no sign."""
        return -1 << (self.bits - 1) if self.signed else 0

    @property
    def greatest(self) -> int:
        """The greatest value of an integer type."""
        return self.least + (1 << self.bits) - 1

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype of an array that holds this type in memory."""
        return np.dtype(_NUMPY[self.name])

    @property
    def compute(self) -> DType:
        """The type arithmetic on this one happens in: itself, or f32 for f16 and bf16."""
        return F32 if self.is_half else self

    def __str__(self) -> str:
        return self.name


BOOL = DType("bool", "bool", 8, 0)
I8 = DType("i8", "int", 8, 1)
I16 = DType("i16", "int", 16, 1)
I32 = DType("i32", "int", 32, 1)
I64 = DType("i64", "int", 64, 2)
U8 = DType("u8", "int", 8, 1)
U16 = DType("u16", "int", 16, 1)
U32 = DType("u32", "int", 32, 1)
U64 = DType("u64", "int", 64, 2)
BF16 = DType("bf16", "float", 16, 3)
F16 = DType("f16", "float", 16, 4)
F32 = DType("f32", "float", 32, 5)
F64 = DType("f64", "float", 64, 6)
BF16X2 = DType("bf16x2", "pair", 32, 7)
U8X4 = DType("u8x4", "quad", 32, 8)
I8X4 = DType("i8x4", "quad", 32, 8)

DTYPES: dict[str, DType] = {
    t.name: t for t in (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, BF16, F16, F32, F64)
}
"""The types that a tensor may have, by name."""

_NUMPY = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "bf16": "uint16", "f16": "float16", "f32": "float32", "f64": "float64", "bf16x2": "uint32",
    "u8x4": "uint32", "i8x4": "int32",
}  # fmt: skip

_WORDS = {
    "float": F32, "double": F64, "half": F16, "bfloat16": BF16, "int": I32, "long": I64,
    "short": I16,
} | {_NUMPY[t.name]: t for t in DTYPES.values() if t != BF16}  # fmt: skip
"""PyTorch's words for types, and numpy's."""


_PARTS = {"bf16x2": BF16, "u8x4": U8, "i8x4": I8}

WORD_TYPES = {t.name: t for t in (BF16X2, U8X4, I8X4)}

_SCALARS: dict[type, DType] = {bool: BOOL, int: I64, float: F32}


def dtype_of(value: DType | str | np.dtype[np.generic] | type) -> DType:
    """The DType that a name, numpy dtype or Python scalar type stands for.

    Names are tunegrad's (``"i8"``), numpy's and PyTorch's (``"int8"``, ``"float"``: f32, ``"int"``:
    i32); none of numpy's short codes, in which ``i8`` has eight bytes.

    Raises DTypeError for one that tunegrad does not have.
    """
    if isinstance(value, DType):
        return value
    found: DType | None = None
    if isinstance(value, str):
        found = DTYPES.get(value) or _WORDS.get(value)
    elif isinstance(value, type) and value in _SCALARS:
        found = _SCALARS[value]
    elif value is not None:
        try:
            name = np.dtype(value).name
        except TypeError:
            name = str(value)
        found = _WORDS.get(name.removeprefix("torch."))
    if found is None:
        raise DTypeError(f"dtype {value!r} is not supported; valid: {', '.join(DTYPES)}")
    return found


def buffer_dtype(name: str) -> DType:
    """The DType of that name of a kernel's buffer, which may be one that no tensor has.

    Raises DTypeError.
    """
    return WORD_TYPES.get(name) or dtype_of(name)


def promote(a: DType, b: DType) -> DType:
    """The type that holds a result of both, as ``torch.promote_types``.

    A float wins over an integer, an integer over a bool; of a kind the wider one, and f32 for f16
    with bf16. An unsigned integer with a signed one gives the least signed type that holds both,
    as numpy's: u8 with i8 is i16, u32 with i32 is i64.

    Raises:
        DTypeError: u64 with a signed integer, which no integer type holds (numpy gives f64, PyTorch
            refuses).
    """
    if a == b:
        return a
    if a.category != b.category:
        return a if a.rank > b.rank else b
    low, high = sorted((a, b), key=lambda t: t.bits)
    if {a, b} == {F16, BF16}:
        return F32
    if a.signed == b.signed or (high.signed and low.bits < high.bits):
        return high
    unsigned, signed = (b, a) if a.signed else (a, b)
    if unsigned == U64:
        raise DTypeError(f"no integer type holds both u64 and {signed}; cast one to the other")
    return next(t for t in (I16, I32, I64) if t.bits > unsigned.bits)


def labelled(name: str, dtype: str) -> str:
    """A model's name in reports and in the store: ``resnet18``, or ``resnet18 bf16``."""
    return name if dtype == "f32" else f"{name} {dtype}"
