"""Tensors of other libraries on the device, in and out without a copy, by DLPack.

    imported   their memory, as kernels of an open device use it; it is theirs until it is let go
    exported   ``DeviceTensor``: memory of the device, which stays while a reference to it exists

Streams, as the Python array API says: the taker of a tensor names the stream in which it is going
to be used, and the giver sees to it that what is there by then is done. The device's own stream is
named when a tensor is taken; what is given was waited for, so any stream may use it.

Source: DLPack's ``dlpack.h`` (the unversioned capsule) and its Python specification.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tunegrad.errors import DeviceError, DTypeError, ShapeError
from tunegrad.ir.dtypes import DTYPES, DType

_NAME, _USED = b"dltensor", b"used_dltensor"
_CODES = {"f": 2, "i": 0, "u": 1}
_BF16, _BOOL = (4, 16), (6, 8)
_CPU = 1
ALIGN = 16
"""Bytes: kernels move as many at once."""


@runtime_checkable
class Sharing(Protocol):
    """An engine whose memory other libraries can use.

    ``place``: DLPack's type and number of the device; ``stream``: the number of the stream that it
    works in, None where there are none.
    """

    @property
    def place(self) -> tuple[int, int]: ...

    @property
    def stream(self) -> int | None: ...

    def at(self, address: int, nbytes: int, owner: object) -> Any:
        """Memory that belongs to ``owner``, which keeps it."""

    def alias(self, memory: Any) -> Any:
        """The same memory, which this does not keep."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A tensor of another library: its memory as an engine uses it."""

    memory: Any
    shape: tuple[int, ...]
    dtype: str


# ---- the structures of dlpack.h


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _api)
)
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_raw_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)


# ---- in


def place_of(value: object) -> tuple[int, int] | None:
    """Place of a tensor that speaks DLPack, as (type, number); None for what does not."""
    ask = getattr(value, "__dlpack_device__", None)
    if ask is None or not hasattr(value, "__dlpack__"):
        return None
    kind, number = ask()
    return int(kind), int(number)


class _Owner:
    """A capsule's tensor, given back with the last reference to this."""

    __slots__ = ("_managed",)

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.contents.deleter:
            self._managed.contents.deleter(self._managed)


def imported(value: Any, engine: Sharing) -> Imported:
    """A tensor that lies on the engine's device, where it lies.

    Raises DeviceError for one that lies elsewhere, ShapeError for one that is not contiguous or not
    aligned, DTypeError for elements that kernels do not know.
    """
    if place_of(value) != engine.place:
        raise DeviceError(f"a tensor on device {place_of(value)} of DLPack is not {engine.place}")
    capsule = (
        value.__dlpack__() if engine.stream is None else value.__dlpack__(stream=engine.stream)
    )
    if not _valid(capsule, _NAME):
        raise DeviceError("__dlpack__ gave no capsule named 'dltensor'")
    managed = ctypes.cast(_pointer(capsule, _NAME), ctypes.POINTER(_Managed))
    _rename(capsule, _USED)
    owner, t = _Owner(managed), managed.contents.tensor
    shape = tuple(t.shape[i] for i in range(t.ndim))
    dtype = _dtype(t)
    if t.strides and not _contiguous(shape, tuple(t.strides[i] for i in range(t.ndim))):
        raise ShapeError(f"a tensor of shape {shape} is not contiguous: it must be, row by row")
    address = (t.data or 0) + t.byte_offset
    if address % ALIGN:
        raise ShapeError(f"a tensor at {address:#x} is not at a multiple of {ALIGN} bytes")
    nbytes = math.prod(shape) * DTYPES[dtype].itemsize
    return Imported(engine.at(address, nbytes, owner), shape, dtype)


def _dtype(t: _Tensor) -> str:
    found = [d for d in DTYPES.values() if not d.is_pair and _numbers(d) == (t.code, t.bits)]
    if not found or t.lanes != 1:
        raise DTypeError(
            f"elements of DLPack's code {t.code}, {t.bits} bits and {t.lanes} lanes are unknown; "
            f"valid: {', '.join(DTYPES)}"
        )
    return found[0].name


def _numbers(dtype: DType) -> tuple[int, int]:
    """DLPack's code and bits of a dtype."""
    if dtype.name == "bf16":
        return _BF16
    if dtype.name == "bool":
        return _BOOL
    return _CODES[dtype.numpy.kind], 8 * dtype.itemsize


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    want = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    pairs = zip(shape, strides, want, strict=True)
    return 0 in shape or all(n == 1 or has == must for n, has, must in pairs)


# ---- out


def as_bf16(capsule: object) -> object:
    """An unversioned capsule of u16 as one of bf16, a type that numpy does not have."""
    managed = ctypes.cast(_pointer(capsule, _NAME), ctypes.POINTER(_Managed))
    managed.contents.tensor.code, _ = _BF16
    return capsule


_given: dict[int, tuple[object, ...]] = {}
"""Objects that are held for capsules that are out, by the address of their structure."""


def _let_go(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


def _dropped(capsule: int) -> None:
    """A capsule that was not taken; a taken one has another name."""
    if _raw_valid(capsule, _NAME):
        _given.pop(_raw_pointer(capsule, _NAME), None)


_give_back = _Deleter(_let_go)
_drop = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_dropped)


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """An output that stays on the device, for any library that speaks DLPack:
    ``torch.from_dlpack(x)``.

    ``memory`` has an address; its content was waited for.
    """

    memory: Any
    shape: tuple[int, ...]
    dtype: DType
    place: tuple[int, int]
    name: str = field(default="", compare=False)

    def numpy(self) -> Any:
        """A copy in this process, as the model gives it."""
        return self.memory.read(self.dtype.name)[: math.prod(self.shape)].reshape(self.shape).copy()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,  # the unversioned form always
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule of the memory itself. Raises BufferError for another device, for a copy, and
        for a stream that there is not.
        """
        if copy or dl_device not in (None, self.place):
            raise BufferError(f"{self.name or 'tensor'}: it is given as it lies, on {self.place}")
        on_cpu = self.place[0] == _CPU
        if stream is not None and (on_cpu or stream == 0 or stream < -1):
            rule = "there are none on a CPU" if on_cpu else "1, 2, a handle, or -1 for no waiting"
            raise BufferError(f"{self.name or 'tensor'}: stream {stream}: {rule}")
        rank = max(1, len(self.shape))
        shape = (ctypes.c_int64 * rank)(*self.shape)
        managed, (code, bits) = _Managed(), _numbers(self.dtype)
        managed.tensor = _Tensor(
            self.memory.address, *self.place, len(self.shape), code, bits, 1,
            ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), None, 0,
        )  # fmt: skip
        managed.deleter = _give_back
        address = ctypes.addressof(managed)
        _given[address] = (managed, shape, self.memory)
        return _new(address, _NAME, ctypes.cast(_drop, ctypes.c_void_p))
