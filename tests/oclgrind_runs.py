"""Runs corpus schedules under Oclgrind, which simulates work-items and reports bad accesses.

    OCLGRIND_DATA_RACES=1 python -m tests.oclgrind_runs [--plain] [--fault FAULT] DRAWS NAME...

Oclgrind reads its settings when a process loads it, hence a process of its own. Its reports go to
stderr; the answers are compared here, and their number goes to stdout.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace

from benchmarks.hand_schedules import GPU
from tests.kernel_corpus import NAMES
from tests.opencl_batches import (
    EXTRA,
    check_cases,
    corpus_cases,
    has_barriers,
    platform,
    uses_shared,
)
from tunegrad.ir.program import Barrier, For, If, Instr, Program, Store

TARGET = replace(GPU, max_local=64)
"""Small groups: a simulated work-item takes microseconds an instruction."""


def changed(program: Program, change: Callable[[Instr], Instr | None]) -> Program:
    """The program with every instruction that is no loop or branch changed, or dropped at None."""

    def block(body: tuple[Instr, ...]) -> tuple[Instr, ...]:
        found: list[Instr] = []
        for i in body:
            if isinstance(i, For):
                found.append(replace(i, body=block(i.body)))
            elif isinstance(i, If):
                found.append(replace(i, body=block(i.body), orelse=block(i.orelse)))
            elif (new := change(i)) is not None:
                found.append(new)
        return tuple(found)

    return replace(program, body=block(program.body))


def without_barriers(program: Program) -> Program:
    """The program, nobody waiting for anybody."""
    return changed(program, lambda i: None if isinstance(i, Barrier) else i)


def past_the_end(program: Program) -> Program:
    """The program, its stores to outputs moved past the output and the guard behind it."""
    sizes = {p.name: p.size for p in program.params if p.role == "out"}

    def moved(i: Instr) -> Instr:
        if isinstance(i, Store) and i.buffer in sizes:
            return replace(i, offset=i.offset + sizes[i.buffer] + 64)
        return i

    return changed(program, moved)


def without_copies(program: Program) -> Program:
    """The program, nothing stored to shared memory."""
    shared = {a.name for a in program.allocs if a.space == "shared"}
    return changed(program, lambda i: None if isinstance(i, Store) and i.buffer in shared else i)


FAULTS = {"barrier": without_barriers, "bounds": past_the_end, "unwritten": without_copies}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--plain", action="store_true", help="not optimised")
    parser.add_argument("draws", type=int)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    on = platform("Oclgrind")
    if on is None:
        return 4
    if given.plain:  # optimised code has a "freeze" of what nobody wrote, which is then no report
        on.options = (*on.options, "-cl-opt-disable")
    cases = list(corpus_cases(given.names or (*NAMES, *EXTRA), TARGET, given.draws))
    if given.fault:
        case = next(c for c in cases if has_barriers(c.program))
        cases = [replace(case, program=FAULTS[given.fault](case.program))]
    try:
        check_cases(on, cases)
    except AssertionError as error:
        if not given.fault:
            raise
        sys.stdout.write(f"wrong: {str(error)[:200]}\n")  # a planted fault may show here, too
    shared = sum(uses_shared(c.program) for c in cases)
    sys.stdout.write(f"ran {len(cases)} cases, {shared} with shared memory\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
