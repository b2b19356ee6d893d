"""The candidates of one kernel, from the rows that the store has of them.

tile(axis=b, size=16) vectorize(axis=b1)   -->   parameters: "tile b" is 16, "vectorize" is b1
times by the values of one parameter       -->   its importance, and the worth of the winner's
lists one action away from the winner's    -->   neighbours

Texts of schedules are only split, not applied: they may be of another version.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import TypeVar

import numpy as np

from tunegrad.reports import Neighbour
from tunegrad.search import explained
from tunegrad.trial import Trial

from .records import Parameter, Search

_ACTION = re.compile(r"\w+\((?:[^()]|\([^()]*\))*\)")

_MOST_PARAMETERS, _MOST_VALUES, _MOST_NEIGHBOURS = 24, 400, 12


@lru_cache(1 << 14)
def _split(text: str) -> tuple[str, ...]:
    """The actions of a schedule's text, one by one."""
    return tuple(_ACTION.findall(text))


def source_of(trial: Trial) -> str:
    """Source of a proposal, without what a file's origin adds."""
    return trial.origin.split(" ", 1)[0] or "unknown"


def search_of(
    trials: Sequence[Trial], searched_s: Mapping[int, float], winner: str
) -> Search | None:
    """The search of one kernel: its trials in the order of measuring, and the seconds that each
    took of the session, by ``id``; None where fewer than two ran. ``winner`` is what won.
    """
    ran = [t for t in trials if t.measurement.ran]
    if len(ran) < 2:
        return None
    at_s, moments = 0.0, []
    for t in trials:
        at_s += searched_s[id(t)]
        moments.append(at_s)
    sources = list(dict.fromkeys(map(source_of, trials)))
    first = next((t for t in ran if source_of(t) == "default"), ran[0])
    return Search(
        searched_s=tuple(moments),
        seconds=tuple(t.measurement.seconds if t.measurement.ran else None for t in trials),
        sources=tuple(sources),
        source=tuple(sources.index(source_of(t)) for t in trials),
        default_s=first.measurement.seconds,
        default=first.actions,
        parameters=_parameters(trials, winner),
        neighbours=_neighbours(trials, winner),
    )


# ---- parameters


def _parameters(trials: Sequence[Trial], winner: str) -> tuple[Parameter, ...]:
    """Parameters in which candidates differ, the most important first, two dozen at most."""
    split = [_split(t.actions) for t in trials]
    often = {
        name
        for actions in set(split)
        for name, count in Counter(a.partition("(")[0] for a in actions).items()
        if count > 1
    }
    values: dict[str, dict[int, str]] = {}
    for place, actions in enumerate(split):
        for action in actions:
            name, value = _named(action, often)
            known = values.setdefault(name, {})
            known[place] = f"{known[place]}, {value}" if place in known else value
    seconds = [t.measurement.seconds if t.measurement.ran else inf for t in trials]
    won = next((n for n, t in enumerate(trials) if t.actions == winner), None)
    found = [
        _parameter(name, [known.get(n, "") for n in range(len(trials))], seconds, won)
        for name, known in values.items()
    ]
    varied = [p for p in found if 1 < len(p.levels) <= _MOST_VALUES]
    return tuple(sorted(varied, key=lambda p: -p.importance)[:_MOST_PARAMETERS])


def _parameter(
    name: str, values: Sequence[str], seconds: Sequence[float], won: int | None
) -> Parameter:
    """``values`` and ``seconds`` are of every candidate, ``won`` is the winner's place."""
    levels = sorted(set(values), key=_in_order)
    places = {level: n for n, level in enumerate(levels)}
    best = dict.fromkeys(levels, inf)
    for value, s in zip(values, seconds, strict=True):
        best[value] = min(best[value], s)
    mine = None if won is None else values[won]
    other_s = min((s for value, s in best.items() if value not in ("", mine)), default=inf)
    without_s = best.get("", inf) if mine else inf
    at = tuple(places[value] for value in values)
    return Parameter(
        name, _importance(at, seconds), tuple(levels), at, mine, _known(other_s), _known(without_s)
    )


def _named(action: str, often: set[str]) -> tuple[str, str]:
    """A parameter and its value; repeated actions are told apart by their first argument."""
    name, _, arguments = action[:-1].partition("(")
    if name in often:
        first, _, rest = arguments.partition(", ")
        return f"{name} {first.partition('=')[2]}", _plain(rest) or "yes"
    return name, _plain(arguments) or "yes"


def _plain(arguments: str) -> str:
    """Arguments without the name of a single one."""
    alone = re.fullmatch(r"\w+=([^=]*)", arguments)
    return alone[1] if alone else arguments


def _in_order(value: str) -> tuple[bool, float, str]:
    """Absent first, numbers by size, then words."""
    number = re.match(r"\d+", value)
    return bool(value), float(number[0]) if number else inf, value


def _known(seconds: float) -> float | None:
    return seconds if 0.0 < seconds < inf else None


def _importance(at: Sequence[int], seconds: Sequence[float]) -> float:
    """The share of the spread of the times' logarithms that the values of one parameter explain."""
    times = np.array(seconds)
    known = (times > 0.0) & (times < inf)
    logs = np.log(times[known])
    if not logs.size:
        return 0.0
    # rounded, so that parameters that say the same stay in their order
    return round(explained(np.array(at)[known], logs - logs.mean()), 9)


# ---- neighbours


def _neighbours(trials: Iterable[Trial], winner: str) -> tuple[Neighbour, ...]:
    """Measured candidates one action away from the winner, the fastest first."""
    rows = {t.actions: t for t in trials}
    own = rows.get(winner)
    own_s = own.measurement.seconds if own and own.measurement.ran else inf
    actions = _split(winner)
    found = [
        tried_neighbour(change, t, own_s)
        for text, t in rows.items()
        if (change := one_change(actions, _split(text)))
    ]
    order = sorted(found, key=lambda n: (n.ms is None, n.ms or 0.0, n.change))
    return tuple(order[:_MOST_NEIGHBOURS])


def tried_neighbour(change: str, trial: Trial, own_s: float) -> Neighbour:
    """A measured schedule beside one of ``own_s`` seconds, infinity where that has no time."""
    m = trial.measurement
    if not m.ran:
        said = m.error.strip().splitlines()
        return Neighbour(change, "failed", why=f"{m.status}: {said[0] if said else ''}".strip(": "))
    cost = m.seconds / own_s if own_s < inf else None
    return Neighbour(change, "tried", 1e3 * m.seconds, cost, origin=trial.origin)


_Step = TypeVar("_Step")


def one_change(mine: Sequence[_Step], theirs: Sequence[_Step]) -> str:
    """The change in the other list, where it is of one action; else ""."""
    if abs(len(mine) - len(theirs)) > 1:
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
