"""Code that lowering and rendering make of the kernels of the corpus: a golden file that is bound
to SPACE_VERSION.

    python -m tools.lowered          compare, exit 3 where code is another one
    python -m tools.lowered --write  write today's; refused where code changed and SPACE_VERSION was
                                     not raised

An action text of one space version must mean one program: rows of a store are looked up by it. A
change of lowering or rendering that changes the code of a case here raises SPACE_VERSION
(``tunegrad/opts/passes.py``), once between two releases: ``--unreleased`` says that no release has
had the version of the file, as after merging several such changes.

The file keeps the action texts, so that a change of the space or of the sketches changes nothing
here. A case that is illegal today can not run as other code: it is stale, as is a kernel that the
corpus has not any more, and both are replaced without a new version.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from benchmarks.hand_schedules import AVX512
from tests.kernel_corpus import NAMES, kernels_of
from tunegrad.compiling import build
from tunegrad.devices import program_hash
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import declared
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import SPACE_VERSION, Schedule, Space
from tunegrad.search import RandomChooser

__all__ = ["FILE", "TARGETS", "Case", "Golden", "cases", "compare", "main", "now", "read", "write"]

FILE = Path(__file__).parents[1] / "tests" / "golden" / "lowered.jsonl"

TARGETS = {
    "avx512": AVX512,
    "sse": declared(
        replace(AVX512, arch="x86-64", features=(), vector_bytes=16, registers=16, threads=2),
    ),
}
_DRAWS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel of the corpus (``conv3x3.0`` is the first of its entry) under a schedule, for a
    target.
    """

    kernel: str
    target: str
    actions: str
    hash: str


@dataclass(frozen=True, slots=True)
class Golden:
    """The contents of the file."""

    version: int
    cases: tuple[Case, ...]


def kernels() -> dict[str, Kernel]:
    """Every kernel of the corpus by its name here."""
    return {f"{name}.{i}": kernel for name in NAMES for i, kernel in enumerate(kernels_of(name))}


def cases() -> Iterator[Case]:
    """Today's: each kernel unscheduled, by default and under a few drawn schedules."""
    for name, kernel in kernels().items():
        for target, machine in TARGETS.items():
            space = Space(kernel, machine)
            texts = dict.fromkeys(["", *(s.text for s in space.defaults()), *_drawn(space)])
            yield from (
                Case(name, target, text, code)
                for text in texts
                if (code := now(kernel, target, text))
            )


def _drawn(space: Space) -> Iterator[str]:
    for seed in range(_DRAWS):
        try:
            yield space.sample(RandomChooser(Random(seed))).text
        except IllegalAction:  # answers that do not go together: another draw is as good
            continue


def now(kernel: Kernel, target: str, actions: str) -> str:
    """The hash of the program that a schedule is today; "" where it is not legal."""
    device = CpuDevice(TARGETS[target])
    try:
        return program_hash(build(kernel, Schedule.parse(actions), device))
    except IllegalAction:
        return ""


def compare(golden: Golden) -> tuple[list[str], list[str]]:
    """(cases whose code is another one today, cases that are not legal today or of no kernel), one
    a line.
    """
    known = kernels()
    changed, stale = [], []
    for case in golden.cases:
        today = now(known[case.kernel], case.target, case.actions) if case.kernel in known else ""
        line = f"{case.kernel} on {case.target}: {case.actions or '(no actions)'}"
        if not today:
            stale.append(line)
        elif today != case.hash:
            changed.append(line)
    missing = known.keys() - {case.kernel for case in golden.cases}
    return changed, [*stale, *(f"{name}: has no case" for name in sorted(missing))]


def read(path: Path = FILE) -> Golden:
    """The file: a line with the version, then one case a line."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    return Golden(
        json.loads(head)["space_version"], tuple(Case(**json.loads(line)) for line in lines)
    )


def write(golden: Golden, path: Path = FILE) -> None:
    """Write the file."""
    rows = [
        {"kernel": c.kernel, "target": c.target, "actions": c.actions, "hash": c.hash}
        for c in golden.cases
    ]
    lines = [json.dumps(x) for x in ({"space_version": golden.version}, *rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None, path: Path = FILE) -> int:
    """Run the command line; 3 where code is another one and is not written."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.lowered", description="code of the corpus, by space version"
    )
    parser.add_argument("--write", action="store_true", help="write the file instead of comparing")
    parser.add_argument(
        "--unreleased", action="store_true", help="no release has had the version of the file"
    )
    options = parser.parse_args(argv)
    golden = read(path) if path.exists() else Golden(SPACE_VERSION, ())
    changed, stale = compare(golden)
    if not options.write:
        print("\n".join([*changed, *stale]))
        print(
            f"{len(changed)} of {len(golden.cases)} cases are other code, {len(stale)} are stale",
            file=sys.stderr,
        )
        return 3 if changed or stale or golden.version != SPACE_VERSION else 0
    if changed and golden.version >= SPACE_VERSION and not options.unreleased:
        print(
            f"error: {len(changed)} of {len(golden.cases)} cases are other code "
            f"({changed[0]}), and SPACE_VERSION is "
            f"still {SPACE_VERSION}: raise it in tunegrad/opts/passes.py, or say --unreleased",
            file=sys.stderr,
        )
        return 3
    today = Golden(SPACE_VERSION, tuple(cases()))
    write(today, path)
    print(f"wrote {len(today.cases)} cases of space version {SPACE_VERSION}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
