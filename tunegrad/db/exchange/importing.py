"""Reading an exported file of unknown origin: good rows become Contents, each bad one is
reported and skipped.

    bytes --> lines of bounded length --> JSON objects --> fields by rule --> rows that name rows

Data only: nothing of the file is evaluated, imported, opened or formatted into SQL. A row is
refused when a field is missing, unknown, named twice, of another type, out of its range or too
long; when a key or an id is not the hash of what it stands for; when it names a row that is not
above it in the file; when its action text does not parse, is too long, or breaks the caller's rule
of what is legal; when it says a trial again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Annotated, Any, BinaryIO, Literal, get_args

from msgspec import Meta, Struct
from msgspec.structs import asdict

from tunegrad import untrusted
from tunegrad.db import records
from tunegrad.db import rows as db_rows
from tunegrad.db.contents import Contents, Identity, Promotion, Spend, Subject, Withdrawn, identity
from tunegrad.db.exchange.claims import ActionRule, Claim, Finding, Refusal, parsed_only
from tunegrad.db.exchange.export import FORMAT, FORMAT_VERSION, KINDS
from tunegrad.errors import InternalError, StoreError
from tunegrad.lazy import dataclass
from tunegrad.trial import Cache, Fingerprint, Measurement, Policy, Status, Trial
from tunegrad.untrusted import (
    FieldFault,
    Time,
    at_most,
    between,
    converted,
    free_text,
    printable,
    whole,
)

MAX_ROWS = 2_000_000

_MOST_PROPERTIES = 10_000
"""A session says a few facts of each of its kernels."""

_LARGEST = 1e15


def _digits(count: int) -> Meta:
    return Meta(
        pattern=rf"\A[0-9a-f]{{{count}}}\Z",
        description=f"must be {count} lower-case hexadecimal digits",
    )


Word = Annotated[str, printable(100)]

Text = Annotated[str, printable(200)]

Line = Annotated[str, printable(1000)]

Name = Annotated[str, printable(4000)]

Actions = Annotated[str, printable(1 << 14)]

Settings = Annotated[str, printable(1 << 20)]

KernelText = Annotated[str, printable(1 << 20, lines=True)]

Error = Annotated[str, free_text(20_000)]

Key = Annotated[str, _digits(32)]

MachineId = Annotated[str, _digits(16)]

Choice = Annotated[
    str,
    Meta(
        max_length=64,
        pattern=r"\A\w+\Z",
        description="must be a name: letters, digits and _, at most 64",
    ),
]

Space = Annotated[int, whole(0, 2**31)]

Count = Annotated[int, whole(0, 10**6)]

Rows = Annotated[int, whole(0, MAX_ROWS)]

Limit = Time | Literal["inf"]

Pair = Annotated[tuple[Name, Name], Meta(description="must be a pair of a name and a value")]

Samples = Annotated[tuple[Time, ...], at_most(100_000)]

Named = Annotated[
    dict[Word, Annotated[float, between(-_LARGEST, _LARGEST)] | Text],
    Meta(
        max_length=_MOST_PROPERTIES,
        description=f"must have at most {_MOST_PROPERTIES} fields, each named by printable text of "
        "at most 100 characters",
    ),
]
"""Numbers and words by name."""


class Fields(Struct, forbid_unknown_fields=True):
    """An object with these fields and no other."""


class PolicyFields(Fields):
    """The policy of a trial."""

    cache: Cache
    statistic: Literal["median", "min"]
    clock: Word
    min_samples: Count
    max_samples: Count
    tolerance: Limit
    budget_s: Limit
    timeout_s: Limit


class EvidenceFields(Fields):
    """The evidence of a promotion or a decision."""

    test: Word
    p_value: Annotated[float, between(0.0, 1.0)]
    incumbent_samples_s: Samples
    challenger_samples_s: Samples
    cold: bool


class KernelRow(Fields):
    """A kernel, under the hash of its text."""

    key: Key
    text: KernelText
    name: Name


class MachineRow(Fields):
    """A fingerprint, under the hash of its fields."""

    id: MachineId
    fields: Annotated[tuple[Pair, ...], at_most(200)]


class SessionRow(Fields):
    """One run of a command that measured."""

    id: Name
    started_s: Time
    ended_s: Time | None
    command: Annotated[str, free_text(100_000)]
    seed: Annotated[int, whole(-(2**63), 2**63 - 1)]
    settings: Settings
    version: Text
    versions: Named
    state: Named


class TrialRow(Fields):
    """One measurement."""

    kernel: Key
    machine: MachineId
    actions: Actions
    program_hash: Text
    space_version: Space
    policy: PolicyFields
    status: Status
    samples_s: Samples
    error: Error
    lower_s: Time
    compile_s: Time
    verify_s: Time
    timing_s: Time
    max_error: Time | Literal["inf", "nan"]
    attempts: Annotated[int, whole(1, 1000)]
    reference_samples_s: Samples
    reference_program: Text
    reference_s: Time
    facts: Named
    state: Named
    session: Name
    origin: Text
    created_s: Time


class NamingRow(Fields):
    """A row that names a trial above."""

    kernel: Key
    machine: MachineId
    actions: Actions
    policy: Line
    space_version: Space
    measured_by: Name
    measured_s: Time


class PromotionRow(NamingRow):
    """A trial that won, and why."""

    evidence: EvidenceFields
    created_s: Time


class WithdrawalRow(NamingRow):
    """A trial that shall never win again."""

    reason: Annotated[str, free_text(5000)]
    session: Name
    created_s: Time


class SpendRow(Fields):
    """Time spent on a model."""

    model: Name
    machine: MachineId
    settings: Settings
    seconds: Time


class DecisionRow(Fields):
    """An alternative of a question, and how it fared."""

    kind: records.Question
    kernel: Key
    machine: MachineId
    space_version: Space
    choice: Choice
    chosen: bool
    evidence: EvidenceFields
    status: Status
    error: Error
    policy: Line
    session: Name
    created_s: Time


class LatencyRow(Fields):
    """The latency of a whole model."""

    model: Name
    model_key: Key
    kind: records.LatencyKind
    machine: MachineId
    samples_s: Samples
    default_samples_s: Samples
    session: Name
    created_s: Time
    versions: Named
    state: Named


Row = (
    KernelRow | MachineRow | SessionRow | TrialRow | PromotionRow | SpendRow | WithdrawalRow
    | DecisionRow | LatencyRow
)  # fmt: skip

ROWS: dict[str, type[Row]] = {
    row.__name__.removesuffix("Row").lower(): row for row in get_args(Row)
}
"""The form of each kind of row."""


class Counts(Fields):
    """Number of rows of each kind in a file; older ones do not have the last three kinds."""

    kernel: Rows
    machine: Rows
    session: Rows
    trial: Rows
    promotion: Rows
    spend: Rows
    withdrawal: Rows = 0
    decision: Rows = 0
    latency: Rows = 0


class Header(Fields):
    """The first line."""

    format: str
    version: int
    rows: Counts


def properties(field: str, named: dict[str, float | str]) -> records.Properties:
    """Numbers and words, which a file has sorted by name."""
    if list(named) != sorted(named):
        raise FieldFault(field, named, "must be sorted by name")
    return tuple(named.items())


MAX_LINE_BYTES = 4 << 20

_AS_MANY = "must be empty, or as many as samples_s"

MAX_REFUSALS = 100_000
"""Beyond this many bad rows a file is no export, and reading ends."""

_MAX_SKIPPED = 64
"""Pieces of ``MAX_LINE_BYTES`` that a line which is too long may have."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading a file.

    ``warnings`` are about the file as a whole: it is shorter than it says, or has no end.

    ``unchecked`` counts trials that were taken though it is unknown whether they are legal, by
    the reason.
    """

    contents: Contents
    unchecked: Mapping[str, int]
    refusals: tuple[Refusal, ...]
    warnings: tuple[str, ...]


def read_export(file: BinaryIO, source: str, rule: ActionRule = parsed_only) -> Reading:
    """Read the lines of an exported file; ``source`` names it.

    All rows of measurements come out marked as imported.

    ``rule`` says of each trial whether its actions are legal, and of each decision whether its
    choice is one; alike ones are asked about once.

    Raises StoreError when it is no export at all, or of another version.
    """
    lines = _lines(file, source)
    counts = _header(next(lines, (0, None)), source)
    work = _FileRows(rule)
    for line_number, line in lines:
        work.take(line_number, line)
        if len(work.refusals) > MAX_REFUSALS:
            raise StoreError(
                f"file {source}: more than {MAX_REFUSALS} bad rows: it is not an export of a store"
            )
    seen = work.seen
    short = [f"{seen[k]} of {counts[k]} {k} rows" for k in KINDS if seen[k] < counts[k]]
    warnings = [f"file {source}: is cut short: it has {', '.join(short)}"] if short else []
    contents = replace(
        work.contents(),
        kernels=tuple(sorted(work.kernels.values(), key=lambda k: db_rows.key_of(k[0]))),
    )
    return Reading(contents, dict(work.unchecked), tuple(work.refusals), tuple(warnings))


def _lines(file: BinaryIO, source: str) -> Iterator[tuple[int, bytes | None]]:
    """(line number, bytes) of each line that is not blank; None for one that is too long."""
    for count in range(1, MAX_ROWS + 2):
        line: bytes | None = file.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        if len(line) > MAX_LINE_BYTES:
            yield count, None  # before the rest of it is read: a file may have no line end at all
            _skip_line(file, line, f"file {source}: line {count}")
        elif line.strip():
            yield count, line
    raise StoreError(
        f"file {source}: more than {MAX_ROWS} lines; split it by kernel with `store export "
        "--kernel`"
    )


def _skip_line(file: BinaryIO, line: bytes, place: str) -> None:
    """Read to the end of a line. Raises StoreError where that is too far away."""
    for _ in range(_MAX_SKIPPED):
        if not line or line.endswith(b"\n"):
            return
        line = file.readline(MAX_LINE_BYTES)
    raise StoreError(f"{place} has more than {_MAX_SKIPPED * MAX_LINE_BYTES:,} bytes")


def _header(first: tuple[int, bytes | None], source: str) -> dict[str, int]:
    """Number of rows of each kind that the file's header names."""
    rule = (
        f'must begin with a line {{"format": "{FORMAT}", "version": {FORMAT_VERSION}, "rows": ...}}'
    )
    try:
        header = untrusted.json_object((first[1] or b"").decode("utf-8"))
    except (FieldFault, UnicodeDecodeError):
        raise StoreError(f"file {source}: is not an export of a store: {rule}") from None
    if header.get("format") != FORMAT or type(version := header.get("version")) is not int:
        raise StoreError(f"file {source}: is not an export of a store: {rule}")
    if version != FORMAT_VERSION:
        raise StoreError(
            f"file {source}: version {untrusted.shortened(version)} of the format is not "
            f"{FORMAT_VERSION}, the one known; export it again by this tunegrad, or upgrade it"
        )
    try:
        return asdict(converted(Header, header).rows)
    except FieldFault as error:
        raise StoreError(f"file {source}: line 1: {error}") from None


