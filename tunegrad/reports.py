"""Results of commands: one frozen record each, in plain numbers and text, and their form as JSON.

A report holds no behaviour and no formatting. Times that a reader compares are in milliseconds
(``_ms``), shares and per cents as their names say; ``None`` stands for "not measured".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from tunegrad.lazy import dataclass

if TYPE_CHECKING:
    from tunegrad.paired import Interval


Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def to_json(value: object) -> Json:
    """``value`` as JSON data: records as objects of fields and properties, inf and NaN as null."""
    match value:
        case Enum():
            return to_json(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case PurePath():
            return str(value)
        case Mapping():
            return {str(to_json(k)): to_json(v) for k, v in value.items()}
        case Iterable():
            return [to_json(v) for v in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            names = [f.name for f in fields(value)]
            names += [n for n, member in vars(type(value)).items() if isinstance(member, property)]
            return {name: to_json(getattr(value, name)) for name in names}
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r}")


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """Machine code of a kernel: its hot loop (all of it, where there is no loop), and what the
    whole spills.

    ``vector_bits`` is the width of the vectors that are multiplied and added; ``loads`` and
    ``stores`` count vector instructions with a memory operand; ``spills`` those of them on the
    stack.
    """

    vector_bits: int
    fmas: int
    loads: int
    stores: int
    spills: int
    calls: int
    instructions: int
    kernel_spills: int
    kernel_instructions: int


@dataclass(frozen=True, slots=True)
class KernelResources:
    """Resources that a kernel takes by its compiler: registers and bytes of spills of one
    work-item, bytes that a group shares.

    ``unit_groups`` is how many groups one unit of the device runs at a time for all that, and
    ``occupancy`` their work-items in proportion to the most that it holds; 0 where not known.
    """

    registers: int
    spilled_bytes: int
    shared_bytes: int
    unit_groups: int = 0
    occupancy: float = 0.0


@dataclass(frozen=True, slots=True)
class CompiledRow:
    """One distinct kernel, compiled by its default schedule and not run.

    ``resources`` are None where the compiler does not tell; ``error`` is its words where it
    refused.
    """

    kernel: str
    key: str
    uses: int
    actions: str
    groups: int
    items: int
    compile_s: float
    resources: KernelResources | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class CompiledReport:
    """A model on a device that runs nothing: ``seconds`` of lowering and compiling together."""

    model: str
    device: str
    seconds: float
    rows: tuple[CompiledRow, ...]

    @property
    def failed(self) -> int:
        """Number of kernels that did not compile."""
        return sum(bool(row.error) for row in self.rows)


Outcome = Literal["hit", "near", "miss", "fixed"]
"""The way in which a kernel found its schedule; "fixed" by a fence: never searched."""


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
    it still computes otherwise than its graph, empty where nothing, and ``uncompared`` why its
    outputs were not compared, empty where they were. ``dtype`` is what weights and
    activations are stored in, ``deviation`` what that costs next to the model in f32, both
    evaluated by numpy; None where it is f32 already, or was not measured. ``others_cpus`` is how
    many CPUs other processes used meanwhile, on average, and ``busy`` says so where that left too
    few for this one. ``training`` is true of a step of training.
    ``quantised`` is what the bytes of a model cost that was calibrated by the same command.
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
    uncompared: str = ""
    dtype: str = "f32"
    deviation: Deviation | None = None
    interval: Interval | None = None
    others_cpus: float = 0.0
    busy: str = ""
    by_turns: float | None = None
    training: bool = False
    quantised: QuantizeReport | None = None

    @property
    def gain(self) -> float | None:
        """Default time of the whole model over its tuned time, turn by turn (``by_turns``); None
        when either is unknown.

        ``interval`` is where it lies at 95 %.
        """
        return self.by_turns or _ratio(self.default_ms, self.tuned_ms)

    @property
    def paid_after(self) -> int | None:
        """Runs of the model that save the ``seconds`` of tuning; None if savings are not sure."""
        gain = self.gain
        if gain is None or self.tuned_ms is None or min(gain, *(self.interval or ())) <= 1.0:
            return None
        return math.ceil(1e3 * self.seconds / ((gain - 1.0) * self.tuned_ms))

    @property
    def candidates(self) -> dict[str, int]:
        """This session's trials by status, over all kernels, also those no model runs."""
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
class Price:
    """The time of a model stored in ``dtype`` on this machine, and its deviation from f32 on the
    batches that were held out; None of f32 itself. ``tuned`` of its ``kernels`` run with a stored
    winner.
    """

    dtype: str
    ms: float
    deviation: Deviation | None
    tuned: int
    kernels: int


