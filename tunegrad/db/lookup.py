"""Answers of a lookup: Hit, Near or Miss, and for the last two the fields that differ.

    Hit   this kernel, this fingerprint, this space version: the stored winner.
    Near  this kernel and this fingerprint, but its winners were found in another version
          of the space.
    Miss  the kernel is unknown, has no OK trial, has them only on other machines, or its
          winner was withdrawn; ``differences`` names the fields.

The store knows no hardware, so it can not say that one fingerprint is good enough for another: any
field that differs makes a Miss. ``nearest`` lists what a caller may replay that asked for
on_miss="nearest", closest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.lazy import dataclass
from tunegrad.trial import Fingerprint, Trial

if TYPE_CHECKING:
    from tunegrad.db.store import Store

_NEAREST = 8

_UNMEASURED = (
    "trials: the store knows this kernel, but has no trial of it that was measured and right; "
    "tune it for longer"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that kept a lookup from a hit.

    ``field``: one of the fingerprint's, ``space_version``, ``kernel``, ``status``, or ``winner``
    (it was withdrawn).
    """

    field: str
    stored: str
    here: str

    def __str__(self) -> str:
        if self.field == "kernel":
            return f"kernel unknown: {self.here}"
        if self.field == "winner":
            return f"winner: {self.stored}"
        if self.field == "status":
            return _UNMEASURED
        return f"{self.field}: stored {self.stored or '(none)'}, here {self.here or '(none)'}"

    @property
    def brief(self) -> str:
        """As tables of kernels say it: ``field: here != stored``."""
        if self.field == "kernel":
            return "kernel: not in the store"
        if self.field in ("winner", "status"):
            return str(self)
        return f"{self.field}: {self.here} != {self.stored}"


@dataclass(frozen=True, slots=True)
class Nearby:
    """The winner of the same kernel somewhere else, and how that place differs from here."""

    trial: Trial
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """The stored winner for exactly what was asked."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class Near:
    """A winner of this kernel on this machine, from another space version.

    ``nearest`` is not empty.
    """

    differences: tuple[Difference, ...]
    nearest: tuple[Nearby, ...]

    @property
    def reason(self) -> str:
        """The differences in one line."""
        return "; ".join(map(str, self.differences))


@dataclass(frozen=True, slots=True)
class Miss:
    """Nothing stored for this machine.

    ``differences`` are those of the nearest candidate, where there is one.
    """

    differences: tuple[Difference, ...]
    nearest: tuple[Nearby, ...] = ()

    @property
    def reason(self) -> str:
        """The differences in one line."""
        return "; ".join(map(str, self.differences))


Lookup = Hit | Near | Miss


def look_up(store: Store, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Lookup:
    """Ask ``store`` for a winner; on a miss say what differs and what is nearest."""
    trial = store.winner(kernel_key, fingerprint, space_version)
    if trial is not None:
        return Hit(trial)
    if not store.knows(kernel_key):
        return Miss((Difference("kernel", "", kernel_key),))
    nearest = _nearest(store, kernel_key, fingerprint, space_version)
    withdrawn = [
        w
        for w in store.withdrawals(kernel_key, fingerprint)
        if w.trial.space_version == space_version
    ]
    if withdrawn:
        return Miss((Difference("winner", str(withdrawn[-1]), ""),), nearest)
    if not nearest:
        return Miss((Difference("status", "no ok trial", "ok"),))
    first = nearest[0]
    kind = Near if first.trial.fingerprint == fingerprint else Miss
    return kind(first.differences, nearest)


def _nearest(
    store: Store, key: str, fingerprint: Fingerprint, space_version: int
) -> tuple[Nearby, ...]:
    """Winners elsewhere: this machine first, then by how many fields differ, then the newest."""
    ranked = []
    for age, (place, space) in enumerate(store.places(key)):
        differences = _differences(place, space, fingerprint, space_version)
        ranked.append((place != fingerprint, len(differences), age, place, space, differences))
    ranked.sort(key=lambda entry: entry[:3])
    found: list[Nearby] = []
    for *_, place, space, differences in ranked:
        if len(found) == _NEAREST:
            break
        trial = store.winner(key, place, space)
        if trial is not None:
            found.append(Nearby(trial, differences))
    return tuple(found)


def _differences(
    place: Fingerprint, space: int, fingerprint: Fingerprint, here: int
) -> tuple[Difference, ...]:
    fields = tuple(Difference(*entry) for entry in place.differences(fingerprint))
    return (
        fields if space == here else (*fields, Difference("space_version", str(space), str(here)))
    )
