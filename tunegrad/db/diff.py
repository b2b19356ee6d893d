"""How two stores differ: kernels that one of them lacks, and winners that are not the same schedule."""

from __future__ import annotations

from dataclasses import dataclass

from tunegrad.db.contents import Contents, Place, Winner, is_imported, winners
from tunegrad.db.rows import key_of
from tunegrad.trial import Fingerprint

__all__ = ["StoreDiff", "WinnerChange", "WinnerFacts", "diff_contents", "winner_facts"]


@dataclass(frozen=True, slots=True)
class WinnerFacts:
    """One store's winner of a place: its time, and the test that made it win ('' where it is only the fastest)."""

    actions: str
    time_s: float
    test: str
    p_value: float | None
    samples: int
    imported: bool
    session: str


@dataclass(frozen=True, slots=True)
class WinnerChange:
    """A kernel whose winners differ. ``machine`` names the fields that differ, '' where the machine is the same."""

    kernel: str
    key: str
    space_version: int
    machine: str
    a: WinnerFacts | None
    b: WinnerFacts | None

    @property
    def ratio(self) -> float | None:
        """Time of ``a`` over time of ``b``: above 1, ``b`` is the faster one."""
        return self.a.time_s / self.b.time_s if self.a and self.b and self.b.time_s > 0 else None


@dataclass(frozen=True, slots=True)
class StoreDiff:
    """Kernels by name, or key where they have none.

    ``same`` counts places with the same winning schedule in both, ``alone`` those that only one of them has a winner
    for, of kernels that both know.
    """

    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    changes: tuple[WinnerChange, ...]
    same: int
    alone: int


def diff_contents(a: Contents, b: Contents, *, all_machines: bool = False) -> StoreDiff:
    """How ``b`` differs from ``a``. Winners are compared on the same machine and space version.

    ``all_machines``: a kernel that has no winner on the other's machine is compared with its winner on the machine
    that differs least, and the fields are named.
    """
    names = _names(a, b)
    mine, theirs = {key_of(k) for k, _ in a.kernels}, {key_of(k) for k, _ in b.kernels}
    left = {p: w for p, w in winners(a).items() if p.kernel_key in theirs}
    right = {p: w for p, w in winners(b).items() if p.kernel_key in mine}
    pairs = {(p, p) for p in left.keys() & right.keys()}
    alone = left.keys() ^ right.keys()
    if all_machines:
        pairs |= {_nearest_pair(p, left, right) for p in alone}
        alone = set()
    changes, same = [], 0
    for here, there in sorted(pairs, key=lambda pair: _order(pair, names)):
        x, y = left.get(here), right.get(there)
        if x is not None and y is not None and x.trial.actions == y.trial.actions:
            same += 1
            continue
        machine = _machines(here.fingerprint, there.fingerprint)
        name, key = names[here.kernel_key], here.kernel_key
        changes.append(WinnerChange(name, key, here.space_version, machine, winner_facts(x), winner_facts(y)))
    return StoreDiff(_only(mine - theirs, names), _only(theirs - mine, names), tuple(changes), same, len(alone))


def winner_facts(winner: Winner | None) -> WinnerFacts | None:
    """What is worth knowing of a winner in one line; None for none."""
    if winner is None:
        return None
    trial, evidence = winner.trial, None if winner.promotion is None else winner.promotion.evidence
    return WinnerFacts(
        actions=trial.actions,
        time_s=winner.time_s,
        test="" if evidence is None else evidence.test,
        p_value=None if evidence is None else evidence.p_value,
        samples=len(trial.measurement.samples_s if evidence is None else evidence.challenger_samples_s),
        imported=is_imported(trial) if evidence is None else evidence.imported,
        session=trial.session,
    )


def _nearest_pair(place: Place, left: dict[Place, Winner], right: dict[Place, Winner]) -> tuple[Place, Place]:
    """A place that one store has, and the place of the other that differs least; itself where there is none."""
    other = right if place in left else left
    rivals = [p for p in other if p.kernel_key == place.kernel_key and p.space_version == place.space_version]
    near = min(
        rivals, key=lambda p: (len(place.fingerprint.differences(p.fingerprint)), p.fingerprint.fields), default=place
    )
    return (place, near) if place in left else (near, place)


def _order(pair: tuple[Place, Place], names: dict[str, str]) -> tuple[object, ...]:
    here, there = pair
    return names[here.kernel_key], here.space_version, here.fingerprint.fields, there.fingerprint.fields


def _machines(a: Fingerprint, b: Fingerprint) -> str:
    return "; ".join(f"{name}: {x or '(none)'} in a, {y or '(none)'} in b" for name, x, y in a.differences(b))


def _names(*stores: Contents) -> dict[str, str]:
    names: dict[str, str] = {}
    for text, name in (k for store in stores for k in store.kernels):
        key = key_of(text)
        names[key] = names.get(key) or name
    return {key: name or key for key, name in names.items()}


def _only(keys: set[str], names: dict[str, str]) -> tuple[str, ...]:
    return tuple(sorted(names[key] for key in keys))
