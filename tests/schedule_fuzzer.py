"""Raw schedules of every origin: not what a search would offer, but whatever a file, a neighbour or
a user may hand in.

    raw      any actions, on any loops or none, of any sizes: 0, 1, past the extent
    walk     legal actions, each kind as often as any other
    order    loops in any order, and a legal action or two
    space    a draw of the space, its actions left out, doubled, swapped, their numbers changed
    lent     what the space of another kernel draws
    hand     a hand-written schedule of another kernel
    text     the same as text, a character of it changed

Each list is applied action by action; what is not legal must say so and leave the tree as it is,
and is left out. ``python -m tests.schedule_fuzzer 100`` draws that many for every kernel and prints
what they came to.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache

from benchmarks.hand_schedules import FULL, SMALL, conv3x3, gemm, row_sum, softmax
from tests.best_schedules import BEST
from tests.kernel_corpus import NAMES, corpus_kernel
from tests.overwriting_kernels import OVERWRITING, overwriting_kernel
from tests.schedule_checks import COMPILED, TOTALS, check
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree, loop_tree
from tunegrad.ir.target import Target
from tunegrad.opts import Action, Schedule, Space, parse_actions
from tunegrad.opts.actions import ACTIONS, Reorder, Thread

__all__ = ["KERNELS", "ORIGINS", "TWO", "draw", "fuzz", "legal_part", "wild_action"]

TWO = Target("cpu", "cpu", "x86-64", vector_bytes=16, registers=16, threads=2, l2_bytes=4096)
WIDE = replace(TWO, vector_bytes=64, registers=32, l2_bytes=1 << 20)

_DEGENERATE: dict[str, Callable[[], Kernel]] = {
    "gemm 1x7x5": lambda: gemm(1, 7, 5),
    "gemm 4x32x64": lambda: gemm(4, 32, 64),
    "gemm 3x1x13": lambda: gemm(3, 1, 13),
    "gemm 2x5x1": lambda: gemm(2, 5, 1),
    "conv3x3 1->3 5x5": lambda: conv3x3(1, 3, 5),
    "softmax 1x11": lambda: softmax(1, 11),
    "softmax 7x2": lambda: softmax(7, 2),
    "row_sum 1x17": lambda: row_sum(1, 17),
    "row_sum 11x3": lambda: row_sum(11, 3),
}
KERNELS: tuple[str, ...] = (*NAMES, *_DEGENERATE, *OVERWRITING)


@cache
def kernel_of(name: str) -> Kernel:
    if name in OVERWRITING:
        return overwriting_kernel(name)
    return _DEGENERATE[name]() if name in _DEGENERATE else corpus_kernel(name)


class _Drawn:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def choose(self, name: str, options: Sequence[object], default: int) -> int:
        return default if self.rng.random() < 0.3 else self.rng.randrange(len(options))


def wild_action(tree: LoopTree, rng: random.Random) -> Action:
    """An action of any kind with any arguments; now and then they make sense."""
    cls = ACTIONS[rng.choice(sorted(ACTIONS))]
    given = {f.name: _WILD[f.name](tree, rng) for f in fields(cls)}
    return cls(**given)


def _loop(tree: LoopTree, rng: random.Random) -> str:
    names = [x.name for x in tree.loops]
    return (
        rng.choice(names)
        if rng.random() < 0.9
        else rng.choice(("z", "a", "b0", "ra1", "sa", "load"))
    )


def _number(tree: LoopTree, rng: random.Random) -> int:
    extent = rng.choice(tree.loops).extent
    return rng.choice(
        (
            0,
            1,
            2,
            2,
            2,
            3,
            4,
            4,
            5,
            7,
            8,
            13,
            16,
            64,
            512,
            extent,
            extent + 1,
            max(0, extent - 1),
            -1,
        )
    )


def _names(tree: LoopTree, rng: random.Random) -> tuple[str, ...]:
    names = [x.name for x in tree.loops]
    return tuple(rng.sample(names, rng.randrange(len(names) + 1)))


def _param(tree: LoopTree, rng: random.Random) -> str:
    return rng.choice([p.name for p in tree.kernel.params])


_WILD: dict[str, Callable[[LoopTree, random.Random], object]] = {
    "axis": _loop, "outer": _loop, "inner": _loop, "size": _number, "count": _number,
    "multiple": _number, "loop": _loop, "slots": lambda tree, rng: rng.randrange(10),
    "distance": lambda tree, rng: rng.choice((0, 64, 512, 1 << 17)), "stage": lambda tree,
    rng: rng.randrange(-1, 4),
    "order": _names, "layout": lambda tree, rng: _names(tree, rng) if rng.random() < 0.5 else (),
    "m": _loop, "n": _loop, "k": _loop,
    "unit": lambda tree, rng: rng.choice((*tree.target.matrix_units, "m1n1k1_f32_f32")),
    "param": _param, "at": lambda tree, rng: rng.choice(("", "load", _loop(tree, rng))),
}  # fmt: skip


def _raw(space: Space, rng: random.Random) -> tuple[Action, ...]:
    """Grown on the tree that the legal ones so far give, so that most names mean something."""
    tree, found = loop_tree(space.kernel, space.target), []
    for _ in range(rng.randrange(4, 60)):
        action = wild_action(tree, rng)
        found.append(action)
        try:
            tree = action.apply(tree)
        except IllegalAction:
            continue
    return tuple(found)


def _walk(space: Space, rng: random.Random) -> tuple[Action, ...]:
    """Some steps, each an option of a kind that has one: so kinds that are seldom legal are met."""
    return _walked(loop_tree(space.kernel, space.target), rng, rng.randrange(2, 10))


def _ordered(space: Space, rng: random.Random) -> tuple[Action, ...]:
    """Loops in any order, of which most keep partial sums, and a step or two."""
    tree = loop_tree(space.kernel, space.target)
    names = [x.name for x in tree.loops]
    with suppress(IllegalAction):
        order = Reorder(tuple(rng.sample(names, len(names))))
        return order, *_walked(order.apply(tree), rng, rng.randrange(3))
    return _walk(space, rng)


def _walked(tree: LoopTree, rng: random.Random, steps: int) -> tuple[Action, ...]:
    found: list[Action] = []
    for _ in range(steps):
        for kind in rng.sample(sorted(ACTIONS), len(ACTIONS)):
            if options := list(ACTIONS[kind].options(tree)):
                found.append(rng.choice(options))
                tree = found[-1].apply(tree)
                break
    return tuple(found)


def _sampled(space: Space, rng: random.Random) -> tuple[Action, ...]:
    try:
        return space.sample(_Drawn(rng)).actions
    except IllegalAction:
        return ()


def _disturbed(space: Space, rng: random.Random) -> tuple[Action, ...]:
    actions = list(_sampled(space, rng))
    for _ in range(rng.randrange(1, 4) if actions else 0):
        at, to = rng.randrange(len(actions)), rng.randrange(len(actions))
        change = rng.randrange(4)
        if change == 0 and len(actions) > 1:
            del actions[at]
        elif change == 1:
            actions.insert(to, actions[at])
        elif change == 2:
            actions[at], actions[to] = actions[to], actions[at]
        else:
            (actions[at],) = parse_actions(
                re.sub(r"\b\d+\b", lambda m: str(_near(int(m[0]), rng)), str(actions[at]))
            )
    return tuple(actions)


def _near(n: int, rng: random.Random) -> int:
    return rng.choice((max(0, n - 1), n + 1, 2 * n, n // 2, 1, 2))


def _lent(space: Space, rng: random.Random) -> tuple[Action, ...]:
    return _sampled(Space(kernel_of(rng.choice(KERNELS)), space.target), rng)


def _hand(space: Space, rng: random.Random) -> tuple[Action, ...]:
    texts = [
        *(b.actions for b in BEST.values()),
        *(h.actions for h in (*FULL.values(), *SMALL.values())),
    ]
    return _smaller(parse_actions(rng.choice(texts)), rng)


def _smaller(actions: tuple[Action, ...], rng: random.Random) -> tuple[Action, ...]:
    """With tiles that kernels of a test can have: the numbers divided by a power of two, now and
    then.
    """
    by = rng.choice((1, 2, 4, 8))
    return parse_actions(
        re.sub(
            r"size=(\d+)", lambda m: f"size={max(1, int(m[1]) // by)}", " ".join(map(str, actions))
        )
    )


def _text(space: Space, rng: random.Random) -> tuple[Action, ...]:
    text = " ".join(map(str, rng.choice((_disturbed, _lent, _hand))(space, rng)))
    places = [i for i, c in enumerate(text) if c.isdigit()] if rng.random() < 0.7 else []
    at = rng.choice(places) if places else rng.randrange(len(text) + 1)
    return parse_actions(
        text[:at] + rng.choice("0123456789" if places else "0123456789abr(),= ") + text[at + 1 :]
    )


ORIGINS: dict[str, Callable[[Space, random.Random], tuple[Action, ...]]] = {
    "raw": _raw, "walk": _walk, "order": _ordered, "space": _disturbed, "lent": _lent,
    "hand": _hand, "text": _text,
}  # fmt: skip


def legal_part(space: Space, actions: tuple[Action, ...], counts: Counter[str]) -> Schedule:
    """The actions that are legal one after the other; all others raise IllegalAction and leave the
    tree as it is.
    """
    tree, taken = loop_tree(space.kernel, space.target), []
    for action in actions:
        before, text = replace(tree), str(tree)
        try:
            tree = action.apply(tree)
        except IllegalAction:
            assert (tree, str(tree)) == (before, text), (
                f"{action} changed the tree it is not legal on"
            )
            counts["actions refused"] += 1
        else:
            assert (before, str(before)) == (before, text), (
                f"{action} changed the tree it was applied to"
            )
            taken.append(action)
            counts["actions taken"] += 1
    return Schedule(tuple(taken))


def _threads(space: Space, actions: tuple[Action, ...], rng: random.Random) -> list[Action]:
    """Most schedules end with a loop shared out, if one can be."""
    tree = space.tree(legal_part(space, actions, Counter()))
    shared = [x.name for x in tree.loops if x.stage < 0]
    return [
        Thread(rng.choice(shared), rng.choice((0, 2)))
        for _ in range(rng.choice((0, 2, 4)) if shared else 0)
    ]


def draw(name: str, seed: int, counts: Counter[str]) -> tuple[Space, Schedule] | None:
    """A schedule of some origin for a kernel; None, counted, for a text that does not parse."""
    rng = random.Random(f"{name} {seed}")
    space = Space(kernel_of(name), rng.choice((TWO, TWO, WIDE)))
    origin = sorted(ORIGINS)[seed % len(ORIGINS)]
    counts[f"drawn: {origin}"] += 1
    try:
        actions = ORIGINS[origin](space, rng)
    except IllegalAction:
        counts["text that does not parse"] += 1
        return None
    schedule = legal_part(space, (*actions, *_threads(space, actions, rng)), counts)
    assert space.tree(Schedule.parse(schedule.text)) == space.tree(schedule), schedule.text
    return space, schedule


def fuzz(name: str, seeds: range) -> Counter[str]:
    """Draws, lowers, interprets, compiles and compares; what came of each."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        drawn = draw(name, seed, counts)
        if drawn is None:
            continue
        space, schedule = drawn
        try:
            program = space.lower(schedule)
        except IllegalAction as error:
            counts[
                "refused when lowered: a race" if "a race" in str(error) else "refused when lowered"
            ] += 1
            continue
        counts["on two threads"] += program.threads == 2
        counts.update(
            check(
                space.kernel, program, f"{name} seed {seed}: {schedule.text}", seed, compiled=True
            )
        )
    TOTALS.update(
        {k: n for k, n in counts.items() if k != COMPILED and not k.startswith("compared")}
    )
    return counts


if __name__ == "__main__":
    total: Counter[str] = Counter()
    for kernel in KERNELS:
        total += fuzz(kernel, range(int(sys.argv[1])))
    for what, n in sorted(total.items()):
        sys.stdout.write(f"{n:8d} {what}\n")
