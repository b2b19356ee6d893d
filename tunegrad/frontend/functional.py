"""``torch.nn.functional``: its functions by its names.

Where an operation has the same arguments, the function is the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunegrad.errors import ShapeError

from .creation import arange, linspace, ones
from .functions import scaled_dot_product_attention, stack, tanh, where
from .handle import TensorLike, as_if
from .ops.convolution import fold_columns as fold
from .ops.convolution import unfold_columns as unfold
from .ops.normalisation import scaled
from .random import rand
from .spelling import spelled
from .tensor import Tensor, lift

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid", "alpha_dropout", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "channel_shuffle", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity",
    "cross_entropy", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu", "embedding",
    "feature_alpha_dropout", "fold", "gelu", "glu", "grid_sample", "group_norm", "hardshrink",
    "hardsigmoid", "hardswish", "hardtanh", "hinge_embedding_loss", "huber_loss", "instance_norm",
    "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "linear",
    "local_response_norm", "log_softmax", "logsigmoid", "lp_pool1d", "lp_pool2d", "max_pool1d",
    "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "mish",
    "mse_loss", "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance", "pixel_shuffle",
    "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu", "relu6", "rms_norm", "rrelu",
    "scaled_dot_product_attention", "selu", "sigmoid", "silu", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh",
    "tanhshrink", "threshold", "triplet_margin_loss", "unfold", "upsample",
]  # fmt: skip

_Shape = int | Sequence[int]

# ---- activation

celu, elu, gelu, glu = Tensor.celu, Tensor.elu, Tensor.gelu, Tensor.glu
hardshrink, hardsigmoid, hardswish = Tensor.hardshrink, Tensor.hardsigmoid, Tensor.hardswish
hardtanh, leaky_relu, logsigmoid = Tensor.hardtanh, Tensor.leaky_relu, Tensor.logsigmoid
mish, prelu, relu, relu6 = Tensor.mish, Tensor.prelu, Tensor.relu, Tensor.relu6
rrelu, selu, sigmoid, silu = Tensor.rrelu, Tensor.selu, Tensor.sigmoid, Tensor.silu
softplus, softshrink, softsign = Tensor.softplus, Tensor.softshrink, Tensor.softsign
tanhshrink, threshold = Tensor.tanhshrink, Tensor.threshold

# ---- convolution

conv1d, conv2d, conv3d = Tensor.conv1d, Tensor.conv2d, Tensor.conv3d
conv_transpose1d, conv_transpose2d = Tensor.conv_transpose1d, Tensor.conv_transpose2d
conv_transpose3d = Tensor.conv_transpose3d

# ---- indexing

one_hot = Tensor.one_hot

# ---- movement

pad = Tensor.pad

# ---- products

bilinear, cosine_similarity, linear = Tensor.bilinear, Tensor.cosine_similarity, Tensor.linear
pairwise_distance = Tensor.pairwise_distance

# ---- losses

binary_cross_entropy = Tensor.binary_cross_entropy
binary_cross_entropy_with_logits = Tensor.binary_cross_entropy_with_logits
cross_entropy, hinge_embedding_loss = Tensor.cross_entropy, Tensor.hinge_embedding_loss
huber_loss, kl_div, l1_loss = Tensor.huber_loss, Tensor.kl_div, Tensor.l1_loss
mse_loss, nll_loss, poisson_nll_loss = Tensor.mse_loss, Tensor.nll_loss, Tensor.poisson_nll_loss
smooth_l1_loss, soft_margin_loss = Tensor.smooth_l1_loss, Tensor.soft_margin_loss

# ---- normalisation

group_norm, local_response_norm = Tensor.group_norm, Tensor.local_response_norm

# ---- pooling

adaptive_avg_pool1d, adaptive_avg_pool2d = Tensor.adaptive_avg_pool1d, Tensor.adaptive_avg_pool2d
adaptive_avg_pool3d, adaptive_max_pool1d = Tensor.adaptive_avg_pool3d, Tensor.adaptive_max_pool1d
adaptive_max_pool2d, adaptive_max_pool3d = Tensor.adaptive_max_pool2d, Tensor.adaptive_max_pool3d
avg_pool1d, avg_pool2d, avg_pool3d = Tensor.avg_pool1d, Tensor.avg_pool2d, Tensor.avg_pool3d
lp_pool1d, lp_pool2d, max_pool1d = Tensor.lp_pool1d, Tensor.lp_pool2d, Tensor.max_pool1d
max_pool2d, max_pool3d = Tensor.max_pool2d, Tensor.max_pool3d
max_unpool1d, max_unpool2d = Tensor.max_unpool1d, Tensor.max_unpool2d
max_unpool3d = Tensor.max_unpool3d

# ---- reduction

log_softmax, normalize, softmax = Tensor.log_softmax, Tensor.normalize, Tensor.softmax
softmin = Tensor.softmin

# ---- resizing

channel_shuffle, grid_sample = Tensor.channel_shuffle, Tensor.grid_sample
interpolate, pixel_shuffle = Tensor.interpolate, Tensor.pixel_shuffle
pixel_unshuffle = Tensor.pixel_unshuffle


def _last(op: str, x: Tensor, normalized_shape: _Shape) -> tuple[int, ...]:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(f"{op}: input {x.shape} does not end in normalized_shape {shape}")
    return tuple(range(-len(shape), 0))


@spelled
def layer_norm(
    input: TensorLike,
    normalized_shape: _Shape,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Zero mean and unit variance over the last dimensions, then ``* weight + bias``."""
    x = lift(input, "layer_norm")
    return x.layer_norm(weight, bias, eps, _last("layer_norm", x, normalized_shape))


