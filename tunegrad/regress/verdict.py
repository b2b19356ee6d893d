"""The verdict of a store's history on a sweep: which series changed, since when, and with what.

    turn      what a turn had in common, over winners, defaults and yardsticks, is taken off
    night     what a night had in common is taken off the kernels, as much as each of them takes
              part in it (median polish, J. W. Tukey, "Exploratory Data Analysis", 1977, with a
              slope); off whole models what the yardsticks say
    busy      nights in which others took CPUs that the model needed are left out
    watch     each series for itself (``changes``)
    machine   a yardstick that changed at the same night, and by more, explains a change: it is the
              machine's, and the level since counts

So a slow minute, a slow night and a slow machine are no regression of a kernel, and what slows all
kernels of a model, but no yardstick, is one of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tunegrad.db import Latency, Store
from tunegrad.paired import gain_interval

from .changes import LEARNING, Change, Values, Watched, night_values, scatter, sure_from, watch
from .nights import (
    DEFAULTS,
    PEER,
    YARDSTICK,
    Blessed,
    Night,
    changed_clocks,
    changed_fields,
    disturbed,
    nights_of,
    split_series,
)
from .report import Finding, SeriesRow

Places = NDArray[np.intp]

_Key = tuple[str, str]
"""A series: its name, and the key of what it times."""

_SIDES = ("tuned", "default")


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows and findings of one sweep. ``begun`` are the rows of the history with which a new level
    of a series began: changes and their ends, what the machine explains, what was accepted.
    ``uncounted`` says for which models this night does not count, and why.
    """

    rows: tuple[SeriesRow, ...]
    findings: tuple[Finding, ...]
    begun: tuple[Latency, ...] = ()
    uncounted: tuple[str, ...] = ()

    @property
    def levels(self) -> list[_Level]:
        """Levels that a blessing of now accepts."""
        return [(f.series, f.key, f.since) for f in self.findings if f.kind == "regression"]


_Level = tuple[str, str, str]


def judge(store: Store, sweep: str) -> Judged:
    """Judge a sweep by the history that a store has."""
    return judge_nights(*nights_of(store), sweep)


def judge_nights(nights: Sequence[Night], blessed: Sequence[Blessed], sweep: str) -> Judged:
    """Judge the nights of a sweep, one a place, by those before them; the oldest night first."""
    rows: list[SeriesRow] = []
    findings: list[Finding] = []
    begun: list[Latency] = []
    uncounted: list[str] = []
    for night in [n for n in nights if n.sweep == sweep]:
        until = [n for n in nights if n.place == night.place and n.created_s <= night.created_s]
        findings += _moved(nights, night, until)
        for model in dict.fromkeys(split_series(series)[0] for series, _ in night.rows):
            mine = [n for n in until if (its := n.of(model)) and not disturbed(its)]
            found = _Model(model, mine, blessed, night).judged()
            rows += found.rows
            findings += found.findings
            begun += found.begun
            if disturbed(tonight := night.of(model)):
                uncounted.append(_uncounted(model, tonight[0]))
    order = ("regression", "machine", "recovered", "improvement")
    findings.sort(key=lambda f: (order.index(f.kind), f.device, f.series))
    return Judged(tuple(rows), tuple(findings), tuple(begun), tuple(uncounted))


def _uncounted(model: str, row: Latency) -> str:
    others = float(dict(row.state)["others_cpus"])
    return (
        f"{model} on {_asked(row)}: other processes used {others:.1f} CPUs while it was timed, "
        "some of which it needed"
    )


def _moved(nights: Sequence[Night], night: Night, until: Sequence[Night]) -> list[Finding]:
    """That the sweep before was of other hardware, where this is the first night of this one."""
    row = next(iter(night.rows.values()))
    before = [
        n
        for n in nights
        if n.created_s < night.created_s
        and n.place != night.place
        and _asked(next(iter(n.rows.values()))) == _asked(row)
    ]
    if len(until) > 1 or not before:
        return []
    old = next(iter(before[-1].rows.values()))
    fields = tuple(
        f"{name}: {theirs or '(none)'} -> {mine or '(none)'}"
        for name, mine, theirs in row.fingerprint.differences(old.fingerprint)
    )
    return [
        Finding("machine", _asked(row), "(all)", "", None, None, night.sweep, night.created_s, 1,
                None, None, fields)
    ]  # fmt: skip


def _asked(row: Latency) -> str:
    return str(dict(row.state).get("asked", ""))


