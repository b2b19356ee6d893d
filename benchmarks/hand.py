"""The hand-written GEMM and convolution at full size, next to the FMA peak measured in the same
process.

    python -m benchmarks.hand [--threads N] [--rounds N]

They run through the same lowering, renderer, compiler and thread team as everything the search
finds. Results are checked against the interpreter on sampled outputs first. Peak and workloads are
measured in turns; shares are of the best peak of the run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from benchmarks.hand_schedules import FULL, HandSchedule
from benchmarks.machine import Usage, bystanders, describe
from benchmarks.single_kernel import SingleKernel, draw_arrays
from tunegrad.devices.cpu.peak import measure_limits
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import Team
from tunegrad.ir.interpret.kernel import interpret_at
from tunegrad.ir.target import Target
from tunegrad.opts import Space

__all__ = ["entries", "main", "worst_error"]

_SAMPLES = 5
_TEAM = {"packed_gemm": ("size=144", "size=132", "m0"), "direct_conv": ("", "", "y0")}
"""For more than one thread: a row block that gives every thread as many, and the loop to share
out.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when a result is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hand")
    parser.add_argument("--threads", type=int, default=1, help="threads of the team (default 1)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each workload (default 9)")
    options = parser.parse_args(argv)
    target, team = host_target(options.threads), Team(options.threads)
    before = Usage.now()
    with ExitStack() as stack:
        kernels: list[tuple[HandSchedule, SingleKernel]] = []
        for entry in entries(options.threads):
            kernel = stack.enter_context(_prepare(entry, target, team))
            error = worst_error(entry, kernel)
            if error > 1e-4:
                print(f"{entry.name}: wrong by {error:.3g}", file=sys.stderr)
                return 1
            kernels.append((entry, kernel))
        _report(kernels, target, team, options.rounds)
    for line in bystanders(before, Usage.now(), os.cpu_count() or 1):
        print(line, file=sys.stderr)
    about = describe(("python", "-m", "benchmarks.hand"), options.threads)
    written = FULL["packed_gemm"].target.vector_bytes
    if target.vector_bytes != written:
        print(
            f"the schedules are for vectors of {written} bytes, this machine has "
            f"{target.vector_bytes}",
            file=sys.stderr,
        )
    print(f"{about['cpu']}, {target.arch}, {about['cores']} cores", file=sys.stderr)
    return 0


def entries(threads: int) -> list[HandSchedule]:
    """The schedules to time, shared over ``threads``.

    They are lowered for the machine that they are written for.

    Another one runs the same program, compiled for its own vectors: right, and slower.
    """
    found = []
    for name, (old, new, loop) in _TEAM.items():
        entry = FULL[name]
        if threads > 1:
            actions = entry.actions.replace(old, new, 1) if old else entry.actions
            entry = replace(entry, actions=f"{actions} thread(axis={loop}, count={threads})")
        found.append(replace(entry, target=replace(entry.target, threads=threads)))
    return found


def _prepare(entry: HandSchedule, target: Target, team: Team) -> SingleKernel:
    program = Space(entry.kernel, entry.target).lower(entry.schedule)
    return SingleKernel(program, target, team, draw_arrays(entry.kernel, 0))


def worst_error(entry: HandSchedule, loaded: SingleKernel, points: int = 200) -> float:
    """The largest relative error on sampled outputs, corners included; infinite when a guard zone
    was written.
    """
    kernel, rng = entry.kernel, np.random.default_rng(1)
    corners = np.indices((2,) * len(kernel.axes)).reshape(len(kernel.axes), -1)
    at = {
        a.name: np.concatenate([corners[i] * (a.extent - 1), rng.integers(0, a.extent, points)])
        for i, a in enumerate(kernel.axes)
    }
    arrays = {p.name: loaded.array(p.name) for p in kernel.params if p.role != "out"}
    got = loaded.run()
    if loaded.damage():
        return float("inf")
    worst = 0.0
    for name, (offsets, want) in interpret_at(kernel, arrays, at, as_float64=True).items():
        scale = np.sqrt(np.mean(np.square(want)))
        worst = max(worst, float(np.max(np.abs(got[name][offsets] - want)) / scale))
    return worst


def _report(
    kernels: list[tuple[HandSchedule, SingleKernel]], target: Target, team: Team, rounds: int
) -> None:
    seconds: dict[str, list[float]] = {entry.name: [] for entry, _ in kernels}
    peaks: list[float] = []
    for _ in range(rounds):
        peaks.append(measure_limits(target, team).flops(team.threads))
        for entry, kernel in kernels:
            turn = statistics.median(kernel.time(_SAMPLES + 1)[1:])
            seconds[entry.name].append(turn)
    print(f"{'':<28} {'ms':>8} {'GFLOP/s':>9} {'% of peak':>10} {'best turn':>10}")
    print(f"{f'FMA peak, {team.threads} threads':<28} {'':>8} {max(peaks) / 1e9:>9.1f}")
    for entry, _ in kernels:
        median = statistics.median(seconds[entry.name])
        flops = entry.kernel.flops / median / 1e9
        share, best = (
            entry.kernel.flops / s / max(peaks) for s in (median, min(seconds[entry.name]))
        )
        print(
            f"{entry.kernel.name:<28} {median * 1e3:>8.3f} {flops:>9.1f} {share:>10.1%} "
            f"{best:>10.1%}"
        )


if __name__ == "__main__":
    sys.exit(main())
