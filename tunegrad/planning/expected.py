"""Times that a model of the machine expects: of plans, of kernels as their expected variants, and
attention where its scores are more than the last cache holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from tunegrad.ir.fusion import EXPENSIVE, Edge, Fusion, LaunchPlan
from tunegrad.ir.graph import Node
from tunegrad.ir.index import Index
from tunegrad.ir.kernel import Axis, Kernel, Reduce, memoized, operations
from tunegrad.ir.target import Target
from tunegrad.ir.variants import (
    DIRECT,
    channels_last,
    exact,
    in_halves,
    least_work,
    match_conv3x3,
    on_floats,
    parts_of,
    reads_rows,
    rewrite,
    runs_on,
    splits_k,
    splits_of,
    variants_of,
)
from tunegrad.opts import SPACE_VERSION, kernel_flops_per_s

if TYPE_CHECKING:
    from tunegrad.config import Numerics
    from tunegrad.db import Store
    from tunegrad.trial import Fingerprint, Trial

# ---- variants
#
# Chooses the variant of a kernel that a model runs: the measured one, else the one that a model of
# the machine expects.
#
# A stored choice is a decision about the direct kernel: its samples are runs of all the variant's
# kernels. A kernel that was tuned and never raced against its variants runs as the one whose
# kernels took least alone, directly where none of them was measured. A strict setting of the
# numerics allows only the variants that add the same products: no Winograd.


NEAR = 1.6
"""Variants whose parts take at most this much longer than the best one's, by default schedules, are
searched: of two the one that was 1.25 times slower by default was 1.3 times faster when both were
searched (decision 0025).
"""

_FAR = NEAR * NEAR
"""Variants that are expected to take over so many times what the best one does are not measured:
of 69 in eleven stores none was within 1.14 of the best once searched (decision 0160).
"""

_CLEARLY = 1.25
"""Least speedup expected of a split where nothing was measured. NVIDIA's forecaster sees no gain in
what this model sees a fifth in (decision 0049).
"""

_VECTORS = 16
"""Vectors of results that occupy a core; on a device of warps, for each work-item of one."""

_SIDE = 8
"""Fewest rows and columns of a product of matrices; with fewer, items of a group share sums."""


def faster_splits(kernel: Kernel, names: tuple[str, ...], target: Target) -> tuple[str, ...]:
    """Of the splits of k among a kernel's variants, those that are expected to be faster than the
    kernel itself, the fastest first: what is worth measuring.

    direct       few blocks, each of all terms: some units have none
    split_k4     four times as many, of a quarter of the terms; and a kernel that adds the parts up

    On a target with a matrix unit for the product, both are reckoned by the model of cycles that
    its default schedule goes by. Elsewhere a kernel takes the longer of its arithmetic, by the
    units that have enough results to occupy them, and of its bytes. Each kernel costs a launch.
    """
    seconds = _seconds(kernel, names, target)
    found = [v for v in seconds if v != DIRECT and seconds[v] < seconds[DIRECT]]
    return tuple(sorted(found, key=seconds.__getitem__))


def clearly_faster_split(kernel: Kernel, names: tuple[str, ...], target: Target) -> str | None:
    """The fastest of them, where it is fast enough to be taken without measuring."""
    seconds = _seconds(kernel, names, target)
    best = min(seconds, key=seconds.__getitem__)
    return best if best != DIRECT and _CLEARLY * seconds[best] < seconds[DIRECT] else None


def _seconds(kernel: Kernel, names: tuple[str, ...], target: Target) -> dict[str, float]:
    """Of the kernel itself and of its splits of k; of it alone where none is worth it."""
    found = [v for v in names if splits_k(v)]
    if target.has_work_items and found and min(_sides(kernel)) < _SIDE:
        found = []
    return (
        {v: _parts_s(parts_of(kernel, v), target) for v in (DIRECT, *found)}
        if found
        else {DIRECT: 0.0}
    )


def _parts_s(parts: tuple[Kernel, ...], target: Target) -> float:
    return sum(target.rates.launch_s + _kernel_s(k, target) for k in parts)


def _kernel_s(kernel: Kernel, target: Target) -> float:
    from tunegrad.opts import kernel_flops_per_s, product_cycles

    bytes_s = kernel.unique_bytes / target.bytes_per_s(kernel.unique_bytes)
    cycles = product_cycles(kernel, target) if target.cycles_per_s else None
    if cycles is not None:
        return max(cycles / target.cycles_per_s, bytes_s)
    enough = _VECTORS * target.lanes(4) * target.warp
    cores = min(target.threads, max(1, kernel.points // enough))
    return max(kernel.flops / kernel_flops_per_s(kernel, target, cores), bytes_s)


def _sides(kernel: Kernel) -> tuple[int, int]:
    """Results along what the first factor follows alone, and along what the second does."""
    (reduce,) = kernel.reduces
    one, other = (x.index for s, x in kernel.loads if s is reduce)

    def follows(index: tuple[Index, ...], axis: Axis) -> bool:
        return any(axis.name in i.names() for i in index)

    sides = [1, 1]
    for a in kernel.axes:
        mine = follows(one, a), follows(other, a)
        if mine == (True, False):
            sides[0] *= a.extent
        elif mine == (False, True):
            sides[1] *= a.extent
    return sides[0], sides[1]


def stored_variant(
    kernel: Kernel, names: Sequence[str], here: Fingerprint, store: Store | None
) -> str | None:
    """The variant of a kernel that the store has decided on; else, where it has a winner for the
    direct one, the one of these whose kernels were measured to take least, each alone.

    Imported rows do not count where a schedule of the direct kernel was promoted here.
    """
    if store is None:
        return None
    key = kernel.key
    found = store.decision("variant", key, here, SPACE_VERSION)
    if found is not None and not (
        found.imported and any(not e.imported for _, e in store.promotions(key, here))
    ):
        return found.choice
    from tunegrad.db import Hit

    hit = store.lookup(key, here, SPACE_VERSION)
    return measured_variant(kernel, names, hit.trial, store) if isinstance(hit, Hit) else None


def measured_variant(kernel: Kernel, names: Sequence[str], direct: Trial, store: Store) -> str:
    """The variant of these whose kernels take least by the store, each alone; ``direct`` is the
    winner of the direct one, which stands where others were not measured as it was.
    """
    from tunegrad.db import imported

    if imported(direct):
        return DIRECT
    least_s, least = direct.measurement.seconds, DIRECT
    for name in (v for v in names if v != DIRECT):
        taken_s = 0.0
        for part in parts_of(kernel, name):
            found = store.winner(part.key, direct.fingerprint, SPACE_VERSION)
            if found is None or found.policy != direct.policy or imported(found):
                break
            taken_s += found.measurement.seconds
            if taken_s >= least_s:
                break  # whatever the others take: no more rows are read
        else:
            least_s, least = taken_s, name
    return least


def allowed(kernel: Kernel, numerics: Numerics, target: Target | None = None) -> tuple[str, ...]:
    """The variants of a kernel that a setting of the numerics allows; a fixed schedule is of the
    direct one.

    For a target, those whose sum of a product is split are left out unless a model expects them to
    be faster, numbers of 16 bits where it has no products of such, and floats for bytes where it
    expects them to take over ``NEAR`` times as long as integers: what is stored may be one of them,
    and what is measured need not.

    Winograd's large tiles are not for weights that vary: what they round in a training step takes
    another side of a relu, and moves losses by two per cent in three steps (NUMERICS.md).
    """
    if kernel.fixed:
        return (DIRECT,)
    found = tuple(v for v in variants_of(kernel) if numerics != "strict" or exact(v))
    if _weights_vary(kernel):
        found = tuple(v for v in found if exact(v) or v.endswith(_AS_EXACT))
    if target is None:
        return found
    faster = faster_splits(kernel, found, target)
    found = tuple(v for v in found if runs_on(v, target))
    wide = [v for v in found if on_floats(v)]
    others = (v for v in found if v == DIRECT or in_halves(v)) if wide else ()
    limit_s = NEAR * min((variant_s(kernel, v, target) for v in others), default=0.0)
    far = {v for v in wide if variant_s(kernel, v, target) > limit_s}
    return (*(v for v in found if not splits_k(v) and v not in far), *faster)


def worth_measuring(kernel: Kernel, names: tuple[str, ...], target: Target) -> tuple[str, ...]:
    """These variants of a kernel without those that a model of a CPU expects to be far behind."""
    if target.has_work_items or len(names) < 2:
        return names
    seconds = {v: variant_s(kernel, v, target) for v in names}
    limit_s = _FAR * min(seconds.values())
    return tuple(v for v in names if seconds[v] <= limit_s)


@memoized()
def expected(kernel: Kernel, target: Target, numerics: Numerics = "contract") -> str:
    """The variant that a model of the machine expects to be fastest.

    Each kernel of a variant takes the longer of its arithmetic and its bytes, at the target's
    rates. For long reductions with few results it counts the cores and the lanes that each kernel
    keeps busy. A product that is expected to run directly has its sum split where that is clearly
    faster. Known ones are remembered: every plan of a model asks for all of its kernels.
    """
    model = _streamed_s if splits_of(kernel) else variant_s
    names = allowed(kernel, numerics)
    names = tuple(v for v in names if runs_on(v, target))
    whole = [v for v in names if not splits_k(v) and (exact(v) or _known_to_pay(kernel, target))]
    best, best_s = DIRECT, model(kernel, DIRECT, target) if whole != [DIRECT] else 0.0
    for v in whole:
        if v == DIRECT or (model is variant_s and least_s(kernel, v, target) >= best_s):
            continue
        seconds = model(kernel, v, target)
        if seconds < best_s:
            best, best_s = v, seconds
    return (clearly_faster_split(kernel, names, target) or best) if best == DIRECT else best


def least_s(kernel: Kernel, variant: str, target: Target) -> float:
    """Seconds, no more than ``variant_s`` says, without the kernels of a variant: 0 but for
    Winograd's of weights that vary, whose launches and tiles in memory a small image never pays.
    """
    if not (variant.startswith("winograd") and _weights_vary(kernel)):
        return 0.0
    flops, nbytes = least_work(kernel, variant)
    rate = max(target.flops_per_s(), kernel_flops_per_s(kernel, target))
    moved_s = nbytes / target.rates.cache_bytes_per_s
    return _WINOGRAD_LAUNCHES * target.rates.launch_s + flops / rate + moved_s


_WINOGRAD_LAUNCHES = 4
"""Weights, tiles of the image, products, tiles of the result."""


def _known_to_pay(kernel: Kernel, target: Target) -> bool:
    """True if Winograd's tiles are taken unmeasured: with work-items, of constant weights."""
    return not target.has_work_items or not _weights_vary(kernel)


