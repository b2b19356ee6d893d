"""Operators of ONNX Runtime's own domain, com.microsoft, as its optimiser and quantiser write them.

    Conv, Add, Relu            -->  FusedConv
    Add, LayerNormalization    -->  SkipLayerNormalization
    a QLinearConv of images    -->  one with channels last, between transpositions

Each is what it stands for, so that it fuses and tunes as the operators that it replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tunegrad.ir.dtypes import DType

from ..functions import cat, stack, where
from ..tensor import Tensor
from .elementwise import CASTS, dynamically
from .images import POOLS, convolution
from .node import Function, NodeView
from .products import DEFAULTS, PRODUCTS, curve, recurrent
from .reductions import NORMS, normalised


def _activated(n: NodeView, y: Tensor) -> Tensor:
    """A result under the activation that a node names, with its parameters."""
    name, given = str(n.get("activation", "")), list(n.get("activation_params") or [])
    alpha = n.get("activation_alpha", given[0] if given else None)
    beta = n.get("activation_beta", given[1] if len(given) > 1 else None)
    if name in ("", "HardSwish"):
        return y.hardswish() if name else y
    if name == "Clip":
        return y if alpha is None and beta is None else y.clamp(alpha, beta)
    if name not in ("HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"):
        raise n.error(f"activation {name} is not supported")
    usual = (*DEFAULTS.get(name.lower(), ()), 0.0, 0.0)
    a, b = (u if g is None else g for g, u in zip((alpha, beta), usual, strict=False))
    return curve(name.lower(), a, b)(y)


def _fused_conv(n: NodeView) -> Tensor:
    y, more = convolution(n), n.tensor(3)
    return _activated(n, y if more is None else y + more)


def _nhwc(function: Function) -> Function:
    """Of an operator over images whose channels are last."""

    def found(n: NodeView) -> Tensor:
        x = n(0)
        first = replace(n, inputs=[x.movedim(-1, 1), *n.inputs[1:]])
        made = function(first)
        y: Tensor = made[0] if isinstance(made, tuple) else made
        return y.movedim(1, -1)

    return found


def _fused_conv_of_nhwc(n: NodeView) -> Tensor:
    more = n.tensor(3)
    return _fused_conv(
        n if more is None else replace(n, inputs=[*n.inputs[:3], more.movedim(-1, 1)])
    )


def _channels(function: Function) -> Function:
    return lambda n: (_nhwc(function) if n.get("channels_last", 0) else function)(n)


def _fused_matmul(n: NodeView) -> Tensor:
    sides = []
    for at, name in enumerate("AB"):
        x = n(at)
        if n.get(f"transBatch{name}", 0):
            x = x.movedim(0, -2)
        sides.append(x.mT if n.get(f"trans{name}", 0) and x.ndim > 1 else x)
    y, alpha = sides[0] @ sides[1], n.get("alpha", 1.0)
    return y if alpha == 1.0 else y * alpha


def _gelu(n: NodeView) -> Tensor:
    x, bias = n(0), n.tensor(1)
    x = x if bias is None else x + bias
    return x.gelu("tanh" if n.op == "FastGelu" else "none")


def _normalised(n: NodeView, x: Tensor, gamma: Tensor, beta: Tensor | None) -> tuple[Tensor, ...]:
    """A layer norm of the last dimension, or one without a mean; the mean, and 1 / deviation."""
    centred = "Simplified" not in n.op
    off, mean, inverse = normalised(x, (-1,), n.get("epsilon", 1e-12), centred)
    y = off * gamma.cast(off.dtype)
    y = y if beta is None else y + beta.cast(off.dtype)
    return y.cast(x.dtype), mean, inverse


def _skip_norm(n: NodeView) -> tuple[Tensor, ...]:
    plain = "Simplified" in n.op
    beta, bias = (None, n.tensor(3)) if plain else (n.tensor(3), n.tensor(4))
    x = n(0) + n(1)
    x = x if bias is None else x + bias
    return *_normalised(n, x, n(2), beta), x


def _embedded(n: NodeView) -> tuple[Tensor, ...]:
    ids, segments, mask, places = n(0), n.tensor(1), n.tensor(7), n.tensor(8)
    line = n(3)[places] if places is not None else n(3)[: ids.shape[1]].unsqueeze(0)
    x = n(2)[ids] + line
    if segments is not None and (parts := n.tensor(4)) is not None:
        x = x + parts[segments]
    y, *_ = _normalised(n, x, n(5), n(6))
    none = Tensor(np.zeros(ids.shape[0], np.int32))
    return y, none if mask is None else mask.cast("i32").sum(1).cast("i32"), x


# ---- attention


def _split_heads(x: Tensor, heads: int) -> Tensor:
    return x.reshape(x.shape[0], x.shape[1], heads, -1).permute(0, 2, 1, 3)


def _attended(
    n: NodeView, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None
) -> Tensor:
    """(B, heads, T, D) each: the attention of all heads, (B, T, heads * D)."""
    width, away = q.shape[-1], float(n.get("mask_filter_value", -10000.0))
    scores = (q @ k.mT) * (n.get("scale", 0.0) or width**-0.5)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores + where(_held(n, mask, q.shape[0], k.shape[2]), 0.0, away)
    if n.get("unidirectional", 0):
        rows = np.arange(q.shape[2]).reshape(-1, 1) + k.shape[2] - q.shape[2]
        scores = where(Tensor(np.arange(k.shape[2]) <= rows), scores, -np.inf)
    found: Tensor = scores.softmax(-1) @ v
    return found.cast(q.dtype).permute(0, 2, 1, 3).flatten(2)


def _held(n: NodeView, mask: Tensor, batch: int, keys: int) -> Tensor:
    """True for keys that are looked at, of a mask in one of its forms: (B, 1, 1 or T, keys)."""
    line = Tensor(np.arange(keys))
    if mask.ndim == 1 and mask.shape[0] == batch:
        return (line < mask.reshape(-1, 1)).reshape(batch, 1, 1, keys)
    if mask.ndim == 1 and mask.shape[0] == 2 * batch:
        ends, starts = mask[:batch].reshape(-1, 1), mask[batch:].reshape(-1, 1)
        return (line < ends).logical_and(line >= starts).reshape(batch, 1, 1, keys)
    if mask.ndim not in (2, 3) or mask.shape[-1] != keys:
        raise n.error(f"a mask of shape {mask.shape} is not supported")
    held = mask.ne(0)
    return held.unsqueeze(1).unsqueeze(1) if mask.ndim == 2 else held.unsqueeze(1)


def _with_past(past: Tensor | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values behind those of before, and both as one tensor."""
    if past is not None:
        k, v = cat([past[0], k], 2), cat([past[1], v], 2)
    return k, v, stack([k, v], 0)


