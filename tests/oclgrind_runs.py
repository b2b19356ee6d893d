"""Runs corpus schedules under Oclgrind, which simulates work-items and reports bad accesses.

    OCLGRIND_DATA_RACES=1 python -m tests.oclgrind_runs [--fault barrier|bounds] DRAWS NAME...

Oclgrind reads its settings when a process loads it, hence a process of its own. Its reports go to
stderr; the answers are compared here, and their number goes to stdout.
"""

from __future__ import annotations

import argparse
import sys
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


def without_barriers(program: Program) -> Program:
    """The program, nobody waiting for anybody."""

    def block(body: tuple[Instr, ...]) -> tuple[Instr, ...]:
        found: list[Instr] = []
        for i in body:
            if isinstance(i, For):
                found.append(replace(i, body=block(i.body)))
            elif isinstance(i, If):
                found.append(replace(i, body=block(i.body), orelse=block(i.orelse)))
            elif not isinstance(i, Barrier):
                found.append(i)
        return tuple(found)

    return replace(program, body=block(program.body))


def past_the_end(program: Program) -> Program:
    """The program, its stores to outputs moved past the output and the guard behind it."""
    outputs = {p.name: p.size for p in program.params if p.role == "out"}

    def block(body: tuple[Instr, ...]) -> tuple[Instr, ...]:
        found: list[Instr] = []
        for i in body:
            if isinstance(i, For):
                found.append(replace(i, body=block(i.body)))
            elif isinstance(i, If):
                found.append(replace(i, body=block(i.body), orelse=block(i.orelse)))
            elif isinstance(i, Store) and i.buffer in outputs:
                found.append(replace(i, offset=i.offset + outputs[i.buffer] + 64))
            else:
                found.append(i)
        return tuple(found)

    return replace(program, body=block(program.body))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["barrier", "bounds"])
    parser.add_argument("draws", type=int)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    on = platform("Oclgrind")
    if on is None:
        return 4
    cases = list(corpus_cases(given.names or (*NAMES, *EXTRA), TARGET, given.draws))
    if given.fault:
        plant = without_barriers if given.fault == "barrier" else past_the_end
        cases = [replace(c, program=plant(c.program)) for c in cases if has_barriers(c.program)][:1]
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
