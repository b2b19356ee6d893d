"""Attention and its kin, and the embedding of places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tunegrad.ir.dtypes import DType

from ..functions import cat, scaled_dot_product_attention, stack, where
from ..tensor import Tensor
from .elementwise import type_of
from .node import NodeView

__all__ = ["ATTENTION"]


def _rotary(n: NodeView) -> Tensor:
    x, cos, sin, at = n(0), n(1), n(2), n.tensor(3)
    flat, heads, part = x.ndim == 3, n.get("num_heads", 0), n.get("rotary_embedding_dim", 0)
    if flat:
        x = _heads(x, heads)
    rest = None
    if part and part < x.shape[-1]:
        x, rest = x[..., :part], x[..., part:]
    if at is not None:
        cos, sin = cos[at], sin[at]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    if n.get("interleaved", 0):
        a, b = x[..., ::2], x[..., 1::2]
        y = stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    else:
        a, b = x.chunk(2, -1)
        y = cat([a * cos - b * sin, a * sin + b * cos], -1)
    y = y if rest is None else cat([y, rest], -1)
    return _flat(y) if flat else y


def _heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, H * D) as (B, H, T, D)."""
    return x.reshape(x.shape[0], x.shape[1], heads, -1).permute(0, 2, 1, 3)


def _flat(x: Tensor) -> Tensor:
    return x.permute(0, 2, 1, 3).flatten(2)


def _attention(n: NodeView) -> tuple[Tensor, ...]:
    """Attention: Y, the keys and values with those of the cache before them, and scores."""
    q, k, v = n(0), n(1), n(2)
    flat = q.ndim == 3
    if flat:
        pairs = n.get("kv_num_heads")
        q, k, v = _heads(q, n.get("q_num_heads")), _heads(k, pairs), _heads(v, pairs)
    past, past_values = n.tensor(4), n.tensor(5)
    if past is not None and past_values is not None:
        k, v = cat([past, k], 2), cat([past_values, v], 2)
    before = 0 if past is None else past.shape[2]
    mask, guarded = _mask(n, q.shape[-2], k.shape[-2], before)
    causal = bool(n.get("is_causal", 0)) and not (guarded or before or _windows(n))
    found: list[Tensor] = [k, v]
    if n.get("softcap", 0.0) or n.get("softmax_precision", 1) == _DOUBLE or n.outputs > 1:
        y, scores = _scored(n, q, k, v, mask)
        found.append(scores)
    else:
        y = scaled_dot_product_attention(
            q, k, v, None if causal else mask, is_causal=causal, scale=n.get("scale"),
            enable_gqa=q.shape[1] != k.shape[1],
        )  # fmt: skip
        y = _guarded(y, mask) if guarded else y
    return (_flat(y) if flat else y), *found


_DOUBLE = 11
"""``TensorProto.DOUBLE``."""


def _windows(n: NodeView) -> bool:
    return bool(max(n.get("left_window_size", -1), n.get("right_window_size", -1)) >= 0)


def _guarded(y: Tensor, mask: Tensor | None) -> Tensor:
    """Zero where a query looks at nothing."""
    if mask is None:
        return y
    seen = mask if mask.dtype.is_bool else mask > -math.inf
    return where(seen.any(-1, keepdim=True), y, 0.0).cast(y.dtype)


def _mask(n: NodeView, rows: int, columns: int, before: int) -> tuple[Tensor | None, bool]:
    """Keys that each query may look at, or numbers that are added to scores; and True where there
    may be queries that look at no key.
    """
    given, lengths = n.tensor(3), n.tensor(6)
    if given is not None and given.shape[-1] < columns:
        widths = [(0, 0)] * (given.ndim - 1) + [(0, columns - given.shape[-1])]
        fill = False if given.dtype.is_bool else -math.inf
        given = given.pad(widths, "constant", fill)
    i, j = Tensor(np.arange(rows).reshape(-1, 1)), Tensor(np.arange(columns).reshape(1, -1))
    held = lengths.cast("i64").reshape(-1, 1, 1, 1) if lengths is not None else None
    place = i + before if held is None or before else i + (held - rows)
    bounds = list[Tensor]()
    if n.get("is_causal", 0):
        bounds.append(j <= place)
    left, right = n.get("left_window_size", -1), n.get("right_window_size", -1)
    if left >= 0:
        bounds.append(place - j <= left)
    if right >= 0:
        bounds.append(j - place <= right)
    if held is not None:
        bounds.append(j < held)
    allowed: Tensor | None = None
    for bound in bounds:
        allowed = bound if allowed is None else allowed.logical_and(bound)
    guarded = given is not None or held is not None
    if given is None or allowed is None:
        return (allowed if given is None else given), guarded
    if given.dtype.is_bool:
        return allowed.logical_and(given), guarded
    return where(allowed, given, -math.inf).cast(given.dtype), guarded


