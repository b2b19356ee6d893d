"""Reading an exported file that nobody vouches for: good rows become Contents, each bad one is reported and skipped.

    bytes   -->   lines of bounded length   -->   JSON objects   -->   fields by rule   -->   rows that name known rows

Data only: nothing of the file is evaluated, imported, opened or formatted into SQL. A row is refused when a field is
missing, unknown, named twice, of another type, out of its range or too long; when a key or an id is not the hash of
what it stands for; when it names a row that is not above it in the file; when its action text does not parse, is too
long, or breaks the caller's rule of what is legal; when it says a trial again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from tunegrad import untrusted
from tunegrad.db.contents import Contents, Identity, Promotion, Spend, Withdrawn
from tunegrad.db.export import FORMAT, FORMAT_VERSION, KINDS, machine_id
from tunegrad.db.records import IMPORTED, Evidence, Session
from tunegrad.db.rows import admit, admit_evidence, identity, key_of
from tunegrad.errors import IllegalAction, InternalError, StoreError
from tunegrad.trial import CACHES, Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.untrusted import FieldFault, exact, flag, free_text, integer, listing, number, record, text, word

__all__ = [
    "MAX_ACTIONS",
    "MAX_LINE_BYTES",
    "MAX_ROWS",
    "ActionRule",
    "Claim",
    "Reading",
    "Refusal",
    "Verdict",
    "actions_fault",
    "decision",
    "read_export",
]

_VERSIONS = (1, FORMAT_VERSION)
MAX_LINE_BYTES = 4 << 20
MAX_ROWS = 2_000_000
MAX_REFUSALS = 100_000
"""Beyond this many bad rows a file is no export, and reading ends."""

MAX_ACTIONS = 256
"""Of one schedule; searchers make some ten. Applying so many takes 0.2 s, and the time grows with their square."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a trial row says: that a kernel ran so on a machine, in the words of a version of the space."""

    kernel_text: str
    machine: Fingerprint
    space_version: int
    actions: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """On a claim: ``fault`` is what is wrong with the actions, ``unchecked`` why nobody can tell; both empty: legal."""

    fault: str = ""
    unchecked: str = ""


ActionRule = Callable[[Claim], Verdict]

_DECISION = re.compile(r"(images|plan|variant)\(\w{1,64}\)")
_KERNEL_CHARACTERS = 1 << 20
_ACTION_CHARACTERS = 1 << 14
_NAME_CHARACTERS = 4000

_name = text(_NAME_CHARACTERS)
_key = word(32)
_time = number()
_samples = listing(100_000, _time)
_space = integer(0, 2**31)
_actions = text(_ACTION_CHARACTERS)


def _largest_error(name: str, value: Any) -> float:
    """A number, or what is none: an error may be infinite, or not a number at all."""
    return float(exact("inf", "nan")(name, value) if isinstance(value, str) else number()(name, value))


def _limit(name: str, value: Any) -> float:
    """A number, or no limit."""
    return float(exact("inf")(name, value) if isinstance(value, str) else number()(name, value))


def _pair(name: str, value: Any) -> tuple[str, str]:
    pair = listing(2, _name)(name, value)
    if len(pair) != 2:
        raise FieldFault(name, value, "must be a pair of a name and a value")
    return pair[0], pair[1]


def _ended(name: str, value: Any) -> float | None:
    return None if value is None else float(_time(name, value))


