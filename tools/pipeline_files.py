"""Files of tunegrad that ``relu(a @ b)`` runs through, from the expression to LLVM text.

    python -m tools.pipeline_files          a table: files, functions and calls of each leg
    python -m tools.pipeline_files --list   and the files, with their calls

The trace is of a second run, with warm memos: what every kernel of a model pays. A leg counts a
file when one of its functions is called; the last row counts each file once.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import tunegrad
from tunegrad.compiling import build
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.frontend import Tensor
from tunegrad.opts import Space
from tunegrad.tuning.workload import Workload, workload_of_function

from .lowered import TARGETS

__all__ = ["LEGS", "files_of", "legs", "main"]

ROOT = Path(tunegrad.__file__).parent
LEGS = ("expression", "plan", "schedule", "build")
"""A tensor expression; its kernel; the default schedule of its space; loops to text."""


def legs() -> dict[str, Counter[CodeType]]:
    """Calls of each function of tunegrad, by leg, in a run with warm memos."""
    _run(lambda _, step: step())
    calls: dict[str, Counter[CodeType]] = {}

    def traced(leg: str, step: Callable[[], Any]) -> Any:
        calls[leg] = Counter()
        return _traced(step, calls[leg])

    _run(traced)
    return calls


def files_of(calls: Counter[CodeType]) -> Counter[str]:
    """Calls by file, whose path is below the package."""
    found: Counter[str] = Counter()
    for code, count in calls.items():
        found[str(Path(code.co_filename).relative_to(ROOT))] += count
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--list", action="store_true", help="print the files, too")
    asked = parser.parse_args(arguments)
    traced = legs()
    every: Counter[CodeType] = Counter()
    print(f"{'leg':<12}{'files':>7}{'functions':>11}{'calls':>8}")
    for leg, calls in traced.items():
        every += calls
        _row(leg, calls)
    _row("all", every)
    if asked.list:
        for leg, calls in traced.items():
            print(f"\n{leg}")
            for file, count in sorted(files_of(calls).items()):
                print(f"{count:>6} {file}")
    return 0


def _row(leg: str, calls: Counter[CodeType]) -> None:
    print(f"{leg:<12}{len(files_of(calls)):>7}{len(calls):>11}{calls.total():>8}")


def _run(call: Callable[[str, Callable[[], Any]], Any]) -> None:
    target = TARGETS["avx512"]

    def relu_of_product() -> Tensor:
        return (Tensor.input("a", (256, 256)) @ Tensor.input("b", (256, 256))).relu()

    product = call("expression", relu_of_product)
    zeros = np.zeros((256, 256), np.float32)

    def computed(a: Tensor, b: Tensor) -> Tensor:  # noqa: ARG001 - the names of its inputs
        return product

    def planned() -> Workload:
        return workload_of_function(computed, (zeros, zeros), target=target)

    workload = call("plan", planned)
    (use,) = workload.kernels
    schedule = call("schedule", lambda: Space(use.kernel, target).defaults()[0])
    call("build", lambda: build(use.kernel, schedule, CpuDevice(target)))


def _traced(step: Callable[[], Any], calls: Counter[CodeType]) -> Any:
    def on_event(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            calls[frame.f_code] += 1

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        return step()
    finally:
        sys.setprofile(before)


if __name__ == "__main__":
    sys.exit(main())
