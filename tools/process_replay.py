"""The gate for refactors: what the compiler makes of a corpus of kernels, before and after.

    python -m tools.process_replay capture before.json [--decisions N]
    ... change the code ...
    python -m tools.process_replay compare before.json [after.json]

A capture holds, for every kernel of the corpus on every target under many schedules: kernel text,
action text, the hash of the program and of the rendered text. Everything follows from the code, so
two captures of one commit are equal, on any machine and with any hash seed. ``compare`` prints
every case that differs and in what, and exits 3.

    python -m tools.process_replay gate           today's code against tests/golden/replay.jsonl
    python -m tools.process_replay gate --write   after a change that means to change code

The gate is that comparison with a capture that the repository keeps, of hashes: a test of the
default run. A refactor leaves the file alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from random import Random

from benchmarks.hand_schedules import AVX512, FULL, GPU, SMALL
from tests.kernel_corpus import NAMES, kernels_of
from tunegrad.devices.cuda.architectures import typical
from tunegrad.devices.host.facts import declared
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.render.cuda import render_cuda
from tunegrad.render.llvm import render_llvm
from tunegrad.render.opencl import render_opencl
from tunegrad.search import RandomChooser

__all__ = [
    "GATE",
    "Case",
    "capture",
    "differences",
    "gate",
    "load",
    "main",
    "read_gate",
    "save",
    "write_gate",
]

VERSION = 1
"""Of the file's form."""

GATE = Path(__file__).parents[1] / "tests" / "golden" / "replay.jsonl"
_GATE_DECISIONS = 2
_DIGITS = 16

