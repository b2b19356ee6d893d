"""``checkpoint``: a part of a function whose results are computed again for its gradient.

    value    f(x)                                          as without
    again    f(apart(x))                                   equal nodes, which are other ones
    result   IDENTITY(as if), value, again                 its gradient is that of ``again``

The gradient's rules read the nodes of ``again``, so nothing of ``value`` but its results is kept
until then. ``again`` is a rewrite of the graph of ``value``: the function is called once, and its
random numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tunegrad.ir import graph
from tunegrad.ir.graph import Node
from tunegrad.trees import leaves, mapped

from ..handle import Handle
from ..nodes import substitute, tracing

__all__ = ["checkpoint"]


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``, whose inside is computed again where a gradient needs it, and
    is not kept in memory until then.

    The tensors among the arguments (in lists, tuples and dicts, too) and among the results are
    kept. The function is called once. A chain of n layers in sqrt(n) such parts needs 2 * sqrt(n)
    of their results at a time, for one forward pass more (Chen et al. 2016, "Training Deep Nets
    with Sublinear Memory Cost"). Where no gradient is asked for it is the call.
    """
    if not (tracing.tracing() or tracing.leaves()):
        return function(*args, **kwargs)
    marks: dict[Node, Node] = {}

    def marked(x: Any) -> Any:
        if not isinstance(x, Handle):
            return x
        mark = tracing.as_if(x.node, x.node)
        marks[mark] = x.node
        return x.of(mark, x.bindings)

    result = function(*mapped(list(args), marked), **mapped(kwargs, marked))
    nodes = tuple(x.node for x in leaves(result) if isinstance(x, Handle))
    values = substitute(nodes, marks)
    traced = tracing.tracing() or any(map(tracing.reaches, values))
    inner = {mark: graph.apart(x) if traced else x for mark, x in marks.items()}
    again = substitute(nodes, inner)
    made = iter(
        [v if v is a or not v.dtype.is_float else tracing.as_if(v, a)
         for v, a in zip(values, again, strict=True)]
    )  # fmt: skip
    return mapped(result, lambda x: x.of(next(made), x.bindings) if isinstance(x, Handle) else x)
