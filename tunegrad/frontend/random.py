"""Random numbers by counting: element i of a draw is a hash of the seed and of how many were drawn
before it (the output function of SplitMix64, Steele, Lea and Flood 2014).

    z = start + (i + 1) * 0x9e3779b97f4a7c15          in u64, which wraps around
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9
    z = (z ^ z >> 27) * 0x94d049bb133111eb
    z ^ z >> 31                                       64 random bits

Integer arithmetic only, so that the bits are the same on every device. ``start`` is a bound input:
another seed is no other kernel.

A compiled function must not draw: its draws would be made once, and be the same in every call. That
is a ModelError, which says what to do. Numbers drawn outside may be used inside. A step of training
draws from ``start`` as an input of its own (``draws_from``), and gives the next one.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from tunegrad.errors import DTypeError, ModelError, ShapeError
from tunegrad.ir import graph
from tunegrad.ir.dtypes import F32, I64, U64, dtype_of

from .handle import TensorLike
from .nodes import movement
from .nodes.arrays import DTypeLike
from .nodes.tracing import built_model
from .tensor import Tensor, lift

__all__ = [
    "Generator", "bernoulli", "manual_seed", "multinomial", "normal", "rand",
    "rand_like", "randint", "randn", "randn_like", "randperm", "seed", "uniform",
]  # fmt: skip

_GAMMA = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_WORD = (1 << 64) - 1


class Stream:
    """Draws that count from a tensor: ``start``, u64 of shape ()."""

    def __init__(self, start: Tensor) -> None:
        self._start, self._drawn = start, 0

    def bits(self, count: int) -> Tensor:
        """The next ``count`` numbers of 64 random bits, u64."""
        start = self._start + _u64((self._drawn + 1) * _GAMMA & _WORD)
        self._drawn += count
        return _hashed(start, count)

    def rest(self) -> Tensor:
        """The start of what comes after all that was drawn."""
        if not self._drawn:
            return self._start
        return self._start + _u64(self._drawn * _GAMMA & _WORD)


_STREAM: ContextVar[Stream | None] = ContextVar("draws of a step", default=None)


@contextmanager
def draws_from(start: Tensor) -> Iterator[Stream]:
    """Let draws without a generator of their own count from a tensor, u64 of shape ()."""
    stream = Stream(start)
    token = _STREAM.set(stream)
    try:
        yield stream
    finally:
        _STREAM.reset(token)


def start_of(seed: int) -> int:
    """The start of the draws of a seed, a number of 64 bits."""
    return _mixed(int(seed) & _WORD)


def _mixed(z: int) -> int:
    for shift, factor in _MIX:
        z = (z ^ z >> shift) * factor & _WORD
    return z ^ z >> 31


class Generator:
    """A seed, and how many numbers were drawn from it."""

    def __init__(self, seed: int | None = None) -> None:
        self.lock = threading.Lock()
        self.manual_seed(_drawn_seed() if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start anew from a seed."""
        with self.lock:
            self.seed, self.drawn = int(seed), 0
        return self

    def initial_seed(self) -> int:
        """The seed that it was started from."""
        return self.seed

    def bits(self, count: int) -> Tensor:
        """The next ``count`` numbers of 64 random bits, u64.

        Raises ModelError inside of a function that is compiled.
        """
        stream = _STREAM.get()
        if stream is not None and self is _DEFAULT:
            return stream.bits(count)
        if model := built_model():
            raise ModelError(
                f"model {model} draws random numbers (rand, randn ...) as it is compiled: they "
                "would be the same in every call; draw them outside, and pass them as an input"
            )
        with self.lock:
            first, self.drawn = self.drawn, self.drawn + count
        start = (_mixed(self.seed & _WORD) + (first + 1) * _GAMMA) & _WORD
        return _hashed(Tensor(np.array(start, np.uint64)), count)


def _hashed(start: Tensor, count: int) -> Tensor:
    places = Tensor.of(graph.iota((count,), 0, U64))
    z = start + places * _u64(_GAMMA)
    for shift, factor in _MIX:
        z = (z ^ z >> shift) * _u64(factor)
    return z ^ z >> 31


def _u64(value: int) -> Tensor:
    return Tensor.of(graph.full(value, (), U64))


_DEFAULT = Generator(0)


def _drawn_seed() -> int:
    return int.from_bytes(os.urandom(8), "little") >> 1


def manual_seed(seed: int) -> Generator:
    """Let the following draws start from a seed; 0 before the first call."""
    return _DEFAULT.manual_seed(seed)


def seed() -> int:
    """Let the following draws start from a seed of the operating system, which is returned."""
    return _DEFAULT.manual_seed(_drawn_seed()).seed


