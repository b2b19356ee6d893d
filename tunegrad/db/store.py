"""The store: its contract, and what keeps it, one SQLite file or the same tables in memory.

One writer, any number of readers; every row is committed before its method returns. One conformance
suite (``tests/conformance/store_suite.py``) holds a file and memory to the contract.
"""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Literal, Self, TypeVar

from tunegrad.db import contents as db_contents
from tunegrad.db import rows as db_rows
from tunegrad.db import sql
from tunegrad.db.check import verify_store
from tunegrad.db.database import Database, Run
from tunegrad.db.lookup import Lookup, look_up
from tunegrad.db.records import (
    STOPPED,
    WITHDRAWN,
    Decision,
    Evidence,
    Latency,
    Problem,
    Question,
    Session,
    Stats,
    Withdrawal,
    imported,
    withdrawn_by,
)
from tunegrad.errors import InternalError, StoreError
from tunegrad.trial import Fingerprint, Policy, Properties, Status, Trial

Mode = Literal["read", "write"]

_log = logging.getLogger(__name__)
_Row = TypeVar("_Row")


class Store:
    """Trials, winners, decisions, latencies of whole models, sessions and spent budget.

    Every method may raise StoreError; those that write do, when the store was opened for reading.
    What a method wrote is committed before it returns. Damaged rows are skipped and reported by
    ``verify``, never returned. A store belongs to the process that opened it; its threads may share
    it. Made by ``open_store``; ``clock`` gives seconds since the epoch, ``problems`` are those of
    the damaged file that a store in memory was read from.
    """

    def __init__(
        self, database: Database, clock: Callable[[], float], problems: Sequence[Problem] = ()
    ) -> None:
        self._db = database
        self._clock = clock
        self._problems = tuple(problems)
        self.sound = not problems
        """False once a row, or the file, was found to be damaged."""

    @property
    def label(self) -> str:
        """Name of the store in messages: its path."""
        return self._db.label

    @property
    def mode(self) -> Mode:
        """The mode in which it was opened."""
        return "write" if self._db.writable else "read"

    def close(self) -> None:
        """Release the file and the writer's lock. Closing twice is fine.

        In a forked child this does nothing: they are the owner's.
        """
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- trials

    def add(self, trial: Trial) -> int:
        """Commit one trial and return its id, > 0 and rising.

        Two trials measured the same when kernel, fingerprint, actions, policy text and space
        version are equal: the later one is a further row. It is the same row when its session and
        moment are equal, too: then nothing is written, and that row's id is returned. A damaged row
        is replaced by a new measurement of the same, under the same id. Where one measurement of
        the same ran and another was wrong, they are withdrawn. Raises InternalError for a trial
        that breaks its rules (a key that is not the hash of the text, a time that is negative or
        not finite).
        """
        self._db.check_writable()
        trial = db_rows.admit(trial)
        values = db_rows.encode_trial(trial)
        with self._db.transaction() as run:
            owners = sql.owners_of(self._db, run, trial)
            cursor = run(sql.INSERT_TRIAL, (*owners, 0, *values))
            if cursor.rowcount == 1 and cursor.lastrowid is not None:
                return cursor.lastrowid
            return self._add_again(run, trial, owners, values)

    def _add_again(
        self, run: Run, trial: Trial, owners: tuple[int, ...], values: tuple[object, ...]
    ) -> int:
        """The id of a trial of which the same was measured before.

        It is that of its row, if it is there; of a damaged row, which it replaces; or of a further
        row. What ran and was wrong is withdrawn.
        """
        known: list[tuple[int, Trial]] = []
        rows = run(sql.MEASURED, _names_of(trial)).fetchall()
        for *row, _ in rows:
            found = db_rows.decode_trial(row)
            if isinstance(found, Problem):
                _log.warning("store %s: %s; replaced by a new measurement", self.label, found)
                run(sql.REPLACE, (*values, row[0]))
                return int(row[0])
            if db_contents.identity(found) == db_contents.identity(trial):
                return int(row[0])
            known.append((row[0], found))
        number = int(run(sql.INSERT_TRIAL, (*owners, rows[-1][-1] + 1, *values)).lastrowid or 0)
        wrong = db_contents.wrong_of([*known, (number, trial)])
        if wrong is not None:
            row_id, measured = wrong
            reason = sql.clean_reason(db_contents.measured_again(measured.measurement.error))
            run(sql.WITHDRAW, (reason, measured.session, measured.created_s, row_id))
        return number

    def together(self) -> AbstractContextManager[None]:
        """Commit the trials that the block adds at its end, all at once or none of them."""
        return self._db.together()

    def trials(
        self,
        kernel_key: str,
        fingerprint: Fingerprint | None = None,
        policy: Policy | None = None,
        without: Collection[str] = (),
    ) -> list[Trial]:
        """Trials of a kernel, oldest first; of one fingerprint or one policy (by its text) where
        given.

        Of what was measured several times it is the measurement that counts: one from here before
        one of a file, a wrong one before all others, a confirmed end before a crash that was seen
        once only, then the newest. A withdrawn one reads as ``wrong``: it has no samples, and its
        error says which session withdrew it, and why. It is as if the sessions in ``without`` had
        measured nothing.
        """
        where, wanted = sql.conditions(
            sql.OF_TRIALS,
            kernel=kernel_key,
            fingerprint=_fields(fingerprint),
            policy=None if policy is None else policy.text,
        )
        rows = self._db.select(f"{sql.SELECT} WHERE {where} ORDER BY t.id", wanted)
        found = [t for t in map(self._usable, rows) if t is not None]
        return db_contents.standing(
            t for t in found if t.session not in without and _answers(t, kernel_key, fingerprint)
        )

    def history(self, kernel_key: str, fingerprint: Fingerprint | None = None) -> list[Trial]:
        """Every measurement of a kernel as made, oldest first; of one fingerprint where given."""
        where, wanted = sql.conditions(
            sql.OF_TRIALS, kernel=kernel_key, fingerprint=_fields(fingerprint)
        )
        rows = self._db.select(f"{sql.BARE} WHERE {where} ORDER BY t.id", wanted)
        found = self._sound(map(db_rows.decode_trial, rows))
        return [t for t in found if _answers(t, kernel_key, fingerprint)]

    def count(self, sessions: Collection[str], policy: Policy) -> int:
        """Number of trials that these sessions measured under a policy (by its text)."""
        marks = ", ".join("?" * len(sessions))
        ((count,),) = self._db.select(
            "SELECT COUNT(*) FROM trials t JOIN policies p ON p.id = t.policy WHERE p.text = ?"
            f" AND t.session IN ({marks})",
            (policy.text, *sessions),
        )
        return int(count)

    def kernels(self, fingerprint: Fingerprint | None = None) -> list[tuple[str, str]]:
        """(key, text) of every kernel with trials, by key; of one fingerprint where given."""
        where, wanted = sql.conditions(sql.OF_TRIALS, fingerprint=_fields(fingerprint))
        trials = f"SELECT 1 FROM trials t WHERE t.kernel = k.id AND {where}"
        rows = self._db.select(
            f"SELECT key, text FROM kernels k WHERE EXISTS ({trials}) ORDER BY key", wanted
        )
        return [
            (key, text)
            for key, text in rows
            if isinstance(text, str) and db_rows.key_of(text) == key
        ]

    def id_of(self, trial: Trial) -> int | None:
        """The id of this trial's row: the same measured by the same session at the same moment."""
        when = "t.session = :session AND t.created_s = :created_s"
        named = _names_of(trial) | {"session": trial.session, "created_s": trial.created_s}
        for row in self._db.select(f"{sql.SELECT} WHERE {sql.SAME} AND {when}", named):
            found = self._usable(row)
            if found is not None and db_contents.identity(found) == db_contents.identity(trial):
                return int(row[0])
        return None

    def describe(self, trial_id: int, facts: Properties) -> None:
        """Add to a trial what a compiler makes of its program; what it has of it stays.

        Raises StoreError for no trial.
        """
        self._db.check_writable()
        found = self._sound(
            map(db_rows.decode_trial, self._db.select(f"{sql.BARE} WHERE t.id = ?", (trial_id,)))
        )
        if not found:
            raise StoreError(f"store {self.label}: there is no trial {trial_id} to describe")
        measured = found[0].measurement
        known = tuple(sorted((dict(facts) | dict(measured.facts)).items()))
        described = replace(found[0], measurement=replace(measured, facts=known))
        with self._db.transaction() as run:
            run(sql.REPLACE, (*db_rows.encode_trial(db_rows.admit(described)), trial_id))

    def _trial(self, trial_id: int) -> Trial | None:
        rows = self._db.select(f"{sql.SELECT} WHERE t.id = ?", (trial_id,))
        return self._usable(rows[0]) if rows else None

    def _usable(self, row: tuple[Any, ...]) -> Trial | None:
        """The trial of a row of SELECT, wrong where it was withdrawn; None for a damaged one."""
        *columns, reason, session = row
        found = db_rows.decode_trial(columns)
        if isinstance(found, Problem):
            self._report(found)
            return None
        return found if session is None else _withdrawn(found, str(reason), str(session))

    # ---- winners, promotions and withdrawals

    def winner(self, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Trial | None:
        """The trial promoted last; with no promotion, the fastest OK trial by median, the oldest of
        equals.

        Figures of two policies do not compare: with no promotion, only the policy of the newest OK
        trial counts. A withdrawn trial does not win; where one was withdrawn, only a promotion
        makes a winner, not speed. What was promoted and measured again since comes with the figures
        of the newest measurement that ran.
        """
        wanted = _wanted(kernel_key, fingerprint) | {"space": space_version}
        promoted = f"{sql.PROMOTED} AND t.space_version = :space ORDER BY r.id DESC"
        for *row, repeated in self._db.select(promoted, wanted):
            entry = self._promotion(row)
            if entry is not None and _answers(entry[0], kernel_key, fingerprint, space_version):
                return self._newest(entry[0]) if repeated else entry[0]
        for trial_id, repeated in self._db.select(sql.BY_SPEED, wanted):
            trial = self._trial(trial_id)
            if trial is None or not trial.measurement.ran:
                continue
            if not _answers(trial, kernel_key, fingerprint, space_version):
                continue
            if not repeated or db_contents.stands_among(self._measurements(trial)) == trial:
                return trial
        return None

    def _measurements(self, trial: Trial) -> list[Trial]:
        """All sound measurements of what a trial measured, as they were, oldest first."""
        rows = self._db.select(sql.MEASURED, _names_of(trial))
        return self._sound(db_rows.decode_trial(row) for *row, _ in rows)

    def _newest(self, trial: Trial) -> Trial:
        """The newest measurement that ran of what was promoted; from here before claimed."""
        ran = [t for t in self._measurements(trial) if t.measurement.ran]
        own = [t for t in ran if not imported(t)]
        return (own or ran or [trial])[-1]

    def lookup(self, kernel_key: str, fingerprint: Fingerprint, space_version: int) -> Lookup:
        """The winner, or what differs between here and what is stored."""
        return look_up(self, kernel_key, fingerprint, space_version)

    def knows(self, kernel_key: str) -> bool:
        """True when any row names this kernel."""
        return bool(self._db.select("SELECT 1 FROM kernels WHERE key = ?", (kernel_key,)))

    def places(self, kernel_key: str) -> list[tuple[Fingerprint, int]]:
        """Distinct (fingerprint, space version) with an OK trial of this kernel, newest first."""
        found = []
        for row, fields, space_version in self._db.select(sql.PLACES, {"kernel": kernel_key}):
            try:
                found.append((db_rows.load_fingerprint(fields), int(space_version)))
            except db_rows.RowFault as error:
                self._report(Problem("fingerprints", row, str(error)))
        return found

    def promote(self, trial_id: int, evidence: Evidence) -> int:
        """Make a trial the winner of its kernel, fingerprint and space version; returns the
        promotion's id.

        Raises StoreError when there is no such trial, when it is not OK with samples, or when it
        was withdrawn.
        """
        self._db.check_writable()
        trial = self._trial(trial_id)
        if trial is None or not trial.measurement.ran:
            raise StoreError(
                f"store {self.label}: trial {trial_id} can not be promoted: {_no_winner(trial)}; a "
                "winner is ok and has samples"
            )
        with self._db.transaction() as run:
            return sql.insert_promotion(run, trial_id, evidence, self._clock())

    def promotions(self, kernel_key: str, fingerprint: Fingerprint) -> list[tuple[Trial, Evidence]]:
        """Every promotion of a kernel on a machine whose trial was not withdrawn, oldest first."""
        rows = self._db.select(f"{sql.PROMOTED} ORDER BY r.id", _wanted(kernel_key, fingerprint))
        entries = [e for *row, _ in rows if (e := self._promotion(row)) is not None]
        return [entry for entry in entries if _answers(entry[0], kernel_key, fingerprint)]

    def _promotion(self, row: Sequence[Any]) -> tuple[Trial, Evidence] | None:
        *columns, promotion, text = row
        trial, evidence = db_rows.decode_trial(columns), db_rows.decode_evidence(promotion, text)
        for found in (trial, evidence):
            if isinstance(found, Problem):
                self._report(found)
        if isinstance(trial, Problem) or isinstance(evidence, Problem):
            return None
        return (trial, evidence) if trial.measurement.ran else None

    def withdraw(self, trial_id: int, reason: str, session: str) -> int:
        """Withdraw a trial and all measurements of the same, for good. Returns the withdrawal's id.

        They never win again, by promotion or by speed. What was measured and promoted stays as
        history. Of a trial that is withdrawn already the first withdrawal stays, and its id is
        returned. Raises StoreError when there is no such trial.
        """
        self._db.check_writable()
        found = self._db.select(f"SELECT ({sql.STRUCK}) FROM trials t WHERE t.id = ?", (trial_id,))
        if not found:
            raise StoreError(
                f"store {self.label}: trial {trial_id} can not be withdrawn: no such trial"
            )
        if found[0][0] is not None:
            return int(found[0][0])
        now_s = self._clock()
        with self._db.transaction() as run:
            sql.name_session(self._db, run, session, now_s)
            cursor = run(sql.WITHDRAW, (sql.clean_reason(reason), session, now_s, trial_id))
        return int(cursor.lastrowid or 0)

    def withdrawals(self, kernel_key: str, fingerprint: Fingerprint) -> list[Withdrawal]:
        """Every withdrawal of a kernel's trials on a machine, oldest first, as measured."""
        found = []
        rows = self._db.select(sql.WITHDRAWALS, _wanted(kernel_key, fingerprint))
        for *columns, reason, session, created_s, row in rows:
            trial = db_rows.decode_trial(columns)
            if isinstance(trial, Problem):
                self._report(trial)  # a damaged row wins nothing either
            elif _answers(trial, kernel_key, fingerprint):
                found.append(db_rows.decode_withdrawal(row, trial, reason, session, created_s))
        return found

    # ---- decisions and latencies

    def record_decision(self, decision: Decision) -> int:
        """Commit an alternative of a question, and whether it stands from now on; returns its id.

        Raises InternalError for one that breaks its rules: what failed does not stand.
        """
        self._db.check_writable()
        with self._db.transaction() as run:
            return sql.insert_decision(self._db, run, decision)

    def decision(
        self, kind: Question, key: str, fingerprint: Fingerprint, space_version: int
    ) -> Decision | None:
        """The decision in force about one text here: own before imported, then the last."""
        asked = kind, key, fingerprint, space_version
        found = self._decisions(
            kind=kind, kernel=key, fingerprint=_fields(fingerprint), space=space_version, chosen=1
        )
        return db_contents.decided(
            d for d in found if (d.kind, d.key, d.fingerprint, d.space_version) == asked
        )

    def decisions(
        self,
        key: str | None = None,
        fingerprint: Fingerprint | None = None,
        kind: Question | None = None,
    ) -> list[Decision]:
        """Every decision, oldest first; about one text, on one machine, of one kind where given."""
        return self._decisions(kernel=key, fingerprint=_fields(fingerprint), kind=kind)

    def _decisions(self, **given: object) -> list[Decision]:
        where, wanted = sql.conditions(sql.OF_DECISIONS, **given)
        rows = self._db.select(f"{sql.ALL_DECISIONS} WHERE {where} ORDER BY d.id", wanted)
        return self._sound(map(db_rows.decode_decision, rows))

    def record_latency(self, latency: Latency) -> int:
        """Commit what a whole model took; returns the row's id.

        Raises InternalError for one without samples.
        """
        self._db.check_writable()
        with self._db.transaction() as run:
            return sql.insert_latency(self._db, run, latency)

    def latencies(
        self,
        model: str | None = None,
        here: Fingerprint | None = None,
        since_s: float | None = None,
    ) -> list[Latency]:
        """Latencies of models, oldest first; of one model, on one machine, from a moment on."""
        where, wanted = sql.conditions(
            sql.OF_LATENCIES, model=model, fingerprint=_fields(here), since=since_s
        )
        rows = self._db.select(
            f"{sql.ALL_LATENCIES} WHERE {where} ORDER BY l.created_s, l.id", wanted
        )
        return self._sound(map(db_rows.decode_latency, rows))

    # ---- sessions

    @contextmanager
    def session(
        self,
        command: str,
        seed: int,
        settings: Mapping[str, object],
        version: str,
        session_id: str | None = None,
        versions: Properties = (),
        state: Properties = (),
    ) -> Iterator[Session]:
        """Open a session row and, when the block ends however it ends, note the time.

        A fresh id where none is given.

        ``settings`` must be JSON; ``seed`` fits 64 bits. ``versions`` are of what measures,
        ``state`` is the machine's. Raises StoreError when the id is taken.
        """
        self._db.check_writable()
        if not -(2**63) <= seed < 2**63:
            raise StoreError(f"store {self.label}: seed {seed} does not fit 64 bits")
        try:
            text = json.dumps(dict(settings), sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InternalError(
                f"store {self.label}: settings of a session are not JSON: {error}"
            ) from error
        if faults := [
            *db_rows.properties_faults("versions", versions),
            *db_rows.properties_faults("state", state),
        ]:
            raise InternalError(f"store {self.label}: session: {'; '.join(faults)}")
        name, now_s = session_id or uuid.uuid4().hex, self._clock()
        session = Session(
            name, now_s, None, db_rows.clean_text(command), seed, text, version, versions, state
        )
        with self._db.transaction() as run:
            cursor = run(
                f"{sql.INSERT_SESSION} ON CONFLICT (id) DO NOTHING", db_rows.encode_session(session)
            )
        if cursor.rowcount != 1:
            raise StoreError(
                f"store {self.label}: session id {session.id!r} is taken; choose another, or none"
            )
        try:
            yield session
        finally:
            if not self._db.closed:
                self._set_session(session.id, "ended_s", self._clock())

    def add_facts(self, session_id: str, facts: Properties) -> None:
        """Add facts to a session's ``state``: what it found out, and how it ended.

        A fact of a name that is known replaces it. Raises StoreError for an unknown session.
        """
        self._db.check_writable()
        found = next((s for s in self.sessions() if s.id == session_id), None)
        if found is None:
            raise StoreError(f"store {self.label}: no session {session_id!r}")
        state = tuple(sorted({**dict(found.state), **dict(facts)}.items()))
        if faults := list(db_rows.properties_faults("state", state)):
            raise InternalError(f"store {self.label}: session: {'; '.join(faults)}")
        self._set_session(session_id, "state", db_rows.dump_properties(state))

    def _set_session(self, session_id: str, column: str, value: object) -> None:
        with self._db.transaction() as run:
            run(f"UPDATE sessions SET {column} = ? WHERE id = ?", (value, session_id))

    def sessions(self) -> list[Session]:
        """Every session, oldest first."""
        rows = self._db.select(f"{sql.ALL_SESSIONS} ORDER BY started_s, id")
        return self._sound(map(db_rows.decode_session, rows))

    # ---- spent budget, names

    def spent(self, model_key: str, fingerprint: Fingerprint, settings: str) -> float:
        """Seconds of tuning budget already spent on a model under these settings; 0 where none.

        A damaged figure counts as none.
        """
        rows = self._db.select(
            f"SELECT id, seconds FROM spend WHERE model_key = :model AND settings = :settings"
            f" AND fingerprint = {sql.FINGERPRINT}",
            {
                "model": model_key,
                "fingerprint": db_rows.dump_fingerprint(fingerprint),
                "settings": settings,
            },
        )
        for row, seconds in rows:
            if isinstance(seconds, int | float) and 0 <= seconds < math.inf:
                return float(seconds)
            self._report(Problem("spend", row, f"seconds is {seconds!r}, not a finite time >= 0"))
        return 0.0

    def add_spend(
        self, model_key: str, fingerprint: Fingerprint, settings: str, seconds: float
    ) -> float:
        """Add seconds to what was spent and return the new total."""
        self._db.check_writable()
        if not (math.isfinite(seconds) and seconds >= 0):
            raise InternalError(
                f"store {self.label}: spend of model {model_key} is {seconds!r}, not a finite "
                "time >= 0"
            )
        with self._db.transaction() as run:
            machine = sql.machine_row(self._db, run, fingerprint)
            total = self.spent(model_key, fingerprint, settings) + float(seconds)
            run(sql.SET_SPEND, (model_key, machine, settings, total))
        return total

    def name_kernel(self, kernel_text: str, name: str) -> None:
        """Give a kernel a name for people. Never part of a key; the last name wins."""
        with self._db.transaction() as run:
            run(
                sql.NAME_KERNEL,
                (db_rows.key_of(kernel_text), kernel_text, db_rows.clean_text(name)),
            )

    def kernel_name(self, kernel_key: str) -> str:
        """The name, or '' where there is none."""
        rows = self._db.select("SELECT name FROM kernels WHERE key = ?", (kernel_key,))
        return str(rows[0][0]) if rows else ""

    # ---- the store as a whole

    def replace_contents(self, contents: db_contents.Contents) -> None:
        """Hold exactly this from now on: all of it is committed, or nothing changes.

        Ids are new, in order.
        """
        sql.replace_all(self._db, contents)

    def compact(self) -> None:
        """Give unused pages of the file back to the filesystem."""
        self._db.compact()

    def stats(self) -> Stats:
        """Counts and size."""
        select = self._db.select
        counts: dict[object, int] = dict(
            select("SELECT status, COUNT(*) FROM trials GROUP BY status")
        )
        tables = (
            "kernels",
            "fingerprints",
            "sessions",
            "promotions",
            "withdrawals",
            "decisions",
            "latencies",
        )
        rows = {table: select(f"SELECT COUNT(*) FROM {table}")[0][0] for table in tables}
        known = {status: counts.pop(status.value, 0) for status in Status}
        ((spent,),) = select(
            "SELECT TOTAL(seconds) FROM spend WHERE seconds >= 0 AND seconds < 9e999 AND "
            "substr(settings, 1, ?) != ?",
            (len(STOPPED), STOPPED),
        )
        ((version,),) = select("PRAGMA user_version")
        return Stats(
            trials=sum(known.values()) + sum(counts.values()),
            by_status=tuple(known.items()),
            unknown_status=sum(counts.values()),
            spent_s=float(spent),
            size_bytes=self._db.size_bytes,
            schema_version=int(version),
            **rows,
        )

    def verify(self) -> list[Problem]:
        """Check the file and every row; an empty list is a healthy store. Writes nothing."""
        self._db.check_open()
        with self._db.threads:
            return [*self._problems, *verify_store(self._db.connection)]

    def _sound(self, found: Iterable[_Row | Problem]) -> list[_Row]:
        """Rows that could be read; a damaged row is reported and skipped."""
        rows = []
        for row in found:
            if isinstance(row, Problem):
                self._report(row)
            else:
                rows.append(row)
        return rows

    def _report(self, problem: Problem) -> None:
        self.sound = False
        _log.warning("store %s: skipped: %s", self.label, problem)


def _fields(fingerprint: Fingerprint | None) -> str | None:
    return None if fingerprint is None else db_rows.dump_fingerprint(fingerprint)


def _wanted(kernel_key: str, fingerprint: Fingerprint) -> dict[str, object]:
    return {"kernel": kernel_key, "fingerprint": db_rows.dump_fingerprint(fingerprint)}


def _names_of(trial: Trial) -> dict[str, object]:
    return _wanted(trial.kernel_key, trial.fingerprint) | {
        "policy": trial.policy.text,
        "actions": trial.actions,
        "space": trial.space_version,
    }


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


def _withdrawn(trial: Trial, reason: str, session: str) -> Trial:
    """A withdrawn trial as the store returns it to every reader: a wrong one."""
    wrong = replace(
        trial.measurement,
        status=Status.WRONG,
        samples_s=(),
        reference_samples_s=(),
        error=withdrawn_by(session, reason),
    )
    return replace(trial, measurement=wrong)


def _no_winner(trial: Trial | None) -> str:
    """Reason for not promoting a trial."""
    if trial is None:
        return "no such trial"
    if trial.measurement.error.startswith(WITHDRAWN):
        return f"it was {trial.measurement.error}"
    return f"its status is {trial.measurement.status}, without usable samples"
