"""Products, convolutions, attention, recurrent layers; and layers that PyTorch runs as one
operator: a transformer's encoder, and its attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tunegrad.ir.dtypes import I32

from ...functions import einsum, scaled_dot_product_attention, where
from ...nn.sequences import layers
from ...ops.convolution import convolve, convolve_transposed
from ...tensor import Tensor
from .table import Operator, entries, overloads, unsupported


def _convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    rank = weight.ndim - 2
    if transposed:
        return convolve_transposed(
            x, rank, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return convolve(x, rank, weight, bias, stride, padding, dilation, groups)


def _addmm(x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product = mat1 @ mat2 if alpha == 1 else (mat1 @ mat2) * alpha
    if beta == 0:
        return product
    return product + (x if beta == 1 else x * beta)


def _addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, **factors: Any) -> Tensor:
    matrices, b = batch1.permute(1, 0, 2), batch2
    return _addmm(x, matrices.reshape(matrices.shape[0], -1), b.reshape(-1, b.shape[-1]), **factors)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if dropout_p:
        raise unsupported("scaled_dot_product_attention", "dropout")
    return scaled_dot_product_attention(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _flash_for_cpu(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, None]:  # fmt: skip
    """Fewer heads of keys and values are shared. The second result is for the backward pass."""
    shared = query.shape[-3] != key.shape[-3]
    found = _attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=shared
    )
    return found, None


def _on_cuda(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, dropout_p: float,
    is_causal: bool, return_debug_mask: bool, scale: float | None,
) -> tuple[Any, ...]:  # fmt: skip
    """The results behind the first are for the backward pass: two are the lengths of sequences."""
    if return_debug_mask:
        raise unsupported("scaled_dot_product_attention", "return_debug_mask")
    found, _ = _flash_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=attn_bias, scale=scale
    )
    return found, None, None, None, query.shape[-2], key.shape[-2], None, None, None


def _flash_for_cuda(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    return _on_cuda(query, key, value, None, dropout_p, is_causal, return_debug_mask, scale)


def _efficient_for_cuda(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    del compute_log_sumexp
    return _on_cuda(query, key, value, attn_bias, dropout_p, is_causal, False, scale)[:4]


def _cudnn(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False, *,
    scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    del compute_log_sumexp
    return _on_cuda(query, key, value, attn_bias, dropout_p, is_causal, return_debug_mask, scale)


def _layers(
    kind: str, x: Tensor, state: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool,
    directions: int, act: str,
) -> tuple[Tensor, Sequence[Tensor]]:  # fmt: skip
    each = 4 if has_biases else 2
    weights: list[Any] = [
        (*params[i : i + each], None, None)[:4] for i in range(0, len(params), each)
    ]
    return layers(kind, x, state, weights, directions, act)


def _recurrent(kind: str, act: str = "tanh") -> Operator:
    def run(
        x: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        if train and dropout:
            raise unsupported(f"{kind}.input", "dropout")
        if not isinstance(num_layers, int):
            raise unsupported(f"{kind}.input", "a packed sequence")
        state = tuple(hx) if isinstance(hx, list | tuple) else (hx,)
        x, directions = x.swapaxes(0, 1) if batch_first else x, 2 if bidirectional else 1
        y, ends = _layers(kind, x, state, params, has_biases, directions, act)
        return (y.swapaxes(0, 1) if batch_first else y, *ends)

    return run


def _one_layer(
    x: Tensor, wih: Tensor, whh: Tensor, bih: Tensor, bhh: Tensor, hx: Tensor, cx: Tensor,
    reverse: bool, batch_sizes: Sequence[int], mode: int, hidden_size: int, num_layers: int,
    has_biases: bool, bidirectional: bool, batch_first: bool, train: bool,
) -> tuple[Tensor, Tensor, Tensor, None]:  # fmt: skip
    """One layer and direction of an LSTM, as PyTorch takes one apart on the CPU."""
    del hidden_size, batch_first, train
    if mode != _LSTM or num_layers != 1 or bidirectional or batch_sizes:
        raise unsupported("mkldnn_rnn_layer", f"mode {mode} of {num_layers} layers")
    steps = x.flip(0) if reverse else x
    params = (wih, whh, bih, bhh) if has_biases else (wih, whh)
    y, (h, c) = _layers("lstm", steps, (hx, cx), params, has_biases, 1, "tanh")
    return (y.flip(0) if reverse else y), h, c, None


def _trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int],
) -> Tensor:  # fmt: skip
    """A sum of products of three tensors, each with dimensions of extent one put in."""
    product: Tensor | None = None
    for x, places in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for at in sorted(places):
            x = x.unsqueeze(at)
        product = x if product is None else product * x
    assert product is not None
    return product.sum(tuple(sumdim)) if sumdim else product


_LSTM = 2
"""PyTorch's number for it."""

CONTRACTION: dict[str, Operator] = {
    **overloads(
        "default", Tensor.mm, Tensor.bmm, Tensor.matmul, Tensor.dot, Tensor.mv, Tensor.linear,
        Tensor.outer,
    ),
    **entries(_addmm, "addmm.default", "baddbmm.default", "addmv.default"),
    **entries(_addbmm, "addbmm.default"),
    **entries(einsum, "einsum.default"),
    **entries(_convolution, "convolution.default"),
    **overloads("default padding", Tensor.conv1d, Tensor.conv2d, Tensor.conv3d),
    **overloads("default", Tensor.conv_transpose1d),
    **overloads("input", Tensor.conv_transpose2d, Tensor.conv_transpose3d),
    **entries(_attention, "scaled_dot_product_attention.default"),
    **entries(Tensor.cdist, "_cdist_forward.default"),
    **entries(lambda x, y: x.cast(I32) @ y.cast(I32), "_int_mm.default"),
    **entries(_trilinear, "_trilinear.default"),
    **entries(_flash_for_cpu, "_scaled_dot_product_flash_attention_for_cpu.default"),
    **entries(_flash_for_cuda, "_scaled_dot_product_flash_attention.default"),
    **entries(_efficient_for_cuda, "_scaled_dot_product_efficient_attention.default"),
    **entries(_cudnn, "_scaled_dot_product_cudnn_attention.default"),
    **entries(_recurrent("lstm"), "lstm.input"),
    **entries(_one_layer, "mkldnn_rnn_layer.default"),
    **entries(_recurrent("gru"), "gru.input"),
    **entries(_recurrent("rnn"), "rnn_tanh.input"),
    **entries(_recurrent("rnn", "relu"), "rnn_relu.input"),
}  # fmt: skip

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


def _encoder_attention(
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
    y, _ = _encoder_attention(
        y, y, y, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
        False, True, mask_type,
    )  # fmt: skip
    x = x + y if norm_first else normal(x + y, norm_weight_1, norm_bias_1)
    y = normal(x, norm_weight_2, norm_bias_2) if norm_first else x
    y = y.linear(ffn_weight_1, ffn_bias_1)
    y = (y.gelu() if use_gelu else y.relu()).linear(ffn_weight_2, ffn_bias_2)
    return x + y if norm_first else normal(x + y, norm_weight_2, norm_bias_2)


ENCODER: dict[str, Operator] = {
    **entries(_encoder_layer, "_transformer_encoder_layer_fwd.default"),
    **entries(_encoder_attention, "_native_multi_head_attention.default"),
}
