"""The history of sweeps as the store has it: nights, each with its rows.

    session  command "regress", its settings name the sweep that it is (a part of)
    latency  "resnet18"                       the whole model, beside its default schedules
             "resnet18: conv3x3 64->64"       a kernel in it; its key; the default in the same turns
             "resnet18: yardstick stream"     what never changes, between turns
             "resnet18: peer ort"             another library, between turns
             (read as one more: "resnet18: default schedules", what ran beside the whole model)
    session  command "regress failed"         what of a model could not be measured
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

from .report import Failed

SWEEP, FAILED, DONE, BLESS = "regress", "regress failed", "regress done", "regress bless"
YARDSTICK, PEER = "yardstick ", "peer "
DEFAULTS = "default schedules"
LACKING = "lacking_cpus"
"""Of a row's state: how many CPUs the model lacked while it was timed, as others used them."""

Place = tuple[tuple[str, str], ...]
"""The fields of a fingerprint that stay when software is renewed: nights of one place compare."""

_SOFTWARE = frozenset({"compiler", "compiler_version", "microcode", "os", "thp", "thp_defrag"})
_SOFTWARE_ENDS = ("version", "driver", "runtime", "toolkit")


class _Settings(msgspec.Struct):
    sweep: str = ""
    config: str = ""
    reason: str = ""
    levels: list[tuple[str, str, str]] = msgspec.field(default_factory=list)


class _Failures(msgspec.Struct):
    sweep: str
    device: str
    model: str
    kernels: list[tuple[str, str]]


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

    def of(self, model: str) -> list[Latency]:
        """The rows of a model."""
        return [row for (series, _), row in self.rows.items() if split_series(series)[0] == model]


def place_of(fingerprint: Fingerprint) -> Place:
    """The part of a machine's fingerprint that stays when its software is renewed."""
    return tuple(
        (name, value)
        for name, value in fingerprint.fields
        if name not in _SOFTWARE and not name.endswith(_SOFTWARE_ENDS)
    )


def kernel_series(model: str, name: str) -> str:
    """The name of the series of a kernel in a model."""
    return f"{model}{PART}{name}"


def disturbed(rows: Sequence[Latency]) -> bool:
    """True when other processes took CPUs that a model needed while these rows of it were made."""
    lacked = (dict(row.state).get(LACKING, 0.0) for row in rows)
    return any(not isinstance(cpus, str) and cpus > 0.0 for cpus in lacked)


def split_series(series: str) -> tuple[str, str]:
    """(model, kernel or yardstick) of a series; no kernel for a whole model."""
    model, _, name = series.partition(PART)
    return model, name


def sweeps_of(sessions: Iterable[Session]) -> tuple[dict[str, str], list[Blessed], set[str]]:
    """Of a store's sessions: each one's sweep, what was blessed, and which sweeps are whole."""
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


def failures_of(sessions: Iterable[Session], sweep: str) -> dict[tuple[str, str], list[Failed]]:
    """Failures of a sweep, by model and device, as they were last noted."""
    noted = {}
    for session in sessions:
        if session.command == FAILED:
            try:
                found = msgspec.json.decode(session.settings, type=_Failures)
            except msgspec.DecodeError:
                continue
            if found.sweep == sweep:
                noted[found.model, found.device] = [
                    Failed(found.device, found.model, kernel, why) for kernel, why in found.kernels
                ]
    return noted


def ago(name: str) -> int | None:
    """The place of ``last`` (0) or ``last~3``, from the newest; None for any other name."""
    back = name.removeprefix("last").removeprefix("~") or "0"
    return int(back) if name.startswith("last") and back.isdecimal() else None


def nights_of(store: Store) -> tuple[list[Night], list[Blessed]]:
    """Every night of every place, oldest first, and what was blessed."""
    return nights_in(store.sessions(), store.latencies())


def nights_in(
    sessions: Sequence[Session], latencies: Iterable[Latency]
) -> tuple[list[Night], list[Blessed]]:
    """The same, of rows of a store."""
    parts, blessed, _ = sweeps_of(sessions)
    found: dict[tuple[str, Place], dict[tuple[str, str], Latency]] = {}
    for row in latencies:
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
    """Fields of the machine, the versions and the code that changed, in words.

    Of rows before a change and since it; fields whose values overlap say nothing.
    """
    old, new = _fields(before), _fields(since)
    return tuple(
        f"{name}: {'+'.join(sorted(old.get(name, {'(none)'})))} -> "
        f"{'+'.join(sorted(new.get(name, {'(none)'})))}"
        for name in sorted(old.keys() | new.keys())
        if not old.get(name, set()) & new.get(name, set())
    )


def changed_clocks(before: Sequence[Latency], since: Sequence[Latency]) -> tuple[str, ...]:
    """Clocks of the processors or the device that changed, in MHz.

    A clock that runs differs from night to night: it changed where the ranges of all rows before
    and of all since do not meet, and both sides have it.
    """
    old, new = _clocks(before), _clocks(since)
    return tuple(
        f"{name}: {_range(old[name])} -> {_range(new[name])}"
        for name in sorted(old.keys() & new.keys())
        if max(old[name]) < min(new[name]) or max(new[name]) < min(old[name])
    )


def _fields(rows: Sequence[Latency]) -> dict[str, set[str]]:
    """Words by field: numbers of the state, such as a load, are others every time."""
    found: dict[str, set[str]] = {}
    for row in rows:
        for name, value in (*row.fingerprint.fields, *row.versions, *row.state):
            if isinstance(value, str):
                found.setdefault(name, set()).add(value)
    return found


def _clocks(rows: Sequence[Latency]) -> dict[str, set[float]]:
    """Clocks by name: ``clock_mhz`` of processors, ``sm_mhz`` of a GPU, other MHz of a device."""
    found: dict[str, set[float]] = {}
    for row in rows:
        for name, value in row.state:
            if name.endswith("_mhz") and not isinstance(value, str):
                found.setdefault(name, set()).add(value)
    return found


def _range(values: set[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
