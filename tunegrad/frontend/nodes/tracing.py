"""IDENTITY nodes, which say where gradients go, and the state in which they are made.

While a function is traced for its gradient, what it makes carries these nodes, and so does all that
is made of a tensor that requires a gradient. A rewrite removes them from all that comes out or is
computed, so no plan, hash or interpreter of kernels sees one.

    IDENTITY(Argument())       an argument that is differentiated: the end of every walk
    IDENTITY(Leaf())           a tensor that requires a gradient
    IDENTITY(STOP)             nothing flows
    IDENTITY(AS_IF), v, w      the value v; the gradient of w, which is equal to v
    IDENTITY(rule), v, x...    the value v; the gradient that a rule gives to x...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from tunegrad.ir import graph
from tunegrad.ir.graph import GraphOp, Node, rewritten

STOP = "stop"
AS_IF = "as if"

_depth: ContextVar[int] = ContextVar("depth", default=0)
_stops: ContextVar[bool] = ContextVar("stops", default=False)
CONDITION: ContextVar[Node | None] = ContextVar("condition", default=None)
"""The condition under which indices are held to be in range; see ``indexing.only_where``."""

_BUILT: ContextVar[str] = ContextVar("model under construction", default="")
"""The name of the model whose graph is being built."""


@contextmanager
def no_draws(model: str) -> Iterator[None]:
    """Refuse draws while the function of a model builds its graph."""
    token = _BUILT.set(model)
    try:
        yield
    finally:
        _BUILT.reset(token)


def built_model() -> str:
    """The name of the model whose graph is being built; empty where there is none."""
    return _BUILT.get()


class Argument:
    """One argument of one call; no two are equal."""

    __slots__ = ()


class Leaf(Argument):
    """The place at which the gradient of one tensor arrives: of one that requires it, or, where it
    is made of such tensors, of one that retains it.
    """

    __slots__ = ("gradient", "required")

    def __init__(self, required: bool) -> None:
        self.gradient: Any = None
        self.required = required
        _leaves[0] = True


_leaves = [False]
"""True once a tensor of this process requires a gradient."""
_reaching: WeakKeyDictionary[Node, bool] = WeakKeyDictionary()


def tracing() -> bool:
    """True while a function is traced for its gradient."""
    return _depth.get() > 0


def marks(x: Node) -> bool:
    """True where what is made of ``x`` is marked: a function is traced, or ``x`` reaches a leaf."""
    depth = _depth.get()
    return depth > 0 or (_leaves[0] and depth == 0 and reaches(x))


def leaves() -> bool:
    """True where what is made of tensors that require a gradient is marked."""
    return _leaves[0] and _depth.get() == 0


def recording() -> bool:
    """True outside ``no_grad``."""
    return not _stops.get()


def stops() -> bool:
    """True inside ``no_grad``, where a function is traced or there are leaves."""
    return _stops.get() and (_leaves[0] or tracing())


def flows_to(n: Node) -> tuple[Node, ...]:
    """The sources that its gradient flows to."""
    if n.op is not GraphOp.IDENTITY:
        return n.srcs
    if n.arg == STOP:
        return ()
    return n.srcs if isinstance(n.arg, Argument) else n.srcs[1:]


def reaches(x: Node) -> bool:
    """True if a gradient of ``x`` reaches a leaf or an argument. Each node is looked at once."""
    found = _reaching.get(x)
    if found is not None:
        return found
    stack = [x]
    while stack:
        node = stack[-1]
        if not node.dtype.is_float:
            _reaching[node] = False
        elif node.op is GraphOp.IDENTITY and isinstance(node.arg, Argument):
            _reaching[node] = True
        else:
            srcs = flows_to(node)
            if missing := [s for s in srcs if s not in _reaching]:
                stack += missing
                continue
            _reaching[node] = any(_reaching[s] for s in srcs)
        stack.pop()
    return _reaching[x]


@contextmanager
def traced() -> Iterator[None]:
    """One more function is traced inside."""
    token = _depth.set(max(_depth.get(), 0) + 1)
    stop = _stops.set(False)
    try:
        yield
    finally:
        _stops.reset(stop)
        _depth.reset(token)


@contextmanager
def untraced() -> Iterator[None]:
    """Nothing that is made inside is marked: a rule stands for all of it."""
    token = _depth.set(-1)
    try:
        yield
    finally:
        _depth.reset(token)


@contextmanager
def apart() -> Iterator[None]:
    """What is made inside depends on its operands alone: on no condition and no function that is
    traced around the place where it is asked for.
    """
    token, stop, condition = _depth.set(0), _stops.set(False), CONDITION.set(None)
    try:
        yield
    finally:
        CONDITION.reset(condition)
        _stops.reset(stop)
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


def leaf(x: Node, to: Leaf) -> Node:
    """``x``, whose gradient arrives at a leaf."""
    return graph.identity(x, to)


def stopped(x: Node) -> Node:
    """``x`` as a constant."""
    return graph.identity(x, STOP) if x.dtype.is_float and marks(x) else x


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
