"""Operations on graph nodes: arithmetic, movement, folds, scans, sorting, indexing; arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tunegrad.ir import graph
from tunegrad.ir.graph import Node

from . import arrays, elementwise, folds, movement

__all__ = ["arrays", "elementwise", "folds", "movement", "rewritten", "substitute"]


def substitute(outputs: tuple[Node, ...], replaced: Mapping[Node, Node]) -> tuple[Node, ...]:
    """``outputs`` with every node in ``replaced`` exchanged for its like-typed partner."""
    return rewritten(outputs, lambda node, _: replaced.get(node))


def rewritten(
    outputs: tuple[Node, ...], change: Callable[[Node, tuple[Node, ...]], Node | None]
) -> tuple[Node, ...]:
    """``outputs`` with every node exchanged for ``change(node, its new sources)``, of the same
    shape and dtype; None stands for the node with these sources.
    """
    done: dict[Node, Node] = {}
    for node in graph.topological(outputs):
        srcs = tuple(map(done.__getitem__, node.srcs))
        done[node] = change(node, srcs) or graph.with_sources(node, srcs)
    return tuple(done[o] for o in outputs)
