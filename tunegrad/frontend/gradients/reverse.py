"""Reverse mode over a graph: from the cotangent of its output to those of some of its nodes."""

from __future__ import annotations

from collections.abc import Sequence

from tunegrad.ir import graph
from tunegrad.ir.graph import MOVEMENT, GraphOp, Node

from ..handle import Bindings
from ..nodes.elementwise import constant
from ..nodes.tracing import AS_IF, Argument, flows_to
from ..vjp import OwnRule
from .cotangent import Cotangent, added, apart
from .rules import flow


def gradients(
    output: Node, cotangent: Node, wrt: Sequence[Node], bindings: list[Bindings]
) -> list[Node | None]:
    """The cotangent of each node of ``wrt``, given that of the output: zeros behind steps, None
    of what the output is not made of, or what no rule gives a gradient.

    ``bindings`` grow by those of arrays that rules bring along. Raises DTypeError for an operation
    on the way that has no gradient.
    """
    order = graph.topological((output,))
    wanted, reached = set(wrt), set[Node]()
    for n in order:
        if n in wanted or (n.dtype.is_float and any(s in reached for s in flows_to(n))):
            reached.add(n)
    flowing = {output: [Cotangent.of(cotangent)]} if output in reached else {}
    found, level = dict[Node, Cotangent](), set[Node]()
    for n in reversed(order):
        arrived = flowing.pop(n, None)
        if arrived is None:
            level.update(s for s in flows_to(n) if n in level and s in reached)
            continue
        parts = apart(arrived) if n.op in MOVEMENT and n not in wanted else [added(arrived)]
        if n in wanted:
            (found[n],) = parts
        if sum(s in reached for s in flows_to(n)) > 1:  # each would add it up in its own form
            parts = [g.added_up() for g in parts]
        for g in parts:
            for source, part in _flows(n, g, bindings):
                if part is not None and source in reached:
                    flowing.setdefault(source, []).append(part)
                elif source in reached and not isinstance(n.arg, OwnRule):
                    level.add(source)
    zeros = {n: constant(0, n.shape, n.dtype) for n in wrt if n in level}
    return [found[n].node() if n in found else zeros.get(n) for n in wrt]


def _flows(n: Node, g: Cotangent, bindings: list[Bindings]) -> list[tuple[Node, Cotangent | None]]:
    """The cotangents that flow from a node to each of its sources."""
    if not n.srcs:
        return []
    if n.op is not GraphOp.IDENTITY:
        return list(zip(n.srcs, flow(n, g), strict=True))
    if isinstance(n.arg, OwnRule):
        made = n.arg.applied(n, g.node(), bindings)
        parts = (None if m is None else Cotangent.of(m) for m in made)
        return list(zip(n.srcs[1:], parts, strict=True))
    if n.arg == AS_IF:
        return [(n.srcs[1], g)]
    return [(n.srcs[0], g)] if isinstance(n.arg, Argument) else []
