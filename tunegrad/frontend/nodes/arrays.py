"""Numpy arrays in: which dtype a value has, and its bytes in memory.

bf16 is held as the upper halves of f32 bit patterns in ``uint16``, since numpy has no such type.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunegrad.errors import DTypeError, ShapeError
from tunegrad.ir.dtypes import BF16, BOOL, DTYPES, F32, I64, DType, dtype_of
from tunegrad.ir.interpret.numeric import bits_of_bf16, convert

DTypeLike = DType | str | np.dtype[np.generic] | type


@runtime_checkable
class _Exporter(Protocol):
    """An array of another library that hands its memory over by DLPack."""

    def __dlpack__(self) -> object: ...


_NATIVE = {d.numpy: d for d in DTYPES.values() if d != BF16}
"""The type that an array of each of numpy's is, without being told."""


def bf16_bits(values: NDArray[np.generic]) -> NDArray[np.uint16]:
    """Values as bf16 bit patterns, rounded to nearest even; a NaN stays a NaN."""
    floats = np.asarray(values, dtype=np.float32)
    bits = floats.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(
        np.uint16
    )
    return np.where(np.isnan(floats), np.uint16(0x7FC0), rounded)


def bf16_values(bits: NDArray[np.generic]) -> NDArray[np.float32]:
    """The f32 values of bf16 bit patterns."""
    return (np.asarray(bits, dtype=np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def held(
    data: ArrayLike, dtype: DTypeLike | None = None, share: bool = False
) -> tuple[NDArray[np.generic], DType]:
    """A read-only, contiguous array that nothing else writes to, and its dtype.

    An array keeps its dtype; Python floats become f32, ints i64, bools bool. With ``dtype`` the
    values are converted; ``uint16`` data with ``dtype="bf16"`` are bit patterns, and bf16 of
    PyTorch and of ``ml_dtypes`` is bf16 as it is. Arrays of other libraries on the CPU come in by
    DLPack. Copies unless the array is contiguous and read-only. With ``share`` it never copies: the
    array is a view of the memory of ``data``, which others may write to.

    Raises:
        DTypeError: the data are not numbers, or of a type tunegrad does not have.
        ShapeError: a ragged nest of lists.
        ValueError: ``share``, and the data are not contiguous memory of that dtype.
    """
    if type(data) is np.ndarray and dtype is None and not share:  # most often, and faster
        known = _NATIVE.get(data.dtype)
        if known is not None:
            flags = data.flags
            if flags.writeable or not flags.c_contiguous:
                data = np.array(data, order="C")
                data.flags.writeable = False
            return data.view(), known
    try:
        exported = not isinstance(data, np.ndarray | np.generic) and isinstance(data, _Exporter)
        if (bits := bits_of_bf16(data)) is not None:
            dtype = BF16 if dtype is None else dtype_of(dtype)
            array = bits if dtype == BF16 else bf16_values(bits)
        else:
            array = np.from_dlpack(data) if exported else np.asarray(data)  # type: ignore[arg-type]
    except ValueError as error:
        raise ShapeError(f"tensor: the nested lists are ragged ({error})") from None
    except (BufferError, RuntimeError, TypeError) as error:  # PyTorch's, of one with gradients
        raise DTypeError(f"tensor: a {type(data).__name__} is not an array here: {error}") from None
    if array.dtype.kind not in "biuf":
        raise DTypeError(f"tensor: data of type {array.dtype} are not numbers")
    kind = _natural(data, array) if dtype is None else dtype_of(dtype)
    if kind == BF16:
        memory: NDArray[np.generic] = array if array.dtype == np.uint16 else bf16_bits(array)
    elif kind.is_int and array.dtype.kind == "f":
        memory = convert(array, kind)
    else:
        memory = array if array.dtype == kind.numpy else array.astype(kind.numpy)
    fresh = memory is not array
    if share:
        has_memory = isinstance(data, np.ndarray | _Exporter)
        if fresh or not memory.flags.c_contiguous or not has_memory:
            raise ValueError(
                f"asarray: {type(data).__name__} as contiguous {kind} needs a copy, and copy is "
                "False"
            )
        memory = memory.view()
        memory.flags.writeable = False
        return memory, kind
    if not fresh and (memory.flags.writeable or not memory.flags.c_contiguous):
        memory, fresh = np.array(memory, order="C"), True
    memory = np.ascontiguousarray(memory)
    if fresh:  # the view below is one of memory that is as little written to
        memory.flags.writeable = False
    return memory.reshape(array.shape), kind


def representable(value: float | int | bool, dtype: DType, op: str) -> float | int | bool:
    """A Python number as ``dtype`` holds it: rounded for floats, in range for ints.

    Raises:
        DTypeError: an integer type can not hold the value.
    """
    if dtype.is_bool:
        return bool(value)
    if dtype.is_float:
        with np.errstate(over="ignore"):
            if dtype == BF16:
                return float(bf16_values(bf16_bits(np.asarray(value, dtype=np.float32))))
            return float(np.asarray(value, dtype=dtype.numpy))
    if not dtype.least <= value <= dtype.greatest or int(value) != value:
        raise DTypeError(f"{op}: {value!r} is not a value of {dtype}")
    return int(value)


def _natural(data: ArrayLike, array: NDArray[np.generic]) -> DType:
    """The dtype without being told: numpy data keep theirs, Python's numbers get the usual ones."""
    if isinstance(data, np.ndarray | np.generic):
        return dtype_of(array.dtype)
    if array.dtype.kind == "f":
        return F32 if array.dtype == np.float64 else dtype_of(array.dtype)
    return {"b": BOOL, "i": I64}.get(array.dtype.kind) or dtype_of(array.dtype)
