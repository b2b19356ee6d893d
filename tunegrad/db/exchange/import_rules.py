"""Rules for the fields of an exported file: type, range and length, by the kind of its row."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from tunegrad.db.records import LatencyKind, Properties, Question
from tunegrad.trial import Cache, Status
from tunegrad.untrusted import FieldFault, Time, at_most, between, free_text, printable, whole

__all__ = ["MAX_ROWS", "ROWS", "Header", "Row", "properties"]

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

    kind: Question
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
    kind: LatencyKind
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


def properties(field: str, named: dict[str, float | str]) -> Properties:
    """Numbers and words, which a file has sorted by name."""
    if list(named) != sorted(named):
        raise FieldFault(field, named, "must be sorted by name")
    return tuple(named.items())