@spelled
def rms_norm(
    input: TensorLike,
    normalized_shape: _Shape,
    weight: TensorLike | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divided by the root of the mean square over the last dimensions, then ``* weight``."""
    x = lift(input, "rms_norm")
    return x.rms_norm(weight, eps, _last("rms_norm", x, normalized_shape))


@spelled
def batch_norm(
    input: TensorLike,
    running_mean: TensorLike | None,
    running_var: TensorLike | None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalised by known statistics of the channels; by the batch's own where ``training``, which
    do not change the known ones here.
    """
    del momentum
    x = lift(input, "batch_norm")
    if not training and running_mean is not None and running_var is not None:
        return x.batch_norm(weight, bias, running_mean, running_var, eps)
    if x.ndim < 2:
        raise ShapeError(
            f"batch_norm: input {x.shape} has no channel axis; its shape must be (batch, "
            "channels, ...)"
        )
    found = x._wide().layer_norm(None, None, eps, tuple(a for a in range(x.ndim) if a != 1))
    return scaled(x, "batch_norm", found, (1,), weight, bias)


@spelled
def instance_norm(
    input: TensorLike,
    running_mean: TensorLike | None = None,
    running_var: TensorLike | None = None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of each image by its own statistics, or by known ones."""
    del momentum
    x = lift(input, "instance_norm")
    if use_input_stats or running_mean is None or running_var is None:
        return x.instance_norm(weight, bias, eps)
    return x.batch_norm(weight, bias, running_mean, running_var, eps)


def dropout(
    input: TensorLike, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Zeros with probability ``p`` where ``training``, and all else by ``1 / (1 - p)``."""
    del inplace
    return _dropped("dropout", lift(input, "dropout"), p, training, None)


def dropout1d(
    input: TensorLike, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """``dropout`` of whole channels of (N, C, L) or (C, L)."""
    del inplace
    return _dropped("dropout1d", lift(input, "dropout1d"), p, training, 1)


def dropout2d(
    input: TensorLike, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """``dropout`` of whole channels of (N, C, H, W) or (C, H, W)."""
    del inplace
    return _dropped("dropout2d", lift(input, "dropout2d"), p, training, 2)


def dropout3d(
    input: TensorLike, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """``dropout`` of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    del inplace
    return _dropped("dropout3d", lift(input, "dropout3d"), p, training, 3)


def _dropped(op: str, x: Tensor, p: float, training: bool, spatial: int | None) -> Tensor:
    """``x`` with elements dropped, or whole channels of ``spatial`` dimensions."""
    kept = _kept(op, x, p, training, spatial)
    if kept is None:
        return x
    return where(kept, x * (0.0 if p == 1 else 1 / (1 - p)), 0.0)


def _kept(op: str, x: Tensor, p: float, training: bool, spatial: int | None) -> Tensor | None:
    """A truth for each element that stays; None where all do."""
    if not 0 <= p <= 1:
        raise ShapeError(f"{op}: p={p} must be from 0 to 1")
    if spatial is not None and x.ndim not in (spatial + 1, spatial + 2):
        raise ShapeError(f"{op}: input {x.shape} must have {spatial + 1} or {spatial + 2} axes")
    if not training or p == 0:
        return None
    whole = 0 if spatial is None else spatial
    drawn = (*x.shape[: x.ndim - whole], *(1 for _ in range(whole)))
    return rand(drawn) >= p


def alpha_dropout(
    input: TensorLike, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """``dropout`` to the least value of SELU, scaled so that mean and variance stay (Klambauer et
    al. 2017).
    """
    del inplace
    return _alpha_dropped("alpha_dropout", lift(input, "alpha_dropout"), p, training, False)


def feature_alpha_dropout(
    input: TensorLike, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """``alpha_dropout`` of whole channels of (N, C, ...)."""
    del inplace
    x = lift(input, "feature_alpha_dropout")
    return _alpha_dropped("feature_alpha_dropout", x, p, training, True)


_SELU_LEAST = 1.7580993408473766


def _alpha_dropped(op: str, x: Tensor, p: float, training: bool, channels: bool) -> Tensor:
    kept = _kept(op, x, p, training, x.ndim - 2 if channels else None)
    if kept is None:
        return x
    if p == 1:
        return x * 0.0
    scale = float(((1 - p) * (1 + p * _SELU_LEAST**2)) ** -0.5)
    return where(kept, x, -_SELU_LEAST) * scale + scale * p * _SELU_LEAST


def embedding(input: TensorLike, weight: TensorLike, padding_idx: int | None = None) -> Tensor:
    """The rows of a table (rows, features) at the positions of any shape; nothing flows back to the
    row ``padding_idx``.
    """
    w = lift(weight, "embedding")
    if w.ndim != 2:
        raise ShapeError(f"embedding: the table has shape {w.shape}, not (rows, features)")
    found = w.take(input, 0)
    if padding_idx is None:
        return found
    row = padding_idx % max(1, w.shape[0])

    def kept() -> Tensor:
        read = (lift(input, "embedding") != row).unsqueeze(-1)
        return found.where(read, found.detach())

    return as_if(found, kept)


def upsample(
    input: TensorLike,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """``interpolate`` by its old name."""
    x = lift(input, "upsample")
    return x.interpolate(size, scale_factor, mode, align_corners)  # type: ignore[arg-type]


def affine_grid(theta: TensorLike, size: Sequence[int], align_corners: bool = False) -> Tensor:
    """Places for ``grid_sample``: those of an image (N, C, H, W), moved by matrices (N, 2, 3)."""
    t = lift(theta, "affine_grid")
    if t.ndim != 3 or t.shape[1:] != (2, 3) or len(size) != 4:
        raise ShapeError(f"affine_grid: theta {t.shape} for size {tuple(size)}, must be (N, 2, 3)")
    rows, columns = size[2:]

    def line(n: int) -> Tensor:
        return linspace(-1, 1, n) if align_corners else (arange(n).cast("f32") * 2 + 1) / n - 1

    x, y = line(columns).reshape(1, -1), line(rows).reshape(-1, 1)
    grid = stack([x.expand(rows, columns), y.expand(rows, columns), ones(rows, columns)], -1)
    moved = grid.reshape(1, -1, 3).cast(t.dtype) @ t.mT
    return moved.reshape(t.shape[0], rows, columns, 2)


def triplet_margin_loss(
    anchor: TensorLike,
    positive: TensorLike,
    negative: TensorLike,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Distance by which the anchor is nearer to the negative than to the positive, and a margin."""
    a, b, c = (lift(t, "triplet_margin_loss") for t in (anchor, positive, negative))
    near, far = a.pairwise_distance(b, p, eps), a.pairwise_distance(c, p, eps)
    far = far.minimum(b.pairwise_distance(c, p, eps)) if swap else far
    loss = (near - far + margin).relu()
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.mean()
