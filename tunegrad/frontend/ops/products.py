"""Products of matrices, and what is made of them: einsum, attention.

A product is nothing special in the graph: expand, multiply, sum (``folds.matmul``).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence

from tunegrad.errors import ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import BOOL, promote

from ..handle import Handle, TensorLike, apply, lift, optional, repeated, where
from ..nodes import folds
from ..nodes.arrays import DTypeLike
from ..nodes.elementwise import Scalar, broadcast_shapes
from ..nodes.folds import accumulator
from ..nodes.movement import axes_of, axis_of, integer
from ..operation import operation
from .arithmetic import scaled
from .movement import diagonal, repeat_interleave, roll, tril
from .reduction import masked_softmax, norm, softmax


@operation
def matmul(input: Handle, other: TensorLike, accumulate: DTypeLike | None = None) -> Handle:
    """``input @ other``, sums in ``accumulate``: f32 or f64 for floats, as wide at least."""
    fold = functools.partial(folds.matmul, accumulate=accumulate)
    return apply("matmul", fold, input, lift(other, "matmul"))


def _product(input: Handle, op: str, other: TensorLike, left: int, right: int) -> Handle:
    y = lift(other, op)
    if (input.ndim, y.ndim) != (left, right):
        raise ShapeError(
            f"{op}: shapes {input.shape} and {y.shape} must have {left} and {right} dimensions"
        )
    return input @ y


@operation
def mm(input: Handle, mat2: TensorLike) -> Handle:
    """The product of two matrices."""
    return _product(input, "mm", mat2, 2, 2)


@operation
def bmm(input: Handle, mat2: TensorLike) -> Handle:
    """The products of two batches of matrices."""
    return _product(input, "bmm", mat2, 3, 3)


@operation
def mv(input: Handle, vec: TensorLike) -> Handle:
    """The product of a matrix and a vector."""
    return _product(input, "mv", vec, 2, 1)


@operation
def dot(input: Handle, other: TensorLike) -> Handle:
    """The sum of the products of two vectors; with more dimensions, numpy's ``dot``."""
    y = lift(other, "dot")
    if input.ndim <= 2 and y.ndim <= 2 and input.shape and y.shape:
        return input @ y
    return input * y if not input.shape or not y.shape else tensordot(input, y, ([-1], [-2]))


@operation
def inner(input: Handle, other: TensorLike) -> Handle:
    """Sums of products over the last dimensions of both."""
    y = lift(other, "inner")
    if not input.shape or not y.shape:
        return input * y
    return tensordot(input, y, ([-1], [-1]))


@operation
def outer(input: Handle, vec2: TensorLike) -> Handle:
    """All products of the elements of two vectors."""
    y = lift(vec2, "outer")
    return input.reshape(-1, 1) * y.reshape(1, -1)


