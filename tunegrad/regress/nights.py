"""The history of sweeps as the store has it: nights, each with its rows.

    session  command "regress", its settings name the sweep that it is (a part of)
    latency  "resnet18"                       the whole model, beside its default schedules
             "resnet18: conv3x3 64->64"       a kernel in it; its key; the default in the same turns
             "resnet18: yardstick stream"     what never changes, between turns
             "resnet18: peer ort"             another library, between turns
             (read as one more: "resnet18: default schedules", what ran beside the whole model)
    session  command "regress done"           the sweep is whole; what failed
    session  command "regress bless"          levels that a person accepted, and why

Rows are latencies like those of a tune, so that export, import, merge and ``store history`` know
them. What a file claims (imported) is no night of this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from tunegrad.db import PART, Latency, Session, Store
from tunegrad.trial import Fingerprint

__all__ = [
    "BLESS",
    "DEFAULTS",
    "DONE",
    "PEER",
    "SWEEP",
    "YARDSTICK",
    "Blessed",
    "Night",
    "Place",
    "changed_fields",
    "kernel_series",
    "nights_of",
    "place_of",
    "split_series",
    "sweeps_of",
    "with_defaults",
]

SWEEP, DONE, BLESS = "regress", "regress done", "regress bless"
YARDSTICK, PEER = "yardstick ", "peer "
DEFAULTS = "default schedules"

Place = tuple[tuple[str, str], ...]
"""The fields of a fingerprint that stay when software is renewed: nights of one place compare."""

_SOFTWARE = frozenset({"compiler", "compiler_version", "microcode", "os", "thp", "thp_defrag"})
_SOFTWARE_ENDS = ("version", "driver", "runtime", "toolkit")


class _Settings(msgspec.Struct):
    sweep: str = ""
    config: str = ""
    reason: str = ""
    levels: list[tuple[str, str, str]] = msgspec.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Blessed:
    """Levels that were accepted: (series, key, sweep from which on it is the level)."""

    reason: str
    levels: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Night:
    """One sweep on one place: its rows by series and key."""

    sweep: str
    created_s: float
    place: Place
    rows: Mapping[tuple[str, str], Latency] = field(default_factory=dict)


def place_of(fingerprint: Fingerprint) -> Place:
    """What of a machine stays when its software is renewed."""
    return tuple(
        (name, value)
        for name, value in fingerprint.fields
        if name not in _SOFTWARE and not name.endswith(_SOFTWARE_ENDS)
    )


def kernel_series(model: str, name: str) -> str:
    """The name of the series of a kernel in a model."""
    return f"{model}{PART}{name}"


def split_series(series: str) -> tuple[str, str]:
    """(model, kernel or yardstick) of a series; no kernel for a whole model."""
    model, _, name = series.partition(PART)
    return model, name


def sweeps_of(sessions: Iterable[Session]) -> tuple[dict[str, str], list[Blessed], set[str]]:
    """Of a store's sessions: the sweep of each that belongs to one, what was blessed, and which
    sweeps are whole.
    """
    parts, blessed, done = dict[str, str](), list[Blessed](), set[str]()
    for session in sessions:
        if session.command not in (SWEEP, DONE, BLESS):
            continue
        try:
            found = msgspec.json.decode(session.settings, type=_Settings)
        except msgspec.DecodeError:
            continue
        if session.command == SWEEP:
            parts[session.id] = found.sweep or session.id
        elif session.command == DONE:
            done.add(found.sweep)
        else:
            blessed.append(Blessed(found.reason, tuple(found.levels)))
    return parts, blessed, done


def nights_of(store: Store) -> tuple[list[Night], list[Blessed]]:
    """Every night of every place, oldest first, and what was blessed."""
    parts, blessed, _ = sweeps_of(store.sessions())
    found: dict[tuple[str, Place], dict[tuple[str, str], Latency]] = {}
    for row in store.latencies():
        if row.session in parts and not row.imported:
            at = parts[row.session], place_of(row.fingerprint)
            found.setdefault(at, {})[row.model, row.model_key] = row
    nights = [
        Night(sweep, min(r.created_s for r in rows.values()), place, with_defaults(rows))
        for (sweep, place), rows in found.items()
    ]
    return sorted(nights, key=lambda n: (n.created_s, n.sweep)), blessed


def with_defaults(rows: Mapping[tuple[str, str], Latency]) -> dict[tuple[str, str], Latency]:
    """The rows of a night, and what whole models took by their default schedules as series of their
    own: a model that misses runs those.
    """
    found = dict(rows)
    for (series, key), row in rows.items():
        if not split_series(series)[1] and row.default_samples_s:
            name = kernel_series(series, DEFAULTS)
            beside = replace(row, model=name, samples_s=row.default_samples_s, default_samples_s=())
            found[name, key] = beside
    return found


def changed_fields(before: Sequence[Latency], since: Sequence[Latency]) -> tuple[str, ...]:
    """Which fields of the machine, the versions, the code and its clock are others, in words.

    Of rows before a change and since it; fields whose values overlap say nothing.
    """
    old, new = _fields(before), _fields(since)
    return tuple(
        f"{name}: {'+'.join(sorted(old.get(name, {'(none)'})))} -> "
        f"{'+'.join(sorted(new.get(name, {'(none)'})))}"
        for name in sorted(old.keys() | new.keys())
        if not old.get(name, set()) & new.get(name, set())
    )


def _fields(rows: Sequence[Latency]) -> dict[str, set[str]]:
    """Values by field. Of the state only words and the clock: a load is another one every time."""
    found: dict[str, set[str]] = {}
    for row in rows:
        state = [(k, v) for k, v in row.state if isinstance(v, str) or k == "clock_mhz"]
        for name, value in (*row.fingerprint.fields, *row.versions, *state):
            text = value if isinstance(value, str) else f"{value:g}"
            found.setdefault(name, set()).add(text)
    return found
