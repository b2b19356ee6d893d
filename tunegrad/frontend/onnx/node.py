"""Types that the IR does not have: small floats as their codes, small integers one in a byte; and
the bits of floats as integers and back, by arithmetic.

    FLOAT8E4M3FN    u8 bit patterns    a table of 256 values decodes, arithmetic encodes
    INT4, UINT2     i8, u8 numbers     as the integers that they are
    f32   -1.5  =  0xBFC00000          sign 1, exponent 127, mantissa 0x400000

What numpy holds of such a type (``ml_dtypes``) comes in by ``coded``; a model takes and gives
codes, as it does bf16: ``array.view("u1")`` of small floats, ``array.astype("i1")`` of integers.
ONNX defines casts, QuantizeLinear, DequantizeLinear and what moves elements on them. Of bits, a NaN
has one pattern, the quiet one; all else is exact, denormal numbers too.

A node of an ONNX graph with its operands, as operators' functions see it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import ModelError
from tunegrad.ir.dtypes import BF16, DTYPES, I8, I32, U8, DType, dtype_of
from tunegrad.ir.graph import GraphOp, const, topological
from tunegrad.ir.interpret.evaluate import evaluate

from ..functions import where
from ..nodes.arrays import bf16_values
from ..nodes.arrays import held as held_array
from ..tensor import Tensor

_MANTISSA = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def onto_powers(size: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """A size and the exponent that takes it below 2: ``size = found * 2**exponent``; the exponent
    is a float, from 0 to ``most``, which is one less than a power of two.
    """
    exponent = size * 0.0
    step = (most + 1) // 2
    while step:
        large = size >= 2.0**step
        size = where(large, size * 2.0**-step, size)
        exponent = where(large, exponent + float(step), exponent)
        step //= 2
    return size, exponent


def upto_one(size: Tensor, exponent: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """As ``onto_powers``, of what is smaller than 1: to 1 at least, or by ``2**-most``."""
    step = (most + 1) // 2
    while step:
        small = size < 2.0 ** (1 - step)
        size = where(small, size * 2.0**step, size)
        exponent = where(small, exponent - float(step), exponent)
        step //= 2
    return size, exponent


def bits_of(x: Tensor) -> Tensor:
    """The bit patterns of f16, f32 or f64, as a signed integer of their width."""
    kind, wide = x.dtype, x.cast(x.dtype.compute)
    mantissa, integer = _MANTISSA[kind.name], DTYPES[f"i{kind.bits}"]
    bias = (1 << kind.bits - mantissa - 2) - 1
    finite = x.isfinite()
    size, exponent = onto_powers(where(finite, wide.abs(), 1.0), bias)
    size, exponent = upto_one(size, exponent, bias)
    place = (exponent + float(bias)).cast("i64")
    normal = place > 0
    part = where(normal, size - 1.0, size * 0.5) * 2.0**mantissa
    code = place * (1 << mantissa) + part.cast("i64")
    beyond = (2 * bias + 1) << mantissa
    code = where(x.isinf(), beyond, where(x.isnan(), beyond + (1 << mantissa - 1), code))
    least = -(1 << kind.bits - 1)
    return where(x.signbit().logical_and(x.eq(x)), code + least, code).cast(integer)


def of_bits(codes: Tensor, kind: DType) -> Tensor:
    """The floats that bit patterns of their width stand for."""
    mantissa, wide = _MANTISSA[kind.name], kind.compute
    bias = (1 << kind.bits - mantissa - 2) - 1
    code = codes.cast("i64")
    part = code.bitwise_and((1 << mantissa) - 1)
    place = code.bitwise_right_shift(mantissa).bitwise_and(2 * bias + 1)
    number = where(place > 0, part + (1 << mantissa), part).cast(wide)
    up = where(place > 0, place, 1) - (bias + mantissa)
    down = up.neg()
    for step in (1 << i for i in reversed(range(kind.bits - mantissa - 1))):
        if step < bias:
            number = where(_has(up, step), number * 2.0**step, number)
        number = where(_has(down, step), number * 2.0**-step, number)
    special = where(part.eq(0), float("inf"), float("nan"))
    number = where(place.eq(2 * bias + 1), special, number)
    negative = code.bitwise_right_shift(kind.bits - 1).bitwise_and(1).ne(0)
    return where(negative, number.neg(), number).cast(kind)


def _has(power: Tensor, step: int) -> Tensor:
    """True where a power that is positive has this bit."""
    return (power > 0).logical_and(power.bitwise_and(step).ne(0))


@dataclass(frozen=True, slots=True)
class Kind:
    """``name`` is ONNX's, ``array`` that of ml_dtypes, ``codes`` the dtype of codes.

    Of a float: ``mantissa`` bits, the exponent ``least`` of its least normal number, the code of
    its ``greatest`` number, those of what is ``beyond`` it and of ``nan``, and whether zero has a
    sign. Of an integer ``mantissa`` is -1.
    """

    name: str
    array: str
    bits: int
    codes: DType = U8
    mantissa: int = -1
    least: int = 0
    greatest: int = 0
    beyond: int = 0
    nan: int = 0
    signed_zero: bool = True

    @property
    def is_int(self) -> bool:
        """True if it holds whole numbers, as they are."""
        return self.mantissa < 0

    @property
    def range(self) -> tuple[int, int]:
        """Of integers: the least and the greatest."""
        low = -(1 << self.bits - 1) if self.codes.signed else 0
        return low, low + (1 << self.bits) - 1


KINDS = {
    k.name: k
    for k in (
        Kind("FLOAT8E4M3FN", "float8_e4m3fn", 8, U8, 3, -6, 0x7E, 0x7F, 0x7F),
        Kind("FLOAT8E4M3FNUZ", "float8_e4m3fnuz", 8, U8, 3, -7, 0x7F, 0x80, 0x80, False),
        Kind("FLOAT8E5M2", "float8_e5m2", 8, U8, 2, -14, 0x7B, 0x7C, 0x7E),
        Kind("FLOAT8E5M2FNUZ", "float8_e5m2fnuz", 8, U8, 2, -15, 0x7F, 0x80, 0x80, False),
        Kind("FLOAT8E8M0", "float8_e8m0fnu", 8, U8, 0, -127, 0xFE, 0xFF, 0xFF),
        Kind("FLOAT4E2M1", "float4_e2m1fn", 4, U8, 1, 0, 0x7, 0x7, 0x8),
        Kind("INT4", "int4", 4, I8),
        Kind("UINT4", "uint4", 4),
        Kind("INT2", "int2", 2, I8),
        Kind("UINT2", "uint2", 2),
    )
}
"""OCP's OFP8 and microscaling formats, and those without negative zero (Noune et al. 2022). A NaN
in FLOAT4E2M1, which has none, is zero, as ml_dtypes has it.
"""

_BY_ARRAY = {k.array: k for k in KINDS.values()}


@dataclass(frozen=True, slots=True)
class Coded:
    """Elements of a ``kind`` as their codes."""

    codes: Tensor
    kind: Kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self.codes.shape


def kind_of_array(array: np.ndarray[Any, Any]) -> Kind | None:
    """The kind of what an array holds, None for numpy's own types."""
    return _BY_ARRAY.get(array.dtype.name)


