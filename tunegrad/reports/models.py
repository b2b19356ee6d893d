"""Reports on whole models: tuned, run with what is stored, and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tunegrad.paired import Interval

__all__ = ["Deviation", "LookupRow", "Outcome", "RunReport", "ShowRow", "TuneReport", "TuneRow"]

Outcome = Literal["hit", "near", "miss", "fixed"]
"""The way in which a kernel found its schedule; "fixed" is a fence's, which is neither searched nor
looked up.
"""


@dataclass(frozen=True, slots=True)
class TuneRow:
    """One distinct kernel of a tuned model.

    ``seed_ms`` is the fastest seed of similar kernels, as the search measured it; None without
    seeds. ``share`` is its part of the tuned model's kernel time (all uses), 0 to 1.
    ``default_ms`` and ``tuned_ms`` are of one use. ``candidates`` counts this session's trials by
    status. ``actions`` and ``origin`` are the winner's. ``interval`` is where the gain lies at
    95 %, from launches in turns in the whole model; None where there are too few, and where the
    winner is the default; ``by_turns`` is the median of those launches' ratios. ``best_ms`` is the
    fastest of the search, measured alone. ``layers`` are where in the model it comes from.
    """

    kernel: str
    key: str
    uses: int
    share: float
    default_ms: float | None
    tuned_ms: float | None
    pct_peak: float | None
    candidates: Mapping[str, int] = field(default_factory=dict)
    actions: str = ""
    origin: str = ""
    seed_ms: float | None = None
    interval: Interval | None = None
    best_ms: float | None = None
    layers: tuple[str, ...] = ()
    by_turns: float | None = None

    @property
    def gain(self) -> float | None:
        """Default time over tuned time, by turns where they took turns; None when it is unknown."""
        return self.by_turns or _ratio(self.default_ms, self.tuned_ms)


@dataclass(frozen=True, slots=True)
class TuneReport:
    """The result of one tuning session.

    ``default_ms`` and ``tuned_ms`` are of the whole model, end to end.

    ``near_s`` is how soon the sum of its best kernel times was within 5 % of the final one, in
    seconds from the start. ``costs`` are the session's ``seconds`` by what they went into;
    ``other`` is what none of the parts accounts for. ``stopped`` says why the search ended: budget,
    gain, patience, trials, target, exhausted or interrupted; empty where it had no budget left to
    begin with. Ending early saved ``saved_s`` of ``budget_s``. ``seed_share`` is the part of what
    the search saved, from the defaults to its best times, that seeds alone gave; None where there
    were none. ``others`` are this session's trials that no row counts: what was measured to decide
    on plans and variants, by status. ``voided`` are winners, as (kernel, actions, why), that were
    withdrawn in the end, since the model computed something else with them; ``mismatch`` says what
    it still computes otherwise than its graph, empty where nothing. ``dtype`` is what weights and
    activations are stored in, ``deviation`` what that costs next to the model in f32, both
    evaluated by numpy; None where it is f32 already, or was not measured. ``others_cpus`` is how
    many CPUs other processes used meanwhile, on average, and ``busy`` says so where that left too
    few for this one.
    """

    model: str
    device: str
    threads: int
    searcher: str
    store: str
    session: str
    rows: tuple[TuneRow, ...]
    default_ms: float | None
    tuned_ms: float | None
    interrupted: bool
    seconds: float
    candidates_per_s: float
    near_s: float | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    stopped: str = ""
    saved_s: float = 0.0
    budget_s: float = 0.0
    target_ms: float | None = None
    seed_share: float | None = None
    others: Mapping[str, int] = field(default_factory=dict)
    voided: tuple[tuple[str, str, str], ...] = ()
    mismatch: str = ""
    dtype: str = "f32"
    deviation: Deviation | None = None
    interval: Interval | None = None
    others_cpus: float = 0.0
    busy: str = ""
    by_turns: float | None = None

    @property
    def gain(self) -> float | None:
        """Default time of the whole model over its tuned time, turn by turn (``by_turns``); None
        when either is unknown.

        ``interval`` is where it lies at 95 %.
        """
        return self.by_turns or _ratio(self.default_ms, self.tuned_ms)

    @property
    def candidates(self) -> dict[str, int]:
        """This session's trials by status, over all kernels, those that the model does not run
        among them.
        """
        total: dict[str, int] = {}
        for counts in (*(row.candidates for row in self.rows), self.others):
            for status, count in counts.items():
                total[str(status)] = total.get(str(status), 0) + count
        return total


@dataclass(frozen=True, slots=True)
class Deviation:
    """Deviation of a model in 16 bits from the model as it was, on the inputs of one draw.

    ``largest`` is max |narrow - f32| over max |f32|, ``rms`` the root mean square of the difference
    over that of the f32 model; of several outputs the worst. Infinity (null in JSON) where the
    narrow model is not finite and the other one is: f16 ends at 65504.
    """

    largest: float
    rms: float


@dataclass(frozen=True, slots=True)
class LookupRow:
    """The lookup of one kernel of a loaded model: how it found its schedule.

    ``differs`` names the fingerprint fields that kept a stored winner from being a hit, as ``field:
    mine != theirs``. ``layers`` are where in the model it comes from.
    """

    kernel: str
    key: str
    uses: int
    outcome: Outcome
    differs: tuple[str, ...] = ()
    actions: str = ""
    layers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunReport:
    """Latency of a loaded model with the stored winners, next to the default schedules; medians of
    interleaved runs.

    ``constant_bytes`` are those of its weights. ``dtype``, ``deviation``, ``others_cpus`` and
    ``busy`` are as in ``TuneReport``, but the outputs are those of the loaded model; what others
    used is looked at by ``tunegrad run``.
    """

    model: str
    device: str
    threads: int
    store: str
    stored_ms: float
    default_ms: float
    repeats: int
    rows: tuple[LookupRow, ...] = ()
    dtype: str = "f32"
    constant_bytes: int = 0
    deviation: Deviation | None = None
    interval: Interval | None = None
    by_turns: float | None = None
    others_cpus: float = 0.0
    busy: str = ""

    @property
    def gain(self) -> float | None:
        """Default latency over stored latency, turn by turn (``by_turns``); ``interval`` is where
        it lies at 95 %.

        None where no stored winner is used: both are the same code.
        """
        known = self.by_turns or _ratio(self.default_ms, self.stored_ms)
        return known if self.uses_store else None

    @property
    def uses_store(self) -> bool:
        """True when any kernel runs as the store says."""
        return any(row.outcome in ("hit", "near") for row in self.rows)


@dataclass(frozen=True, slots=True)
class ShowRow:
    """One kernel of a model: what it will run with here, and where that came from.

    ``origin`` is the proposer of the winner (default, beam, random ...), ``session`` the session
    that measured it. ``facts`` are what a compiler made of it, as the store has them.
    ``operations`` are what it is made of, with the names of constants and inputs that it reads;
    ``layers`` where in the model it comes from.
    """

    kernel: str
    key: str
    uses: int
    outcome: Outcome
    actions: str
    origin: str
    session: str = ""
    tuned_ms: float | None = None
    differs: tuple[str, ...] = ()
    facts: Mapping[str, float | str] = field(default_factory=dict)
    operations: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


def _ratio(before: float | None, after: float | None) -> float | None:
    return before / after if before is not None and after else None
