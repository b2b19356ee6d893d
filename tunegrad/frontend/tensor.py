"""Tensor: a handle on a graph node, with PyTorch's methods and numpy's operators. A write to it
gives it another node (``aliasing``).

Nothing is computed until ``numpy()``. Data given to ``Tensor(data)`` become an INPUT node with a
name of its own, and the handle carries the array (``bindings``): kernels depend on shapes and
dtypes, never on values. Weights are made by ``Tensor.constant``: their values are part of the
graph.

    x = Tensor(a)                       INPUT #0, bindings {"#0": a}
    w = Tensor.constant(b, name="w")    CONST w
    y = (x @ w).relu()                  MAP max(REDUCE add(MAP mul(..)), FULL 0), bindings {"#0": a}

Operations of one or two nodes are methods of ``Handle``. All others are functions in ``ops/``; the
class body lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from sys import modules
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunegrad import errors
from tunegrad.ir import dtypes, graph
from tunegrad.lazy import unknown

from . import aliasing, handle
from .nodes import arrays, substitute, tracing
from .nodes import elementwise as ew
from .nodes.movement import Axes, extents, flat
from .operation import in_place
from .ops import (
    activation,
    arithmetic,
    convolution,
    indexing,
    losses,
    movement,
    normalisation,
    ordering,
    parts,
    pooling,
    products,
    reduction,
    resizing,
    special,
)
from .spelling import spelled

P = ParamSpec("P")

_SHOWN_ELEMENTS, _SHOWN_NODES, _SHOWN_WORK = 1000, 300, 200_000
"""Most that ``repr`` computes: elements of the result, nodes, and elements of all nodes."""


def giving_tensors(function: Callable[P, handle.Handle]) -> Callable[P, Tensor]:
    """``function``, whose results are tensors: the class of all handles is ``Tensor``."""
    return cast("Callable[P, Tensor]", function)


apply = giving_tensors(handle.apply)
lift = giving_tensors(handle.lift)
where = giving_tensors(handle.where)


def _value_of(x: handle.Handle) -> NDArray[np.generic]:
    # inference stands above the front end, and is the only place where the stages are composed
    home = "tunegrad.inference"
    realize: Any = getattr(modules.get(home), "realize", None)  # None while another thread imports
    return cast("NDArray[np.generic]", (realize or import_module(home).realize)([x])[0])


_NOT_HERE = {
    "the order in memory is by rows, and not shown; slices, expand() and unfold() are views":
        "as_strided as_strided_ as_strided_scatter data_ptr resize_ resize_as_ set_ storage",
    "the shape of a tensor does not change; use the method without _":
        "squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_",
    "there are no complex numbers":
        "angle cdouble cfloat chalf conj conj_physical imag is_complex istft real stft",
    "there are no sparse tensors":
        "coalesce indices is_sparse sparse_mask to_sparse to_sparse_coo to_sparse_csr values",
    "floats are not read as bits; use numpy's on numpy()": "frexp nextafter nextafter_",
    "gradients are rewrites of the graph; use tg.grad of a function":
        "grad_fn register_hook register_post_accumulate_grad_hook",
    "a device is chosen where a function is compiled or a model is loaded":
        "cuda device get_device is_cuda pin_memory xpu",
}  # fmt: skip
"""Why a Tensor has not these methods of PyTorch's."""


