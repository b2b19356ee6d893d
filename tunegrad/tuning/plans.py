"""Which edges of a model's graph are buffers, settled by measuring before variants and kernels are.

every edge, toggled                       -->  kernels that go, kernels that come; equal regions are
                                               one
a model of the machine                    -->  what it expects to cost a quarter more is out
sums of what goes and of what comes       -->  default schedules, verified and timed; most hopeful
                                               regions first
a race of whole models, one edge changed  -->  what wins or is close is decided where caches are as
                                               they will be
                                          -->  a decision a region: ``NAME`` of an edge, or
                                               ``rules``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from time import monotonic

from tunegrad.errors import CandidateFailure
from tunegrad.ir.fusion import Alternative, Alternatives, Edge, Fusion, LaunchPlan
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning.plan import RULES, expected_parts, expected_s, stored_s, stored_toggles
from tunegrad.search import LEAST_EFFECT

from .claims import decided_here
from .contest import PARTS_POLICY
from .decisions import evidence_of
from .grounds import HOPELESS, SLOWER, Grounds
from .tracks import least_s

__all__ = ["choose_cuts"]

_CLOSE = 1.1
"""Parts alone may seem this much slower than they are in the whole model."""

_PARTS = "parts"
"""The test of the rules' cut, which met nobody."""


def choose_cuts(fusion: Fusion, grounds: Grounds, deadline_s: float = inf) -> frozenset[int]:
    """The nodes at which the graph is cut otherwise than by the rules.

    Regions that this machine has settled are left as they are; those that the time until
    ``deadline_s`` does not suffice for stay open, and as the store has them: by the rules, or as a
    file claims that nobody here has measured. What a file claims is always tried in the whole
    model.
    """
    work = _Settling(fusion, grounds)
    work.chosen = work.settled_toggles()
    for region in work.open_regions():
        if monotonic() >= deadline_s:
            break
        work.decide(work.measured(region), deadline_s)
    return stored_toggles(fusion, grounds.here, grounds.store)


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
    """What the steps share.

    Mutable: ``chosen`` grows, and what kernels are expected to take is kept.
    """

    fusion: Fusion
    grounds: Grounds
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
                self.known[k.key] = expected_s(k, self.grounds.target, self.grounds.numerics)
        return sum(self.known[k.key] for k in kernels)

    # ---- what is known

    def settled(self, key: str) -> bool:
        """Whether a region was settled on this machine; that a file says so is a claim."""
        if key not in self.decided:
            self.decided[key] = (
                decided_here(self.grounds.store, "cut", key, self.grounds.here) is not None
            )
        return self.decided[key]

    def settled_toggles(self) -> frozenset[int]:
        """The nodes at which settled regions are cut otherwise than by the rules."""
        return self.alternatives.toggles(
            [e for e in self.alternatives.edges() if self.settled(e.key) and self.won(e)]
        )

    def won(self, edge: Edge) -> bool:
        """Whether the store says that this edge is how its region is cut best."""
        found = self.grounds.store.decision("cut", edge.key, self.grounds.here, SPACE_VERSION)
        return found is not None and found.choice == edge.name

    # ---- what is worth measuring

    def open_regions(self) -> list[list[Alternative]]:
        """The alternatives of regions that are not settled and can win, by region, the most hopeful
        first.
        """
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
        """Whether writing and reading what an edge stores takes too long: most need no draft."""
        region_s = self.expected_s([x.kernel for x in self.alternatives.region(edge)])
        return stored_s(edge, self.grounds.target) > HOPELESS * region_s

    # ---- measuring

    def measured(self, region: Sequence[Alternative]) -> list[_Sum]:
        """The alternatives of one region with the seconds of their kernels, each as its expected
        variant.
        """
        target, numerics = self.grounds.target, self.grounds.numerics
        parts = {
            k.key: expected_parts(k, target, numerics)
            for a in region
            for k in (*a.before, *a.after)
        }
        seconds = self.grounds.measure(
            list({p.key: p for kernels in parts.values() for p in kernels}.values())
        )

        def total_s(kernels: Sequence[Kernel]) -> float:
            return sum(seconds[p.key] for k in kernels for p in parts[k.key])

        return [_Sum(a.edge, total_s(a.before), total_s(a.after)) for a in region]

    def decide(self, found: Sequence[_Sum], deadline_s: float) -> None:
        """Keep the rules' kernels of a region, or an edge that is faster in the whole model.

        Both with their rows.
        """
        if any(x.before_s == inf or self.alternatives.overlap(x.edge, self.chosen) for x in found):
            return
        tried = sorted((x for x in found if self._in_question(x)), key=lambda x: -x.gain_s)
        toggles = {x.edge.name: self.chosen | self.alternatives.toggles([x.edge]) for x in tried}
        if tried and monotonic() + least_s(2.0 * SLOWER * self.total_s) > deadline_s:
            return
        region, plans = found[0].edge.region, {name: self._plan(t) for name, t in toggles.items()}
        try:
            raced = self.grounds.raced("cut", region, self._plan(self.chosen), plans, deadline_s)
        except CandidateFailure:
            return
        # The rules' row comes first, so that a region without a better one is settled, and stays as
        # it is.
        kernels = [x.kernel for x in self.alternatives.region(found[0].edge)]
        self.grounds.store.name_kernel(region, "plan of " + ", ".join(k.name for k in kernels))
        rows = self.grounds.rows("cut")
        rows.stands(region, RULES, PARTS_POLICY, (found[0].before_s,), _PARTS)
        if raced is not None:
            name, met = raced
            rows.challenged(
                region, name, evidence_of(met.verdict, met.samples), met.won, self.grounds.tell
            )
            self.chosen = toggles[name] if met.won else self.chosen

    def _in_question(self, x: _Sum) -> bool:
        """Whether the whole model may show that an edge is better: what it saves where its parts
        say too much.
        """
        may_save_s = len(x.edge.places) * (_CLOSE * x.before_s - x.after_s)
        claimed = (x.edge.key, x.edge.name) in self.claimed and x.after_s < inf
        return claimed or may_save_s >= LEAST_EFFECT * self.total_s

    def _plan(self, toggles: frozenset[int]) -> LaunchPlan:
        return self.fusion.toggled(toggles).schedule()
