"""Rules of gradients that functions state themselves, in the place of those of what they are made
of.

    @custom_vjp(rule)
    def log1p(input): ...

    def rule(cotangent, result, input):         what flows to each argument
        return cotangent / (input + 1)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from tunegrad.errors import ModelError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.graph import Node

from .handle import Bindings, Handle, joined, lift
from .nodes import tracing

P = ParamSpec("P")
R = TypeVar("R", bound=Handle)


class OwnRule:
    """A call of a function with a rule of its own: its tensors are sources of an IDENTITY node."""

    __slots__ = ("args", "kwargs", "name", "rule")

    def __init__(
        self, rule: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self.rule, self.name = rule, name
        self.args = tuple(map(_as_it_is, args))
        self.kwargs = {k: _as_it_is(x) for k, x in kwargs.items()}

    def tensors(self) -> list[Handle]:
        """The tensors among its arguments, in order."""
        return [x for x in (*self.args, *self.kwargs.values()) if isinstance(x, Handle)]

    def applied(self, node: Node, cotangent: Node, bindings: list[Bindings]) -> list[Node | None]:
        """The gradient of each tensor, of its shape and dtype; ``bindings`` grow by those of what
        the rule brings along.

        Raises ShapeError for a rule that gives more than there are arguments, or other shapes.
        """
        sources = iter(node.srcs[1:])
        args = tuple(self._now(x, sources) for x in self.args)
        kwargs = {k: self._now(x, sources) for k, x in self.kwargs.items()}
        found = self.rule(Handle.of(cotangent), Handle.of(node), *args, **kwargs)
        given = list(found) if isinstance(found, tuple | list) else [found]
        every = (*args, *kwargs.values())
        if len(given) > len(every):
            raise ShapeError(
                f"grad: the rule of {self.name} gives {len(given)} gradients for {len(every)} "
                "arguments"
            )
        flows = list[Node | None]()
        for source, gradient in zip(every, given + [None] * (len(every) - len(given)), strict=True):
            if not isinstance(source, Handle):
                continue
            if gradient is None or not source.dtype.is_float:
                flows.append(None)
                continue
            lifted = lift(gradient, self.name)
            bindings.append(lifted.bindings)
            flows.append(graph.cast(_shrunk(self.name, lifted.node, source.shape), source.dtype))
        return flows

    def _now(self, x: Any, sources: Iterator[Node]) -> Any:
        return Handle.of(next(sources), x.bindings) if isinstance(x, Handle) else x


def _as_it_is(x: Any) -> Any:
    """A tensor as it is now: what is written to it later does not matter."""
    return Handle.plain(x.node, x.bindings) if isinstance(x, Handle) else x


def custom_vjp(rule: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator of a function that gives one tensor: its gradient is ``rule``'s.

    ``rule(cotangent, result, *args, **kwargs)`` takes the arguments of the call, and gives a
    gradient for each of them in order, or None; one alone needs no tuple, and those of numbers are
    dropped. Gradients of a broadcast shape are added up. For second derivatives the rule itself is
    differentiated.

    Where it is traced, the function raises ShapeError for a result that is not one tensor, and
    ModelError where it depends on an argument of ``grad`` that none of its own tensors depends on:
    by a list or a closure, whose gradient would be lost.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            if not tracing.tracing() and not _reaching(args, kwargs):
                return function(*args, **kwargs)
            with tracing.untraced():
                result = function(*args, **kwargs)
            own = OwnRule(rule, function.__name__, args, kwargs)
            if not isinstance(result, Handle):
                raise ShapeError(
                    f"custom_vjp: {own.name} gives {type(result).__name__}; it must give one tensor"
                )
            if not result.dtype.is_float:
                return result
            sources = own.tensors()
            nodes = [t.node for t in sources]
            reached = tracing.arguments_of([result.node], nodes)  # beside them, few as a rule
            if reached and reached - tracing.arguments_of(nodes):
                raise ModelError(
                    f"custom_vjp: {own.name} reads a tensor that is differentiated and is no "
                    "argument of its own; pass it as one, or detach() it before the call"
                )
            node = graph.identity(result.node, own, *(t.node for t in sources))
            return result.of(node, joined([result, *sources]))

        return wrapped

    return decorate


def _reaching(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if a gradient flows from one of these tensors to a leaf."""
    if not tracing.leaves():
        return False
    given = (x for x in (*args, *kwargs.values()) if isinstance(x, Handle))
    return any(tracing.marks(x.node) for x in given)


def _shrunk(name: str, x: Node, shape: tuple[int, ...]) -> Node:
    """A gradient added up over the dimensions that its source was repeated along."""
    if x.shape == shape:
        return x
    lead = len(x.shape) - len(shape)
    inner = x.shape[max(0, lead) :]
    if lead < 0 or any(b not in (a, 1) and a != 1 for a, b in zip(inner, shape, strict=True)):
        raise ShapeError(
            f"grad: the rule of {name} gives shape {x.shape} for a tensor of shape {shape}"
        )
    handle = Handle.of(x)
    axes = [*range(lead), *(lead + d for d, (a, b) in enumerate(zip(inner, shape, strict=True))
                            if b == 1 and a != 1)]  # fmt: skip
    found = handle.sum(axes, True) if axes else handle
    return graph.expand(graph.reshape(found.node, found.shape[lead:]), shape)
