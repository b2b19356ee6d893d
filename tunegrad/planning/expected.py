"""Times that a model of the machine expects: of plans, of kernels as their expected variants, and
attention where its scores are more than the last cache holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from tunegrad.ir.expr import Apply, Cast, Expr, IndexValue, Inside, Load, Value
from tunegrad.ir.fusion import EXPENSIVE, Edge, Fusion, LaunchPlan
from tunegrad.ir.graph import Node
from tunegrad.ir.kernel import Kernel, memoized
from tunegrad.ir.target import Target
from tunegrad.ir.variants import parts_of
from tunegrad.opts import kernel_flops_per_s

from .variants import expected

if TYPE_CHECKING:
    from tunegrad.config import Numerics

__all__ = [
    "expected_attentions",
    "expected_parts",
    "expected_plan_s",
    "expected_s",
    "stored_s",
]


def expected_plan_s(plan: LaunchPlan, target: Target, numerics: Numerics) -> float:
    """Seconds that a model of the machine expects a plan to take, each kernel as its expected
    variant.
    """
    return sum(
        uses * expected_s(kernel, target, numerics) for kernel, uses in plan.kernels().values()
    )


@memoized()
def expected_s(kernel: Kernel, target: Target, numerics: Numerics) -> float:
    """Seconds that a model of the machine expects a kernel to take as its expected variant.

    Each launch costs what the target's rates say; each kernel takes the longer of its arithmetic
    and its bytes. Work that is done again counts again. Known kernels are remembered: plans of one
    model have most of theirs in common.
    """
    total = 0.0
    for part in expected_parts(kernel, target, numerics):
        dear = target.rates.expensive_flops * _expensive_ops(part)
        flops_s = part.flops / kernel_flops_per_s(part, target) + dear / target.flops_per_s()
        bytes_s = part.unique_bytes / target.bytes_per_s(part.unique_bytes)
        total += target.rates.launch_s + max(flops_s, bytes_s)
    return total


def stored_s(edge: Edge, target: Target) -> float:
    """Seconds that writing and reading what an edge stores takes at the least; 0 where it stores
    nothing.
    """
    return 2 * edge.stored_bytes / target.rates.cache_bytes_per_s


def expected_parts(kernel: Kernel, target: Target, numerics: Numerics) -> tuple[Kernel, ...]:
    """Kernels that a kernel launches as its expected variant."""
    return parts_of(kernel, expected(kernel, target, numerics))


def _expensive_ops(k: Kernel) -> int:
    """Expensive operations of one run, those on values of a row once a row."""
    shared = frozenset(a.name for a in k.axes)
    total = 0
    for s in k.stages:
        extents = {a.name: a.extent for a in (*k.axes, *s.axes)}
        known: dict[int, frozenset[str]] = {}
        for x in _inside_out(s.expr):
            known[id(x)] = axes = _axes_of(x, known, shared)
            if isinstance(x, Apply) and x.op in EXPENSIVE:
                total += prod(extents[n] for n in axes)
    return total


def _inside_out(x: Expr) -> list[Expr]:
    """The parts of an expression, arguments first, shared ones once."""
    found: dict[int, Expr] = {}
    stack = [(x, False)]
    while stack:
        node, done = stack.pop()
        if done:
            found.setdefault(id(node), node)
        elif id(node) not in found:
            stack.append((node, True))
            stack.extend((a, False) for a in _args(node))
    return list(found.values())


def _args(x: Expr) -> tuple[Expr, ...]:
    return x.args if isinstance(x, Apply) else (x.x,) if isinstance(x, Cast) else ()


def _axes_of(
    x: Expr, known: Mapping[int, frozenset[str]], shared: frozenset[str]
) -> frozenset[str]:
    """The axes that a part depends on; a reduction's value on all shared ones."""
    if isinstance(x, Load):
        return frozenset(n for i in x.index for n in i.names()) | frozenset(x.valid.names())
    if isinstance(x, Value):
        return shared.union(*(i.names() for i in x.index))
    if isinstance(x, IndexValue):
        return frozenset(x.index.names())
    if isinstance(x, Inside):
        return frozenset(x.valid.names())
    return frozenset().union(*(known[id(a)] for a in _args(x)))


_RESULTS = 2
"""Rows of each query: scores and their exponentials."""


def expected_attentions(fusion: Fusion, target: Target) -> frozenset[int]:
    """The toggles that make attention of products whose scores the last cache does not hold; none
    for a device of work-items, whose matrix units multiply faster than their rows are folded.

        scores, softmax, product   -->   write S, read S, write P, read P: through memory
        attention                  -->   rows of a block of queries, in a core's own cache

    The arithmetic is the same, and both forms do it at about the same rate, so shorter ones are
    for a race of whole models to decide.
    """
    if target.has_work_items:
        return frozenset()
    found = fusion.drafts.attentions()
    return frozenset(i for i, (s, _) in found.items() if _too_many(s, target) and _fits(s, target))


def _too_many(scores: Node, target: Target) -> bool:
    """True if the last cache does not hold the scores. Scores in 16 bits are left alone: three
    kernels may multiply those in pairs or tiles.
    """
    nbytes = scores.size * scores.dtype.itemsize
    return not scores.dtype.is_half and nbytes > target.cached_bytes


def _fits(scores: Node, target: Target) -> bool:
    """True if the rows of a vector of queries fit half of a core's own cache."""
    keys = scores.shape[-1]
    return _RESULTS * keys * target.vector_bytes <= target.l2_bytes // 2
