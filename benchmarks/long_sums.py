"""Cost and gain of adding up long f32 sums in blocks: the same schedule with and without, in turns.

    python -m benchmarks.long_sums [--threads N] [--rounds N] [--blocks 32,64,256]
    python -m benchmarks.long_sums --errors

For each kernel, default schedules: the time over that of one chain (the median of the rounds'
ratios; below 1 is faster), and the relative error of uniform numbers. ``again`` is the chain
against itself: the noise. The last ratio and the last error are those of blocks as they are.
``--errors`` prints relative errors of sums of 2^24 numbers, in one serial loop and in 64 lanes, as
one chain and in blocks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.hand_schedules import gemm
from benchmarks.machine import describe
from benchmarks.single_kernel import SingleKernel
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import Team
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.ir.variants import split
from tunegrad.opts import Schedule, Space
from tunegrad.opts.lowering import reductions

__all__ = ["main"]

_CHAIN = 1 << 62
_LANES = "tile(axis=ra, size=64) tile(axis=ra1, size=16) upcast(axis=ra1) group(axis=ra2)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_sums")
    parser.add_argument("--threads", type=int, default=1, help="threads of the team (default 1)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each program (default 15)")
    parser.add_argument(
        "--blocks", default="32,64,256", help="terms of other blocks, comma-separated"
    )
    parser.add_argument(
        "--errors", action="store_true", help="relative errors of sums of 2^24 numbers instead"
    )
    args = parser.parse_args(argv)
    target = host_target(args.threads)
    if args.errors:
        _print_errors(target)
        return 0
    sizes = [_CHAIN, _CHAIN, *(int(n) for n in args.blocks.split(",")), 0]
    names = ["chain", "again", *args.blocks.split(","), "as it is"]
    about = describe(("python", "-m", "benchmarks.long_sums"), args.threads)
    print(
        f"{about['cpu']}, {args.threads} threads, blocks of {reductions.BLOCK} and of "
        f"{reductions.DOT_BLOCK} products; {about['command']}\n"
    )
    print("| kernel | chain, ms | " + " | ".join(names[1:]) + " | error, chain | error, blocks |")
    print("|" + "---|" * (len(names) + 4))
    for name, (kernel, wanted, arrays) in _cases().items():
        programs = [_lowered(kernel, target, size) for size in sizes]
        times, outputs = _in_turns(programs, target, arrays, args.rounds)
        ratios = [
            f"{median(t / c for t, c in zip(ts, times[0], strict=True)):.3f}" for ts in times[1:]
        ]
        errors = [float(np.max(np.abs(o.astype(np.float64) - wanted) / wanted)) for o in outputs]
        shown = f"{errors[0]:.1e} | {errors[-1]:.1e}"
        print(
            f"| {name} | {median(times[0]) * 1e3:.2f} | {' | '.join(ratios)} | {shown} |",
            flush=True,
        )
    return 0


def _cases() -> dict[str, tuple[Kernel, NDArray[np.float64], Mapping[str, NDArray[Any]]]]:
    """Kernels, their results in f64 and their inputs by parameter name."""
    x = np.random.default_rng(0).random(1 << 26, np.float32)
    (launch,) = schedule((Tensor.input("x", x.shape).sum().node,)).launches
    direct = launch.kernel
    parts = split(direct, 64)
    if parts is None:
        raise AssertionError(f"{direct.name} is a sum and can be split")
    (given,) = (p.name for p in direct.params if p.role == "in")
    (half,) = (p.name for p in parts.partial.params if p.role == "in")
    products = {}
    for m, n, k in ((96, 64, 1 << 16), (512, 512, 512), (64, 64, 4096)):
        a, b = x[: m * k], x[m * k : (m + n) * k]
        product = a.reshape(m, k).astype(np.float64) @ b.reshape(k, n).astype(np.float64)
        products[f"product {m}x{n}x{k}"] = (
            gemm(m, n, k),
            product.reshape(-1),
            {"A": a, "B": b},
        )
    return {
        "sum of 2^26": (direct, x.sum(dtype=np.float64, keepdims=True), {given: x}),
        "sum of 2^26 in 64 chunks": (
            parts.partial,
            x.reshape(64, -1).sum(axis=1, dtype=np.float64),
            {half: x},
        ),
        **products,
    }


def _print_errors(target: Target) -> None:
    rng, count = np.random.default_rng(5), 1 << 24
    numbers: dict[str, NDArray[np.float32]] = {
        "ones": np.ones(count, np.float32),
        "uniform, 0 to 1": rng.random(count, np.float32),
        "exponential": rng.exponential(size=count).astype(np.float32),
        "0.1 each": np.full(count, 0.1, np.float32),
    }
    (launch,) = schedule((Tensor.input("x", (count,)).sum().node,)).launches
    (given,) = (p.name for p in launch.kernel.params if p.role == "in")
    print(
        "| numbers | chain, serial | blocks, serial | chain, lanes | blocks, lanes | numpy "
        "|\n|---|---|---|---|---|---|"
    )
    for name, x in numbers.items():
        wanted = x.sum(dtype=np.float64)
        programs = [
            _lowered(launch.kernel, target, n, text) for text in ("", _LANES) for n in (_CHAIN, 0)
        ]
        _, outputs = _in_turns(programs, target, {given: x}, 0)
        found = [*(o.item() for o in outputs), float(x.sum())]
        print(f"| {name} | {' | '.join(f'{abs(f - wanted) / wanted:.1e}' for f in found)} |")


def _lowered(kernel: Kernel, target: Target, block: int, text: str | None = None) -> Program:
    """A kernel under a schedule, or its first default one, its chains cut after ``block`` terms,
    or as they are.
    """
    names = ("BLOCK", "DOT_BLOCK", "PANEL", "LONG_DOT")
    before = {name: getattr(reductions, name) for name in names}
    try:
        for name in names if block else ():
            setattr(reductions, name, block)
        space = Space(kernel, target)
        return space.lower(space.defaults()[0] if text is None else Schedule.parse(text))
    finally:
        for name, value in before.items():
            setattr(reductions, name, value)


def _in_turns(
    programs: Sequence[Program], target: Target, arrays: Mapping[str, NDArray[Any]], rounds: int
) -> tuple[list[list[float]], list[NDArray[Any]]]:
    """Seconds of every program in every round, and its output."""
    times: list[list[float]] = [[] for _ in programs]
    with ExitStack() as stack:
        team = Team(target.threads)
        stack.callback(team.close)
        singles = [stack.enter_context(SingleKernel(p, target, team, arrays)) for p in programs]
        outputs = [next(iter(s.run().values())) for s in singles]
        for turn in range(rounds):
            order = list(range(len(singles)))
            for at in order[turn % len(order) :] + order[: turn % len(order)]:
                times[at].append(min(singles[at].time(3)))
    return times, outputs


if __name__ == "__main__":
    sys.exit(main())
