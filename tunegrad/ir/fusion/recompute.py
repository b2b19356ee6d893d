"""Elementwise results that are computed a second time, so that they need not be kept in between.

    launch gelu (t1, t0)                       launch gelu (t1, t0)
    launch matmul (t2, t1, w)                  launch matmul (t2, t1, w)
    ...                               -->      ...
                                               launch gelu (t9, t0)
    launch matmul (dw, t1, g)                  launch matmul (dw, t9, g)

A tensor counts that lives at the launch where most bytes do, is not touched there, and is made
element by element of tensors that live on anyway. Each is worth its own bytes there, and costs
those that its kernel reads and writes; the cheapest come first, while all of them together cost
little of what the plan reads and writes. No kernel is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .plan import Buffer, Launch, LaunchPlan

__all__ = ["recomputed"]

_SHARE = 1 / 32
"""Of the bytes that a plan's kernels read and write, those that may be added."""
_SMALL = 1 / 16
"""Of the bytes that are saved, those of sources that have to live longer for it."""


def recomputed(plan: LaunchPlan) -> LaunchPlan:
    """The plan with some elementwise results computed again; the same object where none are."""
    left = _SHARE * sum(_traffic(plan, x) for x in plan.launches)
    while (found := _cheapest(plan, left)) is not None:
        left -= _traffic(plan, plan.launches[found.writer])
        plan = _again(plan, found)
    return plan


@dataclass(frozen=True, slots=True)
class _Found:
    """A buffer, the launch that writes it, and the launch before which it is computed again."""

    buffer: int
    writer: int
    reader: int


def _cheapest(plan: LaunchPlan, most_bytes: float) -> _Found | None:
    """The buffer that saves most for the bytes that are read and written for it."""
    touched: dict[int, list[int]] = {}
    for n, launch in enumerate(plan.launches):
        for i in set(map(plan.memory, launch.args)):
            touched.setdefault(i, []).append(n)
    temps = [b for b in plan.buffers if b.role == "temp" and b.nbytes and b.id in touched]
    top = _top(temps, touched, len(plan.launches))
    viewed = {b.base for b in plan.buffers if b.base is not None}
    best, least = None, 0.0
    for b in temps:
        first, last = touched[b.id][0], touched[b.id][-1]
        if not first < top < last or top in touched[b.id] or b.id in viewed:
            continue
        launch = plan.launches[first]
        reader = next(n for n in touched[b.id] if n > top)
        cost = _traffic(plan, launch)
        if cost > most_bytes or not _is_elementwise(launch):
            continue
        late = sum(
            plan.buffers[i].nbytes
            for i in map(plan.memory, launch.args)
            if plan.buffers[i].role == "temp" and i != b.id and touched[i][-1] < reader
        )
        worth = (b.nbytes - late) / cost
        if late <= _SMALL * b.nbytes and worth > least:
            best, least = _Found(b.id, first, reader), worth
    return best


def _top(temps: Sequence[Buffer], touched: dict[int, list[int]], count: int) -> int:
    """The launch at which most bytes live."""
    change = [0] * (count + 1)
    for b in temps:
        change[touched[b.id][0]] += b.nbytes
        change[touched[b.id][-1] + 1] -= b.nbytes
    live, most, at = 0, -1, 0
    for n in range(count):
        live += change[n]
        if live > most:
            most, at = live, n
    return at


def _is_elementwise(launch: Launch) -> bool:
    kernel = launch.kernel
    return not kernel.reduces and sum(p.role == "out" for p in kernel.params) == 1


def _traffic(plan: LaunchPlan, launch: Launch) -> int:
    """Bytes of the buffers that a launch reads and writes."""
    return sum(plan.buffers[i].nbytes for i in launch.args)


def _again(plan: LaunchPlan, found: _Found) -> LaunchPlan:
    new, kept = len(plan.buffers), plan.buffers[found.buffer]
    made = replace(kept, id=new, name=f"{kept.name} again")
    launches = list(plan.launches)

    def renamed(launch: Launch) -> Launch:
        return replace(launch, args=tuple(new if i == found.buffer else i for i in launch.args))

    after = [renamed(x) for x in launches[found.reader :]]
    again = renamed(launches[found.writer])
    return replace(
        plan,
        buffers=(*plan.buffers, made),
        launches=(*launches[: found.reader], again, *after),
    )