class Tensor(handle.Handle):
    """An array that is known, or that is computed when it is asked for (``numpy``, ``item``).

    ``Tensor(data, dtype=None)`` copies an array, list or number (bf16: values, or bit patterns in
    ``uint16``). ``requires_grad``: ``backward`` adds its gradient to ``grad``.
    """

    __slots__ = ()

    def __init__(
        self,
        data: ArrayLike | Tensor,
        dtype: arrays.DTypeLike | None = None,
        requires_grad: bool = False,
    ) -> None:
        if isinstance(data, Tensor):
            source = data if dtype is None else data.cast(dtype)
            self.pending = None
            self.node, self.bindings = source.node, source.bindings
        else:
            self.pending = handle.Pending.of(*arrays.held(data, dtype))
        self.leaf = None
        if requires_grad:
            self.requires_grad_()

    @staticmethod
    def _sharing(data: ArrayLike, dtype: arrays.DTypeLike | None = None) -> Tensor:
        """A tensor whose memory is that of an array, which may still be written to.

        Raises ValueError where it would have to be copied.
        """
        return Tensor.of(*handle.bound(*arrays.held(data, dtype, share=True)))

    @staticmethod
    def input(name: str, shape: Sequence[int], dtype: arrays.DTypeLike = dtypes.F32) -> Tensor:
        """A tensor whose value the caller supplies when the compiled graph runs."""
        if not name or name.startswith("#"):
            raise errors.ModelError(f"input name {name!r} must not be empty or start with '#'")
        return Tensor.of(graph.graph_input(name, extents("input", shape), dtypes.dtype_of(dtype)))

    @staticmethod
    def constant(data: ArrayLike, dtype: arrays.DTypeLike | None = None, name: str = "") -> Tensor:
        """An array that is part of the program (a weight)."""
        array, kind = arrays.held(data, dtype)
        return Tensor.of(graph.const(array, kind, name))

    @spelled
    def new_full(
        self, size: Sequence[int], fill_value: ew.Scalar, dtype: arrays.DTypeLike | None = None
    ) -> Tensor:
        """``fill_value`` everywhere, in this dtype unless given."""
        kind = self.dtype if dtype is None else dtypes.dtype_of(dtype)
        return Tensor.of(ew.constant(fill_value, extents("new_full", size), kind))

    @spelled
    def new_zeros(self, *size: Any, dtype: arrays.DTypeLike | None = None) -> Tensor:
        """Zeros, in this dtype unless given."""
        return self.new_full(flat(size), 0, dtype)

    @spelled
    def new_ones(self, *size: Any, dtype: arrays.DTypeLike | None = None) -> Tensor:
        """Ones, in this dtype unless given."""
        return self.new_full(flat(size), 1, dtype)

    def new_tensor(self, data: ArrayLike, dtype: arrays.DTypeLike | None = None) -> Tensor:
        """A tensor of data, in this dtype unless given."""
        return Tensor(data, self.dtype if dtype is None else dtype)

    # ---- what it is

    if not TYPE_CHECKING:  # which know its attributes

        def __getattr__(self, name):
            if name in ("node", "bindings"):
                return self._made_now(name)
            if name.startswith("_") or hasattr(Tensor, name):  # a property's own error
                return object.__getattribute__(self, name)
            for why, names in _NOT_HERE.items():
                if name in names.split():
                    # With its name Python would suggest another one.
                    raise AttributeError(f"Tensor.{name} is not there: {why}", name="")
            raise unknown("Tensor", name, lambda: dir(Tensor))

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
            plain = tracing.without_identities((self.node,))
            nodes = graph.topological(plain)
            if len(nodes) > _SHOWN_NODES or sum(n.size for n in nodes) > _SHOWN_WORK:
                return None
            if any(n.op is graph.GraphOp.INPUT and n.arg not in self.bindings for n in nodes):
                return None
            from tunegrad.ir.interpret.evaluate import evaluate

            (known,) = evaluate(plain, self.bindings)
        return arrays.bf16_values(known) if self.dtype == dtypes.BF16 else known

    def _known(self) -> NDArray[np.generic] | None:
        """The array that it holds, if it is one."""
        node = self.node
        while node.op is graph.GraphOp.IDENTITY:
            node = node.srcs[0]
        if node.op is graph.GraphOp.INPUT:
            return self.bindings.get(str(node.arg))
        if node.op is graph.GraphOp.CONST:
            return cast(graph.ConstData, node.arg).array
        return None

    def __bool__(self) -> bool:
        nodes = graph.topological((self.node,))
        known = all(n.op is not graph.GraphOp.INPUT or n.arg in self.bindings for n in nodes)
        if self.node.size != 1 or not known:
            raise errors.DTypeError(
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
            raise errors.DTypeError(f"index: {self.describe()} is not an integer")
        return int(self.item())

    def __reduce__(self) -> tuple[object, ...]:
        (node,) = tracing.without_identities((self.node,))
        return _restored, (node, dict(self.bindings), self.leaf is not None and self.leaf.required)

    # ---- values

    @spelled
    def nonzero(self, *, as_tuple: bool = False) -> Any:
        """Places of elements that are not 0, i64 (count, ndim), or a tuple of one tensor for each
        dimension.

        How many there are depends on values, so the tensor is computed; errors as ``numpy``'s.
        """
        x = self.reshape(1) if as_tuple and not self.shape else self
        found = np.argwhere((x != 0).numpy())
        return tuple(map(Tensor, np.ascontiguousarray(found.T))) if as_tuple else Tensor(found)

    def argwhere(self) -> Tensor:
        """``nonzero``, by numpy's name."""
        return cast("Tensor", self.nonzero())

    def masked_select(self, mask: handle.TensorLike) -> Tensor:
        """The elements where a mask holds, which broadcasts, in a row; the mask is computed."""
        held = lift(mask, "masked_select")
        if not held.dtype.is_bool:
            raise errors.DTypeError(f"masked_select: the mask is {held.dtype}, it must be bool")
        shape = ew.broadcast_shapes("masked_select", self.shape, held.shape)
        return self.broadcast_to(shape).ravel()[held.broadcast_to(shape).numpy().ravel()]

    def numpy(self) -> NDArray[np.generic]:
        """Compute it. bf16 comes as its bit patterns in ``uint16``.

        Raises:
            ModelError: it depends on an input that has no value, or on an argument of a function
            that is being differentiated.
        """
        if type(self) is View:
            if (part := handle.part_in_order(self)) is not None:
                return part.copy()
            if (seen := handle.pending_of(self)) is not None:
                return Tensor._later(seen).numpy()
        pending = self.pending
        if pending is not None:  # of known arrays, and without gradients
            if pending.function is None:
                return pending.parts[0].copy()  # type: ignore[no-any-return]
            found = pending.computed()
            return _value_of(self) if found is None else found
        if self.node.op is graph.GraphOp.INPUT and self.node.arg in self.bindings:
            return self.bindings[str(self.node.arg)].copy()
        traced = tracing.tracing() and self.dtype.is_float  # nothing flows through integers
        reached = tracing.arguments_of([self.node]) if traced else ()
        if any(not isinstance(n.arg, tracing.Leaf) for n in reached):
            raise errors.ModelError(
                f"numpy: {self.describe()} depends on an argument that is differentiated; use "
                "detach()"
            )
        for node in graph.topological((self.node,)):
            if node.op is graph.GraphOp.IDENTITY:
                (plain,) = tracing.without_identities((self.node,))
                return self._with(plain).numpy()
            if node.op is graph.GraphOp.INPUT and node.arg not in self.bindings:
                raise errors.ModelError(
                    f"numpy: input {node.arg!r} of {self.describe()} has no value; compile it and "
                    "pass one"
                )
        return _value_of(self)

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

    def item(self) -> ew.Scalar:
        """The only element, as a Python number."""
        if self.node.size != 1:
            raise errors.ShapeError(
                f"item: shape {self.shape} has {self.node.size} elements, not one"
            )
        return cast("ew.Scalar", self.detach().cast(self.dtype.compute).numpy().item())

    def tolist(self) -> Any:
        """Its values as nested lists of Python numbers."""
        return self.detach().cast(self.dtype.compute).numpy().tolist()

    def realize(self) -> Tensor:
        """Itself, computed now with all that it is a view of: from now on it is its values."""
        root = cast("Tensor", aliasing.root_of(self))
        if root._known() is None:
            aliasing.computed(root, root.numpy())
        return self

    def __dlpack__(self, **options: object) -> object:
        """The values for another library (DLPack). numpy has no bf16: it takes ``numpy()``.

        A computed result goes out as the kernels stored it, without another copy. An array that a
        tensor holds goes out as a copy: its taker may write to it, and results that are not
        computed yet still need it. With ``copy=False`` it goes out itself, to be read only.
        """
        values = self.__array__(copy=False) if options.get("copy") is False else self.numpy()
        if self.dtype != dtypes.BF16:
            return cast("Any", values).__dlpack__(**options)
        from tunegrad.devices import dlpack

        options.pop("max_version", None)
        return dlpack.as_bf16(cast("Any", values).__dlpack__(**options))

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU, in DLPack's words."""
        return 1, 0

    # ---- writes

    def assign(self, other: handle.TensorLike) -> Tensor:
        """Give it the elements of ``other``, of its shape and dtype.

        Raises ShapeError, DTypeError, and GradientError as ``add_``.
        """
        y = lift(other, "assign")
        if y.shape != self.shape or y.dtype != self.dtype:
            raise (errors.ShapeError if y.shape != self.shape else errors.DTypeError)(
                f"assign: {y.dtype}{list(y.shape)} to {self.dtype}{list(self.shape)}"
            )
        aliasing.write(self, y.node, y)
        return self

    @spelled
    def copy_(self, src: handle.TensorLike) -> Tensor:
        """Give it the elements of ``src``, broadcast and converted."""
        self[...] = src
        return self

    def fill_(self, value: ew.Scalar | Tensor) -> Tensor:
        """Give all elements one value, a number or a tensor of shape ().

        Raises ShapeError for a tensor of another shape.
        """
        if isinstance(value, Tensor) and value.shape:
            raise errors.ShapeError(f"fill_: a value of shape {value.shape}; it must be a number")
        return self.copy_(value)

    def zero_(self) -> Tensor:
        """Give all elements the value zero."""
        return self.copy_(0)

    def become(self, array: NDArray[np.generic]) -> None:
        """Give it the elements of an array of its shape and dtype, which nothing writes to from now
        on. No gradient is recorded.
        """
        array.flags.writeable = False
        node, bindings = handle.bound(array, self.dtype)
        with tracing.no_grad():
            aliasing.write(self, node, Tensor.plain(node, bindings))

    # ---- gradients

    @property
    def requires_grad(self) -> bool:
        """True if ``backward`` finds its gradient, or that of a tensor that it is made of."""
        return handle.required(self)

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        self.requires_grad_(flag)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Let ``backward`` add its gradient to ``grad``, or no longer.

        Raises DTypeError for integers, GradientError for ``False`` where it is made of tensors that
        require a gradient.
        """
        if requires_grad or handle.required(self):
            from .gradients import backward as backward_pass  # most processes differentiate nothing

            backward_pass.require(self, requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """True unless it is made of tensors that require a gradient."""
        return not self.requires_grad or (self.leaf is not None and self.leaf.required)

    @property
    def grad(self) -> Tensor | None:
        """The sum of what each ``backward`` found, since it was None."""
        return None if self.leaf is None else self.leaf.gradient

    @grad.setter
    def grad(self, gradient: Tensor | None) -> None:
        if gradient is not None and (self.leaf is None or gradient.shape != self.shape):
            raise errors.GradientError(f"grad: {gradient.describe()} for {self.describe()}")
        if self.leaf is not None:
            self.leaf.gradient = gradient

    def retain_grad(self) -> None:
        """Let ``backward`` keep its gradient, too, where it is no leaf.

        Raises GradientError for a tensor that has none.
        """
        from .gradients import backward as backward_pass

        backward_pass.retain(self)

    @property
    def data(self) -> Tensor:
        """As ``detach()``: a write to it is not recorded."""
        return self.detach()

    def backward(
        self,
        gradient: handle.TensorLike | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """Add the gradients of it to ``grad`` of each tensor that requires one.

        Computes it, these gradients, and all that was written in place since, by one program;
        inside a function that is compiled they are expressions. ``gradient``: what flows in, for a
        tensor of several elements. ``retain_graph``: it can be differentiated once more.
        ``create_graph``: gradients have gradients.

        Raises GradientError for a tensor that needs none, ShapeError for one of several elements
        without a ``gradient``.
        """
        from .gradients import backward as backward_pass

        backward_pass.backward(self, gradient, retain_graph, create_graph)

    # ---- comparisons that are computed now, copies, positions, extremes

    @spelled
    def equal(self, other: handle.TensorLike) -> bool:
        """True if shapes and all values are equal, computed now."""
        y = lift(other, "equal")
        return self.shape == y.shape and bool((self == y).all().item())

    @spelled
    def allclose(
        self,
        other: handle.TensorLike,
        rtol: float = 1e-5,
        atol: float = 1e-8,
        equal_nan: bool = False,
    ) -> bool:
        """True if all elements are close, computed now."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())

    def clone(self) -> Tensor:
        """The same values, which writes to the one tensor do not change in the other."""
        return self._with(self.node)

    def detach(self) -> Tensor:
        """A view of all elements, through which no gradient flows."""
        return self._moved(tracing.stopped)

    def cpu(self) -> Tensor:
        """self; values are computed where a model is compiled for."""
        return self

    def __getitem__(self, key: object) -> Tensor:
        from .ops.indexing import item

        return item(self, key)

    def __setitem__(self, key: object, value: handle.TensorLike) -> None:
        from .ops.indexing import set_item

        set_item(self, key, value)

    def __len__(self) -> int:
        if not self.shape:
            raise errors.DTypeError("len: a tensor of shape () has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    @overload
    def max(self, dim: int, keepdim: bool = False) -> Extreme: ...

    @overload
    def max(
        self, dim: Axes | handle.TensorLike = None, keepdim: bool = False, *, axis: Any = ...
    ) -> Tensor: ...

    @spelled
    def max(
        self, dim: Axes | handle.TensorLike = None, keepdim: bool = False, *, axis: Any = ...
    ) -> Tensor:
        """The largest over ``dim``; NaN if one is. Over one dimension it unpacks into values and
        indices (``values, indices = x.max(1)``); with ``axis=`` it does not, as in numpy. Of two
        tensors, the larger one of each place.
        """
        return self._extreme("max", dim, keepdim, axis)

    @overload
    def min(self, dim: int, keepdim: bool = False) -> Extreme: ...

    @overload
    def min(
        self, dim: Axes | handle.TensorLike = None, keepdim: bool = False, *, axis: Any = ...
    ) -> Tensor: ...

    @spelled
    def min(
        self, dim: Axes | handle.TensorLike = None, keepdim: bool = False, *, axis: Any = ...
    ) -> Tensor:
        """The smallest over ``dim``; the rest as in ``max``."""
        return self._extreme("min", dim, keepdim, axis)

    def _extreme(self, name: Literal["max", "min"], dim: Any, keepdim: bool, axis: Any) -> Tensor:
        fold = self.amax if name == "max" else self.amin
        if isinstance(dim, handle.Handle | np.ndarray | float):
            return self.maximum(dim) if name == "max" else self.minimum(dim)
        if axis is not ...:
            return fold(axis, keepdim)
        values = fold(dim, keepdim)
        if dim is None or isinstance(dim, list | tuple):
            return values

        def picked() -> handle.Handle:
            read = self.gather(dim, self.position_of(name, dim, True))
            return read if keepdim else read.squeeze(dim)

        values = handle.as_if(values, picked) if self.shape else values
        found = object.__new__(Extreme)
        found.leaf, found.pending = None, values.pending
        if values.pending is None:
            found.node, found.bindings = values.node, values.bindings
        found.source, found.place = self._with(self.node), (name, dim, keepdim)
        return found

    # ---- arithmetic

    add = arithmetic.add
    addcdiv = arithmetic.addcdiv
    addcmul = arithmetic.addcmul
    bitwise_and = arithmetic.bitwise_and
    bitwise_left_shift = arithmetic.bitwise_left_shift
    bitwise_not = arithmetic.bitwise_not
    bitwise_or = arithmetic.bitwise_or
    bitwise_right_shift = arithmetic.bitwise_right_shift
    bitwise_xor = arithmetic.bitwise_xor
    ceil = arithmetic.ceil
    clamp_max = arithmetic.clamp_max
    clamp_min = arithmetic.clamp_min
    copysign = arithmetic.copysign
    div = arithmetic.div
    eq = arithmetic.eq
    floor_divide = arithmetic.floor_divide
    fmax = arithmetic.fmax
    fmin = arithmetic.fmin
    fmod = arithmetic.fmod
    frac = arithmetic.frac
    ge = arithmetic.ge
    gt = arithmetic.gt
    heaviside = arithmetic.heaviside
    isclose = arithmetic.isclose
    isfinite = arithmetic.isfinite
    isinf = arithmetic.isinf
    isnan = arithmetic.isnan
    isneginf = arithmetic.isneginf
    isposinf = arithmetic.isposinf
    le = arithmetic.le
    lerp = arithmetic.lerp
    logical_and = arithmetic.logical_and
    logical_not = arithmetic.logical_not
    logical_or = arithmetic.logical_or
    logical_xor = arithmetic.logical_xor
    lt = arithmetic.lt
    masked_fill = arithmetic.masked_fill
    mul = arithmetic.mul
    nan_to_num = arithmetic.nan_to_num
    ne = arithmetic.ne
    remainder = arithmetic.remainder
    rsub = arithmetic.rsub
    sign = arithmetic.sign
    sgn = sign
    signbit = arithmetic.signbit
    sub = arithmetic.sub
    trunc = arithmetic.trunc
    greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
    subtract, multiply, divide, true_divide, fix = sub, mul, div, div, trunc

    # ---- special

    acos = special.acos
    acosh = special.acosh
    asin = special.asin
    asinh = special.asinh
    atan = special.atan
    atan2 = special.atan2
    atanh = special.atanh
    cosh = special.cosh
    deg2rad = special.deg2rad
    erfc = special.erfc
    erfinv = special.erfinv
    exp2 = special.exp2
    expm1 = special.expm1
    float_power = special.float_power
    hypot = special.hypot
    log10 = special.log10
    log1p = special.log1p
    logaddexp = special.logaddexp
    logaddexp2 = special.logaddexp2
    logit = special.logit
    rad2deg = special.rad2deg
    rsqrt = special.rsqrt
    sinc = special.sinc
    sinh = special.sinh
    tanh = special.tanh
    tan = special.tan
    xlogy = special.xlogy
    arccos, arccosh, arcsin, arcsinh = acos, acosh, asin, asinh
    arctan, arctan2, arctanh = atan, atan2, atanh

    # ---- movement

    broadcast_to = movement.broadcast_to
    chunk = movement.chunk
    diag = movement.diag
    diag_embed = movement.diag_embed
    diagflat = movement.diagflat
    diagonal = movement.diagonal
    expand_as = movement.expand_as
    expand_dims = movement.expand_dims
    flatten = movement.flatten
    fliplr = movement.fliplr
    flipud = movement.flipud
    movedim = movement.movedim
    pad = movement.pad
    repeat = movement.repeat
    repeat_interleave = movement.repeat_interleave
    roll = movement.roll
    rot90 = movement.rot90
    split = movement.split
    t = movement.t
    tensor_split = movement.tensor_split
    tile = movement.tile
    trace = movement.trace
    transpose = movement.transpose
    tril = movement.tril
    triu = movement.triu
    unbind = movement.unbind
    unflatten = movement.unflatten
    unfold = movement.unfold
    view_as = movement.view_as
    moveaxis, reshape_as = movedim, view_as

    # ---- indexing

    gather = indexing.gather
    index_add = indexing.index_add
    index_copy = indexing.index_copy
    index_fill = indexing.index_fill
    index_put = indexing.index_put
    index_reduce = indexing.index_reduce
    index_select = indexing.index_select
    one_hot = indexing.one_hot
    put = indexing.put
    scatter = indexing.scatter
    scatter_add = indexing.scatter_add
    scatter_reduce = indexing.scatter_reduce
    take = indexing.take
    take_along_dim = indexing.take_along_dim

    # ---- parts

    diagonal_scatter = parts.diagonal_scatter
    masked_scatter = parts.masked_scatter
    select_scatter = parts.select_scatter
    slice_scatter = parts.slice_scatter

    # ---- reduction

    aminmax = reduction.aminmax
    argmax = reduction.argmax
    argmin = reduction.argmin
    count_nonzero = reduction.count_nonzero
    dist = reduction.dist
    log_softmax = reduction.log_softmax
    logsumexp = reduction.logsumexp
    masked_softmax = reduction.masked_softmax
    nanmean = reduction.nanmean
    nansum = reduction.nansum
    norm = reduction.norm
    normalize = reduction.normalize
    position_of = reduction.position_of
    softmax = reduction.softmax
    softmin = reduction.softmin
    std = reduction.std
    std_mean = reduction.std_mean
    var = reduction.var
    var_mean = reduction.var_mean

    # ---- ordering

    argsort = ordering.argsort
    bucketize = ordering.bucketize
    corrcoef = ordering.corrcoef
    cov = ordering.cov
    cummax = ordering.cummax
    cummin = ordering.cummin
    cumprod = ordering.cumprod
    cumsum = ordering.cumsum
    diff = ordering.diff
    kthvalue = ordering.kthvalue
    logcumsumexp = ordering.logcumsumexp
    median = ordering.median
    msort = ordering.msort
    nanmedian = ordering.nanmedian
    quantile = ordering.quantile
    searchsorted = ordering.searchsorted
    sort = ordering.sort
    topk = ordering.topk

    # ---- activation

    celu = activation.celu
    elu = activation.elu
    gelu = activation.gelu
    glu = activation.glu
    hardshrink = activation.hardshrink
    hardsigmoid = activation.hardsigmoid
    hardswish = activation.hardswish
    hardtanh = activation.hardtanh
    leaky_relu = activation.leaky_relu
    logsigmoid = activation.logsigmoid
    mish = activation.mish
    prelu = activation.prelu
    relu = activation.relu
    relu6 = activation.relu6
    rrelu = activation.rrelu
    selu = activation.selu
    sigmoid = activation.sigmoid
    silu = activation.silu
    softplus = activation.softplus
    softshrink = activation.softshrink
    softsign = activation.softsign
    tanhshrink = activation.tanhshrink
    threshold = activation.threshold
    swish = silu

    # ---- products

    addbmm = products.addbmm
    addmm = products.addmm
    addmv = products.addmv
    addr = products.addr
    baddbmm = products.baddbmm
    bilinear = products.bilinear
    bmm = products.bmm
    cdist = products.cdist
    cosine_similarity = products.cosine_similarity
    cross = products.cross
    dot = products.dot
    inner = products.inner
    kron = products.kron
    linear = products.linear
    matmul = products.matmul
    matrix_power = products.matrix_power
    mm = products.mm
    mv = products.mv
    outer = products.outer
    pairwise_distance = products.pairwise_distance
    tensordot = products.tensordot
    ger, vdot = outer, dot

    # ---- convolution

    conv1d = convolution.conv1d
    conv2d = convolution.conv2d
    conv3d = convolution.conv3d
    conv_transpose1d = convolution.conv_transpose1d
    conv_transpose2d = convolution.conv_transpose2d
    conv_transpose3d = convolution.conv_transpose3d
    fold_columns = convolution.fold_columns
    unfold_columns = convolution.unfold_columns

    # ---- pooling

    adaptive_avg_pool1d = pooling.adaptive_avg_pool1d
    adaptive_avg_pool2d = pooling.adaptive_avg_pool2d
    adaptive_avg_pool3d = pooling.adaptive_avg_pool3d
    adaptive_max_pool1d = pooling.adaptive_max_pool1d
    adaptive_max_pool2d = pooling.adaptive_max_pool2d
    adaptive_max_pool3d = pooling.adaptive_max_pool3d
    avg_pool1d = pooling.avg_pool1d
    avg_pool2d = pooling.avg_pool2d
    avg_pool3d = pooling.avg_pool3d
    global_avg_pool2d = pooling.global_avg_pool2d
    lp_pool1d = pooling.lp_pool1d
    lp_pool2d = pooling.lp_pool2d
    max_pool1d = pooling.max_pool1d
    max_pool2d = pooling.max_pool2d
    max_pool3d = pooling.max_pool3d
    max_unpool1d = pooling.max_unpool1d
    max_unpool2d = pooling.max_unpool2d
    max_unpool3d = pooling.max_unpool3d

    # ---- resizing

    channel_shuffle = resizing.channel_shuffle
    grid_sample = resizing.grid_sample
    interpolate = resizing.interpolate
    pixel_shuffle = resizing.pixel_shuffle
    pixel_unshuffle = resizing.pixel_unshuffle

    # ---- normalisation

    batch_norm = normalisation.batch_norm
    group_norm = normalisation.group_norm
    instance_norm = normalisation.instance_norm
    layer_norm = normalisation.layer_norm
    local_response_norm = normalisation.local_response_norm
    rms_norm = normalisation.rms_norm

    # ---- losses

    binary_cross_entropy = losses.binary_cross_entropy
    binary_cross_entropy_with_logits = losses.binary_cross_entropy_with_logits
    cross_entropy = losses.cross_entropy
    hinge_embedding_loss = losses.hinge_embedding_loss
    huber_loss = losses.huber_loss
    kl_div = losses.kl_div
    l1_loss = losses.l1_loss
    mse_loss = losses.mse_loss
    nll_loss = losses.nll_loss
    poisson_nll_loss = losses.poisson_nll_loss
    smooth_l1_loss = losses.smooth_l1_loss
    soft_margin_loss = losses.soft_margin_loss

    # ---- in place

    add_ = in_place(arithmetic.add)
    addcdiv_ = in_place(arithmetic.addcdiv)
    addcmul_ = in_place(arithmetic.addcmul)
    bitwise_and_ = in_place(arithmetic.bitwise_and)
    bitwise_left_shift_ = in_place(arithmetic.bitwise_left_shift)
    bitwise_not_ = in_place(arithmetic.bitwise_not)
    bitwise_or_ = in_place(arithmetic.bitwise_or)
    bitwise_right_shift_ = in_place(arithmetic.bitwise_right_shift)
    bitwise_xor_ = in_place(arithmetic.bitwise_xor)
    ceil_ = in_place(arithmetic.ceil)
    clamp_max_ = in_place(arithmetic.clamp_max)
    clamp_min_ = in_place(arithmetic.clamp_min)
    copysign_ = in_place(arithmetic.copysign)
    div_ = in_place(arithmetic.div)
    eq_ = in_place(arithmetic.eq)
    floor_divide_ = in_place(arithmetic.floor_divide)
    fmod_ = in_place(arithmetic.fmod)
    frac_ = in_place(arithmetic.frac)
    ge_ = in_place(arithmetic.ge)
    gt_ = in_place(arithmetic.gt)
    heaviside_ = in_place(arithmetic.heaviside)
    le_ = in_place(arithmetic.le)
    lerp_ = in_place(arithmetic.lerp)
    logical_and_ = in_place(arithmetic.logical_and)
    logical_not_ = in_place(arithmetic.logical_not)
    logical_or_ = in_place(arithmetic.logical_or)
    logical_xor_ = in_place(arithmetic.logical_xor)
    lt_ = in_place(arithmetic.lt)
    masked_fill_ = in_place(arithmetic.masked_fill)
    mul_ = in_place(arithmetic.mul)
    nan_to_num_ = in_place(arithmetic.nan_to_num)
    ne_ = in_place(arithmetic.ne)
    remainder_ = in_place(arithmetic.remainder)
    sign_ = in_place(arithmetic.sign)
    sgn_ = sign_
    sub_ = in_place(arithmetic.sub)
    trunc_ = in_place(arithmetic.trunc)
    acos_ = in_place(special.acos)
    acosh_ = in_place(special.acosh)
    asin_ = in_place(special.asin)
    asinh_ = in_place(special.asinh)
    atan_ = in_place(special.atan)
    atan2_ = in_place(special.atan2)
    atanh_ = in_place(special.atanh)
    cosh_ = in_place(special.cosh)
    deg2rad_ = in_place(special.deg2rad)
    erfc_ = in_place(special.erfc)
    erfinv_ = in_place(special.erfinv)
    exp2_ = in_place(special.exp2)
    expm1_ = in_place(special.expm1)
    float_power_ = in_place(special.float_power)
    hypot_ = in_place(special.hypot)
    log10_ = in_place(special.log10)
    log1p_ = in_place(special.log1p)
    logit_ = in_place(special.logit)
    rad2deg_ = in_place(special.rad2deg)
    rsqrt_ = in_place(special.rsqrt)
    sinc_ = in_place(special.sinc)
    sinh_ = in_place(special.sinh)
    tan_ = in_place(special.tan)
    xlogy_ = in_place(special.xlogy)
    abs_ = in_place(handle.Handle.abs)
    clamp_ = in_place(handle.Handle.clamp)
    cos_ = in_place(handle.Handle.cos)
    erf_ = in_place(handle.Handle.erf)
    exp_ = in_place(handle.Handle.exp)
    floor_ = in_place(handle.Handle.floor)
    log_ = in_place(handle.Handle.log)
    log2_ = in_place(handle.Handle.log2)
    neg_ = in_place(handle.Handle.neg)
    pow_ = in_place(handle.Handle.pow)
    reciprocal_ = in_place(handle.Handle.reciprocal)
    round_ = in_place(handle.Handle.round)
    sin_ = in_place(handle.Handle.sin)
    sqrt_ = in_place(handle.Handle.sqrt)
    square_ = in_place(handle.Handle.square)
    tanh_ = in_place(special.tanh)
    index_add_ = in_place(indexing.index_add)
    index_copy_ = in_place(indexing.index_copy)
    index_fill_ = in_place(indexing.index_fill)
    index_put_ = in_place(indexing.index_put)
    index_reduce_ = in_place(indexing.index_reduce)
    masked_scatter_ = in_place(parts.masked_scatter)
    put_ = in_place(indexing.put)
    scatter_ = in_place(indexing.scatter)
    scatter_add_ = in_place(indexing.scatter_add)
    scatter_reduce_ = in_place(indexing.scatter_reduce)
    tril_ = in_place(movement.tril)
    triu_ = in_place(movement.triu)
    cumprod_ = in_place(ordering.cumprod)
    cumsum_ = in_place(ordering.cumsum)
    celu_ = in_place(activation.celu)
    elu_ = in_place(activation.elu)
    hardtanh_ = in_place(activation.hardtanh)
    leaky_relu_ = in_place(activation.leaky_relu)
    relu_ = in_place(activation.relu)
    relu6_ = in_place(activation.relu6)
    selu_ = in_place(activation.selu)
    sigmoid_ = in_place(activation.sigmoid)
    silu_ = in_place(activation.silu)
    threshold_ = in_place(activation.threshold)
    addbmm_ = in_place(products.addbmm)
    addmm_ = in_place(products.addmm)
    addmv_ = in_place(products.addmv)
    addr_ = in_place(products.addr)
    baddbmm_ = in_place(products.baddbmm)
    greater_, greater_equal_, less_, less_equal_, not_equal_ = gt_, ge_, lt_, le_, ne_
    subtract_, multiply_, divide_, true_divide_, fix_ = sub_, mul_, div_, div_, trunc_
    arccos_, arccosh_, arcsin_, arcsinh_ = acos_, acosh_, asin_, asinh_
    arctan_, arctan2_, arctanh_ = atan_, atan2_, atanh_
    absolute_, negative_, clip_ = abs_, neg_, clamp_
    __iadd__, __isub__, __imul__, __itruediv__ = add_, sub_, mul_, div_
    __ifloordiv__, __imod__, __ipow__ = floor_divide_, remainder_, pow_
    __iand__, __ior__, __ixor__ = bitwise_and_, bitwise_or_, bitwise_xor_
    __ilshift__, __irshift__ = bitwise_left_shift_, bitwise_right_shift_

    # ---- types, whose names are Python's, and so come last

    def type(self, dtype: arrays.DTypeLike) -> Tensor:
        """Converted to ``dtype``."""
        return self.cast(dtype)

    def to(self, dtype: arrays.DTypeLike) -> Tensor:
        """Converted to ``dtype``. Which device a tensor is on is not its own business here.

        Raises DTypeError for what is no dtype, as the name of a device.
        """
        from tunegrad.devices import known

        if isinstance(dtype, str) and dtype.partition(":")[0] in known():
            raise errors.DTypeError(
                f"to: {dtype!r} names a device, and a tensor is on none; a compiled function is: "
                f"tg.compile(..., device={dtype!r})"
            )
        return self.cast(dtype)

    @spelled
    def type_as(self, other: Tensor) -> Tensor:
        """Converted to the dtype of ``other``."""
        return self.cast(other.dtype)

    def double(self) -> Tensor:
        """As f64."""
        return self.cast("f64")

    def half(self) -> Tensor:
        """As f16."""
        return self.cast("f16")

    def bfloat16(self) -> Tensor:
        """As bf16."""
        return self.cast("bf16")

    def long(self) -> Tensor:
        """As i64."""
        return self.cast("i64")

    def float(self) -> Tensor:
        """As f32."""
        return self.cast("f32")

    def int(self) -> Tensor:
        """As i32."""
        return self.cast("i32")

    def bool(self) -> Tensor:
        """True where an element is other than zero."""
        return self.cast("bool")


class View(aliasing.Aliased, Tensor):
    """A tensor that shares its elements with another one: a slice, a transpose, another shape."""

    __slots__ = ()

    __init__ = aliasing.Aliased.__init__


handle.Handle.result = Tensor
handle.Handle.viewed = View


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
        if self.pending is not None:
            return Tensor._later(self.pending)
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


def _restored(
    node: graph.Node, bindings: dict[str, NDArray[np.generic]], requires_grad: bool = False
) -> Tensor:
    """A pickled tensor: its known inputs get names that are new in this process."""
    names = {name: handle.own_name() for name in bindings}
    renamed = {
        n: graph.graph_input(names[str(n.arg)], n.shape, n.dtype)
        for n in graph.topological((node,))
        if n.op is graph.GraphOp.INPUT and n.arg in names
    }
    (root,) = substitute((node,), renamed)
    known = MappingProxyType({names[name]: array for name, array in bindings.items()})
    return Tensor.of(root, known).requires_grad_(requires_grad)
