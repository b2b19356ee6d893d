"""Contents of several stores as one, and contents of a stranger's file under those of a store:
evidence wins.

The same row twice (what was measured, by which session, when) is one row; where copies differ it is
the one that comes first in this order: measured by a store's owner before imported; ``wrong``
before all other ends; ok before failures; more samples; more facts. Other measurements of the same
are further rows. Where one of them ran and another was wrong, the same is withdrawn. What a file
claims of something that an owner measured is left out.

Promotions of a place (kernel, fingerprint, space version) are all kept, in the order of their time,
but for one: the winner's comes last. The winner is one of those that the stores end with. One that
another store has seen replaced is out: its successor won against it in person. A promotion whose
trial any store has withdrawn is history and wins nothing. Of the others the first in this order
wins: own before imported; tested against an incumbent before crowned without one; cold before warm;
the lower median; the lower p-value; more samples; newer. A place without promotions has the winner
that its trials give, which stand in the order of their time.

Withdrawals are kept once for all measurements of the same, the oldest. An imported one only counts
where the trial itself was imported. Decisions and latencies of all stores are kept, in the order of
their time: what stands is what an owner chose last.

An imported promotion never overrules what was measured here. Where a place has timed trials of its
own and no promotion of its own, the best of its own is promoted by the test ``held``; where it has
one, imported ones stand before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TypeVar

from tunegrad.db.contents import (
    Contents,
    Identity,
    Place,
    Promotion,
    Spend,
    Subject,
    Withdrawn,
    fastest,
    identity,
    is_imported,
    place_of,
    subject,
    with_wrong_withdrawn,
)
from tunegrad.db.exchange.export import decision_row, latency_row, promotion_row, trial_row
from tunegrad.db.records import Decision, Evidence, Latency, Session
from tunegrad.db.rows import dump_fingerprint, key_of
from tunegrad.trial import Measurement, Status, Trial

HELD = "held"
"""The test of a promotion that puts own measurements before a file's claims, without samples."""


def merge_contents(stores: Sequence[Contents]) -> Contents:
    """Everything that the stores hold.

    Their order does not matter; one that was merged before changes nothing.
    """
    trials = _trials(t for store in stores for t in store.trials)
    given = (w for store in stores for w in store.withdrawals)
    found = with_wrong_withdrawn(
        Contents(trials=tuple(trials.values()), withdrawals=tuple(given))
    ).withdrawals
    withdrawals = _withdrawals(found, trials)
    withdrawn = {w.trial.subject for w in withdrawals}
    merged = Contents(
        kernels=_kernels(stores),
        sessions=_sessions(s for store in stores for s in store.sessions),
        trials=tuple(sorted(trials.values(), key=_age)),
        promotions=_promotions(
            stores, {i for i, t in trials.items() if t.measurement.ran}, withdrawn
        ),
        withdrawals=withdrawals,
        spends=_spends(s for store in stores for s in store.spends),
        decisions=_decisions(d for store in stores for d in store.decisions),
        latencies=_latencies(x for store in stores for x in store.latencies),
    )
    return _by_place(_settled(merged))


def with_imported(here: Contents, file: Contents) -> Contents:
    """A store and what a file claims: rows of the store stay as they are, in their order; those of
    the file are new.

    Spent budget is only restored into an empty store: a file can not make a machine stop searching.
    """
    known = here.by_identity()
    measured = {subject(t) for t in here.trials if not is_imported(t)}
    new = [t for t in file.trials if identity(t) not in known and subject(t) not in measured]
    trials = (*here.trials, *new)
    mine = [p for p in here.promotions if not is_imported(p)]
    claimed = [p for p in here.promotions if is_imported(p)]
    old = {_claim(p) for p in here.promotions}
    void = {w.place for w in here.withdrawals if not is_imported(w)}
    claimed += [p for p in file.promotions if _claim(p) not in old and p.place not in void]
    said = [w for w in file.withdrawals if w.trial.subject not in here.withdrawn | measured]
    decisions = _rest(here.decisions, file.decisions, _says)
    latencies = _rest(here.latencies, file.latencies, _tells)
    names = dict(file.kernels)
    names |= {text: name or names.get(text, "") for text, name in here.kernels}
    sessions = {s.id: s for s in file.sessions} | {s.id: s for s in here.sessions if s.command}
    sessions = {s.id: s for s in here.sessions} | sessions
    merged = Contents(
        kernels=tuple(sorted(names.items(), key=lambda k: key_of(k[0]))),
        sessions=tuple(sorted(sessions.values(), key=lambda s: (s.started_s, s.id))),
        trials=trials,
        promotions=(*claimed, *mine),
        withdrawals=(*here.withdrawals, *said),
        decisions=(*here.decisions, *decisions),
        latencies=(*here.latencies, *latencies),
        spends=here.spends if here.trials or here.spends else file.spends,
    )
    return _settled(merged.with_sound_promotions())


