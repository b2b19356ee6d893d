"""Operators of backward graphs that PyTorch does not take apart: the gradients of the operation
forward, by the rules that ``tg.grad`` has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...creation import zeros
from ...gradients import vjp
from ...tensor import Tensor
from .contraction import _attention, _convolution
from .normalisation import _MODES, SAMPLING, _grid_sampler, _nearest, _smooth, _weight_norm
from .table import Operator, entries


def _of(
    function: Callable[..., Tensor], grad: Tensor, args: Sequence[Any], wanted: Sequence[bool]
) -> tuple[Any, ...]:
    """The gradients of the arguments that are ``wanted``; None for the others."""
    places = [i for i, want in enumerate(wanted) if want]

    def of_wanted(*given: Tensor) -> Tensor:
        every = list(args)
        for at, x in zip(places, given, strict=True):
            every[at] = x
        return function(*every)

    found: list[Any] = [None] * len(args)
    made = vjp(of_wanted, grad, *(args[at] for at in places))
    for at, gradient in zip(places, made, strict=True):
        found[at] = gradient
    return tuple(found)


def _alone(function: Callable[..., Tensor], grad: Tensor, x: Tensor) -> Tensor:
    (found,) = vjp(function, grad, x)
    return found  # type: ignore[return-value]


def _convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Sequence[int] | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> tuple[Any, Any, Any]:  # fmt: skip
    del bias_sizes

    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return _convolution(
            x, weight, None, stride, padding, dilation, transposed, output_padding, groups
        )

    data, of_weight = _of(forward, grad, (x, weight), output_mask[:2])
    over = (0, *range(2, grad.ndim))
    return data, of_weight, grad.sum(over) if output_mask[2] else None


def _max_pool_backward(method: Operator) -> Operator:
    def backward(
        grad: Tensor, x: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
        ceil_mode: bool, indices: Tensor,
    ) -> Tensor:  # fmt: skip
        """The places are found again, which costs less than to read them."""
        del indices
        return _alone(
            lambda x: method(x, kernel_size, stride, padding, dilation, ceil_mode), grad, x
        )

    return backward


def _to_places(rank: int) -> Operator:
    """The gradient of values that were read at places of an image."""

    def backward(grad: Tensor, x: Tensor, indices: Tensor) -> Tensor:
        lead, size = x.shape[:-rank], math.prod(x.shape[-rank:])
        flat = zeros((*lead, size), grad.dtype)
        shape = (*lead, math.prod(grad.shape[-rank:]))
        return flat.scatter_add(-1, indices.reshape(shape), grad.reshape(shape)).reshape(x.shape)

    return backward


def _avg_pool_backward(method: Operator) -> Operator:
    def backward(grad: Tensor, x: Tensor, *args: Any) -> Tensor:
        return _alone(lambda x: method(x, *args), grad, x)

    return backward


def _adaptive_backward(method: Operator, rank: int) -> Operator:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return _alone(lambda x: method(x, grad.shape[-rank:]), grad, x)

    return backward


def _resize_backward(resize: Operator) -> Operator:
    def backward(grad: Tensor, output_size: Any, input_size: Sequence[int], *args: Any) -> Tensor:
        return _alone(
            lambda x: resize(x, output_size, *args), grad, zeros(tuple(input_size), grad.dtype)
        )

    return backward


def _pad_backward(mode: str) -> Operator:
    def backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
        return _alone(lambda x: x.pad(tuple(padding), mode), grad, x)

    return backward


def _grid_backward(
    grad: Tensor, x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int,
    align_corners: bool, output_mask: Sequence[bool],
) -> tuple[Any, ...]:  # fmt: skip
    def forward(x: Tensor, grid: Tensor) -> Tensor:
        return _grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners)

    return _of(forward, grad, (x, grid), output_mask)


def _cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    del cdist
    return _alone(lambda x: x.cdist(x2, p), grad, x1)


def _weight_norm_backward(
    grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Any, ...]:
    del norms
    return vjp(lambda v, g: _weight_norm(v, g, dim)[0], grad, v, g)


def _flash_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    dropout_p: float, is_causal: bool, *, attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    del out, logsumexp
    forward = partial(
        _attention, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale
    )
    return vjp(forward, grad, query, key, value)


def _flash_backward_on_cuda(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
    philox_seed: Any, philox_offset: Any, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    del cum_seq_q, cum_seq_k, max_q, max_k, philox_seed, philox_offset
    return _flash_backward(
        grad, query, key, value, out, logsumexp, dropout_p, is_causal, scale=scale
    )


def _efficient_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None, out: Tensor,
    logsumexp: Tensor, philox_seed: Any, philox_offset: Any, dropout_p: float,
    grad_input_mask: Sequence[bool], is_causal: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    del out, logsumexp, philox_seed, philox_offset
    forward = partial(_attention, dropout_p=dropout_p, is_causal=is_causal, scale=scale)
    wanted = (*grad_input_mask[:3], grad_input_mask[3] and attn_bias is not None)
    return _of(forward, grad, (query, key, value, attn_bias), wanted)


def _cudnn_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    philox_seed: Any, philox_offset: Any, attn_bias: Tensor | None, cum_seq_q: Any, cum_seq_k: Any,
    max_q: int, max_k: int, dropout_p: float, is_causal: bool, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    del philox_seed, philox_offset, cum_seq_q, cum_seq_k, max_q, max_k
    return _flash_backward(
        grad, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask=attn_bias,
        scale=scale,
    )  # fmt: skip


_RESIZES: dict[str, Operator] = {
    **{f"upsample_nearest{n}d": _nearest for n in (1, 2, 3)},
    **{name: _smooth(name, mode) for name, mode in _MODES.items()},
    "_upsample_bilinear2d_aa": SAMPLING["_upsample_bilinear2d_aa.default"],
    "_upsample_bicubic2d_aa": SAMPLING["_upsample_bicubic2d_aa.default"],
}

BACKWARD: dict[str, Operator] = {
    **entries(_convolution_backward, "convolution_backward.default"),
    **entries(
        _max_pool_backward(Tensor.max_pool2d), "max_pool2d_with_indices_backward.default"
    ),
    **entries(
        _max_pool_backward(Tensor.max_pool3d), "max_pool3d_with_indices_backward.default"
    ),
    **entries(_to_places(2), "adaptive_max_pool2d_backward.default"),
    **entries(_to_places(3), "adaptive_max_pool3d_backward.default"),
    **entries(_avg_pool_backward(Tensor.avg_pool2d), "avg_pool2d_backward.default"),
    **entries(_avg_pool_backward(Tensor.avg_pool3d), "avg_pool3d_backward.default"),
    **entries(
        _adaptive_backward(Tensor.adaptive_avg_pool2d, 2), "_adaptive_avg_pool2d_backward.default"
    ),
    **entries(
        _adaptive_backward(Tensor.adaptive_avg_pool3d, 3), "_adaptive_avg_pool3d_backward.default"
    ),
    **{f"{name}_backward.default": _resize_backward(f) for name, f in _RESIZES.items()},
    **{f"replication_pad{n}d_backward.default": _pad_backward("replicate") for n in (1, 2, 3)},
    **{f"reflection_pad{n}d_backward.default": _pad_backward("reflect") for n in (1, 2, 3)},
    **{f"grid_sampler_{n}d_backward.default": _grid_backward for n in (2, 3)},
    **entries(_cdist_backward, "_cdist_backward.default"),
    **entries(_weight_norm_backward, "_weight_norm_interface_backward.default"),
    **entries(_flash_backward, "_scaled_dot_product_flash_attention_for_cpu_backward.default"),
    **entries(
        _flash_backward_on_cuda, "_scaled_dot_product_flash_attention_backward.default"
    ),
    **entries(_efficient_backward, "_scaled_dot_product_efficient_attention_backward.default"),
    **entries(_cudnn_backward, "_scaled_dot_product_cudnn_attention_backward.default"),
}  # fmt: skip
