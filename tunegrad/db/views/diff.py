"""Differences of two stores: kernels that one of them lacks, winners and decisions that are not the
same.

Times of whole models stand side by side; they always differ a little, and are no difference.
"""

from __future__ import annotations

from tunegrad.db.contents import Contents, Place, Winner, decided, is_imported, winners
from tunegrad.db.records import PART, Decision, Latency, Question
from tunegrad.db.rows import key_of
from tunegrad.lazy import dataclass
from tunegrad.trial import Fingerprint


@dataclass(frozen=True, slots=True)
class WinnerFacts:
    """A store's winner of a place: its time, and the test that made it win ('' if just fastest)."""

    actions: str
    time_s: float
    test: str
    p_value: float | None
    samples: int
    imported: bool
    session: str


@dataclass(frozen=True, slots=True)
class WinnerChange:
    """A kernel whose winners differ.

    ``machine`` names the fields that differ, '' where the machine is the same.
    """

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
class DecisionChange:
    """A question that both stores have decided, each in its own way; ``about`` names the text."""

    kind: Question
    about: str
    key: str
    space_version: int
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class LatencyPair:
    """Latest latencies of a whole tuned model in each store on one machine; medians in seconds."""

    model: str
    a_s: float
    b_s: float

    @property
    def ratio(self) -> float | None:
        """Time of ``a`` over time of ``b``: above 1, ``b`` is the faster one."""
        return self.a_s / self.b_s if self.b_s > 0 else None


@dataclass(frozen=True, slots=True)
class StoreDiff:
    """Kernels by name, or key where they have none.

    ``same`` counts places with the same winning schedule in both, ``alone`` those that only one of
    them has a winner for, of kernels that both know.
    """

    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    changes: tuple[WinnerChange, ...]
    same: int
    alone: int
    decisions: tuple[DecisionChange, ...] = ()
    latencies: tuple[LatencyPair, ...] = ()


def diff_contents(a: Contents, b: Contents, *, all_machines: bool = False) -> StoreDiff:
    """Differences of ``b`` from ``a``. Winners are compared on the same machine and space version.

    ``all_machines``: a kernel that has no winner on the other's machine is compared with its winner
    on the machine that differs least, and the fields are named.
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
        changes.append(
            WinnerChange(name, key, here.space_version, machine, winner_facts(x), winner_facts(y))
        )
    only = _only(mine - theirs, names), _only(theirs - mine, names)
    return StoreDiff(
        *only,
        tuple(changes),
        same,
        len(alone),
        _decisions(a, b, names),
        _latencies(a.latencies, b.latencies),
    )


def _decisions(a: Contents, b: Contents, names: dict[str, str]) -> tuple[DecisionChange, ...]:
    left, right = _decided(a.decisions), _decided(b.decisions)
    both = [(left[at], right[at]) for at in left.keys() & right.keys()]
    changes = (
        DecisionChange(
            x.kind, names.get(x.key) or x.key, x.key, x.space_version, x.choice, y.choice
        )
        for x, y in both
        if x.choice != y.choice
    )
    return tuple(sorted(changes, key=lambda c: (c.kind, c.about, c.key, c.space_version)))


def _decided(decisions: tuple[Decision, ...]) -> dict[tuple[object, ...], Decision]:
    """The decision in force about every question."""
    asked: dict[tuple[object, ...], list[Decision]] = {}
    for d in decisions:
        asked.setdefault((d.kind, d.key, d.fingerprint, d.space_version), []).append(d)
    return {at: found for at, rows in asked.items() if (found := decided(rows)) is not None}


def _latencies(a: tuple[Latency, ...], b: tuple[Latency, ...]) -> tuple[LatencyPair, ...]:
    left, right = _last(a), _last(b)
    return tuple(
        LatencyPair(at[0], left[at].seconds, right[at].seconds)
        for at in sorted(left.keys() & right.keys(), key=lambda at: (at[0], at[1], at[2].fields))
    )


def _last(latencies: tuple[Latency, ...]) -> dict[tuple[str, str, Fingerprint], Latency]:
    """The newest of each model as it is tuned, by its name, graph and machine."""
    ordered = sorted(latencies, key=lambda x: x.created_s)
    whole = [x for x in ordered if x.kind == "tuned" and PART not in x.model]
    return {(x.model, x.model_key, x.fingerprint): x for x in whole}


def winner_facts(winner: Winner | None) -> WinnerFacts | None:
    """Facts of a winner for one line; None for none."""
    if winner is None:
        return None
    trial, evidence = winner.trial, None if winner.promotion is None else winner.promotion.evidence
    return WinnerFacts(
        actions=trial.actions,
        time_s=winner.time_s,
        test="" if evidence is None else evidence.test,
        p_value=None if evidence is None else evidence.p_value,
        samples=len(
            trial.measurement.samples_s if evidence is None else evidence.challenger_samples_s
        ),
        imported=is_imported(trial) if evidence is None else evidence.imported,
        session=trial.session,
    )


def _nearest_pair(
    place: Place, left: dict[Place, Winner], right: dict[Place, Winner]
) -> tuple[Place, Place]:
    """A place of one store, and the other's that differs least; itself where there is none."""
    other = right if place in left else left
    rivals = [
        p
        for p in other
        if p.kernel_key == place.kernel_key and p.space_version == place.space_version
    ]
    near = min(
        rivals,
        key=lambda p: (len(place.fingerprint.differences(p.fingerprint)), p.fingerprint.fields),
        default=place,
    )
    return (place, near) if place in left else (near, place)


def _order(pair: tuple[Place, Place], names: dict[str, str]) -> tuple[object, ...]:
    here, there = pair
    return (
        names[here.kernel_key],
        here.space_version,
        here.fingerprint.fields,
        there.fingerprint.fields,
    )


def _machines(a: Fingerprint, b: Fingerprint) -> str:
    return "; ".join(
        f"{name}: {x or '(none)'} in a, {y or '(none)'} in b" for name, x, y in a.differences(b)
    )


def _names(*stores: Contents) -> dict[str, str]:
    names: dict[str, str] = {}
    for text, name in (k for store in stores for k in store.kernels):
        key = key_of(text)
        names[key] = names.get(key) or name
    return {key: name or key for key, name in names.items()}


def _only(keys: set[str], names: dict[str, str]) -> tuple[str, ...]:
    return tuple(sorted(names[key] for key in keys))