_POLICY = {
    "cache": exact(*CACHES),
    "statistic": exact("median", "min"),
    "clock": text(100),
    "min_samples": integer(0, 10**6),
    "max_samples": integer(0, 10**6),
    "tolerance": _limit,
    "budget_s": _limit,
    "timeout_s": _limit,
}
_EVIDENCE = {
    "test": text(100),
    "p_value": number(0.0, 1.0),
    "incumbent_samples_s": _samples,
    "challenger_samples_s": _samples,
    "cold": flag,
}
_ROWS: dict[str, untrusted.Rule] = {
    "kernel": record({"key": _key, "text": text(_KERNEL_CHARACTERS, lines=True), "name": _name}),
    "machine": record({"id": word(16), "fields": listing(200, _pair)}),
    "session": record(
        {
            "id": _name,
            "started_s": _time,
            "ended_s": _ended,
            "command": free_text(100_000),
            "seed": integer(-(2**63), 2**63 - 1),
            "settings": text(1 << 20),
            "version": text(200),
        }
    ),
    "trial": record(
        {
            "kernel": _key,
            "machine": word(16),
            "actions": _actions,
            "program_hash": text(200),
            "space_version": _space,
            "policy": record(_POLICY),
            "status": exact(*(s.value for s in Status)),
            "samples_s": _samples,
            "error": free_text(20_000),
            "lower_s": _time,
            "compile_s": _time,
            "verify_s": _time,
            "timing_s": _time,
            "max_error": _largest_error,
            "attempts": integer(1, 1000),
            "session": _name,
            "origin": text(200),
            "created_s": _time,
        }
    ),
    "promotion": record(
        {
            "kernel": _key,
            "machine": word(16),
            "actions": _actions,
            "policy": text(1000),
            "space_version": _space,
            "evidence": record(_EVIDENCE),
            "created_s": _time,
        }
    ),
    "spend": record({"model": _name, "machine": word(16), "settings": text(1 << 20), "seconds": _time}),
    "withdrawal": record(
        {
            "kernel": _key,
            "machine": word(16),
            "actions": _actions,
            "policy": text(1000),
            "space_version": _space,
            "reason": free_text(5000),
            "session": _name,
            "created_s": _time,
        }
    ),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that was not taken: its line, counted from 1; the field, its value shortened, and the rule it breaks."""

    line: int
    row: str
    field: str
    value: str
    rule: str

    def __str__(self) -> str:
        kind = f"{self.row} row" if self.row else "row"
        return f"line {self.line}: {kind}: {self.field} is {self.value}: {self.rule}"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file gave. ``warnings`` are about the file as a whole: it is shorter than it says, or has no end.

    ``unchecked`` counts trials that were taken though nobody could tell whether they are legal, by the reason.
    """

    contents: Contents
    unchecked: Mapping[str, int]
    refusals: tuple[Refusal, ...]
    warnings: tuple[str, ...]


def decision(actions: str) -> str | None:
    """Of which kind an action text such as ``plan(NAME)`` is: images, plan or variant; None for a schedule."""
    found = _DECISION.fullmatch(actions)
    return found[1] if found else None


def actions_fault(actions: str) -> str | None:
    """Why an action text is none: neither a schedule that parses and is not too long, nor a stored decision."""
    from tunegrad.opts import parse_actions

    if decision(actions):
        return None
    try:
        count = len(parse_actions(actions))
    except (IllegalAction, ValueError) as error:
        return f"must be a list of actions ({untrusted.shortened(str(error))})"
    return None if count <= MAX_ACTIONS else f"must have at most {MAX_ACTIONS} actions, not {count}"


def _parsed_only(claim: Claim) -> Verdict:
    """The rule of a caller who has none."""
    fault = actions_fault(claim.actions)
    return Verdict(fault=fault) if fault else Verdict(unchecked="nobody was asked")


def read_export(file: BinaryIO, source: str, rule: ActionRule = _parsed_only) -> Reading:
    """Read the lines of an exported file; ``source`` names it. Trials and promotions come out marked as imported.

    ``rule`` says of each trial whether its actions are legal; alike ones are asked about once.

    Raises StoreError when it is no export at all, or of a newer version.
    """
    lines = _lines(file, source)
    version, counts = _header(next(lines, (0, None)), source)
    work = _Reading(rule, version)
    for line_number, line in lines:
        work.take(line_number, line)
        if len(work.refusals) > MAX_REFUSALS:
            raise StoreError(f"file {source}: more than {MAX_REFUSALS} bad rows: it is no export of a store")
    seen = work.seen
    short = [f"{seen[k]} of {counts[k]} {k} rows" for k in KINDS if seen[k] < counts[k]]
    warnings = [f"file {source}: is cut short: it has {', '.join(short)}"] if short else []
    contents = replace(work.contents(), kernels=tuple(sorted(work.kernels.values(), key=lambda k: key_of(k[0]))))
    return Reading(contents, dict(work.unchecked), tuple(work.refusals), tuple(warnings))


def _lines(file: BinaryIO, source: str) -> Iterator[tuple[int, bytes | None]]:
    """(line number, bytes) of each line that is not blank; None for one that is too long."""
    for count in range(1, MAX_ROWS + 2):
        line: bytes | None = file.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES)
            line = None
        if line is None or line.strip():
            yield count, line
    raise StoreError(f"file {source}: more than {MAX_ROWS} lines; split it by kernel with `store export --kernel`")


