"""Operations made of functions of handles: one object that is a function of tensors, arrays
and numbers, and, in the body of ``Tensor``, a method.

    @operation
    def softplus(input: Handle, beta: float = 1.0) -> Handle: ...

    softplus(x)    softplus([1.0, 2.0])    softplus(input=x)        a function
    x.softplus()                                                   softplus = activation.softplus
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

from .aliasing import update
from .handle import Handle, TensorLike, beside, lift, repeated
from .spelling import spelled

if TYPE_CHECKING:
    from .tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Handle)
F = TypeVar("F", bound=Callable[..., Any])


class Operation(Protocol[P]):
    """An operation that gives one tensor: of a handle the same kind, of anything else a Tensor."""

    @overload  # of a handle it is this one; all others become tensors
    def __call__(  # type: ignore[overload-overlap]
        self, input: T, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @overload
    def __call__(self, input: TensorLike, *args: P.args, **kwargs: P.kwargs) -> Tensor: ...

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: T, owner: type) -> Callable[P, T]: ...


@overload
def operation(function: Callable[Concatenate[Handle, P], Handle]) -> Operation[P]: ...


@overload
def operation(function: F) -> F: ...


def operation(function: Callable[..., Any]) -> Any:
    """``function`` of a handle as an operation: it takes keyword arguments in either spelling, and
    an array or number in the place of its first operand. Its result is no view: a write to it
    leaves the operand as it is. A method becomes a function of the module ``functions``, where
    pickle finds it, and its first operand is ``input`` there.
    """
    return _as_operation(function, views=False)


@overload
def viewing(function: Callable[Concatenate[Handle, P], Handle]) -> Operation[P]: ...


@overload
def viewing(function: F) -> F: ...


def viewing(function: Callable[..., Any]) -> Any:
    """As ``operation``, of a function whose result may be a view of its operand."""
    return _as_operation(function, views=True)


def _as_operation(function: Callable[..., Any], views: bool) -> Any:
    taken, name = spelled(function), function.__name__

    @functools.wraps(function)
    def fresh(input: Handle, *args: Any, **kwargs: Any) -> Any:
        found = taken(input, *args, **kwargs)
        if not (found is input or type(found) is Handle.viewed):
            return found
        return Handle.plain(found.node, found.bindings)

    run = taken if views else repeated(fresh)

    @functools.wraps(function)
    def called(input: TensorLike, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, Handle):
            number = isinstance(input, bool | int | float) and args and isinstance(args[0], Handle)
            input = beside(args[0], input, name) if number else lift(input, name)
        return run(input, *args, **kwargs)

    if function.__qualname__ != name:
        method = inspect.signature(function)
        first, *rest = method.parameters.values()
        stated = method.replace(parameters=[first.replace(name="input"), *rest])
        called.__module__, called.__qualname__ = f"{__package__}.functions", name
        called.__signature__ = stated  # type: ignore[attr-defined]  # what inspect and help read
    return called


def named(function: Callable[..., Any], name: str, says: str, *fixed: object) -> Any:
    """``function`` as an operation of another name; ``fixed`` are its arguments after the first."""

    @functools.wraps(function)
    def called(input: Handle, *args: Any, **kwargs: Any) -> Any:
        return function(input, *fixed, *args, **kwargs)

    signature = inspect.signature(function)
    first, *rest = signature.parameters.values()
    stated = signature.replace(parameters=[first.replace(name="input"), *rest[len(fixed) :]])
    called.__signature__ = stated  # type: ignore[attr-defined]  # what inspect and help read
    called.__name__ = called.__qualname__ = name
    called.__doc__ = says
    return operation(called)


def in_place(function: Callable[Concatenate[Handle, P], Handle]) -> Operation[P]:
    """An operation as a method ``name_`` that writes its result to the tensor, and gives that.

    It raises ShapeError for a result of another shape, DTypeError for one that the tensor's dtype
    can not keep, GradientError for a tensor that requires a gradient outside ``no_grad``.
    """
    if isinstance(function, Deferred):
        return Deferred(function.family, function.name, in_place)
    name = f"{function.__name__}_"

    @functools.wraps(function)
    def called(self: Handle, *args: P.args, **kwargs: P.kwargs) -> Handle:
        update(self, name, function(self, *args, **kwargs))
        return self

    called.__module__, called.__name__, called.__qualname__ = __name__, name, f"Tensor.{name}"
    called.__doc__ = f"``{function.__name__}``, written to the tensor itself."
    return called  # type: ignore[return-value]  # a function is its own descriptor


class Deferred:
    """An operation in a class body whose family is imported when it is asked for; then the
    operation stands in the class in its place.
    """

    __slots__ = ("family", "made_by", "name", "places")

    def __init__(self, family: str, name: str, made_by: Callable[[Any], Any] | None = None) -> None:
        self.family, self.name, self.made_by = family, name, made_by
        self.places: list[tuple[type, str]] = []

    def __set_name__(self, owner: type, name: str) -> None:
        self.places.append((owner, name))

    def __get__(self, instance: object, owner: type) -> Any:
        operation = getattr(import_module(self.family), self.name)
        if self.made_by is not None:
            operation = self.made_by(operation)
        for holder, name in self.places:
            setattr(holder, name, operation)
        return operation.__get__(instance, owner)


class Family:
    """A module of operations, each of which is a ``Deferred`` one."""

    __slots__ = ("_module",)

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Deferred:
        return Deferred(self._module, name)


def of_ranks(
    name: str, function: Callable[Concatenate[Handle, int, P], Handle], *says: str
) -> tuple[Operation[P], ...]:
    """``name1d``, ``name2d`` and so on of a function that takes the number of spatial dimensions;
    ``says`` are the docstrings, the function's own stands below each.
    """
    shared = inspect.getdoc(function) or ""
    return tuple(
        named(function, f"{name}{rank}d", f"{said}\n\n{shared}", rank)
        for rank, said in enumerate(says, 1)
    )


def floating(function: Callable[P, R]) -> Callable[P, R]:
    """A function of floats: 16-bit ones are computed in f32 and rounded once, integers are f32."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        first: Any = args[0]
        if first.dtype.compute == first.dtype and first.dtype.is_float:
            return function(*args, **kwargs)
        widened: Any = (first._wide(), *args[1:])
        found: Any = function(*widened, **kwargs)
        return found._as(first.float_type)  # type: ignore[no-any-return]

    return wrapped


def along(function: Callable[P, R]) -> Callable[P, R]:
    """A function along one dimension, of which a scalar is a row of one element (0 and -1)."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        first: Any = args[0]
        if first.shape:
            return function(*args, **kwargs)
        row: Any = (first.reshape(1), *args[1:])
        found: Any = function(*row, **kwargs)
        if isinstance(found, Handle):
            return found.reshape(())  # type: ignore[return-value]  # R is a Handle
        parts: Any = (t.reshape(()) for t in found)
        return type(found)(*parts)  # type: ignore[no-any-return]

    return wrapped
