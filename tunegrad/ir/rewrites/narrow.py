"""A model in 16 bits: what its plan keeps in memory is f16 or bf16, what it computes is f32.

    before                                       after, for bf16
    %0 = input x f32[8,64]                       %0 = input x f32[8,64]               as it was
    %1 = const w f32[64,32]                      %1 = cast (const w bf16[64,32]) f32
    %2 = reduce add (mul %0 %1 ..) f32[8,32]     %2 = reduce add (mul %0 %1 ..)       in f32
    %3 = map max %2 0  f32[8,32]                 %3 = cast (cast (map max %2 0) bf16) f32
    %4 = const v f32[32,32]                      %4 = cast (const v bf16[32,32]) f32
    %5 = reduce add (mul %3 %4 ..) f32[8,32]     %5 = reduce add (mul %3 %4 ..)       in f32
    out %5                                       out %5                               as it was

``%3`` is what the rules give memory to, so it is rounded, once, where it is stored; sums, norms,
softmax and every chain up to there are in f32. The new graph is one of f32 with roundings in it:
fusion gives memory to the narrow side of a widening cast (``ir.fusion.drafts``), so the kernels
are the same ones with other parameters. Whatever else cuts the graph computes the same values,
since the roundings stay where they are.

What stays as it is: inputs and outputs; what is not f32 to begin with (integers, truths, f64);
constants with at most one extent above 1 (biases, scales of norms), which are added in f32 and are
no bytes to speak of; statistics, which are results of sums and maxima that are no contraction and
slide over nothing (a row's mean, its variance, a global average), and what is computed of these
alone; and tensors that a fence writes by a schedule of its own.

Where a matrix unit multiplies narrow factors, what a contraction would read in f32 (an input, a
statistic, what is computed while it is read) is stored in 16 bits for that:
``cast (fence (cast x f16)) f32``. Whatever else reads ``x`` reads f32.
"""

from __future__ import annotations

from functools import partial
from typing import cast as typed

import numpy as np

from tunegrad.errors import WeightsError

from .. import graph as g
from ..dtypes import F32, DType
from ..fusion import Draft, Fusion
from ..graph import MOVEMENT, ConstData, Fence, GraphOp, Node, Step, topological
from ..interpret.numeric import to_compute, to_memory
from .sums import applied, chain, stepped, sum_of_products, with_factors

_STEP = 16
"""Terms that a matrix unit adds at a time, of 16 bits each."""

_LARGEST = {"f16": 65504.0, "bf16": (2.0 - 2.0**-7) * 2.0**127}


def narrowed(
    outputs: tuple[Node, ...],
    dtype: DType,
    *,
    factors: bool = False,
    steps: list[Step] | None = None,
) -> tuple[Node, ...]:
    """The same outputs with constants and stored tensors in ``dtype``, f16 or bf16; with
    ``factors``, all that contractions multiply in whole steps of a matrix unit, too.

    ``outputs`` are folded (``ir.folding``), so that products of constants are rounded
    once. Shapes and dtypes of inputs and outputs stay. A graph without f32 tensors in memory keeps
    its nodes.

    Raises WeightsError for a constant with a finite number that ``dtype`` has as an infinity.
    """
    drafts = Fusion.of(outputs).drafts
    kept = {*outputs, *drafts.targets}
    stored = _stored(drafts.sorted()) - kept
    narrow_factor = partial(_narrow_factor, dtype=dtype)
    new: dict[Node, Node] = {}
    for n in topological(outputs):
        srcs = tuple(new[s] for s in n.srcs)
        made = g.with_sources(n, srcs)
        if factors:
            made = with_factors(made, _STEP, narrow_factor) or made
        if n in kept or n.dtype != F32:
            new[n] = made
        elif n.op is GraphOp.CONST:
            new[n] = _narrow_constant(n, dtype) if _is_matrix(n) else n
        elif n.op is GraphOp.CONTIGUOUS:
            new[n] = _narrow_fence(made, dtype, stored=n in stored)
        else:
            new[n] = g.cast(g.cast(made, dtype), F32) if n in stored else made
    return stepped(outputs, new, steps)


