"""Items: schedules for a GPU, work-groups over blocks of the output and work-items inside them.

Which idea fits follows from the kernel:

    items_gemm.py    sums of products that share operands: a block of the output a group, tiles in
                     shared memory, a register tile a work-item
    items_tensor.py  such sums of 16 bits, where the device has a matrix unit for them
    items_reduce.py  other reductions: work-items share out the reduction, the output, or both
    items_rows.py    several stages over a row: softmax, layer norm
    items_flat.py    no reduction: elementwise, copies, transposes
"""

from __future__ import annotations

from math import prod

from tunegrad.ir.kernel import Axis, Kernel
from tunegrad.ir.target import Target

from ..actions import Action
from ..choosing import Recorder
from .analysis import accesses, output_stride
from .items_flat import sketch_flat
from .items_gemm import sketch_gemm
from .items_reduce import sketch_reduce
from .items_rows import sketch_item_rows
from .items_tensor import product_of, sketch_tensor

__all__ = ["sketch_items"]

_FEW = 4
"""Outputs for each step of the reduction, below which the reduction is shared over work-items."""

_WINDOW = 32
"""Terms of a reduction below which it is not worth sharing: the work-items of one warp."""


def sketch_items(kernel: Kernel, target: Target, ask: Recorder) -> tuple[Action, ...]:
    """Asks for the decisions of the GPU sketches and returns their actions."""
    shared = [a for a in kernel.axes if a.extent > 1]
    if len(kernel.reduces) > 1 or any(s.axes for s in kernel.stores):
        return sketch_item_rows(kernel, target, ask)
    reduces = [a for s in kernel.reduces for a in s.axes if a.extent > 1]
    if not reduces:
        return sketch_flat(kernel, target, ask) if shared else ()
    if not shared:
        return sketch_reduce(kernel, target, reduces, ask)
    product = product_of(kernel, target)
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
