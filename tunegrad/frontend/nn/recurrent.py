"""Recurrent layers and cells, unrolled: one product of all inputs, then one small product a step.

Names of weights are PyTorch's: ``weight_ih_l0``, ``weight_hh_l0``, ``bias_ih_l0``, ``bias_hh_l0``,
with ``_reverse`` behind them for the other direction.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tunegrad.errors import ShapeError

from ..creation import zeros
from ..functions import cat, stack
from ..tensor import Tensor
from .module import Module, Parameter

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

State = tuple[Tensor, ...]
Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


def _rnn(x: Tensor, h: Tensor, state: State, act: str) -> State:
    del state
    return ((x + h).relu() if act == "relu" else (x + h).tanh(),)


def _lstm(x: Tensor, h: Tensor, state: State, act: str) -> State:
    del act
    i, f, g, o = (x + h).chunk(4, -1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru(x: Tensor, h: Tensor, state: State, act: str) -> State:
    del act
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    return ((1 - z) * n + z * state[0],)


STEPS = {"rnn": (_rnn, 1, 1), "lstm": (_lstm, 4, 2), "gru": (_gru, 3, 1)}
"""Step of a state, number of its gates, and number of its tensors."""


def _weights(gates: int, size: int, hidden: int, bias: bool) -> list[Parameter | None]:
    spread = hidden**-0.5
    shapes: list[tuple[int, ...]] = [(gates * hidden, size), (gates * hidden, hidden)]
    found: list[Parameter | None] = [Parameter(*s, spread=spread, law="uniform") for s in shapes]
    biases = [Parameter(gates * hidden, spread=spread, law="uniform") for _ in range(2)]
    return [*found, *(biases if bias else (None, None))]


def _value(p: Parameter | None) -> Tensor | None:
    return None if p is None else p.tensor


class _Cell(Module):
    kind: ClassVar[str]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        _, gates, self.tensors = STEPS[self.kind]
        found = _weights(gates, input_size, hidden_size, bias)
        self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh = found
        self.hidden_size, self.nonlinearity = hidden_size, nonlinearity

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """(N, input_size) and a state of (N, hidden_size) to the next state; zeros unless given."""
        state = hx if isinstance(hx, tuple) else None if hx is None else (hx,)
        if state is None:
            empty = zeros((*input.shape[:-1], self.hidden_size), dtype=input.dtype)
            state = (empty,) * self.tensors
        assert self.weight_ih is not None
        assert self.weight_hh is not None
        x = input.linear(self.weight_ih.tensor, _value(self.bias_ih))
        h = state[0].linear(self.weight_hh.tensor, _value(self.bias_hh))
        new = STEPS[self.kind][0](x, h, state, self.nonlinearity)
        return new if self.tensors > 1 else new[0]


class RNNCell(_Cell):
    """``tanh(W x + b + V h + c)``, or relu."""

    kind = "rnn"


class LSTMCell(_Cell):
    """One step of a long short-term memory: gates i, f, g, o (Hochreiter and Schmidhuber 1997)."""

    kind = "lstm"


class GRUCell(_Cell):
    """One step of a gated recurrent unit: gates r, z, n (Cho et al. 2014)."""

    kind = "gru"


class _Recurrent(Module):
    kind: ClassVar[str]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        nonlinearity: str = "tanh",
    ) -> None:
        del dropout
        _, gates, self.tensors = STEPS[self.kind]
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.nonlinearity = batch_first, nonlinearity
        self.directions = ("", "_reverse") if bidirectional else ("",)
        for layer in range(num_layers):
            size = input_size if layer == 0 else hidden_size * len(self.directions)
            for direction in self.directions:
                found = _weights(gates, size, hidden_size, bias)
                for name, p in zip(_NAMES, found, strict=True):
                    setattr(self, f"{name}_l{layer}{direction}", p)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
        """(L, N, input_size) to (L, N, hidden_size) and the last state, (layers, N, hidden_size).

        Without a batch (L, input_size); with ``batch_first`` (N, L, input_size).
        """
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: input {input.shape} must be (L, N, {self.input_size})"
            )
        alone = input.ndim == 2
        x = input.unsqueeze(1) if alone else input.swapaxes(0, 1) if self.batch_first else input
        state = self._state(x, hx, alone)
        ends: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for d, direction in enumerate(self.directions):
                at = layer * len(self.directions) + d
                begun = tuple(s[at] for s in state)
                y, end = self._run(x, begun, f"_l{layer}{direction}", bool(direction))
                outputs.append(y)
                ends.append(end)
            x = outputs[0] if len(outputs) == 1 else cat(outputs, -1)
        last = tuple(stack([e[i] for e in ends], 0) for i in range(self.tensors))
        if alone:
            x, last = x.squeeze(1), tuple(s.squeeze(1) for s in last)
        elif self.batch_first:
            x = x.swapaxes(0, 1)
        return x, last if self.tensors > 1 else last[0]

    def _state(self, x: Tensor, hx: Any, alone: bool) -> State:
        if hx is None:
            shape = (self.num_layers * len(self.directions), x.shape[1], self.hidden_size)
            return (zeros(shape, dtype=x.dtype),) * self.tensors
        given: State = hx if isinstance(hx, tuple) else (hx,)
        return tuple(s.unsqueeze(1) for s in given) if alone else given

    def _run(self, x: Tensor, state: State, suffix: str, backwards: bool) -> tuple[Tensor, State]:
        wih, whh, bih, bhh = (getattr(self, n + suffix) for n in _NAMES)
        inputs = x.linear(wih.tensor, _value(bih))
        step = STEPS[self.kind][0]
        order = range(x.shape[0])
        found: list[Tensor] = []
        for t in reversed(order) if backwards else order:
            h = state[0].linear(whh.tensor, _value(bhh))
            state = step(inputs[t], h, state, self.nonlinearity)
            found.append(state[0])
        return stack(found[::-1] if backwards else found, 0), state


_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class RNN(_Recurrent):
    """A recurrent network with tanh or relu."""

    kind = "rnn"


class LSTM(_Recurrent):
    """A long short-term memory."""

    kind = "lstm"


class GRU(_Recurrent):
    """A gated recurrent unit."""

    kind = "gru"
