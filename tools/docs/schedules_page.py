"""The blocks of docs/SCHEDULES.md: the hand-written schedules with their loop trees."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import partial

from benchmarks.hand_schedules import FULL, HandSchedule
from tests.best_schedules import BEST
from tunegrad.ir.program import Program, walk
from tunegrad.opts import Space

from .fences import fence

__all__ = ["BLOCKS"]


def section(entry: HandSchedule) -> str:
    """Kernel, actions, loop tree and a few facts of one schedule."""
    space = Space(entry.kernel, entry.target)
    tree, program = space.tree(entry.schedule), space.lower(entry.schedule)
    actions = "\n".join(str(a) for a in entry.schedule.actions)
    return "\n\n".join(
        [
            textwrap.fill(entry.why, 120),
            fence(str(entry.kernel)),
            fence(actions),
            fence(str(tree)),
            f"Lowered: {facts(program)}.",
        ]
    )


def facts(program: Program) -> str:
    """Instructions, scratch and packs of a program, in words."""
    count = sum(1 for _ in walk(program.body))
    words = [f"{count} instructions"]
    words += [
        f"{a.size * a.dtype.itemsize:,} bytes of {a.space} scratch for {a.name}"
        for a in program.allocs
    ]
    words += [
        f"{k.size * k.dtype.itemsize:,} bytes of {k.source} packed at load" for k in program.packs
    ]
    if program.local > 1 or program.threads > 1:
        words.append(f"{program.threads} work-groups of {program.local} work-items")
    return ", ".join(words)


def best_known(kind: str) -> str:
    """A table of the best schedules known for a kind of target."""
    rows = [
        (b.what, b.why, f"`{b.schedule.text.replace(chr(10), ' ')}`")
        for b in BEST.values()
        if b.target.kind == kind
    ]
    lines = [
        "| kernel | what makes it fast | schedule |",
        "|---|---|---|",
        *(f"| {' | '.join(r)} |" for r in rows),
    ]
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[], str]] = {
    **{name: partial(section, entry) for name, entry in FULL.items()},
    "best_known_cpu": partial(best_known, "cpu"),
    "best_known_gpu": partial(best_known, "gpu"),
}
