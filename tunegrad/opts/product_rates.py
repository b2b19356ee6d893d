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
    return _product_rate(kernel, target)[0]


def _product_rate(kernel: Kernel, target: Target) -> tuple[str, float]:
    """That name, and the part of the unit that a product occupies."""
    from .sketches.contraction import tile_contraction, warp_contraction

    if target.units:
        if (warps := warp_contraction(kernel, target)) is not None:
            return warps.unit.name, 1.0
        if (tiles := tile_contraction(kernel, target)) is not None:
            return tiles.unit.name, tiles.filled
    summed = {r.expr.op for r in kernel.reduces if isinstance(r.expr, Apply)}
    return next((name for op, name in _RATES.items() if op in summed), "f32"), 1.0


def kernel_flops_per_s(kernel: Kernel, target: Target, cores: int | None = None) -> float:
    """Operations of a kernel that so many cores (default: all) do in a second, by the target."""
    name, filled = _product_rate(kernel, target)
    return target.flops_per_s(cores) * target.rates.speedup(name) * filled
