"""Records that the store keeps beside trials, and those of its own state. Plain data."""

from __future__ import annotations

from typing import Literal, get_args

from tunegrad.ir.kernel import key_of
from tunegrad.lazy import dataclass
from tunegrad.trial import Fingerprint, Properties, Status, Trial, middle

__all__ = [
    "IMPORTED", "LATENCY_KINDS", "PART", "QUESTIONS", "STOPPED", "WITHDRAWN", "Decision",
    "Evidence", "Latency", "LatencyKind", "Problem", "Properties", "Question", "Session",
    "Stats", "Withdrawal", "imported", "withdrawn_by",
]  # fmt: skip

Question = Literal["images", "cut", "variant"]
"""The question of a decision: the form of images, where a region is cut, how a kernel runs."""

QUESTIONS: tuple[Question, ...] = get_args(Question)

LatencyKind = Literal["tuned", "default"]
"""The schedules that a whole model ran: those that the store has, or the defaults."""

LATENCY_KINDS: tuple[LatencyKind, ...] = get_args(LatencyKind)

PART = ": "
"""Separator between a model and a kernel of it in the name of a latency: of a sweep's rows."""

IMPORTED = "imported:"
"""Prefix of the origin of a trial, and of the test of a promotion, of an imported file."""

STOPPED = "stopped: "
"""Prefix of the settings of a spend that holds the budget of a finished search, not spent time."""

WITHDRAWN = "withdrawn by session "
"""Prefix of the error of a trial that was withdrawn."""


def imported(trial: Trial) -> bool:
    """True for a trial that a file claims, and that was not measured here."""
    return trial.origin.startswith(IMPORTED)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for replacing an incumbent by a challenger: the two-sample test and the samples it
    saw.

    ``test`` names the test, ``p_value`` is in [0, 1]. Samples are in seconds and interleaved; the
    incumbent's are empty for the first winner of a kernel. ``cold`` says whether caches were
    evicted before each sample.
    """

    test: str
    p_value: float
    incumbent_samples_s: tuple[float, ...]
    challenger_samples_s: tuple[float, ...]
    cold: bool

    @property
    def imported(self) -> bool:
        """True for evidence that a file claims, and that was not measured here."""
        return self.test.startswith(IMPORTED)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A trial that shall never win again, as measured; which session said so, and what it saw."""

    trial: Trial
    reason: str
    session: str
    created_s: float

    def __str__(self) -> str:
        return withdrawn_by(self.session, self.reason)


def withdrawn_by(session: str, reason: str) -> str:
    """Error text of a withdrawn trial."""
    return f"{WITHDRAWN}{session}: {reason}"


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a command that measured.

    ``settings`` is JSON text; ``ended_s`` is None while it runs, or if killed.

    A session that only its trials' rows name (imported ones) has an empty command. Times are
    seconds since the epoch. ``versions`` are of what measured, ``state`` is the machine's when it
    began, and what the session said of itself later (``Store.add_facts``); rows before schema 3
    have neither.
    """

    id: str
    started_s: float
    ended_s: float | None
    command: str
    seed: int
    settings: str
    version: str
    versions: Properties = ()
    state: Properties = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """An alternative of a question, how it fared beside what stood before, and whether it stands
    since.

    ``text`` is what the question is about: a graph's launches (images), a region (cut), a kernel
    (variant). ``choice`` names the alternative. ``evidence`` has the samples of both sides, in
    seconds; of what stood first, and of what failed, the incumbent's are empty. ``status`` is OK or
    how the alternative failed, and ``error`` what was seen. ``policy`` says in a policy's text how
    the samples were taken. ``created_s`` counts from the epoch.
    """

    kind: Question
    text: str
    choice: str
    chosen: bool
    evidence: Evidence
    fingerprint: Fingerprint
    space_version: int
    session: str
    created_s: float
    status: Status = Status.OK
    error: str = ""
    policy: str = ""

    @property
    def key(self) -> str:
        """32 hex digits of the SHA-256 of the text; of a variant it is the kernel's key."""
        return key_of(self.text)

    @property
    def imported(self) -> bool:
        """True for a decision that a file claims, and that was not measured here."""
        return self.evidence.imported


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of a whole model, in seconds a run: when, where, by which versions, in which
    state of the machine.

    ``model_key`` names its graph. ``default_samples_s`` were taken in the same turns with the
    default schedules; empty where nothing ran beside it, else as many as ``samples_s``.
    ``created_s`` counts from the epoch.
    """

    model: str
    model_key: str
    kind: LatencyKind
    fingerprint: Fingerprint
    samples_s: tuple[float, ...]
    default_samples_s: tuple[float, ...]
    session: str
    created_s: float
    versions: Properties = ()
    state: Properties = ()
    imported: bool = False

    @property
    def seconds(self) -> float:
        """Median of its samples."""
        return middle(self.samples_s)

    @property
    def gain(self) -> float | None:
        """Gain over the default schedules: how many times as long they take, turn by turn, by the
        median; None without them.
        """
        turns = (
            zip(self.samples_s, self.default_samples_s, strict=True)
            if self.default_samples_s
            else ()
        )
        ratios = [default / mine for mine, default in turns if mine > 0]
        return middle(ratios) if ratios else None


_MOST_TEXT = 1000
"""Characters of what is wrong with a row."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A damaged row or file: found, reported and skipped.

    ``row`` is the row's id, None for a whole table or file. A long ``text`` is cut in its middle:
    what damage made of a value may be megabytes.
    """

    table: str
    row: int | None
    text: str

    def __post_init__(self) -> None:
        if len(self.text) > _MOST_TEXT:
            half = _MOST_TEXT // 2
            cut = f"{self.text[:half]} ... {self.text[-half:]} [{len(self.text)} characters in all]"
            object.__setattr__(self, "text", cut)

    def __str__(self) -> str:
        return (
            f"{self.table}: {self.text}"
            if self.row is None
            else f"{self.table} row {self.row}: {self.text}"
        )


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of a store's rows.

    ``by_status`` lists every status; ``unknown_status`` counts rows with none of them.
    """

    trials: int
    by_status: tuple[tuple[Status, int], ...]
    unknown_status: int
    kernels: int
    fingerprints: int
    sessions: int
    promotions: int
    withdrawals: int
    decisions: int
    latencies: int
    spent_s: float
    size_bytes: int
    schema_version: int
