"""The questions about a model's graph: the form of its images, and which edges are buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, prod
from time import monotonic

from tunegrad.devices import CONTENDING
from tunegrad.ir.fusion import LAST, Alternative, Alternatives, Edge, Fusion, Images, LaunchPlan
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import SPACE_VERSION
from tunegrad.planning import (
    RULES,
    expected_s,
    image_forms,
    images_key,
    images_text,
    stored_images,
    stored_s,
    stored_toggles,
)
from tunegrad.search import LEAST_EFFECT

from .question import PlanContext, PlanQuestion, decided_here


def choose_images(fusion: Fusion, context: PlanContext, deadline_s: float = inf) -> Images:
    """The form of a graph's images.

    A graph that this machine has decided stays as it is, one without images has no question. Where
    the time until ``deadline_s`` does not suffice for a race, the graph stays open, and as the
    store has it. What a file claims is always tried; where no form has a hope there is nothing to
    store.
    """
    known = stored_images(fusion, context.here, context.store)
    here = decided_here(context.store, "images", images_key(fusion), context.here)
    if not fusion.has_images or here is not None:
        return known
    last = fusion.storing(LAST).as_run()
    if not context.fits((last, last), deadline_s):
        return known
    question = PlanQuestion(
        "images",
        images_text(fusion),
        f"images of {len(fusion.drafts.drafts)} kernels",
        (str(LAST), last),
        {str(i): plan for i, plan in _others(fusion, context, last, known).items()},
    )
    name = context.decided(question, deadline_s)
    return known if name is None else Images.parse(name) or LAST


def _others(
    fusion: Fusion, context: PlanContext, last: LaunchPlan, known: Images
) -> dict[Images, LaunchPlan]:
    """The plans that may beat channels-last: a file's claims, then the most hopeful first."""
    plans = {i: fusion.storing(i).as_run() for i in image_forms(context.target)}
    hopes = {
        i: context.expected_s(plan)
        for i, plan in plans.items()
        if i not in (LAST, known) and plan.kernels().keys() != last.kernels().keys()
    }
    limit_s = CONTENDING * context.expected_s(last)
    near = sorted((i for i in hopes if hopes[i] <= limit_s), key=hopes.__getitem__)
    claimed = {} if known == LAST else {known: fusion.storing(known).as_run()}
    return claimed | {i: plans[i] for i in near}


def choose_cuts(fusion: Fusion, context: PlanContext, deadline_s: float = inf) -> frozenset[int]:
    """The nodes at which the graph is cut otherwise than by the rules.

    Regions that this machine has decided are left as they are; those that the time until
    ``deadline_s`` does not suffice for stay open, and as the store has them: by the rules, or as a
    file claims without a measurement here. What a file claims is always tried.

        every edge, toggled      -->  kernels that go, kernels that come; equal regions are one
        a model of the machine   -->  what can not save a hundredth is out, were it a quarter faster
        a race of whole models   -->  a decision a region: ``NAME`` of an edge, or ``rules``
    """
    if context.fits((fusion.as_run(),) * 2, deadline_s):
        cuts = _Cuts(fusion, context)
        for region in cuts.open_regions(0.5 * (monotonic() + deadline_s)):
            cuts.decide(region, deadline_s)
    return stored_toggles(fusion, context.here, context.store, context.target)


