"""Recurrent layers, their steps unrolled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..functions import stack, where
from ..tensor import Tensor
from .node import NodeView

__all__ = ["RECURRENCE", "recurrent"]

_WAYS = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {
    "affine": (1.0, 0.0), "elu": (1.0,), "hardsigmoid": (0.2, 0.5), "leakyrelu": (0.01,),
    "scaledtanh": (1.0, 1.0), "thresholdedrelu": (1.0,),
}  # fmt: skip
"""Alpha, and beta, of the activations that have them."""

_Curve = Callable[[Tensor], Tensor]
_PLAIN: dict[str, _Curve] = {
    "relu": Tensor.relu, "sigmoid": Tensor.sigmoid, "softplus": Tensor.softplus,
    "softsign": Tensor.softsign, "tanh": Tensor.tanh,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Layer:
    """One direction of a layer: its weights, and what is the same in every step."""

    n: NodeView
    r: Tensor
    bias: Tensor
    curves: list[_Curve]
    peep: list[Tensor] | None
    seen: _Curve

    def step(self, given: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """The state after one step, whose product with the input's weights is ``given``."""
        r, rb, (f, *others) = self.r, self.bias, self.curves
        kept, h = h, self.seen(h)
        if self.n.op == "RNN":
            return f(self.clipped(given + h @ r.mT + rb)), c
        if self.n.op == "LSTM":
            return self._lstm(given + h @ r.mT + rb, c)
        z, e, g = given.chunk(3, -1)
        (rz, re, rg), (bz, be, bg) = r.chunk(3, 0), rb.chunk(3, 0)
        z = f(self.clipped(z + h @ rz.mT + bz))
        e = f(self.clipped(e + h @ re.mT + be))
        if self.n.get("linear_before_reset", 0):
            g = others[0](self.clipped(g + e * (h @ rg.mT + bg)))
        else:
            g = others[0](self.clipped(g + (e * h) @ rg.mT + bg))
        return (1 - z) * g + z * kept, c

    def _lstm(self, gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        f, g, k = self.curves
        into, out, forget, cell = gates.chunk(4, -1)
        if self.peep is not None:
            into, forget = into + self.peep[0] * c, forget + self.peep[2] * c
        kept = f(self.clipped(into))
        lost = 1 - kept if self.n.get("input_forget", 0) else f(self.clipped(forget))
        c = lost * c + kept * g(self.clipped(cell))
        if self.peep is not None:
            out = out + self.peep[1] * c
        return f(self.clipped(out)) * k(c), c

    def clipped(self, x: Tensor) -> Tensor:
        limit = self.n.get("clip")
        return x if limit is None else x.clamp(-limit, limit)


def _layer(n: NodeView, i: int, seen: _Curve) -> _Layer:
    r, both, peep = n(2)[i], n.tensor(3), n.tensor(7)
    rows = _GATES[n.op] * r.shape[-1]
    bias = Tensor(np.zeros(rows), r.dtype) if both is None else both[i][rows:]
    gates = list(peep[i].chunk(3, 0)) if peep is not None else None
    return _Layer(n, r, bias, _curves(n, i), gates, seen)


def _curves(n: NodeView, i: int) -> list[_Curve]:
    """The activations of direction i."""
    usual = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
    names = n.get("activations") or usual[n.op] * 2
    alphas, betas = list(n.get("activation_alpha") or []), list(n.get("activation_beta") or [])
    count, found = len(usual[n.op]), list[_Curve]()
    for name in (str(m).lower() for m in names):
        if name not in (*_PLAIN, *_DEFAULTS):
            raise n.error(f"activation {name} is not supported")
        alpha, beta = (*_DEFAULTS.get(name, ()), 0.0, 0.0)[:2]
        if alphas and name in _DEFAULTS:
            alpha = alphas.pop(0)
        if betas and len(_DEFAULTS.get(name, ())) > 1:
            beta = betas.pop(0)
        found.append(_curve(name, alpha, beta))
    return found[i * count : (i + 1) * count]


def _curve(name: str, a: float, b: float) -> _Curve:
    if name in _PLAIN:
        return _PLAIN[name]
    given: dict[str, _Curve] = {
        "affine": lambda x: x * a + b,
        "elu": lambda x: x.elu(a),
        "hardsigmoid": lambda x: (x * a + b).clamp(0.0, 1.0),
        "leakyrelu": lambda x: x.leaky_relu(a),
        "scaledtanh": lambda x: (x * b).tanh() * a,
        "thresholdedrelu": lambda x: where(x > a, x, 0.0),
    }
    return given[name]


def recurrent(n: NodeView, seen: _Curve = lambda x: x) -> tuple[Tensor, ...]:
    """LSTM, GRU and RNN: steps one after the other, forwards, backwards or both; ``seen`` is what a
    product with weights sees of inputs and states.
    """
    x, ways, lengths = n(0), _WAYS[n.get("direction", "forward")], n.tensor(4)
    late = bool(n.get("layout", 0))
    x = x.transpose(0, 1) if late else x
    found = [_one_way(n, _turned(x, way, lengths), i, lengths, seen) for i, way in enumerate(ways)]
    kept = [_turned(y, way, lengths) for (y, _, _), way in zip(found, ways, strict=True)]
    y, h = stack(kept, 1), stack([h for _, h, _ in found], 0)
    if late:
        y, h = y.permute(2, 0, 1, 3), h.transpose(0, 1)
    if n.op != "LSTM":
        return y, h
    c = stack([c for _, _, c in found], 0)
    return y, h, c.transpose(0, 1) if late else c


def _turned(x: Tensor, way: int, lengths: Tensor | None) -> Tensor:
    """(steps, batch, ..), backwards where ``way`` is -1: as many steps as each has."""
    if way > 0:
        return x
    if lengths is None:
        return x.flip(0)
    step = Tensor(np.arange(x.shape[0]).reshape(-1, 1))
    place = where(step < lengths, lengths - 1 - step, step)
    return x.take_along_dim(place.unsqueeze(-1), 0)


def _one_way(
    n: NodeView, x: Tensor, i: int, lengths: Tensor | None, seen: _Curve
) -> tuple[Tensor, Tensor, Tensor]:
    w, layer, both = n(1)[i], _layer(n, i, seen), n.tensor(3)
    late = bool(n.get("layout", 0))
    zero = Tensor(np.zeros((x.shape[1], layer.r.shape[-1])), x.dtype)
    first, cell = n.tensor(5), n.tensor(6)
    h = zero if first is None else (first.transpose(0, 1) if late else first)[i]
    c = zero if cell is None else (cell.transpose(0, 1) if late else cell)[i]
    inputs = seen(x) @ w.mT
    inputs = inputs if both is None else inputs + both[i][: w.shape[0]]
    steps = []
    for t in range(x.shape[0]):
        after, cells = layer.step(inputs[t], h, c)
        if lengths is None:
            h, c = after, cells
            steps.append(h)
            continue
        going = (lengths > t).unsqueeze(-1)
        h, c = where(going, after, h), where(going, cells, c)
        steps.append(where(going, h, 0.0))
    return stack(steps, 0), h, c


RECURRENCE: dict[str, Callable[[NodeView], Any]] = {
    "GRU": recurrent,
    "LSTM": recurrent,
    "RNN": recurrent,
}
