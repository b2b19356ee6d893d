"""A node of an ONNX graph with its operands, as operators' functions see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import ModelError

from ..tensor import Tensor

__all__ = ["Function", "Known", "NodeView", "Value"]

Known = NDArray[Any]
Value = Tensor | Known | None


@dataclass(frozen=True, slots=True)
class NodeView:
    """``inputs`` are tensors, arrays that are known when the model is loaded, or None where an
    operand is left out. ``outputs`` counts those that are used.
    """

    op: str
    name: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: Sequence[Value]
    outputs: int = 1

    def __call__(self, place: int) -> Tensor:
        """An operand as a tensor. Raises ModelError where it is left out."""
        value = self.at(place)
        if value is None:
            raise self.error(f"operand {place} is missing")
        return value if isinstance(value, Tensor) else Tensor(value)

    def at(self, place: int) -> Value:
        """An operand, None where it is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def tensor(self, place: int) -> Tensor | None:
        """An operand as a tensor, None where it is left out."""
        return None if self.at(place) is None else self(place)

    def known(self, place: int) -> Known | None:
        """An operand that has to be known; None where it is left out. Raises ModelError."""
        value = self.at(place)
        if isinstance(value, Tensor):
            raise self.error(f"operand {place} depends on the model's inputs; it must be known")
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

    def error(self, what: str) -> ModelError:
        """An error that names this node."""
        return ModelError(f"node {self.name or '(no name)'} ({self.op}): {what}")


Function = Callable[[NodeView], Any]
"""Of a node: its output, or several as a tuple; tensors, or arrays that are known."""