def _scored(
    n: NodeView, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attention with a cap on scores, and what its scores are at the place that is asked for."""
    kind, wide = q.dtype, q.dtype.compute
    precision = type_of(n, n.get("softmax_precision")) if n.get("softmax_precision") else wide
    if isinstance(precision, DType) and precision.bits > wide.bits:
        wide = precision
    if q.shape[1] != k.shape[1]:
        times = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    scale = n.get("scale")
    scores = (q.cast(wide) @ k.cast(wide).mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    stages = [scores]
    cap = n.get("softcap", 0.0)
    if cap:
        scores = (scores / cap).tanh() * cap
    stages.append(scores)
    if mask is not None:
        added = scores if mask.dtype.is_bool else scores + mask.cast(wide)
        seen = mask if mask.dtype.is_bool else mask > -math.inf
        scores = where(seen, added, -math.inf).cast(wide)
    stages.append(scores)
    found = _guarded(scores.softmax(-1), mask)
    stages.append(found)
    return (found @ v.cast(wide)).cast(kind), stages[n.get("qk_matmul_output_mode", 0)].cast(kind)


_RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True),
          "gated_delta": (True, True)}  # fmt: skip
"""Of LinearAttention: whether the state fades, and whether values are corrected by it."""


def _linear_attention(n: NodeView) -> tuple[Tensor, Tensor]:
    """A state of (keys, values) for each head, which each step fades, writes and reads (Yang et al.
    2024, Gated Delta Networks); steps are unrolled.
    """
    rule = n.get("update_rule", "gated_delta")
    if rule not in _RULES:
        raise n.error(f"update_rule {rule!r}; valid: {', '.join(_RULES)}")
    fades, corrects = _RULES[rule]
    heads, pairs = n.get("q_num_heads"), n.get("kv_num_heads")
    q, k, v = (_heads(n(i).cast("f32"), h) for i, h in ((0, heads), (1, pairs), (2, pairs)))
    batch, width = q.shape[0], q.shape[-1]
    past, decay, beta = n.tensor(3), n.tensor(4), n.tensor(5)
    if fades != (decay is not None) or corrects != (beta is not None):
        raise n.error(f"update_rule {rule!r} does not go with these operands")
    state = Tensor(np.zeros((batch, pairs, width, v.shape[-1]), np.float32))
    state = state if past is None else past.cast("f32")
    fade = None if decay is None else _heads(decay.cast("f32"), pairs).exp()
    rate = None if beta is None else _heads(beta.cast("f32"), beta.shape[-1])
    scale = n.get("scale", 0.0) or width**-0.5
    found = []
    for t in range(q.shape[2]):
        key, value = k[:, :, t].unsqueeze(-1), v[:, :, t].unsqueeze(-2)
        if fade is not None:
            state = state * fade[:, :, t].unsqueeze(-1)
        if rate is not None:
            value = (value - key.mT @ state) * rate[:, :, t].unsqueeze(-1)
        state = state + key * value
        read = state if heads == pairs else state.repeat_interleave(heads // pairs, 1)
        found.append(q[:, :, t].unsqueeze(-2) @ read * scale)
    kept = n(0).dtype if past is None else past.dtype
    return _flat(cat(found, 2)).cast(n(0).dtype), state.cast(kept)


def _causal_conv(n: NodeView) -> tuple[Tensor, Tensor]:
    """CausalConvWithState: each channel with its own taps, over what was there before."""
    x, weight, past = n(0), n(1), n.tensor(3)
    before = weight.shape[-1] - 1
    if past is None:
        whole = x.pad([(0, 0), (0, 0), (before, 0)], "constant", 0.0)
    else:
        whole = cat([past, x], 2)
    y = whole.conv1d(weight, n.tensor(2), groups=x.shape[1]).cast(x.dtype)
    kind = n.get("activation", "none")
    if kind not in ("none", "silu", "swish"):
        raise n.error(f"activation {kind!r}; valid: none, silu, swish")
    y = y if kind == "none" else y.silu()
    return y, whole.narrow(2, whole.shape[2] - before, before)


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
    "Attention": _attention,
    "CausalConvWithState": _causal_conv,
    "LinearAttention": _linear_attention,
    "RotaryEmbedding": _rotary,
    "TensorScatter": _tensor_scatter,
}
