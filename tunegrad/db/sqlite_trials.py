"""Trials, winners, promotions and withdrawals of the store in a SQLite file.

Statements are counted, not timed: an ``add`` of a known kernel, machine and policy is BEGIN,
INSERT, COMMIT; one of what was measured before adds a SELECT and an INSERT. A lookup that hits is
one SELECT where the winner was promoted, three where it is the fastest trial; one more where that
was measured again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

from tunegrad.db.base import described, withdrawn
from tunegrad.db.evidence_rows import (
    admit_evidence,
    decode_evidence,
    decode_withdrawal,
    dump_evidence,
)
from tunegrad.db.identity import identity, measured_again, standing, stands_among, wrong_of
from tunegrad.db.records import Evidence, Problem, Withdrawal, imported
from tunegrad.db.rows import (
    TRIAL_COLUMNS,
    TRIAL_FROM,
    admit,
    decode_trial,
    dump_fingerprint,
    encode_trial,
    key_of,
    load_fingerprint,
)
from tunegrad.db.sqlite_base import Run, SqliteBase
from tunegrad.db.sqlite_queries import (
    BY_SPEED,
    FINGERPRINT,
    INSERT_TRIAL,
    KERNEL,
    MEASURED,
    PLACES,
    POLICY,
    PROMOTED,
    REPLACE,
    SAME,
    SELECT,
    STRUCK,
    WITHDRAW,
    WITHDRAWN,
    conditions,
)
from tunegrad.db.values import RowFault
from tunegrad.trial import Fingerprint, Policy, Properties, Trial

__all__ = ["SqliteTrials"]

_log = logging.getLogger(__name__)


_OF_TRIALS = {
    "kernel": f"t.kernel = {KERNEL}",
    "fingerprint": f"t.fingerprint = {FINGERPRINT}",
    "policy": f"t.policy = {POLICY}",
}


class SqliteTrials(SqliteBase):
    """Trials, promotions and withdrawals."""

    def add(self, trial: Trial) -> int:
        """Commit one trial and return its id; that of the stored row when it is already there."""
        self._check_writable()
        trial = admit(trial)
        values = encode_trial(trial)
        with self._transaction() as run:
            owners = self._intern_trial(run, trial)
            cursor = run(INSERT_TRIAL, (*owners.values(), 0, *values))
            if cursor.rowcount == 1 and cursor.lastrowid is not None:
                row = cursor.lastrowid
            else:
                row = self._add_again(run, trial, tuple(owners.values()), values)
        # Only what is committed may be skipped next time.
        self._interned.update(owners)
        self._known_sessions.add(trial.session)
        return row

    def trials(
        self,
        kernel_key: str,
        fingerprint: Fingerprint | None = None,
        policy: Policy | None = None,
        without: Collection[str] = (),
    ) -> list[Trial]:
        """Trials of a kernel, oldest first; of one fingerprint or policy (by its text).

        Of what was measured several times the measurement that counts, as if the sessions in
        ``without`` had measured nothing.
        """
        where, wanted = conditions(
            _OF_TRIALS,
            kernel=kernel_key,
            fingerprint=None if fingerprint is None else dump_fingerprint(fingerprint),
            policy=None if policy is None else policy.text,
        )
        rows = self._select(f"{SELECT} WHERE {where} ORDER BY t.id", wanted)
        found = [t for t in map(self._usable, rows) if t is not None]
        return standing(
            t for t in found if t.session not in without and _answers(t, kernel_key, fingerprint)
        )

    def history(self, kernel_key: str, fingerprint: Fingerprint | None = None) -> list[Trial]:
        """Every measurement of a kernel as it was, oldest first; of one fingerprint where given."""
        fields = None if fingerprint is None else dump_fingerprint(fingerprint)
        where, wanted = conditions(_OF_TRIALS, kernel=kernel_key, fingerprint=fields)
        rows = self._select(
            f"SELECT {TRIAL_COLUMNS} FROM {TRIAL_FROM} WHERE {where} ORDER BY t.id", wanted
        )
        found = [t for t in map(self._decoded, rows) if t is not None]
        return [t for t in found if _answers(t, kernel_key, fingerprint)]

    def count(self, sessions: Collection[str], policy: Policy) -> int:
        """Number of trials that these sessions measured under a policy."""
        wanted = (
            "SELECT COUNT(*) FROM trials t WHERE t.policy = (SELECT id FROM policies "
            "WHERE text = ?)"
        )
        marks = ", ".join("?" * len(sessions))
        return int(
            self._select(f"{wanted} AND t.session IN ({marks})", (policy.text, *sessions))[0][0]
        )

    def kernels(self, fingerprint: Fingerprint | None = None) -> list[tuple[str, str]]:
        """(key, text) of every kernel that has trials (of one fingerprint), by key."""
        fields = None if fingerprint is None else dump_fingerprint(fingerprint)
        where, wanted = conditions(_OF_TRIALS, fingerprint=fields)
        trials = f"SELECT 1 FROM trials t WHERE t.kernel = k.id AND {where}"
        rows = self._select(
            f"SELECT key, text FROM kernels k WHERE EXISTS ({trials}) ORDER BY key", wanted
        )
        return [(key, text) for key, text in rows if isinstance(text, str) and key_of(text) == key]

    def id_of(self, trial: Trial) -> int | None:
        """The id of the stored trial that is the same as this one."""
        when = "t.session = :session AND t.created_s = :created_s"
        named = _names_of(trial) | {"session": trial.session, "created_s": trial.created_s}
        for row in self._select(f"{SELECT} WHERE {SAME} AND {when}", named):
            found = self._usable(row)
            if found is not None and identity(found) == identity(trial):
                return int(row[0])
        return None

    def winner(self, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Trial | None:
        """The trial promoted last, else the fastest OK trial of the newest OK trial's policy."""
        wanted = {
            "kernel": kernel_key, "fingerprint": dump_fingerprint(fingerprint),
            "space": space_version,
        }  # fmt: skip
        for *row, repeated in self._select(
            f"{PROMOTED} AND t.space_version = :space ORDER BY r.id DESC", wanted
        ):
            entry = self._usable_promotion(row)
            if entry is not None and _answers(entry[0], kernel_key, fingerprint, space_version):
                return self._newest(entry[0]) if repeated else entry[0]
        for trial_id, repeated in self._select(BY_SPEED, wanted):
            trial = self._trial(trial_id)
            if trial is None or not trial.measurement.ran:
                continue
            if not _answers(trial, kernel_key, fingerprint, space_version):
                continue
            if not repeated or stands_among(self._measurements(trial)) == trial:
                return trial
        return None

    def _measurements(self, trial: Trial) -> list[Trial]:
        """All sound measurements of what a trial measured, as they were, oldest first."""
        rows = self._select(MEASURED, _names_of(trial))
        return [t for *row, _ in rows if (t := self._decoded(row)) is not None]

    def _newest(self, trial: Trial) -> Trial:
        """The newest measurement that ran of what was promoted; from here before claimed."""
        ran = [t for t in self._measurements(trial) if t.measurement.ran]
        own = [t for t in ran if not imported(t)]
        return (own or ran or [trial])[-1]

    def knows(self, kernel_key: str) -> bool:
        """True when any row names this kernel."""
        return bool(self._select("SELECT 1 FROM kernels WHERE key = ?", (kernel_key,)))

    def places(self, kernel_key: str) -> list[tuple[Fingerprint, int]]:
        """(fingerprint, space version) pairs with an OK trial of this kernel, the newest first."""
        found = []
        for row, fields, space_version in self._select(PLACES, {"kernel": kernel_key}):
            try:
                found.append((load_fingerprint(fields), int(space_version)))
            except RowFault as error:
                self._report(Problem("fingerprints", row, str(error)))
        return found

    def describe(self, trial_id: int, facts: Properties) -> None:
        """Add to a trial what a compiler makes of its program; what it has of it stays."""
        self._check_writable()
        rows = self._select(f"SELECT {TRIAL_COLUMNS} FROM {TRIAL_FROM} WHERE t.id = ?", (trial_id,))
        found = self._decoded(rows[0]) if rows else None
        if found is None:
            raise self._nothing_to_describe(trial_id)
        with self._transaction() as run:
            run(REPLACE, (*encode_trial(admit(described(found, facts))), trial_id))

    # Promotions

    def promote(self, trial_id: int, evidence: Evidence) -> int:
        """Make a trial the winner of its kernel, fingerprint and space version."""
        self._check_writable()
        evidence = admit_evidence(evidence)
        trial = self._trial(trial_id)
        if trial is None or not trial.measurement.ran:
            raise self._no_such_winner(trial_id, trial)
        with self._transaction() as run:
            cursor = run(
                "INSERT INTO promotions (kernel, fingerprint, trial, evidence, created_s)"
                " SELECT kernel, fingerprint, id, ?, ? FROM trials WHERE id = ?",
                (dump_evidence(evidence), self._clock(), trial_id),
            )
        return int(cursor.lastrowid or 0)

    def promotions(self, kernel_key: str, fingerprint: Fingerprint) -> list[tuple[Trial, Evidence]]:
        """Every promotion of a kernel on a machine, oldest first."""
        wanted = {"kernel": kernel_key, "fingerprint": dump_fingerprint(fingerprint)}
        rows = self._select(f"{PROMOTED} ORDER BY r.id", wanted)
        entries = [e for *row, _ in rows if (e := self._usable_promotion(row)) is not None]
        return [entry for entry in entries if _answers(entry[0], kernel_key, fingerprint)]

    def withdraw(self, trial_id: int, reason: str, session: str) -> int:
        """Withdraw a trial and all measurements of the same; the id of the first withdrawal."""
        self._check_writable()
        found = self._select(f"SELECT ({STRUCK}) FROM trials t WHERE t.id = ?", (trial_id,))
        if not found:
            raise self._nothing_to_withdraw(trial_id)
        if found[0][0] is not None:
            return int(found[0][0])
        now_s = self._clock()
        with self._transaction() as run:
            self._intern_session(run, session, now_s)
            cursor = run(WITHDRAW, (self._reason(reason), session, now_s, trial_id))
        self._known_sessions.add(session)
        return int(cursor.lastrowid or 0)

    def withdrawals(self, kernel_key: str, fingerprint: Fingerprint) -> list[Withdrawal]:
        """Every withdrawal of a kernel's trials on a machine, oldest first."""
        wanted = {"kernel": kernel_key, "fingerprint": dump_fingerprint(fingerprint)}
        found = []
        for *columns, reason, session, created_s, row in self._select(WITHDRAWN, wanted):
            trial = decode_trial(columns)
            if isinstance(trial, Problem):
                self._report(trial)  # a damaged row wins nothing either
            elif _answers(trial, kernel_key, fingerprint):
                found.append(decode_withdrawal(row, trial, reason, session, created_s))
        return found

    # Inside

    def _add_again(
        self, run: Run, trial: Trial, owners: tuple[int, ...], values: tuple[object, ...]
    ) -> int:
        """The id of a trial of which the same was measured before.

        It is that of its row, if it is there; of a damaged row, which it replaces; or of a further
        row. What ran and was wrong is withdrawn.
        """
        known: list[tuple[int, Trial]] = []
        rows = run(MEASURED, _names_of(trial)).fetchall()
        for *row, _ in rows:
            found = decode_trial(row)
            if isinstance(found, Problem):
                _log.warning("store %s: %s; replaced by a new measurement", self.label, found)
                run(REPLACE, (*values, row[0]))
                return int(row[0])
            if identity(found) == identity(trial):
                return int(row[0])
            known.append((row[0], found))
        number = int(run(INSERT_TRIAL, (*owners, rows[-1][-1] + 1, *values)).lastrowid or 0)
        wrong = wrong_of([*known, (number, trial)])
        if wrong is not None:
            row_id, measured = wrong
            reason = self._reason(measured_again(measured.measurement.error))
            run(WITHDRAW, (reason, measured.session, measured.created_s, row_id))
        return number

    def _trial(self, trial_id: int) -> Trial | None:
        rows = self._select(f"{SELECT} WHERE t.id = ?", (trial_id,))
        return self._usable(rows[0]) if rows else None

    def _decoded(self, columns: Sequence[Any]) -> Trial | None:
        """The trial of TRIAL_COLUMNS; a damaged one is reported and skipped."""
        found = decode_trial(columns)
        if isinstance(found, Problem):
            self._report(found)
            return None
        return found

    def _usable(self, row: tuple[Any, ...]) -> Trial | None:
        """The trial of a row of SELECT, wrong where it was withdrawn."""
        *columns, reason, session = row
        found = self._decoded(columns)
        if found is None or session is None:
            return found
        return withdrawn(found, str(reason), str(session))

    def _usable_promotion(self, row: Sequence[Any]) -> tuple[Trial, Evidence] | None:
        *columns, promotion, text = row
        trial = self._decoded(columns)
        evidence = decode_evidence(promotion, text)
        if isinstance(evidence, Problem):
            self._report(evidence)
            return None
        return (trial, evidence) if trial is not None and trial.measurement.ran else None


def _answers(
    trial: Trial,
    kernel_key: str,
    fingerprint: Fingerprint | None = None,
    space_version: int | None = None,
) -> bool:
    """True for a trial of what was asked for: a damaged index may lead to a row of another."""
    return (
        trial.kernel_key == kernel_key
        and (fingerprint is None or trial.fingerprint == fingerprint)
        and (space_version is None or trial.space_version == space_version)
    )


def _names_of(trial: Trial) -> dict[str, object]:
    return {
        "kernel": trial.kernel_key,
        "fingerprint": dump_fingerprint(trial.fingerprint),
        "policy": trial.policy.text,
        "actions": trial.actions,
        "space": trial.space_version,
    }