def _settled(contents: Contents) -> Contents:
    """With a promotion for each place where imported rows would win against own timed trials."""
    void = {w.place for w in contents.withdrawals if not is_imported(w)}
    own = [t for t in contents.trials if not is_imported(t) and place_of(t) not in void]
    strangers = {place_of(t) for t in contents.trials if is_imported(t) and t.measurement.ran}
    strangers |= {p.place for p in contents.promotions if is_imported(p)}
    decided = {p.place for p in contents.promotions if not is_imported(p)}
    held = [
        Promotion(identity(trial), _held(trial), trial.created_s)
        for place, winner in fastest(own).items()
        if place in strangers and place not in decided
        for trial in (winner.trial,)
    ]
    return replace(contents, promotions=(*contents.promotions, *sorted(held, key=_moment)))


def _held(trial: Trial) -> Evidence:
    return Evidence(HELD, 1.0, (), trial.measurement.samples_s, cold=trial.policy.cache != "warm")


# ---- trials


def _trials(given: Iterable[Trial]) -> dict[Identity, Trial]:
    """Every row once; none of a file of what an owner measured."""
    found: dict[Identity, Trial] = {}
    for trial in given:
        known = found.get(identity(trial))
        if known is None or _rank(trial) > _rank(known):
            found[identity(trial)] = trial
    own = {i.subject for i, t in found.items() if not is_imported(t)}
    return {i: t for i, t in found.items() if i.subject not in own or not is_imported(t)}


def _rank(trial: Trial) -> tuple[object, ...]:
    m = trial.measurement
    own = not is_imported(trial)
    wrong, ok = m.status is Status.WRONG, m.status is Status.OK
    told = len(m.facts) + len(m.state)
    return own, wrong, ok, len(m.samples_s), told, trial.created_s, _text(trial_row(trial))


def _age(trial: Trial) -> tuple[object, ...]:
    return (
        trial.created_s,
        trial.kernel_key,
        dump_fingerprint(trial.fingerprint),
        _text(trial_row(trial)),
    )


def _text(row: dict[str, object]) -> str:
    return repr(sorted(row.items()))


# ---- promotions


def _promotions(
    stores: Sequence[Contents], timed: Set[Identity], withdrawn: Set[Subject]
) -> tuple[Promotion, ...]:
    own = {_claim(p) for store in stores for p in store.promotions if not is_imported(p)}
    chains: dict[Place, list[list[Promotion]]] = {}
    for store in stores:
        mine: dict[Place, list[Promotion]] = {}
        for p in store.promotions:
            if p.trial in timed and not (is_imported(p) and _claim(p) in own):
                mine.setdefault(p.place, []).append(p)
        for place, chain in mine.items():
            chains.setdefault(place, []).append(chain)
    return tuple(p for found in chains.values() for p in _chain(found, withdrawn))


def _chain(every_chain: Sequence[Sequence[Promotion]], withdrawn: Set[Subject]) -> list[Promotion]:
    """All promotions of one place, once each; the winner's last, where one stands."""
    every = dict.fromkeys(p for chain in every_chain for p in chain)
    standing = [[p for p in chain if p.trial.subject not in withdrawn] for chain in every_chain]
    chains = [chain for chain in standing if chain]
    if not chains:
        return sorted(every, key=_moment)
    replaced = {p for chain in chains for p in chain[:-1]}
    ends = {chain[-1] for chain in chains}
    best = max(ends - replaced or ends, key=_strength)
    return [*(p for p in every if p != best), best]


def _by_place(contents: Contents) -> Contents:
    """Promotions by place, then by time; the last of a place is the winner's and stays last."""
    places: dict[Place, list[Promotion]] = {}
    for p in contents.promotions:
        places.setdefault(p.place, []).append(p)
    order = sorted(
        places, key=lambda at: (at.kernel_key, dump_fingerprint(at.fingerprint), at.space_version)
    )
    chains = (places[at] for at in order)
    ordered = (p for chain in chains for p in (*sorted(chain[:-1], key=_moment), chain[-1]))
    return replace(contents, promotions=tuple(ordered))


