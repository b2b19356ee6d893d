"""Convolutions as schedules of one launch, and what they and their variants compute, run by the
interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.interpret.kernel import interpret
from tunegrad.ir.kernel import Kernel

__all__ = ["FACTORS", "Conv", "bound", "constant", "kernel_of", "only", "ran"]

Array = NDArray[Any]

UNIT = 2.0**-24
FACTORS = {
    "direct": 4.0, "winograd2": 4.0, "winograd4": 48.0,
    "channels_last": 4.0, "channels_last_winograd2": 4.0, "channels_last_winograd4": 48.0,
}  # fmt: skip
"""Largest error of a variant on normal data, in units of ``u * sqrt(terms) * scale``
(docs/NUMERICS.md).
"""


@dataclass(frozen=True, slots=True)
class Conv:
    """A 3x3 convolution of stride 1.

    ``last``: channels are the last dimension of its input and its output. ``variable``: its weights
    are an input.
    """

    channels: int = 4
    outputs: int = 5
    height: int = 6
    width: int = 7
    batch: int = 1
    padding: int = 1
    bias: bool = True
    residual: bool = False
    relu: bool = True
    last: bool = False
    variable: bool = False
    seed: int = 0

    @property
    def inputs(self) -> dict[str, Array]:
        """Normal data for its inputs."""
        rng = np.random.default_rng([1, self.seed])
        h, w = (n + 2 * self.padding - 2 for n in (self.height, self.width))
        shapes = {
            "x": (self.batch, self.channels, self.height, self.width),
            "r": (self.batch, self.outputs, h, w),
        }
        if self.last:
            shapes = {name: (n, h, w, c) for name, (n, c, h, w) in shapes.items()}
        drawn = {
            n: rng.standard_normal(s, dtype=np.float32)
            for n, s in shapes.items()
            if n == "x" or self.residual
        }
        return drawn | ({"w": self.weights[0]} if self.variable else {})

    @property
    def weights(self) -> tuple[Array, Array]:
        """Normal weights and bias."""
        rng = np.random.default_rng([2, self.seed])
        w = rng.standard_normal((self.outputs, self.channels, 3, 3), dtype=np.float32)
        return w, rng.standard_normal(self.outputs, dtype=np.float32)

    def plan(self) -> LaunchPlan:
        """The convolution as one launch."""
        given = {name: Tensor.input(name, a.shape) for name, a in self.inputs.items()}
        if self.last:
            moved = {n: t.permute(0, 3, 1, 2) for n, t in given.items() if n != "w"}
            given |= moved
        w, b = (Tensor.constant(a) for a in self.weights)
        y = given["x"].conv2d(given.get("w", w), b if self.bias else None, padding=self.padding)
        y = y + given["r"] if self.residual else y
        y = y.relu() if self.relu else y
        return only(y.permute(0, 2, 3, 1) if self.last else y)

    def kernel(self) -> Kernel:
        """Its kernel."""
        return kernel_of(self.plan())


def constant(*shape: int, seed: int = 0) -> Tensor:
    """A normal constant."""
    return Tensor.constant(
        np.random.default_rng([3, seed, *shape]).standard_normal(shape, dtype=np.float32)
    )


def only(y: Tensor) -> LaunchPlan:
    """A tensor that is one kernel, as a schedule."""
    made = schedule(fold_constants((y.node,)))
    assert len(made.launches) == 1, made
    return made


def kernel_of(plan: LaunchPlan) -> Kernel:
    """The kernel of a schedule of one launch."""
    (launch,) = plan.launches
    return launch.kernel


def ran(plan: LaunchPlan, inputs: dict[str, Array], *, as_float64: bool = False) -> Array:
    """The output of a schedule, each kernel run by the interpreter; all in float64 where there is
    one launch.
    """
    memory: dict[int, Array] = {}
    for b in plan.buffers:
        if b.role in ("input", "const"):
            array = inputs[b.name] if b.data is None else b.data.array
            memory[b.id] = b.layout.pack(np.asarray(array).reshape(b.shape))
    for launch in plan.launches:
        place = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
        reads = {p.name: memory[place[p.name]] for p in launch.kernel.params if p.role != "out"}
        for name, flat in interpret(launch.kernel, reads, as_float64=as_float64).items():
            memory[place[name]] = flat
    (output,) = plan.outputs
    return plan.buffers[output].layout.unpack(memory[output])


def bound(conv: Conv, variant: str) -> float:
    """The largest error that a variant may have: a sum of normal products has a deviation of
    ``sqrt(terms)``.
    """
    terms = 9 * conv.channels
    scale = terms**0.5
    return FACTORS[variant] * UNIT * terms**0.5 * scale