def _header(first: tuple[int, bytes | None], source: str) -> tuple[int, dict[str, int]]:
    """The version of the file's form, and how many rows of each kind it says it has."""
    rule = f'must begin with a line {{"format": "{FORMAT}", "version": {FORMAT_VERSION}, "rows": ...}}'
    try:
        header = untrusted.json_object((first[1] or b"").decode("utf-8"))
    except (FieldFault, UnicodeDecodeError):
        raise StoreError(f"file {source}: is no export of a store: {rule}") from None
    if header.get("format") != FORMAT or type(version := header.get("version")) is not int:
        raise StoreError(f"file {source}: is no export of a store: {rule}")
    if version not in _VERSIONS:
        raise StoreError(
            f"file {source}: version {untrusted.shortened(version)} of the format is none of "
            f"{', '.join(map(str, _VERSIONS))}, the ones known; export it again, or upgrade tunegrad"
        )
    kinds = [kind for kind in KINDS if version > 1 or kind != "withdrawal"]
    try:
        counted = record({kind: integer(0, MAX_ROWS) for kind in kinds})
        checked = record({"format": exact(FORMAT), "version": integer(1, FORMAT_VERSION), "rows": counted})("", header)
    except FieldFault as error:
        raise StoreError(f"file {source}: line 1: {error}") from None
    counts: dict[str, int] = checked["rows"]
    return version, dict.fromkeys(KINDS, 0) | counts


