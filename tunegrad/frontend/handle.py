"""The handle on a graph node, with the operations that are one or two nodes: arithmetic, movement,
folds. All others are functions of handles in ``ops/``, and methods of ``Tensor``.

A method takes and gives handles; what it does to nodes stands in ``elementwise``, ``movement`` and
``folds``. Results are of the class that ``Handle.result`` names, which is ``Tensor``.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tunegrad.errors import AxisError, DTypeError, ShapeError
from tunegrad.forks import ForkSafeLock
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32, I8, I16, I32, I64, U8, U16, U32, DType, dtype_of
from tunegrad.ir.expr import Op
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.layout import Layout

from .nodes import elementwise as ew
from .nodes import folds, movement, tracing
from .nodes.arrays import DTypeLike, held
from .nodes.elementwise import Scalar
from .nodes.folds import accumulator
from .nodes.movement import Axes, axes_of, axis_of, extents, flat, integer
from .spelling import spelled

Bindings = Mapping[str, NDArray[np.generic]]
NOTHING: Bindings = MappingProxyType({})

_NUMBERS = itertools.count()
_NUMBERS_OF = frozenset((bool, int, float))
_VIA = {I8: I32, U8: I32, I16: I32, U16: I32, U32: I64}
"""Types that floats become on their way to a type, so that they wrap around."""


class Count(int):
    """Elements in all, as numpy's ``size``; called, the extents, as PyTorch's ``size()``."""

    shape: tuple[int, ...]

    def __new__(cls, shape: tuple[int, ...], elements: int) -> Count:
        count = super().__new__(cls, elements)
        count.shape = shape
        return count

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[axis_of("size", dim, self.shape)]


_building = ForkSafeLock()
Run = Callable[[Sequence[int]], Sequence[Any]]


class Known:
    """The shape and dtype of results of one form; see ``Pending``. ``runs`` compute one from the
    addresses of its arrays, by which of these are the same one; plans that are kept put them there,
    each with what it runs on, which a call holds.
    """

    __slots__ = ("dtype", "runs", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: DType) -> None:
        self.shape, self.dtype = shape, dtype
        self.runs: dict[tuple[int, ...], tuple[Run, object]] = {}


_RESULTS: dict[tuple[Any, ...], Known] = {}
_MOST_RESULTS, _MOST_PARTS = 4096, 16


class Pending:
    """A result whose node is made when something asks for it: an operation on known arrays, on
    numbers, and on other such results. Immutable.

    ``form`` is all that a plan depends on but for which arrays are the same one: ``(shape, dtype)``
    of an array, and ``(operation, forms)`` of a result.
    """

    __slots__ = ("_at", "_made", "form", "function", "known", "parts", "size")

    def __init__(
        self,
        form: tuple[Any, ...],
        function: Callable[..., Node] | None,
        parts: tuple[Any, ...],
        known: Known | None,
        size: int,
    ) -> None:
        self.form, self.function, self.parts, self.size = form, function, parts, size
        self._made: tuple[Node, Bindings] | None = None
        self._at = -1  # address of a known array, found when it is needed; 0: it is no good
        self.known = known or self._infer()

    @classmethod
    def of(cls, array: NDArray[np.generic], dtype: DType) -> Pending:
        """A known array."""
        form = array.shape, dtype.name
        known = _RESULTS.get(form) or _remember(form, Known(array.shape, dtype))
        return cls(form, None, (array,), known, 1)

    def _infer(self) -> Known:
        """Find its shape and dtype by its node; raises what the operation does."""
        node, _ = self.build()
        return _remember(self.form, Known(node.shape, node.dtype))

    def build(self) -> tuple[Node, Bindings]:
        """Its node, and the arrays of that."""
        with _building:
            if self._made is None:
                if self.function is None:
                    self._made = bound(self.parts[0], self.known.dtype)
                elif _is_made_at_once():  # it was asked for before, and elsewhere
                    with tracing.apart():
                        self._made = self._build(self.function)
                else:
                    self._made = self._build(self.function)
            return self._made

    def _build(self, function: Callable[..., Node]) -> tuple[Node, Bindings]:
        made = [p.build() if isinstance(p, Pending) else (p, NOTHING) for p in self.parts]
        nodes, bindings = zip(*made, strict=True)
        return function(*nodes), _united(bindings)

    def leaves(self) -> tuple[tuple[int, ...], list[Pending]]:
        """Its arrays in order, each once; and the place of each operand among them, where one is
        there twice.
        """
        first, last, count = self.parts[0], self.parts[-1], len(self.parts)
        if (  # one operation, as most are
            count <= 2 and type(first) is type(last) is Pending
            and first.function is last.function is None
            and (count == 1 or first.parts[0] is not last.parts[0])
        ):  # fmt: skip
            return (), list(self.parts)
        found: dict[int, Pending] = {}
        places: list[int] = []
        left = [self]
        while left:
            for part in left.pop().parts:
                if type(part) is Pending:
                    if part.function is None:
                        places.append(id(part.parts[0]))
                        found[places[-1]] = part
                    else:
                        left.append(part)
        if len(found) == len(places):
            return (), list(found.values())
        order = {place: n for n, place in enumerate(found)}
        return tuple([order[p] for p in places]), list(found.values())

    def computed(self) -> NDArray[np.generic] | None:
        """Its values, by the plan of its form; None where none is kept, or the arrays do not lie as
        that needs.
        """
        if not self.known.runs:
            return None
        order, leaves = self.leaves()
        kept = self.known.runs.get(order)  # a plan that is let go meanwhile lives until it has run
        if kept is None:
            return None
        addresses = []
        for leaf in leaves:
            if leaf._at < 0:
                array = leaf.parts[0]
                at = array.__array_interface__["data"][0]
                leaf._at = 0 if not array.flags.c_contiguous or at % array.itemsize else at
            if not leaf._at:
                return None
            addresses.append(leaf._at)
        return kept[0](addresses)[0]  # type: ignore[no-any-return]


def _remember(form: tuple[Any, ...], known: Known) -> Known:
    if len(_RESULTS) >= _MOST_RESULTS:
        _RESULTS.clear()
    _RESULTS[form] = known
    return known


def pending_of(x: Handle) -> Pending | None:
    """A tensor as an operand of results that are made later; None for one that is no known array,
    no view of one that nothing has written to, and no such result.
    """
    if x.pending is not None:
        return x.pending
    if type(x) is Handle.viewed:
        if x.root.node is not x.seen:  # type: ignore[attr-defined]  # a view has both
            x.settle()  # type: ignore[attr-defined]  # a copy has the elements of before
        move, args = x.step  # type: ignore[attr-defined]  # a view has one
        source = pending_of(x.source)  # type: ignore[attr-defined]
        if source is None or not _is_plain(args):
            return None
        form = move, repr(args), source.form
        known = _RESULTS.get(form) or _remember(form, Known(x.node.shape, x.node.dtype))
        return Pending(form, lambda n: move(n, *args), (source,), known, source.size + 1)
    node = x.node
    array = x.bindings.get(str(node.arg)) if node.op is GraphOp.INPUT else None
    if array is None:
        return None
    part = Pending.of(array, node.dtype)
    part._made = node, x.bindings
    return part


def part_in_order(x: Handle) -> NDArray[np.generic] | None:
    """The elements of a view in the memory of a known array; None of one that is anything but a
    part of such, whose elements follow each other there.
    """
    moves = []
    while type(x) is Handle.viewed:
        if x.root.node is not x.seen:  # type: ignore[attr-defined]  # a view has both
            x.settle()  # type: ignore[attr-defined]  # a copy has the elements of before
        moves.append(x.step)  # type: ignore[attr-defined]  # a view has one
        x = x.source  # type: ignore[attr-defined]
    known = pending_of(x)
    if known is None or known.function is not None:
        return None
    part: NDArray[np.generic] = known.parts[0]
    for move, args in reversed(moves):
        if move is graph.shrink:
            cut: Any = (*(slice(a, b) for a, b in args[0]), ...)
            part = part[cut]  # an array, also of no dimensions
        elif move is graph.reshape and part.flags.c_contiguous:
            part = part.reshape(args[0])
        elif move is not tracing.stopped:
            return None
    return part if part.flags.c_contiguous else None


def _is_made_at_once() -> bool:
    """True where a node depends on more than its operands: on gradients, or on a condition under
    which indices are held to be in range.
    """
    return tracing.leaves() or tracing.tracing() or tracing.CONDITION.get() is not None


def _pending(function: Callable[..., Node], operands: Sequence[Any]) -> Pending | None:
    """The result of an operation on known arrays, numbers and such results; None of others."""
    if _is_made_at_once():
        return None
    forms, parts, size = [], [], 1
    result, viewed = Handle.result, Handle.viewed
    for x in operands:
        kind = type(x)
        if kind is result or kind is viewed:
            part = x.pending or pending_of(x)
            if part is None:
                return None
            parts.append(part)
            forms.append(part.form)
            size += part.size
        elif kind in _NUMBERS_OF:
            parts.append(x)
            forms.append((kind, repr(x) if kind is float else x))
        else:
            return None
    if size > _MOST_PARTS:
        return None
    form = (_what(function), *forms)
    return Pending(form, function, tuple(parts), _RESULTS.get(form), size)


def _what(function: Callable[..., Node]) -> object:
    """A function by what it does: a partial by all that it holds."""
    if not isinstance(function, functools.partial):
        return function
    return function.func, function.args, *function.keywords.items()


_PLAIN = frozenset((bool, int, float, str, type(None), DType))


def _is_plain(x: Any) -> bool:
    return type(x) in _PLAIN or (type(x) is tuple and all(map(_is_plain, x)))


class _Results(NamedTuple):
    """The results of a form of calls, and the type of the tuple that holds them, plain or named;
    None of one.
    """

    holder: Any
    known: tuple[Known, ...]


_ONCE, _OTHER = "once", "other"
_REPEATED: dict[tuple[Any, ...], _Results | str] = {}
"""Forms of calls of ``repeated`` functions: made once; results that are known; not such results."""
F = TypeVar("F", bound=Callable[..., Any])


def repeated(function: F) -> F:
    """``function`` of tensors and plain values; from the third call of one form on, its result is
    pending, and no graph is made.

    The second call is made twice, the second time of arrays that are not known: a function that
    looks at values, or gives anything but new tensors, one or a tuple of them, is called each time.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        call = _Call(function, args, kwargs)
        if not call.form:
            return function(*args, **kwargs)
        state = _REPEATED.get(call.form)
        if type(state) is _Results:
            return call.result(state)
        found = function(*args, **kwargs)
        if state is None:
            if len(_REPEATED) >= _MOST_RESULTS:
                _REPEATED.clear()
            _REPEATED[call.form] = _ONCE
        elif state is _ONCE:
            _REPEATED[call.form] = call.known(found, (*args, *kwargs.values()))
        return found

    return called  # type: ignore[return-value]  # it takes and gives the same


