"""Convolutions, pooling, resizing, norms, attention and losses equal PyTorch's in compiled form."""

import pytest
from torch_cases import check, integers, numbers, on, optional_torch

torch = optional_torch()

CONVOLUTIONS = {
    "conv1d": (
        lambda T, F, x, w, b: (
            F.conv1d(x, w, b),
            F.conv1d(x, w, stride=2, padding=1),
            F.conv1d(x, w, padding="same"),
        ),
        [(2, 4, 9), (6, 4, 3), (6,)],
    ),
    "conv1d groups": (
        lambda T, F, x, w, b: F.conv1d(x, w, b, groups=2, dilation=2),
        [(2, 4, 9), (6, 2, 3), (6,)],
    ),
    "conv2d": (
        lambda T, F, x, w, b: (
            F.conv2d(x, w, b, (2, 1), (1, 0)),
            F.conv2d(x, w, padding="valid"),
            F.conv2d(x[0], w, b),
        ),
        [(2, 3, 7, 8), (4, 3, 3, 2), (4,)],
    ),
    "conv2d depthwise": (
        lambda T, F, x, w, b: F.conv2d(x, w, b, padding=1, groups=4),
        [(1, 4, 6, 6), (8, 1, 3, 3), (8,)],
    ),
    "conv3d": (
        lambda T, F, x, w, b: (
            F.conv3d(x, w, b, 1, 1),
            F.conv3d(x, w, None, 2, dilation=(1, 2, 1)),
        ),
        [(1, 2, 5, 6, 5), (3, 2, 3, 3, 3), (3,)],
    ),
    "transpose1d": (
        lambda T, F, x, w, b: (
            F.conv_transpose1d(x, w, b),
            F.conv_transpose1d(x, w, b, 3, 1, 1, 1, 2),
        ),
        [(2, 4, 5), (4, 3, 3), (3,)],
    ),
    "transpose2d": (
        lambda T, F, x, w, b: (
            F.conv_transpose2d(x, w, b, 2),
            F.conv_transpose2d(x, w, b, (2, 3), 1, (1, 0)),
            F.conv_transpose2d(x, w, stride=1, padding=2),
        ),
        [(2, 4, 5, 4), (4, 3, 3, 3), (3,)],
    ),
    "transpose2d groups": (
        lambda T, F, x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2),
        [(1, 4, 3, 3), (4, 3, 3, 3), (6,)],
    ),
    "transpose2d of a window that is a multiple of its stride": (
        lambda T, F, x, w, b: (
            F.conv_transpose2d(x, w, b, 2),
            F.conv_transpose2d(x, w, T.cat([b, b]), (4, 3), groups=2),
            F.conv_transpose2d(x, w[:, :, :2, :3], None, (2, 3)),
            F.conv_transpose2d(x[0], w[:, :, :, :1], b, (4, 1)),
        ),
        [(2, 4, 3, 5), (4, 3, 4, 6), (3,)],
    ),
    "transpose2d with its border cut": (
        lambda T, F, x, w, b: (
            F.conv_transpose2d(x, w, b, 2, 1),
            F.conv_transpose2d(x, w, b, 2, 2, 1),
            F.conv_transpose2d(x, w[:, :, :3, :], b, (2, 3), (0, 4), (1, 0)),
            F.conv_transpose2d(x, w[:, :, :2, :1], b, 3, 0, (1, 2)),
            F.conv_transpose2d(x, T.cat([w, w], 1), None, 3, 1, 2, groups=2),
        ),
        [(2, 4, 3, 5), (4, 3, 4, 6), (3,)],
    ),
    "transpose3d": (
        lambda T, F, x, w, b: F.conv_transpose3d(x, w, b, 2, 1),
        [(1, 2, 3, 3, 2), (2, 2, 3, 3, 2), (2,)],
    ),
    "unfold": (
        lambda T, F, x: (F.unfold(x, 3, padding=1), F.unfold(x, (2, 3), 2, 1, 2)),
        [(2, 3, 7, 8)],
    ),
    "fold": (
        lambda T, F, x: (
            F.fold(x, (6, 7), 3, padding=1),
            F.fold(x[:, :, :16], (9, 10), 3, stride=2),
        ),
        [(2, 27, 42)],
    ),
}

