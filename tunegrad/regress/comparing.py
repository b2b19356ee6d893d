"""Two runs side by side: sweeps of one store, two stores, or two revisions of the source.

    B / A  =  exp(level of B - level of A), freed of what the yardsticks say about the two machines

A level is the median over a side's nights. Where the history has enough nights to say how they
scatter, that scatter is in the interval; else it is of the turns within the runs alone, and the
report says so. Then the yardsticks' own scatter is in it as well: each of them says how far the
machine moved, within an interval, and the machine moved somewhere between the least and the most of
these.

A model's night in which other processes took CPUs that it needed does not count, here as in a
sweep. It is left out of a side that has others. Where a side has none that counts, the times are
shown and no difference is stated.

A sweep has a night on each of its devices. Where a side has several devices, models are named with
them (`mlp on cuda`), so that each is compared with itself.

A store without a sweep stands for what its tune sessions measured in the end: whole models, by
their names, since winners decide on the kernels. There are no yardsticks then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from pathlib import Path

import numpy as np

from tunegrad.db import Latency, Store, open_store
from tunegrad.errors import ConfigError
from tunegrad.paired import Interval, unpaired_interval

from .changes import LEARNING, Values, scatter
from .nights import (
    DEFAULTS,
    YARDSTICK,
    Night,
    Place,
    ago,
    changed_clocks,
    changed_fields,
    disturbed,
    kernel_series,
    nights_of,
    place_of,
    split_series,
    with_defaults,
)
from .report import CompareReport, CompareRow, Moved
from .verdict import is_yardstick

_Key = tuple[str, str]
_Z = 1.96 * 1.2533


@dataclass(frozen=True, slots=True)
class _Side:
    """A run: what it was called, its nights, and all nights of its store. ``tuned``: it is no
    sweep, but what tune sessions measured.
    """

    name: str
    nights: tuple[Night, ...]
    history: tuple[Night, ...] = ()
    tuned: bool = False


def compare(a: str, b: str, store: Path) -> CompareReport:
    """Compare two runs.

    Each is the file of a store (its newest sweep; where it has none, the newest latency of each
    model by a tune session), a sweep of ``store``, by its id or the beginning
    of one, a revision of the source (all its sweeps), by its first digits, or ``last``, ``last~1``.
    Raises ConfigError for what is none, and says what there is.
    """
    one, two = _side(a, store), _side(b, store)
    tuned = one.tuned or two.tuned
    if tuned:
        asked = {n.place: _device(n) for s in (one, two) if not s.tuned for n in s.nights}
        one, two = _whole_models(one, asked), _whole_models(two, asked)
    several = any(len({_device(n) for n in side.nights}) > 1 for side in (one, two))
    if several:
        one, two = _with_devices(one), _with_devices(two)
    rows_a, rows_b = _latest(one.nights), _latest(two.nights)
    both = [key for key in rows_a if key in rows_b and not is_yardstick(key)]
    history = one.history + (() if one.history == two.history else two.history)
    noise = _noise(history)
    models = sorted({split_series(series)[0] for series, _ in both})
    moved = {model: _moved(model, one.nights, two.nights) for model in models}
    rows = [
        _row(key, one.nights, two.nights, noise, moved[split_series(key[0])[0]]) for key in both
    ]
    parts = [
        [[n for n in side.nights if not several or _device(n) == device] for side in (one, two)]
        for device in dict.fromkeys(map(_device, two.nights) if several else [""])
    ]
    changed = dict.fromkeys(
        text
        for a_nights, b_nights in parts
        if a_nights and b_nights
        for text in (
            *changed_fields(_wholes(a_nights[-1:]), _wholes(b_nights[:1])),
            *changed_clocks(_wholes(a_nights), _wholes(b_nights)),
        )
    )
    return CompareReport(
        one.name,
        two.name,
        tuple(rows),
        tuple(changed),
        tuple(series for series, _ in rows_a.keys() - rows_b.keys()),
        tuple(series for series, _ in rows_b.keys() - rows_a.keys()),
        noise=any(key in noise for key in both),
        tuned=tuned,
        yardsticks=tuple(m for model in models for m in moved[model]),
        uncounted=tuple(
            f"{side}, model {model}"
            for side, nights in (("A", one.nights), ("B", two.nights))
            for model in models
            if any(disturbed(n.of(model)) for n in nights)
        ),
    )


def _side(name: str, store: Path) -> _Side:
    path = Path(name).expanduser()
    if path.is_file():
        return _of_store(name, path)
    if path.suffix or len(path.parts) > 1:  # neither a sweep's id nor a revision has these
        raise ConfigError(f"store {path}: there is no such file")
    nights = _nights(store)
    sweeps = list(dict.fromkeys(n.sweep for n in nights))
    if (back := ago(name)) is not None:
        found = [n for n in nights if back < len(sweeps) and n.sweep == sweeps[-1 - back]]
    else:
        found = [n for n in nights if n.sweep.startswith(name)] or [
            n for n in nights if any(_revision(r).startswith(name) for r in _whole(n))
        ]
    if not found or len({n.sweep for n in found if n.sweep.startswith(name)}) > 1:
        known = ", ".join(sweeps[-5:])
        raise ConfigError(
            f"{name!r}: neither a store's file, nor one sweep or revision of {store}; its newest "
            f"sweeps: {known}"
        )
    return _Side(name, tuple(found), tuple(nights))


def _of_store(name: str, path: Path) -> _Side:
    """The newest sweep of a store, or what tune sessions measured."""
    with open_store(path) as store:
        nights, _ = nights_of(store)
        tuned = () if nights else _tuned(store)
    if not nights and not tuned:
        raise ConfigError(f"store {path}: it has neither a sweep nor a latency of a tune session")
    if tuned:
        return _Side(f"{name}: the newest tune session of each model", tuned, tuned=True)
    newest = nights[-1].sweep
    found = tuple(n for n in nights if n.sweep == newest)
    return _Side(f"{name}: sweep {newest}", found, tuple(nights))


def _tuned(store: Store) -> tuple[Night, ...]:
    """The newest latencies of models by tune sessions on one machine, as a night; or nothing."""
    sessions = {s.id for s in store.sessions() if s.command == "tune"}
    rows = sorted(
        (r for r in store.latencies() if r.session in sessions and not r.imported),
        key=lambda r: r.created_s,
    )
    if not rows:
        return ()
    last = rows[-1]
    place = place_of(last.fingerprint)
    newest = {(r.model, ""): r for r in rows if place_of(r.fingerprint) == place}
    return (Night(last.session, last.created_s, place, with_defaults(newest)),)


def _whole_models(side: _Side, asked: Mapping[Place, str]) -> _Side:
    """Whole models alone, by their names; no history, which is of nights. A device is called what
    a sweep on the same one ``asked`` for.
    """

    def named(night: Night, row: Latency) -> Latency:
        return replace(row, state=(("asked", asked.get(night.place, _device(night))), *row.state))

    nights = tuple(
        replace(n, rows={(s, ""): named(n, r) for (s, _), r in n.rows.items() if _is_whole(s)})
        for n in side.nights
    )
    return replace(side, nights=nights, history=())


def _is_whole(series: str) -> bool:
    return split_series(series)[1] in ("", DEFAULTS)


def _device(night: Night) -> str:
    """The device that a night's sweep asked for; of a tune session, its kind."""
    row = next(iter(night.rows.values()), None)
    if row is None:
        return ""
    return str(dict(row.state).get("asked", dict(row.fingerprint.fields).get("device", "")))


