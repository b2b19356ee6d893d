"""``grad`` and ``value_and_grad``: functions of tensors that give derivatives of functions; and
``checkpoint``: a part of a function whose results are computed again for its gradient.

    value    f(x)                                          as without
    again    f(apart(x))                                   equal nodes, which are other ones
    result   IDENTITY(as if), value, again                 its gradient is that of ``again``

The gradient's rules read the nodes of ``again``, so nothing of ``value`` but its results is kept
until then. ``again`` is a rewrite of the graph of ``value``: the function is called once, and its
random numbers are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tunegrad import trees
from tunegrad.errors import ConfigError, DTypeError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.graph import Node

from ..handle import Bindings, Handle, joined
from ..nodes import substitute, tracing
from ..nodes.elementwise import constant
from ..tensor import lift
from .reverse import gradients

__all__ = ["checkpoint", "grad", "value_and_grad", "vjp"]


Names = Collection[str] | Callable[[str], bool]


def grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    wrt: Names | None = None,
    allow_unused: bool = False,
) -> Callable[..., Any]:
    """A function of the same arguments that gives the gradient of ``function``, which gives a float
    of shape ().

    ``argnums``: the arguments that are differentiated: tensors or arrays of floats, or lists,
    tuples and dicts of them. The gradient of each has its structure, shapes and dtypes; several
    give a tuple. ``has_aux``: the function gives a pair, and the second part comes beside the
    gradient, as it is. ``wrt``: of the arguments that are differentiated, which are dicts then, the
    entries of these names, or of those that a function is true of. The gradient has these alone,
    and the others, which may be of any dtype, are constants. ``allow_unused``: None, not zeros, for
    what the result is not made of.

    Raises DTypeError for an argument that is no float or an operation that has no gradient,
    ShapeError for a result that is no float of shape () and for an argument that is named twice,
    ConfigError for ``wrt`` with an argument that is no dict, and for a name that is not in one.
    """
    both = value_and_grad(function, argnums, has_aux, wrt, allow_unused)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def value_and_grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    wrt: Names | None = None,
    allow_unused: bool = False,
) -> Callable[..., Any]:
    """As ``grad``, but the value comes first: ``value, gradient``, or ``(value, aux), gradient``.

    Inside ``tg.compile`` value and gradient are one program.
    """
    many = not isinstance(argnums, int)
    picked = tuple(argnums) if isinstance(argnums, Sequence) else (argnums,)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        marked = [_tensors(x) for x in args]
        kwargs = {name: _tensors(x) for name, x in kwargs.items()}
        for at in picked:
            if not -len(args) <= at < len(args):
                raise ShapeError(f"grad: argnums {at} of {len(args)} arguments")
        if len({at % len(args) for at in picked}) < len(picked):
            raise ShapeError(f"grad: argnums {picked} name an argument twice")
        chosen = [args[at] if wrt is None else _chosen(at, args[at], wrt) for at in picked]
        leaves: list[Handle] = []
        with tracing.traced():
            for at, tree in zip(picked, chosen, strict=True):
                made = trees.mapped(tree, functools.partial(_marked, at, leaves))
                marked[at] = made if wrt is None else {**marked[at], **made}
            result = function(*marked, **kwargs)
        value, aux = _parts(result, has_aux)
        bindings: list[Bindings] = []
        one = constant(1, (), value.dtype)
        found = gradients(value.node, one, [leaf.node for leaf in leaves], bindings)
        known = joined([value, *leaves, *(Handle.of(one, b) for b in bindings)])
        kept = found if allow_unused else _filled(found, leaves)
        results = iter([n if n is None else Handle.of(n, known) for n in kept])
        shaped = tuple(trees.mapped(tree, lambda _: next(results)) for tree in chosen)
        gradient = shaped if many else shaped[0]
        outcome = ((value, aux) if has_aux else value), gradient
        if tracing.stops():  # the function was traced without
            outcome = trees.mapped(
                outcome, lambda x: Handle.of(x.node, x.bindings) if isinstance(x, Handle) else x
            )
        return outcome if tracing.tracing() else _unmarked(outcome)

    return wrapped


def vjp(function: Callable[..., Any], cotangent: Handle, *args: Handle) -> tuple[Handle, ...]:
    """Cotangents of the arguments, tensors of floats, where ``cotangent`` is that of the one tensor
    that ``function`` gives.

    ``cotangent`` has the shape of that tensor; raises DTypeError as ``grad``.
    """
    leaves: list[Handle] = []
    with tracing.traced():
        result = function(*(_marked(at, leaves, x) for at, x in enumerate(args)))
    given = cotangent.cast(result.dtype)
    bindings: list[Bindings] = []
    found = gradients(result.node, given.node, [leaf.node for leaf in leaves], bindings)
    known = joined([given, result, *leaves, *(Handle.of(result.node, b) for b in bindings)])
    made: tuple[Handle, ...] = tuple(Handle.of(n, known) for n in _filled(found, leaves))
    return made if tracing.tracing() else _unmarked(made)


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

    result = function(*trees.mapped(list(args), marked), **trees.mapped(kwargs, marked))
    nodes = tuple(x.node for x in trees.leaves(result) if isinstance(x, Handle))
    values = substitute(nodes, marks)
    traced = tracing.tracing() or any(map(tracing.reaches, values))
    inner = {mark: graph.apart(x) if traced else x for mark, x in marks.items()}
    again = substitute(nodes, inner)
    made = iter(
        [v if v is a or not v.dtype.is_float else tracing.as_if(v, a)
         for v, a in zip(values, again, strict=True)]
    )  # fmt: skip
    return trees.mapped(
        result, lambda x: x.of(next(made), x.bindings) if isinstance(x, Handle) else x
    )


def _chosen(at: int, named: Any, wrt: Names) -> dict[str, Any]:
    """The entries of a dict that ``wrt`` names."""
    if not isinstance(named, Mapping):
        raise ConfigError(
            f"grad: wrt names entries of a dict, and argument {at} is {type(named).__name__}"
        )
    if callable(wrt):
        return {name: value for name, value in named.items() if wrt(name)}
    names = [wrt] if isinstance(wrt, str) else list(wrt)
    if unknown := [name for name in names if name not in named]:
        raise ConfigError(
            f"grad: wrt names {unknown[0]!r}; argument {at} has {', '.join(map(str, named))}"
        )
    return {name: value for name, value in named.items() if name in names}


def _marked(at: int, leaves: list[Handle], x: Any) -> Handle:
    leaf = lift(x, "grad")
    if not leaf.dtype.is_float:
        raise DTypeError(
            f"grad: argument {at} is {leaf.dtype}{list(leaf.shape)}; derivatives are with respect "
            "to floats"
        )
    leaves.append(Handle.of(tracing.argument(leaf.node), leaf.bindings))
    return leaves[-1]


def _tensors(tree: Any) -> Any:
    """Arrays of a tree as tensors, whose methods functions use; the tree itself where there are
    none. A mask stays an array: what it chooses has a shape that is known.
    """

    def numbers(x: Any) -> bool:
        return isinstance(x, np.ndarray) and x.dtype.kind in "iuf" and x.dtype.itemsize <= 8

    if not any(map(numbers, trees.leaves(tree))):
        return tree
    return trees.mapped(tree, lambda x: lift(x, "grad") if numbers(x) else x)


def _filled(found: Sequence[Node | None], leaves: Sequence[Handle]) -> list[Node]:
    """Zeros where nothing flows."""
    pairs = zip(found, leaves, strict=True)
    return [constant(0, x.shape, x.dtype) if n is None else n for n, x in pairs]


def _parts(result: Any, has_aux: bool) -> tuple[Handle, Any]:
    value, aux = result if has_aux else (result, None)
    if not isinstance(value, Handle) or value.shape or not value.dtype.is_float:
        said = value.describe() if isinstance(value, Handle) else type(value).__name__
        raise ShapeError(f"grad: the function gives {said}; it must give a float of shape ()")
    return value, aux


def _unmarked(tree: Any) -> Any:
    """All tensors of a result without the marks of tracing, in one rewrite."""
    marked = tuple(x.node for x in trees.leaves(tree) if isinstance(x, Handle))
    nodes = iter(tracing.without_identities(marked))
    return trees.mapped(
        tree, lambda x: Handle.of(next(nodes), x.bindings) if isinstance(x, Handle) else x
    )
