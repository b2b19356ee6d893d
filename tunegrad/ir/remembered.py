"""Functions of a kernel that are asked for the same kernels again and again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Concatenate, ParamSpec, TypeVar

from tunegrad.forks import ForkSafeLock
from tunegrad.ir.kernel import Kernel

__all__ = ["remembered"]

P = ParamSpec("P")
T = TypeVar("T")


def remembered(
    most: int,
) -> Callable[[Callable[Concatenate[Kernel, P], T]], Callable[Concatenate[Kernel, P], T]]:
    """Decorates a function of a kernel, and of hashable arguments, to keep the ``most`` values that
    were last found.

    Kernels are told apart by their text and fixed actions: a text is hashed once, a kernel each
    time it is looked up. Several threads may ask at once.
    """

    def decorate(f: Callable[Concatenate[Kernel, P], T]) -> Callable[Concatenate[Kernel, P], T]:
        known: dict[Hashable, T] = {}
        lock = ForkSafeLock()

        @functools.wraps(f)
        def looked_up(kernel: Kernel, /, *args: P.args, **kwargs: P.kwargs) -> T:
            key = kernel.text, kernel.fixed, args, tuple(kwargs.items())
            with lock:
                if key in known:
                    return known[key]
            value = f(kernel, *args, **kwargs)
            with lock:
                if len(known) >= most:
                    known.pop(next(iter(known)))
                known[key] = value
            return value

        return looked_up

    return decorate
