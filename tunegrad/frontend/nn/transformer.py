"""Attention with weights, and the layers of a transformer (Vaswani et al. 2017), for inference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

from tunegrad.errors import ShapeError

from ..creation import ones
from ..functions import scaled_dot_product_attention, where
from ..tensor import Tensor
from .containers import ModuleList
from .layers import Linear
from .module import Layer, Module, Parameter, kaiming, value_of
from .norms import LayerNorm

__all__ = [
    "MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer",
    "TransformerEncoder", "TransformerEncoderLayer",
]  # fmt: skip


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
        del dropout
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(
                f"MultiheadAttention: num_heads={num_heads} does not divide embed_dim={embed_dim}"
            )
        spread = kaiming(embed_dim, 1.0)
        self.in_proj_weight = Parameter(3 * embed_dim, embed_dim, spread=spread)
        self.in_proj_bias = Parameter(3 * embed_dim, spread=0.1) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first

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
        if need_weights:
            scores = (q @ k.mT) * width**-0.5
            if causal:
                mask = ones((rows, k.shape[-2]), dtype="bool").triu(1)
            if mask is not None:
                scores = (
                    scores.masked_fill(mask, float("-inf")) if mask.dtype.is_bool else scores + mask
                )
            weights = scores.softmax(-1)
            y = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            allowed = ~mask if mask is not None and mask.dtype.is_bool else mask
            y = scaled_dot_product_attention(q, k, v, allowed, is_causal=causal)
        out = self.out_proj(y.transpose(1, 2).reshape(n, rows, size))
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


class _Block(Layer):
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
        del dropout
        for name in self.attentions:
            made = MultiheadAttention(d_model, nhead, bias=bias, batch_first=batch_first)
            setattr(self, name, made)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        for i in range(len(self.attentions) + 1):
            setattr(self, f"norm{i + 1}", LayerNorm(d_model, layer_norm_eps, bias=bias))
        self.activation, self.norm_first = activation, norm_first

    def _through(self, x: Tensor, *attend: Callable[[Tensor], tuple[Tensor, Any]]) -> Tensor:
        """The attentions, and the feed-forward network after them."""
        parts = [lambda y, a=a: a(y)[0] for a in attend]
        for i, part in enumerate((*parts, self._feed)):
            norm: LayerNorm = getattr(self, f"norm{i + 1}")
            x = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return x

    def _feed(self, x: Tensor) -> Tensor:
        h, a = self.linear1(x), self.activation
        return self.linear2(getattr(h, a)() if isinstance(a, str) else a(h))


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
    """Self-attention, attention to a memory and a feed-forward network, each with a residual and a
    norm.
    """

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


class _Stack(Layer):
    """Several layers of one form, and a norm at the end where one is given."""

    def __init__(self, layer: Layer, num_layers: int, norm: Module | None) -> None:
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


class Transformer(Layer):
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
        return self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        )