@dataclass(frozen=True, slots=True)
class QuantizeReport:
    """The cost of a model's bytes.

    ``batches`` calibrated it, ``held_out`` others decided ``deviation``; of one batch alone none is
    held out, and it decides both. Of its ``products`` those of ``kept`` stay in f32. ``costs`` are
    the errors of the outputs with one product alone in bytes, where they were measured.
    """

    model: str
    method: str
    batches: int
    held_out: int
    products: int
    kept: tuple[str, ...] = ()
    deviation: Deviation | None = None
    costs: tuple[tuple[str, float], ...] = ()
    prices: tuple[Price, ...] = ()


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
    used is looked at by ``tunegrad run``. ``nan``: outputs hold NaN on the inputs that were drawn.
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
    nan: bool = False

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
    ``layers`` where in the model it comes from. ``tried`` candidates are in the store, of about
    ``space`` lists of decisions.
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
    tried: int = 0
    space: float = 1.0


def _ratio(before: float | None, after: float | None) -> float | None:
    return before / after if before is not None and after else None


@dataclass(frozen=True, slots=True)
class StepTime:
    """Time of one action list.

    ``over``: it was stopped, and takes longer than ``ms``. ``note``: why no time. ``off``: half the
    width of its 95 % interval, as a part of it; None where that is not known.
    """

    ms: float | None = None
    over: bool = False
    note: str = ""
    off: float | None = None


@dataclass(frozen=True, slots=True)
class ExplainStep:
    """One action of a schedule.

    ``after``: the list up to this action. ``gain``: the time before it over the time after it; at
    least that, or at most, where one of the two was stopped. ``without``: the whole list with this
    action left out. ``worth``: that time over the whole list's.
    """

    action: str
    after: StepTime
    gain: float | None
    without: StepTime
    worth: float | None


@dataclass(frozen=True, slots=True)
class Promotion:
    """The evidence on which a stored schedule won: medians of interleaved samples, caches cold or
    warm.

    ``incumbent_ms`` is None for the first winner of a kernel, which replaced nothing.
    """

    test: str
    p_value: float
    incumbent_ms: float | None
    challenger_ms: float | None
    cold: bool


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A schedule that differs from another one in one action, and what came of it.

    ``ms`` is what the search measured of the kernel alone, ``cost`` that over the time of the
    schedule itself, both beside one reference; None where it was not timed. ``why`` is what failed,
    or which rule was broken. ``origin`` is the proposer.
    """

    change: str
    kind: Literal["tried", "failed", "illegal", "not tried"]
    ms: float | None = None
    cost: float | None = None
    why: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class ExplainRow:
    """One kernel of a model: what it needs, what the machine allows, what its schedule reaches, and
    where that is from.

    ``share`` is its part of the kernels' time. ``flops`` leaves out products with padding;
    ``executed_flops`` is what the schedule's program does, None where it can not be told.
    ``bytes_ms`` is at the bandwidth of ``level``. ``ms`` is of one use, measured now with warm
    caches; ``stored_ms`` what the store says. ``facts`` are what the store has of its code,
    ``layers`` where in the model it comes from.
    """

    kernel: str
    key: str
    uses: int
    operations: tuple[str, ...]
    share: float | None
    flops: int
    executed_flops: int | None
    unique_bytes: int
    const_bytes: int
    flops_ms: float
    bytes_ms: float
    level: Literal["cache", "memory"]
    ms: float | None
    stored_ms: float | None
    outcome: Outcome
    origin: str
    session: str
    differs: tuple[str, ...]
    promotion: Promotion | None
    actions: str
    registers: str
    unscheduled: StepTime | None = None
    steps: tuple[ExplainStep, ...] = ()
    code: CodeFacts | None = None
    resources: KernelResources | None = None
    hot_loop: str = ""
    note: str = ""
    facts: Mapping[str, float | str] = field(default_factory=dict)
    layers: tuple[str, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.unique_bytes if self.unique_bytes else 0.0

    @property
    def bound(self) -> Literal["flops", "bytes"]:
        """The nearer one of the two bounds."""
        return "flops" if self.flops_ms >= self.bytes_ms else "bytes"

    @property
    def bound_ms(self) -> float:
        """The nearer bound, in milliseconds of one use."""
        return max(self.flops_ms, self.bytes_ms)

    @property
    def pct_bound(self) -> float | None:
        """Per cent of the nearer bound."""
        return None if not self.ms else 100.0 * self.bound_ms / self.ms

    @property
    def lost_ms(self) -> float | None:
        """Milliseconds over the nearer bound, of all uses; negative where the bound is passed."""
        return None if self.ms is None else self.uses * (self.ms - self.bound_ms)


@dataclass(frozen=True, slots=True)
class VariantOption:
    """One way to run a kernel.

    ``bound_ms`` and ``parts_ms`` are sums over the kernels it is made of.

    ``stored_ms`` is the stored time of the variant as a whole; ``parts_ms`` that of its kernels'
    best rows, None where one of them has none.
    """

    name: str
    kernels: int
    bound_ms: float
    stored_ms: float | None
    parts_ms: float | None


@dataclass(frozen=True, slots=True)
class VariantRow:
    """A kernel that can run in several ways, and the one picked: stored, or expected."""

    kernel: str
    key: str
    uses: int
    picked: str
    stored: bool
    options: tuple[VariantOption, ...]


@dataclass(frozen=True, slots=True)
class QuantisedLayer:
    """Layers whose products are of dequantised bytes, of one kernel, or that one rule leaves on
    floats: the variant in which they run, "direct" for bytes, and why: the rule, or milliseconds of
    the variants.
    """

    layers: tuple[str, ...]
    runs: str
    why: str


@dataclass(frozen=True, slots=True)
class ExplainReport:
    """Explanation of a model's time: its kernels in launch order, and the variants that were
    considered.

    ``direct_floor_ms`` is the sum of the bounds with every kernel as its direct variant. ``top`` is
    how many of the heaviest were taken apart; None for all. ``wall_ms`` is what the whole model
    took when it was last tuned here; None where that is not stored. ``others_cpus`` is how many
    CPUs other processes used meanwhile, on average, and ``busy`` says so where that left too few.
    """

    model: str
    device: str
    threads: int
    store: str
    peak_gflops: float
    cache_gb_per_s: float
    memory_gb_per_s: float
    rows: tuple[ExplainRow, ...]
    variants: tuple[VariantRow, ...]
    direct_floor_ms: float
    budget_s: float
    seconds: float
    top: int | None = None
    wall_ms: float | None = None
    others_cpus: float = 0.0
    busy: str = ""
    quantised: tuple[QuantisedLayer, ...] = ()

    @property
    def total_ms(self) -> float | None:
        """Time of all uses of all rows; None where one was not measured."""
        if any(r.ms is None for r in self.rows):
            return None
        return sum(r.uses * (r.ms or 0.0) for r in self.rows)

    @property
    def floor_ms(self) -> float:
        """The sum of the bounds of all uses of all rows."""
        return sum(r.uses * r.bound_ms for r in self.rows)

    @property
    def pct_floor(self) -> float | None:
        """Per cent of the floor that the rows reach together."""
        return None if not self.total_ms else 100.0 * self.floor_ms / self.total_ms


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device tunegrad knows. ``detail`` is its description, or why it can not be used."""

    name: str
    usable: bool
    detail: str


