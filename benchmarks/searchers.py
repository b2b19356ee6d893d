"""Races searchers for fast schedules, live, with the same number of trials on each kernel.

    python -m benchmarks.searchers --trials 100 --json searchers.json

    once: every kernel, the other searcher           -->  rows, the memory of what was tuned before
    then, kernel by kernel, all from the defaults on:
        the other searcher (beam), with no store     --+
        the default searcher, with no store          --+-->  curves of the best time so far,
        the default searcher, with the others' rows  --+     then the winners, in turns

The kernels are those of the suite ``kernels`` as they are before a variant is chosen, but for the
longest ones. Rows of a kernel itself are left out of the memory that it is searched with: seeds are
of other kernels.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean, median

from benchmarks.machine import describe
from benchmarks.ours import function_of
from benchmarks.plain_beam import BareBeam, PlainBeam
from benchmarks.workloads import Workload, laid_out, select
from tunegrad.compiling import HOOKS, Payload
from tunegrad.db import Store, open_store
from tunegrad.devices import Beside, Candidate, DeviceMeasurer, Limits
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import fingerprint, host_target
from tunegrad.errors import InternalError
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.search import KernelSearch, Searcher, SearchTask, TrialLog, decide, make_searcher
from tunegrad.trial import Fingerprint, Measured, Trial
from tunegrad.tuning.executor import CandidateMeasurer
from tunegrad.tuning.seeding import Seeding
from tunegrad.tuning.session import SEARCH_POLICY
from tunegrad.tuning.workload import workload_of_function

__all__ = ["Played", "main"]

_BATCH = 8
_ROUNDS = 15
_LONGEST = ("gemm 2048", "add 16M", "copy 64 MB", "sum 2^26", "column sum 2^24x4")
"""Hundreds of candidates of these take minutes each, and their spaces are those of shorter ones."""

COLD, WARM = "alone", "with store"
"""The searcher without, and with rows of other kernels."""

_RIVALS = {rival.origin: rival for rival in (PlainBeam, BareBeam)}

_SIGNS = {1: " faster", 0: "", -1: " slower"}


@dataclass(frozen=True, slots=True)
class Played:
    """One search: the best time, in seconds, after the defaults and after each further trial; and
    what won.
    """

    curve: tuple[float, ...]
    actions: str

    def area(self, best_s: float) -> float:
        """The mean of ln(best so far / ``best_s``) over the trials after the defaults."""
        return fmean(math.log(s / best_s) for s in self.curve[1:])


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a kernel.

    Areas by contestant; ``ratio`` is the other searcher's final time over the contestant's.

    ``faster`` is 1 where the contestant's winner is proved faster in turns, -1 where the other's
    is, else 0.
    """

    kernel: str
    default_ms: float
    areas: dict[str, float]
    ratio: dict[str, float]
    faster: dict[str, int]


