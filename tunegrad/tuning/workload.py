"""A model as work for the tuner: its distinct kernels, each with its number of uses.

model   -->   graph   -->   prepared   -->   schedule   -->   kernels by key
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tunegrad import devices
from tunegrad.config import ModelDtype, ModelSpec, Numerics
from tunegrad.db import Store
from tunegrad.frontend import Model, model_of_spec
from tunegrad.ir.dtypes import labelled
from tunegrad.ir.fusion import Fusion, Images, LaunchPlan
from tunegrad.ir.graph import Node
from tunegrad.ir.kernel import Kernel, key_of
from tunegrad.ir.rewrites import bytes_refused, guarded
from tunegrad.ir.target import Target
from tunegrad.ir.validate import validated
from tunegrad.ir.variants import rewrite
from tunegrad.pipeline import validated_plan
from tunegrad.planning import prepared, stored_images, stored_toggles
from tunegrad.runtime import Argument
from tunegrad.trial import Fingerprint


@dataclass(frozen=True, slots=True)
class KernelUse:
    """A distinct kernel of a model. ``name`` is for people, and unique in the model.

    One whose schedule a fence has fixed is not searched.
    """

    kernel: Kernel
    key: str
    name: str
    uses: int


class HasKernels(Protocol):
    """A model, decided or not."""

    @property
    def kernels(self) -> tuple[KernelUse, ...]:
        """Its distinct kernels."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A model's kernels in the order of their first launch.

    ``graph`` are the nodes that it computes, ``fusion`` is that graph as the rules cut it, ``plan``
    the schedule that the kernels came from. ``full`` is the model as it was before it was narrowed;
    nothing where it was not. ``on_floats`` names the weights of dequantised products that are not
    of bytes, each with the rule that refuses it.
    """

    name: str
    graph: tuple[Node, ...]
    fusion: Fusion
    plan: LaunchPlan
    kernels: tuple[KernelUse, ...]
    inputs: tuple[Argument, ...] = ()
    full: tuple[Node, ...] = ()
    on_floats: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """Names the work, not the model: 32 hex digits of what is computed how often."""
        text = "\n".join(sorted(f"{k.key} {k.uses}" for k in self.kernels))
        return key_of(text)


def work_key(workloads: Sequence[Workload]) -> str:
    """Names the work of several models, in whatever order; of one model it is that model's key."""
    if len(workloads) == 1:
        return workloads[0].key
    return key_of("\n".join(sorted(w.key for w in workloads)))


def shared_kernels(workloads: Sequence[HasKernels]) -> tuple[KernelUse, ...]:
    """The distinct kernels of all models, in the order of first launch, with all uses."""
    if len(workloads) == 1:
        return workloads[0].kernels
    found: dict[str, KernelUse] = {}
    for use in (u for w in workloads for u in w.kernels):
        before = found.get(use.key)
        found[use.key] = use if before is None else replace(before, uses=before.uses + use.uses)
    return uses_of({key: (use.kernel, use.uses) for key, use in found.items()})


def workload_of_spec(
    spec: ModelSpec,
    seed: int = 0,
    numerics: Numerics = "contract",
    target: Target | None = None,
    dtype: ModelDtype = "f32",
) -> Workload:
    """The work of a resolved model; its weights are drawn from the seed.

    Modules are also looked for where one stands.

    Raises ModelError for a model that can not be built.
    """
    return workload_of(model_of_spec(spec), spec.name, seed, numerics, target, dtype)


def workload_of_function(
    function: Callable[..., Any],
    arrays: tuple[Any, ...],
    numerics: Numerics = "contract",
    target: Target | None = None,
    dtype: ModelDtype = "f32",
) -> Workload:
    """The work of a function of tensors, called with arrays like these."""
    name = getattr(function, "__name__", "function").strip("<>")
    model = Model.of_function(name, function, list(arrays))
    return workload_of(model, name, 0, numerics, target, dtype)


