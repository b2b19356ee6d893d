"""``grad`` and ``value_and_grad``: functions of tensors that give derivatives of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tunegrad import trees
from tunegrad.errors import ConfigError, DTypeError, ShapeError

from ..handle import Bindings, Handle, joined, lift
from ..nodes import tracing
from ..nodes.elementwise import constant
from .reverse import gradients

__all__ = ["grad", "value_and_grad", "vjp"]


Names = Collection[str] | Callable[[str], bool]


def grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    wrt: Names | None = None,
) -> Callable[..., Any]:
    """A function of the same arguments that gives the gradient of ``function``, which gives a float
    of shape ().

    ``argnums``: the arguments that are differentiated: tensors or arrays of floats, or lists,
    tuples and dicts of them. The gradient of each has its structure, shapes and dtypes; several
    give a tuple. ``has_aux``: the function gives a pair, and the second part comes beside the
    gradient, as it is. ``wrt``: of the arguments that are differentiated, which are dicts then, the
    entries of these names, or of those that a function is true of. The gradient has these alone,
    and the others, which may be of any dtype, are constants.

    Raises DTypeError for an argument that is no float or an operation that has no gradient,
    ShapeError for a result that is no float of shape () and for an argument that is named twice,
    ConfigError for ``wrt`` with an argument that is no dict, and for a name that is not in one.
    """
    both = value_and_grad(function, argnums, has_aux, wrt)

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
) -> Callable[..., Any]:
    """As ``grad``, but the value comes first: ``value, gradient``, or ``(value, aux), gradient``.

    Inside ``tg.compile`` value and gradient are one program.
    """
    many = not isinstance(argnums, int)
    picked = tuple(argnums) if isinstance(argnums, Sequence) else (argnums,)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        marked = list(args)
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
                marked[at] = made if wrt is None else {**args[at], **made}
            result = function(*marked, **kwargs)
        value, aux = _parts(result, has_aux)
        bindings: list[Bindings] = []
        one = constant(1, (), value.dtype)
        found = gradients((value.node,), (one,), [leaf.node for leaf in leaves], bindings)
        known = joined([value, *leaves, *(Handle.of(one, b) for b in bindings)])
        results = iter([Handle.of(n, known) for n in found])
        shaped = tuple(trees.mapped(tree, lambda _: next(results)) for tree in chosen)
        gradient = shaped if many else shaped[0]
        outcome = ((value, aux) if has_aux else value), gradient
        if tracing.stops():  # the function was traced without
            outcome = trees.mapped(outcome, _made_again)
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
    found = gradients((result.node,), (given.node,), [leaf.node for leaf in leaves], bindings)
    known = joined([given, result, *leaves, *(Handle.of(result.node, b) for b in bindings)])
    made: tuple[Handle, ...] = tuple(Handle.of(n, known) for n in found)
    return made if tracing.tracing() else _unmarked(made)


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


def _parts(result: Any, has_aux: bool) -> tuple[Handle, Any]:
    value, aux = result if has_aux else (result, None)
    if not isinstance(value, Handle) or value.shape or not value.dtype.is_float:
        said = value.describe() if isinstance(value, Handle) else type(value).__name__
        raise ShapeError(f"grad: the function gives {said}; it must give a float of shape ()")
    return value, aux


def _made_again(x: Any) -> Any:
    return Handle.of(x.node, x.bindings) if isinstance(x, Handle) else x


def _unmarked(tree: Any) -> Any:
    """All tensors of a result without the marks of tracing, in one rewrite."""
    marked = tuple(x.node for x in trees.leaves(tree) if isinstance(x, Handle))
    nodes = iter(tracing.without_identities(marked))
    return trees.mapped(
        tree, lambda x: Handle.of(next(nodes), x.bindings) if isinstance(x, Handle) else x
    )