def _shape(op: str, size: tuple[Any, ...]) -> tuple[int, ...]:
    return movement.extents(op, movement.flat(size))


def _unit(shape: tuple[int, ...], dtype: DTypeLike, generator: Generator | None) -> Tensor:
    """Uniform on [0, 1): the upper bits, as many as the type holds."""
    kind = dtype_of(dtype)
    if not kind.is_float:
        raise DTypeError(f"rand: {kind} of shape {shape} must be a float type")
    wide = kind.compute
    digits = 24 if wide == F32 else 53
    if kind.bits == 16:
        digits = 11 if kind.name == "f16" else 8
    words = (generator or _DEFAULT).bits(math.prod(shape)) >> (64 - digits)
    return (words.cast(I64).cast(wide) * 2.0**-digits).reshape(shape).cast(kind)


def rand(*size: Any, generator: Generator | None = None, dtype: DTypeLike = F32) -> Tensor:
    """Uniform numbers from 0 to below 1."""
    return _unit(_shape("rand", size), dtype, generator)


def randn(*size: Any, generator: Generator | None = None, dtype: DTypeLike = F32) -> Tensor:
    """Normal numbers of mean 0 and deviation 1 (Box and Muller 1958)."""
    shape = _shape("randn", size)
    kind = dtype_of(dtype)
    wide = kind.compute
    radius = (-2 * (1 - _unit(shape, wide, generator)).log()).sqrt()
    return (radius * (_unit(shape, wide, generator) * (2 * math.pi)).sin()).cast(kind)


def randint(
    low: int,
    high: int | Sequence[int] | None = None,
    size: Sequence[int] | None = None,
    generator: Generator | None = None,
    dtype: DTypeLike = I64,
) -> Tensor:
    """Whole numbers from low to below high; ``randint(high, size)`` counts from 0.

    Raises ShapeError where no number lies between.
    """
    if size is None:
        low, high, size = 0, low, high if isinstance(high, Sequence) else ()
    if not isinstance(high, int) or high <= low:
        raise ShapeError(f"randint: no whole number from {low} to below {high}")
    shape = movement.extents("randint", size)
    words = (generator or _DEFAULT).bits(math.prod(shape))
    part = (words % _u64(high - low)).cast(I64) + low
    return part.reshape(shape).cast(dtype)


def randperm(n: int, generator: Generator | None = None, dtype: DTypeLike = I64) -> Tensor:
    """The numbers from 0 to below n in random order."""
    count = movement.integer("randperm", "n", n, 0)
    words = (generator or _DEFAULT).bits(count) >> 1
    return words.cast(I64).argsort(0).cast(dtype)


def rand_like(input: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Uniform numbers in the shape and dtype of a tensor."""
    like = lift(input, "rand_like")
    return rand(like.shape, dtype=like.dtype if dtype is None else dtype)


def randn_like(input: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Normal numbers in the shape and dtype of a tensor."""
    like = lift(input, "randn_like")
    return randn(like.shape, dtype=like.dtype if dtype is None else dtype)


def uniform(
    low: float = 0.0, high: float = 1.0, size: Sequence[int] = (), dtype: DTypeLike = F32
) -> Tensor:
    """Uniform numbers from low to below high, numpy's spelling."""
    return rand(tuple(size), dtype=dtype) * (high - low) + low


def normal(
    mean: float = 0.0, std: float = 1.0, size: Sequence[int] = (),
    generator: Generator | None = None, dtype: DTypeLike = F32,
) -> Tensor:  # fmt: skip
    """Normal numbers of a mean and a deviation."""
    return randn(tuple(size), generator=generator, dtype=dtype) * std + mean


def multinomial(
    input: TensorLike,
    num_samples: int,
    replacement: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Places drawn with the weights of rows, i64: each once (by Gumbel's numbers, the largest of
    which are those of a draw without return), or again and again.
    """
    weights = lift(input, "multinomial")
    rows = weights.shape[:-1]
    count = movement.integer("multinomial", "num_samples", num_samples, 1)
    if replacement:
        edges = weights.cumsum(-1)
        drawn = rand(*rows, count, generator=generator) * edges[..., -1:]
        return edges.searchsorted(drawn, right=True).clamp(0, weights.shape[-1] - 1)
    noise = -(-(1 - rand(weights.shape, generator=generator)).log()).log()
    return (weights.log() + noise).topk(count, -1).indices


def bernoulli(input: TensorLike, generator: Generator | None = None) -> Tensor:
    """Ones with the probabilities that a tensor holds, zeros otherwise."""
    p = lift(input, "bernoulli")
    return (rand(p.shape, generator=generator) < p).cast(p.dtype)
