"""What it costs to add up long f32 sums in blocks, and what it brings: the same schedule with and without, in turns.

    python -m benchmarks.long_sums [--threads N] [--rounds N] [--blocks 64,128,512,1024]

For each kernel, default schedules: the time over that of one chain (the median of the rounds' ratios; below 1 is
faster), and the relative error of uniform numbers. ``again`` is the chain against itself: the noise. The last ratio and
the last error are those of ``chains.BLOCK``.
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
from tunegrad.devices import Team, host_target
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.ir.variants import split
from tunegrad.opts import Space
from tunegrad.opts.lowering import chains

__all__ = ["main"]

_CHAIN = 1 << 62


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_sums")
    parser.add_argument("--threads", type=int, default=1, help="threads of the team (default 1)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each program (default 15)")
    parser.add_argument("--blocks", default="64,128,512,1024", help="terms of other blocks, comma-separated")
    args = parser.parse_args(argv)
    target = host_target(args.threads)
    sizes = [_CHAIN, _CHAIN, *(int(n) for n in args.blocks.split(",")), chains.BLOCK]
    names = ["chain", "again", *(str(n) for n in sizes[2:])]
    about = describe(("python", "-m", "benchmarks.long_sums"), args.threads)
    print(f"{about['cpu']}, {args.threads} threads, errors of blocks of {chains.BLOCK}; {about['command']}\n")
    print("| kernel | chain, ms | " + " | ".join(names[1:]) + " | error, chain | error, blocks |")
    print("|" + "---|" * (len(names) + 4))
    for name, (kernel, wanted, arrays) in _cases().items():
        programs = [_lowered(kernel, target, size) for size in sizes]
        times, outputs = _in_turns(programs, target, arrays, args.rounds)
        ratios = [f"{median(t / c for t, c in zip(ts, times[0], strict=True)):.3f}" for ts in times[1:]]
        errors = [float(np.max(np.abs(o.astype(np.float64) - wanted) / wanted)) for o in outputs]
        shown = f"{errors[0]:.1e} | {errors[-1]:.1e}"
        print(f"| {name} | {median(times[0]) * 1e3:.2f} | {' | '.join(ratios)} | {shown} |", flush=True)
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
    m, n, k = 96, 64, 1 << 16
    a, b = x[: m * k], x[m * k : (m + n) * k]
    product = a.reshape(m, k).astype(np.float64) @ b.reshape(k, n).astype(np.float64)
    return {
        "sum of 2^26": (direct, x.sum(dtype=np.float64, keepdims=True), {given: x}),
        "sum of 2^26 in 64 chunks": (parts.partial, x.reshape(64, -1).sum(axis=1, dtype=np.float64), {half: x}),
        f"product {m}x{n}x{k}": (gemm(m, n, k), product.reshape(-1), {"A": a, "B": b}),
    }


def _lowered(kernel: Kernel, target: Target, block: int) -> Program:
    """The first default schedule of a kernel, its chains cut after ``block`` terms."""
    before = chains.BLOCK, chains.MOST_PARTIALS
    chains.BLOCK = block
    chains.MOST_PARTIALS = _CHAIN if block == _CHAIN else chains.MOST_PARTIALS
    try:
        space = Space(kernel, target)
        return space.lower(space.defaults()[0])
    finally:
        chains.BLOCK, chains.MOST_PARTIALS = before


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
