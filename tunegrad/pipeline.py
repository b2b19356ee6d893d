"""The pipeline from a graph to text: three tuples of named passes, each a pure function of a value.

    outputs of a graph                                          GRAPH_PASSES, Rewritten
      --pack bytes, join scales-->                              products of bytes
      --widen-->                                                f16 results in f32
      --narrow, tf32, pack pairs, fold, known-->                the graph that is planned
      --validate-->                                             compared with the first one

    outputs of that graph                                       PLAN_PASSES, Plan
      --fuse-->        kernels and the edges between them, by rules
      --layout-->      the form of feature maps in memory       decided
      --cut-->         which edges are buffers                  decided
      --launches-->    kernels over buffers, in order
      --variant-->     equal kernels: Winograd, split sums ...  decided
      --validate-->    compared with the graph, in exact numbers

    a kernel of that plan                                       KERNEL_PASSES
      --loops, schedule-->  a loop tree in the order of a schedule
      --lower-->            a program for one target
      --races, limit-->     proved free of races, of a size that compiles
      --render-->           text in the device's language

``run_passes`` runs a tuple, and calls an observer with each pass's name, the value before it and
the value after. The same value comes back from a pass that has nothing to do. What is decided is
asked of ``Decisions``: ``tunegrad.planning`` answers from the store, else by what it expects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol

from tunegrad.errors import InternalError
from tunegrad.ir import rewrites
from tunegrad.ir.dtypes import DType, dtype_of
from tunegrad.ir.folding import fold_constants, known_outputs
from tunegrad.ir.fusion import Fusion, Images, LaunchPlan, New, in_place
from tunegrad.ir.graph import Node, Step
from tunegrad.ir.target import Target
from tunegrad.ir.validate import validated, validated_rewrite
from tunegrad.ir.variants import rewrite
from tunegrad.lazy import dataclass
from tunegrad.opts import LIMIT, LOOPS, LOWER, RACES, RENDER, SCHEDULE, Pass, run_passes

if TYPE_CHECKING:
    from tunegrad.config import ModelDtype, Numerics
    from tunegrad.opts import Observer


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Outputs of a graph that passes rewrote, and the steps of rewrites so far.

    ``since``: the outputs that the steps began with, where earlier steps are validated; else those
    that were given.
    """

    outputs: tuple[Node, ...]
    steps: tuple[Step, ...] = ()
    since: tuple[Node, ...] | None = None

    def by(self, rule: Callable[[tuple[Node, ...], list[Step]], tuple[Node, ...]]) -> Rewritten:
        """These outputs, rewritten once more; the same value where ``rule`` changes nothing."""
        steps: list[Step] = []
        outputs = rule(self.outputs, steps)
        if outputs == self.outputs and not steps:
            return self
        return replace(self, outputs=outputs, steps=(*self.steps, *steps))


@dataclass(frozen=True, slots=True)
class GraphContext:
    """Inputs of GRAPH_PASSES: the outputs as they were given, and how they may be computed.

    ``model``: these are all outputs of a model, so that those that no input reaches become
    constants, and no one else reads what is computed in f16 on the way.
    """

    given: tuple[Node, ...]
    target: Target
    numerics: Numerics = "contract"
    dtype: ModelDtype = "f32"
    model: bool = False

    @property
    def narrow(self) -> DType | None:
        """The 16-bit dtype of stored tensors; None for f32."""
        return None if self.dtype == "f32" else dtype_of(self.dtype)

    @property
    def in_pairs(self) -> bool:
        """True if bf16 products may round, and one instruction adds up two of them."""
        lenient = self.dtype == "bf16" and self.numerics != "strict"
        return (lenient or self.numerics in ("bf16-dot", "tf32")) and self.target.multiplies_pairs

    @property
    def in_tf32(self) -> bool:
        """True if factors may be rounded to tf32, and a matrix unit multiplies such."""
        return self.numerics == "tf32" and self.target.multiplies("tf32")


def _pack_bytes(graph: Rewritten, context: GraphContext) -> Rewritten:
    """Products of bytes in fours wherever the target multiplies them: they are exact."""
    if not context.target.multiplies_bytes:
        return graph
    floats = context.numerics != "strict"
    return graph.by(
        lambda outputs, steps: rewrites.quad_dots(outputs, context.target, steps, floats=floats)
    )


