"""Functions of tensors, as ``tg.name`` and ``torch.name``: those of several tensors, and every
method as a function of its tensor.

    tg.relu(x)    x.relu()        tg.sum(x, dim=1)    x.sum(1)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tunegrad.errors import ShapeError

from . import movement
from .contraction import einsum
from .handle import TensorLike, apply, beside, lift, where
from .methods.linear import attention as scaled_dot_product_attention
from .methods.movement import join
from .spelling import spelled
from .tensor import Tensor

__all__ = [
    "METHODS", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_shapes", "broadcast_tensors",
    "cat", "chain_matmul", "column_stack", "concat", "concatenate", "dstack", "einsum", "function",
    "hstack", "is_tensor", "maximum", "minimum", "row_stack", "scaled_dot_product_attention",
    "stack", "vstack", "where",
]  # fmt: skip


@spelled
def cat(tensors: Sequence[TensorLike], dim: int = 0) -> Tensor:
    """Tensors joined along a dimension; dtypes are promoted."""
    return join("cat", tensors, dim)


concat = concatenate = cat


@spelled
def stack(tensors: Sequence[TensorLike], dim: int = 0) -> Tensor:
    """Tensors of one shape joined along a new dimension."""
    if not len(tensors):
        raise ShapeError("stack: at least one tensor is needed")
    return apply("stack", lambda *n: movement.stack(n, dim), *[lift(t, "stack") for t in tensors])


def maximum(input: TensorLike, other: TensorLike) -> Tensor:
    """The larger one; NaN where either is NaN."""
    return (
        lift(input, "max").maximum(other)
        if not _number(input)
        else lift(other, "max").maximum(input)
    )


def minimum(input: TensorLike, other: TensorLike) -> Tensor:
    """The smaller one; NaN where either is NaN."""
    return (
        lift(input, "min").minimum(other)
        if not _number(input)
        else lift(other, "min").minimum(input)
    )


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
    return join("hstack", listed, 0 if listed and listed[0].ndim == 1 else 1)


def vstack(tensors: Sequence[TensorLike]) -> Tensor:
    """Tensors joined along the first dimension; vectors as rows."""
    return join("vstack", [atleast_2d(t) for t in tensors], 0)


row_stack = vstack


def dstack(tensors: Sequence[TensorLike]) -> Tensor:
    """Tensors joined along the third dimension."""
    return join("dstack", [atleast_3d(t) for t in tensors], 2)


def column_stack(tensors: Sequence[TensorLike]) -> Tensor:
    """Vectors as columns, matrices side by side."""
    listed = [atleast_1d(t) for t in tensors]
    return join("column_stack", [t.unsqueeze(1) if t.ndim == 1 else t for t in listed], 1)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that all of these broadcast to."""
    from .elementwise import broadcast_shapes as common

    return common("broadcast_shapes", *(tuple(s) for s in shapes))


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


METHODS = frozenset(
    [
        "abs", "absolute", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm",
        "addmv", "addr", "all", "allclose", "amax", "amin", "aminmax", "any", "arccos",
        "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin",
        "argsort", "asin", "asinh", "atan", "atan2", "atanh", "baddbmm", "bitwise_and",
        "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
        "bitwise_xor", "bmm", "broadcast_to", "bucketize", "cdist", "ceil", "celu",
        "channel_shuffle", "chunk", "clamp", "clamp_max", "clamp_min", "clip", "clone",
        "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
        "conv_transpose3d", "copysign", "corrcoef", "cos", "cosh", "cosine_similarity",
        "count_nonzero", "cov", "cross", "cummax", "cummin", "cumprod", "cumsum", "deg2rad",
        "detach", "diag", "diag_embed", "diagonal", "diff", "div", "divide", "dot", "eq",
        "equal", "erf", "erfc", "erfinv", "exp", "exp2", "expand_dims", "expm1", "fix",
        "flatten", "flip", "fliplr", "flipud", "float_power", "floor", "floor_divide",
        "fmax", "fmin", "fmod", "frac", "gather", "ge", "ger", "greater", "greater_equal",
        "gt", "hardshrink", "heaviside", "hypot", "index_add", "index_copy", "index_fill",
        "index_select", "inner", "isclose", "isfinite", "isinf", "isnan", "isneginf",
        "isposinf", "kron", "kthvalue", "le", "lerp", "less", "less_equal", "log", "log10",
        "log1p", "log2", "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp",
        "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "logsumexp",
        "lt", "masked_fill", "matmul", "matrix_power", "max", "mean", "median", "min", "mm",
        "moveaxis", "movedim", "msort", "mul", "multiply", "mv", "nan_to_num", "nanmean",
        "nansum", "narrow", "ne", "neg", "negative", "norm", "not_equal", "numel", "outer",
        "pairwise_distance", "permute", "pixel_shuffle", "pixel_unshuffle", "positive",
        "pow", "prelu", "prod", "quantile", "rad2deg", "ravel", "reciprocal", "relu",
        "remainder", "repeat_interleave", "reshape", "roll", "rot90", "round", "rsqrt",
        "rsub", "scatter", "scatter_add", "scatter_reduce", "searchsorted", "select",
        "selu", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "softmax", "sort",
        "split", "sqrt", "square", "squeeze", "std", "std_mean", "sub", "subtract", "sum",
        "swapaxes", "swapdims", "t", "take", "take_along_dim", "tan", "tanh",
        "tensor_split", "tensordot", "tile", "topk", "trace", "transpose", "tril", "triu",
        "true_divide", "trunc", "unbind", "unflatten", "unsqueeze", "var", "var_mean",
        "vdot", "xlogy",
    ]
)  # fmt: skip
"""Methods that PyTorch has as functions, too."""


@functools.cache
def function(name: str) -> Callable[..., Any]:
    """A method of Tensor as a function of the tensor, given first or as ``input=``."""
    method = getattr(Tensor, name)

    def called(input: TensorLike, *args: Any, **kwargs: Any) -> Any:
        number = isinstance(input, bool | int | float) and args and isinstance(args[0], Tensor)
        first = beside(args[0], input, name) if number else lift(input, name)
        return getattr(first, name)(*args, **kwargs)

    called.__name__ = called.__qualname__ = name
    called.__doc__ = method.__doc__
    own = list(inspect.signature(method).parameters.values())
    first = inspect.Parameter("input", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    called.__signature__ = inspect.Signature([first, *own[1:]])  # type: ignore[attr-defined]
    return called


def __getattr__(name: str) -> Any:
    if name in METHODS:
        return function(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
