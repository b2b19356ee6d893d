"""Seeds: what a kernel can take over from another one that was searched before.

    kernel text  --> its structure (the text without its numbers) and its extents
    two kernels  --> how far apart: same structure, or the same reductions only;
                     then how far the extents are
    action text  --> applied as it stands, where that is legal
                 --> the nearest schedule of the space: decision by decision,
                     sizes by their ratio

An action text is data from outside: it is parsed and checked like any other, and one that breaks a
rule is no seed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

from tunegrad.errors import IllegalAction
from tunegrad.opts import Action, Schedule, Space, TraceChooser

FARTHEST = 12.0
"""Kernels whose extents are farther apart (sum of log2 of their ratios) give no seeds."""

_NUMBER = re.compile(r"(?<![\w.])\d+")
_EXTENT = re.compile(r":([0-9]{1,15})(?![0-9])")
_SAMPLES = 120
_UNMATCHED = 0.25


@dataclass(frozen=True, slots=True)
class Shape:
    """A kernel's text taken apart.

    ``structure`` has no numbers, ``pattern`` is its axes and reductions alone.

    ``extents`` are those of its axes, in order.
    """

    structure: str
    pattern: str
    extents: tuple[int, ...]

    @staticmethod
    def of(text: str) -> Shape:
        """The shape of a kernel's canonical text."""
        lines = [line.strip() for line in text.splitlines()]
        axes = [line for line in lines if line.startswith("axis ")]
        reductions = [line for line in lines if " over " in line]
        extents = [n for line in axes for n in _EXTENT.findall(line)]
        extents += [n for line in reductions for n in _EXTENT.findall(line.split(" in ", 1)[0])]
        pattern = "\n".join(_NUMBER.sub("#", line) for line in (*axes, *reductions))
        return Shape(_NUMBER.sub("#", text), pattern, tuple(map(int, extents)))


def distance(a: Shape, b: Shape) -> tuple[int, float] | None:
    """Distance of two kernels: 0 or 1 for the same structure or pattern, then how far apart their
    extents are.

    None where nothing carries over.
    """
    if a.pattern != b.pattern or len(a.extents) != len(b.extents):
        return None
    far = sum(
        abs(math.log2(max(1, x) / max(1, y))) for x, y in zip(a.extents, b.extents, strict=True)
    )
    return (0 if a.structure == b.structure else 1, far) if far <= FARTHEST else None


def seeds_from(space: Space, texts: Sequence[str], most: int) -> tuple[Schedule, ...]:
    """Up to ``most`` schedules of this space after those texts: each as it is, then adapted."""
    found: dict[str, Schedule] = {}
    for text in texts:
        if len(found) >= most:
            break
        try:
            wanted = Schedule.parse(text)
        except IllegalAction:
            continue
        near = adapted(space, wanted)
        if near is None or near.text != wanted.text:
            try:
                space.tree(wanted)
            except IllegalAction:
                pass
            else:
                found.setdefault(wanted.text, wanted)
        if near is not None:
            found.setdefault(near.text, near)
    return tuple(found.values())[:most]


def adapted(space: Space, wanted: Schedule, samples: int = _SAMPLES) -> Schedule | None:
    """The schedule of the space that is most like another kernel's; None where the space has no
    default.

    Goes down the decisions in order and takes of each the option whose schedule is nearest, until a
    round changes nothing or ``samples`` draws are used up. Nothing is random.
    """
    try:
        found = space.defaults()[0]
    except (IllegalAction, IndexError):
        return None
    best, done, left, changed = _likeness(found, wanted), 0, samples, False
    while done < len(found.trace) and left > 0 and found.text != wanted.text:
        decision = found.trace[done]
        done += 1
        for option in range(decision.options):
            if option == decision.choice or left == 0:
                continue
            left -= 1
            try:
                near = space.sample(
                    TraceChooser({d.name: d.choice for d in found.trace} | {decision.name: option})
                )
            except IllegalAction:
                continue
            if (like := _likeness(near, wanted)) > best:
                found, best, changed = near, like, True
        if (
            done >= len(found.trace) and changed
        ):  # it can have opened or spoiled others, before and after it
            done, changed = 0, False
    return found


def _likeness(schedule: Schedule, wanted: Schedule) -> float:
    """Score of a schedule against a wanted one: what of it is done, less what else is."""
    mine = [_taken_apart(a) for a in schedule.actions]
    total = 0.0
    for kind, numbers, names in map(_taken_apart, wanted.actions):
        rivals = [x for x in mine if x[0] == kind]
        if not rivals:
            continue
        nearest = max(rivals, key=lambda x: _closeness(x[1], numbers) * _agreement(x[2], names))
        total += _closeness(nearest[1], numbers) * _agreement(nearest[2], names)
        mine.remove(nearest)
    return total - _UNMATCHED * len(mine)


_Parts = tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]


def _taken_apart(action: Action) -> _Parts:
    """Parts of an action: its name and words, its sizes, and the names in its lists."""
    values = [getattr(action, f.name) for f in fields(action)]
    words = tuple(str(v) for v in values if not isinstance(v, int | tuple))
    numbers = tuple(v for v in values if isinstance(v, int))
    names = tuple(str(n) for v in values if isinstance(v, tuple) for n in v)
    return (action.name, *words), numbers, names


def _closeness(mine: Sequence[int], wanted: Sequence[int]) -> float:
    """1 for equal sizes, a half for twice or half as large ..."""
    if len(mine) != len(wanted):
        return 0.0
    far = sum(abs(math.log2(max(1, a) / max(1, b))) for a, b in zip(mine, wanted, strict=True))
    return 1.0 / (1.0 + far)


def _agreement(mine: Sequence[str], wanted: Sequence[str]) -> float:
    """The part of common pairs of names in the same order; 1 where there are none."""
    place = {name: i for i, name in enumerate(mine)}
    common = [place[name] for name in wanted if name in place]
    pairs = [(a, b) for i, a in enumerate(common) for b in common[i + 1 :]]
    return sum(a < b for a, b in pairs) / len(pairs) if pairs else 1.0
