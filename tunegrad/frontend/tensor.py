"""Tensor: an immutable handle on a graph node, with numpy's operators.

Nothing is computed until ``numpy()``. Data given to ``Tensor(data)`` become an INPUT node with a
name of its own, and the handle carries the array (``bindings``): kernels depend on shapes and
dtypes, never on values. Weights are made by ``Tensor.constant``: their values are part of the
graph.

    x = Tensor(a)                       INPUT #0, bindings {"#0": a}
    w = Tensor.constant(b, name="w")    CONST w
    y = (x @ w).relu()                  MAP max(REDUCE add(MAP mul(..)), FULL 0), bindings {"#0": a}
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunegrad.errors import DTypeError, ModelError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32, DType, dtype_of
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.layout import Layout

from . import elementwise as ew
from . import functional, movement, reduction
from .arrays import DTypeLike, held
from .elementwise import Scalar
from .functional import Pair
from .movement import Axes
from .rewrite import substitute

__all__ = ["Bindings", "Tensor", "TensorLike", "apply", "joined"]

Bindings = Mapping[str, NDArray[np.generic]]
NOTHING: Bindings = MappingProxyType({})
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Tensor:
    """``node`` says what is computed; ``bindings`` holds the arrays of those inputs that are
    already known.

    ``Tensor(data, dtype=None)`` copies an array, list or number (bf16: values, or bit patterns in
    ``uint16``).
    """

    node: Node
    bindings: Bindings

    # numpy leaves ``array + tensor`` to the tensor
    __array_ufunc__: ClassVar[None] = None

    def __init__(self, data: ArrayLike | Tensor, dtype: DTypeLike | None = None) -> None:
        if isinstance(data, Tensor):
            source = data if dtype is None else data.cast(dtype)
            node, bindings = source.node, source.bindings
        else:
            array, kind = held(data, dtype)
            name = f"#{next(_NUMBERS)}"
            node, bindings = (
                graph.graph_input(name, array.shape, kind),
                MappingProxyType({name: array}),
            )
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "bindings", bindings)

    @staticmethod
    def of(node: Node, bindings: Bindings = NOTHING) -> Tensor:
        """A handle on an existing node."""
        tensor = object.__new__(Tensor)
        object.__setattr__(tensor, "node", node)
        object.__setattr__(tensor, "bindings", bindings)
        return tensor

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

    # ---- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.shape

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    @property
    def size(self) -> int:
        """Elements in all."""
        return self.node.size

    def __repr__(self) -> str:
        return f"<Tensor {self.dtype}{list(self.shape)} of {self.node.op}>"

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("len: a tensor of shape () has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        raise DTypeError(
            f"bool: {self!r} has no truth value before it is computed; use where, or .item()"
        )

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.node, dict(self.bindings))

    # ---- values

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
                    f"numpy: input {node.arg!r} of {self!r} has no value; compile it and pass one"
                )
        # inference stands above the front end, and is the only place where the stages are composed
        inference = importlib.import_module("tunegrad.inference")
        return cast("NDArray[np.generic]", inference.realize([self])[0])

    def __array__(
        self, dtype: np.dtype[np.generic] | None = None, copy: bool | None = None
    ) -> NDArray[np.generic]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=bool(copy))

    def item(self) -> Scalar:
        """The only element, as a Python number."""
        if self.size != 1:
            raise ShapeError(f"item: shape {self.shape} has {self.size} elements, not one")
        return cast("Scalar", self.cast(self.dtype.compute).numpy().item())

    def realize(self) -> Tensor:
        """The same values, computed now."""
        return Tensor(self.numpy(), self.dtype)

    # ---- elementwise

    def __add__(self, other: TensorLike) -> Tensor:
        return _binary(Op.ADD, self, other)

    def __radd__(self, other: TensorLike) -> Tensor:
        return _binary(Op.ADD, other, self)

    def __sub__(self, other: TensorLike) -> Tensor:
        return _binary(Op.SUB, self, other)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return _binary(Op.SUB, other, self)

    def __mul__(self, other: TensorLike) -> Tensor:
        return _binary(Op.MUL, self, other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return _binary(Op.MUL, other, self)

    def __truediv__(self, other: TensorLike) -> Tensor:
        return apply("div", ew.divide, self, other)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return apply("div", ew.divide, other, self)

    def __floordiv__(self, other: TensorLike) -> Tensor:
        return apply("floordiv", ew.floor_divide, self, other)

    def __rfloordiv__(self, other: TensorLike) -> Tensor:
        return apply("floordiv", ew.floor_divide, other, self)

    def __mod__(self, other: TensorLike) -> Tensor:
        return apply("mod", ew.remainder, self, other)

    def __rmod__(self, other: TensorLike) -> Tensor:
        return apply("mod", ew.remainder, other, self)

    def __pow__(self, other: TensorLike) -> Tensor:
        return apply("pow", ew.power, self, other)

    def __rpow__(self, other: TensorLike) -> Tensor:
        return apply("pow", ew.power, other, self)

    def __and__(self, other: TensorLike) -> Tensor:
        return _bitwise(Op.AND, self, other)

    def __or__(self, other: TensorLike) -> Tensor:
        return _bitwise(Op.OR, self, other)

    def __xor__(self, other: TensorLike) -> Tensor:
        return _bitwise(Op.XOR, self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lt__(self, other: TensorLike) -> Tensor:
        return _compare("lt", self, other)

    def __le__(self, other: TensorLike) -> Tensor:
        return _compare("le", self, other)

    def __gt__(self, other: TensorLike) -> Tensor:
        return _compare("gt", self, other)

    def __ge__(self, other: TensorLike) -> Tensor:
        return _compare("ge", self, other)

    def __eq__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return _compare("eq", self, other)

    def __ne__(self, other: TensorLike) -> Tensor:  # type: ignore[override]
        return _compare("ne", self, other)

    def equal(self, other: TensorLike) -> Tensor:
        """Elementwise ``==``."""
        return _compare("eq", self, other)

    def __neg__(self) -> Tensor:
        return self._with(ew.negate(self.node))

    def __pos__(self) -> Tensor:
        return self

    def __lshift__(self, other: TensorLike) -> Tensor:
        return apply("shl", lambda a, b: ew.shift(Op.SHL, a, b), self, other)

    def __rlshift__(self, other: TensorLike) -> Tensor:
        return apply("shl", lambda a, b: ew.shift(Op.SHL, a, b), other, self)

    def __rshift__(self, other: TensorLike) -> Tensor:
        return apply("shr", lambda a, b: ew.shift(Op.SHR, a, b), self, other)

    def __rrshift__(self, other: TensorLike) -> Tensor:
        return apply("shr", lambda a, b: ew.shift(Op.SHR, a, b), other, self)

    def __invert__(self) -> Tensor:
        return self._with(ew.invert(self.node))

    def __abs__(self) -> Tensor:
        return self.abs()

    def pow(self, other: TensorLike) -> Tensor:
        """``self ** other``."""
        return apply("pow", ew.power, self, other)

    def maximum(self, other: TensorLike) -> Tensor:
        """The larger one; NaN where either is NaN."""
        return _binary(Op.MAX, self, other)

    def minimum(self, other: TensorLike) -> Tensor:
        """The smaller one; NaN where either is NaN."""
        return _binary(Op.MIN, self, other)

    def clip(self, low: TensorLike | None = None, high: TensorLike | None = None) -> Tensor:
        """At least ``low`` and at most ``high``; None is no bound."""
        bounded = self if low is None else self.maximum(low)
        return bounded if high is None else bounded.minimum(high)

    def where(self, a: TensorLike, b: TensorLike) -> Tensor:
        """``a`` where this bool tensor holds, else ``b``."""
        return apply("where", ew.where, self, a, b)

    def abs(self) -> Tensor:
        """The absolute value."""
        return self._with(ew.unary(Op.ABS, self.node))

    def floor(self) -> Tensor:
        """The largest whole number that is not larger."""
        return self._with(ew.unary(Op.FLOOR, self.node))

    def ceil(self) -> Tensor:
        """The smallest whole number that is not smaller."""
        return -(-self).floor() if self.dtype.is_float else self

    def exp(self) -> Tensor:
        """e to this power."""
        return self._with(ew.float_function(Op.EXP, self.node))

    def log(self) -> Tensor:
        """The natural logarithm."""
        return self._with(ew.float_function(Op.LOG, self.node))

    def sqrt(self) -> Tensor:
        """The square root; NaN below zero."""
        return self._with(ew.float_function(Op.SQRT, self.node))

    def rsqrt(self) -> Tensor:
        """1 / sqrt."""
        wide = self.cast(self.dtype.compute)
        return wide.sqrt().reciprocal().cast(self.dtype if self.dtype.is_float else F32)

    def reciprocal(self) -> Tensor:
        """1 / self."""
        return self._with(ew.float_function(Op.RECIP, self.node))

    def sin(self) -> Tensor:
        """The sine of radians."""
        return self._with(ew.float_function(Op.SIN, self.node))

    def tanh(self) -> Tensor:
        """The hyperbolic tangent."""
        return self._with(ew.float_function(Op.TANH, self.node))

    def erf(self) -> Tensor:
        """The error function."""
        return self._with(ew.float_function(Op.ERF, self.node))

    def relu(self) -> Tensor:
        """The larger of self and zero; NaN stays NaN."""
        return self.maximum(0)

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-self))."""
        return functional.sigmoid(self)

    def silu(self) -> Tensor:
        """self * sigmoid(self)."""
        wide = self.cast(self.dtype.compute)
        return (wide * wide.sigmoid()).cast(self.dtype if self.dtype.is_float else F32)

    def gelu(self, approximate: Literal["none", "tanh"] = "none") -> Tensor:
        """The Gaussian error linear unit, by erf or by its tanh approximation."""
        return functional.gelu(self, approximate)

    def leaky_relu(self, slope: float = 0.01) -> Tensor:
        """self where positive, else slope * self."""
        return functional.leaky_relu(self, slope)

    def cast(self, dtype: DTypeLike) -> Tensor:
        """Converted; float to int truncates, anything to bool is ``!= 0``."""
        return self._with(graph.cast(self.node, dtype_of(dtype)))

    astype = cast

    def full_like(self, value: Scalar, dtype: DTypeLike | None = None) -> Tensor:
        """``value`` in this shape (and dtype, unless given)."""
        kind = self.dtype if dtype is None else dtype_of(dtype)
        return Tensor.of(ew.constant(value, self.shape, kind, "full_like"))

    # ---- reductions

    def sum(
        self, axis: Axes = None, keepdims: bool = False, accumulate: DTypeLike | None = None
    ) -> Tensor:
        """Sums over ``axis``; None is all axes.

        Integers and bools give i64, or what they accumulate in.
        """
        return self._with(reduction.fold(Op.ADD, self.node, axis, keepdims, accumulate))

    def prod(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Products over ``axis``. Integers and bools give i64."""
        return self._with(reduction.fold(Op.MUL, self.node, axis, keepdims))

    def max(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The largest over ``axis``; NaN if one is."""
        return self._with(reduction.fold(Op.MAX, self.node, axis, keepdims))

    def min(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The smallest over ``axis``; NaN if one is."""
        return self._with(reduction.fold(Op.MIN, self.node, axis, keepdims))

    def mean(
        self, axis: Axes = None, keepdims: bool = False, accumulate: DTypeLike | None = None
    ) -> Tensor:
        """The average over ``axis``."""
        return functional.mean(self, axis, keepdims, accumulate)

    def var(self, axis: Axes = None, keepdims: bool = False, correction: int = 1) -> Tensor:
        """The variance over ``axis``, divided by ``count - correction``."""
        return functional.var(self, axis, keepdims, correction)

    def std(self, axis: Axes = None, keepdims: bool = False, correction: int = 1) -> Tensor:
        """The standard deviation over ``axis``."""
        return functional.std(self, axis, keepdims, correction)

    def softmax(self, axis: int = -1) -> Tensor:
        """exp(self) over its sum along ``axis``."""
        return functional.softmax(self, axis)

    def log_softmax(self, axis: int = -1) -> Tensor:
        """The logarithm of softmax."""
        return functional.log_softmax(self, axis)

    def matmul(self, other: TensorLike, accumulate: DTypeLike | None = None) -> Tensor:
        """``self @ other``, its sums in ``accumulate``: f32 or f64 for floats, at least as wide as
        the operands.
        """
        fold = functools.partial(reduction.matmul, accumulate=accumulate)
        return apply("matmul", fold, self, _tensor(other, "matmul"))

    def __matmul__(self, other: TensorLike) -> Tensor:
        return apply("matmul", reduction.matmul, self, _tensor(other, "matmul"))

    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return apply("matmul", reduction.matmul, _tensor(other, "matmul"), self)

    # ---- movement

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The same elements under another shape; one extent may be -1."""
        return self._with(movement.reshape(self.node, movement.flat(shape)))

    def permute(self, *order: int | Sequence[int]) -> Tensor:
        """Dimensions in another order."""
        return self._with(movement.permute(self.node, movement.flat(order)))

    def transpose(self, a: int = -2, b: int = -1) -> Tensor:
        """Two dimensions exchanged."""
        return self._with(movement.swap(self.node, a, b))

    @property
    def T(self) -> Tensor:  # noqa: N802 - numpy's name
        """All dimensions reversed."""
        return self._with(movement.permute(self.node, range(self.ndim)[::-1]))

    def expand(self, *shape: int | Sequence[int]) -> Tensor:
        """Repeated to a larger shape; -1 keeps an extent."""
        return self._with(movement.broadcast_to(self.node, movement.flat(shape), "expand"))

    def broadcast_to(self, shape: Sequence[int]) -> Tensor:
        """Repeated to ``shape``."""
        return self._with(movement.broadcast_to(self.node, movement.flat((shape,))))

    def pad(self, widths: Sequence[Sequence[int]], value: Scalar = 0) -> Tensor:
        """``value`` before and after each dimension: one pair for each."""
        return self._with(movement.pad(self.node, widths, value))

    def shrink(self, limits: Sequence[Sequence[int]]) -> Tensor:
        """The part ``begin <= i < end`` of each dimension."""
        return self._with(movement.shrink(self.node, limits))

    def flip(self, axis: Axes = None) -> Tensor:
        """Dimensions reversed; None is all of them."""
        return self._with(movement.flip(self.node, axis))

    def squeeze(self, axis: Axes = None) -> Tensor:
        """Dimensions of extent 1 removed; None is all of those."""
        return self._with(movement.squeeze(self.node, axis))

    def unsqueeze(self, axis: int) -> Tensor:
        """A new dimension of extent 1 in front of ``axis``."""
        return self._with(movement.unsqueeze(self.node, axis))

    def window(self, axis: int, size: int, stride: int = 1, dilation: int = 1) -> Tensor:
        """Sliding windows along ``axis``, the position inside a window as a new last dimension."""
        return self._with(movement.window(self.node, axis, size, stride, dilation))

    def __dlpack__(self, **options: object) -> object:
        """The values for another library (DLPack; bf16 goes as its bit patterns).

        What is computed goes out as the kernels stored it, without another copy. What a tensor
        holds goes out as a copy: who takes it may write to it, and tensors do not change.
        """
        return cast("Any", self.numpy()).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU, in DLPack's words."""
        return 1, 0

    def contiguous(
        self, layout: Sequence[int] | Layout | None = None, schedule: str | None = None
    ) -> Tensor:
        """A fence: this tensor is written to memory by a kernel of its own.

        ``layout``: the order in which its dimensions are stored, the last one contiguous ((0, 2, 3,
        1) keeps an image channels-last), or a Layout of its shape; default: as fusion chooses.
        ``schedule``: the action text of that kernel, which is then not searched. An output is
        row-major, whatever is asked: the fence is copied to it.

        Raises ShapeError for a layout that does not fit, IllegalAction for a schedule that does not
        parse; one that is not legal for the kernel raises when the model is compiled.
        """
        from tunegrad.opts import Schedule

        text = Schedule.parse(schedule).text if schedule else ""
        order = layout if layout is None or isinstance(layout, Layout) else tuple(layout)
        return self._with(graph.contiguous(self.node, order, text))

    def __getitem__(self, key: object) -> Tensor:
        return self._with(movement.index(self.node, key))

    # ---- networks

    def linear(
        self,
        weight: TensorLike,
        bias: TensorLike | None = None,
        accumulate: DTypeLike | None = None,
    ) -> Tensor:
        """``self @ weight.T + bias``."""
        return functional.linear(
            self, _tensor(weight, "linear"), _optional(bias, "linear"), accumulate
        )

    def layer_norm(
        self,
        weight: TensorLike | None = None,
        bias: TensorLike | None = None,
        eps: float = 1e-5,
        axes: Axes = -1,
    ) -> Tensor:
        """Zero mean and unit variance over ``axes``, then ``* weight + bias``."""
        p, q = _optional(weight, "layer_norm"), _optional(bias, "layer_norm")
        return functional.layer_norm(self, p, q, eps, axes)

    def batch_norm(
        self,
        weight: TensorLike | None,
        bias: TensorLike | None,
        mean: TensorLike,
        var: TensorLike,
        eps: float = 1e-5,
    ) -> Tensor:
        """Normalised by known statistics of the channels (axis 1)."""
        p, q = _optional(weight, "batch_norm"), _optional(bias, "batch_norm")
        return functional.batch_norm(
            self, p, q, _tensor(mean, "batch_norm"), _tensor(var, "batch_norm"), eps
        )

    def conv2d(
        self,
        weight: TensorLike,
        bias: TensorLike | None = None,
        stride: Pair = 1,
        padding: Pair | Literal["same", "valid"] = 0,
        dilation: Pair = 1,
        groups: int = 1,
        accumulate: DTypeLike | None = None,
    ) -> Tensor:
        """(N, C, H, W) with weight (O, C / groups, KH, KW)."""
        w, b = _tensor(weight, "conv2d"), _optional(bias, "conv2d")
        return functional.conv2d(self, w, b, stride, padding, dilation, groups, accumulate)

    def max_pool2d(
        self, size: Pair, stride: Pair | None = None, padding: Pair = 0, dilation: Pair = 1
    ) -> Tensor:
        """The largest element of each window."""
        return functional.max_pool2d(self, size, stride, padding, dilation)

    def avg_pool2d(
        self,
        size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        count_include_pad: bool = True,
    ) -> Tensor:
        """The average of each window."""
        return functional.avg_pool2d(self, size, stride, padding, count_include_pad)

    def global_avg_pool2d(self) -> Tensor:
        """The average of each channel: (N, C, 1, 1)."""
        return functional.global_avg_pool2d(self)

    def adaptive_avg_pool2d(self, size: Pair) -> Tensor:
        """Averages of equal windows, ``size`` of them."""
        return functional.adaptive_avg_pool2d(self, size)

    def one_hot(self, classes: int) -> Tensor:
        """Ones at these positions along a new last axis."""
        return functional.one_hot(self, classes)

    def _with(self, node: Node) -> Tensor:
        return Tensor.of(node, self.bindings)


TensorLike = Tensor | Scalar | ArrayLike


def joined(tensors: Sequence[Tensor]) -> Bindings:
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
    if not any(isinstance(x, Tensor) for x in lifted):
        lifted[0] = _tensor(operands[0], op)
    tensors = [x for x in lifted if isinstance(x, Tensor)]
    return Tensor.of(
        function(*(x.node if isinstance(x, Tensor) else x for x in lifted)), joined(tensors)
    )


def _operand(x: TensorLike, op: str) -> Tensor | Scalar:
    """Numbers stay, numpy's scalars as Python's (as in PyTorch: they are weak, whatever their
    dtype); arrays and lists become tensors.
    """
    if isinstance(x, np.generic) and x.dtype.kind in "biuf":
        return x.item()  # type: ignore[no-any-return]
    if isinstance(x, Tensor | bool | int | float):
        return x
    if isinstance(x, np.ndarray | list | tuple):
        return Tensor(x)
    raise DTypeError(f"{op}: {x!r} of type {type(x).__name__} is not a tensor, array or number")


def _tensor(x: TensorLike, op: str) -> Tensor:
    lifted = _operand(x, op)
    return (
        lifted
        if isinstance(lifted, Tensor)
        else Tensor.of(ew.constant(lifted, (), ew.result_type(lifted), op))
    )


def _optional(x: TensorLike | None, op: str) -> Tensor | None:
    return None if x is None else _tensor(x, op)


def _binary(op: Op, a: TensorLike, b: TensorLike) -> Tensor:
    return apply(str(op), functools.partial(ew.binary, op), a, b)


def _bitwise(op: Op, a: TensorLike, b: TensorLike) -> Tensor:
    return apply(str(op), functools.partial(ew.bitwise, op), a, b)


def _compare(name: str, a: TensorLike, b: TensorLike) -> Tensor:
    return apply(name, functools.partial(ew.compare, name), a, b)


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
