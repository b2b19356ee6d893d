"""Measure what sums of bf16 pairs lose and gain next to f32 sums of the same products, on this
machine.

    python -m tools.measure_bf16_dot          the table of errors
    python -m tools.measure_bf16_dot --write  the same, into docs/NUMERICS.md
    python -m tools.measure_bf16_dot --speed  times, with PyTorch's beside them where it is
                                              installed

Matrix products of bf16 with f32 results, default schedules. An error is ``|result - reference|``
over the root mean square of the reference, which numpy computes in float64 from the same bf16
numbers. Times are medians of calls in turns, with weights that are known when the model is loaded
and a result of the operands' type; threads that spin after another library's call are asleep by
then.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tunegrad as tg
from tools.numerics_page import write_table
from tunegrad.config import Numerics
from tunegrad.frontend import Tensor, bf16_bits, bf16_values

SEEDS = 3
ROUNDS = 15
_ASLEEP_S = 0.02

Bits = NDArray[np.uint16]


@dataclass(frozen=True)
class Shape:
    """A product of (m, k) with (k, n)."""

    m: int
    k: int
    n: int

    def __str__(self) -> str:
        return f"{self.m}x{self.k}x{self.n}"


SHAPES = (Shape(1024, 1024, 1024), Shape(128, 768, 3072), Shape(128, 3072, 768))
DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform 0 to 1": lambda rng, shape: rng.random(shape),
}


def operands(shape: Shape, draw: str, seed: int) -> tuple[Bits, Bits]:
    """Both matrices as bf16."""
    rng = np.random.default_rng([seed, shape.m, shape.k, shape.n])
    return bf16_bits(DRAWS[draw](rng, (shape.m, shape.k))), bf16_bits(
        DRAWS[draw](rng, (shape.k, shape.n))
    )


def errors(shape: Shape, draw: str, numerics: Numerics, seeds: int = SEEDS) -> tuple[float, float]:
    """(the largest, the root mean square), the worst of the seeds."""
    worst = (0.0, 0.0)
    model = None
    for seed in range(seeds):
        a, b = operands(shape, draw, seed)
        if model is None:
            model = tg.compile(
                _wide_product, Tensor(a, "bf16"), Tensor(b, "bf16"), store=False, numerics=numerics
            )
        want = bf16_values(a).astype(np.float64) @ bf16_values(b)
        off = np.abs(np.asarray(model(a, b), np.float64) - want)
        scale = float(np.sqrt(np.square(want).mean()))
        found = float(off.max()) / scale, float(np.sqrt(np.square(off).mean())) / scale
        worst = max(worst[0], found[0]), max(worst[1], found[1])
    return worst


def _wide_product(a: Tensor, b: Tensor) -> Tensor:
    return a.cast("f32") @ b.cast("f32")


def table() -> str:
    """The errors as markdown."""
    lines = [
        "| product, numbers | f32 FMA, largest | RMS | bf16-dot, largest | RMS |",
        "|---|---|---|---|---|",
    ]
    for shape in SHAPES:
        for draw in DRAWS:
            cells = [f"{e:.1e}" for n in ("contract", "bf16-dot") for e in errors(shape, draw, n)]  # type: ignore[arg-type]
            lines.append(f"| {shape}, {draw} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def speed(threads: int) -> str:
    """Milliseconds of a call as markdown: f32, bf16 in f32 arithmetic, bf16-dot, and PyTorch where
    it is.
    """
    torch = _torch(threads)
    peers = ["PyTorch f32", "PyTorch bf16"] if torch else []
    names = ["f32", "bf16 contract", "bf16-dot", *peers]
    lines = [f"| {threads} threads | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for shape in SHAPES:
        calls = [*_ours(shape, threads), *(_peers(torch, shape) if torch else [])]
        times: list[list[float]] = [[] for _ in calls]
        for _ in range(ROUNDS):
            for call, found in zip(calls, times, strict=True):
                time.sleep(_ASLEEP_S)
                call()
                begin = time.perf_counter()
                call()
                found.append(time.perf_counter() - begin)
        lines.append(f"| {shape} | " + " | ".join(f"{1e3 * median(t):.2f}" for t in times) + " |")
    return "\n".join(lines) + "\n"


def _ours(shape: Shape, threads: int) -> list[Callable[[], Any]]:
    a, b = operands(shape, "normal", 0)
    wide = Tensor.constant(bf16_values(b))
    narrow = Tensor.constant(b, "bf16")
    f32 = tg.compile(lambda x: x @ wide, bf16_values(a), threads=threads, store=False)
    x = bf16_values(a)
    made: list[Callable[[], Any]] = [lambda: f32(x)]
    for numerics in ("contract", "bf16-dot"):
        model = tg.compile(
            lambda v: v @ narrow, Tensor(a, "bf16"), threads=threads, store=False,
            numerics=numerics,  # type: ignore[arg-type]
        )  # fmt: skip
        made.append(lambda model=model: model(a))  # type: ignore[misc]
    return made


def _torch(threads: int) -> Any:
    if importlib.util.find_spec("torch") is None:
        return None
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    return torch


def _peers(torch: Any, shape: Shape) -> list[Callable[[], Any]]:
    x, w = torch.randn(shape.m, shape.k), torch.randn(shape.k, shape.n)
    found: list[Callable[[], Any]] = []
    for kind in (torch.float32, torch.bfloat16):
        a, b, out = x.to(kind), w.to(kind), torch.empty(shape.m, shape.n, dtype=kind)
        found.append(lambda a=a, b=b, out=out: torch.mm(a, b, out=out))  # type: ignore[misc]
    return found


def main(arguments: list[str]) -> None:
    """Run the command that the module's text describes."""
    parser = argparse.ArgumentParser(description="errors and times of sums of bf16 pairs")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--write", action="store_true", help="replace the table in docs/NUMERICS.md")
    one.add_argument("--speed", action="store_true", help="times in place of errors")
    given = parser.parse_args(arguments)
    if given.speed:
        sys.stdout.write("\n".join(speed(threads) for threads in (1, 2)))
        return
    text = table()
    sys.stdout.write(text)
    if given.write:
        write_table("measure_bf16_dot", text)


if __name__ == "__main__":
    main(sys.argv[1:])
