"""Schedules of every origin, raw ones too: what is legal computes what its kernel says, compiled,
on two threads. A wrong primitive is met within a hundred of them.
"""

from __future__ import annotations

import random

import pytest

from tests.rewrite_faults import Fault, planted
from tests.schedule_checks import COMPILED, INTERPRETED, TOO_LARGE, check
from tests.schedule_fuzzer import KERNELS, ORIGINS, TWO, fuzz, kernel_of
from tunegrad.errors import TunegradError
from tunegrad.opts import Schedule, Space

DRAWS = len(ORIGINS)


@pytest.mark.parametrize("name", KERNELS)
def test_schedules_of_any_origin_agree_when_compiled(name: str) -> None:
    counts = fuzz(name, range(DRAWS))
    assert sum(counts[f"drawn: {origin}"] for origin in ORIGINS) == DRAWS
    unread = counts["text that does not parse"] + counts["refused when lowered"]
    races = counts["refused when lowered: a race"]
    assert races <= 1, (
        "actions let them through"
    )  # of fused loops, tiled and shared, one is unproved
    assert counts[INTERPRETED] + counts[TOO_LARGE] + unread == DRAWS
    assert counts[COMPILED] >= DRAWS - unread - 1
    assert counts[COMPILED] >= DRAWS // 2


_LOOPS, _REGION = ".opts.actions.loops:", ".opts.lowering.region:Region."
_COPIES = ".opts.lowering.copies:"

WRONG_PRIMITIVES = (
    Fault("tile drops its tail", _LOOPS + "Tile.apply",
          "-(-loop.extent // self.size)", "max(1, loop.extent // self.size)", ""),
    Fault("tile steps by its outer extent", _LOOPS + "Tile.apply",
          "* self.size + var(inner", "* outer.extent + var(inner", ""),
    Fault("fuse parts by the outer extent", _LOOPS + "Fuse.apply",
          "a.name: v // b.extent", "a.name: v // a.extent", ""),
    Fault("fuse wraps at the outer extent", _LOOPS + "Fuse.apply",
          "b.name: v % b.extent", "b.name: v % a.extent", ""),
    Fault("upcast loses an odd copy of a sum", _REGION + "_combine",
          "totals = paired + totals[len(totals) // 2 * 2 :]", "totals = paired", ""),
    Fault("upcast keeps the first copy of a sum", _REGION + "_combine",
          "while len(totals) > 1:", "while False:", ""),
    Fault("group takes the greatest lane", _REGION + "_combine",
          "return b.fold(s.op, totals[0], s.dtype)",
          "return b.fold(expr.Op.MAX, totals[0], s.dtype)", ""),
    Fault("vectorize computes all lanes of a tail", _REGION + "active",
          "return None if n >= lane.extent else n", "return None", ""),
    Fault("upcast computes a point past a tail", _REGION + "points", "< rest", "<= rest", ""),
    Fault("reorder adds to what lay in the output", _REGION + "partial_sums",
          "self.branch(first, lambda: None, add_earlier)",
          "self.branch(first, add_earlier, add_earlier)", ""),
    Fault("reorder begins partial sums anew", _REGION + "partial_sums",
          "self.branch(first, lambda: None, add_earlier)",
          "self.branch(first, lambda: None, None)", ""),
    Fault("reorder finishes no sum", _REGION + "partial_sums",
          "self.branch(last, finish, keep)", "self.branch(last, keep, keep)", ""),
    Fault("tile peels a whole tile", _REGION + "_peel",
          "{**limits, shape.axis: shape.rest}", "limits", ""),
    Fault("stage leaves out what is no whole vector", _COPIES + "_by_loops",
          "if rest:", "if False:", ""),
    Fault("stage copies while others read", _COPIES + "emit_copies",
          "if together and again:", "if False:", ""),
    Fault("stage is read before it is copied", _COPIES + "emit_copies",
          "    if together:\n", "    if False:\n", ""),
    Fault("stage lies in the opposite order", _COPIES + "_part",
          "in reversed(p.variables)", "in p.variables", ""),
)  # fmt: skip


def samples_until_caught(fault: Fault, seed: str, most: int = 100) -> int:
    """Schedules of drawn kernels until one of them shows a wrong primitive; more than ``most``
    where none does.
    """
    rng = random.Random(f"{fault.name} {seed}")
    with planted(fault):
        for count in range(1, most + 1):
            name, at = rng.choice(KERNELS), rng.randrange(1 << 30)
            try:
                if fuzz(name, range(at, at + 1))["refused when lowered: a race"]:
                    return count
            except (AssertionError, TunegradError, LookupError, ValueError):
                return count
    return most + 1


_AT_ONCE = ("tile", "vectorize", "stage leaves", "stage lies", "upcast keeps")
"""Those that a few schedules show; the others take seconds."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(f, id=f.name, marks=[] if f.name.startswith(_AT_ONCE) else pytest.mark.slow)
        for f in WRONG_PRIMITIVES
    ],
)
def test_a_wrong_primitive_is_caught_within_a_hundred_schedules(fault: Fault) -> None:
    assert any(samples_until_caught(fault, seed) < 100 for seed in "abc")


def test_sums_of_an_unrolled_loop_that_is_cut_are_lowered_beside_others() -> None:
    """Their cut is of no loop: a walk met a KeyError."""
    space = Space(kernel_of("row_sums"), TWO)
    for text in ("unroll(axis=ra)", "unroll(axis=rb)", "unroll(axis=ra) unroll(axis=rb)"):
        schedule = Schedule.parse(text)
        assert INTERPRETED in check(space.kernel, space.lower(schedule), text)
