"""Models and a product in f32 and bf16, next to what OpenVINO does by default and PyTorch in bf16.

    python -m benchmarks.bf16 --threads 1
    python -m benchmarks.bf16 --only resnet18 --threads 2 --store tuned.db --json bf16.json

All contestants of a workload run in turns in this one process. The error is the largest difference
from PyTorch in f32, as a share of its largest output. ``gemm 1024`` is a product 1024x1024x1024
with a constant: what comes and goes is f32, but PyTorch's in bf16. The table goes to stderr, and to
``--json`` as data, with the machine, its features, versions and the revision. ``--store`` has
winners of ``tunegrad tune MODEL --dtype f32`` and ``--dtype bf16``; without it, schedules are the
defaults. Nothing else may run on the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import ours
from benchmarks.contestants import Contestant
from benchmarks.interleave import FULL, QUICK, Timing, interleave
from benchmarks.lineup import Source, gather
from benchmarks.machine import describe, features, revision
from benchmarks.workloads import MODELS, Array, Workload

__all__ = ["Line", "lines", "main", "table"]


@dataclass(frozen=True, slots=True)
class Line:
    """One contestant of one workload: the fastest variant of its name."""

    model: str
    name: str
    variant: str
    ms: float
    interval: float
    error: float
    failed: str = ""


_GEMM = Workload("gemm 1024", "linear", ((1024, 1024),), ((1024, 1024),))
WORKLOADS = (_GEMM, *(w for w in MODELS if w.name != "mlp"))


def _sources(workload: Workload, threads: int, store: Path | None) -> dict[str, Source]:
    peers = {
        "torch f32": ("benchmarks.torch_peer", "eager", ()),
        "torch bf16": ("benchmarks.torch_peer", "in_bf16", ()),
        "openvino f32": ("benchmarks.openvino_peer", "model_at", ("f32",)),
        "openvino default": ("benchmarks.openvino_peer", "model_at", ("default",)),
    }
    found: dict[str, Source] = {
        f"ours {d}": partial(ours.stored_in, workload, threads, d, store) for d in ("f32", "bf16")
    }
    for name, (module, factory, more) in peers.items():
        found[name] = partial(_made, module, factory, workload, threads, *more)
    return found


def _made(module: str, factory: str, *arguments: object) -> Iterator[Contestant]:
    """A peer's contestants; it is imported when its turn comes."""
    found: Iterator[Contestant] = getattr(importlib.import_module(module), factory)(*arguments)
    yield from found


def _error(contestant: Contestant, reference: Array) -> float:
    result = np.asarray(contestant.output(), np.float64)
    return float(np.abs(result - reference).max() / np.abs(reference).max())


def lines(model: str, contestants: Sequence[Contestant], timings: Sequence[Timing],
          reference: Array) -> list[Line]:  # fmt: skip
    """The fastest variant of each name, in the order of the contestants."""
    best: dict[str, Line] = {}
    for c, t in zip(contestants, timings, strict=True):
        if c.peer in best and not t.seconds * 1e3 < best[c.peer].ms:
            continue
        error = math.nan if t.error else _error(c, reference)
        best[c.peer] = Line(model, c.peer, c.variant, t.seconds * 1e3, t.interval, error, t.error)
    return list(best.values())


def table(found: Sequence[Line]) -> str:
    """Milliseconds a call, ours over each, and errors."""
    rows = ["| model | | ms | error | ours bf16 is |", "|---|---|---|---|---|"]
    mine = {x.model: x.ms for x in found if x.name == "ours bf16"}
    for x in found:
        ratio = x.ms / mine.get(x.model, math.nan)
        said = x.failed or f"{x.ms:.2f} | {x.error:.1e} | {ratio:.2f}x as fast"
        rows.append(f"| {x.model} | {x.name} ({x.variant}) | {said} |")
    return "\n".join(rows)


def _measured(workload: Workload, threads: int, store: Path | None, quick: bool) -> list[Line]:
    """One model's lines."""
    reference = importlib.import_module("benchmarks.torch_peer").reference(workload)
    layouts = ("", "nchw", "nhwc")
    contestants, failures, _ = gather(_sources(workload, threads, store), layouts)
    timings = interleave(contestants, QUICK if quick else FULL)
    made = lines(workload.name, contestants, timings, np.asarray(reference, np.float64))
    lost = [
        Line(workload.name, f.peer, f.variant, math.inf, 0, math.nan, f.error) for f in failures
    ]
    return [*made, *lost]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bf16", description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", metavar="NAMES")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pace", choices=("full", "quick"), default="full")
    options = parser.parse_args(argv)
    names = [w.name for w in WORKLOADS]
    only = options.only.split(",") if options.only else names
    if unknown := sorted(set(only) - set(names)):
        parser.error(f"--only {unknown[0]!r}: valid are {', '.join(names)}")
    command = ["python", "-m", "benchmarks.bf16", *(sys.argv[1:] if argv is None else argv)]
    machine = describe(command, options.threads)
    machine |= {"features": features(), "revision": revision()}
    found: list[Line] = []
    for workload in (w for w in WORKLOADS if w.name in only):
        found += _measured(workload, options.threads, options.store, options.pace == "quick")
        if options.json:
            content = {"machine": machine, "rows": [asdict(x) for x in found]}
            options.json.write_text(json.dumps(content, indent=1) + "\n")
    print(table(found), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