def workload_of(
    model: Model,
    name: str,
    seed: int,
    numerics: Numerics = "contract",
    target: Target | None = None,
    dtype: ModelDtype = "f32",
) -> Workload:
    """The work of a model on a target, this machine's CPU by default, stored in ``dtype``.

    Raises WeightsError for weights that do not fit it.
    """
    outputs, changed = model.traced(model.weights(None, seed))
    nodes, guards = guarded(tuple(t.node for t in outputs))  # as a loaded model computes them
    news = model.news(nodes[: len(nodes) - len(guards)], changed)
    target = target or devices.host_device().target
    graph = prepared(nodes, numerics, target, dtype, model=True)
    fusion = Fusion.of(
        graph, view_bytes=target.view_bytes, news=news, max_buffers=target.max_buffers
    )
    plan = validated_plan(fusion.as_run(), fusion, graph)
    bounds = {plan.buffers[at].name: bound for at, bound in plan.indexed().items()}
    return Workload(
        labelled(name, dtype),
        fusion.drafts.targets,
        fusion,
        plan,
        uses_of(plan.kernels()),
        tuple(Argument.of(i, bounds.get(i.name, 0)) for i in model.inputs),
        nodes if dtype != "f32" else (),
        tuple(bytes_refused(nodes, target, floats=numerics != "strict")),
    )


def not_a_number(workloads: Sequence[Workload]) -> list[str]:
    """Return a warning for each model with weights that are NaN, since its outputs prove little."""
    found = []
    for workload in workloads:
        constants = [b for b in workload.plan.buffers if b.data and b.data.array.dtype.kind == "f"]
        names = [b.name for b in constants if b.data and np.isnan(b.data.array).any()]
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            found.append(
                f"model {workload.name}: weights that are NaN in {', '.join(names[:3])}{more}: its "
                "outputs are NaN too, so comparing them shows no fault"
            )
    return found


def with_images(workload: Workload, images: Images) -> Workload:
    """The work as the rules cut the graph, its images in this form."""
    fusion = workload.fusion.storing(images)
    if fusion is workload.fusion:
        return workload
    return with_plan(replace(workload, fusion=fusion), fusion.as_run())


def with_toggles(workload: Workload, toggles: Set[int]) -> Workload:
    """The work with the graph cut otherwise at these nodes."""
    return with_plan(workload, workload.fusion.toggled(toggles).as_run())


def cut_as_stored(
    workload: Workload, here: Fingerprint, store: Store | None, target: Target
) -> Workload:
    """The work with its images as stored and its graph cut as loaded; variants come after."""
    workload = with_images(workload, stored_images(workload.fusion, here, store))
    toggles = stored_toggles(workload.fusion, here, store, target)
    return with_toggles(workload, toggles) if toggles else workload


def with_variants(workload: Workload, picks: Mapping[str, str]) -> Workload:
    """The work with its kernels as the variants that ``picks`` names by key."""
    return with_plan(workload, rewrite(workload.plan, picks))


def with_plan(workload: Workload, plan: LaunchPlan) -> Workload:
    """The work of another plan of the same graph, which is validated.

    Raises WrongPlan.
    """
    plan = validated(plan, workload.graph or None)
    return replace(workload, plan=plan, kernels=uses_of(plan.kernels()))


def only(workload: Workload, key: str) -> Workload:
    """The first launch of one kernel of the work; no graph says what it computes."""
    plan = workload.plan.alone(key)
    inputs, bounds = (plan.buffers[i] for i in plan.inputs), plan.indexed()
    arguments = tuple(Argument(b.name, b.shape, b.dtype, bounds.get(b.id, 0)) for b in inputs)
    return replace(with_plan(replace(workload, graph=()), plan), inputs=arguments)


def uses_of(found: Mapping[str, tuple[Kernel, int]]) -> tuple[KernelUse, ...]:
    """Kernels by key, with their numbers of uses, under names of their own."""
    repeated = Counter(kernel.name for kernel, _ in found.values())
    return tuple(
        KernelUse(k, key, _name(k, key, repeated), uses) for key, (k, uses) in found.items()
    )


def _name(kernel: Kernel, key: str, repeated: Mapping[str, int]) -> str:
    """The kernel's name, made unique where several have it."""
    return kernel.name if repeated[kernel.name] == 1 else f"{kernel.name} [{key[:6]}]"
