"""Operators of networks: products, convolutions, pools, norms, reductions, recurrence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..contraction import einsum
from ..functions import cat, stack, where
from ..methods.linear import attention
from ..tensor import Tensor
from .node import NodeView

__all__ = ["NETWORKS"]

_Pairs = list[tuple[int, int]]


def _gemm(n: NodeView) -> Tensor:
    a, b, c = n(0), n(1), n.tensor(2)
    a = a.transpose(0, 1) if n.get("transA", 0) else a
    b = b.transpose(0, 1) if n.get("transB", 0) else b
    y = a @ b
    y = y if n.get("alpha", 1.0) == 1.0 else y * n.get("alpha")
    if c is None:
        return y
    return y + (c if n.get("beta", 1.0) == 1.0 else c * n.get("beta"))


def _ends(n: NodeView, extents: Sequence[int], size: Sequence[int]) -> _Pairs:
    """Padding before and after each dimension, as the node says it."""
    rank = len(size)
    strides, spread = _list(n, "strides", rank), _list(n, "dilations", rank)
    kind = n.get("auto_pad", "NOTSET")
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        pairs = []
        for e, k, s, d in zip(extents, size, strides, spread, strict=True):
            total = max(0, (-(-e // s) - 1) * s + d * (k - 1) + 1 - e)
            less, more = total // 2, total - total // 2
            pairs.append((less, more) if kind == "SAME_UPPER" else (more, less))
        return pairs
    pads = [0] * 2 * rank if kind == "VALID" else n.get("pads") or [0] * 2 * rank
    return [(int(pads[i]), int(pads[rank + i])) for i in range(rank)]


def _list(n: NodeView, name: str, rank: int) -> list[int]:
    return [int(x) for x in n.get(name) or [1] * rank]


def _padded(x: Tensor, ends: _Pairs, value: float = 0.0) -> Tensor:
    if not any(map(any, ends)):
        return x
    return x.pad([(0, 0)] * (x.ndim - len(ends)) + ends, "constant", value)


def _conv(n: NodeView) -> Tensor:
    x, w, bias = n(0), n(1), n.tensor(2)
    rank = w.ndim - 2
    if rank not in (1, 2, 3):
        raise n.error(f"convolutions over {rank} dimensions are not there")
    ends = _ends(n, x.shape[2:], w.shape[2:])
    padding: Any = [a for a, _ in ends]
    if any(a != b for a, b in ends):
        x, padding = _padded(x, ends), 0
    found: Tensor = getattr(x, f"conv{rank}d")(
        w, bias, _list(n, "strides", rank), padding, _list(n, "dilations", rank), n.get("group", 1)
    )
    return found


def _conv_transpose(n: NodeView) -> Tensor:
    x, w, bias = n(0), n(1), n.tensor(2)
    rank = w.ndim - 2
    strides, spread = _list(n, "strides", rank), _list(n, "dilations", rank)
    more = [int(p) for p in n.get("output_padding") or [0] * rank]
    whole = [
        s * (e - 1) + o + (k - 1) * d + 1
        for e, s, o, k, d in zip(x.shape[2:], strides, more, w.shape[2:], spread, strict=True)
    ]
    shape, kind = n.get("output_shape"), n.get("auto_pad", "NOTSET")
    if shape is None and kind.startswith("SAME"):
        shape = [e * s for e, s in zip(x.shape[2:], strides, strict=True)]
    if shape is not None:
        cut = [w_ - int(e) for w_, e in zip(whole, shape[-rank:], strict=True)]
        upper = kind == "SAME_UPPER"
        ends = [(c // 2, c - c // 2) if upper else (c - c // 2, c // 2) for c in cut]
    else:
        pads = n.get("pads") or [0] * 2 * rank
        ends = [(int(pads[i]), int(pads[rank + i])) for i in range(rank)]
    # all of it, and then what padding cuts away
    y: Tensor = getattr(x, f"conv_transpose{rank}d")(
        w, None, strides, 0, 0, n.get("group", 1), spread
    )
    for at, ((a, b), o) in enumerate(zip(ends, more, strict=True), 2):
        end = y.shape[at] + min(0, o - b)
        y = y.narrow(at, max(0, a), end - max(0, a))
        y = _padded(y, [(max(0, -a) if i == at else 0, max(0, o - b) if i == at else 0)
                        for i in range(2, y.ndim)])  # fmt: skip
    return y if bias is None else y + bias.reshape(-1, *(1,) * rank)


def _pool(n: NodeView) -> Any:
    x, size = n(0), [int(k) for k in n.get("kernel_shape")]
    rank, ends = len(size), _ends(n, n(0).shape[2:], [int(k) for k in n.get("kernel_shape")])
    strides, spread = _list(n, "strides", rank), _list(n, "dilations", rank)
    ceil = bool(n.get("ceil_mode", 0))
    even = all(a == b and 2 * a <= k for (a, b), k in zip(ends, size, strict=True))
    if n.op == "MaxPool":
        if n.outputs > 1 and (not even or n.get("storage_order", 0)):
            raise n.error("indices of such maxima are not there")
        padding: Any = [a for a, _ in ends]
        if not even:
            x, padding = _padded(x, ends, -math.inf if x.dtype.is_float else x.dtype.least), 0
        pool = getattr(x, f"max_pool{rank}d")
        if n.outputs == 1:
            return pool(size, strides, padding, spread, ceil)
        found, at = pool(size, strides, padding, spread, ceil, True)
        images = np.arange(x.shape[0] * x.shape[1]) * int(np.prod(x.shape[2:]))
        return found, at + Tensor(images.reshape(*x.shape[:2], *(1,) * rank))
    if any(d != 1 for d in spread):
        raise n.error("dilations of averages are not there")
    counted = bool(n.get("count_include_pad", 0))
    if even:
        return getattr(x, f"avg_pool{rank}d")(size, strides, [a for a, _ in ends], ceil, counted)
    y = getattr(_padded(x, ends), f"avg_pool{rank}d")(size, strides, 0, ceil)
    if counted:
        return y
    ones = _padded(Tensor(np.ones((1, 1, *x.shape[2:]), np.float32)), ends)
    return y / getattr(ones, f"avg_pool{rank}d")(size, strides, 0, ceil).cast(y.dtype)


def _global(name: str) -> Callable[[NodeView], Tensor]:
    def function(n: NodeView) -> Tensor:
        found: Tensor = getattr(n(0), name)(tuple(range(2, n(0).ndim)), True)
        return found

    return function


def _batch_norm(n: NodeView) -> Tensor:
    if n.get("training_mode", 0):
        raise n.error("training_mode=1: only inference is there")
    return n(0).batch_norm(n(1), n(2), n(3), n(4), n.get("epsilon", 1e-5))


def _instance_norm(n: NodeView) -> Tensor:
    return n(0).instance_norm(n(1), n(2), n.get("epsilon", 1e-5))


def _group_norm(n: NodeView) -> Tensor:
    x, groups, scale, bias = n(0), n.get("num_groups"), n(1), n(2)
    if scale.shape[0] != x.shape[1]:  # before opset 21: one for each group
        each = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return x.group_norm(groups, scale, bias, n.get("epsilon", 1e-5))


def _layer_norm(n: NodeView) -> Any:
    x, axis = n(0), n.get("axis", -1) % n(0).ndim
    axes, eps = tuple(range(axis, x.ndim)), n.get("epsilon", 1e-5)
    if n.op == "RMSNormalization":
        return x * (x.square().mean(axes, True) + eps).rsqrt() * n(1)
    if n.outputs == 1 and axis == x.ndim - 1 and n(1).ndim == 1:
        return x.layer_norm(n(1), n.tensor(2), eps)
    mean = x.mean(axes, True)
    off = x - mean
    inverse = (off.square().mean(axes, True) + eps).rsqrt()
    y = off * inverse * n(1)
    bias = n.tensor(2)
    y = y if bias is None else y + bias
    return (y, mean, inverse)[: max(1, n.outputs)]


def _lrn(n: NodeView) -> Tensor:
    return n(0).local_response_norm(
        n.get("size"), n.get("alpha", 1e-4), n.get("beta", 0.75), n.get("bias", 1.0)
    )


def _soft(n: NodeView) -> Tensor:
    x = n(0)
    axis = n.get("axis", -1 if n.opset >= 13 else 1)
    if n.op == "Hardmax":
        at = x.argmax(axis, keepdim=True)
        extent = x.shape[axis]
        places = np.arange(extent).reshape(-1, *(1,) * (x.ndim - axis % x.ndim - 1))
        return at.eq(Tensor(places)).cast(x.dtype)
    name = "log_softmax" if n.op == "LogSoftmax" else "softmax"
    if n.opset >= 13:
        found: Tensor = getattr(x, name)(axis)
        return found
    axis %= x.ndim
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    flat: Tensor = getattr(x.reshape(rows, -1), name)(-1)
    return flat.reshape(*x.shape)


def _reduced(body: Callable[[Tensor, Any, bool], Tensor]) -> Callable[[NodeView], Tensor]:
    def function(n: NodeView) -> Tensor:
        axes = n.ints(1, "axes")
        if not axes:
            if n.get("noop_with_empty_axes", 0):
                return n(0)
            axes = list(range(n(0).ndim))
        return body(n(0), tuple(axes), bool(n.get("keepdims", 1))).cast(n(0).dtype)

    return function


def _arg(n: NodeView) -> Tensor:
    x, axis, keep = n(0), n.get("axis", 0), bool(n.get("keepdims", 1))
    name = "argmax" if n.op == "ArgMax" else "argmin"
    if not n.get("select_last_index", 0):
        found: Tensor = getattr(x, name)(axis, keepdim=keep)
        return found
    last: Tensor = getattr(x.flip(axis), name)(axis, keepdim=keep)
    return last.neg() + int(x.shape[axis] - 1)


def _cumulative(n: NodeView) -> Tensor:
    x, (axis,) = n(0), n.ints(1) or [0]
    back, product = n.get("reverse", 0), n.op == "CumProd"
    x = x.flip(axis) if back else x
    y = x.cumprod(axis, dtype=x.dtype) if product else x.cumsum(axis, dtype=x.dtype)
    if n.get("exclusive", 0):  # one place later
        first = y.narrow(axis, 0, 1) * 0 + int(product)
        y = cat([first.cast(y.dtype), y.narrow(axis, 0, y.shape[axis] - 1)], axis)
    return y.flip(axis) if back else y


def _dropout(n: NodeView) -> tuple[Any, ...]:
    training = n.known(2)
    if training is not None and bool(np.asarray(training).reshape(-1)[0]):
        raise n.error("training_mode: only inference is there")
    return (n(0), np.ones(n(0).shape, np.bool_))[: max(1, n.outputs)]


def _dynamic(n: NodeView) -> tuple[Tensor, Tensor, Tensor]:
    """DynamicQuantizeLinear: to u8, by the range of what is there."""
    x = n(0)
    low, high = x.amin().minimum(0.0), x.amax().maximum(0.0)
    scale = (high - low) / 255.0
    zero = (low.neg() / scale).clamp(0.0, 255.0).round()
    y = ((x / scale).round() + zero).clamp(0.0, 255.0).cast("u8")
    return y, scale, zero.cast("u8")


def _grid_sample(n: NodeView) -> Tensor:
    mode = {"linear": "bilinear"}.get(n.get("mode", "linear"), n.get("mode", "linear"))
    return n(0).grid_sample(
        n(1), mode, n.get("padding_mode", "zeros"), bool(n.get("align_corners", 0))
    )


def _lp_pool(n: NodeView) -> Tensor:
    x, p = n(0), n.get("p", 2)
    size = [int(k) for k in n.get("kernel_shape")]
    attributes = {**n.attributes, "count_include_pad": 1}
    powers = x.abs() if p == 1 else x.abs().pow(p)
    mean: Tensor = _pool(NodeView("AveragePool", n.name, n.opset, attributes, (powers,)))
    total = mean * math.prod(size)
    return total if p == 1 else total.pow(1.0 / p)


def _rotary(n: NodeView) -> Tensor:
    x, cos, sin, at = n(0), n(1), n(2), n.tensor(3)
    flat, heads, part = x.ndim == 3, n.get("num_heads", 0), n.get("rotary_embedding_dim", 0)
    if flat:
        x = x.reshape(x.shape[0], x.shape[1], heads, -1).permute(0, 2, 1, 3)
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
    return y.permute(0, 2, 1, 3).flatten(2) if flat else y


def _topk(n: NodeView) -> tuple[Tensor, Tensor]:
    k = n.ints(1, "k") if n.opset >= 10 else [n.get("k")]
    if not k:
        raise n.error("k is missing")
    found = n(0).topk(k[0], n.get("axis", -1), bool(n.get("largest", 1)), True)
    return found[0], found[1]


def _resize(n: NodeView) -> Tensor:
    x = n(0)
    scales = n.known(2 if n.op == "Resize" and n.opset >= 11 else 1)
    sizes = n.known(3)
    mode = n.get("mode", "nearest")
    where_ = n.get("coordinate_transformation_mode", "half_pixel")
    if n.op == "Upsample" or (n.op == "Resize" and n.opset < 11):
        where_ = "asymmetric"
    if n.get("antialias", 0) or n.get("exclude_outside", 0) or n.get("axes"):
        raise n.error("antialias, exclude_outside and axes are not there")
    if sizes is not None and sizes.size:
        new = [int(e) for e in sizes]
        factors = [a / b for a, b in zip(new, x.shape, strict=True)]
    elif scales is not None and scales.size:
        factors = [float(s) for s in scales]
        new = [math.floor(e * s) for e, s in zip(x.shape, factors, strict=True)]
    else:
        raise n.error("neither scales nor sizes are known")
    for axis, (old, extent, factor) in enumerate(zip(x.shape, new, factors, strict=True)):
        if old != extent or factor != 1.0:
            x = _axis_resized(n, x, axis, extent, factor, mode, where_)
    return x


_ROUNDED: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda a: np.ceil(a - 0.5),
    "round_prefer_ceil": lambda a: np.floor(a + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _axis_resized(
    n: NodeView, x: Tensor, axis: int, extent: int, factor: float, mode: str, where_: str
) -> Tensor:
    """One axis, as a product with a matrix of few weights, or a choice of elements."""
    old = x.shape[axis]
    i = np.arange(extent, dtype=np.float64)
    if where_ == "asymmetric":
        at = i / factor
    elif where_ == "align_corners":
        last = old * factor - 1
        at = i * (old - 1) / last if extent > 1 and last else i * 0
    elif where_ in ("half_pixel", "half_pixel_symmetric"):
        at = (i + 0.5) / factor - 0.5
        if where_ == "half_pixel_symmetric":
            at = at + old / 2 * (1 - extent / (old * factor))
    elif where_ == "pytorch_half_pixel":
        at = (i + 0.5) / factor - 0.5 if extent > 1 else i * 0
    else:
        raise n.error(f"coordinate_transformation_mode {where_} is not there")
    if mode == "nearest":
        rule = n.get("nearest_mode", "round_prefer_floor")
        if n.op == "Upsample" or n.opset < 11:
            rule = "floor"
        rounded = _ROUNDED[rule](at)
        return x.index_select(axis, np.clip(rounded, 0, old - 1).astype(np.int64))
    weights = np.zeros((extent, old))
    low = np.floor(at).astype(np.int64)
    taps = {"linear": (0, 1), "cubic": (-1, 0, 1, 2)}.get(mode)
    if taps is None:
        raise n.error(f"mode {mode} is not there")
    a = n.get("cubic_coeff_a", -0.75)
    for t in taps:
        d = np.abs(at - (low + t))
        w = np.maximum(0, 1 - d)
        if mode == "cubic":
            near = ((a + 2) * d - (a + 3)) * d * d + 1
            far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            w = np.where(d <= 1, near, np.where(d < 2, far, 0))
        np.add.at(weights, (np.arange(extent), np.clip(low + t, 0, old - 1)), w)
    moved = x.movedim(axis, -1)
    kind = np.float64 if x.dtype.bits == 64 else np.float32
    return (moved @ Tensor(weights.T.astype(kind))).cast(x.dtype).movedim(-1, axis)


_ATTENTION = {"is_causal", "kv_num_heads", "q_num_heads", "scale", "softcap", "softmax_precision"}


def _attention(n: NodeView) -> Tensor:
    q, k, v = n(0), n(1), n(2)
    if n.outputs > 1 or any(n.at(i) is not None for i in (4, 5, 6)):
        raise n.error("caches and further outputs are not there")
    if n.get("softcap", 0.0) or set(n.attributes) - _ATTENTION:
        raise n.error(f"some of {', '.join(n.attributes)} are not there")
    flat = q.ndim == 3
    if flat:
        heads, pairs = n.get("q_num_heads"), n.get("kv_num_heads")
        q, k, v = (
            t.reshape(t.shape[0], t.shape[1], h, -1).permute(0, 2, 1, 3)
            for t, h in ((q, heads), (k, pairs), (v, pairs))
        )
    mask, causal = n.tensor(3), bool(n.get("is_causal", 0))
    if causal and mask is not None:
        below = Tensor(np.tril(np.ones((q.shape[-2], k.shape[-2]), np.bool_)))
        both = below.logical_and(mask) if mask.dtype.is_bool else where(below, mask, -math.inf)
        mask, causal = both, False
    y = attention(
        q, k, v, mask, is_causal=causal, scale=n.get("scale"),
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip
    return y.permute(0, 2, 1, 3).flatten(2) if flat else y


def _lstm(n: NodeView) -> tuple[Tensor, ...]:
    """LSTM, GRU and RNN: steps one after the other, forwards, backwards or both."""
    x, ways = n(0), {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}
    if (n.at(4) is not None and n.op != "LSTM") or n.get("activations") or n.get("clip"):
        raise n.error("lengths, other activations and clips are not there")
    x = x.transpose(0, 1) if n.get("layout", 0) else x
    found = [
        _one_way(n, x if way > 0 else x.flip(0), i)
        for i, way in enumerate(ways[n.get("direction", "forward")])
    ]
    kept = [
        ys if way > 0 else ys.flip(0)
        for (ys, _, _), way in zip(found, ways[n.get("direction", "forward")], strict=True)
    ]
    y, h = stack(kept, 1), stack([h for _, h, _ in found], 0)
    if n.get("layout", 0):
        y, h = y.permute(2, 0, 1, 3), h.transpose(0, 1)
    if n.op != "LSTM":
        return y, h
    c = stack([c for _, _, c in found], 0)
    return y, h, c.transpose(0, 1) if n.get("layout", 0) else c


def _one_way(n: NodeView, x: Tensor, i: int) -> tuple[Tensor, Tensor, Tensor]:
    w, r = n(1)[i], n(2)[i]
    size = r.shape[-1]
    both = n.tensor(3)
    bias = both[i] if both is not None else Tensor(np.zeros(2 * w.shape[0], np.float32))
    wb, rb = bias[: w.shape[0]], bias[w.shape[0] :]
    first = n.tensor(5)
    zero = Tensor(np.zeros((x.shape[1], size), np.float32))
    h = zero if first is None else (first.transpose(0, 1) if n.get("layout", 0) else first)[i]
    c = zero
    if n.op == "LSTM":
        if n.at(4) is not None or n.at(7) is not None:
            raise n.error("lengths and peepholes are not there")
        cell = n.tensor(6)
        c = zero if cell is None else (cell.transpose(0, 1) if n.get("layout", 0) else cell)[i]
    steps = []
    inputs = x @ w.transpose(0, 1) + wb
    for t in range(x.shape[0]):
        if n.op == "RNN":
            h = (inputs[t] + h @ r.transpose(0, 1) + rb).tanh()
        elif n.op == "LSTM":
            a, o, f, g = (inputs[t] + h @ r.transpose(0, 1) + rb).chunk(4, -1)
            c = f.sigmoid() * c + a.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        else:
            z, e, g = inputs[t].chunk(3, -1)
            rz, re, rg = r.chunk(3, 0)
            bz, be, bg = rb.chunk(3, 0)
            z = (z + h @ rz.transpose(0, 1) + bz).sigmoid()
            e = (e + h @ re.transpose(0, 1) + be).sigmoid()
            if n.get("linear_before_reset", 0):
                g = (g + e * (h @ rg.transpose(0, 1) + bg)).tanh()
            else:
                g = (g + (e * h) @ rg.transpose(0, 1) + bg).tanh()
            h = (1 - z) * g + z * h
        steps.append(h)
    return stack(steps, 0), h, c


def _lp_norm(n: NodeView) -> Tensor:
    x, axis = n(0), (n.get("axis", -1),)
    norm = x.abs().sum(axis, True) if n.get("p", 2) == 1 else x.square().sum(axis, True).sqrt()
    return where(norm.eq(0), norm * 0, x / norm)


def _mean_variance(n: NodeView) -> Tensor:
    x, axes = n(0), tuple(n.get("axes") or (0, 2, 3))
    off = x - x.mean(axes, True)
    return off / (off.square().mean(axes, True).sqrt() + 1e-9)


def _loss(n: NodeView) -> Any:
    x, target, weight = n(0), n(1), n.tensor(2)
    if n.op == "SoftmaxCrossEntropyLoss":
        x = x.log_softmax(1)
    ignored = n.get("ignore_index")
    kept = target if ignored is None else where(target.eq(ignored), target * 0, target)
    loss = x.gather(1, kept.cast("i64").unsqueeze(1)).squeeze(1).neg()
    each = Tensor(np.ones(1, np.float32)) if weight is None else weight
    scale = each.broadcast_to((x.shape[1],))[kept.cast("i64")].cast(x.dtype)
    scale = scale if ignored is None else where(target.eq(ignored), scale * 0, scale)
    loss, how = loss * scale, n.get("reduction", "mean")
    loss = loss if how == "none" else loss.sum()
    loss = loss / scale.sum() if how == "mean" else loss
    return (loss, x)[: max(1, n.outputs)]


def _integers(n: NodeView) -> Tensor:
    """MatMulInteger and ConvInteger: products of small integers, in i32."""
    a, b = n(0).cast("i32"), n(1).cast("i32")
    at, bt = n.tensor(2), n.tensor(3)
    if n.op == "MatMulInteger":
        a = a if at is None else a - _wide(at, -1, a.ndim)
        return a @ (b if bt is None else b - _wide(bt, 0, b.ndim))
    a = a if at is None else a - at.cast("i32").reshape(())
    b = b if bt is None else b - _wide(bt, -1, b.ndim)
    return _conv(NodeView(n.op, n.name, n.opset, n.attributes, (a, b)))


def _wide(zero: Tensor, side: int, rank: int) -> Tensor:
    """A zero point for all, or for each row (-1) or column."""
    zero = zero.cast("i32")
    if zero.ndim != 1 or zero.shape[0] == 1:
        return zero.reshape(()) if zero.ndim < 2 else zero
    return zero.reshape(-1, *(1,) * (rank - 1)) if side else zero


NETWORKS: dict[str, Callable[[NodeView], Any]] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "Attention": _attention,
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "ConvInteger": _integers,
    "ConvTranspose": _conv_transpose,
    "CumProd": _cumulative,
    "CumSum": _cumulative,
    "Dropout": _dropout,
    "DynamicQuantizeLinear": _dynamic,
    "Einsum": lambda n: einsum(n.get("equation"), *(n(i) for i in range(len(n.inputs)))),
    "GRU": _lstm,
    "GridSample": _grid_sample,
    "Gemm": _gemm,
    "GlobalAveragePool": _global("mean"),
    "GlobalMaxPool": _global("amax"),
    "GroupNormalization": _group_norm,
    "Hardmax": _soft,
    "InstanceNormalization": _instance_norm,
    "LRN": _lrn,
    "LSTM": _lstm,
    "LpNormalization": _lp_norm,
    "LpPool": _lp_pool,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _soft,
    "MatMul": lambda n: n(0) @ n(1),
    "MatMulInteger": _integers,
    "MaxPool": _pool,
    "MeanVarianceNormalization": _mean_variance,
    "NegativeLogLikelihoodLoss": _loss,
    "RMSNormalization": _layer_norm,
    "RNN": _lstm,
    "ReduceL1": _reduced(lambda x, a, k: x.abs().sum(a, k)),
    "ReduceL2": _reduced(lambda x, a, k: x.square().sum(a, k).sqrt()),
    "ReduceLogSum": _reduced(lambda x, a, k: x.sum(a, k).log()),
    "ReduceLogSumExp": _reduced(lambda x, a, k: x.logsumexp(a, k)),
    "ReduceMax": _reduced(lambda x, a, k: x.amax(a, k)),
    "ReduceMean": _reduced(lambda x, a, k: x.mean(a, k)),
    "ReduceMin": _reduced(lambda x, a, k: x.amin(a, k)),
    "ReduceProd": _reduced(lambda x, a, k: x.prod(a, k)),
    "ReduceSum": _reduced(lambda x, a, k: x.sum(a, k)),
    "ReduceSumSquare": _reduced(lambda x, a, k: x.square().sum(a, k)),
    "Resize": _resize,
    "RotaryEmbedding": _rotary,
    "Softmax": _soft,
    "SoftmaxCrossEntropyLoss": _loss,
    "TopK": _topk,
    "Upsample": _resize,
}
