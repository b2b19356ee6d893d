"""``loss.backward()``: gradients of tensors that require them, added to their ``grad``.

There is no tape. A tensor that requires a gradient has an IDENTITY node with its ``Leaf``, so the
graph of a loss says where gradients arrive; the walk is that of ``tg.grad``.

    p.requires_grad_()         p: node LEAF(X)
    loss = ((p * a) ** 2).sum()
    loss.backward()            p.grad: what flows to LEAF(X)
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from tunegrad.errors import DTypeError, GradientError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.graph import GraphOp, Node

from ..aliasing import Aliased, computed, root_of, write, written
from ..handle import Bindings, Handle, bound, joined, lift, renew, required
from ..nodes import tracing
from ..nodes.elementwise import constant
from .reverse import gradients

__all__ = ["backward", "require", "required", "retain"]


def require(x: Handle, flag: bool) -> None:
    """Let gradients arrive at ``x``, or no longer.

    Raises DTypeError for integers, GradientError where the gradient of a result is no longer
    wanted.
    """
    if x.leaf is not None and x.leaf.required:
        if not flag:
            _drop(x)
        return
    if required(x):
        if not flag:
            raise GradientError(
                f"requires_grad_: {x.describe()} is made of tensors that require a gradient; "
                "detach() it"
            )
        return
    if not flag:
        return
    if not x.dtype.is_float:
        raise DTypeError(f"requires_grad_: {x.describe()}: gradients are of floats")
    if x.node.op is GraphOp.CONST:  # its value will change, and is no part of a kernel
        array: Any = x.node.arg
        renew(x, *bound(array.array, x.dtype))
    _mark(x, tracing.Leaf(required=True))


def retain(x: Handle) -> None:
    """Keep the gradient of a result, which is no leaf."""
    if x.leaf is not None:
        return
    if not required(x):
        raise GradientError(f"retain_grad: {x.describe()} has no gradient")
    _mark(x, tracing.Leaf(required=False))


def _mark(x: Handle, leaf: tracing.Leaf) -> None:
    if isinstance(x, Aliased):
        x.push(tracing.leaf, leaf)
    else:
        renew(x, tracing.leaf(x.node, leaf), x.bindings)
    x.leaf = leaf


def _drop(x: Handle) -> None:
    if isinstance(x, Aliased):
        inner = x.source
        assert isinstance(inner, Aliased)
        x.__init__(inner.source, *inner.step)  # type: ignore[misc]
    else:
        renew(x, x.node.srcs[0], x.bindings)
        x.leaf = None


def backward(
    x: Handle, gradient: Any = None, retain_graph: bool = False, create_graph: bool = False
) -> None:
    """Add the gradient of ``x`` to ``grad`` of each tensor that it is made of and that requires it.

    Where all inputs are known, it computes ``x``, these gradients, and what was written in place
    since, by one program. Raises GradientError for a tensor that has no gradient, ShapeError for
    one of several elements without a ``gradient``, or another shape of that.
    """
    if not required(x):
        raise GradientError(
            f"backward: {x.describe()} is made of no tensor that requires a gradient"
            " (or backward() was called before, without retain_graph)"
        )
    if gradient is None and x.node.size != 1:
        raise ShapeError(f"backward: {x.describe()} has several elements; give a gradient")
    given = Handle.plain(constant(1, x.shape, x.dtype)) if gradient is None else _given(x, gradient)
    found = _flowing(x, given, create_graph)
    changed: list[Handle] = []
    for leaf, slope in found.items():
        if leaf.gradient is None:
            leaf.gradient = slope
        else:
            total = leaf.gradient + slope
            write(leaf.gradient, total.node, total)
        changed.append(leaf.gradient)
    if tracing.tracing() or create_graph:
        return
    known = [*changed, *(w for w in written() if w.leaf is not None or not required(w))]
    _compute(root_of(x), known, retain_graph)


def _given(x: Handle, gradient: Any) -> Handle:
    given = lift(gradient, "backward")
    if given.shape != x.shape:
        raise ShapeError(f"backward: a gradient of shape {given.shape} for {x.describe()}")
    return given.cast(x.dtype)


def _flowing(x: Handle, given: Handle, create_graph: bool) -> dict[tracing.Leaf, Handle]:
    """Gradients by leaf; a tensor that was changed since has several nodes of one leaf."""
    nodes = _reached(x.node)
    bindings: list[Bindings] = []
    with nullcontext() if create_graph else tracing.untraced():
        flowing = gradients(x.node, given.node, nodes, bindings)
    arrived = [n for n, slope in zip(nodes, flowing, strict=True) if slope]
    slopes = tuple(slope for slope in flowing if slope)
    if not create_graph:
        slopes = tracing.without_identities(slopes)
    known = joined([x, given, *(Handle.plain(given.node, b) for b in bindings)])
    found: dict[tracing.Leaf, Handle] = {}
    for node, slope in zip(arrived, slopes, strict=True):
        leaf: Any = node.arg
        part = Handle.plain(slope, known)
        found[leaf] = found[leaf] + part if leaf in found else part
    return found


def _reached(x: Node) -> list[Node]:
    """Nodes of leaves that gradients of a node flow to, in the order of the graph."""
    stack, seen = [x], set[Node]()
    while stack:
        node = stack.pop()
        if node not in seen and tracing.reaches(node):
            seen.add(node)
            stack += tracing.flows_to(node)
    return [n for n in graph.topological((x,)) if n in seen and _is_leaf(n)]


def _is_leaf(n: Node) -> bool:
    return n.op is GraphOp.IDENTITY and isinstance(n.arg, tracing.Leaf)


def _compute(x: Handle, others: Sequence[Handle], retain_graph: bool) -> None:
    roots = list({id(r): r for r in (x, *map(root_of, others)) if not _has_inputs(r)}.values())
    if not roots or roots[0] is not x:  # a function is compiled
        return
    plain = tracing.without_identities(tuple(r.node for r in roots))
    known = joined(roots)
    # inference stands above the front end, and is the only place where the stages are composed
    inference = importlib.import_module("tunegrad.inference")
    arrays = inference.realize([Handle.plain(n, known) for n in plain])
    for root, array in zip(roots, arrays, strict=True):
        computed(root, array, flows=retain_graph or root is not x)


def _has_inputs(x: Handle) -> bool:
    """True if a tensor depends on inputs that have no value."""
    inputs = (n for n in graph.topological((x.node,)) if n.op is GraphOp.INPUT)
    return any(n.arg not in x.bindings for n in inputs)
