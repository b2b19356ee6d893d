"""The handle on a graph node that every family of tensor methods extends.

A family is a class of methods in ``methods/``; each extends the one before it, and ``Tensor`` is
the last of them. A method takes and gives tensors; what it does to nodes stands in ``elementwise``,
``movement`` and ``reduction``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunegrad.errors import DTypeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32, DType
from tunegrad.ir.graph import Node

from . import elementwise as ew
from .elementwise import Scalar
from .movement import axis_of
from .spelling import spelled_methods

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = [
    "NOTHING", "Bindings", "Count", "Handle", "TensorLike", "along", "apply", "beside", "floating",
    "floats", "joined", "lift", "optional", "where",
]  # fmt: skip

Bindings = Mapping[str, NDArray[np.generic]]
NOTHING: Bindings = MappingProxyType({})

P = ParamSpec("P")
T = TypeVar("T")


class Count(int):
    """Elements in all, as numpy's ``size``; called, the extents, as PyTorch's ``size()``."""

    shape: tuple[int, ...]

    def __new__(cls, shape: tuple[int, ...], elements: int) -> Count:
        count = super().__new__(cls, elements)
        count.shape = shape
        return count

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[axis_of("size", dim, self.shape)]


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Handle:
    """``node`` says what is computed; ``bindings`` holds the arrays of those inputs that are
    already known.
    """

    node: Node
    bindings: Bindings

    def __init_subclass__(cls) -> None:
        spelled_methods(cls)

    @staticmethod
    def of(node: Node, bindings: Bindings = NOTHING) -> Tensor:
        """A handle on an existing node."""
        tensor = object.__new__(_tensor_class())
        object.__setattr__(tensor, "node", node)
        object.__setattr__(tensor, "bindings", bindings)
        return tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self.node.shape

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self.node.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.node.shape)

    @property
    def size(self) -> Count:
        """Elements in all; ``size()`` is the shape and ``size(dim)`` one extent."""
        return Count(self.node.shape, self.node.size)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.node.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.node.dtype.itemsize * self.node.size

    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.node.shape)

    def numel(self) -> int:
        """Elements in all."""
        return self.node.size

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.node.dtype.itemsize

    def is_floating_point(self) -> bool:
        """True if its elements are floats."""
        return self.node.dtype.is_float

    @property
    def float_type(self) -> DType:
        """The float type that a function of it has: its own, or f32 for integers and bools."""
        return self.node.dtype if self.node.dtype.is_float else F32

    def _with(self, node: Node) -> Tensor:
        return Handle.of(node, self.bindings)

    def _wide(self) -> Tensor:
        """In the float type that it is computed in: f32 for f16, bf16, integers and bools."""
        return self._with(graph.cast(self.node, self.float_type.compute))

    def _same(self) -> Tensor:
        return self  # type: ignore[return-value]  # every handle is a Tensor

    def _as(self, dtype: DType) -> Tensor:
        return self._with(graph.cast(self.node, dtype))


TensorLike = Handle | Scalar | ArrayLike


def floating(method: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """A method on floats: 16-bit ones are computed in f32 and rounded once, integers become f32."""

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        first: Any = args[0]
        if first.dtype.compute == first.dtype and first.dtype.is_float:
            return method(*args, **kwargs)
        widened: Any = (first._wide(), *args[1:])
        return method(*widened, **kwargs)._as(first.float_type)

    return wrapped


def along(method: Callable[P, T]) -> Callable[P, T]:
    """A method along one dimension, of which a scalar is a row of one element (0 and -1)."""

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        first: Any = args[0]
        if first.shape:
            return method(*args, **kwargs)
        row: Any = (first.reshape(1), *args[1:])
        found: Any = method(*row, **kwargs)
        if isinstance(found, Handle):
            return found._same().reshape(())  # type: ignore[return-value]  # T is a Tensor
        parts: Any = (t.reshape(()) for t in found)
        return type(found)(*parts)  # type: ignore[no-any-return]

    return wrapped


def joined(tensors: Sequence[Handle]) -> Bindings:
    """The bindings of all of them; shared, not copied, where one has them all."""
    result: Bindings = NOTHING
    for t in tensors:
        if not t.bindings or t.bindings is result or t.bindings.keys() <= result.keys():
            continue
        covers = result.keys() <= t.bindings.keys()
        result = t.bindings if covers else MappingProxyType({**result, **t.bindings})
    return result


def apply(op: str, function: Callable[..., Node], *operands: TensorLike) -> Tensor:
    """``function`` on the nodes of tensors and arrays, and on Python numbers as they are."""
    lifted = [_operand(x, op) for x in operands]
    if not any(isinstance(x, Handle) for x in lifted):
        lifted[0] = lift(operands[0], op)
    tensors = [x for x in lifted if isinstance(x, Handle)]
    return Handle.of(
        function(*(x.node if isinstance(x, Handle) else x for x in lifted)), joined(tensors)
    )


def lift(x: TensorLike, op: str) -> Tensor:
    """A tensor, array or number as a tensor.

    Raises:
        DTypeError: it is none of them.
    """
    lifted = _operand(x, op)
    return (
        lifted
        if not isinstance(lifted, bool | int | float)
        else Handle.of(ew.constant(lifted, (), ew.result_type(lifted), op))
    )


def where(condition: TensorLike, input: TensorLike, other: TensorLike) -> Tensor:
    """``input`` where the bool condition holds, else ``other``."""
    return apply("where", ew.where, condition, input, other)


def beside(first: Handle, x: TensorLike, op: str) -> Tensor:
    """As ``lift``, but a number has the dtype that it takes beside ``first``."""
    lifted = _operand(x, op)
    if not isinstance(lifted, bool | int | float):
        return lifted
    return Handle.of(ew.constant(lifted, (), ew.result_type(first.node, lifted), op))


def floats(op: str, *operands: TensorLike) -> tuple[DType, tuple[Tensor, ...]]:
    """Operands in the float type that all are computed in, and the one of their result."""
    lifted = [_operand(x, op) for x in operands]
    kind = ew.result_type(*(x.node if isinstance(x, Handle) else x for x in lifted))
    kind = kind if kind.is_float else F32
    wide = kind.compute
    return kind, tuple(
        x._as(wide) if isinstance(x, Handle) else Handle.of(ew.constant(x, (), wide, op))
        for x in lifted
    )


def optional(x: TensorLike | None, op: str) -> Tensor | None:
    """As ``lift``, but None stays."""
    return None if x is None else lift(x, op)


def _operand(x: TensorLike, op: str) -> Tensor | Scalar:
    """Numbers stay, numpy's scalars as Python's (as in PyTorch: they are weak, whatever their
    dtype); arrays and lists become tensors.
    """
    if isinstance(x, Handle):
        return x  # type: ignore[return-value]  # every handle is a Tensor
    if isinstance(x, np.generic) and x.dtype.kind in "biuf":
        return x.item()  # type: ignore[no-any-return]
    if isinstance(x, bool | int | float):
        return x
    if isinstance(x, np.ndarray | list | tuple) or hasattr(x, "__dlpack__"):
        return _tensor_class()(x)
    raise DTypeError(f"{op}: {x!r} of type {type(x).__name__} is not a tensor, array or number")


@functools.cache
def _tensor_class() -> type[Tensor]:
    """The class that all handles have, which stands on top of this one."""
    from .tensor import Tensor

    return Tensor