def _attention(n: NodeView) -> tuple[Tensor, ...]:
    """Attention: queries, keys and values are one product with the input."""
    x, w, bias, mask, past, added = n(0), n(1), n.tensor(2), n.tensor(3), n.tensor(4), n.tensor(5)
    return _projected(n, x @ w, bias, mask, past, added)


def _projected(
    n: NodeView, made: Tensor, bias: Tensor | None, mask: Tensor | None, past: Tensor | None,
    added: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    if n.get("do_rotary", 0) or n.get("past_present_share_buffer", 0):
        raise n.error("do_rotary and past_present_share_buffer are not supported")
    made = made if bias is None else made + bias
    sizes = list(n.get("qkv_hidden_sizes") or [made.shape[-1] // 3] * 3)
    heads = n.get("num_heads")
    q, k, v = (_split_heads(part, heads) for part in made.split(sizes, -1))
    present: list[Tensor] = []
    if k.shape == v.shape:
        k, v, *present = _with_past(past, k, v)
    elif past is not None or n.outputs > 1:
        raise n.error("a cache of keys and values of two widths is not supported")
    return _attended(n, q, k, v, mask, added), *present


def _multi_head(n: NodeView) -> tuple[Tensor, ...]:
    heads, bias, mask, added = n.get("num_heads"), n.tensor(3), n.tensor(4), n.tensor(5)
    if n.at(1) is None or n.at(2) is None:
        raise n.error("packed keys and values are not supported")
    parts = [n(0), n(1), n(2)]
    if bias is not None:
        sizes = [p.shape[-1] if p.ndim == 3 else heads * p.shape[-1] for p in parts]
        pieces = bias.split(sizes, 0)
        parts = [p + b if p.ndim == 3 else p for p, b in zip(parts, pieces, strict=True)]
    q, k, v = (p if p.ndim == 4 else _split_heads(p, heads) for p in parts)
    past, values = n.tensor(6), n.tensor(7)
    if past is not None and values is not None:
        k, v = cat([past, k], 2), cat([values, v], 2)
    return _attended(n, q, k, v, mask, added), k, v


# ---- quantised


def _plain(n: NodeView, place: int, axis: int | None = None) -> Tensor:
    """A quantised operand as numbers: its scale and zero point stand behind it."""
    return _numbers(n(place), n(place + 1), n.tensor(place + 2), axis)


def _numbers(x: Tensor, scale: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
    """``(x - zero) * scale``, one of each in all or for each position of an axis."""
    line = [1] * x.ndim
    if axis is not None and scale.size > 1:
        line[axis] = -1
    wide = x.cast("f32")
    wide = wide if zero is None else wide - _spread(zero.cast("f32"), line)
    return wide * _spread(scale, line)


def _spread(value: Tensor, line: list[int]) -> Tensor:
    return value.reshape(line) if value.size > 1 else value.reshape(())


def _stepped(n: NodeView, y: Tensor, place: int, kind: DType) -> Tensor:
    """Numbers as steps of the scale at ``place``, with the zero point behind it."""
    zero = n.tensor(place + 1)
    kind = kind if zero is None else zero.dtype
    steps = (y / n(place).reshape(())).round()
    steps = steps if zero is None else steps + zero.cast("f32").reshape(())
    return steps.clamp(float(kind.least), float(kind.greatest)).cast(kind)


def _on_numbers(function: Callable[[NodeView, Tensor], Tensor]) -> Function:
    """Of (x, scale, zero) and (scale, zero) of the result."""
    return lambda n: _stepped(n, function(n, _plain(n, 0)), 3, n(0).dtype)


def _on_pairs(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    return lambda n: _stepped(n, function(_plain(n, 0), _plain(n, 3)), 6, n(0).dtype)


def _as(op: str, function: Function, **changed: Any) -> Callable[[NodeView, Tensor], Tensor]:
    """ONNX's operator of numbers instead of steps."""

    def found(n: NodeView, x: Tensor) -> Tensor:
        made = function(replace(n, op=op, inputs=[x], outputs=1, **changed))
        y: Tensor = made[0] if isinstance(made, tuple) else made
        return y

    return found


def _average(n: NodeView) -> Tensor:
    last = n.get("channels_last", 0)
    x = _plain(n, 0)
    x = x.movedim(-1, 1) if last else x
    if n.op == "QLinearGlobalAveragePool":
        y = x.mean(tuple(range(2, x.ndim)), True)
    else:
        y = _as("AveragePool", POOLS["AveragePool"])(n, x)
    return _stepped(n, y.movedim(1, -1) if last else y, 3, n(0).dtype)


def _softmax(n: NodeView, x: Tensor) -> Tensor:
    return _as("Softmax", NORMS["Softmax"], opset=n.get("opset", 13))(n, x)


def _bias_softmax(n: NodeView) -> Tensor:
    axis = n.get("axis", 1)
    given = replace(n, op="Softmax", inputs=[n(0) + n(1)], attributes={"axis": axis}, opset=11)
    found: Tensor = NORMS["Softmax"](given)
    return found


def _concat(n: NodeView) -> Tensor:
    parts = [_plain(n, i) for i in range(2, len(n.inputs), 3)]
    return _stepped(n, cat(parts, n.get("axis")), 0, n(2).dtype)


def _where(n: NodeView) -> Tensor:
    return _stepped(n, where(n(0), _plain(n, 1), _plain(n, 4)), 7, n(1).dtype)


def _gemm(n: NodeView) -> Tensor:
    """QGemm: (A, scale, zero), (B, scale, zero), bias in i32, (scale, zero) of the result."""
    turned = n.get("transB", 0)
    a, b, c = _plain(n, 0), _plain(n, 3, 0 if turned else 1), n.tensor(6)
    a = a.mT if n.get("transA", 0) else a
    y = (a @ (b.mT if turned else b)) * n.get("alpha", 1.0)
    if c is not None:
        y = y + c.cast("f32") * n(1).reshape(()) * n(4) * n.get("alpha", 1.0)
    return y if n.at(7) is None else _stepped(n, y, 7, n(0).dtype)


def _rounded(x: Tensor) -> Tensor:
    """Numbers on the 256 steps of their range, as a product in bytes sees them."""
    steps, scale, zero = dynamically(x)
    return (steps.cast("f32") - zero.cast("f32")) * scale


def _dynamic_matmul(n: NodeView) -> Tensor:
    """DynamicQuantizeMatMul of numbers, MatMulIntegerToFloat of steps."""
    if n.op == "DynamicQuantizeMatMul":
        a, b, bias = _rounded(n(0)), _numbers(n(1), n(2), n.tensor(3), -1), n.tensor(4)
    else:
        a, b = _numbers(n(0), n(2), n.tensor(4)), _numbers(n(1), n(3), n.tensor(5), -1)
        bias = n.tensor(6)
    return a @ b if bias is None else a @ b + bias


def _dynamic_lstm(n: NodeView) -> tuple[Tensor, ...]:
    """DynamicQuantizeLSTM: weights in bytes, (directions, in, 4 * hidden); inputs are rounded."""
    weights = []
    for at, scale in ((1, 8), (2, 10)):
        w, s, z = n(at), n(scale), n(scale + 1)
        line = (w.shape[0], 1, -1)
        weights.append(((w.cast("f32") - z.cast("f32").reshape(line)) * s.reshape(line)).mT)
    inputs = [n.at(0), *weights, *n.inputs[3:8]]
    return recurrent(replace(n, op="LSTM", inputs=inputs), _rounded)


def _quantised_attention(n: NodeView) -> tuple[Tensor, ...]:
    x, w = _numbers(n(0), n(3), n.tensor(6)), _numbers(n(1), n(4), n.tensor(7), -1)
    return _projected(n, x @ w, n.tensor(2), n.tensor(5), n.tensor(8), None)


def _nbits(n: NodeView) -> Tensor:
    """MatMulNBits: weights of 4 or 8 bits in blocks along the reduction, each with a scale."""
    bits, rows, depth = n.get("bits", 4), n.get("N"), n.get("K")
    size = n.get("block_size")
    if n.at(4) is not None or bits not in (4, 8):
        raise n.error(f"bits = {bits} with g_idx {'given' if n.at(4) is not None else 'left out'}")
    blocks = -(-depth // size)
    steps = _unpacked(n(1).reshape(rows, blocks, -1), bits)
    zeros = n.tensor(3)
    if zeros is None:
        zero: Tensor | float = float(1 << (bits - 1))
    elif zeros.dtype.is_float:
        zero = zeros.reshape(rows, blocks, 1)
    else:
        zero = _unpacked(zeros.reshape(rows, -1), bits)[:, :blocks].unsqueeze(-1)
    scale = n(2).reshape(rows, blocks, 1)
    w = ((steps - zero) * scale.cast("f32")).reshape(rows, blocks * size)[:, :depth]
    y, bias = n(0) @ w.cast(n(0).dtype).mT, n.tensor(5)
    return y if bias is None else y + bias


def _unpacked(x: Tensor, bits: int) -> Tensor:
    """Numbers of so many bits along the last dimension, the low ones first."""
    if bits == 8:
        return x.cast("f32")
    both = stack([x.bitwise_and(15), x.bitwise_right_shift(4)], -1)
    return both.flatten(-2).cast("f32")


_OPERATORS: dict[str, Callable[[NodeView], Any]] = {
    "Attention": _attention,
    "BiasGelu": _gelu,
    "BiasSoftmax": _bias_softmax,
    "DequantizeLinear": CASTS["DequantizeLinear"],
    "DynamicQuantizeLSTM": _dynamic_lstm,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "EmbedLayerNormalization": _embedded,
    "FastGelu": _gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": lambda n: _activated(n, PRODUCTS["Gemm"](n)),
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "MatMulIntegerToFloat": _dynamic_matmul,
    "MatMulNBits": _nbits,
    "MultiHeadAttention": _multi_head,
    "NhwcFusedConv": _nhwc(_fused_conv_of_nhwc),
    "NhwcMaxPool": _nhwc(POOLS["MaxPool"]),
    "QAttention": _quantised_attention,
    "QGemm": _gemm,
    "QLinearAdd": _on_pairs(lambda a, b: a + b),
    "QLinearAveragePool": _average,
    "QLinearConcat": _concat,
    "QLinearConv": _channels(PRODUCTS["QLinearConv"]),
    "QLinearGlobalAveragePool": _average,
    "QLinearLeakyRelu": _on_numbers(lambda n, x: x.leaky_relu(n.get("alpha", 0.01))),
    "QLinearMul": _on_pairs(lambda a, b: a * b),
    "QLinearSigmoid": _on_numbers(lambda _, x: x.sigmoid()),
    "QLinearSoftmax": _on_numbers(_softmax),
    "QLinearWhere": _where,
    "QuantizeLinear": CASTS["QuantizeLinear"],
    "QuickGelu": lambda n: n(0) * (n(0) * n.get("alpha", 1.702)).sigmoid(),
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_norm,
    "TransposeMatMul": _fused_matmul,
}  # fmt: skip

CONTRIB: dict[str, Function] = {
    **{f"com.microsoft.{op}": function for op, function in _OPERATORS.items()},
    "SimplifiedLayerNormalization": lambda n: NORMS["RMSNormalization"](
        replace(n, op="RMSNormalization")
    ),
}