def model_values(model: str, nights: Sequence[Night]) -> dict[tuple[_Key, str], Values]:
    """Values of a model's kernels (both sides) and yardsticks by night, freed of what turns have in
    common; and of the whole model with its winners and by default (side ``whole``). NaN where a
    night lacks a series.
    """
    found: dict[tuple[_Key, str], Values] = {}

    def put(series: tuple[_Key, str], at: int, value: float) -> None:
        found.setdefault(series, np.full(len(nights), np.nan))[at] = value

    for at, night in enumerate(nights):
        samples: dict[tuple[_Key, str], Values] = {}
        for (series, key), row in night.rows.items():
            of, name = split_series(series)
            if of != model or name.startswith(PEER):
                continue
            if name in ("", DEFAULTS):
                put(((series, key), "whole"), at, log(median(row.samples_s)))
                continue
            samples[(series, key), "tuned"] = np.log(row.samples_s)
            if row.default_samples_s:
                samples[(series, key), "default"] = np.log(row.default_samples_s)
        turns = min((len(s) for s in samples.values()), default=0)
        if turns:
            values = night_values([s[:turns] for s in samples.values()])
            for one, value in zip(samples, values, strict=True):
                put(one, at, float(value))
    return found


class _Model:
    """A model on one place, being judged."""

    def __init__(
        self, model: str, nights: Sequence[Night], blessed: Sequence[Blessed], night: Night
    ) -> None:
        self._model, self._nights, self._night = model, nights, night
        self._tonight = len(nights) - 1 if nights and nights[-1] is night else None
        self._accepted = _levels(blessed, nights)
        raw = model_values(model, nights)
        self._yardsticks = {k: v for (k, _), v in raw.items() if is_yardstick(k)}
        whole = {k: v for (k, side), v in raw.items() if side == "whole"}
        common = _common([v for (_, side), v in raw.items() if side in _SIDES], len(nights))
        kernels = {
            key: _freed(v, common)
            for (key, side), v in raw.items()
            if side == "tuned" and not is_yardstick(key)
        }
        machine = _mean(list(self._yardsticks.values()), len(nights))
        self._series = kernels | {key: _freed(v, machine) for key, v in whole.items()}
        self._siblings = _typical(kernels)

    def judged(self) -> Judged:
        machine = self._machine()
        rows: list[SeriesRow] = []
        findings: list[Finding] = [
            self._finding("machine", key, c) for key, c in machine if c.found == self._tonight
        ]
        begun = [(key, n) for key, c in machine for n in _levels_of(c)]
        for key, values in self._series.items():
            at = np.flatnonzero(~np.isnan(values))
            seen, moved = self._watched(key, values[at], at, [c for _, c in machine])
            findings += self._findings(key, seen, moved)
            begun += [(key, n) for c in seen.changes for n in _levels_of(c)]
            begun += [(key, c.start) for c in moved]
            begun += [(key, n) for n in self._accepted.get(key, ()) if n > 0]
            row = self._night.rows.get(key)
            if row is not None:
                ended = [n for c in seen.changes if c != seen.open for n in _levels_of(c)]
                since = max([0, *ended, *(c.start for c in moved), *self._accepted.get(key, ())])
                earlier = self._nights[since : seen.open.start if seen.open else self._tonight]
                before = [n.rows[key] for n in earlier if key in n.rows]
                rows.append(_row(key, row, seen, len(at), before[-_BASELINE_NIGHTS:]))
        for key, row in self._night.rows.items():
            if split_series(key[0])[0] == self._model and not (
                key in self._series or is_yardstick(key)
            ):
                nights = sum(key in n.rows for n in self._nights)
                rows.append(_row(key, row, Watched((), None, None), nights))
        levels = [row for key, n in begun if (row := self._nights[n].rows.get(key)) is not None]
        return Judged(tuple(rows), tuple(findings), tuple(levels))

    # ---- the machine

    def _machine(self) -> list[tuple[_Key, Change]]:
        """Changes of the yardsticks, in places of all nights."""
        found = []
        for key, values in self._yardsticks.items():
            at = np.flatnonzero(~np.isnan(values))
            seen = watch(values[at], scatter(values[at]))
            found += [(key, _placed(c, at)) for c in seen.changes]
        return found

    # ---- a series

    def _watched(
        self, key: _Key, values: Values, at: Places, machine: Sequence[Change]
    ) -> tuple[Watched, list[Change]]:
        """The series, in places of all nights, and those changes of it that are the machine's.

        These begin levels, one after the other, until none is left that the machine explains.
        """
        accepted = {int(np.searchsorted(at, n)) for n in self._accepted.get(key, ())}
        whole = split_series(key[0])[1] in ("", DEFAULTS)
        siblings = scatter(values) if whole else self._siblings
        moved: list[Change] = []
        while True:
            seen = watch(values, siblings, accepted)
            changes = [_placed(c, at) for c in seen.changes]
            explained = [
                (c, near)
                for c, near in zip(seen.changes, changes, strict=True)
                if c.start not in accepted and any(_explains(m, near) for m in machine)
            ]
            if not explained:
                break
            accepted.add(explained[0][0].start)
            moved.append(explained[0][1])
        is_open = None if seen.open is None else _placed(seen.open, at)
        return Watched(tuple(changes), is_open, seen.noise), moved

    def _findings(self, key: _Key, seen: Watched, moved: Sequence[Change]) -> list[Finding]:
        """Findings about it tonight."""
        tonight = self._tonight
        found = [self._finding("machine", key, c) for c in moved if c.found == tonight]
        if seen.open is not None:
            found.append(self._finding("regression", key, seen.open))
        for c in seen.changes:
            if c.found == tonight and not c.slower:
                found.append(self._finding("improvement", key, c))
            if tonight is not None and c.end == tonight - 2:  # the night that could say so
                found.append(self._finding("recovered", key, c))
        return found

    def _finding(self, kind: str, key: _Key, c: Change) -> Finding:
        since = self._nights[c.start]
        before = [n.rows[key] for n in self._nights[: c.start] if key in n.rows]
        rows = [n.rows[key] for n in self._nights[c.start :] if key in n.rows]
        return Finding(
            kind,  # type: ignore[arg-type]
            _asked(rows[-1]),
            key[0],
            key[1],
            c.ratio,
            c.interval,
            since.sweep,
            since.created_s,
            len(rows),
            1e3 * median([r.seconds for r in before[-c.before :]]) if before else None,
            1e3 * median([r.seconds for r in rows]),
            # In noise, a change may seem to begin a night too early or too late.
            (
                *changed_fields(before[-2:-1] or before[-1:], rows[1:2] or rows[:1]),
                *changed_clocks(before[-c.before : -1] or before[-1:], rows[1:] or rows),
            ),
        )


