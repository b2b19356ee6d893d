"""Functions of tensors, as ``tg.name`` and ``torch.name``: those of several tensors, and
operations, which ``Tensor`` has as methods.

    tg.relu(x)    x.relu()        tg.sum(x, dim=1)    x.sum(1)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, get_args

from tunegrad.errors import ConfigError, ShapeError
from tunegrad.ir.text import print_dot, print_graph

from .handle import Handle, TensorLike, repeated
from .nodes.elementwise import broadcast_shapes as common_shape
from .nodes.movement import axis_of
from .operation import operation, viewing
from .ops.movement import join
from .ops.products import einsum as product_of_names
from .ops.products import scaled_dot_product_attention as attention
from .spelling import spelled
from .tensor import Tensor, giving_tensors, lift, where

__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv",
    "addr", "all", "allclose", "amax", "amin", "aminmax", "any", "arccos", "arccosh", "arcsin",
    "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "argwhere",
    "asin", "asinh", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d",
    "baddbmm", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "bmm", "broadcast_shapes", "broadcast_tensors",
    "broadcast_to", "bucketize", "cat", "cdist", "ceil", "celu", "chain_matmul",
    "channel_shuffle", "chunk", "clamp", "clamp_max", "clamp_min", "clip", "clone",
    "column_stack", "concat", "concatenate", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "copysign", "corrcoef", "cos", "cosh",
    "cosine_similarity", "count_nonzero", "cov", "cross", "cummax", "cummin", "cumprod",
    "cumsum", "deg2rad", "detach", "diag", "diag_embed", "diagflat", "diagonal",
    "diagonal_scatter", "diff", "dist", "div", "divide", "dot", "dstack", "dump", "einsum",
    "eq", "equal", "erf", "erfc", "erfinv", "exp", "exp2", "expand_dims", "expm1", "fix",
    "flatten", "flip", "fliplr", "flipud", "float_power", "floor", "floor_divide", "fmax",
    "fmin", "fmod", "frac", "gather", "ge", "ger", "greater", "greater_equal", "gt",
    "hardshrink", "heaviside", "hstack", "hypot", "index_add", "index_copy", "index_fill",
    "index_put", "index_reduce", "index_select", "inner", "is_tensor", "isclose", "isfinite",
    "isinf", "isnan", "isneginf", "isposinf", "kron", "kthvalue", "le", "lerp", "less",
    "less_equal", "log", "log1p", "log2", "log10", "log_softmax", "logaddexp", "logaddexp2",
    "logcumsumexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logit",
    "logsumexp", "lt", "masked_fill", "masked_scatter", "masked_select", "matmul",
    "matrix_power", "max", "maximum", "mean", "median", "min", "minimum", "mm", "moveaxis",
    "movedim", "msort", "mul", "multiply", "mv", "nan_to_num", "nanmean", "nanmedian", "nansum",
    "narrow", "ne", "neg", "negative", "nonzero", "norm", "not_equal", "numel", "outer",
    "pairwise_distance", "permute", "pixel_shuffle", "pixel_unshuffle", "positive", "pow",
    "prelu", "prod", "put", "quantile", "rad2deg", "ravel", "reciprocal", "relu", "remainder",
    "repeat_interleave", "reshape", "roll", "rot90", "round", "row_stack", "rsqrt", "rsub",
    "scaled_dot_product_attention", "scatter", "scatter_add", "scatter_reduce", "searchsorted",
    "select", "select_scatter", "selu", "sgn", "sigmoid", "sign", "signbit", "sin", "sinc",
    "sinh", "slice_scatter", "softmax", "sort", "split", "sqrt", "square", "squeeze", "stack",
    "std", "std_mean", "sub", "subtract", "sum", "swapaxes", "swapdims", "t", "take",
    "take_along_dim", "tan", "tanh", "tensor_split", "tensordot", "tile", "topk", "trace",
    "transpose", "tril", "triu", "true_divide", "trunc", "unbind", "unflatten", "unsqueeze",
    "var", "var_mean", "vdot", "vstack", "where", "xlogy",
]  # fmt: skip

GraphForm = Literal["text", "dot"]

# ---- operations that are methods of a handle, or of Tensor alone

abs = operation(Handle.abs)
all = operation(Handle.all)
amax = operation(Handle.amax)
amin = operation(Handle.amin)
any = operation(Handle.any)
clamp = operation(Handle.clamp)
cos = operation(Handle.cos)
erf = operation(Handle.erf)
exp = operation(Handle.exp)
flip = operation(Handle.flip)
floor = operation(Handle.floor)
log = operation(Handle.log)
log2 = operation(Handle.log2)
mean = operation(Handle.mean)
narrow = viewing(Handle.narrow)
neg = operation(Handle.neg)
numel = operation(Handle.numel)
permute = viewing(Handle.permute)
positive = viewing(Handle.positive)
pow = operation(Handle.pow)
prod = operation(Handle.prod)
ravel = viewing(Handle.ravel)
reciprocal = operation(Handle.reciprocal)
reshape = viewing(Handle.reshape)
round = operation(Handle.round)
select = viewing(Handle.select)
sin = operation(Handle.sin)
sqrt = operation(Handle.sqrt)
square = operation(Handle.square)
squeeze = viewing(Handle.squeeze)
sum = operation(Handle.sum)
swapaxes = viewing(Handle.swapaxes)
unsqueeze = viewing(Handle.unsqueeze)
allclose = operation(Tensor.allclose)
clone = operation(Tensor.clone)
detach = viewing(Tensor.detach)
equal = operation(Tensor.equal)
max = operation(Tensor.max)
min = operation(Tensor.min)
argwhere, nonzero = operation(Tensor.argwhere), operation(Tensor.nonzero)
masked_select = operation(Tensor.masked_select)

# ---- activation

celu, hardshrink, prelu, relu = Tensor.celu, Tensor.hardshrink, Tensor.prelu, Tensor.relu
selu, sigmoid = Tensor.selu, Tensor.sigmoid

# ---- arithmetic

add, addcdiv, addcmul, bitwise_and = Tensor.add, Tensor.addcdiv, Tensor.addcmul, Tensor.bitwise_and
bitwise_left_shift, bitwise_not = Tensor.bitwise_left_shift, Tensor.bitwise_not
bitwise_or, bitwise_right_shift = Tensor.bitwise_or, Tensor.bitwise_right_shift
bitwise_xor, ceil, clamp_max = Tensor.bitwise_xor, Tensor.ceil, Tensor.clamp_max
clamp_min, copysign, div, eq = Tensor.clamp_min, Tensor.copysign, Tensor.div, Tensor.eq
floor_divide, fmax, fmin, fmod = Tensor.floor_divide, Tensor.fmax, Tensor.fmin, Tensor.fmod
frac, ge, gt, heaviside = Tensor.frac, Tensor.ge, Tensor.gt, Tensor.heaviside
isclose, isfinite, isinf, isnan = Tensor.isclose, Tensor.isfinite, Tensor.isinf, Tensor.isnan
isneginf, isposinf, le, lerp = Tensor.isneginf, Tensor.isposinf, Tensor.le, Tensor.lerp
logical_and, logical_not, logical_or = Tensor.logical_and, Tensor.logical_not, Tensor.logical_or
logical_xor, lt, masked_fill, mul = Tensor.logical_xor, Tensor.lt, Tensor.masked_fill, Tensor.mul
nan_to_num, ne, remainder, rsub = Tensor.nan_to_num, Tensor.ne, Tensor.remainder, Tensor.rsub
sign, signbit, sub, trunc = Tensor.sign, Tensor.signbit, Tensor.sub, Tensor.trunc

# ---- convolution

conv1d, conv2d, conv3d = Tensor.conv1d, Tensor.conv2d, Tensor.conv3d
conv_transpose1d, conv_transpose2d = Tensor.conv_transpose1d, Tensor.conv_transpose2d
conv_transpose3d = Tensor.conv_transpose3d

# ---- indexing

gather, index_add, index_copy = Tensor.gather, Tensor.index_add, Tensor.index_copy
index_fill, index_select, scatter = Tensor.index_fill, Tensor.index_select, Tensor.scatter
scatter_add, scatter_reduce, take = Tensor.scatter_add, Tensor.scatter_reduce, Tensor.take
take_along_dim, index_put = Tensor.take_along_dim, Tensor.index_put
index_reduce, put = Tensor.index_reduce, Tensor.put
masked_scatter, diagonal_scatter = Tensor.masked_scatter, Tensor.diagonal_scatter
select_scatter, slice_scatter = Tensor.select_scatter, Tensor.slice_scatter

# ---- products

addbmm, addmm, addmv, addr = Tensor.addbmm, Tensor.addmm, Tensor.addmv, Tensor.addr
baddbmm, bmm, cdist = Tensor.baddbmm, Tensor.bmm, Tensor.cdist
cosine_similarity, cross, dot = Tensor.cosine_similarity, Tensor.cross, Tensor.dot
inner, kron, matmul, matrix_power = Tensor.inner, Tensor.kron, Tensor.matmul, Tensor.matrix_power
mm, mv, outer, pairwise_distance = Tensor.mm, Tensor.mv, Tensor.outer, Tensor.pairwise_distance
tensordot = Tensor.tensordot

# ---- movement

broadcast_to, chunk, diag = Tensor.broadcast_to, Tensor.chunk, Tensor.diag
diag_embed, diagonal, expand_dims = Tensor.diag_embed, Tensor.diagonal, Tensor.expand_dims
flatten, fliplr, flipud, movedim = Tensor.flatten, Tensor.fliplr, Tensor.flipud, Tensor.movedim
repeat_interleave, roll, rot90 = Tensor.repeat_interleave, Tensor.roll, Tensor.rot90
split, t, tensor_split, tile = Tensor.split, Tensor.t, Tensor.tensor_split, Tensor.tile
trace, transpose, tril, triu = Tensor.trace, Tensor.transpose, Tensor.tril, Tensor.triu
unbind, unflatten, diagflat = Tensor.unbind, Tensor.unflatten, Tensor.diagflat

# ---- ordering

argsort, bucketize, corrcoef, cov = Tensor.argsort, Tensor.bucketize, Tensor.corrcoef, Tensor.cov
cummax, cummin, cumprod, cumsum = Tensor.cummax, Tensor.cummin, Tensor.cumprod, Tensor.cumsum
diff, kthvalue, logcumsumexp = Tensor.diff, Tensor.kthvalue, Tensor.logcumsumexp
median, msort, quantile = Tensor.median, Tensor.msort, Tensor.quantile
nanmedian = Tensor.nanmedian
searchsorted, sort, topk = Tensor.searchsorted, Tensor.sort, Tensor.topk

# ---- reduction

aminmax, argmax, argmin = Tensor.aminmax, Tensor.argmax, Tensor.argmin
count_nonzero, log_softmax, logsumexp = Tensor.count_nonzero, Tensor.log_softmax, Tensor.logsumexp
dist = Tensor.dist
nanmean, nansum, norm, softmax = Tensor.nanmean, Tensor.nansum, Tensor.norm, Tensor.softmax
std, std_mean, var, var_mean = Tensor.std, Tensor.std_mean, Tensor.var, Tensor.var_mean

# ---- resizing

channel_shuffle, pixel_shuffle = Tensor.channel_shuffle, Tensor.pixel_shuffle
pixel_unshuffle = Tensor.pixel_unshuffle

# ---- special

acos, acosh, asin, asinh, atan = Tensor.acos, Tensor.acosh, Tensor.asin, Tensor.asinh, Tensor.atan
atan2, atanh, cosh, deg2rad = Tensor.atan2, Tensor.atanh, Tensor.cosh, Tensor.deg2rad
erfc, erfinv, exp2, expm1 = Tensor.erfc, Tensor.erfinv, Tensor.exp2, Tensor.expm1
float_power, hypot, log10, log1p = Tensor.float_power, Tensor.hypot, Tensor.log10, Tensor.log1p
logaddexp, logaddexp2, logit = Tensor.logaddexp, Tensor.logaddexp2, Tensor.logit
rad2deg, rsqrt, sinc, sinh = Tensor.rad2deg, Tensor.rsqrt, Tensor.sinc, Tensor.sinh
tan, tanh, xlogy = Tensor.tan, Tensor.tanh, Tensor.xlogy

# ---- second names

arccos, arccosh, arcsin, arcsinh = acos, acosh, asin, asinh
arctan, arctan2, arctanh = atan, atan2, atanh
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
subtract, multiply, divide, true_divide = sub, mul, div, div
absolute, negative, fix, clip, sgn = abs, neg, trunc, clamp, sign
moveaxis, swapdims, ger, vdot = movedim, swapaxes, outer, dot

# ---- of several tensors

einsum = giving_tensors(product_of_names)
scaled_dot_product_attention = giving_tensors(attention)
_join = giving_tensors(join)


@repeated
@spelled
def cat(tensors: Sequence[TensorLike], dim: int = 0) -> Tensor:
    """Tensors joined along a dimension; dtypes are promoted."""
    return _join("cat", tensors, dim)


concat = concatenate = cat


@repeated
@spelled
def stack(tensors: Sequence[TensorLike], dim: int = 0) -> Tensor:
    """Tensors of one shape joined along a new dimension."""
    if not len(tensors):
        raise ShapeError("stack: at least one tensor is needed")
    listed = [lift(t, "stack") for t in tensors]
    shape = listed[0].shape
    for x in listed:
        if x.shape != shape:
            raise ShapeError(f"stack: shapes {shape} and {x.shape} differ")
    at = axis_of("stack", dim, shape, len(shape) + 1)
    return _join("stack", [t.unsqueeze(at) for t in listed], at)


def maximum(input: TensorLike, other: TensorLike) -> Tensor:
    """The larger one; NaN where either is NaN."""
    first, second = (other, input) if _number(input) else (input, other)
    return lift(first, "max").maximum(second)


def minimum(input: TensorLike, other: TensorLike) -> Tensor:
    """The smaller one; NaN where either is NaN."""
    first, second = (other, input) if _number(input) else (input, other)
    return lift(first, "min").minimum(second)


def _number(x: TensorLike) -> bool:
    return isinstance(x, bool | int | float)


def atleast_1d(input: TensorLike) -> Tensor:
    """A tensor with one dimension at least."""
    x = lift(input, "atleast_1d")
    return x if x.ndim else x.reshape(1)


def atleast_2d(input: TensorLike) -> Tensor:
    """A tensor with two dimensions at least, new ones in front."""
    x = atleast_1d(input)
    return x if x.ndim > 1 else x.unsqueeze(0)


def atleast_3d(input: TensorLike) -> Tensor:
    """A tensor with three dimensions at least; a new third one stands last."""
    x = atleast_2d(input)
    return x if x.ndim > 2 else x.unsqueeze(-1)


def hstack(tensors: Sequence[TensorLike]) -> Tensor:
    """Tensors joined along the second dimension; vectors along their only one."""
    listed = [atleast_1d(t) for t in tensors]
    return _join("hstack", listed, 0 if listed and listed[0].ndim == 1 else 1)


def vstack(tensors: Sequence[TensorLike]) -> Tensor:
    """Tensors joined along the first dimension; vectors as rows."""
    return _join("vstack", [atleast_2d(t) for t in tensors], 0)


row_stack = vstack


def dstack(tensors: Sequence[TensorLike]) -> Tensor:
    """Tensors joined along the third dimension."""
    return _join("dstack", [atleast_3d(t) for t in tensors], 2)


def column_stack(tensors: Sequence[TensorLike]) -> Tensor:
    """Vectors as columns, matrices side by side."""
    listed = [atleast_1d(t) for t in tensors]
    return _join("column_stack", [t.unsqueeze(1) if t.ndim == 1 else t for t in listed], 1)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that all of these broadcast to."""
    return common_shape("broadcast_shapes", *(tuple(s) for s in shapes))


def broadcast_tensors(*tensors: TensorLike) -> tuple[Tensor, ...]:
    """Tensors repeated to their common shape."""
    listed = [lift(t, "broadcast_tensors") for t in tensors]
    shape = broadcast_shapes(*(t.shape for t in listed))
    return tuple(t.expand(shape) for t in listed)


def chain_matmul(*matrices: TensorLike) -> Tensor:
    """The product of matrices, from left to right."""
    first, *rest = [lift(m, "chain_matmul") for m in matrices]
    return functools.reduce(lambda a, b: a @ b, rest, first)


def is_tensor(obj: object) -> bool:
    """True for a Tensor."""
    return isinstance(obj, Tensor)


def dump(graph: Tensor | Sequence[Tensor], form: GraphForm = "text") -> str:
    """The graph that tensors are computed by: a line per node, or for Graphviz's ``dot``.

    Nothing is computed. Raises ConfigError for another form.
    """
    outputs = (graph,) if isinstance(graph, Tensor) else tuple(graph)
    if form not in get_args(GraphForm):
        raise ConfigError(f"dump: form {form!r} is not one of {', '.join(get_args(GraphForm))}")
    nodes = tuple(t.node for t in outputs)
    return print_graph(nodes) if form == "text" else print_dot(nodes)
