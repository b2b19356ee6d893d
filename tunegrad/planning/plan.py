"""The plan of a graph: the passes of ``tunegrad.pipeline`` with decisions that the store has, or
that are given.

The form of images is a decision about the whole graph: its text is the rules' plan with its images
channels-last, its choice is a form. Where to cut is a decision about a region
(``ir.fusion.Alternatives``): its choice is the name of an edge, or ``rules``. Regions are looked up
by what they hold, so a decision found in one model serves every model with the same kernels around
that edge. Without a store: the rules, and what a model of the machine expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tunegrad.ir.fusion import LAST, ROWS, Alternatives, Fusion, Images, LaunchPlan, New, blocked
from tunegrad.ir.graph import Node
from tunegrad.ir.kernel import key_of
from tunegrad.ir.target import Target
from tunegrad.lazy import dataclass
from tunegrad.opts import SPACE_VERSION, run_passes
from tunegrad.pipeline import PLAN_PASSES, Decisions, Plan, PlanContext
from tunegrad.pipeline import prepared as prepared  # noqa: PLC0414 - the face has it

from .expected import expected_attentions, picked

if TYPE_CHECKING:
    from tunegrad.config import Numerics
    from tunegrad.db import Store
    from tunegrad.trial import Fingerprint

RULES = "rules"
"""The decision that a region stays as the rules cut it."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A graph ready to run: its schedule, the edges where that is not the rules', and the variants
    by kernel key.

    ``images`` is the form of its images.
    """

    plan: LaunchPlan
    toggles: frozenset[int]
    variants: Mapping[str, str]
    images: Images = LAST


@dataclass(frozen=True, slots=True)
class _Stored:
    """Decisions of the store; where it has none, what a model of the machine expects."""

    target: Target
    here: Fingerprint
    store: Store | None
    numerics: Numerics

    def images(self, fusion: Fusion) -> Images:
        return stored_images(fusion, self.here, self.store)

    def toggles(self, fusion: Fusion) -> frozenset[int]:
        return stored_toggles(fusion, self.here, self.store, self.target)

    def variants(self, plan: LaunchPlan) -> Mapping[str, str]:
        return picked(plan, self.target, self.here, self.store, self.numerics, direct=False)


@dataclass(frozen=True, slots=True)
class _Given:
    """Decisions that are known."""

    form: Images
    places: frozenset[int]
    names: Mapping[str, str]

    def images(self, _: Fusion) -> Images:
        return self.form

    def toggles(self, _: Fusion) -> frozenset[int]:
        return self.places

    def variants(self, _: LaunchPlan) -> Mapping[str, str]:
        return self.names


def plan_launches(
    outputs: tuple[Node, ...],
    target: Target,
    here: Fingerprint,
    store: Store | None,
    numerics: Numerics,
    news: tuple[New, ...] = (),
) -> Planned:
    """The schedule of a prepared graph with all that the store has decided; reads only.

    ``news``: outputs that are written in the memory of inputs. Raises WrongPlan for a plan that
    does not compute that graph.
    """
    found = _planned(outputs, target, _Stored(target, here, store, numerics), news)
    return Planned(found.launches, found.toggles, found.variants, found.cut.images)


def planned_as(
    outputs: tuple[Node, ...],
    toggles: frozenset[int],
    variants: Mapping[str, str],
    images: Images,
    target: Target,
    news: tuple[New, ...] = (),
) -> LaunchPlan:
    """The plan of a prepared graph by decisions that are known, as ``plan_launches`` names them."""
    return _planned(outputs, target, _Given(images, toggles, variants), news).launches


def _planned(
    outputs: tuple[Node, ...],
    target: Target,
    decisions: Decisions,
    news: tuple[New, ...],
) -> Plan:
    context = PlanContext(target, decisions, news)
    plan: Plan = run_passes(PLAN_PASSES, outputs, context)
    return plan


def stored_toggles(
    fusion: Fusion, here: Fingerprint, store: Store | None, target: Target | None = None
) -> frozenset[int]:
    """The nodes at which the store has decided otherwise than the rules; for a target, also where
    the store has not decided and attention is expected to be faster.

    Where two such regions meet, the first one counts.
    """
    hopes = frozenset[int]() if target is None else expected_attentions(fusion, target)
    if store is None:
        return hopes
    alternatives = Alternatives(fusion)
    winners: dict[str, str] = {}
    chosen, expected = [], []
    for edge in alternatives.edges():
        if edge.key not in winners:
            found = store.decision("cut", edge.key, here, SPACE_VERSION)
            winners[edge.key] = "" if found is None else found.choice
        if winners[edge.key] == edge.name:
            chosen.append(edge)
        elif not winners[edge.key] and hopes.issuperset(edge.places):
            expected.append(edge)
    return alternatives.toggles([*chosen, *expected])


def image_forms(target: Target) -> tuple[Images, ...]:
    """The forms that are worth a thought: blocks are as large as the f32 lanes of a vector."""
    return (LAST, ROWS, blocked(target.lanes(4)))


def images_text(fusion: Fusion) -> str:
    """Key text of a stored decision about images: the rules' launches, channels-last."""
    numbers: dict[int, int] = {}
    lines = ["images"]
    for launch in fusion.storing(LAST).schedule().launches:
        args = (str(numbers.setdefault(i, len(numbers))) for i in launch.args)
        lines.append(f"launch ({', '.join(args)}) {launch.kernel.key}")
    return "\n".join(lines)


def images_key(fusion: Fusion) -> str:
    """The key of ``images_text`` in the store: 32 hex digits of its SHA-256, as a kernel's."""
    return key_of(images_text(fusion))


def stored_images(fusion: Fusion, here: Fingerprint, store: Store | None) -> Images:
    """The form of a graph's images that the store has decided on; else channels-last."""
    if store is None or not fusion.has_images:
        return LAST
    found = store.decision("images", images_key(fusion), here, SPACE_VERSION)
    return (Images.parse(found.choice) if found else None) or LAST
