"""Portability of one schedule over every machine that a store knows: its part of the best there.

    part = fastest schedule of the kernel there / this schedule there      (1: it is the best)

Of each machine the schedules compare that were timed by the policy of its winner, so that all of
them stand beside the same reference. Where a schedule was not measured its part is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import harmonic_mean

from tunegrad.db.contents import Contents, winners
from tunegrad.db.export import machine_id
from tunegrad.db.finding import find_kernel
from tunegrad.db.identity import standing, subject
from tunegrad.db.rows import key_of
from tunegrad.errors import StoreError
from tunegrad.trial import Fingerprint, Status, Trial

__all__ = ["Machine", "Portability", "PortabilityRow", "portability"]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the store: its id there, what it is in words, and its best schedule's time."""

    id: str
    about: str
    best_ms: float


@dataclass(frozen=True, slots=True)
class PortabilityRow:
    """A schedule: its part of the best by machine, 0 to 1; 0 where it did not run, None where it
    was not measured.

    ``wins`` are the machines whose winner it is. ``portability`` is the harmonic mean over all
    machines, 0 where it runs on one of them not (S. J. Pennycook et al., "A Metric for Performance
    Portability", 2016); None where one is not known.
    """

    actions: str
    wins: tuple[str, ...]
    parts: Mapping[str, float | None]

    @property
    def portability(self) -> float | None:
        """Of all machines."""
        known = [p for p in self.parts.values() if p is not None]
        return harmonic_mean(known) if len(known) == len(self.parts) else None


@dataclass(frozen=True, slots=True)
class Portability:
    """A kernel on the machines that have measured it; every schedule that wins on one of them, or
    the one that was asked for.
    """

    name: str
    key: str
    space_version: int
    machines: tuple[Machine, ...]
    rows: tuple[PortabilityRow, ...]


def portability(contents: Contents, wanted: str, actions: str | None = None) -> Portability:
    """The schedules of a kernel, by its name, key or text, on every machine; ``actions``: of one
    schedule alone.

    Of the newest space version that has winners: the same text is another schedule in another one.
    Raises StoreError for an unknown kernel, one without a winner, and an unknown schedule.
    """
    text, name = find_kernel(contents, wanted)
    key = key_of(text)
    mine = {p: w for p, w in winners(contents).items() if w.trial.kernel_key == key}
    if not mine:
        raise StoreError(f"kernel {wanted!r}: no machine has a winner of it")
    space = max(w.trial.space_version for w in mine.values())
    best = {w.trial.fingerprint: w.trial for w in mine.values() if w.trial.space_version == space}
    there = {place: _measured(contents, winner) for place, winner in best.items()}
    if actions is not None and not any(actions in found for found in there.values()):
        raise StoreError(f"kernel {wanted!r}: schedule {actions!r} was measured nowhere")
    shown = [actions] if actions is not None else list(dict.fromkeys(
        t.actions for t in best.values()))  # fmt: skip
    rows = [_row(text, best, there) for text in shown]
    rows.sort(key=lambda r: (-(r.portability or 0.0), r.actions))
    machines = tuple(
        Machine(machine_id(place), _about(place), 1e3 * min(_times(found)))
        for place, found in there.items()
    )
    return Portability(name, key, space, machines, tuple(rows))


def _measured(contents: Contents, winner: Trial) -> dict[str, Trial]:
    """Trials that count of a machine's schedules, by their texts, timed as its winner was."""
    rivals = [
        t
        for t in contents.trials
        if (t.kernel_key, t.fingerprint, t.space_version, t.policy.text)
        == (winner.kernel_key, winner.fingerprint, winner.space_version, winner.policy.text)
    ]
    withdrawn = contents.withdrawn
    return {t.actions: t for t in standing(rivals) if subject(t) not in withdrawn}


def _times(found: Mapping[str, Trial]) -> list[float]:
    return [t.measurement.seconds for t in found.values() if t.measurement.ran]


def _row(
    actions: str, best: Mapping[Fingerprint, Trial], there: Mapping[Fingerprint, dict[str, Trial]]
) -> PortabilityRow:
    wins = tuple(machine_id(place) for place, t in best.items() if t.actions == actions)
    parts = {machine_id(place): _part(actions, found) for place, found in there.items()}
    return PortabilityRow(actions, wins, parts)


def _part(actions: str, found: Mapping[str, Trial]) -> float | None:
    trial = found.get(actions)
    if trial is None:
        return None
    if not trial.measurement.ran or trial.measurement.status is not Status.OK:
        return 0.0
    return min(_times(found)) / trial.measurement.seconds


def _about(place: Fingerprint) -> str:
    """Short description of a machine: its device, its name, its threads."""
    fields = dict(place.fields)
    names: Sequence[str] = [
        fields.get("device", ""),
        next((v for k, v in place.fields if k.endswith("name") and v != "unknown"), "")
        or fields.get("arch", ""),
        f"{fields['threads']} threads" if "threads" in fields else "",
    ]
    return ", ".join(filter(None, names))