def _levels_of(c: Change) -> list[int]:
    """The nights with which a change began a level, and ended it."""
    return [c.start] if c.end is None else [c.start, c.end]


def _levels(blessed: Sequence[Blessed], nights: Sequence[Night]) -> dict[_Key, list[int]]:
    """Nights from which on a person has accepted what a series takes."""
    places = {n.sweep: i for i, n in enumerate(nights)}
    found: dict[_Key, list[int]] = {}
    for series, key, sweep in (level for b in blessed for level in b.levels):
        if sweep in places:
            found.setdefault((series, key), []).append(places[sweep])
    return found


def _common(given: Sequence[Values], nights: int) -> Values:
    """The common part of each night: the median of series' distances from their medians."""
    if not given:
        return np.zeros(nights)
    table = np.stack(given)
    return np.asarray(np.nanmedian(table - np.nanmedian(table, axis=1, keepdims=True), axis=0))


def _freed(values: Values, common: Values) -> Values:
    """Values without what nights have in common, as much as this series takes part in it.

    A slow memory slows one kernel by as much as the others, another by half or twice as much: how
    much is the slope of Theil and Sen, the median of the slopes of all pairs of nights.
    """
    found = values - common
    known = ~np.isnan(found)
    if np.count_nonzero(known) < LEARNING or not np.ptp(common[known]):
        return found
    run, rise = (np.subtract.outer(v[known], v[known]) for v in (common, found))
    slope = float(np.median(rise[run > 0] / run[run > 0]))
    return np.asarray(found - np.clip(slope, -1.0, 1.0) * common)


def _mean(values: Sequence[Values], nights: int) -> Values:
    """Mean of the yardsticks in each night, about their own levels; 0 where there are none.

    One whose code changed is another series: it says nothing before.
    """
    about = [v - np.nanmedian(v) for v in values]
    if not about:
        return np.zeros(nights)
    table = np.stack(about)
    count = np.sum(~np.isnan(table), axis=0)
    total = np.nansum(table, axis=0)
    return np.asarray(np.divide(total, count, out=np.zeros(nights), where=count > 0))


def _typical(series: Mapping[_Key, Values]) -> float:
    """Typical scatter of kernels between nights: the median."""
    found = [scatter(v[~np.isnan(v)]) for v in series.values()]
    return median(found) if found else 0.0


def _explains(machine: Change, change: Change) -> bool:
    """True when a yardstick moved at the same night, give or take one, and by more."""
    return abs(machine.start - change.start) <= 1 and abs(log(machine.ratio)) > abs(
        log(change.ratio)
    )


def _placed(c: Change, at: Places) -> Change:
    """A change in places of all nights: a series may lack some."""
    end = None if c.end is None else int(at[c.end])
    return replace(c, start=int(at[c.start]), found=int(at[c.found]), end=end)


def is_yardstick(key: _Key) -> bool:
    """True for a series of what never changes."""
    return split_series(key[0])[1].startswith(YARDSTICK)


_BASELINE_NIGHTS = 20


def _row(
    key: _Key, row: Latency, seen: Watched, nights: int, before: Sequence[Latency] = ()
) -> SeriesRow:
    default = row.default_samples_s
    return SeriesRow(
        series=key[0],
        key=key[1],
        device=_asked(row),
        ms=1e3 * row.seconds,
        default_ms=1e3 * median(default) if default else None,
        gain=row.gain,
        interval=gain_interval(default, row.samples_s) if default else None,
        nights=nights,
        noise=seen.noise,
        sure_from=None if seen.noise is None else sure_from(seen.noise),
        schedule=str(dict(row.versions).get("schedule", "")),
        baseline_ms=1e3 * median([r.seconds for r in before]) if before else None,
    )
