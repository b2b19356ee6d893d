"""Gradients compared with central differences, computed by the graph interpreter in f64."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tunegrad as tg
from tunegrad.frontend import joined
from tunegrad.ir.interpret.evaluate import evaluate

__all__ = ["checked", "differences", "drawn", "values", "weighted", "weights"]

Array = NDArray[np.float64]
STEP = 1e-5


def values(tensors: Sequence[tg.Tensor]) -> list[Array]:
    """Of tensors, by the interpreter."""
    return [np.asarray(v) for v in evaluate(tuple(t.node for t in tensors), joined(tensors))]


def drawn(shapes: Sequence[tuple[int, ...]], name: str = "") -> list[Array]:
    """Numbers for each shape, the same for the same name, no two of them nearly equal."""
    rng = np.random.default_rng(zlib.crc32(repr((name, shapes)).encode()))
    count = sum(int(np.prod(s)) for s in shapes)
    spread = (rng.permutation(count) + 0.5) / max(1, count) * 3 - 1.5
    found, at = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        found.append((spread[at : at + size] + rng.uniform(-0.01, 0.01, size)).reshape(shape))
        at += size
    return found


def weights(shape: tuple[int, ...]) -> Array:
    """A number for each element of a result, no two alike."""
    return np.asarray(np.cos(np.arange(np.prod(shape)) * 1.7 + 0.3).reshape(shape) + 0.2)


def weighted(function: Callable[..., Any]) -> Callable[..., tg.Tensor]:
    """A function's results as one number: each element counts differently."""

    def number(*args: tg.Tensor) -> tg.Tensor:
        y = function(*args)
        return (y * tg.Tensor(weights(y.shape)).cast(y.dtype)).sum()

    return number


def differences(function: Callable[..., tg.Tensor], args: Sequence[Array]) -> list[Array]:
    """Central differences of a function that gives a number, for each argument."""
    tensors = [tg.Tensor(a) for a in args]
    number = function(*tensors)
    names, nodes = [str(t.node.arg) for t in tensors], (number.node,)
    found = []
    for name, given in zip(names, args, strict=True):
        slope = np.zeros(given.shape)
        for place in np.ndindex(*given.shape):
            ends = []
            for step in (STEP, -STEP):
                moved = given.copy()
                moved[place] += step
                ends.append(float(evaluate(nodes, {**number.bindings, name: moved})[0]))
            slope[place] = (ends[0] - ends[1]) / (2 * STEP)
        found.append(slope)
    return found


def checked(
    function: Callable[..., Any], shapes: Sequence[tuple[int, ...]], second: bool = False,
    args: Sequence[Array] | None = None, near: float = 2e-7,
) -> None:  # fmt: skip
    """Assert that gradients of a function's weighted results are its differences; ``second``:
    those of the gradients', too.
    """
    given = drawn(shapes) if args is None else list(args)
    number = weighted(function)
    every = tuple(range(len(given)))
    _close(values(tg.grad(number, every)(*map(tg.Tensor, given))), differences(number, given), near)
    if not second:
        return

    def slopes(*args: tg.Tensor) -> tg.Tensor:
        total = tg.zeros((), dtype="f64")
        for i, g in enumerate(tg.grad(number, every)(*args)):
            total = total + weighted(lambda x: x)(g * (i + 1.0))
        return total

    found = values(tg.grad(slopes, every)(*map(tg.Tensor, given)))
    _close(found, differences(slopes, given), 10 * near)


def _close(found: list[Array], wanted: list[Array], near: float) -> None:
    for f, w in zip(found, wanted, strict=True):
        assert f.shape == w.shape
        np.testing.assert_allclose(f, w, rtol=near, atol=near * max(1.0, np.abs(w).max(initial=0)))
