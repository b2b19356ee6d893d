"""Lines of PyTorch's API whose gradients are compared, over every family of operations.

A line means the same with ``T`` and ``F`` being ``torch`` and ``torch.nn.functional``, or
``tunegrad`` and ``tunegrad.nn.functional``; ``a``, ``b``, ``c`` are its arguments, ``i`` integers.
"""

from __future__ import annotations

__all__ = ["CASES", "STEPS", "TIES", "Shapes"]

Shapes = tuple[tuple[int, ...], ...]
ONE: Shapes = ((2, 3, 4),)
TWO: Shapes = ((2, 3, 4), (3, 1))
IMAGE: Shapes = ((1, 2, 6, 5),)

_UNARY = [
    "a.abs()", "a.neg()", "a.exp()", "a.sin()", "a.cos()", "a.tan()", "a.tanh()", "a.erf()",
    "a.erfc()", "a.square()", "a.exp2()", "a.expm1()", "a.atan()", "a.sinh()", "a.cosh()",
    "a.asinh()", "a.sinc()", "a.deg2rad()", "a.rad2deg()", "a.nan_to_num()", "a.frac()",
    "a.reciprocal()", "(a * 0.6).asin()", "(a * 0.6).acos()", "(a * 0.6).atanh()",
    "(a * 0.6).erfinv()", "(a.abs() + 1.1).acosh()", "(a.abs() + 0.1).log()",
    "(a.abs() + 0.1).log2()", "(a.abs() + 0.1).log10()", "(a.abs() + 0.1).log1p()",
    "(a.abs() + 0.1).sqrt()", "(a.abs() + 0.1).rsqrt()", "(a * 0.2 + 0.5).logit()",
    "(a * 0.4 + 0.5).logit(0.2)", "a ** 3", "a ** 2", "a ** -1", "(a.abs() + 0.1) ** 1.5",
    "2.0 ** a", "a % 0.7", "1 - a", "2 / a", "a / 3", "a.clamp(-0.5, 0.7)", "a.clamp_min(0.2)",
    "a.clamp_max(0.2)", "T.maximum(a, a * 0.5 + 0.1)", "a.clone()", "a.masked_fill(a > 0.3, 2.0)",
    "T.where(a > 0, a * 2, a.exp())", "a.cumsum(1)", "a.cumprod(-1)", "a.logcumsumexp(1)",
    "a.cummax(2)[0]", "a.cummin(1)[0]", "a.diff(dim=1)",
]  # fmt: skip
_ACTIVATIONS = [
    "relu(a)", "relu6(a * 5)", "F.leaky_relu(a, 0.1)", "elu(a, 1.3)", "selu(a)", "celu(a, 1.3)",
    "gelu(a)", "F.gelu(a, approximate='tanh')", "silu(a)", "mish(a)", "softplus(a, 1.5)",
    "softplus(a * 20)", "softsign(a)", "logsigmoid(a * 3)", "hardtanh(a)", "hardsigmoid(a * 3)",
    "hardswish(a * 3)", "hardshrink(a)", "softshrink(a)", "tanhshrink(a)",
    "F.threshold(a, 0.1, 2.0)",
    "F.glu(a, -1)", "softmin(a, dim=1)",
]  # fmt: skip
_BINARY = [
    "a + b", "a - b", "a * b", "a / (b.abs() + 0.5)", "T.maximum(a, b)", "T.minimum(a, b)",
    "T.fmax(a, b)", "T.fmin(a, b)", "T.hypot(a, b)", "T.atan2(a, b)", "T.logaddexp(a, b)",
    "T.logaddexp2(a, b)", "T.xlogy(a, b.abs() + 0.1)", "T.lerp(a, b, 0.3)", "T.copysign(a, b)",
    "(a.abs() + 0.1) ** b", "T.addcmul(a, b, b, value=0.5)",
    "T.addcdiv(a, b, b.abs() + 1, value=2)", "T.fmod(a, b.abs() + 0.2)",
    "T.remainder(a, b.abs() + 0.2)", "T.add(a, b, alpha=2)", "T.sub(a, b, alpha=0.5)",
    "T.rsub(a, b)", "T.where(a > b, a, b * 2)", "T.float_power(a.abs() + 0.1, b)",
    "a.clamp(b - 0.3, b + 0.3)",
]  # fmt: skip
_REDUCED = [
    "a.sum()", "a.sum(1)", "a.mean((0, 2))", "a.prod(1)", "a.prod(2, True)", "a.amax((0, 1))",
    "a.amin(2, True)", "a.max()", "a.max(1)[0]", "a.min(2, True)[0]", "a.var(1)", "a.std((0, 2))",
    "a.var(1, unbiased=False)", "a.norm()", "a.norm(p=1, dim=1)", "a.norm(p=3, dim=1)",
    "a.norm(p=float('inf'), dim=2)", "a.norm(p=0.5, dim=1)", "a.logsumexp(1)",
    "a.logsumexp((0, 2), True)", "a.softmax(1)", "a.log_softmax(-1)", "a.nansum(1)", "a.nanmean(1)",
    "a.median(1)[0]", "a.kthvalue(2, 2)[0]", "a.quantile(0.3, 1)", "a.sort(1)[0]",
    "a.sort(2, descending=True)[0]", "a.topk(2, 2)[0]", "a.topk(2, 1, False)[0]", "T.msort(a)",
    "F.normalize(a, dim=1)", "a.aminmax(dim=1)[1]", "T.std_mean(a, 1)[0]", "T.var_mean(a, 1)[1]",
]  # fmt: skip
_MOVED = [
    "a.reshape(6, 4)", "a.permute(2, 0, 1)", "a.transpose(0, 2)", "a.flip([0, 2])", "a.roll(1, 2)",
    "a[:, 1:, ::2]", "a[1]", "a[..., -1]", "a.narrow(1, 1, 2)", "a.select(2, 1)",
    "a.unsqueeze(1)", "T.cat([a, a * 2], 1)", "T.stack([a, a ** 2], 0)", "F.pad(a, (1, 2))",
    "F.pad(a, (-1, 2, 1, 0), value=2.0)", "F.pad(a, (1, 2), mode='reflect')",
    "F.pad(a, (2, 1), mode='replicate')", "F.pad(a, (2, 1), mode='circular')", "a.unfold(2, 2, 1)",
    "a.unfold(1, 2, 1)", "a.repeat(2, 1, 2)", "a.repeat_interleave(2, 1)", "a.tril()",
    "a.triu(1)", "a.diagonal(0, 0, 1)", "a.chunk(2, 2)[1]", "a.split(2, 1)[0]",
    "a.expand(2, 2, 3, 4)", "a.tile(2)", "a.movedim(0, 2)", "a.flatten(1)", "T.diag_embed(a)",
    "T.rot90(a, 1, [0, 1])", "a.unbind(1)[2]", "a.T if False else a.mT", "T.trace(a[0])",
]  # fmt: skip
_INDEXED = [
    "a.gather(2, i.reshape(2, 1, 3) % 4)", "a.index_select(1, i[:2] % 3)", "a[:, i % 3]",
    "a[i % 2, i % 3]", "T.take_along_dim(a, i.reshape(1, 6, 1) % 3, 1)", "a.take(i)",
]  # fmt: skip
_WRITTEN = [
    "a.scatter_add(1, i.reshape(2, 3, 1) % 3, b[:, :, :1])", "a.index_add(1, i[:2] % 3, b[:, :2])",
    "a.scatter(1, T.argsort(b, 1), b)", "a.index_copy(1, i[:2], b[:, :2])",
    "a.index_fill(1, i[:2], 0.5)", "a.select_scatter(b[:, 0], 1, -1)",
    "a.slice_scatter(b[:, :1], 1, 0, None, 3)", "a.masked_scatter(a > b, b)",
    "a.index_put((i[:2] % 2, i[1:3] % 3), b[0, :2])", "a.nanmedian(1)[0]",
    "a.index_reduce(1, i[:2] % 3, b[:, :2], 'prod')",
    "a.put(T.argsort(b.flatten())[:3], b[0, 0, :3])", "a.diagonal_scatter(b[:, 0].mT, 0, 0, 1)",
    "T.dist(a, b)", "T.diagflat(a[0], 1)", "a.masked_select(a > b)",
]  # fmt: skip
_CONVOLVED: list[tuple[str, Shapes]] = [
    ("F.conv1d(a, b, c)", ((2, 2, 5), (3, 2, 3), (3,))),
    ("F.conv2d(a, b, c, stride=2, padding=1)", ((1, 2, 6, 5), (3, 2, 3, 2), (3,))),
    ("F.conv2d(a, b, c, dilation=2, groups=2)", ((1, 2, 6, 5), (4, 1, 2, 2), (4,))),
    ("F.conv2d(a, b, padding='same')", ((1, 2, 4, 5), (2, 2, 3, 3))),
    ("F.conv3d(a, b, stride=2)", ((1, 2, 4, 3, 3), (2, 2, 2, 2, 1))),
    ("F.conv_transpose1d(a, b, c, stride=2)", ((2, 2, 4), (2, 3, 3), (3,))),
    ("F.conv_transpose2d(a, b, None, 2, 1, 1)", ((1, 2, 3, 3), (2, 2, 3, 3))),
    ("F.conv_transpose2d(a, b, None, 1, 0, 0, 2, 2)", ((1, 2, 3, 3), (2, 2, 2, 2))),
    ("F.unfold(a, (2, 2), padding=1, stride=2)", IMAGE),
    ("F.fold(a, (4, 5), (2, 2))", ((1, 8, 12),)),
]
_POOLED = [
    "F.max_pool2d(a, 2)", "F.max_pool2d(a, 3, 1, 1)", "F.max_pool2d(a, 2, 2, ceil_mode=True)",
    "F.max_pool2d(a, 2, 1, 0, 2)", "F.avg_pool2d(a, 2)", "F.avg_pool2d(a, 3, 2, 1)",
    "F.avg_pool2d(a, 3, 2, 1, count_include_pad=False)", "F.adaptive_avg_pool2d(a, 2)",
    "F.adaptive_max_pool2d(a, (3, 5))", "F.lp_pool2d(a, 2, 2)",
    "F.interpolate(a, scale_factor=2, mode='nearest')",
    "F.interpolate(a, size=(4, 7), mode='bilinear')",
    "F.interpolate(a, size=(7, 8), mode='bicubic')", "F.pixel_shuffle(T.cat([a, a], 1), 2)",
    "F.channel_shuffle(a, 2)", "F.pixel_unshuffle(a[..., :4], 2)",
    "F.max_unpool1d(*F.max_pool1d(a[0], 2, return_indices=True), 2)",
    "F.max_unpool2d(*F.max_pool2d(a[..., :4], 2, return_indices=True), 2)",
    "F.max_unpool3d(*F.max_pool3d(a[..., :4], (1, 2, 2), return_indices=True), (1, 2, 2))",
]  # fmt: skip
_PRODUCTS: list[tuple[str, Shapes]] = [
    ("a @ b", ((2, 3, 4), (4, 2))), ("a @ b", ((4,), (4,))),
    ("T.bmm(a, b)", ((2, 3, 4), (2, 4, 2))),
    ("T.addmm(a, b, c, beta=0.5, alpha=2)", ((3, 2), (3, 4), (4, 2))),
    ("T.outer(a, b)", ((3,), (4,))),
    ("T.einsum('ij,kj->ik', a, b)", ((3, 4), (2, 4))), ("T.tensordot(a, b, 1)", ((2, 3), (3, 4))),
    ("T.kron(a, b)", ((2, 2), (3, 2))), ("T.cross(a, b, dim=1)", ((2, 3), (2, 3))),
    ("F.linear(a, b, c)", ((2, 3), (4, 3), (4,))), ("T.matrix_power(a, 3)", ((3, 3),)),
    ("T.cdist(a, b)", ((3, 4), (2, 4))), ("F.cosine_similarity(a, b, 1)", ((3, 4), (3, 4))),
    ("F.pairwise_distance(a, b)", ((3, 4), (3, 4))), ("T.cov(a)", ((3, 4),)),
    ("T.corrcoef(a)", ((3, 4),)), ("F.bilinear(a, b, c)", ((2, 3), (2, 4), (2, 3, 4))),
    ("F.scaled_dot_product_attention(a, b, c)", ((2, 3, 4), (2, 5, 4), (2, 5, 2))),
    ("F.scaled_dot_product_attention(a, b, c, is_causal=True)", ((1, 4, 3), (1, 4, 3), (1, 4, 3))),
]  # fmt: skip
_NORMS: list[tuple[str, Shapes]] = [
    ("F.layer_norm(a, (4,), b, c)", ((2, 3, 4), (4,), (4,))),
    ("F.layer_norm(a, (3, 4))", ONE),
    ("F.rms_norm(a, (4,), b)", ((2, 3, 4), (4,))),
    ("F.group_norm(a, 2, b, c)", ((2, 4, 3), (4,), (4,))),
    ("F.instance_norm(a)", ((2, 3, 5),)),
    ("F.local_response_norm(a, 3)", ((2, 4, 3),)),
    (
        "F.batch_norm(a, a[0, :, 0].detach() * 0 + 0.1, a[0, :, 0].detach() * 0 + 0.7, b, c)",
        ((4, 3, 2), (3,), (3,)),
    ),
    ("F.prelu(a, b)", ((2, 3, 4), (3,))),
]
_LOSSES = [
    "F.mse_loss(a, b)", "F.l1_loss(a, b)", "F.smooth_l1_loss(a, b, beta=0.5)",
    "F.huber_loss(a, b, delta=0.7)", "F.binary_cross_entropy(a.sigmoid(), b.sigmoid())",
    "F.binary_cross_entropy_with_logits(a * 3, b.sigmoid())",
    "F.kl_div(a.log_softmax(1), b.softmax(1), reduction='batchmean')",
    "F.poisson_nll_loss(a, b.abs())", "F.soft_margin_loss(a, b.sign().detach())",
    "F.hinge_embedding_loss(a, b.sign())", "F.cross_entropy(a, b.softmax(1))",
    "F.cross_entropy(a, i[:4] % 3)", "F.nll_loss(a.log_softmax(1), i[:4] % 3, ignore_index=1)",
    "F.cross_entropy(a, i[:4] % 3, b[0].detach() * 0 + 0.5, label_smoothing=0.1)",
]  # fmt: skip
_OTHERS: list[tuple[str, Shapes]] = [
    ("T.addbmm(a, b, c)", ((3, 2), (2, 3, 4), (2, 4, 2))),
    ("T.addmv(a, b, c)", ((3,), (3, 4), (4,))),
    ("T.addr(a, b, c)", ((3, 4), (3,), (4,))), ("T.dot(a, b)", ((4,), (4,))),
    ("T.baddbmm(a, b, c, alpha=2)", ((2, 3, 2), (2, 3, 4), (2, 4, 2))),
    ("T.inner(a, b)", ((3, 4), (2, 4))), ("T.mm(a, b)", ((3, 4), (4, 2))),
    ("T.mv(a, b)", ((3, 4), (4,))), ("T.chain_matmul(a, b, c)", ((2, 3), (3, 2), (2, 4))),
    ("T.matmul(a, b)", ((1, 3, 4), (2, 4, 2))), ("T.vdot(a, b)", ((4,), (4,))),
    ("T.hstack([a, b])", ((2, 3), (2, 1))), ("T.vstack([a, b])", ((2, 3), (1, 3))),
    ("T.dstack([a, b])", ((2, 3), (2, 3))), ("T.column_stack([a, b])", ((3,), (3, 2))),
    ("T.broadcast_tensors(a, b)[1]", ((2, 3), (3,))), ("T.broadcast_to(a, (2, 3))", ((3,),)),
    ("T.atleast_3d(a)", ((2, 3),)), ("T.diag(a)", ((3,),)), ("T.diag(a, 1)", ((3, 4),)),
    ("T.fliplr(a)", ((2, 3),)), ("T.flipud(a)", ((2, 3),)), ("a.t()", ((2, 3),)),
    ("a.squeeze(1)", ((2, 1, 3),)), ("a.swapaxes(0, 1)", ((2, 3),)), ("a.ravel()", ((2, 3),)),
    ("a.unflatten(1, (2, 2))", ((3, 4),)), ("T.tensor_split(a, 2, 1)[0]", ((2, 5),)),
    ("T.div(a, b.abs() + 1)", TWO), ("T.pow(a.abs() + 0.1, 2.5)", ONE), ("a.positive()", ONE),
    ("a.scatter_reduce(1, i[:4].reshape(2, 2) % 3, b, 'amax')", ((2, 3), (2, 2))),
    ("a.scatter_reduce(1, i[:4].reshape(2, 2) % 3, b, 'prod')", ((2, 3), (2, 2))),
    ("a.scatter_reduce(1, i[:4].reshape(2, 2) % 3, b, 'mean')", ((2, 3), (2, 2))),
    (
        "a.scatter_reduce(1, i[:4].reshape(2, 2) % 3, b, 'amax', include_self=False)",
        ((2, 3), (2, 2)),
    ),
    ("F.conv_transpose3d(a, b, None, 2)", ((1, 2, 2, 2, 2), (2, 1, 2, 2, 2))),
    ("F.adaptive_avg_pool1d(a, 3)", ((1, 2, 7),)), ("F.avg_pool1d(a, 3, 2)", ((1, 2, 7),)),
    ("F.adaptive_max_pool3d(a, 2)", ((1, 1, 4, 2, 3),)),
    ("F.upsample(a, scale_factor=2)", ((1, 2, 3, 4),)), ("T.mul(a, b)", TWO),
    ("T.meshgrid(a, b, indexing='ij')[1]", ((3,), (4,))), ("a.view_as(b)", ((6,), (2, 3))),
    ("a.expand_as(b) * b", ((3,), (2, 3))), ("a.reshape_as(b)", ((6,), (2, 3))),
    ("T.atleast_1d(a)", ((),)), ("T.atleast_2d(a)", ((3,),)), ("a.type_as(b) * b", ((3,), (3,))),
    ("a.contiguous()", ONE), ("T.linalg.svdvals(a)", ((3, 2),)),
    ("T.linalg.qr(a)[1]", ((3, 2),)), ("T.linalg.svd(a, False)[1]", ((2, 3),)),
    ("F.max_pool3d(a, 2, 1)", ((1, 1, 3, 3, 3),)), ("F.avg_pool3d(a, 2, 1)", ((1, 1, 3, 3, 3),)),
    ("F.lp_pool1d(a.abs() + 0.1, 3, 2)", ((1, 2, 6),)),
    ("F.adaptive_avg_pool3d(a, 2)", ((1, 1, 4, 2, 3),)),
    ("F.rrelu(a)", ONE),
    ("F.batch_norm(a, None, None, b, c, training=True)", ((4, 3, 2), (3,), (3,))),
    ("F.grid_sample(a, b, align_corners=False)", ((1, 2, 4, 5), (1, 3, 3, 2))),
    ("F.grid_sample(a, b * 1.3, padding_mode='border', align_corners=True)",
     ((1, 2, 4, 5), (1, 3, 3, 2))),
    ("F.affine_grid(a, (2, 1, 3, 4), align_corners=False)", ((2, 2, 3),)),
    ("F.triplet_margin_loss(a, b, c)", ((4, 3), (4, 3), (4, 3))),
    ("F.scaled_dot_product_attention(a, b, c, i[:4].reshape(2, 2) > 1)", ((2, 3),) * 3),
    ("F.scaled_dot_product_attention(a, b, c, a @ b.mT)", ((2, 3),) * 3),
]  # fmt: skip
STEPS = ["a.floor()", "a.ceil()", "a.round()", "a.trunc()", "a.sign()"]
"""Operations that are level everywhere."""

