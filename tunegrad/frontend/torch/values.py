"""Tensors of PyTorch as numpy arrays and back, without copies on the CPU.

bf16 goes as bit patterns in ``uint16``, as everywhere here.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import DTypeError, ModelError
from tunegrad.ir.dtypes import DType, dtype_of

from ..tensor import Tensor
from .aten import Complex

__all__ = [
    "array_of", "constant_of", "dtype_from", "load_torch", "shared", "tensor_of", "torch_dtype",
    "value_of",
]  # fmt: skip

_NAMES = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64", "bfloat16": "bf16", "float16": "f16",
    "float32": "f32", "float64": "f64",
}  # fmt: skip


@functools.cache
def load_torch() -> Any:
    """PyTorch.

    Raises:
        ModelError: it is not installed.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ModelError(
            f"models of PyTorch need it: pip install 'tunegrad[torch]' ({error})"
        ) from None


@functools.cache
def _dtypes() -> dict[Any, DType]:
    torch = load_torch()
    return {getattr(torch, theirs): dtype_of(ours) for theirs, ours in _NAMES.items()}


@functools.cache
def _theirs() -> dict[str, Any]:
    return {ours.name: theirs for theirs, ours in _dtypes().items()}


def dtype_from(theirs: Any) -> DType:
    """Our type for one of PyTorch's.

    Raises:
        DTypeError: there is none.
    """
    found = _dtypes().get(theirs)
    if found is None:
        raise DTypeError(f"{theirs} of PyTorch is not supported; valid: {', '.join(_NAMES)}")
    return found


def torch_dtype(ours: DType) -> Any:
    """PyTorch's type for one of ours."""
    return _theirs()[ours.name]


def array_of(tensor: Any) -> NDArray[np.generic]:
    """The memory of a tensor on the CPU as an array; complex numbers as pairs."""
    if tensor.dtype is load_torch().bfloat16:
        return array_of(tensor.detach().view(load_torch().int16)).view(np.uint16)
    if tensor.is_complex():
        return array_of(load_torch().view_as_real(tensor.detach().resolve_conj()))
    try:
        return tensor.numpy()  # type: ignore[no-any-return]
    except RuntimeError:  # it needs gradients, or is a negative view
        return tensor.detach().resolve_neg().numpy()  # type: ignore[no-any-return]


def tensor_of(array: NDArray[np.generic], dtype: Any) -> Any:
    """An array that nothing else refers to as a tensor of a dtype of PyTorch."""
    torch = load_torch()
    if dtype is torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    found = torch.from_numpy(array)
    return torch.view_as_complex(found) if dtype.is_complex else found


def constant_of(tensor: Any, name: str = "") -> Tensor:
    """A tensor of PyTorch as a constant, which shares its memory where that is contiguous.

    Raises:
        DTypeError: of a type that is not there, or not a plain array on the CPU.
    """
    kind = dtype_from(tensor.dtype)
    return Tensor.constant(shared(tensor), kind, name)


def value_of(tensor: Any, name: str = "") -> Tensor | Complex:
    """A tensor of PyTorch as a constant, or as two where its numbers are complex.

    Raises:
        DTypeError: as ``constant_of``.
    """
    if not tensor.is_complex():
        return constant_of(tensor, name)
    plain = tensor.detach().resolve_conj()
    return Complex(constant_of(plain.real, name), constant_of(plain.imag, name))


def shared(tensor: Any) -> NDArray[np.generic]:
    """A view of a tensor's memory that can not be written to."""
    torch = load_torch()
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise DTypeError(
            f"a tensor on {tensor.device} of layout {tensor.layout} is not a plain array on the CPU"
        )
    array = array_of(tensor).view()
    array.flags.writeable = False
    return array
