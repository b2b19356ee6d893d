"""Neighbours of a schedule: the same list with one action changed, left out or added, with the time
that the store has, or the rule that each breaks.

    tile(axis=b, size=6)  ->  tile(axis=b, size=4)      0.5612 ms   1.12x
    without unroll(axis=rc)                             0.5310 ms   1.06x
    upcast(axis=b1)  ->  upcast(axis=a1)                illegal: vectorize(axis=c2): ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from math import inf

from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree
from tunegrad.ir.target import Target
from tunegrad.opts import Action, Schedule, Space, parse_actions, print_actions
from tunegrad.reports import Neighbour
from tunegrad.trial import Trial

__all__ = ["neighbours"]

_MOST = 400
"""Lists that are looked at beside those in the store."""


def neighbours(
    kernel: Kernel, target: Target, schedule: Schedule, trials: Sequence[Trial]
) -> tuple[Neighbour, ...]:
    """The neighbours of a schedule: those that the store has, the fastest first; those that failed;
    those that are not legal; those that were not tried.

    ``trials`` are the kernel's, of one machine and space version, as the store counts them. Costs
    are over the row of the schedule itself, where it has one: both beside the same reference.
    """
    actions, rows = schedule.actions, {t.actions: t for t in trials}
    own = rows.get(schedule.text)
    own_s = own.measurement.seconds if own and own.measurement.ran else inf
    found: dict[str, Neighbour] = {}
    for text, trial in rows.items():
        change = _one_change(actions, _parsed(text))
        if change:
            found[text] = _tried(change, trial, own_s)
    space = Space(kernel, target)
    for changed, change in _made(space, actions):
        text = print_actions(changed)
        if text not in found and text != schedule.text:
            found[text] = _untried(space, changed, change)
    return tuple(sorted(found.values(), key=_order))


_RANK = {"tried": 0, "failed": 1, "illegal": 2, "not tried": 3}


def _order(n: Neighbour) -> tuple[int, float, str]:
    return _RANK[n.kind], n.ms if n.ms is not None else inf, n.change


def _tried(change: str, trial: Trial, own_s: float) -> Neighbour:
    m = trial.measurement
    if not m.ran:
        said = m.error.strip().splitlines()
        return Neighbour(change, "failed", why=f"{m.status}: {said[0] if said else ''}".strip(": "))
    cost = m.seconds / own_s if own_s < inf else None
    return Neighbour(change, "tried", 1e3 * m.seconds, cost, origin=trial.origin)


def _untried(space: Space, changed: Sequence[Action], change: str) -> Neighbour:
    try:
        space.tree(Schedule(tuple(changed)))
    except IllegalAction as error:
        name = space.kernel.name
        said = str(error).removesuffix(f" (kernel {name})").removesuffix(f" in kernel {name}")
        return Neighbour(change, "illegal", why=" ".join(said.split()))
    return Neighbour(change, "not tried")


def _parsed(text: str) -> tuple[Action, ...] | None:
    try:
        return parse_actions(text)
    except IllegalAction:
        return None


def _one_change(mine: Sequence[Action], theirs: Sequence[Action] | None) -> str:
    """The change in the other list, where it is of one action; else ""."""
    if theirs is None or abs(len(mine) - len(theirs)) > 1:
        return ""
    head = 0
    while head < min(len(mine), len(theirs)) and mine[head] == theirs[head]:
        head += 1
    tail = 0
    while tail < min(len(mine), len(theirs)) - head and mine[-1 - tail] == theirs[-1 - tail]:
        tail += 1
    before, after = mine[head : len(mine) - tail], theirs[head : len(theirs) - tail]
    if len(before) > 1 or len(after) > 1 or not (before or after):
        return ""
    if not after:
        return f"without {before[0]}"
    return f"{before[0]}  ->  {after[0]}" if before else f"with {after[0]}"


def _made(space: Space, actions: Sequence[Action]) -> Iterator[tuple[tuple[Action, ...], str]]:
    """Lists with an argument of one action changed to another that is legal where it stands, with
    one left out, or one added at the end; and what was done.
    """
    count = 0
    tree: LoopTree = space.tree(Schedule(()))
    for n, action in enumerate(actions):
        before, rest = tuple(actions[:n]), tuple(actions[n + 1 :])
        yield (*before, *rest), f"without {action}"
        for other in type(action).options(tree):
            if _one_argument_changed(action, other) and count < _MOST:
                count += 1
                yield (*before, other, *rest), f"{action}  ->  {other}"
        tree = action.apply(tree)
    for other in space.actions(Schedule(tuple(actions))):
        if count < _MOST:
            count += 1
            yield (*actions, other), f"with {other}"


def _one_argument_changed(a: Action, b: Action) -> bool:
    """True when one argument differs: the axis only where there is nothing else to choose."""
    names = [f.name for f in fields(a)]
    changed = [name for name in names if getattr(a, name) != getattr(b, name)]
    return len(changed) == 1 and (changed != ["axis"] or len(names) == 1)