_SSE = declared(
    replace(AVX512, arch="x86-64", vector_bytes=16, registers=16, threads=1, l2_bytes=4096),
)
_TARGETS: dict[str, tuple[Target, Callable[[Program], str]]] = {
    "avx512": (AVX512, render_llvm),
    "sse": (_SSE, render_llvm),
    "gpu": (GPU, render_opencl),
    "sm_90a": (typical("sm_90a"), render_cuda),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel under one schedule.

    ``name`` says where it came from and pairs it with the same case of another capture. ``illegal``
    is the message where the schedule is not legal; the hashes are empty then.
    """

    name: str
    kernel: str
    target: str
    actions: str
    program: str = ""
    text: str = ""
    illegal: str = ""


def capture(decisions: int = 4, names: Sequence[str] = NAMES) -> tuple[Case, ...]:
    """Every case of today's code.

    Hand-written schedules, and ``names`` of the corpus unscheduled, by default and under
    ``decisions`` random draws.
    """
    found = [*_hand()] if tuple(names) == NAMES else []
    for target in _TARGETS:
        for name in names:
            for i, kernel in enumerate(kernels_of(name)):
                found += _cases(f"{name}.{i}", kernel, target, decisions)
    return tuple(found)


def _hand() -> Iterator[Case]:
    for size, table in (("full", FULL), ("small", SMALL)):
        for name, entry in table.items():
            target = "gpu" if entry.target is GPU else "avx512"
            yield _case(f"hand.{name}.{size}", entry.kernel, target, entry.schedule)


def _cases(name: str, kernel: Kernel, target: str, decisions: int) -> Iterator[Case]:
    space = Space(kernel, _TARGETS[target][0])
    yield _case(f"{name}.{target}.unscheduled", kernel, target, Schedule(()))
    for i, schedule in enumerate(space.defaults()):
        yield _case(f"{name}.{target}.default{i}", kernel, target, schedule)
    for seed in range(decisions):
        case = f"{name}.{target}.random{seed}"
        try:
            schedule = space.sample(RandomChooser(Random(seed)))
        except IllegalAction as error:
            yield Case(case, kernel.text, target, "", illegal=str(error))
            continue
        yield _case(case, kernel, target, schedule)


def _case(name: str, kernel: Kernel, target: str, schedule: Schedule) -> Case:
    machine, render = _TARGETS[target]
    try:
        program = Space(kernel, machine).lower(schedule)
    except IllegalAction as error:
        return Case(name, kernel.text, target, schedule.text, illegal=str(error))
    text = hashlib.sha256(render(program).encode()).hexdigest()[:32]
    return Case(name, kernel.text, target, schedule.text, program.hash, text)


def save(cases: Sequence[Case], path: Path) -> None:
    """Write a capture as JSON."""
    data = {"version": VERSION, "cases": [asdict(c) for c in cases]}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> tuple[Case, ...]:
    """Read a capture. Raises ValueError for a file that is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise ValueError(f"{path}: version {data['version']}, this tool reads {VERSION}")
        return tuple(Case(**c) for c in data["cases"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: no capture of this tool ({error})") from error


def gate(names: Sequence[str] = NAMES) -> tuple[Case, ...]:
    """Today's cases as the repository keeps them: kernel, actions and messages as hashes."""
    return tuple(
        replace(
            c,
            kernel=_short(c.kernel),
            actions=_short(c.actions),
            program=c.program[:_DIGITS],
            text=c.text[:_DIGITS],
            illegal=_short(c.illegal),
        )
        for c in capture(_GATE_DECISIONS, names)
    )


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS] if text else ""


def write_gate(cases: Sequence[Case], path: Path = GATE) -> None:
    """Write the file of the gate: a case a line."""
    names = [f.name for f in fields(Case)]
    lines = [json.dumps([getattr(c, name) for name in names]) for c in cases]
    path.write_text("\n".join([json.dumps(names), *lines]) + "\n", encoding="utf-8")


def read_gate(path: Path = GATE) -> tuple[Case, ...]:
    """Read the file of the gate."""
    names, *rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return tuple(Case(**dict(zip(names, row, strict=True))) for row in rows)


def differences(before: Sequence[Case], after: Sequence[Case]) -> list[str]:
    """A line for every case that is not the same, and for every one that only one capture has."""
    old, new = {c.name: c for c in before}, {c.name: c for c in after}
    lines = []
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        if a is None or b is None:
            lines.append(f"{name}: only {'after' if a is None else 'before'}")
            continue
        changed = [f.name for f in fields(Case) if getattr(a, f.name) != getattr(b, f.name)]
        if changed:
            lines.append(f"{name}: {', '.join(changed)} changed{_detail(a, b, changed)}")
    return lines


def _detail(a: Case, b: Case, changed: list[str]) -> str:
    shown = [
        f"\n    {x}\n      {getattr(a, x)}\n      {getattr(b, x)}"
        for x in ("actions", "illegal")
        if x in changed
    ]
    return "".join(shown)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 3 when two captures differ, 1 for a file that can not be read."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.process_replay", description="the gate for refactors"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    taking = commands.add_parser("capture", help="write what today's code makes")
    taking.add_argument("file", type=Path)
    comparing = commands.add_parser(
        "compare", help="compare a capture with another, or with today's code"
    )
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path, nargs="?")
    gating = commands.add_parser("gate", help="compare today's code with what the repository keeps")
    gating.add_argument("--write", action="store_true", help="keep today's")
    for command in (taking, comparing):
        command.add_argument(
            "--decisions", type=int, default=4, help="random schedules per kernel (default 4)"
        )
    options = parser.parse_args(argv)
    if options.command == "capture":
        save(capture(options.decisions), options.file)
        return 0
    if options.command == "gate" and options.write:
        write_gate(gate())
        return 0
    try:
        if options.command == "gate":
            before, after = read_gate(), gate()
        else:
            before = load(options.before)
            after = load(options.after) if options.after else capture(options.decisions)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    found = differences(before, after)
    print("\n".join([*found, f"{len(found)} of {len(before)} cases differ"]))
    return 3 if found else 0


if __name__ == "__main__":
    sys.exit(main())