@dataclass(frozen=True, slots=True)
class CompilerRow:
    """A compiler or package that changes the answer, and its version; "" if not installed."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class IsolationRow:
    """A protection of what is outside a candidate, and what it stops (docs/ISOLATION.md)."""

    name: str
    present: bool
    detail: str


@dataclass(frozen=True, slots=True)
class PlaceRow:
    """Default place of something, and how much of it is there."""

    what: str
    place: str
    held: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Facts of this machine, and its limits: the peaks are measured, not looked up.

    FMA peaks are f32 with ``threads`` threads and with one, in GFLOP/s; bandwidths are of a triad
    from DRAM, in GB/s. ``isolation`` is of a process that would run candidates: it was started, and
    asked what it has. ``cpus`` are those that this process may use, of which other processes kept
    ``others_cpus`` busy; ``busy`` says so where they leave too few, so that the peaks are too low.
    ``no_counters`` is why the system counts no cycles in hardware; empty where it does.
    """

    devices: tuple[DeviceRow, ...]
    compilers: tuple[CompilerRow, ...]
    versions: tuple[CompilerRow, ...]
    threads: int
    fma_peak_gflops: float
    fma_peak_one_thread_gflops: float
    bandwidth_gb_per_s: float
    bandwidth_one_thread_gb_per_s: float
    isolation: tuple[IsolationRow, ...]
    places: tuple[PlaceRow, ...] = ()
    cpus: int = 0
    others_cpus: float = 0.0
    busy: str = ""
    no_counters: str = ""


def prometheus_text(
    families: Iterable[tuple[str, str, str, Sequence[tuple[Mapping[str, str], float]]]],
) -> str:
    """Families of (name, ``counter`` or ``gauge``, help, samples) in Prometheus' text format 0.0.4;
    a sample is its labels and its value. Families without samples are left out.
    """
    lines = []
    for name, kind, said, samples in families:
        if samples:
            lines += [f"# HELP {name} {said}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
