"""Reasons why a kernel hits, nearly hits or misses on a machine, and why its winner won."""

from __future__ import annotations

from collections import Counter

from tunegrad.db.contents import (
    Contents,
    Place,
    Promotion,
    Winner,
    is_imported,
    place_of,
    standing,
    winners,
)
from tunegrad.db.lookup import Hit, Lookup, Near
from tunegrad.db.opening import store_of
from tunegrad.db.rows import key_of
from tunegrad.db.views.diff import WinnerFacts, winner_facts
from tunegrad.db.views.histories import DecisionRow, decision_view, find_kernel, median_ms
from tunegrad.lazy import dataclass
from tunegrad.trial import Fingerprint, Status, Trial


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field of the key: the nearest winner's value, the one asked for, whether they agree."""

    field: str
    stored: str
    here: str

    @property
    def same(self) -> bool:
        return self.stored == self.here


@dataclass(frozen=True, slots=True)
class PromotionRow:
    """One promotion.

    Medians are of the interleaved samples; the incumbent's is None for a first winner.
    """

    actions: str
    test: str
    p_value: float
    incumbent_ms: float | None
    challenger_ms: float
    samples: int
    cold: bool
    imported: bool
    session: str
    created_s: float


@dataclass(frozen=True, slots=True)
class NearRow:
    """A winner of the same kernel elsewhere, and how that place differs."""

    actions: str
    time_ms: float
    differs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WithdrawalRow:
    """One withdrawal: which schedule shall not win, which session said so, and why."""

    actions: str
    reason: str
    session: str
    imported: bool
    created_s: float


@dataclass(frozen=True, slots=True)
class Why:
    """The answer.

    ``fields`` compare with the nearest winner's place, or this one on a hit; ``candidates`` by
    status.

    ``decisions`` about its text are of the machine that asks, oldest first. ``winner`` is the
    stored winner that is spoken of: the one here on a hit, else the nearest. ``rule`` says by which
    rule it won, ``fastest_ms`` is the fastest candidate of its place whatever the tests said.
    """

    kernel: str
    key: str
    text: str
    outcome: str
    reason: str
    fields: tuple[FieldRow, ...]
    winner: WinnerFacts | None
    origin: str
    rule: str
    command: str
    candidates: tuple[tuple[str, int], ...]
    fastest_ms: float | None
    promotions: tuple[PromotionRow, ...]
    withdrawals: tuple[WithdrawalRow, ...]
    nearest: tuple[NearRow, ...]
    decisions: tuple[DecisionRow, ...] = ()


def why(contents: Contents, wanted: str, here: Fingerprint, space_version: int) -> Why:
    """Explain one kernel for the machine ``here``. Raises StoreError where ``find_kernel`` does."""
    text, name = find_kernel(contents, wanted)
    key = key_of(text)
    won = winners(contents)
    with store_of(contents.of_kernels({key})) as store:
        answer = store.lookup(key, here, space_version)
    asked = Place(key, here, space_version)
    place = _place(answer, asked)
    winner = won.get(place)
    trials = standing(t for t in contents.trials if place_of(t) == place)
    promotions = [p for p in contents.promotions if p.place == place]
    commands = {s.id: s.command for s in contents.sessions}
    by_identity = contents.by_identity()
    return Why(
        kernel=name,
        key=key,
        text=text,
        outcome="hit" if isinstance(answer, Hit) else "near" if isinstance(answer,
            Near) else "miss",
        reason="" if isinstance(answer, Hit) else answer.reason,
        fields=_fields(place, here, space_version) if winner is not None else (),
        winner=winner_facts(winner),
        origin="" if winner is None else winner.trial.origin,
        rule="" if winner is None else _rule(winner, trials),
        command="" if winner is None else commands.get(winner.trial.session, ""),
        candidates=_candidates(trials),
        fastest_ms=min((1e3 * t.measurement.seconds for t in trials if t.measurement.ran),
            default=None),
        promotions=tuple(_promotion(p, by_identity[p.trial]) for p in promotions),
        withdrawals=tuple(
            WithdrawalRow(w.trial.subject.actions, w.reason, w.session, is_imported(w), w.created_s)
            for w in contents.withdrawals
            if w.place in (place, asked)
        ),
        nearest=() if isinstance(answer, Hit) else tuple(
            NearRow(n.trial.actions, 1e3 * n.trial.measurement.seconds,
                tuple(map(str, n.differences)))
            for n in answer.nearest
        ),
        decisions=tuple(decision_view(d) for d in contents.decisions if (d.key,
            d.fingerprint) == (key, here)),
    )  # fmt: skip


def _place(answer: Lookup, asked: Place) -> Place:
    """The place to speak of: the one asked for, or that of the nearest winner."""
    if isinstance(answer, Hit) or not answer.nearest:
        return asked
    return place_of(answer.nearest[0].trial)


def _fields(place: Place, here: Fingerprint, space_version: int) -> tuple[FieldRow, ...]:
    stored, asked = dict(place.fingerprint.fields), dict(here.fields)
    rows = [
        FieldRow(n, stored.get(n, ""), asked.get(n, ""))
        for n in sorted(stored.keys() | asked.keys())
    ]
    return (*rows, FieldRow("space_version", str(place.space_version), str(space_version)))


def _rule(winner: Winner, trials: list[Trial]) -> str:
    if winner.promotion is not None:
        return "promoted last" + (
            ", by a file that was imported" if winner.promotion.evidence.imported else ""
        )
    rivals = [t for t in trials if t.measurement.ran and t.policy.text == winner.trial.policy.text]
    return (
        f"no promotion: the fastest by median of {len(rivals)} under the policy of the "
        "newest ok trial"
    )


def _candidates(trials: list[Trial]) -> tuple[tuple[str, int], ...]:
    counts = Counter(t.measurement.status for t in trials)
    return tuple((status.value, counts[status]) for status in Status if counts[status])


def _promotion(promotion: Promotion, trial: Trial) -> PromotionRow:
    e = promotion.evidence
    return PromotionRow(
        actions=trial.actions,
        test=e.test,
        p_value=e.p_value,
        incumbent_ms=median_ms(e.incumbent_samples_s),
        challenger_ms=median_ms(e.challenger_samples_s) or 1e3 * trial.measurement.seconds,
        samples=len(e.challenger_samples_s),
        cold=e.cold,
        imported=e.imported,
        session=trial.session,
        created_s=promotion.created_s,
    )
