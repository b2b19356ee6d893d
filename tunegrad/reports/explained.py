"""The report on where a model's time goes: its kernels, the steps of their schedules, what else was
tried, and variants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .code import CodeFacts, KernelResources
from .models import Outcome

__all__ = [
    "ExplainReport", "ExplainRow", "ExplainStep", "Neighbour", "Promotion", "StepTime",
    "VariantOption", "VariantRow",
]  # fmt: skip


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
    """A kernel of the model that can run in several ways, and the one that was picked: stored, or
    expected.
    """

    kernel: str
    key: str
    uses: int
    picked: str
    stored: bool
    options: tuple[VariantOption, ...]


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