POOLS = {
    "max1d": lambda T, F, x: (F.max_pool1d(x[0], 2), F.max_pool1d(x[0], 3, 2, 1, ceil_mode=True)),
    "max2d": lambda T, F, x: (
        F.max_pool2d(x, 2),
        F.max_pool2d(x, 3, 2, 1),
        F.max_pool2d(x, (3, 2), 1, (1, 0), 2),
        F.max_pool2d(x, 3, 2, ceil_mode=True),
    ),
    "max2d indices": lambda T, F, x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "max3d": lambda T, F, x: (
        F.max_pool3d(x[None], 2),
        F.max_pool3d(x[None], 2, 2, 1, ceil_mode=True),
    ),
    "avg1d": lambda T, F, x: (
        F.avg_pool1d(x[0], 3, 2, 1),
        F.avg_pool1d(x[0], 3, 2, 1, count_include_pad=False),
    ),
    "avg2d": lambda T, F, x: (
        F.avg_pool2d(x, 3, 2, 1),
        F.avg_pool2d(x, 3, 2, 1, False, False),
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        F.avg_pool2d(x, 2, divisor_override=3),
    ),
    "avg2d ceil": lambda T, F, x: (
        F.avg_pool2d(x, 3, 2, 1, True, False),
        F.avg_pool2d(x, 4, 3, 2, True, True),
        F.avg_pool2d(x, 2, 2, 0, True),
    ),
    "avg3d": lambda T, F, x: (
        F.avg_pool3d(x[None], 2),
        F.avg_pool3d(x[None], 3, 2, 1, True, False),
    ),
    "lp": lambda T, F, x: (F.lp_pool2d(x, 2, 3, 2), F.lp_pool2d(x.abs(), 3, 2)),
    "adaptive avg": lambda T, F, x: (
        F.adaptive_avg_pool2d(x, 1),
        F.adaptive_avg_pool2d(x, (3, 5)),
        F.adaptive_avg_pool2d(x, (None, 2)),
        F.adaptive_avg_pool1d(x[0], 4),
        F.adaptive_avg_pool3d(x[None], 2),
    ),
    "adaptive max": lambda T, F, x: (
        F.adaptive_max_pool2d(x, (3, 5)),
        F.adaptive_max_pool1d(x[0], 4),
        F.adaptive_max_pool3d(x[None], 2),
    ),
}

RESIZED = {
    "nearest": lambda T, F, x: (
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, size=(7, 3)),
        F.interpolate(x, scale_factor=(1.5, 0.6)),
        F.interpolate(x[0], 9),
    ),
    "nearest-exact": lambda T, F, x: (
        F.interpolate(x, (7, 3), mode="nearest-exact"),
        F.interpolate(x, scale_factor=0.5, mode="nearest-exact"),
    ),
    "linear": lambda T, F, x: (
        F.interpolate(x[0], 11, mode="linear"),
        F.interpolate(x[0], scale_factor=2, mode="linear", align_corners=True),
    ),
    "bilinear": lambda T, F, x: (
        F.interpolate(x, scale_factor=2, mode="bilinear"),
        F.interpolate(x, (9, 3), mode="bilinear", align_corners=True),
        F.interpolate(x, scale_factor=1.7, mode="bilinear"),
    ),
    "bicubic": lambda T, F, x: (
        F.interpolate(x, (9, 11), mode="bicubic"),
        F.interpolate(x, (3, 12), mode="bicubic", align_corners=True),
    ),
    "trilinear": lambda T, F, x: F.interpolate(x[None], (4, 7, 5), mode="trilinear"),
    "grid": lambda T, F, x: [
        F.grid_sample(
            x,
            F.affine_grid(
                T.tensor([[[0.8, 0.3, 0.1], [-0.2, 1.3, 0.0]]] * 2), [2, 4, 6, 7], align_corners=c
            ),
            mode=m,
            padding_mode=p,
            align_corners=c,
        )
        for m in ("bilinear", "nearest", "bicubic")
        for p in ("zeros", "border", "reflection")
        for c in (True, False)
    ],
    "area": lambda T, F, x: F.interpolate(x, (4, 5), mode="area"),
    "pixels": lambda T, F, x: (
        F.pixel_shuffle(x.reshape(1, 8, 5, 6)[:, :8], 2),
        F.pixel_unshuffle(x[..., :4, :], 2),
        F.channel_shuffle(x, 2),
    ),
}

NORMS = {
    "layer": lambda T, F, x, w, m: (
        F.layer_norm(x, (5, 6)),
        F.layer_norm(x, (6,), eps=0.1),
        F.layer_norm(x, [6], m[0, :6], m[1, :6]),
    ),
    "rms": lambda T, F, x, w, m: (F.rms_norm(x, (6,)), F.rms_norm(x, (6,), m[0, :6], 1e-3)),
    "group": lambda T, F, x, w, m: (F.group_norm(x, 2), F.group_norm(x, 4, w, w + 1)),
    "instance": lambda T, F, x, w, m: (
        F.instance_norm(x),
        F.instance_norm(x, weight=w, bias=w * 2),
    ),
    "batch": lambda T, F, x, w, m: (
        F.batch_norm(x, w, w.abs() + 1),
        F.batch_norm(x, w, w.abs() + 1, w, w, eps=0.1),
        F.batch_norm(x, None, None, training=True),
    ),
}
RESPONSE = {"local response": lambda T, F, x, w, m: F.local_response_norm(x, 3)}

ATTENTION = {
    "plain": lambda T, F, q, k, v: F.scaled_dot_product_attention(q, k, v),
    "causal": lambda T, F, q, k, v: F.scaled_dot_product_attention(
        q, k[..., :5, :], v[..., :5, :], is_causal=True
    ),
    "bool mask": lambda T, F, q, k, v: F.scaled_dot_product_attention(
        q, k, v, attn_mask=T.ones(5, 7, dtype=T.bool).tril(2)
    ),
    "float mask": lambda T, F, q, k, v: F.scaled_dot_product_attention(
        q, k, v, q @ k.transpose(-2, -1), scale=0.3
    ),
    "groups": lambda T, F, q, k, v: F.scaled_dot_product_attention(
        q, k[:, :2], v[:, :2], enable_gqa=True
    ),
}