@dataclass(slots=True)
class _Reading:
    """The rows so far. Mutable: each line adds one row or one refusal."""

    rule: ActionRule
    version: int
    refusals: list[Refusal] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    kernels: dict[str, tuple[str, str]] = field(default_factory=dict)
    machines: dict[str, Fingerprint] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    trials: dict[Identity, Trial] = field(default_factory=dict)
    promotions: list[Promotion] = field(default_factory=list)
    spends: dict[tuple[str, str, str], Spend] = field(default_factory=dict)
    withdrawals: dict[Identity, Withdrawn] = field(default_factory=dict)
    verdicts: dict[Claim, Verdict] = field(default_factory=dict)
    unchecked: Counter[str] = field(default_factory=Counter)

    def contents(self) -> Contents:
        return Contents(
            kernels=tuple(self.kernels.values()),
            sessions=tuple(sorted(self.sessions.values(), key=lambda s: (s.started_s, s.id))),
            trials=tuple(self.trials.values()),
            promotions=tuple(self.promotions),
            spends=tuple(sorted(self.spends.values(), key=lambda s: (s.model_key, s.fingerprint.fields, s.settings))),
            withdrawals=tuple(self.withdrawals.values()),
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
            if self.version == 1 and kind == "trial":
                row.setdefault("attempts", 1)
            self._keep(kind, _ROWS[kind]("", row))
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
            case _:
                _once(self.spends, (row["model"], row["machine"], row["settings"]), "model", row["model"])
                spend = Spend(row["model"], self._machine(row), row["settings"], row["seconds"])
                self.spends[row["model"], row["machine"], row["settings"]] = spend

    def _keep_kernel(self, row: dict[str, Any]) -> None:
        if key_of(row["text"]) != row["key"]:
            raise FieldFault("key", row["key"], f"must be the hash of the kernel's text, {key_of(row['text'])}")
        _once(self.kernels, row["key"], "key", row["key"])
        self.kernels[row["key"]] = (row["text"], row["name"])

    def _keep_machine(self, row: dict[str, Any]) -> None:
        names = [name for name, _ in row["fields"]]
        if names != sorted(set(names)):
            raise FieldFault("fields", names[:5], "must be sorted by name, each name once")
        fingerprint = Fingerprint(row["fields"])
        if machine_id(fingerprint) != row["id"]:
            raise FieldFault("id", row["id"], f"must be the hash of the fields, {machine_id(fingerprint)}")
        _once(self.machines, row["id"], "id", row["id"])
        self.machines[row["id"]] = fingerprint

    def _keep_session(self, row: dict[str, Any]) -> None:
        try:
            untrusted.json_object(row["settings"])
        except FieldFault:
            raise FieldFault("settings", row["settings"], "must be the text of a JSON object") from None
        _once(self.sessions, row["id"], "id", row["id"])
        self.sessions[row["id"]] = Session(**row)

    def _keep_trial(self, row: dict[str, Any]) -> None:
        fingerprint, text_ = self._machine(row), self._kernel(row)
        if row["session"] not in self.sessions:
            raise FieldFault("session", row["session"], "must be the id of a session row above")
        if row["samples_s"] and row["status"] != Status.OK.value:
            raise FieldFault("samples_s", list(row["samples_s"]), f"must be empty where status is {row['status']}")
        verdict = self._verdict(Claim(text_, fingerprint, row["space_version"], row["actions"]))
        names = ("error", "lower_s", "compile_s", "verify_s", "timing_s", "max_error", "attempts")
        trial = Trial(
            kernel_key=row["kernel"],
            kernel_text=text_,
            fingerprint=fingerprint,
            actions=row["actions"],
            program_hash=row["program_hash"],
            space_version=row["space_version"],
            policy=Policy(**row["policy"]),
            measurement=Measurement(Status(row["status"]), row["samples_s"], **{n: row[n] for n in names}),
            session=row["session"],
            origin=IMPORTED + row["origin"].removeprefix(IMPORTED),
            created_s=row["created_s"],
        )
        try:
            trial = admit(trial)
        except InternalError as error:  # every rule of the store has one above; this is the second lock on the door
            raise FieldFault("row", str(error), "must keep the rules of the store") from None
        _once(self.trials, identity(trial), "actions", row["actions"])
        self.trials[identity(trial)] = trial
        if verdict.unchecked:
            self.unchecked[verdict.unchecked] += 1

    def _keep_promotion(self, row: dict[str, Any]) -> None:
        place = (row["kernel"], self._machine(row), row["actions"], row["policy"], row["space_version"])
        trial = self.trials.get(place)
        if trial is None or not trial.measurement.ran:
            raise FieldFault("actions", row["actions"], "must be those of a trial above that is ok and has samples")
        evidence = row["evidence"]
        marked = Evidence(**{**evidence, "test": IMPORTED + evidence["test"].removeprefix(IMPORTED)})
        self.promotions.append(Promotion(place, admit_evidence(marked), row["created_s"]))

    def _keep_withdrawal(self, row: dict[str, Any]) -> None:
        place = (row["kernel"], self._machine(row), row["actions"], row["policy"], row["space_version"])
        if place not in self.trials:
            raise FieldFault("actions", row["actions"], "must be those of a trial above")
        if row["session"] not in self.sessions:
            raise FieldFault("session", row["session"], "must be the id of a session row above")
        _once(self.withdrawals, place, "actions", row["actions"])
        reason = IMPORTED + row["reason"].removeprefix(IMPORTED)
        self.withdrawals[place] = Withdrawn(place, reason, row["session"], row["created_s"])

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

    def _verdict(self, claim: Claim) -> Verdict:
        if claim not in self.verdicts:
            self.verdicts[claim] = self.rule(claim)
        if fault := self.verdicts[claim].fault:
            raise FieldFault("actions", claim.actions, fault)
        return self.verdicts[claim]


def _once(seen: dict[Any, Any], key: object, name: str, value: object) -> None:
    if key in seen:
        raise FieldFault(name, value, "must not repeat that of a row above")


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FieldFault("line", raw[max(0, error.start - 10) : error.start + 10], "must be UTF-8") from None
