"""Chooses products whose sum is worth splitting: where the device has more units than the product
has results to occupy them.

    direct       few blocks, each of all terms: some units have none
    split_k4     four times as many, of a quarter of the terms; and a kernel that adds the parts up

On a target with a matrix unit for the product, both are reckoned by the model of cycles that its
default schedule goes by. Elsewhere a kernel takes the longer of its arithmetic, by the units that
have enough results to occupy them, and of its bytes. Each kernel costs a launch.
"""

from __future__ import annotations

from tunegrad.ir.index import Index
from tunegrad.ir.kernel import Axis, Kernel, loads
from tunegrad.ir.target import Target
from tunegrad.ir.variants import DIRECT, parts_of, splits_k

__all__ = ["clearly_faster_split", "faster_splits"]

_CLEARLY = 1.25
"""Least speedup expected of a split where nothing was measured. NVIDIA's forecaster sees no gain in
what this model sees a fifth in (decision 0049).
"""

_VECTORS = 16
"""Vectors of results that occupy a core; on a device of warps, for each work-item of one."""

_SIDE = 8
"""Rows and columns that a product of matrices has at least. Work-items of a group share a sum where
there are fewer.
"""


def faster_splits(kernel: Kernel, names: tuple[str, ...], target: Target) -> tuple[str, ...]:
    """Of the splits of k among a kernel's variants, those that are expected to be faster than the
    kernel itself, the fastest first: what is worth measuring.
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
    one, other = (x.index for s, x in loads(kernel) if s is reduce)

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
