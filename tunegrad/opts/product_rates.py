"""At which of its target's rates a kernel computes: what bounds it, and what plans reckon with.

    a product that a matrix unit takes     the unit's      m16n8k16_f16_f32, m16n16k16_bf16x2_f32
    sums of products of bf16 pairs         bf16x2
    sums of products of bytes in fours     dot4, of which each counts one operation
    of numbers of 16 bits in pairs         dot2i, in the same way
    all else                               f32

A unit takes a product where the space has a schedule for that, as by default.
"""

from __future__ import annotations

from tunegrad.ir.expr import Apply, Op
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target

_RATES = {Op.DOT2: "bf16x2", Op.DOT4: "dot4", Op.DOT2I: "dot2i"}


def product_rate(kernel: Kernel, target: Target) -> str:
    """The name under which ``Rates.flops`` of a target may have a kernel's rate."""
    from .sketches.contraction import tile_contraction, warp_contraction

    if target.units:
        found = warp_contraction(kernel, target) or tile_contraction(kernel, target)
        if found is not None:
            return found.unit.name
    summed = {r.expr.op for r in kernel.reduces if isinstance(r.expr, Apply)}
    return next((name for op, name in _RATES.items() if op in summed), "f32")


def kernel_flops_per_s(kernel: Kernel, target: Target, cores: int | None = None) -> float:
    """Operations of a kernel that so many cores (default: all) do in a second, by the target."""
    return target.flops_per_s(cores) * target.rates.speedup(product_rate(kernel, target))
