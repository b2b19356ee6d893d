"""Measure what Winograd convolutions lose next to direct ones, on this machine.

    python -m tools.measure_winograd           the table: the 3x3 convolutions of stride 1 of
                                               ResNet-18
    python -m tools.measure_winograd --write   the same, into docs/NUMERICS.md
    python -m tools.measure_winograd --last 1  only the last shape

They run compiled, with their default schedules. Inputs are normal, weights are normal with the
variance 2 / (9 channels) of an initialised network. An error is the largest ``|result -
reference|`` over the root mean square of the reference, which numpy computes in float64.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tools.numerics_page import put_out
from tunegrad.compiling import Compiler
from tunegrad.config import allowed_threads
from tunegrad.devices import Engine, host_device
from tunegrad.frontend import Tensor
from tunegrad.inference import LoadedModel, compiled_choice
from tunegrad.ir.fusion import schedule
from tunegrad.ir.variants import rewrite
from tunegrad.runtime import Argument

Array = NDArray[np.float32]
Wide = NDArray[np.float64]

VARIANTS = ("direct", "winograd2", "winograd4")
SEEDS = 3
UNIT = 2.0**-24
"""Unit roundoff of f32."""


@dataclass(frozen=True)
class Shape:
    """A 3x3 convolution of stride 1 and padding 1: its channels in and out, and its height and
    width.
    """

    channels: int
    size: int

    def __str__(self) -> str:
        return f"{self.channels} channels, {self.size}x{self.size}"


SHAPES = (Shape(64, 56), Shape(128, 28), Shape(256, 14), Shape(512, 7))


def data(shape: Shape, seed: int) -> tuple[Array, Array]:
    """Input (1, C, H, W) and weights (C, C, 3, 3)."""
    rng = np.random.default_rng([seed, shape.channels, shape.size])
    x = rng.standard_normal((1, shape.channels, shape.size, shape.size), dtype=np.float32)
    w = rng.standard_normal((shape.channels, shape.channels, 3, 3), dtype=np.float32)
    return x, w * np.float32((2 / (9 * shape.channels)) ** 0.5)


def reference(x: Array, w: Array) -> Wide:
    """The convolution in float64: one matrix product for each of the nine taps."""
    _, channels, height, width = x.shape
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    total = np.zeros((len(w), height * width))
    for r in range(3):
        for s in range(3):
            pixels = padded[0, :, r : r + height, s : s + width].reshape(channels, -1)
            total += w[:, :, r, s].astype(np.float64) @ pixels
    return total.reshape(1, len(w), height, width)


def results(x: Array, w: Array, engine: Engine, compiler: Compiler) -> dict[str, Array]:
    """Results of every one of ``VARIANTS``, by its name."""
    here = engine.device.fingerprint()
    plan = schedule((Tensor.input("x", x.shape).conv2d(Tensor.constant(w), padding=1).node,))
    ((key, (kernel, _)),) = plan.kernels().items()
    found = {}
    for variant in VARIANTS:
        part = rewrite(plan, {key: variant})
        chosen = {}
        for name, (k, _) in part.kernels().items():
            chosen[name] = compiled_choice(k, engine, here, None, "default", compiler)
        argument = Argument("x", x.shape, kernel.outputs[0].dtype)
        found[variant] = LoadedModel(variant, [argument], part, chosen, engine)(x)
    return found


def errors(shape: Shape, seeds: int = SEEDS) -> dict[str, float]:
    """The worst error of every variant over some seeds."""
    compiler, worst = Compiler(), dict[str, float]()
    with host_device(allowed_threads()).open() as engine:
        for seed in range(seeds):
            x, w = data(shape, seed)
            wanted = reference(x, w)
            size = float(np.sqrt(np.mean(np.square(wanted))))
            for variant, got in results(x, w, engine, compiler).items():
                error = float(np.abs(got - wanted).max()) / size
                worst[variant] = max(worst.get(variant, 0.0), error)
    return worst


def table(shapes: tuple[Shape, ...]) -> str:
    """Markdown: one row a shape."""
    rows = [
        "| convolution | direct | F(2x2) | F(4x4) | F(2x2) / direct | F(4x4) / direct |",
        "|---|---|---|---|---|---|",
    ]
    for shape in shapes:
        e = errors(shape)
        direct, small, large = e["direct"], e["winograd2"], e["winograd4"]
        cells = (
            f"{direct:.1e} | {small:.1e} | {large:.1e} | {small / direct:.1f} | "
            f"{large / direct:.1f}"
        )
        rows.append(f"| {shape} | {cells} |")
    return "\n".join(rows) + "\n"


def main(arguments: list[str]) -> None:
    """Run the command that the module's text describes."""
    parser = argparse.ArgumentParser(description="errors of Winograd convolutions")
    parser.add_argument("--last", type=int, default=len(SHAPES))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    text = table(SHAPES[-options.last :])
    put_out("measure_winograd", text, options.write)


if __name__ == "__main__":
    main(sys.argv[1:])