def _join_scales(graph: Rewritten, context: GraphContext) -> Rewritten:
    """Constant scales between bytes as one, biases of integers in sums of integers. Each step is
    compared before the next one computes what it makes: as products and quotients they are equal,
    as numbers they are rounded.
    """
    if context.numerics == "strict":
        return graph
    made = graph.by(rewrites.joined_scales)
    if made is graph:
        return graph
    validated_rewrite(context.given, made.outputs, made.steps)
    outputs = made.outputs
    for rule in (rewrites.single_scales, rewrites.whole_biases):
        after = Rewritten(outputs).by(rule)
        outputs = validated_rewrite(outputs, after.outputs, after.steps)
    return Rewritten(outputs, since=outputs)


def _widen(graph: Rewritten, context: GraphContext) -> Rewritten:
    """Results of a model's f16 products in f32, where the target multiplies f16 so: compared by
    itself, since they round otherwise on purpose.
    """
    strict = context.numerics == "strict" or not context.model
    if strict or context.target.multiplies("f16"):
        return graph
    most = context.target.cached_bytes
    after = Rewritten(graph.outputs).by(
        lambda outputs, steps: rewrites.widened(outputs, most, steps)
    )
    if not after.steps:
        return graph
    since = context.given if graph.since is None else graph.since
    validated_rewrite(since, graph.outputs, graph.steps)
    outputs = validated_rewrite(graph.outputs, after.outputs, after.steps, on_purpose=True)
    return Rewritten(outputs, since=outputs)


def _narrow(graph: Rewritten, context: GraphContext) -> Rewritten:
    """Constants and stored tensors in 16 bits. Constants are folded first, so that a product of
    them is rounded once. Factors are stored so where a matrix unit multiplies them, unless numerics
    are strict. Raises WeightsError for a constant that does not fit.
    """
    dtype = context.narrow
    if dtype is None:
        return graph
    factors = context.numerics != "strict" and context.target.multiplies(context.dtype)
    return graph.by(fold_constants).by(
        lambda outputs, steps: rewrites.narrowed(outputs, dtype, factors=factors, steps=steps)
    )


def _tf32(graph: Rewritten, context: GraphContext) -> Rewritten:
    """Factors of f32 products rounded to tf32, constants folded first."""
    return graph.by(fold_constants).by(rewrites.round_factors) if context.in_tf32 else graph


def _pack_pairs(graph: Rewritten, context: GraphContext) -> Rewritten:
    """Products of bf16 in pairs; f32 inputs of a model that is asked to be bf16 round, too."""
    if not context.in_pairs:
        return graph
    inputs = context.dtype == "bf16"
    return graph.by(lambda outputs, steps: rewrites.pair_dots(outputs, inputs=inputs, steps=steps))


def _fold(graph: Rewritten, _: GraphContext) -> Rewritten:
    """Compute once what depends on constants only."""
    return graph.by(fold_constants)


def _known(graph: Rewritten, context: GraphContext) -> Rewritten:
    """Outputs that no input reaches are constants, where that is asked for."""
    return graph.by(known_outputs) if context.model else graph


def _validate_graph(graph: Rewritten, context: GraphContext) -> Rewritten:
    """Compare with the graph that was given. Raises WrongPlan."""
    rounds = context.in_pairs or context.in_tf32
    given = context.given if graph.since is None else graph.since
    validated_rewrite(given, graph.outputs, graph.steps, context.narrow, on_purpose=rounds)
    return graph


GRAPH_PASSES = (
    Pass("pack bytes", _pack_bytes),
    Pass("join scales", _join_scales),
    Pass("widen", _widen),
    Pass("narrow", _narrow),
    Pass("tf32", _tf32),
    Pass("pack pairs", _pack_pairs),
    Pass("fold", _fold),
    Pass("known", _known),
    Pass("validate", _validate_graph),
)
"""From the outputs that were given to those that are planned."""


def prepared(
    outputs: tuple[Node, ...],
    numerics: Numerics,
    target: Target,
    dtype: ModelDtype = "f32",
    *,
    model: bool = False,
    observe: Observer | None = None,
) -> tuple[Node, ...]:
    """A graph as it is planned: constants folded, in ``dtype``, products of bytes in fours, of bf16
    in pairs, f32 ones of tf32 (GRAPH_PASSES).

    Pairs are made where the target multiplies them in one instruction, and the numerics allow them:
    what is asked to be bf16 is multiplied so unless they are strict, its inputs too. Of a ``model``
    outputs that no input reaches are constants, and results of f16 products have the digits of f32
    where the target multiplies f16 so, unless numerics are strict.

    Raises WeightsError for a constant that does not fit ``dtype``; WrongPlan where what was made is
    another graph.
    """
    context = GraphContext(outputs, target, numerics, dtype, model)
    made: Rewritten = run_passes(GRAPH_PASSES, Rewritten(outputs), context, observe)
    return made.outputs


