"""The rows of an exported file: each line is kept, or refused for the rule that it breaks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from tunegrad import untrusted
from tunegrad.db.claims import ActionRule, Claim, Finding, Refusal
from tunegrad.db.contents import Contents, Promotion, Spend, Withdrawn
from tunegrad.db.decision_rows import admit_decision
from tunegrad.db.evidence_rows import admit_evidence
from tunegrad.db.export import KINDS, machine_id
from tunegrad.db.identity import Identity, Subject, identity
from tunegrad.db.import_rules import ROWS, upgraded
from tunegrad.db.latency_rows import admit_latency
from tunegrad.db.records import IMPORTED, Decision, Evidence, Latency, Session
from tunegrad.db.rows import admit, key_of
from tunegrad.db.separating import named_decision
from tunegrad.errors import InternalError
from tunegrad.trial import Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.untrusted import FieldFault, exact

__all__ = ["FIRST_WITH_DECISIONS", "MAX_LINE_BYTES", "FileRows"]

MAX_LINE_BYTES = 4 << 20
FIRST_WITH_DECISIONS = 3
"""The version of the format that has decisions apart from trials."""

_AS_MANY = "must be empty, or as many as samples_s"


@dataclass(slots=True)
class FileRows:
    """The rows so far. Mutable: each line adds one row or one refusal."""

    rule: ActionRule
    version: int
    refusals: list[Refusal] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    kernels: dict[str, tuple[str, str]] = field(default_factory=dict)
    machines: dict[str, Fingerprint] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    trials: dict[Identity, Trial] = field(default_factory=dict)
    measured: dict[Subject, Identity] = field(default_factory=dict)
    promotions: list[Promotion] = field(default_factory=list)
    spends: dict[tuple[str, str, str], Spend] = field(default_factory=dict)
    withdrawals: dict[Identity, Withdrawn] = field(default_factory=dict)
    decisions: dict[Decision, None] = field(default_factory=dict)
    latencies: dict[Latency, None] = field(default_factory=dict)
    verdicts: dict[Claim, Finding] = field(default_factory=dict)
    unchecked: Counter[str] = field(default_factory=Counter)

    def contents(self) -> Contents:
        return Contents(
            kernels=tuple(self.kernels.values()),
            sessions=tuple(sorted(self.sessions.values(), key=lambda s: (s.started_s, s.id))),
            trials=tuple(self.trials.values()),
            promotions=tuple(self.promotions),
            spends=tuple(
                sorted(
                    self.spends.values(),
                    key=lambda s: (s.model_key, s.fingerprint.fields, s.settings),
                )
            ),
            withdrawals=tuple(self.withdrawals.values()),
            decisions=tuple(self.decisions),
            latencies=tuple(self.latencies),
        )

    def take(self, line: int, raw: bytes | None) -> None:
        """Keep the row of a line, or say why not."""
        kind = ""
        try:
            if raw is None:
                raise FieldFault("line", None, f"must have at most {MAX_LINE_BYTES} bytes")
            row = untrusted.json_object(_decoded(raw))
            kind = exact(*KINDS)("row", row.pop("row", None))
            self.seen[kind] += 1
            self._keep(kind, ROWS[kind]("", upgraded(kind, row, self.version)))
        except FieldFault as error:
            self.refusals.append(Refusal(line, kind, error.field or "row", error.value, error.rule))

    def _keep(self, kind: str, row: dict[str, Any]) -> None:
        match kind:
            case "kernel":
                self._keep_kernel(row)
            case "machine":
                self._keep_machine(row)
            case "session":
                self._keep_session(row)
            case "trial":
                self._keep_trial(row)
            case "promotion":
                self._keep_promotion(row)
            case "withdrawal":
                self._keep_withdrawal(row)
            case "decision":
                self._keep_decision(row)
            case "latency":
                self._keep_latency(row)
            case _:
                _once(
                    self.spends,
                    (row["model"], row["machine"], row["settings"]),
                    "model",
                    row["model"],
                )
                spend = Spend(row["model"], self._machine(row), row["settings"], row["seconds"])
                self.spends[row["model"], row["machine"], row["settings"]] = spend

    def _keep_kernel(self, row: dict[str, Any]) -> None:
        if key_of(row["text"]) != row["key"]:
            raise FieldFault(
                "key", row["key"], f"must be the hash of the kernel's text, {key_of(row['text'])}"
            )
        _once(self.kernels, row["key"], "key", row["key"])
        self.kernels[row["key"]] = (row["text"], row["name"])

    def _keep_machine(self, row: dict[str, Any]) -> None:
        names = [name for name, _ in row["fields"]]
        if names != sorted(set(names)):
            raise FieldFault("fields", names[:5], "must be sorted by name, each name once")
        fingerprint = Fingerprint(row["fields"])
        if machine_id(fingerprint) != row["id"]:
            raise FieldFault(
                "id", row["id"], f"must be the hash of the fields, {machine_id(fingerprint)}"
            )
        _once(self.machines, row["id"], "id", row["id"])
        self.machines[row["id"]] = fingerprint

    def _keep_session(self, row: dict[str, Any]) -> None:
        try:
            untrusted.json_object(row["settings"])
        except FieldFault:
            raise FieldFault(
                "settings", row["settings"], "must be the text of a JSON object"
            ) from None
        _once(self.sessions, row["id"], "id", row["id"])
        self.sessions[row["id"]] = Session(**row)

    def _keep_trial(self, row: dict[str, Any]) -> None:
        fingerprint, text_ = self._machine(row), self._kernel(row)
        self._known_session(row)
        if row["samples_s"] and row["status"] != Status.OK.value:
            raise FieldFault(
                "samples_s",
                list(row["samples_s"]),
                f"must be empty where status is {row['status']}",
            )
        if row["reference_samples_s"] and len(row["reference_samples_s"]) != len(row["samples_s"]):
            raise FieldFault("reference_samples_s", list(row["reference_samples_s"]), _AS_MANY)
        claim = Claim(text_, fingerprint, row["space_version"], row["actions"])
        if self.version < FIRST_WITH_DECISIONS and (named := named_decision(row["actions"])):
            claim = replace(claim, kind=named[0], actions=named[1])
        verdict = self._verdict(claim)
        names = (
            "error", "lower_s", "compile_s", "verify_s", "timing_s", "max_error", "attempts",
            "reference_samples_s", "reference_program", "reference_s", "facts", "state",
        )  # fmt: skip
        trial = Trial(
            kernel_key=row["kernel"],
            kernel_text=text_,
            fingerprint=fingerprint,
            actions=row["actions"],
            program_hash=row["program_hash"],
            space_version=row["space_version"],
            policy=Policy(**row["policy"]),
            measurement=Measurement(
                Status(row["status"]), row["samples_s"], **{n: row[n] for n in names}
            ),
            session=row["session"],
            origin=IMPORTED + row["origin"].removeprefix(IMPORTED),
            created_s=row["created_s"],
        )
        try:
            trial = admit(trial)
        except (
            InternalError
        ) as error:  # every rule of the store has one above; this is the second lock on the door
            raise FieldFault("row", str(error), "must keep the rules of the store") from None
        _once(self.trials, identity(trial), "actions", row["actions"])
        self.trials[identity(trial)] = trial
        self.measured[identity(trial).subject] = identity(trial)
        if verdict.unchecked:
            self.unchecked[verdict.unchecked] += 1

    def _keep_promotion(self, row: dict[str, Any]) -> None:
        at = self._named(row)
        if at is None or not self.trials[at].measurement.ran:
            raise FieldFault(
                "actions",
                row["actions"],
                "must be those of a trial above that is ok and has samples",
            )
        self.promotions.append(
            Promotion(at, admit_evidence(_claimed(row["evidence"])), row["created_s"])
        )

    def _keep_withdrawal(self, row: dict[str, Any]) -> None:
        at = self._named(row)
        if at is None:
            raise FieldFault("actions", row["actions"], "must be those of a trial above")
        self._known_session(row)
        _once(self.withdrawals, at, "actions", row["actions"])
        reason = IMPORTED + row["reason"].removeprefix(IMPORTED)
        self.withdrawals[at] = Withdrawn(at, reason, row["session"], row["created_s"])

    def _keep_decision(self, row: dict[str, Any]) -> None:
        given = dict(row)
        fingerprint, text = self._machine(row), self._kernel(row)
        self._known_session(row)
        if row["chosen"] and row["status"] != Status.OK.value:
            raise FieldFault("chosen", True, f"must be false where status is {row['status']}")
        verdict = self._verdict(
            Claim(text, fingerprint, row["space_version"], row["choice"], row["kind"])
        )
        del given["kernel"], given["machine"]
        given |= {"evidence": _claimed(row["evidence"]), "status": Status(row["status"])}
        decision = admit_decision(Decision(text=text, fingerprint=fingerprint, **given))
        _once(self.decisions, decision, "choice", row["choice"])
        self.decisions[decision] = None
        if verdict.unchecked:
            self.unchecked[verdict.unchecked] += 1

    def _keep_latency(self, row: dict[str, Any]) -> None:
        given = dict(row)
        del given["machine"]
        self._known_session(row)
        if not row["samples_s"]:
            raise FieldFault("samples_s", [], "must have a sample")
        if row["default_samples_s"] and len(row["default_samples_s"]) != len(row["samples_s"]):
            raise FieldFault("default_samples_s", list(row["default_samples_s"]), _AS_MANY)
        latency = admit_latency(Latency(fingerprint=self._machine(row), imported=True, **given))
        _once(self.latencies, latency, "model", row["model"])
        self.latencies[latency] = None

    def _named(self, row: dict[str, Any]) -> Identity | None:
        """The trial above that a row names; before version 3 by what was measured alone."""
        at = Subject(
            row["kernel"], self._machine(row), row["actions"], row["policy"], row["space_version"]
        )
        if self.version < FIRST_WITH_DECISIONS:
            return self.measured.get(at)
        found = Identity(at, row["measured_by"], row["measured_s"])
        return found if found in self.trials else None

    def _known_session(self, row: dict[str, Any]) -> None:
        if row["session"] not in self.sessions:
            raise FieldFault("session", row["session"], "must be the id of a session row above")

    def _machine(self, row: dict[str, Any]) -> Fingerprint:
        fingerprint = self.machines.get(row["machine"])
        if fingerprint is None:
            raise FieldFault("machine", row["machine"], "must be the id of a machine row above")
        return fingerprint

    def _kernel(self, row: dict[str, Any]) -> str:
        found = self.kernels.get(row["kernel"])
        if found is None:
            raise FieldFault("kernel", row["kernel"], "must be the key of a kernel row above")
        return found[0]

    def _verdict(self, claim: Claim) -> Finding:
        if claim not in self.verdicts:
            self.verdicts[claim] = self.rule(claim)
        if fault := self.verdicts[claim].fault:
            raise FieldFault(
                "actions" if claim.kind == "schedule" else "choice", claim.actions, fault
            )
        return self.verdicts[claim]


def _claimed(evidence: dict[str, Any]) -> Evidence:
    """Evidence that a file says to have."""
    return Evidence(**{**evidence, "test": IMPORTED + evidence["test"].removeprefix(IMPORTED)})


def _once(seen: dict[Any, Any], key: object, name: str, value: object) -> None:
    if key in seen:
        raise FieldFault(name, value, "must not repeat that of a row above")


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FieldFault(
            "line", raw[max(0, error.start - 10) : error.start + 10], "must be UTF-8"
        ) from None