HOW = ("mean", "sum", "none")
LOSSES = {
    "mse": lambda T, F, x, y: [F.mse_loss(x, y, reduction=r) for r in HOW],
    "l1": lambda T, F, x, y: [F.l1_loss(x, y, reduction=r) for r in HOW],
    "smooth": lambda T, F, x, y: [F.smooth_l1_loss(x, y, reduction=r, beta=0.7) for r in HOW],
    "huber": lambda T, F, x, y: [F.huber_loss(x, y, reduction=r, delta=0.7) for r in HOW],
    "bce": lambda T, F, x, y: [
        F.binary_cross_entropy(T.sigmoid(x), T.sigmoid(y), reduction=r) for r in HOW
    ],
    "bce logits": lambda T, F, x, y: [
        F.binary_cross_entropy_with_logits(x, T.sigmoid(y), reduction=r) for r in HOW
    ],
    "bce weights": lambda T, F, x, y: F.binary_cross_entropy_with_logits(
        x, T.sigmoid(y), y[0], pos_weight=y[1].abs()
    ),
    "kl": lambda T, F, x, y: [
        F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction=r) for r in ("sum", "batchmean")
    ],
    "kl logs": lambda T, F, x, y: F.kl_div(
        F.log_softmax(x, 1), F.log_softmax(y, 1), reduction="sum", log_target=True
    ),
    "poisson": lambda T, F, x, y: (
        F.poisson_nll_loss(x, y.abs()),
        F.poisson_nll_loss(x.abs(), y.abs(), False, True),
    ),
    "hinge": lambda T, F, x, y: F.hinge_embedding_loss(x, T.sign(y)),
    "soft margin": lambda T, F, x, y: F.soft_margin_loss(x, T.sign(y)),
    "triplet": lambda T, F, x, y: F.triplet_margin_loss(x, y, x + y),
    "soft labels": lambda T, F, x, y: [
        F.cross_entropy(x, F.softmax(y, 1), reduction=r, label_smoothing=0.1) for r in HOW
    ],
}

CLASSES = {
    "cross entropy": lambda T, F, x, t: [F.cross_entropy(x, t, reduction=r) for r in HOW],
    "smoothing": lambda T, F, x, t: [
        F.cross_entropy(x, t, reduction=r, label_smoothing=0.2) for r in HOW
    ],
    "ignored": lambda T, F, x, t: [F.cross_entropy(x, t, ignore_index=1, reduction=r) for r in HOW],
    "nll": lambda T, F, x, t: F.nll_loss(F.log_softmax(x, 1), t),
    "one hot": lambda T, F, x, t: F.one_hot(t, num_classes=6),
}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_convolutions_equal_torch(dtype):
    cases = {
        name: (f, [numbers(*s, seed=i, low=-1, high=1) for i, s in enumerate(shapes)])
        for name, (f, shapes) in CONVOLUTIONS.items()
    }
    check(cases, torch, dtype, 1e-4 if dtype == "f32" else 1e-10)


def test_pooling_equals_torch():
    check(on(POOLS, [numbers(2, 3, 9, 8)]), torch, close=1e-5)


def test_resizing_equals_torch():
    check(on(RESIZED, [numbers(2, 4, 5, 6)]), torch, close=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_norms_equal_torch(dtype):
    arrays = [numbers(2, 4, 5, 6), numbers(4), numbers(2, 7)]
    norms = NORMS | RESPONSE if dtype == "f32" else NORMS  # torch pools no f16
    check(on(norms, arrays), torch, dtype, 1e-4 if dtype == "f32" else 1e-2)


def test_attention_equals_torch():
    check(on(ATTENTION, [numbers(2, 4, 5, 8), numbers(2, 4, 7, 8), numbers(2, 4, 7, 3)]), torch)


def test_losses_equal_torch():
    check(on(LOSSES, [numbers(4, 6), numbers(4, 6, seed=1)]), torch, close=1e-4)
    check(on(CLASSES, [numbers(4, 6), integers(4, low=0, high=6)]), torch, close=1e-4)


def test_weighted_classes_equal_torch():
    cases = {
        "weights": lambda T, F, x, t, w: [F.cross_entropy(x, t, w, reduction=r) for r in HOW],
        "both": lambda T, F, x, t, w: [
            F.cross_entropy(x, t, w, label_smoothing=0.2, reduction=r) for r in HOW
        ],
    }
    check(
        on(cases, [numbers(4, 6), integers(4, low=0, high=6), numbers(6, low=0.1)]),
        torch,
        close=1e-4,
    )
    image = [numbers(2, 3, 4, 5), integers(2, 4, 5, low=0, high=3), numbers(3, low=0.1)]
    check(on(cases, image), torch, close=1e-4)
