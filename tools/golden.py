"""Golden files: a few small kernels in every form, as text under tests/golden/forms.

    python -m tools.golden            compare, exit 3 where a file is old
    python -m tools.golden --write    write what the code makes today

A refactor changes none of them; where one changes on purpose, the commit shows how.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.hand_schedules import AVX512
from tests.kernel_corpus import corpus_kernel
from tests.tile_kernels import NAME, SERVER, gemm
from tunegrad.devices.host.facts import declared
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.render.llvm import render_llvm

__all__ = ["CASES", "FOLDER", "Case", "golden_text", "main"]

FOLDER = Path(__file__).parents[1] / "tests" / "golden" / "forms"

NARROW = declared(replace(AVX512, arch="x86-64", vector_bytes=16, registers=16, threads=2))
"""Four lanes, so that the files stay short."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel of the corpus under a schedule."""

    kernel: str
    actions: str
    target: Target = NARROW


CASES: dict[str, Case] = {
    "add_tail": Case("add", "tile(axis=b, size=4) vectorize(axis=b1)"),
    "conv_staged": Case(
        "conv3x3s2",
        "tile(axis=b, size=3) reorder(order=(b0, c, rb, rc, ra, b1, a)) upcast(axis=b1) "
        "tile(axis=a, size=4) "
        "vectorize(axis=a1) stage(param=p1, at=(), layout=()) stage(param=p2, at=load, "
        "layout=(a0, rb, rc, ra, a1))",
    ),
    "gemm_blocked": Case(
        "gemm_square",
        "tile(axis=ra, size=8) tile(axis=b, size=4) tile(axis=a, size=2) reorder(order=(ra0, "
        "a0, b0, ra1, a1, b1)) "
        "upcast(axis=a1) vectorize(axis=b1) thread(axis=a0, count=2) stage(param=p2, at=ra0, "
        "layout=(b0, ra1, b1))",
    ),
    "gemm_tiles": Case(
        "gemm of pairs",
        "tile(axis=a, size=2) tile(axis=ra, size=16) "
        f"tensorcore(unit={NAME}, m=a1, n=b, k=ra1) thread(axis=a0, count=2)",
        SERVER,
    ),
    "linear_padded": Case(
        "linear",
        "pad(axis=a, multiple=4) tile(axis=a, size=4) tile(axis=ra, size=2) unroll(axis=ra1)",
    ),
    "row_sum_group": Case(
        "row_sum", "tile(axis=ra, size=8) tile(axis=ra1, size=4) upcast(axis=ra1) group(axis=ra2)"
    ),
    "softmax_rows": Case(
        "softmax",
        "tile(axis=ra, size=4) group(axis=ra1) tile(axis=rb, size=4) group(axis=rb1) "
        "tile(axis=sa, size=4) "
        "vectorize(axis=sa1) thread(axis=a, count=2)",
    ),
    "transpose_fused": Case("transpose", "fuse(outer=a, inner=b) thread(axis=abf, count=2)"),
    "unscheduled": Case("conv_grouped", ""),
}


def golden_text(name: str) -> str:
    """The file of a case: every form, from the kernel to LLVM IR."""
    case = CASES[name]
    kernel = gemm(5, 16, 32) if case.kernel == "gemm of pairs" else corpus_kernel(case.kernel)
    space, schedule = Space(kernel, case.target), Schedule.parse(case.actions)
    program = space.lower(schedule)
    parts = {
        "kernel": f"# {kernel.name}\n{kernel.text}",
        "actions": "\n".join(str(a) for a in schedule.actions) or "none",
        "loop tree": str(space.tree(schedule)),
        "program": program.text,
        "llvm": render_llvm(program, case.target if case.target.units else None),
    }
    return "\n".join(f"== {title} ==\n{text.rstrip()}\n" for title, text in parts.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 3 when a file differs and is not to be written."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.golden", description="compare or write golden files"
    )
    parser.add_argument("--write", action="store_true", help="write the files instead of comparing")
    options = parser.parse_args(argv)
    stale = 0
    FOLDER.mkdir(exist_ok=True)
    for name in CASES:
        path, new = FOLDER / f"{name}.txt", golden_text(name)
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old == new:
            continue
        stale += 1
        if options.write:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path.name}", file=sys.stderr)
        else:
            sys.stdout.writelines(
                difflib.unified_diff(old.splitlines(True), new.splitlines(True), path.name, "today")
            )
    for path in sorted(FOLDER.glob("*.txt")):
        if path.stem not in CASES:
            stale += 1
            print(f"{'removed' if options.write else 'no case for'} {path.name}", file=sys.stderr)
            if options.write:
                path.unlink()
    return 3 if stale and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
