"""Tensor: an immutable handle on a graph node, with PyTorch's methods and numpy's operators.

Nothing is computed until ``numpy()``. Data given to ``Tensor(data)`` become an INPUT node with a
name of its own, and the handle carries the array (``bindings``): kernels depend on shapes and
dtypes, never on values. Weights are made by ``Tensor.constant``: their values are part of the
graph.

    x = Tensor(a)                       INPUT #0, bindings {"#0": a}
    w = Tensor.constant(b, name="w")    CONST w
    y = (x @ w).relu()                  MAP max(REDUCE add(MAP mul(..)), FULL 0), bindings {"#0": a}

What it can do stands in ``methods/``, a family in each file.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunegrad.errors import DTypeError, ModelError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import BF16, F32, DType, dtype_of
from tunegrad.ir.graph import ConstData, GraphOp, Node
from tunegrad.ir.interpret.evaluate import evaluate

from . import elementwise as ew
from . import movement
from .arrays import DTypeLike, bf16_values, held
from .elementwise import Scalar
from .handle import Bindings, TensorLike, apply, joined
from .methods import Losses
from .rewrite import substitute

__all__ = ["Bindings", "Extreme", "Tensor", "TensorLike", "apply", "joined"]

_NUMBERS = itertools.count()
_SHOWN_ELEMENTS, _SHOWN_NODES, _SHOWN_WORK = 1000, 300, 200_000
"""Most that ``repr`` computes: elements of the result, nodes, and elements of all nodes."""


class Tensor(Losses):
    """``node`` says what is computed; ``bindings`` holds the arrays of those inputs that are
    already known.

    ``Tensor(data, dtype=None)`` copies an array, list or number (bf16: values, or bit patterns in
    ``uint16``).
    """

    __slots__ = ()

    def __init__(self, data: ArrayLike | Tensor, dtype: DTypeLike | None = None) -> None:
        if isinstance(data, Tensor):
            source = data if dtype is None else data.cast(dtype)
            node, bindings = source.node, source.bindings
        else:
            node, bindings = _bound(*held(data, dtype))
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "bindings", bindings)

    @staticmethod
    def _sharing(data: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
        """A tensor whose memory is that of an array, which may still be written to.

        Raises ValueError where it would have to be copied.
        """
        return Tensor.of(*_bound(*held(data, dtype, share=True)))

    @staticmethod
    def input(name: str, shape: Sequence[int], dtype: DTypeLike = F32) -> Tensor:
        """A tensor whose value the caller supplies when the compiled graph runs."""
        if not name or name.startswith("#"):
            raise ModelError(f"input name {name!r} must not be empty or start with '#'")
        return Tensor.of(graph.graph_input(name, movement.extents("input", shape), dtype_of(dtype)))

    @staticmethod
    def constant(data: ArrayLike, dtype: DTypeLike | None = None, name: str = "") -> Tensor:
        """An array that is part of the program (a weight)."""
        array, kind = held(data, dtype)
        return Tensor.of(graph.const(array, kind, name))

    def new_full(
        self, size: Sequence[int], fill_value: Scalar, dtype: DTypeLike | None = None
    ) -> Tensor:
        """``fill_value`` everywhere, in this dtype unless given."""
        kind = self.dtype if dtype is None else dtype_of(dtype)
        return Tensor.of(ew.constant(fill_value, movement.extents("new_full", size), kind))

    def new_zeros(self, *size: Any, dtype: DTypeLike | None = None) -> Tensor:
        """Zeros, in this dtype unless given."""
        return self.new_full(movement.flat(size), 0, dtype)

    def new_ones(self, *size: Any, dtype: DTypeLike | None = None) -> Tensor:
        """Ones, in this dtype unless given."""
        return self.new_full(movement.flat(size), 1, dtype)

    def new_tensor(self, data: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
        """A tensor of data, in this dtype unless given."""
        return Tensor(data, self.dtype if dtype is None else dtype)

    # ---- what it is

    def describe(self) -> str:
        """Its dtype, shape and operation in a few words, without values."""
        return f"<Tensor {self.dtype}{list(self.shape)} of {self.node.op}>"

    def __repr__(self) -> str:
        array = self._shown()
        if array is None:
            return self.describe()
        text = np.array2string(array, separator=", ", prefix="Tensor(", threshold=_SHOWN_ELEMENTS)
        return f"Tensor({text}, {self.dtype})"

    def _shown(self) -> NDArray[np.generic] | None:
        """Its values, where they are known or few and cheap to find without compiling."""
        known = self._known()
        if known is None:
            if self.node.size > _SHOWN_ELEMENTS:
                return None
            nodes = graph.topological((self.node,))
            if len(nodes) > _SHOWN_NODES or sum(n.size for n in nodes) > _SHOWN_WORK:
                return None
            if any(n.op is GraphOp.INPUT and n.arg not in self.bindings for n in nodes):
                return None
            (known,) = evaluate((self.node,), self.bindings)
        return bf16_values(known) if self.dtype == BF16 else known

    def _known(self) -> NDArray[np.generic] | None:
        """The array that it holds, if it is one."""
        if self.node.op is GraphOp.INPUT:
            return self.bindings.get(str(self.node.arg))
        if self.node.op is GraphOp.CONST:
            return cast(ConstData, self.node.arg).array
        return None

    def __bool__(self) -> bool:
        if self.node.size != 1 or not self._computable():
            raise DTypeError(
                f"bool: {self.describe()} has no truth value before it is computed; use where, or "
                ".item()"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise DTypeError(f"index: {self.describe()} is no integer")
        return int(self.item())

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.node, dict(self.bindings))

    # ---- values

    def _computable(self) -> bool:
        return all(
            n.op is not GraphOp.INPUT or n.arg in self.bindings
            for n in graph.topological((self.node,))
        )

    def numpy(self) -> NDArray[np.generic]:
        """Compute it. bf16 comes as its bit patterns in ``uint16``.

        Raises:
            ModelError: it depends on an input that has no value.
        """
        if self.node.op is GraphOp.INPUT and self.node.arg in self.bindings:
            return self.bindings[str(self.node.arg)].copy()
        for node in graph.topological((self.node,)):
            if node.op is GraphOp.INPUT and node.arg not in self.bindings:
                raise ModelError(
                    f"numpy: input {node.arg!r} of {self.describe()} has no value; compile it and "
                    "pass one"
                )
        # inference stands above the front end, and is the only place where the stages are composed
        inference = importlib.import_module("tunegrad.inference")
        return cast("NDArray[np.generic]", inference.realize([self])[0])

    def __array__(
        self, dtype: np.dtype[np.generic] | None = None, copy: bool | None = None
    ) -> NDArray[np.generic]:
        """Its values; with ``copy=False`` the read-only array that it holds itself.

        Raises:
            ValueError: ``copy`` is False, and another dtype is asked for.
        """
        known = self._known() if copy is False else None
        array = self.numpy() if known is None else known
        if copy is False and dtype is not None and dtype != array.dtype:
            raise ValueError(f"array: {array.dtype} as {dtype} needs a copy, and copy is False")
        return array if dtype is None else array.astype(dtype, copy=bool(copy))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """``np.exp(tensor)`` and ``array + tensor`` are tensors."""
        name = _UFUNCS.get(ufunc.__name__, ufunc.__name__)
        operation: Callable[..., Any] | None = getattr(Tensor, name, None)
        if method != "__call__" or options or operation is None or name.startswith("_"):
            return NotImplemented
        first = inputs[0] if isinstance(inputs[0], Tensor) else Tensor(inputs[0])
        if not isinstance(inputs[0], Tensor | np.ndarray):  # a number takes the tensor's dtype
            reflected = _REFLECTED.get(name)
            if reflected is not None:
                return getattr(inputs[1], reflected)(inputs[0])
        return operation(first, *inputs[1:])

    def item(self) -> Scalar:
        """The only element, as a Python number."""
        if self.node.size != 1:
            raise ShapeError(f"item: shape {self.shape} has {self.node.size} elements, not one")
        return cast("Scalar", self.cast(self.dtype.compute).numpy().item())

    def tolist(self) -> Any:
        """Its values as nested lists of Python numbers."""
        return self.cast(self.dtype.compute).numpy().tolist()

    def realize(self) -> Tensor:
        """The same values, computed now."""
        return Tensor(self.numpy(), self.dtype)

    def __dlpack__(self, **options: object) -> object:
        """The values for another library (DLPack; bf16 goes as its bit patterns).

        A computed result goes out as the kernels stored it, without another copy. An array that a
        tensor holds goes out as a copy: its taker may write to it, and tensors do not change.
        """
        return cast("Any", self.numpy()).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU, in DLPack's words."""
        return 1, 0


