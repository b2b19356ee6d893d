"""Which edges of a model's graph are buffers, settled by measuring before variants and kernels are.

every edge, toggled                              -->   kernels that go, kernels that come; equal regions are one
a model of the machine                           -->   what it expects to cost a quarter more is out
sums of what goes and of what comes              -->   default schedules, verified and timed; most hopeful regions first
a race of whole models, one edge changed         -->   what wins or is close is decided where caches are as they will be
                                                 -->   a decision a region: ``NAME`` of an edge, or ``rules``
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic

from tunegrad.config import Numerics
from tunegrad.db import Store
from tunegrad.errors import CandidateFailure
from tunegrad.events import Event
from tunegrad.ir.fusion import Alternative, Alternatives, Edge, Fusion, Schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning import RULES, expected_parts, expected_s, stored_s, stored_toggles
from tunegrad.search import LEAST_EFFECT
from tunegrad.trial import Fingerprint

from .claims import decided_here
from .contest import PARTS_POLICY
from .decisions import DecisionRows, evidence_of
from .race import Choice, Met, Track, race
from .tracks import least_s

__all__ = ["HOPELESS", "SLOWER", "Measure", "PlanTrack", "settle_plan"]

HOPELESS = 1.25
"""Alternatives that are expected to take this much longer are not measured."""

_CLOSE = 1.1
"""Alternatives whose parts take at most this much longer than the rules' are tried in the whole model."""

SLOWER = 2.0
"""What default schedules take, about, in times of what a model of the machine expects."""

_PARTS = "parts"
"""The test of the rules' cut, which met nobody."""

Measure = Callable[[Sequence[Kernel]], dict[str, float]]

PlanTrack = Callable[[Callable[[str, Schedule, CandidateFailure], None]], Track[Schedule]]
"""Where plans of a model are raced; the function is told which one ended a race."""


def settle_plan(
    fusion: Fusion,
    target: Target,
    here: Fingerprint,
    store: Store,
    measure: Measure,
    track: PlanTrack,
    session: str,
    numerics: Numerics = "contract",
    deadline_s: float = inf,
    tell: Callable[[Event], None] = lambda _: None,
) -> frozenset[int]:
    """The nodes at which the graph is cut otherwise than by the rules.

    ``measure`` verifies and times default schedules and gives seconds by key, infinity where none ran. ``track`` is
    where plans are raced. Regions that this machine has settled are left as they are; those that the time until
    ``deadline_s`` does not suffice for stay open, and as the store has them: by the rules, or as a file claims that
    nobody here has measured. What a file claims is always tried in the whole model.
    """
    work = _Settling(fusion, target, here, store, session, numerics, tell)
    work.chosen = work.settled_toggles()
    for region in work.open_regions():
        if monotonic() >= deadline_s:
            break
        work.decide(work.measured(region, measure), track, deadline_s)
    return stored_toggles(fusion, here, store)


@dataclass(frozen=True, slots=True)
class _Sum:
    """An edge, and the seconds of the kernels that go and come in one place."""

    edge: Edge
    before_s: float
    after_s: float

    @property
    def gain_s(self) -> float:
        """What all its places save; minus infinity where a kernel did not run."""
        if inf in (self.before_s, self.after_s):
            return -inf
        return len(self.edge.places) * (self.before_s - self.after_s)


