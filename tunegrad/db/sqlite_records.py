"""Sessions, decisions, latencies, spent budget and names of the store in a SQLite file."""

from __future__ import annotations

from tunegrad.db.contents import decided
from tunegrad.db.decision_rows import (
    DECISION_COLUMNS,
    DECISION_FROM,
    DECISION_VALUES,
    admit_decision,
    decode_decision,
    encode_decision,
)
from tunegrad.db.latency_rows import (
    LATENCY_COLUMNS,
    LATENCY_FROM,
    LATENCY_VALUES,
    admit_latency,
    decode_latency,
    encode_latency,
)
from tunegrad.db.records import Decision, Latency, Problem, Question, Session
from tunegrad.db.rows import dump_fingerprint, key_of
from tunegrad.db.session_rows import SESSION_COLUMNS, SESSION_VALUES, decode_session, encode_session
from tunegrad.db.sqlite_base import INSERT_SESSION, Run, SqliteBase
from tunegrad.db.sqlite_queries import FINGERPRINT, KERNEL, conditions
from tunegrad.db.values import clean_text, dump_properties
from tunegrad.trial import Fingerprint

__all__ = ["INSERT_SPEND", "SqliteRecords"]

INSERT_SPEND = "INSERT INTO spend (model_key, fingerprint, settings, seconds) VALUES (?, ?, ?, ?)"
_INSERT_DECISION = (
    f"INSERT INTO decisions (kernel, fingerprint, {', '.join(DECISION_VALUES)})"
    f" SELECT id, ?, {', '.join('?' * len(DECISION_VALUES))} FROM kernels WHERE key = ?"
)
_INSERT_LATENCY = (
    f"INSERT INTO latencies (fingerprint, {', '.join(LATENCY_VALUES)})"
    f" VALUES ({', '.join('?' * (1 + len(LATENCY_VALUES)))})"
)
_OF_DECISIONS = {
    "kernel": f"d.kernel = {KERNEL}",
    "fingerprint": f"d.fingerprint = {FINGERPRINT}",
    "space": "d.space_version = :space",
    "kind": "d.kind = :kind",
    "chosen": "d.chosen = :chosen",
}
_OF_LATENCIES = {
    "model": "l.model = :model",
    "fingerprint": f"l.fingerprint = {FINGERPRINT}",
    "since": "l.created_s >= :since",
}
_FILL = ", ".join(f"{name} = excluded.{name}" for name in SESSION_VALUES if name != "id")


