"""Recurrent layers and cells, unrolled: one product of all inputs, then one small product a step.

Names of weights are PyTorch's: ``weight_ih_l0``, ``weight_hh_l0``, ``bias_ih_l0``, ``bias_hh_l0``,
with ``_reverse`` behind them for the other direction.

Attention with weights, and the layers of a transformer (Vaswani et al. 2017).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

from tunegrad.errors import ShapeError

from ..creation import ones, zeros
from ..functional import dropout as dropped
from ..functions import cat, scaled_dot_product_attention, stack, where
from ..tensor import Tensor
from .layers import LayerNorm, Linear
from .module import Module, ModuleList, Parameter, kaiming, value_of

__all__ = [
    "GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "MultiheadAttention", "RNNCell", "Transformer",
    "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip

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


UNROLLED_STEPS = 4096
"""Steps of all layers and directions of a recurrence. An LSTM of 500, 1,000 and 2,000 is planned in
4, 11 and 33 s of a Zen 5's core: this many take a minute or two.
"""


def _weights(gates: int, size: int, hidden: int, bias: bool) -> list[Parameter | None]:
    spread = hidden**-0.5
    shapes: list[tuple[int, ...]] = [(gates * hidden, size), (gates * hidden, hidden)]
    found: list[Parameter | None] = [Parameter(*s, spread=spread, law="uniform") for s in shapes]
    biases = [Parameter(gates * hidden, spread=spread, law="uniform") for _ in range(2)]
    return [*found, *(biases if bias else (None, None))]


def layers(
    kind: str, x: Tensor, state: Sequence[Tensor], weights: Sequence[Weights], directions: int,
    act: str, dropout: float = 0.0,
) -> tuple[Tensor, State]:  # fmt: skip
    """Layers over (L, N, input_size), each in one or two directions: the outputs, and the last
    states; ``state`` and ``weights`` have one row for each layer and direction. ``dropout`` is of
    what each layer but the last one gives.

    Raises ShapeError for more than ``UNROLLED_STEPS``.
    """
    step, _, count = STEPS[kind]
    if len(weights) * x.shape[0] > UNROLLED_STEPS:
        raise ShapeError(
            f"{kind}: {x.shape[0]} steps in {len(weights)} layers and directions; steps are "
            f"unrolled, {UNROLLED_STEPS} at most: give a sequence in parts, each with the last "
            "state of the one before it"
        )
    ends: list[State] = []
    for first in range(0, len(weights), directions):
        outputs = []
        for at in range(first, first + directions):
            wih, whh, bih, bhh = weights[at]
            inputs, now = x.linear(wih, bih), tuple(s[at] for s in state)
            found: list[Tensor] = []
            for t in range(x.shape[0])[:: 1 if at == first else -1]:
                now = step(inputs[t], now[0].linear(whh, bhh), now, act)
                found.append(now[0])
            outputs.append(stack(found if at == first else found[::-1], 0))
            ends.append(now)
        x = outputs[0] if directions == 1 else cat(outputs, -1)
        x = dropped(x, dropout, first + directions < len(weights))
    return x, tuple(stack([e[i] for e in ends], 0) for i in range(count))


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
        x = input.linear(self.weight_ih.tensor, value_of(self.bias_ih))
        h = state[0].linear(self.weight_hh.tensor, value_of(self.bias_hh))
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
        _, gates, self.tensors = STEPS[self.kind]
        self.dropout = dropout
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
        weights = [
            cast("Weights", tuple(value_of(getattr(self, f"{n}_l{layer}{d}")) for n in _NAMES))
            for layer in range(self.num_layers)
            for d in self.directions
        ]
        x, last = layers(
            self.kind, x, state, weights, len(self.directions), self.nonlinearity,
            self.dropout if self.training else 0.0,
        )  # fmt: skip
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


class MultiheadAttention(Module):
    """Attention of several heads with one projection of queries, keys and values."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(
                f"MultiheadAttention: num_heads={num_heads} does not divide embed_dim={embed_dim}"
            )
        spread = kaiming(embed_dim, 1.0)
        self.in_proj_weight = Parameter(3 * embed_dim, embed_dim, spread=spread)
        self.in_proj_bias = Parameter(3 * embed_dim, spread=0.1) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.dropout = dropout

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(L, N, E), (S, N, E) and (S, N, E) to (L, N, E), and the weights (N, L, S) where they are
        needed.

        Masks are PyTorch's here: true where a query may *not* look, or numbers that are added.
        """
        alone = query.ndim == 2
        same = query.node is key.node and key.node is value.node
        q, k, v = (self._batched(t, alone) for t in (query, key, value))
        n, rows, size = q.shape
        parts = self._projected(q, k, v, same)
        heads, width = self.num_heads, size // self.num_heads
        q, k, v = (p.reshape(n, -1, heads, width).transpose(1, 2) for p in parts)
        mask = self._mask(attn_mask, key_padding_mask, n, alone)
        causal = is_causal and mask is None
        weights: Tensor | None = None
        if need_weights or (self.training and self.dropout):
            scores = (q @ k.mT) * width**-0.5
            if causal:
                mask = ones((rows, k.shape[-2]), dtype="bool").triu(1)
            if mask is not None:
                scores = (
                    scores.masked_fill(mask, float("-inf")) if mask.dtype.is_bool else scores + mask
                )
            weights = dropped(scores.softmax(-1), self.dropout, self.training)
            y = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            allowed = ~mask if mask is not None and mask.dtype.is_bool else mask
            y = scaled_dot_product_attention(q, k, v, allowed, is_causal=causal)
        out = self.out_proj(y.transpose(1, 2).reshape(n, rows, size))
        weights = weights if need_weights else None
        if alone:
            return out.squeeze(0), weights if weights is None else weights.squeeze(0)
        return (out if self.batch_first else out.swapaxes(0, 1)), weights

    def _batched(self, x: Tensor, alone: bool) -> Tensor:
        if alone:
            return x.unsqueeze(0)
        return x if self.batch_first else x.swapaxes(0, 1)

    def _projected(self, q: Tensor, k: Tensor, v: Tensor, same: bool) -> tuple[Tensor, ...]:
        weight = self.in_proj_weight.tensor
        bias = value_of(self.in_proj_bias)
        if same:
            return q.linear(weight, bias).chunk(3, -1)
        ws = weight.chunk(3, 0)
        bs = (None, None, None) if bias is None else bias.chunk(3, 0)
        return tuple(x.linear(w, b) for x, w, b in zip((q, k, v), ws, bs, strict=True))

    def _mask(
        self, attn: Tensor | None, padding: Tensor | None, n: int, alone: bool
    ) -> Tensor | None:
        mask = attn
        if mask is not None and mask.ndim == 3:
            mask = mask.reshape(n, self.num_heads, *mask.shape[1:])
        if padding is None:
            return mask
        keys = (padding.unsqueeze(0) if alone else padding).reshape(n, 1, 1, -1)
        if mask is None:
            return keys
        if mask.dtype.is_bool and keys.dtype.is_bool:
            return mask | keys
        return _added(mask) + _added(keys)


def _added(mask: Tensor) -> Tensor:
    return where(mask, float("-inf"), 0.0) if mask.dtype.is_bool else mask


class _Block(Module):
    """Attention and a feed-forward network, each with a residual and a norm."""

    attentions: ClassVar[tuple[str, ...]]
    self_attn: MultiheadAttention

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        for name in self.attentions:
            made = MultiheadAttention(d_model, nhead, dropout, bias, batch_first)
            setattr(self, name, made)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        for i in range(len(self.attentions) + 1):
            setattr(self, f"norm{i + 1}", LayerNorm(d_model, layer_norm_eps, bias=bias))
        self.activation, self.norm_first, self.dropout = activation, norm_first, dropout

    def _through(self, x: Tensor, *attend: Callable[[Tensor], tuple[Tensor, Any]]) -> Tensor:
        """The attentions, and the feed-forward network after them."""
        parts = [lambda y, a=a: self._dropped(a(y)[0]) for a in attend]
        for i, part in enumerate((*parts, self._feed)):
            norm: LayerNorm = getattr(self, f"norm{i + 1}")
            x = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return x

    def _feed(self, x: Tensor) -> Tensor:
        h, a = self.linear1(x), self.activation
        h = getattr(h, a)() if isinstance(a, str) else a(h)
        return self._dropped(self.linear2(self._dropped(h)))

    def _dropped(self, x: Tensor) -> Tensor:
        return dropped(x, self.dropout, self.training)


class TransformerEncoderLayer(_Block):
    """Self-attention and a feed-forward network, each with a residual and a norm."""

    attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """(L, N, E) to the same."""
        return self._through(
            src,
            lambda x: self.self_attn(
                x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal
            ),
        )


class TransformerDecoderLayer(_Block):
    """Self-attention, attention to a memory, feed-forward; each with a residual and a norm."""

    attentions = ("self_attn", "multihead_attn")
    multihead_attn: MultiheadAttention

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """(L, N, E) and a memory (S, N, E) to (L, N, E)."""
        return self._through(
            tgt,
            lambda x: self.self_attn(
                x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal
            ),
            lambda x: self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask,
                is_causal=memory_is_causal,
            ),
        )  # fmt: skip


class _Stack(Module):
    """Several layers of one form, and a norm at the end where one is given."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.norm = norm

    def _through(self, x: Tensor, *rest: Any, **options: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *rest, **options)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Several encoder layers, and a norm at the end where one is given."""

    def __init__(
        self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """(L, N, E) to the same."""
        return self._through(src, mask, src_key_padding_mask, is_causal)


class TransformerDecoder(_Stack):
    """Several decoder layers, and a norm at the end where one is given."""

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(self, tgt: Tensor, memory: Tensor, *masks: Any, **options: Any) -> Tensor:
        """(L, N, E) and a memory (S, N, E) to (L, N, E); masks as a layer takes them."""
        return self._through(tgt, memory, *masks, **options)


class Transformer(Module):
    """An encoder and a decoder."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        same = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias,
        )  # fmt: skip
        ends = [LayerNorm(d_model, layer_norm_eps, bias=bias) for _ in range(2)]
        encoder_layer, decoder_layer = (
            TransformerEncoderLayer(*same),
            TransformerDecoderLayer(*same),
        )
        self.encoder = TransformerEncoder(encoder_layer, num_encoder_layers, ends[0])
        self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, ends[1])

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """(S, N, E) and (L, N, E) to (L, N, E)."""
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        found: Tensor = self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        )
        return found
