"""Einsum: sums of products by letters, as permutations, reshapes and one matrix product a pair.

"bhqd,bhkd->bhqk"    batch b h, rows q, columns k, summed d:  (bh, q, d) @ (bh, d, k)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from tunegrad.errors import ShapeError

from .handle import TensorLike, lift

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = ["einsum"]

_SPARE = "αβγδεζηθικλμνξοπρστυφχψω"
"""Letters of the dimensions that an ellipsis stands for."""


def einsum(equation: str, *operands: TensorLike | Sequence[TensorLike]) -> Tensor:
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
        result, names = (
            result.sum(gone).cast(result.dtype),
            "".join(n for n in names if n in output),
        )
    return result.permute([names.index(n) for n in output]) if output else result


def _parsed(equation: str, tensors: list[Tensor]) -> tuple[list[str], str]:
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


def _single(x: Tensor, names: str, equation: str) -> tuple[Tensor, str]:
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
            x = x.diagonal(0, first, second)
            names = names[:first] + names[first + 1 : second] + names[second + 1 :] + letter
    return x, names


def _same_extents(equation: str, terms: list[tuple[Tensor, str]]) -> None:
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


def _pair(a: Tensor, left: str, b: Tensor, right: str, kept: set[str]) -> tuple[Tensor, str]:
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
    high, deep, wide = (prod(sizes(part)) for part in (rows, inner, columns))
    product = x.reshape(*sizes(batch), high, deep) @ y.reshape(*sizes(batch), deep, wide)
    return product.reshape(shape), names


def _summed(x: Tensor, names: str, needed: set[str]) -> tuple[Tensor, str]:
    """Sum over the letters that are not needed."""
    gone = [a for a, n in enumerate(names) if n not in needed]
    if not gone:
        return x, names
    return x.sum(gone).cast(x.dtype), "".join(n for n in names if n in needed)
