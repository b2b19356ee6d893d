"""tunegrad next to its peers, interleaved in this one process.

    python -m benchmarks.peers --suite kernels --threads 2 --json kernels.json
    python -m benchmarks.peers --suite models --budget 5m --store tuned.db
    python -m benchmarks.peers --suite models --peers-only --peers torch,ort,openvino,inductor

The table goes to stderr, the JSON to ``--json`` (rewritten after every row, so an interrupted run keeps its rows).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks import machine, ours
from benchmarks.contestants import Contestant
from benchmarks.interleave import Pace, rest_until_quiet
from benchmarks.lineup import Source, measure, reason
from benchmarks.rows import DEFAULT, TUNED, Row, table
from benchmarks.workloads import SUITES, Array, Workload, select

__all__ = ["PEERS", "main", "parse_seconds"]

PEERS: dict[str, tuple[str, str]] = {
    "torch": ("benchmarks.torch_peer", "eager"),
    "ort": ("benchmarks.ort_peer", "contestants"),
    "openvino": ("benchmarks.openvino_peer", "contestants"),
    "inductor": ("benchmarks.torch_peer", "inductor"),
}
_DEFAULT_PEERS = "torch,ort,openvino"  # inductor compiles a model for minutes: by request
_DEFAULT_BUDGET_S = {"kernels": 30.0, "models": 300.0}


@dataclass(frozen=True, slots=True)
class _Run:
    """The settings of one run."""

    threads: int
    peers: tuple[str, ...]
    peers_only: bool
    budget_s: float
    store: Path
    seed: int


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when every workload has a row, 2 for a wrong argument."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        workloads = select(options.suite, options.only)
        unknown = sorted(set(options.peers) - set(PEERS))
        if unknown:
            raise ValueError(f"--peers {unknown[0]!r}: the peers are {', '.join(PEERS)}")
    except ValueError as error:
        parser.error(str(error))
    machine.prepare(options.threads)
    about = machine.describe(("python", "-m", "benchmarks.peers", *map(shlex.quote, arguments)), options.threads)
    with tempfile.TemporaryDirectory(prefix="tunegrad-bench-") as folder:
        budget_s = _DEFAULT_BUDGET_S[options.suite] if options.budget is None else options.budget
        store = options.store or Path(folder) / "tuned.db"
        run = _Run(options.threads, options.peers, options.peers_only, budget_s, store, options.seed)
        rows = _rows(run, workloads, about, options.json)
    _say(table(rows, run.peers, peers_only=run.peers_only))
    _say("\n".join(f"{key}: {value}" for key, value in about.items()))
    return 0


def parse_seconds(text: str) -> float:
    """``"90"``, ``"30s"``, ``"5m"`` or ``"1h"`` in seconds; 0 means "no tuning, take the store as it is"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90, 30s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=sorted(SUITES), required=True)
    parser.add_argument("--threads", type=_positive, default=len(machine.cores()), help="of each contestant")
    parser.add_argument("--json", type=Path, help="write the rows and the machine to this file")
    parser.add_argument("--only", type=_names, default=(), help="names of workloads, separated by commas")
    parser.add_argument("--peers", type=_names, default=_names(_DEFAULT_PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument("--peers-only", action="store_true", help="leave tunegrad out")
    parser.add_argument("--budget", type=parse_seconds, help="of tuning, per workload: 30s for kernels, 5m for models")
    parser.add_argument("--store", type=Path, help="tune into and run from this store; without: a new, temporary one")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of threads (1 or more)")
    return int(text)


def _rows(run: _Run, workloads: Sequence[Workload], about: dict[str, object], path: Path | None) -> list[Row]:
    """Measure workload after workload; Ctrl-C keeps the rows so far."""
    rows: list[Row] = []
    rest = partial(rest_until_quiet, restore=machine.cores())
    try:
        for i, workload in enumerate(workloads, 1):
            _say(f"[{i}/{len(workloads)}] {workload.name}")
            rows.append(_row(run, workload, rest))
            if path is not None:
                _write(path, about, rows)
        if workloads and not workloads[0].is_model:
            about["call_us"] = _call_us(run, rest)
    except KeyboardInterrupt:
        _say("interrupted: the rows so far follow")
    if path is not None:
        _write(path, about, rows)
    return rows


def _row(run: _Run, workload: Workload, rest: partial[bool]) -> Row:
    tuning: ours.Tuning | None = None
    why = ""
    if not run.peers_only and run.budget_s > 0:
        try:
            tuning = ours.tune(workload, run.threads, run.store, run.budget_s, run.seed)
        except Exception as error:  # noqa: BLE001  the library under test: its column says why, the peers go on
            why = f"tuning failed, {reason(error)}"
    before = machine.Usage.now()
    row = measure(
        workload, run.threads, run.peers, _sources(run, workload, why), partial(_reference, workload), Pace(), rest
    )
    others = machine.bystanders(before, machine.Usage.now(), os.cpu_count() or 1)
    row = replace(row, notes=row.notes + others)
    if tuning is None:
        return row
    # The report's share of the peak belongs to its own timing; carry it over to the interleaved one.
    pct_peak = tuning.pct_peak
    if pct_peak is not None and tuning.tuned_ms is not None and row.tuned_ms is not None:
        pct_peak *= tuning.tuned_ms / row.tuned_ms
    return replace(row, pct_peak=pct_peak, tune_s=tuning.tune_s, candidates=tuning.candidates)


def _sources(run: _Run, workload: Workload, tuning_failed: str) -> dict[str, Source]:
    sources: dict[str, Source] = {name: partial(_peer, name, workload, run.threads) for name in run.peers}
    if not run.peers_only:
        sources[DEFAULT] = partial(ours.untuned, workload, run.threads)
        sources[TUNED] = partial(ours.tuned, workload, run.threads, run.store)
        if tuning_failed:
            sources[TUNED] = partial(_fail, tuning_failed)
    return sources


def _fail(why: str) -> Iterable[Contestant]:
    raise RuntimeError(why)


def _peer(name: str, workload: Workload, threads: int) -> Iterable[Contestant]:
    module, factory = PEERS[name]
    contestants: Iterable[Contestant] = getattr(importlib.import_module(module), factory)(workload, threads)
    return contestants


def _reference(workload: Workload) -> Array:
    result: Array = importlib.import_module("benchmarks.torch_peer").reference(workload)
    return result


def _call_us(run: _Run, rest: partial[bool]) -> dict[str, float]:
    """Microseconds of each peer on next to no work: the Python call that its other figures include and ours do not."""
    nothing = Workload("call", "add", ((16,), (16,)))
    sources = {name: partial(_peer, name, nothing, run.threads) for name in run.peers}
    row = measure(nothing, run.threads, run.peers, sources, partial(_reference, nothing), Pace(min_s=0.0), rest)
    return {name: round(ms * 1e3, 2) for name, ms in row.peers.items() if ms is not None}


def _write(path: Path, about: dict[str, object], rows: Sequence[Row]) -> None:
    """Replace the file as a whole, so that it is never half-written."""
    partial_path = path.with_name(f"{path.name}.partial")
    partial_path.write_text(json.dumps({"machine": about, "rows": [row.to_json() for row in rows]}, indent=1) + "\n")
    partial_path.replace(path)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
