"""Elementwise results that are computed a second time, so that they need not be kept in between.

    launch gelu (t1, t0)                       launch gelu (t1, t0)
    launch matmul (t2, t1, w)                  launch matmul (t2, t1, w)
    ...                               -->      ...
                                               launch gelu (t9, t0)
    launch matmul (dw, t1, g)                  launch matmul (dw, t9, g)

A tensor counts that lives at the launch where most bytes do, is not touched there, and is made
element by element of tensors that live on anyway. Each is worth its own bytes there, and costs
the time of its kernel; the cheapest come first, while all of them together take little of the
plan's time. No kernel is new.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tunegrad.lazy import dataclass

from .plan import Buffer, Launch, LaunchPlan

_SHARE = 1 / 60
"""Of a plan's time, as far as bytes and operations say, the part that may be added."""
_OPERATIONS = 8
"""Operations in the time in which a byte is read or written: 100 Gflop/s and 12 GB/s."""
_SMALL = 1 / 16
"""Of the bytes that are saved, those of sources that have to live longer for it."""


def recomputed(plan: LaunchPlan) -> LaunchPlan:
    """The plan with some elementwise results computed again; the same object where none are."""
    left = _SHARE * sum(_time(plan, x) for x in plan.launches)
    while (found := _cheapest(plan, left)) is not None:
        left -= _time(plan, plan.launches[found.writer])
        plan = _again(plan, found)
    return plan


@dataclass(frozen=True, slots=True)
class _Found:
    """Buffers, the launch that writes them, and the launch before which they are computed again."""

    buffers: tuple[int, ...]
    writer: int
    reader: int


def _cheapest(plan: LaunchPlan, most: float) -> _Found | None:
    """The buffers of a launch that save most for the time that they take."""
    touched, pieces = plan.touched, plan.pieces
    temps = {
        b.id: b for b in plan.buffers
        if b.role in ("temp", "view") and b.nbytes and b.id in touched
    }  # fmt: skip
    top = _top(temps.values(), touched, len(plan.launches))
    viewed = {i for b in plan.buffers if b.base is not None for i in (b.base, b.id)}
    best, least = None, 0.0
    for n, launch in enumerate(plan.launches[:top]):
        cost = _time(plan, launch)
        if launch.kernel.reduces or cost > most:
            continue
        outs = launch.writes
        if any(i not in temps or i in viewed or top in touched[i] for i in outs):
            continue
        kept = tuple(i for i in outs if touched[i][-1] > top)
        if not kept or not any(n < m < top for i in outs for m in touched[i]):
            continue  # nothing reads it before: computed again, the first launch would be needless
        reader = min(m for i in kept for m in touched[i] if m > top)
        late = sum(
            temps[i].nbytes
            for i in {i for arg in launch.reads for i in pieces[arg]}
            if i in temps and touched[i][-1] < reader
        )
        saved = sum(temps[i].nbytes for i in kept)
        if late <= _SMALL * saved and (saved - late) / cost > least:
            best, least = _Found(outs, n, reader), (saved - late) / cost
    return best


def _top(temps: Collection[Buffer], touched: dict[int, list[int]], count: int) -> int:
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


def _time(plan: LaunchPlan, launch: Launch) -> float:
    """The time of a launch, in that of a byte."""
    moved = sum(plan.buffers[i].nbytes for i in launch.args)
    return max(moved, launch.kernel.flops / _OPERATIONS)


def _again(plan: LaunchPlan, found: _Found) -> LaunchPlan:
    new = {i: len(plan.buffers) + n for n, i in enumerate(found.buffers)}
    made = tuple(
        replace(plan.buffers[i], id=at, name=f"{plan.buffers[i].name} again")
        for i, at in new.items()
    )

    def renamed(launch: Launch) -> Launch:
        return replace(launch, args=tuple(new.get(i, i) for i in launch.args))

    before, after = plan.launches[: found.reader], plan.launches[found.reader :]
    again = renamed(plan.launches[found.writer])
    return replace(
        plan,
        buffers=(*plan.buffers, *made),
        launches=(*before, again, *map(renamed, after)),
    )