def codes_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Codes of an array of ml_dtypes, as a model takes them; other arrays are what they are."""
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16)
    kind = kind_of_array(array)
    if kind is None:
        return array
    return array.astype(kind.codes.numpy) if kind.is_int else array.view(np.uint8)


def array_of(codes: np.ndarray[Any, Any], kind: Kind) -> np.ndarray[Any, Any]:
    """Codes as an array of ml_dtypes: the inverse of ``codes_of``."""
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, kind.array))
    return codes.astype(dtype) if kind.is_int else codes.view(dtype)


def coded(array: np.ndarray[Any, Any]) -> Tensor | Coded:
    """An array as a tensor, or as codes where its type is one of ml_dtypes'."""
    kind = kind_of_array(array)
    return Tensor(array) if kind is None else Coded(Tensor(codes_of(array)), kind)


def decoded(x: Coded, dtype: DType) -> Tensor:
    """The numbers, as ``dtype`` holds them."""
    if x.kind.is_int:
        return x.codes.cast(dtype)
    import ml_dtypes

    patterns = np.arange(1 << x.kind.bits, dtype=np.uint8)
    table = patterns.view(np.dtype(getattr(ml_dtypes, x.kind.array))).astype(np.float32)
    return Tensor(table).take(x.codes, mode="known").cast(dtype)


def encoded(x: Tensor, kind: Kind, saturate: bool = True, rounding: str = "up") -> Coded:
    """Numbers as codes: small floats rounded to nearest even, and beyond the greatest one that
    (``saturate``) or what the type has for it; integers by their low bits, truncated.

    ``rounding`` of powers of two (FLOAT8E8M0): "up", "down" or "nearest".
    """
    if kind.is_int:
        low = x.cast(I32).bitwise_and((1 << kind.bits) - 1)
        half = 1 << kind.bits - 1
        found = low.bitwise_xor(half) - half if kind.codes.signed else low
        return Coded(found.cast(kind.codes), kind)
    wide = x.cast(x.dtype.compute) if x.dtype.is_float else x.cast("f32")
    code = _powers(wide, saturate, rounding) if kind.mantissa == 0 else _code(wide, kind, saturate)
    return Coded(code.cast(U8), kind)


