"""Decisions that stores before schema 3 kept as trials, as rows of their own.

    trial ``images(FORM)`` of a graph's text    -->  decision images FORM
    trial ``plan(NAME)`` of a region's text     -->  decision cut NAME
    trial ``variant(NAME)`` of a kernel's text  -->  decision variant NAME;
                                                     its promotions say that it stood

What stood stays: a choice that was promoted, or was the winner by speed alone. Where a schedule of
the kernel was promoted after one of its variants, that is a decision as well, for the direct
kernel.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tunegrad.db.contents import Contents, Promotion, Winner, Withdrawn, winners
from tunegrad.db.decision_rows import DECISION_VALUES, admit_decision, encode_decision
from tunegrad.db.evidence_rows import decode_evidence
from tunegrad.db.identity import Identity, Place, identity
from tunegrad.db.records import IMPORTED, Decision, Evidence, Question, imported, withdrawn_by
from tunegrad.db.rows import TRIAL_COLUMNS, TRIAL_FROM, decode_trial
from tunegrad.trial import Status, Trial

__all__ = ["apart", "named_decision", "separate_decisions"]

_TEXT = re.compile(r"(images|plan|variant)\((\w{1,64})\)")
_KINDS: Mapping[str, Question] = {"images": "images", "plan": "cut", "variant": "variant"}
_DIRECT = "direct"
_OF_DECISIONS = (
    "t.kernel IN (SELECT kernel FROM trials"
    " WHERE actions GLOB 'images(*)' OR actions GLOB 'plan(*)' OR actions GLOB 'variant(*)')"
)


def named_decision(actions: str) -> tuple[Question, str] | None:
    """Kind and choice that an action text of an older store names; None for a schedule."""
    found = _TEXT.fullmatch(actions)
    return (_KINDS[found[1]], found[2]) if found else None


def apart(contents: Contents) -> Contents:
    """The same contents with decisions as decisions, and only schedules among the trials."""
    named = {
        identity(t): (t, *found) for t in contents.trials if (found := named_decision(t.actions))
    }
    if not named:
        return contents
    won, withdrawn = winners(contents), {w.trial.subject: w for w in contents.withdrawals}
    promoted = {p.trial for p in contents.promotions}
    decisions = [
        _tried(trial, kind, choice, won.get(at.place), withdrawn.get(at.subject))
        for at, (trial, kind, choice) in named.items()
        if at not in promoted
    ]
    decisions += [
        _promoted(*named[p.trial], p, withdrawn.get(p.trial.subject))
        for p in contents.promotions
        if p.trial in named
    ]
    decisions += _back_to_direct(won, named, [d for d in decisions if d.chosen])
    return replace(
        contents,
        trials=tuple(t for t in contents.trials if identity(t) not in named),
        promotions=tuple(p for p in contents.promotions if p.trial not in named),
        withdrawals=tuple(w for w in contents.withdrawals if w.trial not in named),
        decisions=(*contents.decisions, *decisions),
    )


def _tried(
    trial: Trial, kind: Question, choice: str, winner: Winner | None, withdrawn: Withdrawn | None
) -> Decision:
    """A choice that nothing promoted: it stands where it was the winner by speed alone."""
    m = trial.measurement
    won = winner is not None and winner.promotion is None and winner.trial.actions == trial.actions
    mark = IMPORTED if imported(trial) else ""
    evidence = Evidence(mark + ("fastest" if won else "tried"), 1.0, (), m.samples_s, cold=False)
    made = _decision(trial, kind, choice, evidence, trial.created_s, withdrawn)
    return replace(made, chosen=won and withdrawn is None)


def _promoted(
    trial: Trial, kind: Question, choice: str, promotion: Promotion, withdrawn: Withdrawn | None
) -> Decision:
    return _decision(trial, kind, choice, promotion.evidence, promotion.created_s, withdrawn)


def _decision(
    trial: Trial,
    kind: Question,
    choice: str,
    evidence: Evidence,
    created_s: float,
    withdrawn: Withdrawn | None,
) -> Decision:
    """The decision that a trial was; one that was withdrawn is wrong, and stands no more."""
    m = trial.measurement
    return Decision(
        kind=kind,
        text=trial.kernel_text,
        choice=choice,
        chosen=withdrawn is None and m.status is Status.OK,
        evidence=evidence,
        fingerprint=trial.fingerprint,
        space_version=trial.space_version,
        session=trial.session,
        created_s=created_s,
        status=m.status if withdrawn is None else Status.WRONG,
        error=m.error if withdrawn is None else withdrawn_by(withdrawn.session, withdrawn.reason),
        policy=trial.policy.text,
    )


def _back_to_direct(
    won: Mapping[Place, Winner], named: Mapping[Identity, object], chosen: list[Decision]
) -> Iterator[Decision]:
    """Decisions for the direct kernel, which was what ran where a schedule was promoted after a
    variant.
    """
    for d in {
        (d.key, d.fingerprint, d.space_version): d for d in chosen if d.kind == "variant"
    }.values():
        winner = won.get(Place(d.key, d.fingerprint, d.space_version))
        if (
            winner is not None
            and winner.promotion is not None
            and identity(winner.trial) not in named
        ):
            p, t = winner.promotion, winner.trial
            yield replace(
                d,
                choice=_DIRECT,
                evidence=p.evidence,
                created_s=p.created_s,
                session=t.session,
                policy=t.policy.text,
            )


# ---- in a file


def separate_decisions(connection: sqlite3.Connection) -> None:
    """Convert the rows of a store that was just taken to the newest schema.

    Damaged ones stay as they are.
    """
    old, ids = _rows(connection)
    new = apart(old)
    columns = ", ".join(DECISION_VALUES)
    marks = ", ".join("?" * len(DECISION_VALUES))
    for d in new.decisions:
        connection.execute(
            f"INSERT INTO decisions (kernel, fingerprint, {columns})"
            f" SELECT kernel, fingerprint, {marks} FROM trials WHERE id = ?",
            (*encode_decision(admit_decision(d)), ids[_place(d)]),
        )
    kept = {identity(t) for t in new.trials}
    gone = [(ids[i],) for i in map(identity, old.trials) if i not in kept]
    for table, column in (("promotions", "trial"), ("withdrawals", "trial"), ("trials", "id")):
        connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", gone)


def _place(d: Decision) -> Place:
    return Place(d.key, d.fingerprint, d.space_version)


def _rows(connection: sqlite3.Connection) -> tuple[Contents, dict[Identity | Place, int]]:
    """All sound rows of the texts that decisions are about, and ids of trials.

    The id of a place is that of one of its trials.
    """
    ids: dict[Identity | Place, int] = {}
    trials: dict[int, Trial] = {}
    select = f"SELECT {TRIAL_COLUMNS} FROM {TRIAL_FROM} WHERE {_OF_DECISIONS} ORDER BY t.id"
    for row in connection.execute(select).fetchall():
        if isinstance(trial := decode_trial(row), Trial):
            trials[row[0]] = trial
            ids[identity(trial)] = ids[identity(trial).place] = row[0]
    promotions = [
        Promotion(identity(trials[trial]), evidence, float(created_s))
        for row, trial, text, created_s in connection.execute(
            "SELECT id, trial, evidence, created_s FROM promotions ORDER BY id"
        ).fetchall()
        if trial in trials and isinstance(evidence := decode_evidence(row, text), Evidence)
    ]
    withdrawals = [
        Withdrawn(identity(trials[trial]), str(reason), str(session), 0.0)
        for trial, reason, session in connection.execute(
            "SELECT trial, reason, session FROM withdrawals"
        ).fetchall()
        if trial in trials
    ]
    return Contents(
        trials=tuple(trials.values()), promotions=tuple(promotions), withdrawals=tuple(withdrawals)
    ), ids