def _with_devices(side: _Side) -> _Side:
    """The names of models with that of the device behind them."""

    def named(nights: tuple[Night, ...]) -> tuple[Night, ...]:
        found = []
        for n in nights:
            rows = {}
            for (series, key), row in n.rows.items():
                model, part = split_series(series)
                name = f"{model} on {_device(n)}"
                rows[kernel_series(name, part) if part else name, key] = row
            found.append(replace(n, rows=rows))
        return tuple(found)

    return replace(side, nights=named(side.nights), history=named(side.history))


def _nights(path: Path) -> list[Night]:
    with open_store(path) as store:
        nights, _ = nights_of(store)
    if not nights:
        raise ConfigError(f"store {path}: it has no sweep; `tunegrad regress` makes one")
    return nights


def _revision(row: Latency) -> str:
    return str(dict(row.versions).get("revision", ""))


def _wholes(nights: Sequence[Night]) -> list[Latency]:
    return [row for night in nights for row in _whole(night)]


def _whole(night: Night) -> list[Latency]:
    return [row for (series, _), row in night.rows.items() if not split_series(series)[1]]


def _latest(nights: Sequence[Night]) -> dict[_Key, Latency]:
    return {key: row for night in nights for key, row in night.rows.items()}


def _row(
    key: _Key,
    a: Sequence[Night],
    b: Sequence[Night],
    noise: Mapping[_Key, float],
    moved: Sequence[Moved],
) -> CompareRow:
    model = split_series(key[0])[0]
    sides = [[n for n in side if key in n.rows] for side in (a, b)]
    counted = [[n for n in side if not disturbed(n.of(model))] for side in sides]
    counts = all(counted)
    mine, theirs = ([_relative(n, key) for n in side] for side in (counted if counts else sides))
    medians = [np.array([np.median(x) for x in side]) for side in (mine, theirs)]
    apart = float(np.median(medians[1]) - np.median(medians[0]))
    a_s, b_s = (
        float(np.median([n.rows[key].seconds for n in side]))
        for side in (counted if counts else sides)
    )
    return CompareRow(
        series=key[0],
        key=key[1],
        a_ms=1e3 * a_s,
        b_ms=1e3 * b_s,
        ratio=exp(apart),
        interval=_interval(mine, theirs, apart, noise.get(key), moved) if counts else None,
        nights=(len(mine), len(theirs)),
        counts=counts,
    )


