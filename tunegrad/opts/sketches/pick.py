"""Whole schedules from a few decisions; the defaults of all decisions are the heuristic schedule.

The kind of the kernel decides. For vectors of a CPU:

    tiles             one reduction or none, every store over the shared axes: GEMM, convolution,
                      pooling, copies. Lanes along a contiguous shared axis, a register tile, cache
                      blocks
    rows              several stages over a row: softmax, layer norm; ``sketch_dots``: lanes along
                      the reduction of matrix-vector products, row sums
    tile_products     a product of words in tile registers, where the target has some
    attention         rows of results inside a kernel

and for groups of work-items:

    items_gemm        sums of products that share operands: a block of the output a group, tiles in
                      shared memory, a register tile a work-item
    items_tensor      such sums, where the device has a matrix unit for them
    items             other reductions, several stages over a row, no reduction
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action
from ..decisions import Recorder
from .analysis import Access, accesses, can_be_packed, contiguous_axes, once, output_stride
from .contraction import tile_contraction, warp_contraction
from .items import sketch_flat, sketch_item_rows, sketch_reduce
from .items_gemm import sketch_gemm
from .items_tensor import sketch_tensor
from .rows import sketch_attention, sketch_dots, sketch_rows
from .tile_products import sketch_tile_product
from .tiles import sketch_tiles

_TILE = 4
"""Vectors of sums that hide the latency of a multiplication."""

_FEW = 4
"""Outputs for each step of the reduction, below which the reduction is shared over work-items."""

_WINDOW = 32
"""Terms of a reduction below which it is not worth sharing: the work-items of one warp."""


def sketch(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """The actions that a chooser's answers give."""
    if target.has_work_items:
        return _sketch_items(kernel, target, ask)
    if any(r.rows for r in kernel.reduces):
        return sketch_attention(kernel, target, ask)
    if len(kernel.reduces) > 1 or any(s.axes for s in kernel.stores):
        return sketch_rows(kernel, target, ask)
    forms = once(kernel, ("forms", target), lambda: _forms(kernel, target))
    form = ask.pick("form", forms, 0)
    product = tile_contraction(kernel, target) if form == "tile-product" else None
    if product is not None:
        return sketch_tile_product(kernel, target, product, ask)
    return sketch_dots(kernel, target, ask) if form == "dots" else sketch_tiles(kernel, target, ask)


def _forms(kernel: Kernel, target: Target) -> list[str]:
    """The sketches that apply, best guess first."""
    found = _of_vectors(kernel, target)
    return ["tile-product", *found] if tile_contraction(kernel, target) is not None else found


def _of_vectors(kernel: Kernel, target: Target) -> list[str]:
    """The sketches for vectors that apply, best guess first."""
    if not kernel.reduces:
        return ["tiles"]
    reduce = kernel.reduces[0]
    found = accesses(kernel, reduce)
    along = [
        a.name
        for a in reduce.axes
        if a.extent > 1 and all(x.stride(a.name) in (0, 1) for x in found)
    ]
    shared = [a.name for a in kernel.axes if a.extent > 1]
    if not along:
        return ["tiles"]
    lanes = contiguous_axes(kernel, shared)
    if not lanes:
        return ["dots", "tiles"]
    if max(a.extent for a in reduce.axes if a.name in along) < target.lanes(
        4
    ):  # the window of a pooling
        return ["tiles", "dots"]
    strided = [x for x in found if x.stride(lanes[0]) not in (0, 1)]
    reused = all(any(not x.depends(n) for n in shared) for x in found)
    constant = all(x.role == "const" for x in strided)
    packs = (constant or reused) if len(shared) > 1 else constant and _wide(kernel, target, strided)
    return ["tiles", "dots"] if not strided or packs else ["dots", "tiles"]


def _wide(kernel: Kernel, target: Target, strided: Sequence[Access]) -> bool:
    """True if a matrix that is packed, times a vector, is faster by lanes along its rows.

    They read memory in order, and leave vectors of sums to the epilogue: an exponential of one
    number takes as long as that of a vector. One thread makes a tile of four vectors, so there
    have to be as many for each. Of 16-bit matrices the dots are as fast.
    """
    (row,) = (a for a in kernel.axes if a.extent > 1)
    reduce = kernel.reduces[0]
    return row.extent >= _TILE * target.lanes(4) * target.threads and all(
        kernel.param(x.param).dtype.itemsize >= 4 and can_be_packed(kernel, reduce.axes, x)
        for x in strided
    )


def _sketch_items(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of the GPU sketches and returns their actions."""
    shared = [a for a in kernel.axes if a.extent > 1]
    if len(kernel.reduces) > 1 or any(s.axes for s in kernel.stores):
        return sketch_item_rows(kernel, target, ask)
    reduces = [a for s in kernel.reduces for a in s.axes if a.extent > 1]
    if not reduces:
        return sketch_flat(kernel, target, ask) if shared else ()
    if not shared:
        return sketch_reduce(kernel, target, reduces, ask)
    product = warp_contraction(kernel, target)
    if product is not None and ask.pick("unit", [True, False]):
        return sketch_tensor(kernel, target, product, ask)
    form = ask.pick("form", ["tile", "group"], int(_shares_reduction(kernel, shared, reduces)))
    return (sketch_gemm if form == "tile" else sketch_reduce)(kernel, target, reduces, ask)


def _shares_reduction(kernel: Kernel, shared: list[Axis], reduces: list[Axis]) -> bool:
    """True if work-items should share the reduction: few outputs, or long sums of own terms."""
    work = prod(a.extent for a in reduces)
    if kernel.points < _FEW * work:
        return True
    found = accesses(kernel, kernel.reduces[0])
    lane = min(shared, key=lambda a: output_stride(kernel, a.name) or 1 << 40)
    rest = [a for a in shared if a is not lane]
    reused = any(x.depends(lane.name) and not x.depends(a.name) for a in rest for x in found)
    return work >= _WINDOW and not reused