class Arena:
    """This machine, and searches on it. Mutable: it has worker processes."""

    def __init__(self, target: Target, device: DeviceMeasurer, trials: int, seed: int) -> None:
        self.target, self.trials, self.seed = target, trials, seed
        self.here: Fingerprint = fingerprint(target)
        self.device = device
        self.measurer = CandidateMeasurer(device, SEARCH_POLICY)

    def play(self, kernel: Kernel, searcher: str, memory: Store, session: str) -> Played:
        """Search a kernel that ``memory`` has no row of, seeds from there; the rows go
        there.
        """
        log = TrialLog(memory, self.here, SEARCH_POLICY, session, time.time)
        space = Space(kernel, self.target)
        rng = Random(f"{self.seed} {kernel.key}")
        asked: Searcher = (
            _RIVALS[searcher](space, rng)
            if searcher in _RIVALS
            else make_searcher(searcher, space, rng)
        )
        seeding = Seeding(memory, self.here, SEARCH_POLICY, frozenset({session}))
        search = KernelSearch(
            SearchTask.of(kernel),
            space,
            asked,
            self.measurer,
            log,
            seeds=lambda: seeding.seeds(kernel, space),
        )
        search.finish(search.begin_defaults())
        first = len(search.trials)
        search.finish(search.begin_seeds(self.trials))
        while not search.done and (left := first + self.trials - len(search.trials)) > 0:
            search.step(min(_BATCH, left))
        best_s, curve = math.inf, []
        for place, trial in enumerate(search.trials, 1):
            best_s = min(best_s, trial.measurement.seconds if trial.measurement.ran else math.inf)
            if place >= first:
                curve.append(best_s)
        curve += [best_s] * (1 + self.trials - len(curve))
        return Played(tuple(curve), search.winner.actions)

    def compared(self, kernel: Kernel, other: Played, mine: Played) -> tuple[float, int]:
        """The other's winner against mine, in turns: the ratio of their times, and the sign of a
        proved difference.
        """
        if other.actions == mine.actions:
            return 1.0, 0
        a, b = (Schedule.parse(p.actions) for p in (other, mine))
        theirs, ours = self._in_turns(kernel, a, b)
        won, lost = decide(theirs, ours).promoted, decide(ours, theirs).promoted
        return median(theirs) / median(ours), int(won) - int(lost)

    def _in_turns(
        self, kernel: Kernel, a: Schedule, b: Schedule
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Samples of two schedules, in seconds."""
        pair = [Candidate(kernel.key, Payload(kernel, s.text, self.device.device)) for s in (a, b)]
        one, other = self.device.compile(pair)
        if isinstance(one, Measured) or isinstance(other, Measured):
            raise InternalError(f"kernel {kernel.name}: a winner does not compile any more")
        policy = replace(SEARCH_POLICY, min_samples=_ROUNDS, max_samples=_ROUNDS)
        found = self.device.measure_compiled(pair[1], other, policy, beside=Beside(one, 1.0))
        return found.reference_samples_s, found.samples_s


def kernel_of(workload: Workload) -> Kernel:
    """The kernel of a workload that has most to compute; images are channels-last."""
    layout = "nhwc" if workload.has_images else "nchw"
    work = workload_of_function(function_of(workload, layout), laid_out(workload, layout))
    return max((use.kernel for use in work.kernels), key=lambda k: k.flops)


def copied(rows: Sequence[Trial], without: str) -> Store:
    """A store of the rows of all kernels but one."""
    store = open_store(":memory:", "write")
    with store.together():
        for trial in rows:
            if trial.kernel_key != without:
                store.add(trial)
    return store


def remembered(arena: Arena, kernels: dict[str, Kernel], searcher: str) -> list[Trial]:
    """The rows of a search of every kernel."""
    rows: list[Trial] = []
    for name, kernel in kernels.items():
        with open_store(":memory:", "write") as store:
            arena.play(kernel, searcher, store, "memory")
            rows += store.trials(kernel.key)
        print(f"remembered: {name}", file=sys.stderr, flush=True)
    return rows


def measured(arena: Arena, kernels: dict[str, Kernel], searcher: str, other: str) -> list[Row]:
    """A row for each kernel, printed as it comes; the first contestant changes from kernel to
    kernel.
    """
    known = remembered(arena, kernels, other)
    rows = []
    print(
        f"| kernel | default ms | {other} | {COLD} | {WARM} | {other} / {COLD} | {other} / {WARM} |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for number, (name, kernel) in enumerate(kernels.items()):
        turns = [(other, other, ()), (COLD, searcher, ()), (WARM, searcher, known)]
        played: dict[str, Played] = {}
        for who, asked, memory in turns[number % 3 :] + turns[: number % 3]:
            with copied(memory, kernel.key) as store:
                played[who] = arena.play(kernel, asked, store, "played")
        best_s = min(p.curve[-1] for p in played.values())
        found = {who: arena.compared(kernel, played[other], played[who]) for who in (COLD, WARM)}
        row = Row(
            name,
            1e3 * played[other].curve[0],
            {who: played[who].area(best_s) for who, *_ in turns},
            {who: ratio for who, (ratio, _) in found.items()},
            {who: sign for who, (_, sign) in found.items()},
        )
        areas = (f"{x:.4f}" for x in row.areas.values())
        ratios = (f"{ratio:.3f}{_SIGNS[row.faster[who]]}" for who, ratio in row.ratio.items())
        print("|", " | ".join([name, f"{row.default_ms:.4g}", *areas, *ratios]), "|", flush=True)
        rows.append(row)
    return rows


def summary(rows: Sequence[Row], other: str) -> str:
    """Of how many kernels each contestant's area is smaller, and its final time proved smaller."""
    lines = []
    for who in rows[0].ratio:
        smaller = sum(r.areas[who] < r.areas[other] for r in rows)
        faster, slower = (sum(r.faster[who] == sign for r in rows) for sign in (1, -1))
        ratio = math.exp(fmean(math.log(r.ratio[who]) for r in rows))
        means = fmean(r.areas[who] for r in rows), fmean(r.areas[other] for r in rows)
        lines.append(
            f"{who}: smaller area than {other} on {smaller} of {len(rows)} kernels, "
            f"mean {means[0]:.4f} to {means[1]:.4f}; final time proved smaller on {faster}, "
            f"larger on {slower}, "
            f"{other} / {who} {ratio:.3f} in the mean"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table and a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--trials", type=int, default=100, help="of each search, its defaults not counted"
    )
    parser.add_argument("--searcher", default="portfolio")
    parser.add_argument(
        "--other",
        default="beam",
        help=f"a searcher, or one that learns nothing: {', '.join(map(repr, _RIVALS))}",
    )
    parser.add_argument("--only", nargs="*", default=[], help="workloads of the suite kernels")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    target = host_target(given.threads)
    chosen = [w for w in select("kernels", given.only) if given.only or w.name not in _LONGEST]
    kernels = {w.name: kernel_of(w) for w in chosen}
    with DeviceMeasurer(CpuDevice(target), HOOKS, Limits(), given.seed) as device:
        rows = measured(
            Arena(target, device, given.trials, given.seed), kernels, given.searcher, given.other
        )
    print(summary(rows, given.other))
    if given.json:
        found = {
            "machine": describe(sys.argv, given.threads),
            "arguments": vars(given),
            "rows": [asdict(r) for r in rows],
        }
        given.json.write_text(json.dumps(found, indent=1, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