@dataclass(slots=True)
class _Cuts:
    """The regions of one graph. Mutable: ``chosen`` grows."""

    fusion: Fusion
    context: PlanContext
    alternatives: Alternatives = field(init=False)
    edges: tuple[Edge, ...] = field(init=False)
    here: frozenset[str] = field(init=False)
    """The regions that this machine has decided."""
    chosen: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.alternatives = Alternatives(self.fusion)
        self.edges = tuple(self.alternatives.edges())
        store, here = self.context.store, self.context.here
        regions = {e.key for e in self.edges}
        self.here = frozenset(key for key in regions if decided_here(store, "cut", key, here))
        won = [e for e in self.edges if e.key in self.here and self._stored(e)]
        self.chosen = self.alternatives.toggles(won)

    def open_regions(self, until_s: float = inf) -> list[list[Alternative]]:
        """The open alternatives of regions that can win, by region, the most hopeful first; of what
        a file does not claim those that are looked at in time: each is a draft of all launches.
        """
        hopes: dict[str, list[tuple[float, Alternative]]] = {}
        least_s = LEAST_EFFECT * self._expected_s(
            [x.kernel for x in self.alternatives.every_launch()]
        )
        for edge in self.edges:
            claimed = self._stored(edge)
            late = monotonic() > until_s
            if edge.key in self.here or not (claimed or (not late and self._fits(edge))):
                continue
            found = self.alternatives.alternative(edge)
            if found is None:
                continue
            before_s, after_s = self._differing_s(found)
            # What can not save a hundredth of the model, at the best, can not win a race.
            places = len(edge.places)
            if claimed or places * (CONTENDING * before_s - after_s) >= least_s:
                gain_s = inf if claimed else places * (before_s - after_s)
                hopes.setdefault(edge.key, []).append((gain_s, found))
        regions = [sorted(found, key=lambda h: -h[0]) for found in hopes.values()]
        return [[a for _, a in found] for found in sorted(regions, key=lambda r: -r[0][0])]

    def decide(self, region: Sequence[Alternative], deadline_s: float) -> None:
        """Keep the rules' kernels of a region, or an edge that is faster in the whole model."""
        edges = {a.edge.name: a.edge for a in region}
        if any(self.alternatives.overlap(e, self.chosen) for e in edges.values()):
            return
        toggles = {name: self.chosen | self.alternatives.toggles([e]) for name, e in edges.items()}
        kernels = [x.kernel for x in self.alternatives.region(region[0].edge)]
        question = PlanQuestion(
            "cut",
            region[0].edge.region,
            "plan of " + ", ".join(k.name for k in kernels),
            (RULES, self._plan(self.chosen)),
            {name: self._plan(t) for name, t in toggles.items()},
        )
        self.chosen = toggles.get(self.context.decided(question, deadline_s) or "", self.chosen)

    def _stored(self, edge: Edge) -> bool:
        """True when the store says, or claims, that this edge is how its region is cut best."""
        store, here = self.context.store, self.context.here
        found = store.decision("cut", edge.key, here, SPACE_VERSION)
        return found is not None and found.choice == edge.name

    def _fits(self, edge: Edge) -> bool:
        """True when writing and reading what an edge stores takes no longer than its region may:
        most edges that do not need no draft.
        """
        region_s = self._expected_s([x.kernel for x in self.alternatives.region(edge)])
        return stored_s(edge, self.context.target) <= CONTENDING * region_s

    def _differing_s(self, found: Alternative) -> tuple[float, float]:
        """Seconds of kernels that go and of those that come, less what both have.

        That is the heaviest kernel of either side where it adds up as many terms, a product with
        another edge: the model of the machine errs on both alike.
        """
        sides = found.before, found.after
        before, after = map(self._each_s, sides)
        if not before or not after:  # a copy that comes or goes: no other kernel is another one
            return sum(before), sum(after)
        goes, comes = (
            max(zip(times, kernels, strict=True), key=lambda x: x[0])
            for times, kernels in zip((before, after), sides, strict=True)
        )
        common_s = min(goes[0], comes[0]) if _terms(goes[1]) == _terms(comes[1]) else 0.0
        return sum(before) - common_s, sum(after) - common_s

    def _expected_s(self, kernels: Sequence[Kernel]) -> float:
        return sum(self._each_s(kernels))

    def _each_s(self, kernels: Sequence[Kernel]) -> list[float]:
        return [expected_s(k, self.context.target, self.context.numerics) for k in kernels]

    def _plan(self, toggles: frozenset[int]) -> LaunchPlan:
        return self.fusion.toggled(toggles).as_run()


def _terms(kernel: Kernel) -> int:
    """Number of terms that a kernel adds up, in all its reductions."""
    return sum(kernel.points * prod(a.extent for a in r.axes) for r in kernel.reduces)
