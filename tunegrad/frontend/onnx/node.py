"""A node of an ONNX graph with its operands, as operators' functions see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import ModelError
from tunegrad.ir.dtypes import BF16
from tunegrad.ir.graph import GraphOp, topological
from tunegrad.ir.interpret.evaluate import evaluate

from ..nodes.arrays import bf16_values
from ..tensor import Tensor
from .codes import Coded, array_of, codes_of, kind_of_array

__all__ = [
    "Body", "Function", "Held", "Known", "NodeError", "NodeView", "NotKnownError", "TensorList",
    "Value", "inputs_of", "settled", "within",
]  # fmt: skip

Known = NDArray[Any]


class TensorList(tuple[Tensor | Known, ...]):
    """A sequence of ONNX: its length is known when the graph is built."""

    __slots__ = ()


Value = Tensor | Coded | Known | TensorList | None
"""Of a name in a graph; None is an operand that is left out, or an empty optional value."""

Held = dict[int, tuple[Known, Tensor]]
"""Arrays that became constants of the program, by their identity."""


class NodeError(ModelError):
    """An error that names the node, or the graph in it, where it happened."""


class NotKnownError(NodeError):
    """A value that has to be known when the graph is built depends on inputs of the model.

    ``inputs`` are their names.
    """

    def __init__(self, message: str, inputs: frozenset[str] = frozenset()) -> None:
        super().__init__(message)
        self.inputs = inputs


def within(place: str, error: ModelError) -> NodeError:
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
    """A tensor that depends on no input of the model as an array, computed now; others as they
    are. bf16 comes as f32.
    """
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

    ``labels`` name the operands in kernels, and ``held`` is what is a constant already.
    """

    op: str
    name: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: Sequence[Value]
    outputs: int = 1
    labels: Sequence[str] = ()
    held: Held = field(default_factory=dict, compare=False, repr=False)

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
            name = label if value.size > 1 else ""
            found = self.held[id(value)] = (value, Tensor.constant(plain, name=name))
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
        """An attribute."""
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
