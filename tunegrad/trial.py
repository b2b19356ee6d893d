"""Records of a measured candidate, in the words that searches, devices and the store share.

Plain data, no behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from tunegrad.lazy import dataclass

Properties = tuple[tuple[str, float | str], ...]
"""Named numbers and words, sorted by name: versions of what measured, the state of its machine,
what a compiler made of a program.
"""

Cache = Literal["cold", "constants", "warm"]
"""Data evicted from the caches before each sample: all that a launch touches, its constants
only, or nothing.

In a model that runs over and over, a kernel finds its inputs and outputs where the kernels before
it left them, and its constants, where all of them together do not fit, in memory: that is
``constants``. Of inputs and outputs each core then has a part, which no other one has.
"""


class Status(StrEnum):
    """The way a candidate ended. Everything but ``OK`` is data for the search, never its end."""

    OK = "ok"
    WRONG = "wrong"
    COMPILE_ERROR = "compile_error"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_RESOURCES = "out_of_resources"


@dataclass(frozen=True, slots=True)
class Policy:
    """The way in which a candidate is timed; stored with each row, since figures of two policies do
    not compare.

    ``cache`` says what is evicted before each sample. A sample is one launch (or a fixed run of
    back-to-back launches for very short kernels, divided out). Repeats adapt between
    ``min_samples`` and ``max_samples`` until the statistic's relative interval is under
    ``tolerance`` or the candidate is clearly losing. ``budget_s`` bounds the timing of one
    candidate, ``timeout_s`` its life in the worker.
    """

    cache: Cache = "warm"
    statistic: Literal["median", "min"] = "median"
    clock: str = "monotonic_raw"
    min_samples: int = 3
    max_samples: int = 50
    tolerance: float = 0.02
    budget_s: float = 0.1
    timeout_s: float = 10.0

    @property
    def text(self) -> str:
        """Canonical one-line form: the store's key for a policy."""
        return (
            f"cache={self.cache} statistic={self.statistic} clock={self.clock} "
            f"samples={self.min_samples}.."
            f"{self.max_samples} tolerance={self.tolerance:g} budget_s={self.budget_s:g}"
        )


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Everything about a machine that changes the answer, as sorted (field, value) pairs.

    docs/STORE.md lists the fields of a CPU device, each with its reason. A machine that does not
    say a fact has ``unknown`` there; a row of an older tunegrad lacks the field, and reads as '':
    the two differ. Two fingerprints can say which fields differ.
    """

    fields: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return " ".join(f"{k}={v}" for k, v in self.fields)

    def differences(self, other: Fingerprint) -> tuple[tuple[str, str, str], ...]:
        """(field, mine, theirs) for every field that differs; an absent field reads as ''."""
        mine, theirs = dict(self.fields), dict(other.fields)
        names = sorted(mine.keys() | theirs.keys())
        return tuple(
            (n, mine.get(n, ""), theirs.get(n, ""))
            for n in names
            if mine.get(n, "") != theirs.get(n, "")
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """A device's report on one candidate.

    Times in seconds; ``samples_s`` is empty unless status is OK.

    ``attempts`` counts the fresh workers that the candidate was run in until it ended like this, at
    least 1: what crashed is tried once more before the crash is a fact.

    ``reference_samples_s`` are what it was timed beside: sample *i* of the reference was taken in
    the same turn as sample *i* of the candidate, so that rows of different minutes compare by their
    ``ratio``. It is empty where nothing ran beside it, else as long as ``samples_s``.
    ``reference_program`` is the hash of the reference's program, '' where there is none, and
    ``reference_s`` are the seconds that it stands for: the same in all rows beside it; 0 where it
    is not known.

    ``facts`` is what the compiler made of the program (``registers``, ``spills`` ...; docs/STORE.md
    lists the names), ``state`` what the device said of itself when the samples had been taken
    (``sm_mhz``, ``power_w`` ...). Both are empty where they are not known.
    """

    status: Status
    samples_s: tuple[float, ...] = ()
    error: str = ""
    lower_s: float = 0.0
    compile_s: float = 0.0
    verify_s: float = 0.0
    timing_s: float = 0.0
    max_error: float = 0.0
    attempts: int = 1
    reference_samples_s: tuple[float, ...] = ()
    reference_program: str = ""
    reference_s: float = 0.0
    facts: Properties = ()
    state: Properties = ()

    @property
    def settled(self) -> bool:
        """True if the end is the candidate's own: a single crash may be the machine's."""
        return self.status is not Status.CRASHED or self.attempts > 1

    @property
    def uncompiled(self) -> bool:
        """True if the time of its compiling was over: nothing is known of the candidate."""
        return self.status is Status.TIMED_OUT and not self.timing_s and self.compile_s > 0

    @property
    def ran(self) -> bool:
        """True if it has a time: it is OK, and its median is finite."""
        return self.status is Status.OK and self.seconds < float("inf")

    @property
    def seconds(self) -> float:
        """Time that rows are ranked by; infinity without samples.

        The ratio times what the reference stands for, which other minutes do not change; without a
        reference the median of the samples.
        """
        beside = self.reference_samples_s and self.reference_s
        return self.ratio * self.reference_s if beside else middle(self.samples_s)

    @property
    def ratio(self) -> float:
        """Candidate over reference, the fastest turn of each, no unit; infinity without a
        reference.

        What disturbs a turn only ever slows it down. Of quotients turn by turn those would seem the
        best whose reference was disturbed: of hundreds of candidates, one always is.
        """
        if not self.reference_samples_s:
            return float("inf")
        return min(self.samples_s) / max(min(self.reference_samples_s), 1e-9)


def middle(samples: Sequence[float]) -> float:
    """Median of the samples, in their unit; infinity when there is none."""
    if not samples:
        return float("inf")
    ordered, half = sorted(samples), len(samples) // 2
    return (ordered[half] + ordered[~half]) / 2  # ``statistics`` would load fractions and decimals


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of one candidate: its program, and what was measured.

    The hash names the program; it is empty where the candidate could not be lowered.
    """

    program_hash: str
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class Trial:
    """One row of the store: this schedule of this kernel on this machine, measured this way, ended
    like this.

    ``kernel_key`` is the hash of ``kernel_text`` (canonical, no names). ``actions`` is the
    schedule's text, empty for the unscheduled kernel. ``program_hash`` identifies the generated
    program: two action lists may share one. ``origin`` names its source: default, beam, random,
    seed ...
    """

    kernel_key: str
    kernel_text: str
    fingerprint: Fingerprint
    actions: str
    program_hash: str
    space_version: int
    policy: Policy
    measurement: Measurement
    session: str
    origin: str = ""
    created_s: float = 0.0
