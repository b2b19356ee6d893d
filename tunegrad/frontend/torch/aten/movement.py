"""Operators that move elements, or convert them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunegrad.ir.dtypes import DType

from ...creation import arange
from ...functions import cat, stack, where
from ...tensor import Tensor, lift
from .table import Operator, entries, overloads, unsupported

__all__ = ["TABLE", "span", "strided"]


def _same(x: Tensor, *_: Any, **options: Any) -> Tensor:
    dtype = options.get("dtype")
    return x if dtype is None else x.cast(dtype)


def _to(x: Tensor, dtype: DType, *_: Any, **__: Any) -> Tensor:
    return x.cast(dtype)


def _to_device(x: Tensor, _: Any, dtype: DType, *__: Any, **___: Any) -> Tensor:
    return x.cast(dtype)


def _dropout(x: Tensor, p: float, train: bool) -> Tensor:
    if train and p:
        raise unsupported("dropout", "training")
    return x


def _expand(x: Tensor, size: Sequence[int], *, implicit: bool = False) -> Tensor:
    del implicit
    return x.expand(*size)


def span(extent: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Begin and end of a slice, by PyTorch's rules."""
    first, last, _ = slice(start, end).indices(extent)
    return first, max(first, last)


def _slice(
    x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    at = dim % x.ndim
    return x[(*(slice(None),) * at, slice(start, end, step))]


def _slice_scatter(
    x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    if step != 1:
        raise unsupported("slice_scatter", f"step {step}")
    at = dim % x.ndim
    first, last = span(x.shape[at], start, end)
    return cat([_slice(x, at, 0, first), src.cast(x.dtype), _slice(x, at, last)], at)


def _select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    at = dim % x.ndim
    first = index % x.shape[at]
    return _slice_scatter(x, src.unsqueeze(at), at, first, first + 1)


def _constant_pad(x: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    return x.pad(list(pad), "constant", _filling(x, value))


def _filling(x: Tensor, value: Any) -> Any:
    """The number that PyTorch pads with: of integers a float without its fraction."""
    return int(value) if x.dtype.is_int and isinstance(value, float) else value


def _pad(x: Tensor, pad: Sequence[int], mode: Any = "constant", value: Any = None) -> Tensor:
    return x.pad(list(pad), mode, _filling(x, value))


def _reflection_pad(x: Tensor, padding: Sequence[int]) -> Tensor:
    return x.pad(list(padding), "reflect")


def _replication_pad(x: Tensor, padding: Sequence[int]) -> Tensor:
    return x.pad(list(padding), "replicate")


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    return x.roll(tuple(shifts), tuple(dims) or None)


def _repeat_interleave(
    x: Tensor, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    del output_size
    return x.repeat_interleave(repeats, dim)


def _copy(x: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    del non_blocking
    return lift(src, "copy").cast(x.dtype).expand(*x.shape)


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Empty vectors join anything, as in PyTorch."""
    return cat([t for t in tensors if t.shape != (0,)] or list(tensors), dim)


def strided(
    x: Tensor, held: Sequence[int], size: Sequence[int], stride: Sequence[int], offset: int
) -> Tensor:
    """A tensor whose memory has the strides ``held``, read with others from ``offset`` on.

    A permutation where it is one; otherwise elements are gathered by their computed positions.

    Raises:
        ModelError: memory with gaps, or elements that lie there more than once.
    """
    dims = sorted((d for d in range(x.ndim) if x.shape[d] != 1), key=lambda d: -held[d])
    step = 1
    for d in reversed(dims):
        if held[d] != step:
            raise unsupported("as_strided", f"memory of strides {tuple(held)} and shape {x.shape}")
        step *= x.shape[d]
    alone = [d for d in range(x.ndim) if x.shape[d] == 1]
    flat = x.permute(*alone, *dims).reshape((x.size,))
    wide = [d for d in range(len(size)) if size[d] != 1 and stride[d]]
    order, step = sorted(wide, key=lambda d: -stride[d]), 1
    dense = offset == 0
    for d in reversed(order):
        dense, step = dense and stride[d] == step, step * size[d]
    if dense and step == x.size:
        made = flat.reshape(tuple(size[d] for d in order))
        made = made.permute(*(order.index(d) for d in wide)) if wide else made
        kept = tuple(n if n == 1 or stride[d] else 1 for d, n in enumerate(size))
        return made.reshape(kept).expand(*size)
    at: Any = offset
    for d, (n, s) in enumerate(zip(size, stride, strict=True)):
        at = arange(n).reshape((n, *(1,) * (len(size) - d - 1))) * s + at
    return flat[at] if isinstance(at, Tensor) else flat[at].reshape(tuple(size))


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of ``source``, one after another, where the mask is true."""
    chosen = mask.expand(*x.shape).reshape((-1,))
    place = (chosen.cast("i64").cumsum(0) - 1).clamp(0, max(0, source.size - 1))
    taken = source.reshape((-1,))[place].cast(x.dtype)
    return where(chosen, taken, x.reshape((-1,))).reshape(x.shape)


_VIEWS = (
    "view.default", "_unsafe_view.default", "reshape.default", "view_copy.default",
    "_reshape_alias.default",
)  # fmt: skip

TABLE: dict[str, Operator] = {
    **overloads(
        "default", Tensor.t, Tensor.unsqueeze, Tensor.diagonal, Tensor.tril, Tensor.triu,
        Tensor.unfold, Tensor.narrow, Tensor.chunk, Tensor.pixel_shuffle,
        Tensor.pixel_unshuffle,
    ),
    **overloads("int", Tensor.transpose, Tensor.select),
    **overloads("using_ints", Tensor.flatten),
    **overloads("default", Tensor.channel_shuffle, Tensor.diag_embed),
    **entries(Tensor.reshape, *_VIEWS),
    **entries(
        _same, "clone.default", "alias.default", "detach.default", "lift_fresh_copy.default",
        "lift_fresh.default", "contiguous.default", "_to_copy.default",
        "to.dtype_layout", "alias_copy.default", "detach_copy.default",
    ),
    **entries(_to, "to.dtype", "prims.convert_element_type.default"),
    **entries(_masked_scatter, "masked_scatter.default"),
    **entries(_to_device, "to.device"),
    **entries(_dropout, "dropout.default"),
    **entries(_expand, "expand.default"),
    **entries(Tensor.expand_as, "expand_as.default"),
    **entries(_slice, "slice.Tensor"),
    **entries(_slice_scatter, "slice_scatter.default"),
    **entries(_select_scatter, "select_scatter.default"),
    **entries(Tensor.unbind, "unbind.int"),
    **entries(_constant_pad, "constant_pad_nd.default"),
    **entries(_pad, "pad.default"),
    **entries(_reflection_pad, *(f"reflection_pad{n}d.default" for n in (1, 2, 3))),
    **entries(_replication_pad, *(f"replication_pad{n}d.default" for n in (1, 2, 3))),
    **entries(_roll, "roll.default"),
    **entries(Tensor.repeat, "repeat.default"),
    **entries(Tensor.flip, "flip.default"),
    **entries(Tensor.permute, "permute.default"),
    **entries(Tensor.squeeze, "squeeze.default", "squeeze.dim", "squeeze.dims"),
    **entries(Tensor.unflatten, "unflatten.int"),
    **entries(_repeat_interleave, "repeat_interleave.self_int"),
    **entries(_copy, "copy.default"),
    **entries(_cat, "cat.default"),
    **entries(stack, "stack.default"),
    **entries(Tensor.split, "split.Tensor", "split_with_sizes.default", "split.sizes"),
}  # fmt: skip