def _code(x: Tensor, kind: Kind, saturate: bool) -> Tensor:
    steps = 1 << kind.mantissa
    most = (1 << kind.bits - 1 - kind.mantissa) - 1
    unit = 2.0**kind.least
    size = where(x.isnan(), 0.0, x.abs()).clamp(0.0, unit * 2.0**most * 1.75)
    rest, exponent = onto_powers(size * (1.0 / unit), most)
    code = (exponent * float(steps) + (rest * float(steps)).round()).cast(I32)
    beyond = kind.greatest if saturate else kind.beyond
    code = where(code > kind.greatest, beyond, code)
    negative = x.signbit() if kind.signed_zero else (x < 0).logical_and(code > 0)
    if not kind.signed_zero:
        negative = negative.logical_and(code.ne(kind.nan))
    code = where(negative, code + (1 << kind.bits - 1), code)
    return where(x.isnan(), kind.nan, code)


def _powers(x: Tensor, saturate: bool, rounding: str) -> Tensor:
    """Exponents of f32, biased by 127."""
    size = x.abs().cast("f32")
    rest, exponent = onto_powers(where(x.isfinite(), size, 1.0), 127)
    rest, exponent = upto_one(rest, exponent, 127)
    code = (exponent + 127.0).cast(I32)
    part = where(code > 0, rest - 1.0, rest * 0.5)
    if rounding == "up":
        more = part > 0.0
    elif rounding == "nearest":
        more = (part > 0.5).logical_or((part >= 0.5).logical_and(code > 0))
    else:
        more = part < 0.0
    if saturate:
        more = more.logical_and(code < 0xFE)
    code = where(more, code + 1, code)
    return where(x.isnan().logical_or(x.isinf()), 0xFF, code)


def type_of_number(number: int) -> DType | Kind:
    """The type that a ``TensorProto.DataType`` stands for; an error for any other number."""
    from onnx import TensorProto, helper

    name = str(TensorProto.DataType.Name(number))
    if name in KINDS:
        return KINDS[name]
    if name == "BFLOAT16":
        return BF16
    return dtype_of(np.dtype(helper.tensor_dtype_to_np_dtype(number)).name)


Known = NDArray[Any]

FOLDED_BYTES = 1 << 30
"""Values known when a model is loaded are computed then, up to arrays of this size."""

UNROLLED_NODES = 20_000
"""Nodes of all bodies of a model, once for each step that they take, and parts of a sequence."""


class TensorList(tuple[Tensor | Known, ...]):
    """A sequence of ONNX: its length is known when the graph is built."""

    __slots__ = ()


Value = Tensor | Coded | Known | TensorList | None
"""Of a name in a graph; None is an operand that is left out, or an empty optional value."""

Held = dict[int, tuple[Known, Tensor]]
"""Arrays that became constants of the program, by their identity."""


class NodeError(ModelError):
    """An error that names the node, or the graph in it, where it happened."""