class SqliteRecords(SqliteBase):
    """Records that are kept beside trials."""

    # Sessions

    def _start_session(self, session: Session) -> bool:
        with self._transaction() as run:
            cursor = run(f"{INSERT_SESSION} ON CONFLICT (id) DO NOTHING", encode_session(session))
        return cursor.rowcount == 1

    def _end_session(self, session: Session) -> None:
        with self._transaction() as run:
            run("UPDATE sessions SET ended_s = ? WHERE id = ?", (session.ended_s, session.id))

    def _write_state(self, session: Session) -> None:
        state = dump_properties(session.state)
        with self._transaction() as run:
            run("UPDATE sessions SET state = ? WHERE id = ?", (state, session.id))

    def sessions(self) -> list[Session]:
        """Every session, oldest first."""
        rows = self._select(f"SELECT {SESSION_COLUMNS} FROM sessions ORDER BY started_s, id")
        return self._sound(map(decode_session, rows))

    def keep_session(self, session: Session) -> None:
        """Keep a session's row as it is, unless its id is taken by one that is known."""
        with self._transaction() as run:
            run(
                f"{INSERT_SESSION} ON CONFLICT (id) DO UPDATE SET {_FILL} WHERE command = ''",
                encode_session(session),
            )

    # Decisions

    def record_decision(self, decision: Decision) -> int:
        """Commit a decision and return its id."""
        self._check_writable()
        decision = admit_decision(decision)
        with self._transaction() as run:
            number = self._insert_decision(run, decision)
        self._known_sessions.add(decision.session)
        return number

    def _insert_decision(self, run: Run, d: Decision) -> int:
        self._intern_kernel(run, d.key, d.text)
        self._intern_session(run, d.session, d.created_s)
        machine = self._intern_fingerprint(run, d.fingerprint)
        return int(run(_INSERT_DECISION, (machine, *encode_decision(d), d.key)).lastrowid or 0)

    def decision(
        self, kind: Question, key: str, fingerprint: Fingerprint, space_version: int
    ) -> Decision | None:
        """The decision in force about one question here."""
        where, wanted = conditions(
            _OF_DECISIONS,
            kernel=key,
            fingerprint=dump_fingerprint(fingerprint),
            space=space_version,
            kind=kind,
            chosen=1,
        )
        asked = kind, key, fingerprint, space_version
        found = self._decisions(where, wanted)
        return decided(d for d in found if (d.kind, d.key, d.fingerprint, d.space_version) == asked)

    def decisions(
        self,
        key: str | None = None,
        fingerprint: Fingerprint | None = None,
        kind: Question | None = None,
    ) -> list[Decision]:
        """Every decision, oldest first; of one text, machine or kind of question where given."""
        fields = None if fingerprint is None else dump_fingerprint(fingerprint)
        return self._decisions(
            *conditions(_OF_DECISIONS, kernel=key, fingerprint=fields, kind=kind)
        )

    def _decisions(self, where: str, wanted: dict[str, object]) -> list[Decision]:
        select = f"SELECT {DECISION_COLUMNS} FROM {DECISION_FROM} WHERE {where} ORDER BY d.id"
        return self._sound(map(decode_decision, self._select(select, wanted)))

    # Latencies

    def record_latency(self, latency: Latency) -> int:
        """Commit what a whole model took and return the row's id."""
        self._check_writable()
        latency = admit_latency(latency)
        with self._transaction() as run:
            number = self._insert_latency(run, latency)
        self._known_sessions.add(latency.session)
        return number

    def _insert_latency(self, run: Run, x: Latency) -> int:
        self._intern_session(run, x.session, x.created_s)
        machine = self._intern_fingerprint(run, x.fingerprint)
        return int(run(_INSERT_LATENCY, (machine, *encode_latency(x))).lastrowid or 0)

    def latencies(
        self,
        model: str | None = None,
        here: Fingerprint | None = None,
        since_s: float | None = None,
    ) -> list[Latency]:
        """Latencies of models, oldest first; of one model or machine, or not before a moment."""
        fields = None if here is None else dump_fingerprint(here)
        where, wanted = conditions(_OF_LATENCIES, model=model, fingerprint=fields, since=since_s)
        select = (
            f"SELECT {LATENCY_COLUMNS} FROM {LATENCY_FROM} WHERE {where} ORDER BY l.created_s, l.id"
        )
        return self._sound(map(decode_latency, self._select(select, wanted)))

    # Spent budget

    def spent(self, model_key: str, fingerprint: Fingerprint, settings: str) -> float:
        """Seconds of tuning budget already spent; a damaged figure counts as none."""
        rows = self._select(
            "SELECT id, seconds FROM spend"
            f" WHERE model_key = :model AND fingerprint = {FINGERPRINT} AND settings = :settings",
            {
                "model": model_key,
                "fingerprint": dump_fingerprint(fingerprint),
                "settings": settings,
            },
        )
        for row, seconds in rows:
            if isinstance(seconds, int | float) and 0 <= seconds < float("inf"):
                return float(seconds)
            self._report(Problem("spend", row, f"seconds is {seconds!r}, not a finite time >= 0"))
        return 0.0

    def add_spend(
        self, model_key: str, fingerprint: Fingerprint, settings: str, seconds: float
    ) -> float:
        """Add seconds to what was spent and return the new total."""
        self._check_writable()
        self._check_spend(model_key, seconds)
        with self._transaction() as run:
            machine = self._intern_fingerprint(run, fingerprint)
            total = self.spent(model_key, fingerprint, settings) + float(seconds)
            run(
                f"{INSERT_SPEND} ON CONFLICT (model_key, fingerprint, settings)"
                " DO UPDATE SET seconds = excluded.seconds",
                (model_key, machine, settings, total),
            )
        return total

    # Names

    def name_kernel(self, kernel_text: str, name: str) -> None:
        """Give a kernel a name for people."""
        with self._transaction() as run:
            run(
                "INSERT INTO kernels (key, text, name) VALUES (?, ?, ?)"
                " ON CONFLICT (key) DO UPDATE SET name = excluded.name",
                (key_of(kernel_text), kernel_text, clean_text(name)),
            )

    def kernel_name(self, kernel_key: str) -> str:
        """The name, or ''."""
        rows = self._select("SELECT name FROM kernels WHERE key = ?", (kernel_key,))
        return str(rows[0][0]) if rows else ""