class Extreme(Tensor):
    """The largest or smallest elements along a dimension, as PyTorch gives them: a tensor of the
    values, that unpacks into values and their indices.
    """

    __slots__ = ("place", "source")

    source: Tensor
    place: tuple[Any, int, bool]

    @property
    def values(self) -> Tensor:
        """The elements."""
        return Tensor.of(self.node, self.bindings)

    @property
    def indices(self) -> Tensor:
        """The first place of each along the dimension, i64."""
        name, dim, keepdim = self.place
        return self.source.position_of(name, dim, keepdim)

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.values, self.indices))

    def __getitem__(self, key: object) -> Tensor:
        if isinstance(key, int) and key in (0, 1):
            return self.indices if key else self.values
        return self.values[key]

    def __len__(self) -> int:
        return 2


_UFUNCS = {
    "divide": "div", "power": "pow", "negative": "neg", "absolute": "abs", "equal": "eq",
    "rint": "round", "invert": "bitwise_not", "fabs": "abs", "matmul": "matmul",
}  # fmt: skip
"""Operations that numpy calls otherwise."""
_REFLECTED = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "div": "__rtruediv__",
    "floor_divide": "__rfloordiv__", "remainder": "__rmod__", "pow": "__rpow__",
    "matmul": "__rmatmul__", "bitwise_and": "__and__", "bitwise_or": "__or__",
    "bitwise_xor": "__xor__", "maximum": "maximum", "minimum": "minimum", "eq": "eq",
    "not_equal": "ne", "less": "gt", "less_equal": "ge", "greater": "lt", "greater_equal": "le",
}  # fmt: skip
"""Operations of a tensor where numpy's first operand is a number."""


def _bound(array: NDArray[np.generic], kind: DType) -> tuple[Node, Bindings]:
    """An input of a name of its own, and its value."""
    name = f"#{next(_NUMBERS)}"
    return graph.graph_input(name, array.shape, kind), MappingProxyType({name: array})


def _restored(node: Node, bindings: dict[str, NDArray[np.generic]]) -> Tensor:
    """A pickled tensor: its known inputs get names that are new in this process."""
    names = {name: f"#{next(_NUMBERS)}" for name in bindings}
    renamed = {
        n: graph.graph_input(names[str(n.arg)], n.shape, n.dtype)
        for n in graph.topological((node,))
        if n.op is GraphOp.INPUT and n.arg in names
    }
    (root,) = substitute((node,), renamed)
    return Tensor.of(
        root, MappingProxyType({names[name]: array for name, array in bindings.items()})
    )
