"""From a graph to the schedule that runs: the form of its images, which edges are buffers, the
variant of each kernel.

    graph   -->   the rules' plan   -->   the stored form of its images
            -->   edges that the store has decided otherwise   -->   variants   -->   LaunchPlan

The form of images is a decision about the whole graph: its text is the rules' plan with its images
channels-last, its choice is a form. Where to cut is a decision about a region
(``ir.fusion.Alternatives``): its choice is the name of an edge, or ``rules``. Regions are looked up
by what they hold, so a decision found in one model serves every model with the same kernels around
that edge. Without a store: the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from tunegrad.ir.dtypes import dtype_of
from tunegrad.ir.expr import Apply, Cast, Expr, IndexValue, Inside, Load, Value
from tunegrad.ir.folding import fold_constants, known_outputs
from tunegrad.ir.fusion import (
    EXPENSIVE,
    LAST,
    ROWS,
    Alternatives,
    Edge,
    Fusion,
    Images,
    LaunchPlan,
    blocked,
)
from tunegrad.ir.graph import Node, Step
from tunegrad.ir.kernel import Kernel, key_of, memoized
from tunegrad.ir.rewrites.packed_dots import pair_dots, quad_dots, round_factors
from tunegrad.ir.target import Target
from tunegrad.ir.validate import validated, validated_rewrite
from tunegrad.ir.variants import parts_of, rewrite
from tunegrad.opts import SPACE_VERSION, kernel_flops_per_s
from tunegrad.planning.attention import expected_attentions
from tunegrad.planning.narrow import narrowed
from tunegrad.planning.variants import expected, pick_variants

if TYPE_CHECKING:
    from tunegrad.config import ModelDtype, Numerics
    from tunegrad.db import Store
    from tunegrad.trial import Fingerprint

__all__ = [
    "RULES",
    "Planned",
    "expected_parts",
    "expected_plan_s",
    "expected_s",
    "image_forms",
    "images_key",
    "images_text",
    "plan_launches",
    "planned_as",
    "prepared",
    "stored_images",
    "stored_s",
    "stored_toggles",
    "validated_schedule",
]

RULES = "rules"
"""The decision that a region stays as the rules cut it."""

_MOST_KNOWN = 4096


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


def prepared(
    outputs: tuple[Node, ...],
    numerics: Numerics,
    target: Target,
    dtype: ModelDtype = "f32",
    *,
    known: bool = False,
) -> tuple[Node, ...]:
    """A graph as it is planned: constants folded, in ``dtype``, products of bytes in fours, of bf16
    in pairs, f32 ones of tf32.

    Constants are folded before they are narrowed, so that a product of them is rounded once. Pairs
    are made where the target multiplies them in one instruction, and the numerics allow them: what
    is asked to be bf16 is multiplied so unless they are strict, its inputs too. Where a matrix unit
    multiplies ``dtype``, its factors are stored so unless they are strict. Factors are rounded to
    tf32 where the numerics say so and a matrix unit multiplies such. Fours of bytes are exact, and
    made wherever the target multiplies them. ``known``: outputs that no input reaches are
    constants.

    Raises WeightsError for a constant that does not fit ``dtype``; WrongPlan where what was made is
    another graph.
    """
    asked = numerics in ("bf16-dot", "tf32") or (dtype == "bf16" and numerics != "strict")
    paired = asked and target.multiplies_pairs
    in_tf32 = numerics == "tf32" and target.multiplies("tf32")
    before, steps = outputs, list[Step]()
    if target.multiplies_bytes:
        outputs = quad_dots(outputs, target, steps)
    if dtype != "f32":
        factors = numerics != "strict" and target.multiplies(dtype)
        outputs = fold_constants(outputs, steps)
        outputs = narrowed(outputs, dtype_of(dtype), factors=factors, steps=steps)
    if in_tf32:
        outputs = round_factors(fold_constants(outputs, steps), steps)
    if paired:
        outputs = pair_dots(outputs, inputs=dtype == "bf16", steps=steps)
    outputs = fold_constants(outputs, steps)
    if known:
        outputs = known_outputs(outputs, steps)
    narrow = None if dtype == "f32" else dtype_of(dtype)
    return validated_rewrite(before, outputs, steps, narrow, on_purpose=paired or in_tf32)


def validated_schedule(plan: LaunchPlan, fusion: Fusion, outputs: tuple[Node, ...]) -> LaunchPlan:
    """The plan of a prepared graph, which is validated, and what fusion has made of that graph too.

    Raises WrongPlan.
    """
    targets = validated_rewrite(outputs, fusion.drafts.targets, fusion.drafts.steps)
    return validated(plan, targets)


def plan_launches(
    outputs: tuple[Node, ...],
    target: Target,
    here: Fingerprint,
    store: Store | None,
    numerics: Numerics,
) -> Planned:
    """The schedule of a prepared graph with all that the store has decided; reads only.

    Raises WrongPlan for one that does not compute that graph.
    """
    fusion = Fusion.of(outputs, view_bytes=target.view_bytes)
    fusion = fusion.storing(stored_images(fusion, here, store))
    toggles = stored_toggles(fusion, here, store, target)
    cut = fusion.toggled(toggles)
    plan, variants = pick_variants(cut.schedule(), target, here, store, numerics)
    return Planned(validated_schedule(plan, cut, outputs), toggles, variants, fusion.images)


def planned_as(
    outputs: tuple[Node, ...],
    toggles: frozenset[int],
    variants: Mapping[str, str],
    images: Images,
    target: Target,
) -> LaunchPlan:
    """The plan of a prepared graph by decisions that are known, as ``plan_launches`` names them."""
    fusion = Fusion.of(outputs, images=images, view_bytes=target.view_bytes)
    cut = fusion.toggled(toggles)
    return validated_schedule(rewrite(cut.schedule(), variants), cut, outputs)


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
    """Key text of a stored decision about images: the launches of the rules' plan, its images
    channels-last.
    """
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
    """The form that the store has decided on for the images of a graph, as the rules cut it; else
    channels-last.
    """
    if store is None or not fusion.has_images:
        return LAST
    found = store.decision("images", images_key(fusion), here, SPACE_VERSION)
    return (Images.parse(found.choice) if found else None) or LAST


def expected_plan_s(plan: LaunchPlan, target: Target, numerics: Numerics) -> float:
    """Seconds that a model of the machine expects a plan to take, each kernel as its expected
    variant.
    """
    return sum(
        uses * expected_s(kernel, target, numerics) for kernel, uses in plan.kernels().values()
    )


@memoized(_MOST_KNOWN)
def expected_s(kernel: Kernel, target: Target, numerics: Numerics) -> float:
    """Seconds that a model of the machine expects a kernel to take as its expected variant.

    Each launch costs what the target's rates say; each kernel takes the longer of its arithmetic
    and its bytes. Work that is done again counts again. Known kernels are remembered: plans of one
    model have most of theirs in common.
    """
    total = 0.0
    for part in expected_parts(kernel, target, numerics):
        dear = target.rates.expensive_flops * _expensive_ops(part)
        flops_s = part.flops / kernel_flops_per_s(part, target) + dear / target.flops_per_s()
        bytes_s = part.unique_bytes / target.bytes_per_s(part.unique_bytes)
        total += target.rates.launch_s + max(flops_s, bytes_s)
    return total


def stored_s(edge: Edge, target: Target) -> float:
    """Seconds that writing and reading what an edge stores takes at the least; 0 where it stores
    nothing.
    """
    return 2 * edge.stored_bytes / target.rates.cache_bytes_per_s


def expected_parts(kernel: Kernel, target: Target, numerics: Numerics) -> tuple[Kernel, ...]:
    """Kernels that a kernel launches as its expected variant."""
    return parts_of(kernel, expected(kernel, target, numerics))


def _expensive_ops(k: Kernel) -> int:
    """Expensive operations of one run, those on values of a row once a row."""
    shared = frozenset(a.name for a in k.axes)
    total = 0
    for s in k.stages:
        extents = {a.name: a.extent for a in (*k.axes, *s.axes)}
        known: dict[int, frozenset[str]] = {}
        for x in _inside_out(s.expr):
            known[id(x)] = axes = _axes_of(x, known, shared)
            if isinstance(x, Apply) and x.op in EXPENSIVE:
                total += prod(extents[n] for n in axes)
    return total


def _inside_out(x: Expr) -> list[Expr]:
    """The parts of an expression, arguments first, shared ones once."""
    found: dict[int, Expr] = {}
    stack = [(x, False)]
    while stack:
        node, done = stack.pop()
        if done:
            found.setdefault(id(node), node)
        elif id(node) not in found:
            stack.append((node, True))
            stack.extend((a, False) for a in _args(node))
    return list(found.values())


def _args(x: Expr) -> tuple[Expr, ...]:
    return x.args if isinstance(x, Apply) else (x.x,) if isinstance(x, Cast) else ()


def _axes_of(
    x: Expr, known: Mapping[int, frozenset[str]], shared: frozenset[str]
) -> frozenset[str]:
    """The axes that a part depends on; a reduction's value on all shared ones."""
    if isinstance(x, Load):
        return frozenset(n for i in x.index for n in i.names()) | frozenset(x.valid.names())
    if isinstance(x, Value):
        return shared.union(*(i.names() for i in x.index))
    if isinstance(x, IndexValue):
        return frozenset(x.index.names())
    if isinstance(x, Inside):
        return frozenset(x.valid.names())
    return frozenset().union(*(known[id(a)] for a in _args(x)))
