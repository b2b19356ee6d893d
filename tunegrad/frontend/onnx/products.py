"""Products of matrices, those of small integers, determinants, Fourier transforms and counts of
short sequences; and recurrent layers, their steps unrolled.

Attention and its kin, and the embedding of places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..functions import einsum, stack, where
from ..tensor import Tensor
from .images import convolution
from .node import NodeView, Value, defined


def _gemm(n: NodeView) -> Tensor:
    a, b, c = n(0), n(1), n.tensor(2)
    a = a.transpose(0, 1) if n.get("transA", 0) else a
    b = b.transpose(0, 1) if n.get("transB", 0) else b
    y = a @ b
    y = y if n.get("alpha", 1.0) == 1.0 else y * n.get("alpha")
    if c is not None:
        y = y + (c if n.get("beta", 1.0) == 1.0 else c * n.get("beta"))
    return y.cast(a.dtype)


def _integers(n: NodeView) -> Tensor:
    """MatMulInteger and ConvInteger: products of small integers, in i32."""
    a, b = n(0).cast("i32"), n(1).cast("i32")
    at, bt = n.tensor(2), n.tensor(3)
    if n.op == "MatMulInteger":
        a = a if at is None else a - _wide(at.cast("i32"), -1, a.ndim)
        return a @ (b if bt is None else b - _wide(bt.cast("i32"), 0, b.ndim))
    a = a if at is None else a - at.cast("i32").reshape(())
    b = b if bt is None else b - _wide(bt.cast("i32"), -1, b.ndim)
    return convolution(NodeView(n.op, n.name, n.opset, n.attributes, (a, b)))


def _wide(value: Tensor, side: int, rank: int) -> Tensor:
    """A zero point or scale for all, or for each row (-1) or column."""
    if value.ndim != 1 or value.shape[0] == 1:
        return value.reshape(()) if value.ndim < 2 else value
    return value.reshape(-1, *(1,) * (rank - 1)) if side else value


def _quantized_matmul(n: NodeView) -> Tensor:
    """QLinearMatMul: (a, scale, zero), (b, scale, zero), (scale, zero) of the result."""
    a, b, kind = n(0), n(3), n(7).dtype
    rank = max(a.ndim, b.ndim)
    left = a.cast("i32") - _wide(n(2).cast("i32"), -1, 2)
    right = b.cast("i32") - _wide(n(5).cast("i32"), 0, 2)
    scale = _wide(n(1).cast("f32"), -1, 2) * _wide(n(4).cast("f32"), 0, 2)
    scale = scale / _wide(n(6).cast("f32"), -1, rank)
    y = ((left @ right).cast("f32") * scale).round() + _wide(n(7).cast("f32"), -1, rank)
    return y.clamp(float(kind.least), float(kind.greatest)).cast(kind)


def _quantized_conv(n: NodeView) -> Tensor:
    """QLinearConv: (x, scale, zero), (w, scale, zero), (scale, zero) of the result, bias in i32."""
    x, w, kind = n(0), n(3), n(7).dtype
    operands: tuple[Value, ...] = (
        x.cast("i32") - n(2).cast("i32").reshape(()),
        w.cast("i32") - _wide(n(5).cast("i32"), -1, w.ndim),
        n.at(8),
    )
    y = convolution(NodeView(n.op, n.name, n.opset, n.attributes, operands))
    scale = n(1).reshape(()) * _wide(n(4), -1, x.ndim - 1) / n(6).reshape(())
    scaled = (y.cast("f32") * scale).round() + n(7).cast("f32").reshape(())
    return scaled.clamp(float(kind.least), float(kind.greatest)).cast(kind)


_LARGEST = 32
"""Rows of a matrix whose determinant is there; its steps are unrolled."""


def _det(n: NodeView) -> Tensor:
    """Det: elimination with the largest pivot of each column."""
    x = n(0)
    size = x.shape[-1]
    if x.ndim < 2 or x.shape[-2] != size or size > _LARGEST:
        raise n.error(f"of shape {x.shape}; square matrices of up to {_LARGEST} rows are there")
    found: Tensor | None = None
    for left in range(size, 0, -1):
        rows = Tensor(np.arange(left))
        best = x[..., 0].abs().argmax(-1, keepdim=True)
        chosen = where(rows.eq(0), best, where(rows.eq(best), 0, rows))
        x = x.take_along_dim(chosen.unsqueeze(-1), -2, mode="known").contiguous()
        pivot = x[..., 0, 0]
        signed = where(best.squeeze(-1).eq(0), pivot, pivot.neg())
        found = signed if found is None else found * signed
        if left > 1:
            factor = where(pivot.eq(0), 0.0, 1.0 / pivot).unsqueeze(-1) * x[..., 1:, 0]
            x = x[..., 1:, 1:] - factor.unsqueeze(-1) * x[..., 0, 1:].unsqueeze(-2)
    assert found is not None
    return found.cast(n(0).dtype)


PRODUCTS: dict[str, Callable[[NodeView], Any]] = {
    "ConvInteger": _integers,
    "Det": _det,
    "Einsum": lambda n: einsum(n.get("equation"), *(n(i) for i in range(len(n.inputs)))).cast(
        n(0).dtype
    ),
    "Gemm": _gemm,
    "MatMul": lambda n: n(0) @ n(1),
    "MatMulInteger": _integers,
    "QLinearConv": _quantized_conv,
    "QLinearMatMul": _quantized_matmul,
}

_LONGEST = 1 << 12
"""Elements of a transform; one of a prime has matrices of the square of it."""


def _transformed(n: NodeView, x: Tensor, length: int, back: bool, half: bool) -> Tensor:
    """The transform of the last dimension but one of (.., elements, 1 or 2), which is cut or filled
    with zeros to ``length``; ``half`` of the frequencies, or from half of them. Sums are in f64.
    """
    if not 1 <= length <= _LONGEST:
        raise n.error(f"{length} elements; 1 to {_LONGEST} are there")
    kind, x = x.dtype, x.cast("f64")
    if back and half:
        return _from_half(x, length).cast(kind)
    x = x.narrow(-2, 0, min(x.shape[-2], length))
    x = x.pad((0, 0, 0, length - x.shape[-2]))
    rows = next(d for d in range(math.isqrt(length), 0, -1) if length % d == 0)
    parts = [x[..., 0], *([x[..., 1]] if x.shape[-1] > 1 else [])]
    kept = length // 2 + 1 if half else length
    if rows > 1:
        found = _by_rows(parts, rows, length // rows, back, half)
    else:
        found = _product(parts, _turns(np.outer(np.arange(length), np.arange(kept)), length, back))
    y = stack(found, -1).narrow(-2, 0, kept)
    return (y / (length if back else 1)).cast(kind)


def _by_rows(parts: list[Tensor], rows: int, columns: int, back: bool, half: bool) -> list[Tensor]:
    """A transform of ``rows * columns`` elements by one of columns and one of rows (Cooley, Tukey
    1965): element ``columns * i + j``, frequency ``k + rows * l``; of half, the first ``l``.
    """
    i, j, size = np.arange(rows), np.arange(columns), rows * columns
    grid = [p.unflatten(-1, (rows, columns)).mT for p in parts]
    re, im = _product(grid, _turns(np.outer(i, i), rows, back))
    cos, sin = _turns(np.outer(j, i), size, back)
    found = [(re * cos - im * sin).mT, (re * sin + im * cos).mT]
    last = j[: columns // 2 + 1] if half else j
    return [p.mT.flatten(-2) for p in _product(found, _turns(np.outer(j, last), columns, back))]


def _product(parts: Sequence[Tensor], turns: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Real and imaginary part of a product; ``parts`` may be the real part alone."""
    cos, sin = turns
    if len(parts) == 1:
        return [parts[0] @ cos, parts[0] @ sin]
    re, im = parts
    return [re @ cos - im @ sin, re @ sin + im @ cos]


