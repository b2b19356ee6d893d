"""Which variant each kernel of a model runs as, settled by measuring before its kernels are searched.

every part of every variant, default schedules   -->   verified and timed by the device, rows in the store
the fastest sum per kernel                       -->   the first picks
whole model, one pick changed, interleaved       -->   close calls are decided where caches are as they will be
the variant alone against the direct kernel      -->   a row and a promotion: ``variant(NAME)``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import monotonic

from tunegrad.config import Numerics
from tunegrad.db import IMPORTED, Hit, Store
from tunegrad.inference import LoadedModel
from tunegrad.ir.fusion import Buffer, Schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.layout import Layout
from tunegrad.ir.target import Target
from tunegrad.ir.variants import DIRECT, parts_of, rewrite, variants_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.runtime import Argument
from tunegrad.search import decide
from tunegrad.trial import Fingerprint
from tunegrad.variants import allowed, stored_variant, variant_text

from .contest import bound, interleaved
from .decisions import DecisionRows, evidence_of
from .workload import Workload

__all__ = ["settle_variants"]

_CLOSE = 1.2
"""Variants whose parts take at most this much longer than the best one's are tried in the whole model."""


def settle_variants(
    workload: Workload,
    target: Target,
    here: Fingerprint,
    store: Store,
    measure: Callable[[Sequence[Kernel]], dict[str, float]],
    session: str,
    numerics: Numerics = "contract",
    deadline_s: float = inf,
) -> dict[str, str]:
    """A variant by key for every kernel of the workload that has several.

    ``measure`` verifies and times default schedules and gives seconds by key, infinity where none ran. What the store
    has settled is left as it is.
    """
    names = {u.key: allowed(u.kernel, numerics) for u in workload.kernels}
    picks = _settled(workload, names, here, store)
    open_kernels = [u.kernel for u in workload.kernels if u.key not in picks and len(names[u.key]) > 1]
    if not open_kernels:
        return picks
    work = _Settling(workload, target, store, here, session)
    parts = {p.key: p for k in open_kernels for v in names[k.key] for p in parts_of(k, v)}
    seconds = measure(list(parts.values()))
    sums = {k.key: {v: sum(seconds[p.key] for p in parts_of(k, v)) for v in names[k.key]} for k in open_kernels}
    groups: dict[tuple[str, ...], list[str]] = {}
    for k in open_kernels:
        groups.setdefault(_work_of(k), []).append(k.key)
    totals = {g: {v: sum(sums[key][v] for key in keys) for v in sums[keys[0]]} for g, keys in groups.items()}
    for g, keys in groups.items():
        picks |= dict.fromkeys(keys, min(totals[g], key=lambda v, g=g: (totals[g][v], v != DIRECT)))  # type: ignore[misc]
    for g, keys in groups.items():
        if monotonic() < deadline_s:
            picks = work.close_calls(keys, totals[g], picks)
    for kernel in open_kernels:
        if picks[kernel.key] != DIRECT and not work.record(kernel, picks[kernel.key]):
            picks[kernel.key] = DIRECT
    return picks


def _settled(
    workload: Workload, allowed_here: Mapping[str, Sequence[str]], here: Fingerprint, store: Store
) -> dict[str, str]:
    picks = {}
    for use in workload.kernels:
        names = allowed_here[use.key]
        found = store.lookup(use.key, here, SPACE_VERSION) if len(names) > 1 else None
        if isinstance(found, Hit):
            name = stored_variant(found.trial.actions) or DIRECT
            evidence = [e for _, e in store.promotions(use.key, here)]
            # What an imported file claims was not measured here: it is a variant like any other.
            claimed = found.trial.origin.startswith(IMPORTED) if not evidence else all(e.imported for e in evidence)
            if not claimed and (name != DIRECT or evidence):
                picks[use.key] = name if name in names else DIRECT
    return picks


def _work_of(kernel: Kernel) -> tuple[str, ...]:
    """Kernels whose variants multiply the same shapes, and differ in their epilogues only, are settled together."""
    return tuple(p.key for v in variants_of(kernel) if v != DIRECT for p in parts_of(kernel, v) if p.reduces)


@dataclass(slots=True)
class _Settling:
    """The steps that need whole models. Mutable: it keeps the model of the picks so far."""

    workload: Workload
    target: Target
    store: Store
    here: Fingerprint
    session: str
    current: LoadedModel | None = None

    def close_calls(self, keys: Sequence[str], sums: Mapping[str, float], picks: dict[str, str]) -> dict[str, str]:
        """``picks`` with the close rivals of these kernels tried in the whole model."""
        mine = picks[keys[0]]
        for rival in [v for v in sums if v != mine and sums[v] < inf and sums[v] <= _CLOSE * sums[mine]]:
            if self.current is None:
                self.current = self._model(self.workload.plan, picks, self.workload.inputs)
            other_picks = {**picks, **dict.fromkeys(keys, rival)}
            other = self._model(self.workload.plan, other_picks, self.workload.inputs)
            if decide(*interleaved(self.current, other)).promoted:
                picks, self.current = other_picks, other
        return picks

    def record(self, kernel: Kernel, variant: str) -> bool:
        """Time the variant alone against the direct kernel: a row, and its promotion where a test says it is faster."""
        plan = _alone(self.workload.plan, kernel.key)
        inputs = [Argument(plan.buffers[i].name, plan.buffers[i].shape, plan.buffers[i].dtype) for i in plan.inputs]
        direct, other = self._model(plan, {}, inputs), self._model(plan, {kernel.key: variant}, inputs)
        samples = interleaved(direct, other)
        verdict = decide(*samples)
        rows = DecisionRows(self.store, self.here, self.session, "variant")
        evidence = evidence_of(verdict.p_value, samples)
        rows.challenged(kernel.text, variant_text(variant), evidence, verdict.promoted)
        return verdict.promoted

    def _model(self, plan: Schedule, picks: Mapping[str, str], inputs: Sequence[Argument]) -> LoadedModel:
        return bound(self.workload.name, rewrite(plan, picks), inputs, self.target, self.here, self.store)


def _alone(plan: Schedule, key: str) -> Schedule:
    """The first launch of a kernel as a schedule of its own; buffers that it reads are flat inputs."""
    launch = next(x for x in plan.launches if x.kernel.key == key)
    buffers: list[Buffer] = []
    for i, (p, old) in enumerate(zip(launch.kernel.params, launch.args, strict=True)):
        b = plan.buffers[old]
        flat = Layout.row_major((b.layout.size,))
        if p.role == "const":
            buffers.append(replace(b, id=i))
        else:
            role: str = "output" if p.role == "out" else "input"
            buffers.append(Buffer(i, b.dtype, flat.shape, flat, role, f"b{i}"))  # type: ignore[arg-type]
    inputs = tuple(b.id for b in buffers if b.role == "input")
    outputs = tuple(b.id for b in buffers if b.role == "output")
    return Schedule(tuple(buffers), (replace(launch, args=tuple(range(len(buffers)))),), inputs, outputs)
