"""A multi-layer perceptron, linear layers with relu between; the rule of every builder's sizes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from tunegrad.errors import ModelError
from tunegrad.frontend import InputSpec, Model, Tensor
from tunegrad.frontend.nn import Linear, Module


def positive(model: str, **sizes: object) -> None:
    """Every size is an integer of at least 1.

    Raises:
        ModelError: one is not.
    """
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{model}: {name}={value!r} must be an integer of at least 1")


class Mlp(Module):
    """(N, sizes[0]) to (N, sizes[-1])."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.layers = [Linear(a, b) for a, b in pairwise(sizes)]

    def __call__(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x.relu() if i else x)
        return x


def mlp(batch: int = 1, sizes: Sequence[int] = (784, 512, 512, 10)) -> Model:
    """A perceptron: (batch, sizes[0]) to (batch, sizes[-1]).

    Raises:
        ModelError: fewer than two sizes, or one below 1.
    """
    if not isinstance(sizes, list | tuple) or len(sizes) < 2:
        raise ModelError(f"mlp: sizes={sizes!r} must list at least two integers")
    positive("mlp", batch=batch, **{f"sizes[{i}]": s for i, s in enumerate(sizes)})
    return Model.of("mlp", partial(Mlp, tuple(sizes)), (InputSpec("x", (batch, sizes[0])),))