def _stored(drafts: list[Draft]) -> set[Node]:
    """The tensors that the drafts store, less statistics; ``drafts`` come sources first."""
    statistics: set[Node] = set()
    for d in drafts:
        if _is_statistic(d, statistics):
            statistics.add(d.node)
    return {d.node for d in drafts} - statistics


def _narrow_factor(x: Node, dtype: DType) -> Node | None:
    """A factor that is read repeatedly, stored in ``dtype`` before it is moved; as it is where it
    is narrow already. None of any other.
    """
    if not _repeats(x):
        return None
    base, moves = chain(x)
    if base.dtype != F32 or base.op is GraphOp.CONST or g.converts_reads(base):
        return x
    return applied(g.cast(g.contiguous(g.cast(base, dtype)), F32), moves)


def _is_statistic(d: Draft, known: set[Node]) -> bool:
    """True if a draft stores sums or maxima of whole rows, or what is computed of such alone."""
    reduces = [n for n in d.inlined if n.op is GraphOp.REDUCE]
    if not reduces:
        read = [n for n in d.reads.values() if n.op is not GraphOp.CONST]
        return bool(read) and all(n in known and n.size >= d.node.size for n in read)
    if any(_contracts(n) for n in reduces) or any(n.op is GraphOp.WINDOW for n in d.inlined):
        return False
    return d.node.size <= max(n.size for n in reduces)


def _contracts(n: Node) -> bool:
    """True if a reduction is a sum of products of two tensors of which one is read repeatedly."""
    found = sum_of_products(n)
    if found is None or found[0].srcs[0] is found[0].srcs[1]:
        return False
    return any(map(_repeats, found[0].srcs))


def _repeats(x: Node) -> bool:
    """True if a tensor is spread or slid over, in the movements that end in ``x``."""
    while x.op in MOVEMENT or x.op is GraphOp.CAST:
        if x.op in (GraphOp.EXPAND, GraphOp.WINDOW):
            return True
        x = x.srcs[0]
    return False


def _is_matrix(n: Node) -> bool:
    return sum(extent > 1 for extent in n.shape) > 1


def _narrow_constant(n: Node, dtype: DType) -> Node:
    """cast(const in ``dtype``, f32). Raises WeightsError."""
    data = typed("ConstData", n.arg)
    narrow = to_memory(data.array, dtype)
    lost = np.isfinite(data.array) & ~np.isfinite(to_compute(narrow, dtype))
    if lost.any():
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(lost)), n.shape))
        remedy = "bf16, which has the range of f32, or f32" if dtype.name == "f16" else "f32"
        raise WeightsError(
            f"weight {data.name or 'without a name'} of shape {n.shape} does not fit {dtype}: "
            f"element {at} is {float(data.array[at]):.9g}, and the largest number of {dtype} is "
            f"{_LARGEST[dtype.name]:.6g} ({int(lost.sum())} such of {n.size}); use {remedy}"
        )
    return g.cast(g.const(narrow, dtype, data.name), F32)


def _narrow_fence(made: Node, dtype: DType, *, stored: bool) -> Node:
    """fence(x) -> cast(fence(cast(x, ``dtype``)), f32), unless it says its own schedule."""
    fence, x = typed("Fence | None", made.arg), made.srcs[0]
    if fence is not None and fence.schedule:
        return made
    narrow = x.srcs[0] if x.op is GraphOp.CAST and x.srcs[0].dtype == dtype else None
    if narrow is None and not stored:  # what it holds stays as it is
        return made
    inner = g.cast(x, dtype) if narrow is None else narrow
    return g.cast(Node(made.op, (inner,), made.arg, made.shape, dtype), F32)