@memoized()
def _weights_vary(kernel: Kernel) -> bool:
    """True if the kernel is a convolution whose weights Winograd has to transform at every run."""
    conv = match_conv3x3(kernel)
    return conv is not None and not conv.constant


_AS_EXACT = "winograd2"
"""The end of the names of tiles that round as little as a direct convolution."""


def _streamed_s(kernel: Kernel, variant: str, target: Target) -> float:
    parts = parts_of(kernel, variant)
    return sum(target.rates.launch_s + _one_pass_s(part, target) for part in parts)


def _one_pass_s(kernel: Kernel, target: Target) -> float:
    """The longest of arithmetic, folding and reading, by as many cores as have results of their own
    to make.

    A core makes neighbouring results in runs.
    """
    run = target.rates.fold_run
    reduce = next((s for s in kernel.stages if isinstance(s, Reduce)), None)
    width = run if reduce is None or reads_rows(kernel) else _neighbours(kernel)
    pieces = max((a.extent for a in kernel.axes), default=1)
    if reduce is not None and not reads_rows(kernel):
        others = [a.extent for a in kernel.axes[:-1]]
        pieces = max(-(-width // run), *others, 1)
    cores = min(target.threads, pieces)
    nbytes = _bytes(kernel)
    bytes_s = nbytes / target.bytes_per_s(nbytes)
    steps = kernel.points * sum(prod(a.extent for a in s.axes) for s in kernel.reduces)
    folds_s = steps / (target.rates.folds_per_s * min(width, run))
    return max(bytes_s, folds_s, kernel.flops / kernel_flops_per_s(kernel, target, 1)) / cores


def _bytes(kernel: Kernel) -> int:
    """Bytes of what each parameter's loads reach: the last rows of a long one are few."""
    most = {p.name: p.nbytes if p.role == "out" else 0 for p in kernel.params}
    for stage, x in kernel.loads:
        extents = {a.name: a.extent for a in (*kernel.axes, *stage.axes)}
        names = set().union(*(i.names() for i in x.index))
        most[x.param] += prod(extents[n] for n in names) * x.dtype.itemsize
    return sum(min(n, kernel.param(name).nbytes) for name, n in most.items())


def _neighbours(kernel: Kernel) -> int:
    """Results that stand side by side."""
    return kernel.axes[-1].extent if kernel.axes else 1


def variant_s(kernel: Kernel, variant: str, target: Target) -> float:
    """Seconds that a model of the machine expects a product to take as a variant."""
    parts = parts_of(kernel, variant)
    # those of constants are long beside their launches
    total = len(parts) * target.rates.launch_s if _weights_vary(kernel) else 0.0
    for part in parts:
        # copies that change the layout run at the memory's rate, which was half of the cache's
        moved = target.rates.memory_bytes_per_s
        rate = target.bytes_per_s(part.unique_bytes) if part.flops else moved
        flops_s = part.flops / kernel_flops_per_s(part, target) * _crossing(part, target)
        total += max(flops_s, part.unique_bytes / rate)
    return total


def _crossing(kernel: Kernel, target: Target) -> float:
    """Factor by which a sum of products runs slower whose output is not channels-last.

    Lanes along a row of the image are partly empty, and a stride between the pixels that they read
    makes every load a gather. A weight of 16 bits is widened and spread for every vector of such
    lanes, one of 32 bits is spread by the multiplication that reads it.
    """
    if channels_last(kernel) is None:
        return 1.0
    store = kernel.stores[0]
    row = next((a for a in kernel.axes if store.index and a.name == store.index[-1].key), None)
    if row is None:
        return 1.0
    lanes = target.lanes(4)
    empty = -(-row.extent // lanes) * lanes / row.extent
    steps = [
        i.coefficient(row.name) for _, x in kernel.loads for i in x.index if row.name in i.names()
    ]
    terms = (x for stage, x in kernel.loads if isinstance(stage, Reduce) and x.dtype.is_half)
    halves = any(all(row.name not in i.names() for i in x.index) for x in terms)
    return empty * (1.1 if all(s == 1 for s in steps) and not halves else 2.0)


def picked(
    plan: LaunchPlan,
    target: Target,
    here: Fingerprint,
    store: Store | None,
    numerics: Numerics,
    direct: bool = True,
) -> dict[str, str]:
    """A variant for every kernel of ``plan`` that has several, by key: the stored choice, else the
    expected one.

    ``direct=False`` leaves out kernels that run directly: listing their alternatives takes time.
    """
    picks: dict[str, str] = {}
    for key, (kernel, _) in plan.kernels().items():
        names = allowed(kernel, numerics)
        if len(names) == 1:
            continue
        stored = stored_variant(kernel, names, here, store)
        choice = stored if stored in names else expected(kernel, target, numerics)
        if choice != DIRECT or (direct and len(allowed(kernel, numerics, target)) > 1):
            picks[key] = choice
    return picks


def pick_variants(
    plan: LaunchPlan, target: Target, here: Fingerprint, store: Store | None, numerics: Numerics
) -> tuple[LaunchPlan, Mapping[str, str]]:
    """``plan`` with its kernels as the variants that are picked, and those picks."""
    picks = picked(plan, target, here, store, numerics, direct=False)
    return rewrite(plan, picks), picks


# ---- expected


def expected_plan_s(plan: LaunchPlan, target: Target, numerics: Numerics) -> float:
    """Seconds that a model of the machine expects of a plan, each kernel as its best variant."""
    return sum(
        uses * expected_s(kernel, target, numerics) for kernel, uses in plan.kernels().values()
    )


@memoized()
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
    """Seconds that writing and reading what an edge stores takes at least; 0 without a store."""
    return 2 * edge.stored_bytes / target.rates.cache_bytes_per_s


def expected_parts(kernel: Kernel, target: Target, numerics: Numerics) -> tuple[Kernel, ...]:
    """Kernels that a kernel launches as its expected variant."""
    return parts_of(kernel, expected(kernel, target, numerics))


def _expensive_ops(k: Kernel) -> int:
    """Expensive operations of one run, those on values of a row once a row."""
    return sum(operations(k, s, lambda x: x.op in EXPENSIVE) for s in k.stages)


_RESULTS = 2
"""Rows of each query: scores and their exponentials."""


def expected_attentions(fusion: Fusion, target: Target) -> frozenset[int]:
    """The toggles that make attention of products whose scores the last cache does not hold; none
    for a device of work-items, whose matrix units multiply faster than their rows are folded.

        scores, softmax, product   -->   write S, read S, write P, read P: through memory
        attention                  -->   rows of a block of queries, in a core's own cache

    The arithmetic is the same, and both forms do it at about the same rate, so shorter ones are
    for a race of whole models to decide.
    """
    if target.has_work_items:
        return frozenset()
    found = fusion.drafts.attentions()
    return frozenset(i for i, (s, _) in found.items() if _too_many(s, target) and _fits(s, target))


def _too_many(scores: Node, target: Target) -> bool:
    """True if the last cache does not hold the scores. Scores in 16 bits are left alone: three
    kernels may multiply those in pairs or tiles.
    """
    nbytes = scores.size * scores.dtype.itemsize
    return not scores.dtype.is_half and nbytes > target.cached_bytes


def _fits(scores: Node, target: Target) -> bool:
    """True if the rows of a vector of queries fit half of a core's own cache."""
    keys = scores.shape[-1]
    return _RESULTS * keys * target.vector_bytes <= target.l2_bytes // 2