class _Call:
    """A call of a function on tensors and plain values, with places in the place of tensors.

    ``form`` is empty where an operand is neither, or a gradient may be asked for.
    """

    __slots__ = ("form", "function", "given", "names", "parts", "size")

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.function, self.names, self.size = function, tuple(kwargs), 1
        self.parts: list[Pending] = []
        self.given: list[Any] = []
        self.form: tuple[Any, ...] = ()
        if _is_made_at_once():
            return
        forms: list[Any] = []
        operands = (*args, *kwargs.values()) if kwargs else args
        if self._take(operands, forms, self.given) and self.parts and self.size <= _MOST_PARTS:
            self.form = (function, self.names, *forms)

    def _take(self, operands: Iterable[Any], forms: list[Any], given: list[Any]) -> bool:
        """Add operands; False where one is neither."""
        parts, result, viewed = self.parts, Handle.result, Handle.viewed
        for x in operands:
            kind = type(x)
            if kind is result or kind is viewed:
                part = x.pending or pending_of(x)
                self.size += _MOST_PARTS if part is None else part.size
                if part is None or self.size > _MOST_PARTS:
                    return False
                given.append(_PLACES[len(parts)])
                parts.append(part)
                forms.append(part.form)
            elif kind in _PLAIN:
                given.append(x)
                forms.append((kind, repr(x) if kind is float else x))
            elif kind is tuple or kind is list:
                inner: list[Any] = [kind]
                inside: list[Any] = []
                if not self._take(x, inner, inside):
                    return False
                forms.append(tuple(inner))
                given.append(kind(inside))
            else:
                return False
        return True

    def _pending(self, results: _Results) -> list[Pending]:
        parts = tuple(self.parts)
        return [
            Pending((self.form, at), functools.partial(self._node, at), parts, known, self.size)
            for at, known in enumerate(results.known)
        ]

    def result(self, results: _Results) -> Any:
        """Tensors whose nodes are made when something asks for them."""
        found = [Handle._later(pending) for pending in self._pending(results)]
        if results.holder is None:
            return found[0]
        return tuple(found) if results.holder is tuple else results.holder._make(found)

    def known(self, found: Any, operands: Iterable[Any]) -> _Results | str:
        """Shapes and dtypes of results, if the call of arrays without values gives their nodes."""
        listed = found if isinstance(found, tuple) else (found,)
        if any(type(x) not in (Handle.result, Handle.viewed) or x.leaf is not None for x in listed):
            return _OTHER
        if any(_shares(x, (*operands, *listed[:i])) for i, x in enumerate(listed)):
            return _OTHER  # a write to one would be seen in another
        if any(type(x) is Handle.viewed and not x.in_order for x in listed):
            return _OTHER  # a reshape of it is a copy
        holder = type(found) if isinstance(found, tuple) else None
        results = _Results(holder, tuple(Known(x.shape, x.dtype) for x in listed))
        try:
            nodes = [pending.build()[0] for pending in self._pending(results)]
        except Exception:  # noqa: BLE001  # whatever it is, it needs the values
            return _OTHER
        same = all(node is x.node for node, x in zip(nodes, listed, strict=True))
        return results if same else _OTHER

    def _node(self, at: int, *nodes: Node) -> Node:
        values = [_placed(x, nodes) for x in self.given]
        count = len(values) - len(self.names)
        found = self.function(*values[:count], **dict(zip(self.names, values[count:], strict=True)))
        return found[at].node if isinstance(found, tuple) else found.node  # type: ignore[no-any-return]