@dataclass(slots=True)
class _Settling:
    """What the steps share. Mutable: ``chosen`` grows, and what kernels are expected to take is kept."""

    fusion: Fusion
    target: Target
    here: Fingerprint
    store: Store
    session: str
    numerics: Numerics
    tell: Callable[[Event], None]
    chosen: frozenset[int] = frozenset()
    alternatives: Alternatives = field(init=False)
    total_s: float = field(init=False)
    """What the model is expected to take."""
    known: dict[str, float] = field(default_factory=dict)
    decided: dict[str, bool] = field(default_factory=dict)
    claimed: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.alternatives = Alternatives(self.fusion)
        self.total_s = self.expected_s([x.kernel for x in self.alternatives.launches.values()])

    def expected_s(self, kernels: Sequence[Kernel]) -> float:
        for k in kernels:
            if k.key not in self.known:
                self.known[k.key] = expected_s(k, self.target, self.numerics)
        return sum(self.known[k.key] for k in kernels)

    # ---- what is known

    def settled(self, key: str) -> bool:
        """Whether a region was settled on this machine; that a file says so is a claim."""
        if key not in self.decided:
            self.decided[key] = decided_here(self.store, "cut", key, self.here) is not None
        return self.decided[key]

    def settled_toggles(self) -> frozenset[int]:
        """The nodes at which settled regions are cut otherwise than by the rules."""
        return self.alternatives.toggles([e for e in self.alternatives.edges() if self.settled(e.key) and self.won(e)])

    def won(self, edge: Edge) -> bool:
        """Whether the store says that this edge is how its region is cut best."""
        found = self.store.decision("cut", edge.key, self.here, SPACE_VERSION)
        return found is not None and found.choice == edge.name

    # ---- what is worth measuring

    def open_regions(self) -> list[list[Alternative]]:
        """The alternatives of regions that are not settled and can win, by region, the most hopeful first."""
        hopes: dict[str, list[Alternative]] = {}
        gains: dict[str, float] = {}
        for edge in self.alternatives.edges():
            if self.settled(edge.key):
                continue
            if self.won(edge):
                self.claimed.add((edge.key, edge.name))
            elif self._too_large(edge):
                continue
            found = self.alternatives.alternative(edge)
            if found is None:
                continue
            before_s, after_s = self.expected_s(found.before), self.expected_s(found.after)
            if after_s <= HOPELESS * before_s or (edge.key, edge.name) in self.claimed:
                hopes.setdefault(edge.key, []).append(found)
                gain_s = len(edge.places) * (before_s - after_s)
                gains[edge.key] = max(gains.get(edge.key, -inf), gain_s)
        return sorted(hopes.values(), key=lambda h: -gains[h[0].edge.key])

    def _too_large(self, edge: Edge) -> bool:
        """Whether writing and reading what an edge stores alone takes too long: most need no draft."""
        region_s = self.expected_s([x.kernel for x in self.alternatives.region(edge)])
        return stored_s(edge, self.target) > HOPELESS * region_s

    # ---- measuring

    def measured(self, region: Sequence[Alternative], measure: Measure) -> list[_Sum]:
        """The alternatives of one region with the seconds of their kernels, each as its expected variant."""
        parts = {k.key: expected_parts(k, self.target, self.numerics) for a in region for k in (*a.before, *a.after)}
        seconds = measure(list({p.key: p for kernels in parts.values() for p in kernels}.values()))

        def total_s(kernels: Sequence[Kernel]) -> float:
            return sum(seconds[p.key] for k in kernels for p in parts[k.key])

        return [_Sum(a.edge, total_s(a.before), total_s(a.after)) for a in region]

    def decide(self, found: Sequence[_Sum], track: PlanTrack, deadline_s: float) -> None:
        """Keep the rules' kernels of a region, or an edge that is faster in the whole model; both with their rows."""
        if any(x.before_s == inf or self.alternatives.overlap(x.edge, self.chosen) for x in found):
            return
        tried = sorted((x for x in found if self._in_question(x)), key=lambda x: -x.gain_s)
        toggles = [self.chosen | self.alternatives.toggles([x.edge]) for x in tried]
        plans = tuple(self._plan(t) for t in toggles)
        if tried and monotonic() + least_s(2.0 * SLOWER * self.total_s) > deadline_s:
            return
        places = {id(plan): i for i, plan in enumerate(plans)}

        def failed(_: str, plan: Schedule, error: CandidateFailure) -> None:
            edge = tried[places[id(plan)]].edge
            rows = DecisionRows(self.store, self.here, self.session, "cut")
            rows.failed(edge.region, edge.name, error)

        key, met = found[0].edge.key, None
        try:
            met = race([Choice(key, self._plan(self.chosen), plans)], track(failed), deadline_s).get(key)
        except CandidateFailure:
            return
        place = None if met is None else places[id(met.alternative)]
        self._record(found[0], None if place is None else tried[place].edge, met)
        if met is not None and met.won and place is not None:
            self.chosen = toggles[place]

    def _in_question(self, x: _Sum) -> bool:
        """Whether the whole model may show that an edge is better: its parts say so, or they do not decide."""
        if x.after_s == inf:
            return False
        if (x.edge.key, x.edge.name) in self.claimed:
            return True
        if x.after_s > _CLOSE * x.before_s:
            return False
        uncertain_s = len(x.edge.places) * (_CLOSE - 1.0) * x.before_s
        return max(x.gain_s, uncertain_s) >= LEAST_EFFECT * self.total_s

    def _plan(self, toggles: frozenset[int]) -> Schedule:
        return self.fusion.toggled(toggles).schedule()

    # ---- rows

    def _record(self, first: _Sum, edge: Edge | None, met: Met[Schedule] | None) -> None:
        """The rules' row comes first, so that a region without a better one is settled, and stays as it is."""
        region = first.edge.region
        kernels = [x.kernel for x in self.alternatives.region(first.edge)]
        self.store.name_kernel(region, "plan of " + ", ".join(k.name for k in kernels))
        rows = DecisionRows(self.store, self.here, self.session, "cut")
        rows.stands(region, RULES, PARTS_POLICY, (first.before_s,), _PARTS)
        if edge is not None and met is not None:
            rows.challenged(region, edge.name, evidence_of(met.verdict, met.samples), met.won, self.tell)
