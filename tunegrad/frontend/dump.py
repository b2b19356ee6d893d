"""A graph to look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from tunegrad.errors import ConfigError
from tunegrad.ir.text.print_graph import print_dot, print_graph

from .tensor import Tensor

__all__ = ["GraphForm", "dump"]

GraphForm = Literal["text", "dot"]


def dump(graph: Tensor | Sequence[Tensor], form: GraphForm = "text") -> str:
    """The graph that tensors are computed by: a line per node, or for Graphviz's ``dot``.

    Nothing is computed. Raises ConfigError for another form.
    """
    outputs = (graph,) if isinstance(graph, Tensor) else tuple(graph)
    if form not in get_args(GraphForm):
        raise ConfigError(f"dump: form {form!r} is not one of {', '.join(get_args(GraphForm))}")
    nodes = tuple(t.node for t in outputs)
    return print_graph(nodes) if form == "text" else print_dot(nodes)