def _interval(
    a: Sequence[Values],
    b: Sequence[Values],
    apart: float,
    noise: float | None,
    moved: Sequence[Moved],
) -> Interval | None:
    if noise is not None:
        error = _Z * noise * sqrt(1.0 / len(a) + 1.0 / len(b))
        return exp(apart - error), exp(apart + error)
    found = unpaired_interval(*(np.exp(np.concatenate(x)).tolist() for x in (a, b)))
    if found is None or not moved:
        return found
    taken = exp(float(np.mean([log(m.ratio) for m in moved])))
    least = min(m.interval[0] if m.interval else m.ratio for m in moved)
    most = max(m.interval[1] if m.interval else m.ratio for m in moved)
    return found[0] * taken / most, found[1] * taken / least


def _moved(model: str, a: Sequence[Night], b: Sequence[Night]) -> tuple[Moved, ...]:
    """Ratio B over A of the time of each yardstick of a model; of those that both have."""
    samples: list[dict[str, list[float]]] = []
    for side in (a, b):
        found: dict[str, list[float]] = {}
        for night in side:
            for key, row in night.rows.items():
                of, name = split_series(key[0])
                if of == model and is_yardstick(key):
                    found.setdefault(name.removeprefix(YARDSTICK), []).extend(row.samples_s)
        samples.append(found)
    mine, theirs = samples
    return tuple(
        Moved(
            model,
            name,
            float(np.median(theirs[name]) / np.median(mine[name])),
            unpaired_interval(mine[name], theirs[name]),
        )
        for name in sorted(mine.keys() & theirs.keys())
    )


def _relative(night: Night, key: _Key) -> Values:
    """Logarithms of a row's samples, by the yardsticks of the same turns; of a whole model, which
    ran beside its defaults, by their median.
    """
    row = night.rows[key]
    model, kernel = split_series(key[0])
    sticks = [
        np.log(r.samples_s)
        for at, r in night.rows.items()
        if is_yardstick(at) and split_series(at[0])[0] == model
    ]
    samples = np.log(row.samples_s)
    if not sticks:
        return samples
    turns = min(map(len, [samples, *sticks])) if kernel not in ("", DEFAULTS) else 0
    if turns:
        return np.asarray(samples[:turns] - np.mean([s[:turns] for s in sticks], axis=0))
    return np.asarray(samples - np.mean([np.median(s) for s in sticks]))


def _noise(history: Sequence[Night]) -> dict[_Key, float]:
    """Scatter of each series from night to night, of those with enough nights to say so.

    By the same figures as are compared: nothing but yardsticks is taken off.
    """
    found: dict[_Key, list[float]] = {}
    for night in history:
        for key in night.rows:
            if not is_yardstick(key) and not disturbed(night.of(split_series(key[0])[0])):
                found.setdefault(key, []).append(float(np.median(_relative(night, key))))
    return {k: scatter(np.array(v)) for k, v in found.items() if len(v) >= LEARNING}