def _turns(places: np.ndarray[Any, Any], length: int, back: bool) -> tuple[Tensor, Tensor]:
    """Real and imaginary part of powers of the root of 1, in f64."""
    found = np.exp(2j * np.pi * ((places if back else -places) % length) / length)
    return Tensor(found.real), Tensor(found.imag)


def _from_half(x: Tensor, length: int) -> Tensor:
    """Real elements from the half of their frequencies; the others are conjugates."""
    count = min(x.shape[-2], length // 2 + 1)
    x = x.narrow(-2, 0, count)
    number = np.arange(count)
    alone = (number == 0) | (2 * number == length)
    x = x * Tensor(np.where(alone, 1.0, 2.0).reshape(-1, 1))
    cos, sin = _turns(np.outer(number, np.arange(length)), length, True)
    real = x[..., 0] @ cos
    real = real if x.shape[-1] == 1 else real - x[..., 1] @ sin
    return real.unsqueeze(-1) / length


def _dft(n: NodeView) -> Tensor:
    x, back, half = n(0), bool(n.get("inverse", 0)), bool(n.get("onesided", 0))
    given = n.ints(2) if n.opset >= 20 else None
    axis = given[0] if given else n.get("axis", -2 if n.opset >= 20 else 1)
    axis %= x.ndim
    if axis == x.ndim - 1:
        raise n.error("the last axis holds real and imaginary parts")
    length = n.ints(1)
    extent = x.shape[axis]
    wanted = length[0] if length else 2 * (extent - 1) if back and half else extent
    return _transformed(n, x.movedim(axis, -2), wanted, back, half).movedim(-2, axis)


def _stft(n: NodeView) -> Tensor:
    """STFT: (batch, elements, 1 or 2) to (batch, frames, frequencies, 2)."""
    x, step, window, length = n(0), n.ints(1), n.tensor(2), n.ints(3)
    if not step or (window is None and not length):
        raise n.error("frame_step and frame_length must be known")
    x = x.unsqueeze(-1) if x.ndim == 2 else x
    size = window.shape[0] if window is not None else length[0] if length else 0
    frames = x.window(1, size, step[0]).movedim(-1, 2)
    frames = frames if window is None else frames * window.reshape(-1, 1)
    return _transformed(n, frames, size, False, bool(n.get("onesided", 1)))


SIGNALS: dict[str, Callable[[NodeView], Any]] = {"DFT": _dft, "STFT": _stft}


def _tfidf(n: NodeView) -> Tensor:
    """TfIdfVectorizer of integers: how often each sequence of a pool stands in each row, its
    elements up to ``max_skip_count`` others apart.
    """
    pool = n.get("pool_int64s")
    if not pool:
        raise n.error("pools of strings are not supported")
    x, numbers = n(0), np.asarray(n.get("ngram_indexes"))
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    least, most = n.get("min_gram_length"), n.get("max_gram_length")
    starts, size, first = [*n.get("ngram_counts"), len(pool)], int(numbers.max()) + 1, 0
    total = Tensor(np.zeros((rows.shape[0], size), np.float32))
    for length, (begin, end) in enumerate(pairwise(starts), 1):
        count = (end - begin) // length
        places, first = numbers[first : first + count], first + count
        if not (count and least <= length <= most):
            continue
        grams = np.asarray(pool[begin : begin + count * length]).reshape(count, length)
        one = np.zeros((count, size), np.float32)
        one[np.arange(count), places] = 1
        for apart in range(1, 2 if length == 1 else n.get("max_skip_count") + 2):
            if (length - 1) * apart < rows.shape[1]:
                seen = rows.window(1, length, 1, apart).unsqueeze(2)
                alike = seen.eq(Tensor(grams, x.dtype)).all(-1)
                total = total + alike.cast("f32").sum(1) @ Tensor(one)
    weights = n.get("weights")
    weight = 1.0 if not weights else Tensor(np.asarray(weights, np.float32))
    mode = n.get("mode")
    found = total if mode == "TF" else (total > 0).cast("f32") if mode == "IDF" else total
    found = found if mode == "TF" else found * weight
    return found if x.ndim > 1 else found.reshape(-1)


GRAMS: dict[str, Callable[[NodeView], Any]] = {"TfIdfVectorizer": _tfidf}

_WAYS = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

_USUAL = {
    "affine": (1.0, 0.0), "elu": (1.0,), "hardsigmoid": (0.2, 0.5), "leakyrelu": (0.01,),
    "scaledtanh": (1.0, 1.0), "thresholdedrelu": (1.0,),
}  # fmt: skip

DEFAULTS = {name: tuple(float(np.float32(x)) for x in usual) for name, usual in _USUAL.items()}
"""Alpha, and beta, of the activations that have them: floats of 32 bits, as a file's are."""

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
        if name not in (*_PLAIN, *DEFAULTS):
            raise n.error(f"activation {name} is not supported")
        alpha, beta = (*DEFAULTS.get(name, ()), 0.0, 0.0)[:2]
        if alphas and name in DEFAULTS:
            alpha = alphas.pop(0)
        if betas and len(DEFAULTS.get(name, ())) > 1:
            beta = betas.pop(0)
        found.append(curve(name, alpha, beta))
    return found[i * count : (i + 1) * count]


def curve(name: str, a: float, b: float) -> _Curve:
    """An activation by its name in lower case, and its alpha and beta."""
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
    from ..nn.sequences import UNROLLED_STEPS  # most files have no recurrence

    if len(ways) * x.shape[0] > UNROLLED_STEPS:
        raise n.error(f"{x.shape[0]} steps in {len(ways)} directions; {UNROLLED_STEPS} at most")
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


def _tensor_scatter(n: NodeView) -> Tensor:
    """TensorScatter: rows of a cache written from a place on, of each batch its own."""
    past, update, first = n(0), n(1), n.tensor(2)
    axis = n.get("axis", -2) % past.ndim
    extent, length = past.shape[axis], update.shape[axis]
    line: Sequence[int] = [-1 if d == axis else 1 for d in range(past.ndim)]
    place = Tensor(np.arange(extent).reshape(line))
    if first is not None:
        place = place - first.cast("i64").reshape(-1, *(1,) * (past.ndim - 1))
    if n.get("mode", "linear") == "circular":
        place = where(place < 0, place + extent, place)
    inside = (place >= 0).logical_and(place < length)
    taken = update.take_along_dim(place.clamp(0, length - 1), axis)
    return where(inside, taken, past)


ATTENTION: dict[str, Callable[[NodeView], Any]] = {
    **dict.fromkeys(
        ["Attention", "CausalConvWithState", "LinearAttention", "RotaryEmbedding"], defined
    ),
    "TensorScatter": _tensor_scatter,
}
