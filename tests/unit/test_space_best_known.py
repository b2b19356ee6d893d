"""The space contains the best schedule known for every kernel of the table, and draws from it are
legal.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import combinations, count
from math import prod
from random import Random

import pytest
from best_schedules import BEST, Best
from kernel_corpus import corpus_kernel

from benchmarks.hand import entries, worst_error
from benchmarks.hand_schedules import FULL, GPU, HandSchedule
from benchmarks.single_kernel import SingleKernel, draw_arrays
from tests.schedule_checks import assert_agrees
from tests.verifiers.program import verify_program
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import Team
from tunegrad.errors import IllegalAction
from tunegrad.ir.looptree import LoopTree
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.opts import Schedule, Space, TraceChooser
from tunegrad.search import RandomChooser

EVERY = [pytest.param(b, id=b.name) for b in BEST.values()]
MOST_ILLEGAL = 0.05
MOST_WORK = 300_000


def marks(tree: LoopTree) -> Counter[object]:
    """What makes a loop tree what it is: its loops, which is inside which, what is copied where,
    what is hinted.
    """
    found: Counter[object] = Counter()
    found.update((x.name, x.extent, x.kind, x.count) for x in tree.loops)
    serial = [x.name for x in tree.loops if not x.kind.is_register]
    found.update(combinations(serial, 2))
    found.update((s.param, s.at, s.layout) for s in tree.staged)
    found.update(
        (
            *(("kept", k) for k in tree.kept),
            *(("streamed", s) for s in tree.streamed),
            *tree.prefetched,
        )
    )
    return found


def contained(space: Space, best: Schedule, samples: int = 3000) -> Schedule | None:
    """Decisions of the space whose schedule lowers to the program of ``best``; None when they are
    not found.

    From the nearest of the default and what one other answer makes of it, decision by decision in
    both orders, to the option whose loop tree is nearest; where that ends, from the nearest one
    that was left aside.
    """
    wanted, program = marks(space.tree(best)), program_hash(space, best)
    default = space.defaults()[0]
    starts = [default, *(s for d in default.trace for s in changed(space, default, d.name))]
    order, seen = count(), {s.text for s in starts}
    waiting = [(distance(wanted, space, s), next(order), s) for s in starts]
    heapify(waiting)
    while waiting and len(seen) < samples:
        away, _, start = heappop(waiting)
        if away == 0:
            return start if program_hash(space, start) == program else None
        names = [d.name for d in start.trace]
        for walk in (names, names[::-1]):
            near, nearest = start, away
            for name in walk:
                for schedule in changed(space, near, name):
                    if schedule.text not in seen:
                        seen.add(schedule.text)
                        heard = distance(wanted, space, schedule)
                        heappush(waiting, (heard, next(order), schedule))
                        if heard < nearest:
                            near, nearest = schedule, heard
    return None


def program_hash(space: Space, schedule: Schedule) -> str:
    """Of the program, whatever order its scratch is declared in: that follows the order of the
    ``stage`` actions.
    """
    program = space.lower(schedule)
    return replace(program, allocs=tuple(sorted(program.allocs, key=lambda a: a.name))).hash


def changed(space: Space, schedule: Schedule, name: str) -> Iterator[Schedule]:
    """The schedules that differ from one in the decision of that name."""
    choices = {d.name: d.choice for d in schedule.trace}
    for choice in range(next((d.options for d in schedule.trace if d.name == name), 0)):
        if choice != choices[name]:
            try:
                yield space.sample(TraceChooser(choices | {name: choice}))
            except IllegalAction:
                continue


def distance(wanted: Counter[object], space: Space, schedule: Schedule) -> float:
    try:
        mine = marks(space.tree(schedule))
    except IllegalAction:
        return float("inf")
    return ((wanted - mine) + (mine - wanted)).total()


def difference(space: Space, best: Schedule) -> str:
    """How the default differs, for the message of a failure."""
    default = marks(space.tree(space.defaults()[0]))
    wanted = marks(space.tree(best))
    return f"wanted {[*(wanted - default)]}, the default has {[*(default - wanted)]}"


def is_whole(hand: HandSchedule) -> bool:
    """Written for every core of its target, so that the space, which shares out work, can be asked
    for it.
    """
    return hand.target.kind == "gpu" or "thread(" in hand.actions


def test_space_table_has_40_different_kernels():
    assert len({b.kernel.key for b in BEST.values() if b.target.kind == "cpu"}) >= 40
    assert len({b.kernel.key for b in BEST.values() if b.target.kind == "gpu"}) >= 5


@pytest.mark.parametrize("best", EVERY)
def test_space_best_known_schedule_is_legal(best: Best):
    verify_kernel(best.kernel)
    program = Space(best.kernel, best.target).lower(best.schedule)
    assert verify_program(program) == (), "every access is proved in bounds"
    if best.kernel.points * prod(a.extent for r in best.kernel.reduces for a in r.axes) < MOST_WORK:
        assert_agrees(best.kernel, program, best.actions)


def is_sampled(best: Best) -> bool:
    """On the CPU, with outputs to draw from, in numbers that numpy has."""
    return best.target.kind == "cpu" and best.name not in ("full_sum", "gemm_bf16")


@pytest.mark.slow
@pytest.mark.parametrize("best", [b for b in EVERY if is_sampled(b.values[0])])
def test_space_best_known_schedule_is_right_at_full_size(best: Best):
    target, team = host_target(2), Team(2)
    program = Space(best.kernel, replace(best.target, threads=2)).lower(best.schedule)
    with SingleKernel(program, target, team, draw_arrays(best.kernel, 0)) as loaded:
        assert worst_error(best, loaded, points=40) < 1e-4
    team.close()


@pytest.mark.parametrize("best", EVERY)
def test_space_contains_the_best_known_schedule(best: Best):
    space = Space(best.kernel, best.target)
    assert contained(space, best.schedule) is not None, difference(space, best.schedule)


@pytest.mark.parametrize(
    "hand", [pytest.param(h, id=h.name) for h in (*entries(2), *FULL.values()) if is_whole(h)]
)
def test_space_contains_the_hand_written_schedules(hand: HandSchedule):
    space = Space(hand.kernel, hand.target)
    assert contained(space, hand.schedule) is not None, difference(space, hand.schedule)


def test_space_does_not_contain_what_no_decision_gives():
    best = BEST["gemm_512"]
    other = Schedule.parse(best.actions.replace("size=14", "size=27").replace("size=32", "size=16"))
    space = Space(best.kernel, best.target)
    space.lower(other)
    assert contained(space, other, samples=400) is None


def illegal_share(best: Best, draws: int, lowered: int) -> tuple[float, str]:
    """Share of random decision lists that no program comes of, every ``lowered``-th of them
    lowered; one reason.
    """
    space, chooser = Space(best.kernel, best.target), RandomChooser(Random(best.name))
    illegal, why = 0, ""
    for i in range(draws):
        try:
            schedule = space.sample(chooser)
            if i % lowered == 0:
                space.lower(schedule)
            else:
                space.tree(schedule)
        except IllegalAction as error:
            illegal, why = illegal + 1, str(error)
    return illegal / draws, why


def assert_mostly_legal(draws: int, lowered: int) -> None:
    shares = {b.name: illegal_share(b, draws, lowered) for b in BEST.values()}
    worst = max(shares, key=lambda name: shares[name][0])
    share, why = shares[worst]
    sys.stdout.write(
        f"worst of {len(shares)} kernels: {worst}, {share:.1%} of {draws} draws illegal {why}\n"
    )
    assert share <= MOST_ILLEGAL, (
        f"{worst}: {share:.1%} of {draws} draws are illegal, the last one because {why}"
    )


def test_space_draws_are_legal():
    assert_mostly_legal(draws=80, lowered=20)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_space_draws_are_legal_and_lower():
    assert_mostly_legal(draws=200, lowered=1)


def test_space_draws_on_a_gpu_agree_with_the_interpreter():
    target = replace(GPU, max_local=16, shared_bytes=2 << 10)
    for name in (
        "gemm_prime",
        "conv3x3",
        "conv3x3s2",
        "scores",
        "row_max",
        "column_sum",
        "softmax",
        "layer_norm",
    ):
        for seed in range(3):
            space = Space(corpus_kernel(name), target)
            schedule = space.sample(RandomChooser(Random(seed)))
            assert_agrees(space.kernel, space.lower(schedule), schedule.text)