def _strength(promotion: Promotion) -> tuple[object, ...]:
    e = promotion.evidence
    median_s = Measurement(Status.OK, e.challenger_samples_s).seconds
    samples = len(e.incumbent_samples_s) + len(e.challenger_samples_s)
    tested = bool(e.incumbent_samples_s)
    return (
        not is_imported(promotion),
        tested,
        e.cold,
        -median_s,
        -e.p_value,
        samples,
        *_moment(promotion),
    )


def _moment(promotion: Promotion) -> tuple[object, ...]:
    return promotion.created_s, _text(promotion_row(promotion)), is_imported(promotion)


def _claim(promotion: Promotion) -> tuple[object, ...]:
    """The content of a promotion, without its source."""
    return promotion.trial, promotion.created_s, _text(promotion_row(promotion))


# ---- the rest


def _withdrawals(
    found: Iterable[Withdrawn], trials: Mapping[Identity, Trial]
) -> tuple[Withdrawn, ...]:
    """Per measurement the oldest withdrawal, own before imported ones of imported trials."""
    kept: dict[Subject, Withdrawn] = {}
    for w in found:
        trial = trials.get(w.trial)
        if trial is None or (is_imported(w) and not is_imported(trial)):
            continue
        known = kept.get(w.trial.subject)
        if known is None or _standing(w) < _standing(known):
            kept[w.trial.subject] = w
    return tuple(sorted(kept.values(), key=_standing))


def _standing(w: Withdrawn) -> tuple[object, ...]:
    return is_imported(w), w.created_s, w.session, w.reason, repr(w.trial)


# ---- decisions, latencies

_Row = TypeVar("_Row", Decision, Latency)


def _decisions(given: Iterable[Decision]) -> tuple[Decision, ...]:
    return _once(given, _says, lambda d: (d.created_s, d.chosen, _says(d)))


def _latencies(given: Iterable[Latency]) -> tuple[Latency, ...]:
    return _once(given, _tells, lambda x: (x.created_s, _tells(x)))


def _once(
    given: Iterable[_Row], says: Callable[[_Row], str], age: Callable[[_Row], tuple[object, ...]]
) -> tuple[_Row, ...]:
    """Every row once, in the order of their time; own before what a file says of the same."""
    found: dict[str, _Row] = {}
    for row in given:
        if says(row) not in found or not is_imported(row):
            found[says(row)] = row
    return tuple(sorted(found.values(), key=age))


def _rest(known: Iterable[_Row], given: Iterable[_Row], says: Callable[[_Row], str]) -> list[_Row]:
    """Rows of a file that are not there yet, from any source."""
    said = {says(row) for row in known}
    return [row for row in given if says(row) not in said]


def _says(d: Decision) -> str:
    return _text(decision_row(d))


def _tells(x: Latency) -> str:
    return _text(latency_row(x))


def _kernels(stores: Sequence[Contents]) -> tuple[tuple[str, str], ...]:
    """Every kernel; of its names the first in the alphabet, in whatever order the stores come."""
    names: dict[str, set[str]] = {}
    for text, name in (k for store in stores for k in store.kernels):
        names.setdefault(text, set()).add(name)
    found = [(text, min(given - {""}, default="")) for text, given in names.items()]
    return tuple(sorted(found, key=lambda k: key_of(k[0])))


def _sessions(sessions: Iterable[Session]) -> tuple[Session, ...]:
    """Every session once: known before named by trials alone, ended before running."""
    found: dict[str, Session] = {}
    for session in sessions:
        known = found.get(session.id)
        if known is None or _told(session) > _told(known):
            found[session.id] = session
    return tuple(sorted(found.values(), key=lambda s: (s.started_s, s.id)))


def _told(session: Session) -> tuple[object, ...]:
    ended_s = -1.0 if session.ended_s is None else session.ended_s
    return (
        bool(session.command), ended_s, -session.started_s, session.command, session.seed,
        session.settings,
        session.version, session.versions, session.state,
    )  # fmt: skip


def _spends(spends: Iterable[Spend]) -> tuple[Spend, ...]:
    """The most that a store says for each, not the sum: one store may be a copy of another."""
    found: dict[tuple[str, str, str], Spend] = {}
    for spend in spends:
        key = (spend.model_key, dump_fingerprint(spend.fingerprint), spend.settings)
        if key not in found or spend.seconds > found[key].seconds:
            found[key] = spend
    return tuple(found[key] for key in sorted(found))
