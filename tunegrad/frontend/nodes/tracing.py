"""IDENTITY nodes, which say where gradients go, and the state in which they are made.

While a function is traced for its gradient, what it makes carries these nodes. A rewrite removes
them from all that comes out, so no plan, hash or interpreter of kernels sees one.

    IDENTITY(Argument())       an argument that is differentiated: the end of every walk
    IDENTITY(STOP)             nothing flows
    IDENTITY(AS_IF), v, w      the value v; the gradient of w, which is equal to v
    IDENTITY(rule), v, x...    the value v; the gradient that a rule gives to x...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tunegrad.ir import graph
from tunegrad.ir.graph import GraphOp, Node

from . import rewritten

__all__ = [
    "AS_IF", "STOP", "Argument", "argument", "arguments_of", "as_if", "no_grad",
    "stopped", "stops", "traced", "tracing", "untraced", "without_identities",
]  # fmt: skip

STOP = "stop"
AS_IF = "as if"

_depth: ContextVar[int] = ContextVar("depth", default=0)
_stops: ContextVar[bool] = ContextVar("stops", default=False)


class Argument:
    """One argument of one call; no two are equal."""

    __slots__ = ()


def tracing() -> bool:
    """True while a function is traced for its gradient."""
    return _depth.get() > 0


def stops() -> bool:
    """True where a function is traced, inside ``no_grad``."""
    return _stops.get() and tracing()


@contextmanager
def traced() -> Iterator[None]:
    """One more function is traced inside."""
    token = _depth.set(_depth.get() + 1)
    stop = _stops.set(False)
    try:
        yield
    finally:
        _stops.reset(stop)
        _depth.reset(token)


@contextmanager
def untraced() -> Iterator[None]:
    """Nothing that is made inside is marked: a rule stands for all of it."""
    token = _depth.set(0)
    try:
        yield
    finally:
        _depth.reset(token)


@contextmanager
def no_grad() -> Iterator[None]:
    """No gradient flows through what is made inside: each result counts as a constant."""
    token = _stops.set(True)
    try:
        yield
    finally:
        _stops.reset(token)


def argument(x: Node) -> Node:
    """``x`` as an argument that is differentiated."""
    return graph.identity(x, Argument())


def stopped(x: Node) -> Node:
    """``x`` as a constant."""
    return graph.identity(x, STOP) if x.dtype.is_float else x


def as_if(value: Node, other: Node) -> Node:
    """``value`` with the gradient of ``other``, of the same shape and dtype."""
    return graph.identity(value, AS_IF, other)


def arguments_of(nodes: Iterable[Node], known: Iterable[Node] = ()) -> set[Node]:
    """The arguments that are differentiated which a walk from ``nodes`` reaches first; STOP and
    ``known`` nodes end it.
    """
    stack, seen, found = list(nodes), set(known), set[Node]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op is GraphOp.IDENTITY:
            if isinstance(node.arg, Argument):
                found.add(node)
                continue
            if node.arg == STOP:
                continue
        stack += node.srcs
    return found


def without_identities(outputs: tuple[Node, ...]) -> tuple[Node, ...]:
    """IDENTITY(x, ...) -> x, everywhere."""
    return rewritten(outputs, lambda n, srcs: srcs[0] if n.op is GraphOp.IDENTITY else None)
