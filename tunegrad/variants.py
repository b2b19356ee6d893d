"""Which variant of a kernel a model runs: what was measured, else what a model of the machine expects.

A stored choice is a decision about the direct kernel: its samples are runs of all the variant's
kernels. A kernel that was tuned and never compared with its variants runs directly. A strict setting
of the numerics allows only the variants that add the same products: no Winograd.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tunegrad.config import Numerics
from tunegrad.db import Hit, Store
from tunegrad.ir.fusion import Schedule
from tunegrad.ir.kernel import Kernel, Reduce, loads
from tunegrad.ir.rates import MEMORY_BYTES_PER_S, bytes_per_s, peak_flops
from tunegrad.ir.remembered import remembered
from tunegrad.ir.target import Target
from tunegrad.ir.variants import DIRECT, channels_last, exact, parts_of, reads_rows, rewrite, splits_of, variants_of
from tunegrad.opts import SPACE_VERSION
from tunegrad.trial import Fingerprint

__all__ = ["allowed", "expected", "pick_variants", "picked", "stored_variant"]

_STEPS_PER_S = 1.1e9
"""Folds into one accumulator, by one core: what (2^24, 4) over its rows took on the reference machine."""

_RUN = 64
"""Numbers that a core reads in one step: several vectors, whose folds overlap."""

_LAUNCH_S = 3e-7
"""Of one kernel more; assumed. It only decides ties: splits of 2^15 terms were measured faster on two cores."""

_MOST_KNOWN = 4096


def stored_variant(key: str, here: Fingerprint, store: Store | None) -> str | None:
    """The variant of a kernel that the store has decided on; else the direct one, where it has a winner for that.

    What a file claims does not count where a schedule of the direct kernel was promoted here.
    """
    if store is None:
        return None
    found = store.decision("variant", key, here, SPACE_VERSION)
    if found is not None and not (found.imported and any(not e.imported for _, e in store.promotions(key, here))):
        return found.choice
    return DIRECT if isinstance(store.lookup(key, here, SPACE_VERSION), Hit) else None


def allowed(kernel: Kernel, numerics: Numerics) -> tuple[str, ...]:
    """The variants of a kernel that a setting of the numerics allows; a fixed schedule is of the direct one."""
    if kernel.fixed:
        return (DIRECT,)
    return tuple(v for v in variants_of(kernel) if numerics != "strict" or exact(v))


@remembered(_MOST_KNOWN)
def expected(kernel: Kernel, target: Target, numerics: Numerics = "contract") -> str:
    """The variant that a model of the machine expects to be fastest.

    Each kernel of a variant takes the longer of its arithmetic at peak and its bytes: what fits the last-level cache at
    that cache's rate, the rest at memory's. For long reductions with few results it counts the cores and the lanes that
    each kernel keeps busy. Known ones are remembered: every plan of a model asks for all of its kernels.
    """
    model = _streamed_s if splits_of(kernel) else _expected_s
    return min(allowed(kernel, numerics), key=lambda v: (model(kernel, v, target), v != DIRECT))


def _streamed_s(kernel: Kernel, variant: str, target: Target) -> float:
    return sum(_LAUNCH_S + _one_pass_s(part, target) for part in parts_of(kernel, variant))


def _one_pass_s(kernel: Kernel, target: Target) -> float:
    """The longest of arithmetic, folding and reading, by as many cores as have results of their own to make.

    A core makes neighbouring results in runs.
    """
    reduce = next((s for s in kernel.stages if isinstance(s, Reduce)), None)
    width = _RUN if reduce is None or reads_rows(kernel) else _neighbours(kernel)
    pieces = max((a.extent for a in kernel.axes), default=1)
    if reduce is not None and not reads_rows(kernel):
        others = [a.extent for a in kernel.axes[:-1]]
        pieces = max(-(-width // _RUN), *others, 1)
    cores = min(target.threads, pieces)
    nbytes = _bytes(kernel)
    bytes_s = nbytes / bytes_per_s(nbytes, target)
    steps = kernel.points * sum(prod(a.extent for a in s.axes) for s in kernel.reduces)
    flops_s = kernel.flops / peak_flops(target)
    return max(bytes_s, steps / (_STEPS_PER_S * min(width, _RUN)), flops_s) / cores


def _bytes(kernel: Kernel) -> int:
    """Bytes of what each parameter's loads reach: the last rows of a long one are few."""
    most = {p.name: p.nbytes if p.role == "out" else 0 for p in kernel.params}
    for stage, x in loads(kernel):
        extents = {a.name: a.extent for a in (*kernel.axes, *stage.axes)}
        names = set().union(*(i.names() for i in x.index))
        most[x.param] += prod(extents[n] for n in names) * x.dtype.itemsize
    return sum(min(n, kernel.param(name).nbytes) for name, n in most.items())


def _neighbours(kernel: Kernel) -> int:
    """Results that stand side by side."""
    return kernel.axes[-1].extent if kernel.axes else 1


def _expected_s(kernel: Kernel, variant: str, target: Target) -> float:
    total = 0.0
    for part in parts_of(kernel, variant):
        # copies that change the layout run at half of the cache's rate, which is the memory's
        rate = bytes_per_s(part.unique_bytes, target) if part.flops else MEMORY_BYTES_PER_S
        flops_s = part.flops / peak_flops(target, target.threads) * _crossing(part, target)
        total += max(flops_s, part.unique_bytes / rate)
    return total


def _crossing(kernel: Kernel, target: Target) -> float:
    """How much slower a sum of products runs whose output is not channels-last.

    Lanes along a row of the image are partly empty, and a stride between the pixels that they read makes every load a
    gather.
    """
    if channels_last(kernel) is None:
        return 1.0
    store = kernel.stores[0]
    row = next((a for a in kernel.axes if store.index and a.name == store.index[-1].key), None)
    if row is None:
        return 1.0
    lanes = target.lanes(4)
    empty = -(-row.extent // lanes) * lanes / row.extent
    steps = [i.coefficient(row.name) for _, x in loads(kernel) for i in x.index if row.name in i.names()]
    return empty * (1.1 if all(s == 1 for s in steps) else 2.0)


def picked(
    plan: Schedule, target: Target, here: Fingerprint, store: Store | None, numerics: Numerics
) -> dict[str, str]:
    """A variant for every kernel of ``plan`` that has several, by key: the stored choice, else the expected one."""
    picks: dict[str, str] = {}
    for key, (kernel, _) in plan.kernels().items():
        names = allowed(kernel, numerics)
        if len(names) == 1:
            continue
        stored = stored_variant(key, here, store)
        picks[key] = stored if stored in names else expected(kernel, target, numerics)
    return picks


def pick_variants(
    plan: Schedule, target: Target, here: Fingerprint, store: Store | None, numerics: Numerics
) -> tuple[Schedule, Mapping[str, str]]:
    """``plan`` with its kernels as the variants that are picked, and those picks."""
    picks = picked(plan, target, here, store, numerics)
    return rewrite(plan, picks), picks