class NotKnownError(ModelError):
    """A value that has to be known when the graph is built depends on inputs of the model.

    ``inputs`` are their names.
    """

    def __init__(self, message: str, inputs: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.inputs = inputs


def within(place: str, error: ModelError) -> ModelError:
    """The same error, saying where it happened."""
    text = f"{place}: {error}"
    if isinstance(error, NotKnownError):
        return NotKnownError(text, error.inputs)
    return NodeError(text)


def inputs_of(value: Value) -> frozenset[str]:
    """Names of the model's inputs that a value depends on."""
    if isinstance(value, TensorList):
        return frozenset[str]().union(*map(inputs_of, value))
    if isinstance(value, Coded):
        return inputs_of(value.codes)
    if not isinstance(value, Tensor):
        return frozenset()
    nodes = topological((value.node,))
    names = (str(n.arg) for n in nodes if n.op is GraphOp.INPUT)
    return frozenset(n for n in names if not n.startswith("#"))


def settled(value: Value) -> Value:
    """A tensor that depends on no input as an array, bf16 as f32; others as they are."""
    if isinstance(value, Coded) and not inputs_of(value):
        (found,) = evaluate((value.codes.node,), value.codes.bindings)
        return array_of(found, value.kind)
    if not isinstance(value, Tensor) or inputs_of(value):
        return value
    (found,) = evaluate((value.node,), value.bindings)
    return bf16_values(found) if value.dtype == BF16 else found


@dataclass(frozen=True, slots=True)
class Body:
    """A graph inside of a node, as a function of as many values as it has ``inputs``.

    ``outputs`` are its ``ValueInfoProto``.
    """

    inputs: int
    outputs: Sequence[Any]
    run: Callable[[Sequence[Value], str], list[Value]]

    def __call__(self, *values: Value, step: int | None = None) -> list[Value]:
        """Its outputs. Raises ModelError, naming this graph, the step and the node inside."""
        return self.run(values, "" if step is None else f", step {step}")


@dataclass(frozen=True, slots=True)
class NodeView:
    """``inputs`` are tensors, codes, arrays that are known when the model is loaded, sequences, or
    None where an operand is left out. ``outputs`` counts those that are used.

    ``labels`` name the operands in kernels, ``held`` is what is a constant already, and ``file``
    says of which file constants are.
    """

    op: str
    name: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: Sequence[Value]
    outputs: int = 1
    labels: Sequence[str] = ()
    held: Held = field(default_factory=dict, compare=False, repr=False)
    file: int = 0

    def __call__(self, place: int) -> Tensor:
        """An operand as a tensor. Raises ModelError where it is left out, a sequence, or codes."""
        value = self.any(place)
        if isinstance(value, Coded):
            raise self.error(f"operand {place} is {value.kind.name}; a Cast before it helps")
        return value

    def any(self, place: int) -> Tensor | Coded:
        """An operand of any type. Raises ModelError where it is left out, or is a sequence."""
        value = self.at(place)
        if value is None:
            raise self.error(f"operand {place} is missing")
        if isinstance(value, TensorList):
            raise self.error(f"operand {place} is a sequence")
        if isinstance(value, Coded):
            return value
        held = self.constant(value, self.labels[place] if place < len(self.labels) else "")
        kind = kind_of_array(value) if isinstance(value, np.ndarray) else None
        return held if kind is None else Coded(held, kind)

    def constant(self, value: Tensor | Known, label: str = "") -> Tensor:
        """A tensor as it is; an array, or its codes, as a constant of the program, the same one
        each time. Single numbers have no name: equal ones of other nodes are the same constant.
        """
        if isinstance(value, Tensor):
            return value
        found = self.held.get(id(value))
        if found is None:  # the array is kept beside it, so that its identity stays its own
            plain = value if kind_of_array(value) is None else codes_of(value)
            array, kind = held_array(plain)
            named = (label, self.file) if value.size > 1 else ("", 0)
            made = Tensor.of(const(array, kind, *named))
            found = self.held[id(value)] = (value, made)
        return found[1]

    def at(self, place: int) -> Value:
        """An operand, None where it is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def tensor(self, place: int) -> Tensor | None:
        """An operand as a tensor, None where it is left out."""
        return None if self.at(place) is None else self(place)

    def known(self, place: int) -> Known | None:
        """An operand that has to be known; None where it is left out. Raises ModelError."""
        value = settled(self.at(place))
        if isinstance(value, TensorList):
            raise self.error(f"operand {place} is a sequence")
        if isinstance(value, Tensor | Coded):
            raise self.not_known(f"operand {place}", value)
        return value

    def sequence(self, place: int) -> TensorList:
        """An operand that is a sequence. Raises ModelError where it is none."""
        value = self.at(place)
        if not isinstance(value, TensorList):
            raise self.error(f"operand {place} is not a sequence")
        return value

    def ints(self, place: int, attribute: str = "") -> list[int] | None:
        """Numbers of an attribute, or of an operand that is known; None where neither is there."""
        if attribute and attribute in self.attributes:
            return [int(x) for x in self.attributes[attribute]]
        value = self.known(place)
        return None if value is None else [int(x) for x in np.asarray(value).reshape(-1)]

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute. A default that is a float is one of 32 bits, as attributes of files are."""
        if isinstance(default, float) and name not in self.attributes:
            return float(np.float32(default))
        return self.attributes.get(name, default)

    def body(self, name: str) -> Body:
        """A graph inside of this node. Raises ModelError where there is none of that name."""
        found = self.get(name)
        if not isinstance(found, Body):
            raise self.error(f"it has no graph {name}")
        return found

    def error(self, what: str) -> NodeError:
        """An error that names this node."""
        return NodeError(f"{self.place}: {what}")

    def not_known(self, what: str, *values: Value) -> NotKnownError:
        """An error that names this node, and the model's inputs that ``what`` depends on."""
        names = frozenset[str]().union(*map(inputs_of, values))
        said = f" ({', '.join(sorted(names))})" if names else ""
        return NotKnownError(
            f"{self.place}: {what} depends on the model's inputs{said}; it must be known", names
        )

    @property
    def place(self) -> str:
        """This node in words."""
        return f"node {self.name or '(no name)'} ({self.op})"


Function = Callable[[NodeView], Any]
"""Of a node: its output, or several as a tuple; tensors, arrays that are known, sequences, None."""


DEFINITION = "ONNX's definition"
"""Name of the graph that an operator is defined by, among those inside of a node."""


def defined(n: NodeView) -> tuple[Value, ...]:
    """An operator of operators, as ONNX defines it: its kernels are those of the parts."""
    return tuple(n.body(DEFINITION)(*n.inputs))