def _shares(found: Any, x: Any) -> bool:
    """True if a result shares its elements with a tensor, or one of several."""
    if type(x) is tuple or type(x) is list:
        return any(_shares(found, y) for y in x)
    mine, other = (y.root if type(y) is Handle.viewed else y for y in (found, x))
    return mine is other


class _Place(int):
    """The position of a tensor among those of a call."""


_PLACES = tuple(map(_Place, range(_MOST_PARTS)))


def _placed(x: Any, nodes: Sequence[Node]) -> Any:
    if type(x) is _Place:
        return Handle.of(nodes[x])
    return type(x)([_placed(y, nodes) for y in x]) if type(x) in (tuple, list) else x


class Handle:
    """``node`` says what is computed; ``bindings`` holds the arrays of those inputs that are
    already known. A write gives it another node (``aliasing``). ``leaf`` is where gradients arrive,
    for a tensor that asks for them. ``pending``: a known array, or a result whose node is not made
    yet; ``node`` and ``bindings`` are attributes without a value until they are read.
    """

    __slots__ = ("__weakref__", "bindings", "leaf", "node", "pending")

    result: ClassVar[type[Handle]]
    """The class of all results."""
    viewed: ClassVar[type[Any]]
    """The class of views."""

    node: Node
    bindings: Bindings
    leaf: tracing.Leaf | None
    pending: Pending | None

    @classmethod
    def of(cls, node: Node, bindings: Bindings = NOTHING) -> Self:
        """A handle on an existing node; inside ``no_grad`` as a constant."""
        return cls.plain(tracing.stopped(node) if tracing.stops() else node, bindings)

    @classmethod
    def plain(cls, node: Node, bindings: Bindings = NOTHING) -> Self:
        """A handle on an existing node as it is."""
        tensor: Any = object.__new__(Handle.result)
        tensor.node, tensor.bindings, tensor.leaf, tensor.pending = node, bindings, None, None
        return tensor  # type: ignore[no-any-return]

    @classmethod
    def _later(cls, pending: Pending) -> Self:
        """A tensor whose node is made when something asks for it."""
        tensor: Any = object.__new__(Handle.result)
        tensor.pending, tensor.leaf = pending, None
        return tensor  # type: ignore[no-any-return]

    def _made_now(self, name: str) -> Any:
        """``node`` or ``bindings``, which it has from now on."""
        with _building:
            if self.pending is not None:
                self.node, self.bindings = self.pending.build()
                if self.pending.function is not None:
                    self.pending = None
        return object.__getattribute__(self, name)

    # ---- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self.node.shape if self.pending is None else self.pending.known.shape

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self.node.dtype if self.pending is None else self.pending.known.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> Count:
        """Elements in all; ``size()`` is the shape and ``size(dim)`` one extent."""
        return Count(self.shape, math.prod(self.shape))

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.dtype.itemsize * math.prod(self.shape)

    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def numel(self) -> int:
        """Elements in all."""
        return math.prod(self.shape)

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """True if its elements are floats."""
        return self.dtype.is_float

    @property
    def float_type(self) -> DType:
        """The float type that a function of it has: its own, or f32 for integers and bools."""
        return self.dtype if self.dtype.is_float else F32

    def describe(self) -> str:
        """Its dtype, shape and operation in a few words, without values."""
        return f"<Tensor {self.dtype}{list(self.shape)} of {self.node.op}>"

    # ---- results

    def _with(self, node: Node) -> Self:
        return self.of(node, self.bindings)

    def _moved(self, move: Callable[..., Node], *args: Any) -> Self:
        """``move(node, *args)`` as a view: a write to either is seen in both."""
        view: Any = Handle.viewed(self, move, args)
        if tracing.stops():
            view = Handle.viewed(view, tracing.stopped, ())
        return view  # type: ignore[no-any-return]

    def _of(self, op: str, function: Callable[..., Node], *operands: TensorLike) -> Self:
        pending = _pending(function, operands)
        if pending is None:
            return self.of(*_applied(op, function, operands))
        return self._later(pending)

    def _unary(self, function: Callable[..., Node], op: Op) -> Self:
        return self._of(str(op), functools.partial(function, op), self)

    def _fold(self, op: Op, dim: Axes, keepdim: bool, accumulate: DTypeLike | None = None) -> Self:
        axes = dim if isinstance(dim, tuple) else (dim,)
        known = accumulate is None and type(keepdim) is bool
        if known and all(d is None or type(d) is int for d in axes):
            return self._of(str(op), functools.partial(_folded, op, dim, keepdim), self)
        return self._with(folds.fold(op, self.node, dim, keepdim, accumulate))

    def _binary(self, op: Op, a: TensorLike, b: TensorLike) -> Self:
        return self._of(str(op), functools.partial(ew.binary, op), a, b)

    def _bitwise(self, op: Op, other: TensorLike) -> Self:
        return self._of(str(op), functools.partial(ew.bitwise, op), self, other)

    def _shift(self, op: Op, a: TensorLike, b: TensorLike) -> Self:
        return self._of(str(op), functools.partial(ew.shift, op), a, b)

    def _compare(self, name: str, other: TensorLike) -> Self:
        return self._of(name, functools.partial(ew.compare, name), self, other)

    def _wide(self) -> Self:
        """In the float type that it is computed in: f32 for f16, bf16, integers and bools."""
        return self._with(graph.cast(self.node, self.float_type.compute))

    def _as(self, dtype: DType) -> Self:
        return self._with(graph.cast(self.node, dtype))

    @repeated
    def cast(self, dtype: DTypeLike) -> Self:
        """Converted; float to int truncates, anything to bool is ``!= 0``.

        Floats beyond an integer of 8 or 16 bits or a u32 wrap around, as PyTorch's do: 300.7 as u8
        is 44. From a magnitude of 2^31 on (u32: 2^63), where C and PyTorch define nothing, i32's or
        i64's nearest number wraps. i32, i64 and u64 give their nearest number. NaN is 0.

        A tensor of this dtype is the result itself.
        """
        kind, node = dtype_of(dtype), self.node
        if node.dtype == kind:
            return self
        if node.dtype.is_float and kind.is_int:
            node = graph.cast(node, _VIA.get(kind, kind))
        return self._with(graph.cast(node, kind))

    def astype(self, dtype: DTypeLike) -> Self:
        """As ``cast``, but always a new tensor."""
        return self._with(self.cast(dtype).node)

    # ---- operators: numpy's broadcasting and promotion, numbers that take the tensor's dtype

    def __add__(self, other: TensorLike) -> Self:
        return self._binary(Op.ADD, self, other)

    def __radd__(self, other: TensorLike) -> Self:
        return self._binary(Op.ADD, other, self)

    def __sub__(self, other: TensorLike) -> Self:
        return self._binary(Op.SUB, self, other)

    def __rsub__(self, other: TensorLike) -> Self:
        return self._binary(Op.SUB, other, self)

    def __mul__(self, other: TensorLike) -> Self:
        return self._binary(Op.MUL, self, other)

    def __rmul__(self, other: TensorLike) -> Self:
        return self._binary(Op.MUL, other, self)

    def __truediv__(self, other: TensorLike) -> Self:
        return self._of("div", ew.divide, self, other)

    def __rtruediv__(self, other: TensorLike) -> Self:
        return self._of("div", ew.divide, other, self)

    def __floordiv__(self, other: TensorLike) -> Self:
        return self._of("floordiv", ew.floor_divide, self, other)

    def __rfloordiv__(self, other: TensorLike) -> Self:
        return self._of("floordiv", ew.floor_divide, other, self)

    def __mod__(self, other: TensorLike) -> Self:
        return self._of("mod", ew.remainder, self, other)

    def __rmod__(self, other: TensorLike) -> Self:
        return self._of("mod", ew.remainder, other, self)

    def __pow__(self, other: TensorLike) -> Self:
        return self._of("pow", ew.power, self, other)

    def __rpow__(self, other: TensorLike) -> Self:
        return self._of("pow", ew.power, other, self)

    def __matmul__(self, other: TensorLike) -> Self:
        given = other if isinstance(other, Handle) else lift(other, "matmul")
        return self._of("matmul", folds.matmul, self, given)

    def __rmatmul__(self, other: TensorLike) -> Self:
        return self._of("matmul", folds.matmul, lift(other, "matmul"), self)

    def __and__(self, other: TensorLike) -> Self:
        return self._bitwise(Op.AND, other)

    def __or__(self, other: TensorLike) -> Self:
        return self._bitwise(Op.OR, other)

    def __xor__(self, other: TensorLike) -> Self:
        return self._bitwise(Op.XOR, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other: TensorLike) -> Self:
        return self._shift(Op.SHL, self, other)

    def __rlshift__(self, other: TensorLike) -> Self:
        return self._shift(Op.SHL, other, self)

    def __rshift__(self, other: TensorLike) -> Self:
        return self._shift(Op.SHR, self, other)

    def __rrshift__(self, other: TensorLike) -> Self:
        return self._shift(Op.SHR, other, self)

    def __lt__(self, other: TensorLike) -> Self:
        return self._compare("lt", other)

    def __le__(self, other: TensorLike) -> Self:
        return self._compare("le", other)

    def __gt__(self, other: TensorLike) -> Self:
        return self._compare("gt", other)

    def __ge__(self, other: TensorLike) -> Self:
        return self._compare("ge", other)

    def __eq__(self, other: TensorLike) -> Self:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: TensorLike) -> Self:  # type: ignore[override]
        return self._compare("ne", other)

    def __hash__(self) -> int:
        return id(self)

    def __neg__(self) -> Self:
        return self._of("neg", ew.negate, self)

    def __pos__(self) -> Self:
        return self

    def __invert__(self) -> Self:
        return self._of("invert", ew.invert, self)

    def __abs__(self) -> Self:
        return self._unary(ew.unary, Op.ABS)

    # ---- element by element

    def pow(self, exponent: TensorLike) -> Self:
        """``self ** exponent``."""
        return self**exponent

    @spelled
    def maximum(self, other: TensorLike) -> Self:
        """The larger one; NaN where either is NaN."""
        return self._binary(Op.MAX, self, other)

    @spelled
    def minimum(self, other: TensorLike) -> Self:
        """The smaller one; NaN where either is NaN."""
        return self._binary(Op.MIN, self, other)

    @repeated
    @spelled
    def clamp(self, min: TensorLike | None = None, max: TensorLike | None = None) -> Self:
        """At least ``min`` and at most ``max``; None is no bound.

        Raises ShapeError without any bound.
        """
        if min is None and max is None:
            raise ShapeError(f"clamp: {self.shape} has neither a least nor a greatest value")
        bounded = self if min is None else self.maximum(min)
        bounded = bounded if max is None else bounded.minimum(max)
        if not bounded.dtype.is_float:
            return bounded

        def passing() -> Handle:  # all on a bound, where a maximum gives half
            kept = self if min is None else where(self < min, min, self)
            kept = kept if max is None else where(kept > max, max, kept)
            return kept._as(bounded.dtype)

        return as_if(bounded, passing)

    @spelled
    def where(self, condition: TensorLike, other: TensorLike) -> Self:
        """self where the bool ``condition`` holds, else ``other``."""
        return self._of("where", ew.where, lift(condition, "where"), self, other)

    def neg(self) -> Self:
        """``-self``; not for bools."""
        return -self

    def positive(self) -> Self:
        """self."""
        return +self

    def abs(self) -> Self:
        """The absolute value."""
        return self.__abs__()

    def floor(self) -> Self:
        """The largest whole number that is not larger."""
        return self._unary(ew.unary, Op.FLOOR)

    def round(self, decimals: int = 0) -> Self:
        """The nearest whole number, of two the even one; or of so many decimals."""
        if not self.dtype.is_float:
            return self._with(self.node)
        if decimals:
            scale = 10.0**decimals
            return ((self._wide() * scale).round() / scale).cast(self.dtype)
        return self._unary(ew.unary, Op.ROUND)

    def square(self) -> Self:
        """``self * self``; of bools i64."""
        return self * self if not self.dtype.is_bool else self**2

    def sqrt(self) -> Self:
        """The square root; NaN below zero."""
        return self._unary(ew.float_function, Op.SQRT)

    def reciprocal(self) -> Self:
        """1 / self."""
        return self._unary(ew.float_function, Op.RECIP)

    def exp(self) -> Self:
        """e to this power."""
        return self._unary(ew.float_function, Op.EXP)

    def log(self) -> Self:
        """The natural logarithm."""
        return self._unary(ew.float_function, Op.LOG)

    def log2(self) -> Self:
        """The logarithm to base 2."""
        return self._unary(ew.float_function, Op.LOG2)

    def erf(self) -> Self:
        """The error function."""
        return self._unary(ew.float_function, Op.ERF)

    def sin(self) -> Self:
        """The sine of radians."""
        return self._unary(ew.float_function, Op.SIN)

    def cos(self) -> Self:
        """The cosine of radians."""
        return self._unary(ew.float_function, Op.COS)

    clip, negative, absolute = clamp, neg, abs

    # ---- movement: views of the same elements; nothing is moved until a kernel reads it

    @spelled
    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """The same elements under another shape; one extent may be -1."""
        x, sizes = self.node, list(extents("reshape", flat(shape), -1))
        unknown = [i for i, s in enumerate(sizes) if s == -1]
        if len(unknown) > 1:
            raise ShapeError(f"reshape: {x.shape} to {tuple(sizes)} has more than one extent of -1")
        if unknown:
            rest = math.prod(s for s in sizes if s != -1)
            if rest == 0 or x.size % rest:
                raise ShapeError(
                    f"reshape: {x.shape} has {x.size} elements, {tuple(sizes)} takes multiples of "
                    f"{rest}"
                )
            sizes[unknown[0]] = x.size // rest
        return self._moved(graph.reshape, tuple(sizes))

    def ravel(self) -> Self:
        """All elements in one dimension; a view of those that lie in order."""
        return self._moved(movement.ravel)

    @spelled
    def squeeze(self, dim: Axes = None) -> Self:
        """Dimensions of extent 1 removed, of those named; None is all of them."""
        named = axes_of("squeeze", dim, self.shape)
        kept = (s for a, s in enumerate(self.shape) if s != 1 or a not in named)
        return self._moved(graph.reshape, tuple(kept))

    @spelled
    def unsqueeze(self, dim: int) -> Self:
        """A new dimension of extent 1 in front of ``dim``."""
        at = axis_of("unsqueeze", dim, self.shape, self.ndim + 1)
        return self._moved(graph.reshape, (*self.shape[:at], 1, *self.shape[at:]))

    @spelled
    def permute(self, *dims: int | Sequence[int]) -> Self:
        """Dimensions in another order."""
        order = flat(dims)
        axes = tuple(axis_of("permute", a, self.shape) for a in order)
        if sorted(axes) != list(range(self.ndim)):
            raise ShapeError(
                f"permute: {tuple(order)} is not an order of the {self.ndim} dimensions of "
                f"{self.shape}"
            )
        return self._moved(graph.permute, axes)

    @spelled
    def swapaxes(self, dim0: int, dim1: int) -> Self:
        """Two dimensions exchanged."""
        order = list(range(self.ndim)) or [0]
        i, j = (axis_of("transpose", d, self.shape or (1,)) for d in (dim0, dim1))
        order[i], order[j] = order[j], order[i]
        return self._moved(graph.permute, tuple(order[: self.ndim]))

    @property
    def T(self) -> Self:  # noqa: N802 - numpy's name
        """All dimensions reversed."""
        return self._moved(graph.permute, tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Self:  # noqa: N802 - PyTorch's name
        """The last two dimensions exchanged."""
        return self.swapaxes(-2, -1)

    @spelled
    def flip(self, *dims: int | Sequence[int] | None) -> Self:
        """Dimensions reversed; none named is all of them. A copy, as in PyTorch."""
        given: Any = dims[0] if len(dims) == 1 else dims or None
        return self._with(graph.flip(self.node, axes_of("flip", given, self.shape)))

    @spelled
    def expand(self, *sizes: int | Sequence[int]) -> Self:
        """Extents of 1 repeated to a larger shape; -1 keeps an extent."""
        return self._expanded("expand", flat(sizes))

    def _expanded(self, op: str, sizes: Sequence[int]) -> Self:
        target = list(extents(op, sizes, -1))
        lead = len(target) - self.ndim
        if lead < 0:
            raise ShapeError(f"{op}: {self.shape} has more dimensions than {tuple(target)}")
        for i, size in enumerate(target):
            have = self.shape[i - lead] if i >= lead else None
            if size == -1 and have is not None:
                target[i] = have
            elif size == -1 or have not in (None, 1, size):
                raise ShapeError(f"{op}: {self.shape} does not broadcast to {tuple(sizes)}")
        return self._moved(ew.broadcast, tuple(target))

    @spelled
    def narrow(self, dim: int, start: int, length: int) -> Self:
        """The ``length`` elements from ``start`` along ``dim``."""
        at = axis_of("narrow", dim, self.shape)
        extent = self.shape[at]
        first = integer("narrow", "start", start)
        first = first + extent if first < 0 else first
        count = integer("narrow", "length", length, 0)
        if not 0 <= first <= first + count <= extent:
            raise AxisError(
                f"narrow: {count} elements from {start} are not in extent {extent} of dimension "
                f"{at} of {self.shape}"
            )
        limits = [(first, first + count) if a == at else (0, s) for a, s in enumerate(self.shape)]
        return self._moved(graph.shrink, tuple(limits))

    @spelled
    def select(self, dim: int, index: int) -> Self:
        """The slice at ``index`` along ``dim``, without that dimension."""
        at = axis_of("select", dim, self.shape)
        position = axis_of("select", index, self.shape, self.shape[at])
        return self.narrow(at, position, 1).squeeze(at)

    @spelled
    def window(self, dim: int, size: int, stride: int = 1, dilation: int = 1) -> Self:
        """Sliding windows along ``dim``, the position inside a window as a new last dimension."""
        at = axis_of("window", dim, self.shape)
        named = (("size", size), ("stride", stride), ("dilation", dilation))
        return self._moved(graph.window, at, *(integer("window", w, v, 1) for w, v in named))

    def shrink(self, limits: Sequence[Sequence[int]]) -> Self:
        """The part ``begin <= i < end`` of each dimension."""
        if len(limits) != self.ndim or any(len(pair) != 2 for pair in limits):
            raise ShapeError(
                f"shrink: {limits} must be one pair (begin, end) for each dimension of {self.shape}"
            )
        pairs = [tuple(integer("shrink", "a limit", n) for n in pair) for pair in limits]
        return self._moved(graph.shrink, tuple((a, b) for a, b in pairs))

    def contiguous(
        self, layout: Sequence[int] | Layout | None = None, schedule: str | None = None
    ) -> Self:
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
        return self._moved(graph.contiguous, order, text)

    view, swapdims = reshape, swapaxes

    # ---- folds

    @spelled
    def sum(
        self,
        dim: Axes = None,
        keepdim: bool = False,
        accumulate: DTypeLike | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Sums over ``dim``; None is all dimensions.

        Integers and bools give i64, or what they accumulate in. ``dtype``: converted to it first.
        """
        x = self if dtype is None else self.cast(dtype)
        total = x._fold(Op.ADD, dim, keepdim, accumulate)
        return total if dtype is None else total.cast(dtype)

    @spelled
    def prod(
        self, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
    ) -> Self:
        """Products over ``dim``. Integers and bools give i64."""
        x = self if dtype is None else self.cast(dtype)
        found = x._fold(Op.MUL, dim, keepdim)
        return found if dtype is None else found.cast(dtype)

    @spelled
    def amax(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """The largest over ``dim``; NaN if one is."""
        return self._fold(Op.MAX, dim, keepdim)

    @spelled
    def amin(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """The smallest over ``dim``; NaN if one is."""
        return self._fold(Op.MIN, dim, keepdim)

    @repeated
    @spelled
    def mean(
        self,
        dim: Axes = None,
        keepdim: bool = False,
        accumulate: DTypeLike | None = None,
        *,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """The average over ``dim``; NaN of no elements. Integers and bools give f32."""
        x = self if dtype is None else self.cast(dtype)
        axes = axes_of("mean", dim, x.shape)
        wide = x.cast(accumulator("mean", x.float_type, accumulate))
        return (wide.sum(axes, keepdim) / float(_count(x, axes)))._as(x.float_type)

    @repeated
    @spelled
    def all(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """True where all over ``dim`` are other than zero; of none, true. Of u8 that is u8."""
        return self._truth_of(Op.MIN, dim, keepdim)

    @repeated
    @spelled
    def any(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """True where one over ``dim`` is other than zero; of none, false. Of u8 that is u8."""
        return self._truth_of(Op.MAX, dim, keepdim)

    def _truth_of(self, op: Op, dim: Axes, keepdim: bool) -> Self:
        name = "all" if op is Op.MIN else "any"
        axes = axes_of(name, dim, self.shape)
        truth = self.cast("bool")
        if _count(self, axes):
            found = truth._with(folds.fold(op, truth.node, axes, keepdim))
        else:
            shape = [1 if i in axes else s for i, s in enumerate(self.shape)]
            kept = self.of(graph.full(op is Op.MIN, tuple(shape), truth.dtype))
            found = kept if keepdim else kept.squeeze(axes)
        return found._as(U8) if self.dtype == U8 else found


def _folded(op: Op, dim: Axes, keepdim: bool, x: Node) -> Node:
    return folds.fold(op, x, dim, keepdim)


TensorLike = Handle | Scalar | ArrayLike
R = TypeVar("R", bound=Handle)


def joined(tensors: Sequence[Handle]) -> Bindings:
    """The bindings of all of them; shared, not copied, where one has them all."""
    return _united([t.bindings for t in tensors])


def _united(each: Sequence[Bindings]) -> Bindings:
    result: Bindings = NOTHING
    for b in each:
        if not b or b is result or b.keys() <= result.keys():
            continue
        covers = result.keys() <= b.keys()
        result = b if covers else MappingProxyType({**result, **b})
    return result


def renew(x: Handle, node: Node, bindings: Bindings) -> None:
    """Give a tensor another node."""
    x.node, x.bindings, x.pending = node, bindings, None


def required(x: Handle) -> bool:
    """True if a gradient of ``x`` would reach a tensor that requires it."""
    return x.leaf is not None or (tracing.leaves() and tracing.reaches(x.node))


def apply(op: str, function: Callable[..., Node], *operands: TensorLike) -> Handle:
    """``function`` on the nodes of tensors and arrays, and on Python numbers as they are."""
    return Handle.of(*_applied(op, function, operands))


def _applied(
    op: str, function: Callable[..., Node], operands: Sequence[TensorLike]
) -> tuple[Node, Bindings]:
    lifted = [_operand(x, op) for x in operands]
    if not any(isinstance(x, Handle) for x in lifted):
        lifted[0] = lift(operands[0], op)
    tensors = [x for x in lifted if isinstance(x, Handle)]
    nodes = (x.node if isinstance(x, Handle) else x for x in lifted)
    return function(*nodes), joined(tensors)


def lift(x: TensorLike, op: str) -> Handle:
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


@repeated
def where(condition: TensorLike, input: TensorLike, other: TensorLike) -> Handle:
    """``input`` where the bool condition holds, else ``other``."""
    return apply("where", ew.where, condition, input, other)


def as_if(value: R, make: Callable[[], Handle]) -> R:
    """``value``; where it is traced, with the gradient of what ``make`` gives, which is equal."""
    if value.pending is not None or not tracing.marks(value.node):
        return value
    other = make()
    return value.of(tracing.as_if(value.node, other.node), joined([value, other]))


def beside(first: Handle, x: TensorLike, op: str) -> Handle:
    """As ``lift``, but a number has the dtype that it takes beside ``first``."""
    lifted = _operand(x, op)
    if not isinstance(lifted, bool | int | float):
        return lifted
    return Handle.of(ew.constant(lifted, (), ew.result_type(first.node, lifted), op))


def floats(op: str, *operands: TensorLike) -> tuple[DType, tuple[Handle, ...]]:
    """Operands in the float type that all are computed in, rounded to the one of their result, and
    that.
    """
    lifted = [_operand(x, op) for x in operands]
    kind = ew.result_type(*(x.node if isinstance(x, Handle) else x for x in lifted))
    kind = kind if kind.is_float else F32
    wide = kind.compute
    return kind, tuple(
        x._as(kind)._as(wide) if isinstance(x, Handle) else Handle.of(ew.constant(x, (), wide, op))
        for x in lifted
    )


def optional(x: TensorLike | None, op: str) -> Handle | None:
    """As ``lift``, but None stays."""
    return None if x is None else lift(x, op)


def _operand(x: TensorLike, op: str) -> Handle | Scalar:
    """Numbers stay, numpy's scalars as Python's (as in PyTorch: they are weak, whatever their
    dtype); arrays and lists become tensors.
    """
    if isinstance(x, Handle):
        return x
    if isinstance(x, np.generic) and x.dtype.kind in "biuf":
        return x.item()  # type: ignore[no-any-return]
    if isinstance(x, bool | int | float):
        return x
    if isinstance(x, np.ndarray | list | tuple) or hasattr(x, "__dlpack__"):
        return Handle.of(*bound(*held(x)))
    tensor = getattr(x, "tensor", None)  # a module's parameter
    if isinstance(tensor, Handle):
        return tensor
    raise DTypeError(f"{op}: {x!r} of type {type(x).__name__} is not a tensor, array or number")


def own_name() -> str:
    """A name of an input that no other input of this process has."""
    return f"#{next(_NUMBERS)}"


def bound(array: NDArray[np.generic], kind: DType) -> tuple[Node, Bindings]:
    """An input of a name of its own, and its value."""
    name = own_name()
    return graph.graph_input(name, array.shape, kind), MappingProxyType({name: array})


def _count(x: Handle, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[a] for a in axes)