class Decisions(Protocol):
    """Choices that rules do not make. Each is asked for once, when what it chooses of is made."""

    def images(self, fusion: Fusion) -> Images:
        """The form of feature maps in memory."""

    def toggles(self, fusion: Fusion) -> frozenset[int]:
        """Nodes at which the graph is cut otherwise than by the rules."""

    def variants(self, plan: LaunchPlan) -> Mapping[str, str]:
        """Variants by kernel key; a kernel that is left out runs directly."""


@dataclass(frozen=True, slots=True)
class PlanContext:
    """Inputs of PLAN_PASSES. ``news``: outputs that are new values of inputs."""

    target: Target
    decisions: Decisions
    news: tuple[New, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph on its way to launches: its cut, what was decided, the launches once made."""

    outputs: tuple[Node, ...]
    cut: Fusion
    toggles: frozenset[int] = frozenset()
    variants: Mapping[str, str] = field(default_factory=dict)
    made: LaunchPlan | None = None

    @property
    def launches(self) -> LaunchPlan:
        """Kernels over buffers. Raises InternalError before pass ``launches``."""
        if self.made is None:
            raise InternalError("plan: no launches before pass launches")
        return self.made


def _fuse(outputs: tuple[Node, ...], context: PlanContext) -> Plan:
    """Kernels by the rules."""
    target = context.target
    cut = Fusion.of(
        outputs, view_bytes=target.view_bytes, news=context.news, max_buffers=target.max_buffers
    )
    return Plan(outputs, cut)


def _layout(plan: Plan, context: PlanContext) -> Plan:
    """Feature maps in the form that is decided."""
    images = context.decisions.images(plan.cut)
    return plan if images == plan.cut.images else replace(plan, cut=plan.cut.storing(images))


def _cut(plan: Plan, context: PlanContext) -> Plan:
    """Edges that are decided otherwise than by the rules."""
    toggles = context.decisions.toggles(plan.cut)
    return replace(plan, cut=plan.cut.toggled(toggles), toggles=toggles) if toggles else plan


def _launches(plan: Plan, _: PlanContext) -> Plan:
    """Canonical kernels over buffers, in order."""
    return replace(plan, made=plan.cut.schedule())


def _variant(plan: Plan, context: PlanContext) -> Plan:
    """Kernels as the variants that are decided."""
    variants = context.decisions.variants(plan.launches)
    return replace(plan, variants=variants, made=rewrite(plan.launches, variants))


def _order(plan: Plan, _: PlanContext) -> Plan:
    """Launches in an order that needs few bytes at a time."""
    made = plan.cut.ordered(plan.launches)
    return plan if made is plan.launches else replace(plan, made=made)


def _overwrite(plan: Plan, context: PlanContext) -> Plan:
    """New values in the memory of their inputs."""
    if not context.news:
        return plan
    return replace(plan, made=in_place(plan.launches, context.news, plan.cut.view_bytes))


def _validate_plan(plan: Plan, _: PlanContext) -> Plan:
    """Compare the launches with the graph. Raises WrongPlan."""
    return replace(plan, made=validated_plan(plan.launches, plan.cut, plan.outputs))


def validated_plan(plan: LaunchPlan, fusion: Fusion, outputs: tuple[Node, ...]) -> LaunchPlan:
    """The plan of a rewritten graph, which is validated, and what fusion has made of that graph
    too.

    Raises WrongPlan.
    """
    targets = validated_rewrite(outputs, fusion.drafts.targets, fusion.drafts.steps)
    return validated(plan, targets)


PLAN_PASSES = (
    Pass("fuse", _fuse),
    Pass("layout", _layout),
    Pass("cut", _cut),
    Pass("launches", _launches),
    Pass("order", _order),
    Pass("overwrite", _overwrite),
    Pass("variant", _variant),
    Pass("validate", _validate_plan),
)
"""From the outputs that are planned to launches of kernels."""

KERNEL_PASSES = (LOOPS, SCHEDULE, LOWER, RACES, LIMIT, RENDER)
"""From a kernel to text, under one schedule (``tunegrad.opts.passes``)."""
