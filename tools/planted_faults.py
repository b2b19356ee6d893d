"""Plants every fault of the tests many times, and prints how often each was caught.

    python -m tools.planted_faults                       each fault a hundred times
    python -m tools.planted_faults rewrites --runs 10    faults in rewrites, seen by their laws
    python -m tools.planted_faults candidates            wrong candidates, measured on the CPU
    python -m tools.planted_faults --only relu           those whose name has this word
    python -m tools.planted_faults --part 2/4            each fourth of them, from the second on

A line is printed when a fault has had its runs, and a summary at the end. The right kernel of each
wrong candidate is measured once in ten runs. Exit code 1: a fault was missed, or a right kernel was
called wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tests.fault_kernels import CASES, TARGET, OutOfTimeError, is_caught, measured
from tests.faults import HOOKS
from tests.hostile_programs import Unguarded
from tests.rewrite_faults import FAULTS, is_seen
from tunegrad.devices import DeviceMeasurer, Limits
from tunegrad.devices.processes.isolated import preload
from tunegrad.trial import Status

__all__ = ["Row", "main"]

_HONEST = 10
"""Of so many runs one measures the right kernel, too."""

_LIMITS = Limits(worker_start_s=86_400.0, compile_s=3600.0, reference_s=3600.0)
"""A worker is waited for until it says that it is ready, or dies: nothing else here needs an end,
and a machine that runs a hundred times each fault is often busy.
"""

_TRIES = 10
"""Of a run that the machine ended: neither caught nor missed."""


@dataclass(frozen=True, slots=True)
class Row:
    """A fault, its runs, those in which it was missed, and what ended others before that could be
    said.
    """

    kind: str
    fault: str
    runs: int
    missed: tuple[int, ...]
    errors: tuple[str, ...]

    @property
    def caught(self) -> int:
        """Runs in which it was caught."""
        return self.runs - len(self.missed) - len(self.errors)

    def __str__(self) -> str:
        caught = f"{self.caught}/{self.runs}"
        missed = f"  missed: {', '.join(map(str, self.missed))}" if self.missed else ""
        error = f"  {len(self.errors)} more: {self.errors[0]}" if self.errors else ""
        return f"{self.kind:10}  {caught:>7}  {self.fault}{missed}{error}"


def _row(kind: str, fault: str, runs: int, caught: Callable[[int], bool]) -> Row:
    missed, errors = [], []
    for run in range(runs):
        try:
            if not _in_time(caught, run):
                missed.append(run)
        except AssertionError as error:
            errors.append(f"run {run}: {error}")
    return Row(kind, fault, runs, tuple(missed), tuple(errors))


def _in_time(caught: Callable[[int], bool], run: int) -> bool:
    """Whether a fault was caught, in a try that the machine let end."""
    for _ in range(_TRIES - 1):
        with suppress(OutOfTimeError):
            return caught(run)
    return caught(run)


Chosen = Callable[[Iterable[str]], list[str]]
"""Names that are asked for, of all."""


def _rewrites(runs: int, chosen: Chosen) -> Iterator[Row]:
    faults = {f.name: f for f in FAULTS}
    for name in chosen(faults):
        yield _row("rewrites", name, runs, partial(is_seen, faults[name]))


def _candidates(runs: int, chosen: Chosen) -> Iterator[Row]:
    preload(["tools.planted_faults"])  # a worker for each run imports none of it again
    with DeviceMeasurer(Unguarded(TARGET), HOOKS, _LIMITS, compile_workers=1) as device:
        for name in chosen(CASES):
            yield _row("candidates", name, runs, partial(_is_caught, device, name))


def _is_caught(device: DeviceMeasurer, name: str, run: int) -> bool:
    if run % _HONEST == 0:
        honest = measured(device, name, run, plant=False)
        assert honest.status is Status.OK, f"a right kernel: {honest.error}"
    return is_caught(device, name, run)


KINDS: dict[str, Callable[[int, Chosen], Iterator[Row]]] = {
    "rewrites": _rewrites,
    "candidates": _candidates,
}


def main(arguments: Sequence[str]) -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.planted_faults", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="both by default")
    parser.add_argument("--runs", type=int, default=100, help="of each fault (default 100)")
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="each N-th, from the I-th on")
    given = parser.parse_args(arguments)
    first, step = map(int, given.part.split("/"))
    found = []

    def chosen(names: Iterable[str]) -> list[str]:
        return [name for name in names if given.only in name][first - 1 :: step]

    for kind in given.kinds or KINDS:
        for row in KINDS[kind](given.runs, chosen):
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()
            found.append(row)
    status = 0
    for kind in KINDS:
        rows = [r for r in found if r.kind == kind]
        if not rows:
            continue
        right = sum(r.caught == r.runs for r in rows)
        sys.stdout.write(
            f"{kind}: {right} of {len(rows)} faults caught each time; "
            f"{sum(r.caught for r in rows)} of {sum(r.runs for r in rows)} runs\n"
        )
        status |= right < len(rows)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
