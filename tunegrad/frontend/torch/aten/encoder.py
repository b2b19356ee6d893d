"""Layers that PyTorch runs as one operator: a transformer's encoder, and its attention."""

from __future__ import annotations

import math

from ...functions import where
from ...tensor import Tensor
from .table import Operator, entries

__all__ = ["TABLE"]

_ATTENTION_MASK, _PADDING_MASK = 0, 1
"""Values of ``mask_type``; 2 is a mask of every head."""


def _hidden(mask: Tensor, mask_type: int | None) -> Tensor:
    """True for keys that are not to be seen, as (batch, heads, queries, keys)."""
    hidden = mask if mask.dtype.is_bool else mask != 0
    if mask_type == _PADDING_MASK:
        return hidden.unsqueeze(1).unsqueeze(1)
    if mask_type == _ATTENTION_MASK and hidden.ndim == 2:
        return hidden.unsqueeze(0).unsqueeze(0)
    return hidden


def _attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor,
    qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None = None,
    need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    def heads(x: Tensor, place: int) -> Tensor:
        first = place * embed_dim
        weight = qkv_weight.narrow(0, first, embed_dim)
        y = x.linear(weight, qkv_bias.narrow(0, first, embed_dim))
        shape = (*y.shape[:2], num_head, embed_dim // num_head)
        return y.reshape(shape).transpose(1, 2)

    q, k, v = heads(query, 0), heads(key, 1), heads(value, 2)
    scores = (q * (1 / math.sqrt(embed_dim // num_head))) @ k.transpose(-1, -2)
    if mask is not None:
        scores = where(_hidden(mask, mask_type), -math.inf, scores)
    weights = scores.softmax(-1)
    y = (weights @ v).transpose(1, 2).reshape((*query.shape[:2], embed_dim))
    shown = (weights.mean(1) if average_attn_weights else weights) if need_weights else None
    return y.linear(proj_weight, proj_bias), shown


def _encoder_layer(
    src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    proj_weight: Tensor, proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor,
    ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor,
    mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    def normal(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return x.layer_norm(weight, bias, eps, (x.ndim - 1,))

    x = src
    y = normal(x, norm_weight_1, norm_bias_1) if norm_first else x
    y, _ = _attention(
        y, y, y, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
        False, True, mask_type,
    )  # fmt: skip
    x = x + y if norm_first else normal(x + y, norm_weight_1, norm_bias_1)
    y = normal(x, norm_weight_2, norm_bias_2) if norm_first else x
    y = y.linear(ffn_weight_1, ffn_bias_1)
    y = (y.gelu() if use_gelu else y.relu()).linear(ffn_weight_2, ffn_bias_2)
    return x + y if norm_first else normal(x + y, norm_weight_2, norm_bias_2)


TABLE: dict[str, Operator] = {
    **entries(_encoder_layer, "_transformer_encoder_layer_fwd.default"),
    **entries(_attention, "_native_multi_head_attention.default"),
}
