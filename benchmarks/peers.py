"""tunegrad next to its peers, interleaved in this one process.

    python -m benchmarks.peers --suite kernels --threads 2 --json kernels.json
    python -m benchmarks.peers --suite models --budget 5m --store tuned.db
    python -m benchmarks.peers --suite convs --threads 1 --budget 0 --pace quick
        --resume convs.json --json convs.json

The table goes to stderr, the JSON to ``--json`` (rewritten after every row, so an interrupted run
keeps its rows, and ``--resume`` takes it up again).
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks import machine, ours
from benchmarks.contestants import Contestant
from benchmarks.interleave import FULL, QUICK, Pace, rest_until_quiet
from benchmarks.lineup import Source, measure, reason
from benchmarks.results import resumed, write
from benchmarks.rows import DEFAULT, TUNED, UNTUNED, Row, table
from benchmarks.summary import summary
from benchmarks.workloads import SUITES, Array, Workload, select

__all__ = ["PEERS", "main", "parse_seconds"]


@dataclass(frozen=True, slots=True)
class _Peer:
    """The module that makes a peer's contestants, and the operations it takes part in or leaves
    out.
    """

    module: str
    factory: str
    only: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()

    def takes(self, op: str) -> bool:
        return op not in self.never and (not self.only or op in self.only)


_COPY = frozenset(
    {"copy"}
)  # a graph runtime drops a copy, or does it while it hands out its result
PEERS: dict[str, _Peer] = {
    "torch": _Peer("benchmarks.torch_peer", "eager"),
    "inductor": _Peer("benchmarks.torch_peer", "inductor"),
    "ort": _Peer("benchmarks.ort_peer", "contestants", never=_COPY),
    "openvino": _Peer("benchmarks.openvino_peer", "contestants", never=_COPY),
    "memcpy": _Peer("benchmarks.memcpy_peer", "contestants", only=_COPY),
}
_LAYOUTS = {"best": ("nchw", "nhwc"), "nchw": ("nchw",)}
_PACES: dict[str, Pace] = {"full": FULL, "quick": QUICK}
_MODELS_BUDGET_S, _KERNEL_BUDGET_S = 300.0, 30.0


@dataclass(frozen=True, slots=True)
class _Run:
    """The settings of one run. ``store`` is None for a new one that ends with the run."""

    threads: int
    peers: tuple[str, ...]
    peers_only: bool
    budget_s: float
    store: Path | None
    seed: int
    layout: str
    pace: str

    @property
    def layouts(self) -> tuple[str, ...]:
        return _LAYOUTS[self.layout]

    @property
    def has_tuned(self) -> bool:
        """True if there are winners to run with: tuned now, or in a store that was given."""
        return self.budget_s > 0 or self.store is not None

    def settings(self, about: Mapping[str, object]) -> dict[str, object]:
        """Settings that rows must have in common to stand in one table."""
        store = "" if self.store is None else str(self.store)
        return asdict(self) | {"store": store, "cpu": about["cpu"], "versions": about["versions"]}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when every workload has a row, 2 for a wrong argument."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    parser = _parser()
    options = parser.parse_args(arguments)
    about = machine.describe(
        ("python", "-m", "benchmarks.peers", *map(shlex.quote, arguments)), options.threads
    )
    run = _run(options)
    try:
        workloads = select(options.suite, options.only)
        unknown = sorted(set(options.peers) - set(PEERS))
        if unknown:
            raise ValueError(f"--peers {unknown[0]!r}: the peers are {', '.join(PEERS)}")
        kept = {} if options.resume is None else resumed(options.resume, run.settings(about))
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="tunegrad-bench-") as folder:
        machine.prepare(options.threads, Path(folder))
        rows = _rows(run, workloads, kept, Path(folder), about, options.json)
    _say(table(rows, run.peers, peers_only=run.peers_only))
    _say(summary(rows))
    _say("\n".join(f"{key}: {value}" for key, value in about.items()))
    return 0


def _run(options: argparse.Namespace) -> _Run:
    budget_s = _MODELS_BUDGET_S if SUITES[options.suite][0].is_model else _KERNEL_BUDGET_S
    if options.budget is not None:
        budget_s = options.budget
    return _Run(
        threads=options.threads,
        peers=options.peers,
        peers_only=options.peers_only,
        budget_s=budget_s,
        store=options.store,
        seed=options.seed,
        layout=options.layout,
        pace=options.pace,
    )


def parse_seconds(text: str) -> float:
    """``"90"``, ``"30s"``, ``"5m"`` or ``"1h"`` in seconds; 0 means "no tuning, take the store as
    it is".
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90, 30s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--suite", choices=sorted(SUITES), required=True, help="kernels: all suites without models"
    )
    parser.add_argument(
        "--threads", type=_positive, default=len(machine.cores()), help="of each contestant"
    )
    parser.add_argument("--json", type=Path, help="write the rows and the machine to this file")
    parser.add_argument(
        "--resume", type=Path, help="keep the rows of this file, of a run with the same settings"
    )
    parser.add_argument(
        "--only", type=_names, default=(), help="names of workloads, separated by commas"
    )
    parser.add_argument(
        "--peers", type=_names, default=tuple(PEERS), help=f"of {', '.join(PEERS)}; default: all"
    )
    parser.add_argument("--peers-only", action="store_true", help="leave tunegrad out")
    parser.add_argument(
        "--layout",
        choices=sorted(_LAYOUTS),
        default="best",
        help="of images: each contestant's best, or NCHW for all",
    )
    parser.add_argument(
        "--pace", choices=sorted(_PACES), default="full", help="quick: fewer and shorter turns"
    )
    parser.add_argument(
        "--budget",
        type=parse_seconds,
        help="of tuning, per workload: 30s for kernels, 5m for models",
    )
    parser.add_argument(
        "--store",
        type=Path,
        help="tune into and run from this store; without: a new, temporary one",
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of threads (1 or more)")
    return int(text)


def _rows(
    run: _Run,
    workloads: Sequence[Workload],
    kept: Mapping[str, Row],
    folder: Path,
    about: dict[str, object],
    path: Path | None,
) -> list[Row]:
    """Measure workload after workload; Ctrl-C keeps the rows so far, and those that there were
    before.
    """
    done = dict(kept)
    rest = partial(rest_until_quiet, restore=machine.cores())

    def save() -> None:
        if path is not None:
            write(path, about, run.settings(about), _in_order(done))

    try:
        for i, workload in enumerate(workloads, 1):
            if workload.name in kept:
                _say(f"[{i}/{len(workloads)}] {workload.name}: kept")
                continue
            start_s = time.monotonic()
            done[workload.name] = row = _row(run, workload, run.store or folder / "tuned.db", rest)
            _say(
                f"[{i}/{len(workloads)}] {workload.name}: {_news(row)}, "
                f"{time.monotonic() - start_s:.0f} s"
            )
            save()
        if any(not workload.is_model for workload in workloads):
            about["call_us"] = _call_us(run, rest)
    except KeyboardInterrupt:
        _say("interrupted: the rows so far follow")
    save()
    return [done[w.name] for w in workloads if w.name in done]


def _in_order(rows: Mapping[str, Row]) -> list[Row]:
    names = [w.name for suite in SUITES.values() for w in suite]
    return [rows[name] for name in dict.fromkeys(names) if name in rows]


def _news(row: Row) -> str:
    """One row in a few words, while the others are measured."""
    best = "no peer" if row.best_peer is None else f"{row.best_peer[0]} {row.best_peer[1]:.4g} ms"
    return best if row.ours_ms is None else f"{row.ours_ms:.4g} ms, {best}"


def _row(run: _Run, workload: Workload, store: Path, rest: partial[bool]) -> Row:
    tuning: ours.Tuning | None = None
    why = "" if run.has_tuned else UNTUNED
    if not run.peers_only and run.budget_s > 0:
        try:
            tuning = ours.tune(workload, run.threads, run.layouts, store, run.budget_s, run.seed)
        except Exception as error:  # noqa: BLE001  the library under test: its column says why, the peers go on
            why = f"tuning failed, {reason(error)}"
    sources = {} if run.peers_only else _our_sources(run, workload, store, why)
    before = machine.Usage.now()
    row = _measured(run, workload, sources, rest)
    row = replace(
        row, notes=row.notes + machine.bystanders(before, machine.Usage.now(), os.cpu_count() or 1)
    )
    if why and not run.peers_only:
        row = replace(row, errors={**row.errors, TUNED: why})
    if tuning is None:
        return row
    # The report's share of the peak belongs to its own timing; carry it over to the interleaved
    # one.
    pct_peak = tuning.pct_peak
    if pct_peak is not None and tuning.tuned_ms is not None and row.tuned_ms is not None:
        pct_peak *= tuning.tuned_ms / row.tuned_ms
    return replace(row, pct_peak=pct_peak, tune_s=tuning.tune_s, candidates=tuning.candidates)


def _measured(
    run: _Run, workload: Workload, our_sources: Mapping[str, Source], rest: partial[bool]
) -> Row:
    peers = tuple(name for name in run.peers if PEERS[name].takes(workload.op))
    sources: dict[str, Source] = {
        name: partial(_peer, name, workload, run.threads) for name in peers
    }
    return measure(
        workload,
        run.threads,
        peers,
        sources | dict(our_sources),
        partial(_reference, workload),
        _PACES[run.pace],
        rest,
        run.layouts,
    )


def _our_sources(run: _Run, workload: Workload, store: Path, not_tuned: str) -> dict[str, Source]:
    sources: dict[str, Source] = {
        DEFAULT: partial(ours.untuned, workload, run.threads, run.layouts)
    }
    if not not_tuned:
        sources[TUNED] = partial(ours.tuned, workload, run.threads, run.layouts, store)
    return sources


def _peer(name: str, workload: Workload, threads: int) -> Iterable[Contestant]:
    peer = PEERS[name]
    factory = getattr(importlib.import_module(peer.module), peer.factory)
    contestants: Iterable[Contestant] = factory(workload, threads)
    return contestants


def _reference(workload: Workload) -> Array:
    result: Array = importlib.import_module("benchmarks.torch_peer").reference(workload)
    return result


def _call_us(run: _Run, rest: partial[bool]) -> dict[str, float]:
    """Microseconds of each peer on next to no work: the Python call that its other figures include
    and ours do not.
    """
    row = _measured(replace(run, pace="quick"), Workload("call", "add", ((16,), (16,))), {}, rest)
    return {name: round(ms * 1e3, 2) for name, ms in row.peers.items() if ms is not None}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