@operation
def addmm(
    input: Handle, mat1: TensorLike, mat2: TensorLike, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Handle:
    """``beta * input + alpha * (mat1 @ mat2)``."""
    return _sum("addmm", input, beta, alpha, mm(lift(mat1, "addmm"), mat2))


@operation
def addmv(
    input: Handle, mat: TensorLike, vec: TensorLike, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Handle:
    """``beta * input + alpha * (mat @ vec)``."""
    return _sum("addmv", input, beta, alpha, mv(lift(mat, "addmv"), vec))


@operation
def addr(
    input: Handle, vec1: TensorLike, vec2: TensorLike, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Handle:
    """``beta * input + alpha * outer(vec1, vec2)``."""
    return _sum("addr", input, beta, alpha, outer(lift(vec1, "addr"), vec2))


@operation
def baddbmm(
    input: Handle, batch1: TensorLike, batch2: TensorLike, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Handle:
    """``beta * input + alpha * (batch1 @ batch2)`` of batches of matrices."""
    return _sum("baddbmm", input, beta, alpha, bmm(lift(batch1, "baddbmm"), batch2))


@operation
def addbmm(
    input: Handle, batch1: TensorLike, batch2: TensorLike, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Handle:
    """``beta * input + alpha * sum(batch1 @ batch2)`` over the batch."""
    product = bmm(lift(batch1, "addbmm"), batch2)
    return _sum("addbmm", input, beta, alpha, product.sum(0)._as(product.dtype))


def _sum(op: str, input: Handle, beta: Scalar, alpha: Scalar, product: Handle) -> Handle:
    found = scaled(op, input, product, alpha)
    return found if beta == 0 else scaled(op, product, input, beta, "beta") + found


@operation
def tensordot(input: Handle, other: TensorLike, dims: int | Sequence[Sequence[int]] = 2) -> Handle:
    """Sums of products over the last ``dims`` dimensions of input and the first of ``other``, or
    over those of two lists.
    """
    y = lift(other, "tensordot")
    if isinstance(dims, int):
        n = integer("tensordot", "dims", dims, 0)
        left, right = tuple(range(input.ndim - n, input.ndim)), tuple(range(n))
    else:
        left = axes_of("tensordot", _listed(dims[0]), input.shape)
        right = axes_of("tensordot", _listed(dims[1]), y.shape)
    if [input.shape[a] for a in left] != [y.shape[a] for a in right]:
        raise ShapeError(
            f"tensordot: dimensions {left} of {input.shape} and {right} of {y.shape} differ"
        )
    rows = [a for a in range(input.ndim) if a not in left]
    columns = [a for a in range(y.ndim) if a not in right]
    inner = math.prod(input.shape[a] for a in left)
    outer = [input.shape[a] for a in rows] + [y.shape[a] for a in columns]
    m = math.prod(input.shape[a] for a in rows)
    n = math.prod(y.shape[a] for a in columns)
    x = input.permute(*rows, *left).reshape(m, inner)
    return (x @ y.permute(*right, *columns).reshape(inner, n)).reshape(outer)


@operation
def kron(input: Handle, other: TensorLike) -> Handle:
    """The Kronecker product: ``other`` scaled by each element of input."""
    y = lift(other, "kron")
    rank = max(input.ndim, y.ndim)
    a = (1,) * (rank - input.ndim) + input.shape
    b = (1,) * (rank - y.ndim) + y.shape
    x = input.reshape([e for s in a for e in (s, 1)])
    return (x * y.reshape([e for s in b for e in (1, s)])).reshape(
        [p * q for p, q in zip(a, b, strict=True)]
    )


@operation
def matrix_power(input: Handle, n: int) -> Handle:
    """A square matrix multiplied by itself, ``n >= 0`` times."""
    count = integer("matrix_power", "n", n, 0)
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise ShapeError(f"matrix_power: shape {input.shape} is not a square matrix")
    found, square = None, input
    while count:
        if count & 1:
            found = square if found is None else found @ square
        count >>= 1
        square = square @ square if count else square
    if found is None:
        plane = input.shape[-2:]
        ones = Handle.of(graph.iota(plane, 0)) == Handle.of(graph.iota(plane, 1))
        return ones.cast(input.dtype).expand(input.shape)
    return found


@operation
def cross(input: Handle, other: TensorLike, dim: int = -1) -> Handle:
    """The cross product of vectors of three along ``dim``."""
    y = lift(other, "cross")
    shape = broadcast_shapes("cross", input.shape, y.shape)
    at = axis_of("cross", dim, shape)
    if shape[at] != 3:
        raise ShapeError(f"cross: shapes {input.shape} and {y.shape} have no 3 along {dim}")
    a, b = input.expand(shape), y.expand(shape)
    return roll(a, -1, at) * roll(b, -2, at) - roll(a, -2, at) * roll(b, -1, at)


@operation
def linear(
    input: Handle,
    weight: TensorLike,
    bias: TensorLike | None = None,
    accumulate: DTypeLike | None = None,
) -> Handle:
    """``input @ weight.T + bias``: (.., in), weight (out, in) and bias (out,) give (.., out).

    The bias is added in the accumulator's dtype.
    """
    w, b = lift(weight, "linear"), optional(bias, "linear")
    if w.ndim != 2 or not input.shape or input.shape[-1] != w.shape[1]:
        raise ShapeError(
            f"linear: input {input.shape} and weight {w.shape} must be (.., in) and (out, in)"
        )
    if b is not None and b.shape != w.shape[:1]:
        raise ShapeError(f"linear: bias {b.shape} for weight {w.shape}, must be {w.shape[:1]}")
    kind = promote(input.dtype, w.dtype)
    acc = accumulator("linear", kind, accumulate)
    result = input.cast(acc) @ w.cast(acc).T
    return (result if b is None else result + b.cast(acc)).cast(kind if kind.is_float else acc)


@operation
def bilinear(
    input: Handle, input2: TensorLike, weight: TensorLike, bias: TensorLike | None = None
) -> Handle:
    """``input' weight[o] input2 + bias[o]`` for every output o: weight is (out, in1, in2)."""
    y, w, b = lift(input2, "bilinear"), lift(weight, "bilinear"), optional(bias, "bilinear")
    if w.ndim != 3 or input.shape[-1:] != w.shape[1:2] or y.shape[-1:] != w.shape[2:]:
        raise ShapeError(
            f"bilinear: inputs {input.shape} and {y.shape} and weight {w.shape} must be (.., "
            "in1), (.., in2) and (out, in1, in2)"
        )
    terms = tensordot(input, w, ([-1], [1])) * y.unsqueeze(-2)  # (.., out, in2)
    result = terms.sum(-1)._as(terms.dtype)
    return result if b is None else result + b


@operation
def cosine_similarity(input: Handle, x2: TensorLike, dim: int = 1, eps: float = 1e-8) -> Handle:
    """The cosine of the angle between vectors along ``dim``; lengths are at least ``eps``."""
    x, y = input._wide(), lift(x2, "cosine_similarity")._wide()
    lengths = norm(x, 2, dim).clamp(eps) * norm(y, 2, dim).clamp(eps)
    return ((x * y).sum(dim) / lengths)._as(input.float_type)


@operation
def pairwise_distance(
    input: Handle, x2: TensorLike, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Handle:
    """The p-norm of ``input - x2 + eps`` along the last dimension."""
    return norm(input - lift(x2, "pairwise_distance") + eps, p, -1, keepdim)


@operation
def cdist(input: Handle, x2: TensorLike, p: float = 2.0) -> Handle:
    """The p-norm of the difference of every row of input and every row of ``x2``."""
    return norm(input.unsqueeze(-2) - lift(x2, "cdist").unsqueeze(-3), p, -1)


def _listed(dims: int | Sequence[int]) -> Sequence[int]:
    return (dims,) if isinstance(dims, int) else dims


@repeated
def scaled_dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    attn_mask: TensorLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Handle:
    """``softmax(scale * query @ key' + mask) @ value``: (.., L, E), (.., S, E) and (.., S, Ev) give
    (.., L, Ev).

    ``attn_mask``: bool, true where a query may look, or numbers that are added to the scores.
    ``is_causal``: query i looks at keys 0 to i. ``scale``: 1 / sqrt(E) unless given.
    ``enable_gqa``: heads (dimension -3) of key and value are repeated to those of the query. A
    query from which a mask hides all keys gives zeros.

    Raises ShapeError for shapes that do not fit, or both a mask and ``is_causal``.
    """
    op = "scaled_dot_product_attention"
    q, k, v = lift(query, op), lift(key, op), lift(value, op)
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"{op}: query {q.shape}, key {k.shape} and value {v.shape} must be (.., L, E), (.., S, "
            "E) and (.., S, Ev)"
        )
    if attn_mask is not None and is_causal:
        raise ShapeError(f"{op}: attn_mask and is_causal exclude each other")
    if enable_gqa:
        k = repeat_interleave(k, q.shape[-3] // k.shape[-3], -3)
        v = repeat_interleave(v, q.shape[-3] // v.shape[-3], -3)
    kind = promote(q.dtype, k.dtype)
    wide = kind.compute
    factor = 1 / math.sqrt(q.shape[-1] or 1) if scale is None else scale
    scores = (q.cast(wide) @ k.cast(wide).mT) * factor
    mask = optional(attn_mask, op)
    if is_causal:
        mask = tril(Handle.of(graph.full(True, (q.shape[-2], k.shape[-2]), BOOL)))
    if mask is not None and mask.dtype.is_bool:
        scores = where(mask, scores, -math.inf)
    elif mask is not None:
        scores = scores + mask.cast(wide)
    weights = softmax(scores, -1) if attn_mask is None else masked_softmax(scores)
    return (weights @ v.cast(wide))._as(kind)


@repeated
def einsum(equation: str, *operands: TensorLike | Sequence[TensorLike]) -> Handle:
    """Sums of products over the letters that the result does not name.

    A letter twice in one operand is its diagonal; ``...`` stands for dimensions that broadcast.
    Without ``->`` the result has the letters that occur once, in alphabetical order. Operands are
    multiplied from left to right.

    Raises ShapeError for an equation that does not fit the operands.
    """
    single = len(operands) == 1 and isinstance(operands[0], list | tuple)
    listed: Sequence[TensorLike] = operands[0] if single else operands  # type: ignore[assignment]
    tensors = [lift(t, "einsum") for t in listed]
    inputs, output = _parsed(equation, tensors)
    terms = [_single(t, names, equation) for t, names in zip(tensors, inputs, strict=True)]
    _same_extents(equation, terms)
    result, names = terms[0]
    for i, (other, theirs) in enumerate(terms[1:], 1):
        later = set(output).union(*(n for _, n in terms[i + 1 :]))
        result, names = _pair(result, names, other, theirs, later)
    gone = [a for a, n in enumerate(names) if n not in output]
    if gone:
        result, names = result.sum(gone), "".join(n for n in names if n in output)
    return result.permute([names.index(n) for n in output]) if output else result


def _parsed(equation: str, tensors: list[Handle]) -> tuple[list[str], str]:
    """Letters for every dimension of each operand, and of the result."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(tensors):
        raise ShapeError(f"einsum: {equation!r} names {len(parts)} operands, got {len(tensors)}")
    most = 0
    inputs = []
    for part, t in zip(parts, tensors, strict=True):
        letters = part.replace("...", "")
        extra = t.ndim - len(letters)
        if (
            not all(c.isalpha() and c.isascii() for c in letters)
            or extra < 0
            or (extra and "..." not in part)
        ):
            raise ShapeError(f"einsum: {part!r} of {equation!r} does not fit shape {t.shape}")
        spare = _SPARE[len(_SPARE) - extra :] if "..." in part else ""
        most = max(most, len(spare))
        inputs.append(part.replace("...", spare))
    spare = _SPARE[len(_SPARE) - most :] if most else ""
    if arrow:
        output = right.replace("...", spare)
    else:
        counts = Counter(c for part in inputs for c in part if c not in _SPARE)
        output = spare + "".join(sorted(c for c, n in counts.items() if n == 1))
    known = set("".join(inputs))
    if len(set(output)) != len(output) or not set(output) <= known:
        raise ShapeError(f"einsum: the result of {equation!r} must name letters of operands, once")
    return inputs, output


def _single(x: Handle, names: str, equation: str) -> tuple[Handle, str]:
    """An operand in which each letter occurs once: twice is the diagonal."""
    for letter in sorted({n for n in names if names.count(n) > 1}):
        while names.count(letter) > 1:
            first = names.index(letter)
            second = names.index(letter, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ShapeError(
                    f"einsum: {letter!r} of {equation!r} has extents {x.shape[first]} and "
                    f"{x.shape[second]} in shape {x.shape}"
                )
            x = diagonal(x, 0, first, second)
            names = names[:first] + names[first + 1 : second] + names[second + 1 :] + letter
    return x, names


def _same_extents(equation: str, terms: list[tuple[Handle, str]]) -> None:
    extents: dict[str, int] = {}
    for x, names in terms:
        for n, s in zip(names, x.shape, strict=True):
            if extents.get(n, 1) != 1 and s not in (1, extents[n]):
                shapes = " and ".join(str(t.shape) for t, _ in terms)
                raise ShapeError(
                    f"einsum: {n!r} of {equation!r} has extents {extents[n]} and {s} in shapes "
                    f"{shapes}"
                )
            extents[n] = max(extents.get(n, 1), s) if s else 0


def _pair(a: Handle, left: str, b: Handle, right: str, kept: set[str]) -> tuple[Handle, str]:
    """Two operands as one: letters of both that are kept are the batch, others of both the sum."""
    a, left = _summed(a, left, kept | set(right))
    b, right = _summed(b, right, kept | set(left))
    batch = [n for n in left if n in right and n in kept]
    inner = [n for n in left if n in right and n not in kept]
    rows = [n for n in left if n not in right]
    columns = [n for n in right if n not in left]
    extent = {n: a.shape[left.index(n)] for n in left}
    for n, s in zip(right, b.shape, strict=True):
        extent[n] = s if extent.get(n, 1) == 1 else extent[n]
    x = a.permute([left.index(n) for n in (*batch, *rows, *inner)])
    y = b.permute([right.index(n) for n in (*batch, *inner, *columns)])

    def sizes(names: list[str]) -> list[int]:
        return [extent[n] for n in names]

    x = x.expand(sizes([*batch, *rows, *inner]))
    y = y.expand(sizes([*batch, *inner, *columns]))
    names = "".join((*batch, *rows, *columns))
    shape = sizes([*batch, *rows, *columns])
    if not inner:
        spread = x.reshape(sizes([*batch, *rows]) + [1] * len(columns))
        return spread * y.reshape(sizes(batch) + [1] * len(rows) + sizes(columns)), names
    high, deep, wide = (math.prod(sizes(part)) for part in (rows, inner, columns))
    product = x.reshape(*sizes(batch), high, deep) @ y.reshape(*sizes(batch), deep, wide)
    return product.reshape(shape), names


def _summed(x: Handle, names: str, needed: set[str]) -> tuple[Handle, str]:
    """Sum over the letters that are not needed."""
    gone = [a for a, n in enumerate(names) if n not in needed]
    if not gone:
        return x, names
    return x.sum(gone), "".join(n for n in names if n in needed)


_SPARE = "αβγδεζηθικλμνξοπρστυφχψω"
"""Letters of the dimensions that an ellipsis stands for."""