@dataclass(slots=True)
class _FileRows:
    """The rows so far. Mutable: each line adds one row or one refusal."""

    rule: ActionRule
    refusals: list[Refusal] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    kernels: dict[str, tuple[str, str]] = field(default_factory=dict)
    machines: dict[str, Fingerprint] = field(default_factory=dict)
    sessions: dict[str, records.Session] = field(default_factory=dict)
    trials: dict[Identity, Trial] = field(default_factory=dict)
    promotions: list[Promotion] = field(default_factory=list)
    spends: dict[tuple[str, str, str], Spend] = field(default_factory=dict)
    withdrawals: dict[Identity, Withdrawn] = field(default_factory=dict)
    decisions: dict[records.Decision, None] = field(default_factory=dict)
    latencies: dict[records.Latency, None] = field(default_factory=dict)
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
            said = row.pop("row", None)
            if said not in KINDS:
                raise FieldFault("row", said, f"must be one of {', '.join(KINDS)}")
            kind = said
            self.seen[kind] += 1
            self._keep(converted(ROWS[kind], row))
        except FieldFault as error:
            self.refusals.append(Refusal(line, kind, error.field or "row", error.value, error.rule))

    def _keep(self, row: Row) -> None:
        match row:
            case KernelRow():
                self._keep_kernel(row)
            case MachineRow():
                self._keep_machine(row)
            case SessionRow():
                self._keep_session(row)
            case TrialRow():
                self._keep_trial(row)
            case PromotionRow():
                self._keep_promotion(row)
            case WithdrawalRow():
                self._keep_withdrawal(row)
            case DecisionRow():
                self._keep_decision(row)
            case LatencyRow():
                self._keep_latency(row)
            case SpendRow():
                self._keep_spend(row)

    def _keep_spend(self, row: SpendRow) -> None:
        key = row.model, row.machine, row.settings
        _once(self.spends, key, "model", row.model)
        self.spends[key] = Spend(row.model, self._machine(row.machine), row.settings, row.seconds)

    def _keep_kernel(self, row: KernelRow) -> None:
        if db_rows.key_of(row.text) != row.key:
            raise FieldFault(
                "key", row.key, f"must be the hash of the kernel's text, {db_rows.key_of(row.text)}"
            )
        _once(self.kernels, row.key, "key", row.key)
        self.kernels[row.key] = (row.text, row.name)

    def _keep_machine(self, row: MachineRow) -> None:
        names = [name for name, _ in row.fields]
        if names != sorted(set(names)):
            raise FieldFault("fields", names[:5], "must be sorted by name, each name once")
        fingerprint = Fingerprint(row.fields)
        if db_rows.machine_id(fingerprint) != row.id:
            raise FieldFault(
                "id", row.id, f"must be the hash of the fields, {db_rows.machine_id(fingerprint)}"
            )
        _once(self.machines, row.id, "id", row.id)
        self.machines[row.id] = fingerprint

    def _keep_session(self, row: SessionRow) -> None:
        try:
            untrusted.json_object(row.settings)
        except FieldFault:
            raise FieldFault(
                "settings", row.settings, "must be the text of a JSON object"
            ) from None
        _once(self.sessions, row.id, "id", row.id)
        self.sessions[row.id] = records.Session(**_said(row))

    def _keep_trial(self, row: TrialRow) -> None:
        fingerprint, text_ = self._machine(row.machine), self._kernel(row.kernel)
        self._known_session(row.session)
        if row.samples_s and row.status is not Status.OK:
            raise FieldFault(
                "samples_s", list(row.samples_s), f"must be empty where status is {row.status}"
            )
        if row.reference_samples_s and len(row.reference_samples_s) != len(row.samples_s):
            raise FieldFault("reference_samples_s", list(row.reference_samples_s), _AS_MANY)
        verdict = self._verdict(Claim(text_, fingerprint, row.space_version, row.actions))
        own, measured = db_rows.TRIALS.parted(_said(row) | {"max_error": float(row.max_error)})
        own["origin"] = records.IMPORTED + row.origin.removeprefix(records.IMPORTED)
        trial = Trial(
            kernel_key=row.kernel,
            kernel_text=text_,
            fingerprint=fingerprint,
            policy=_policy(row.policy),
            measurement=Measurement(**measured),
            **own,
        )
        try:
            trial = db_rows.admit(trial)
        except (
            InternalError
        ) as error:  # every rule of the store has one above; this is the second lock on the door
            raise FieldFault("row", str(error), "must keep the rules of the store") from None
        _once(self.trials, identity(trial), "actions", row.actions)
        self.trials[identity(trial)] = trial
        if verdict.unchecked:
            self.unchecked[verdict.unchecked] += 1

    def _keep_promotion(self, row: PromotionRow) -> None:
        at = self._named(row)
        if at is None or not self.trials[at].measurement.ran:
            raise FieldFault(
                "actions", row.actions, "must be those of a trial above that is ok and has samples"
            )
        self.promotions.append(
            Promotion(at, db_rows.admit_evidence(_claimed(row.evidence)), row.created_s)
        )

    def _keep_withdrawal(self, row: WithdrawalRow) -> None:
        at = self._named(row)
        if at is None:
            raise FieldFault("actions", row.actions, "must be those of a trial above")
        self._known_session(row.session)
        _once(self.withdrawals, at, "actions", row.actions)
        reason = records.IMPORTED + row.reason.removeprefix(records.IMPORTED)
        self.withdrawals[at] = Withdrawn(at, reason, row.session, row.created_s)

    def _keep_decision(self, row: DecisionRow) -> None:
        fingerprint, text = self._machine(row.machine), self._kernel(row.kernel)
        self._known_session(row.session)
        if row.chosen and row.status is not Status.OK:
            raise FieldFault("chosen", True, f"must be false where status is {row.status}")
        verdict = self._verdict(Claim(text, fingerprint, row.space_version, row.choice, row.kind))
        values = {c.name: getattr(row, c.name) for c in db_rows.DECISIONS.columns}
        values |= {"evidence": _claimed(row.evidence), "text": text, "fingerprint": fingerprint}
        decision = db_rows.admit_decision(records.Decision(**values))
        _once(self.decisions, decision, "choice", row.choice)
        self.decisions[decision] = None
        if verdict.unchecked:
            self.unchecked[verdict.unchecked] += 1

    def _keep_latency(self, row: LatencyRow) -> None:
        self._known_session(row.session)
        if not row.samples_s:
            raise FieldFault("samples_s", [], "must have a sample")
        if row.default_samples_s and len(row.default_samples_s) != len(row.samples_s):
            raise FieldFault("default_samples_s", list(row.default_samples_s), _AS_MANY)
        values = _said(row) | {"fingerprint": self._machine(row.machine), "imported": True}
        del values["machine"]
        latency = db_rows.admit_latency(records.Latency(**values))
        _once(self.latencies, latency, "model", row.model)
        self.latencies[latency] = None

    def _named(self, row: NamingRow) -> Identity | None:
        """The trial above that a row names."""
        at = Subject(
            row.kernel, self._machine(row.machine), row.actions, row.policy, row.space_version
        )
        found = Identity(at, row.measured_by, row.measured_s)
        return found if found in self.trials else None

    def _known_session(self, session: str) -> None:
        if session not in self.sessions:
            raise FieldFault("session", session, "must be the id of a session row above")

    def _machine(self, machine: str) -> Fingerprint:
        fingerprint = self.machines.get(machine)
        if fingerprint is None:
            raise FieldFault("machine", machine, "must be the id of a machine row above")
        return fingerprint

    def _kernel(self, kernel: str) -> str:
        found = self.kernels.get(kernel)
        if found is None:
            raise FieldFault("kernel", kernel, "must be the key of a kernel row above")
        return found[0]

    def _verdict(self, claim: Claim) -> Finding:
        if claim not in self.verdicts:
            self.verdicts[claim] = self.rule(claim)
        if fault := self.verdicts[claim].fault:
            raise FieldFault(
                "actions" if claim.kind == "schedule" else "choice", claim.actions, fault
            )
        return self.verdicts[claim]


def _said(row: Row) -> dict[str, Any]:
    """The fields of a row; numbers and words by name as pairs, which a file has sorted."""
    found = asdict(row)
    for name in ("versions", "facts", "state"):
        if name in found:
            found[name] = properties(name, found[name])
    return found


def _policy(said: PolicyFields) -> Policy:
    limits = {n: float(getattr(said, n)) for n in ("tolerance", "budget_s", "timeout_s")}
    return Policy(**asdict(said) | limits)


def _claimed(said: EvidenceFields) -> records.Evidence:
    """Evidence that a file says to have."""
    return records.Evidence(
        **asdict(said) | {"test": records.IMPORTED + said.test.removeprefix(records.IMPORTED)}
    )


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