CASES: list[tuple[str, Shapes]] = [
    *((line, ONE) for line in _UNARY),
    *((line if line.startswith("F.") else f"F.{line}", ONE) for line in _ACTIVATIONS),
    *((line, TWO) for line in _BINARY),
    *((line, ONE) for line in _REDUCED),
    *((line, ONE) for line in _MOVED),
    *((line, ONE) for line in _INDEXED),
    *((line, ((2, 3, 4), (2, 3, 4))) for line in _WRITTEN),
    ("F.embedding(i, a)", ((6, 3),)),
    *_CONVOLVED,
    *((line, IMAGE) for line in _POOLED),
    *_PRODUCTS,
    *_NORMS,
    *_OTHERS,
    *((line, ((4, 3), (4, 3))) for line in _LOSSES),
]

TIES: list[str] = [
    "a.amax(1)", "a.amin(0)", "a.max()", "a.max(1)[0]", "a.min(0)[0]", "a.prod(1)", "a.prod(0)",
    "a.norm()", "a.norm(dim=1)", "a.norm(p=1)", "a.norm(p=float('inf'), dim=1)",
    "a.norm(p=3, dim=1)",
    "a.std(1)", "T.maximum(a, b)", "T.minimum(a, b)", "T.fmax(a, b)", "T.fmin(a, b)", "F.relu(a)",
    "F.relu6(a)", "F.hardtanh(a)", "F.hardsigmoid(a * 3)", "F.hardswish(a * 3)", "F.elu(a)",
    "F.celu(a, 2.0)", "F.selu(a)", "F.leaky_relu(a)", "F.softshrink(a, 1.0)",
    "F.hardshrink(a, 1.0)",
    "F.threshold(a, 1.0, 5.0)", "F.softplus(a)", "a.clamp(-1, 1)", "a.clamp_min(1)",
    "a.clamp(min=0)", "a.clamp_max(0)", "a.abs()", "a ** 2", "a ** 3", "a.cummax(1)[0]",
    "a.cummin(1)[0]", "a.cumprod(1)", "a.sort(dim=1, stable=True)[0]", "a.median(1)[0]",
    "a.median()", "F.embedding(i % 4, a, padding_idx=2)", "F.embedding(i % 4, a, padding_idx=-1)",
    "T.copysign(a, b + 0.5)", "a.sinc()", "T.xlogy(a, b.abs() + 1)", "F.softsign(a)",
    "F.smooth_l1_loss(a, b)", "F.huber_loss(a, b)", "F.l1_loss(a, b)",
    "F.max_pool1d(a.reshape(1, 4, 4), 2)", "F.max_pool1d(a.reshape(1, 4, 4), 3, 1, 1)",
    "F.max_pool1d(a.reshape(1, 4, 4), 2, 1)", "F.adaptive_max_pool1d(a.reshape(1, 4, 4), 3)",
    "a.nan_to_num()", "T.where(a == b, a, b)", "T.logaddexp(a, b)",
    "(a.abs()) ** b.abs()", "F.normalize(a, dim=1)", "T.cdist(a, b)",
]  # fmt: skip
"""Lines at ``a`` and ``b`` of few whole numbers: ties, zeros, bounds."""
