"""im2col: a convolution as a copy of every pixel's window, zero where it is padded, and a product
of matrices.

    Y[o, y, x] = epilogue(sum over c, r, s of X[c, 2*y+r-3, 2*x+s-3 if inside] * W[o, c, r, s])
        -->
    X'[c, r, s, y, x] = X[c, 2*y+r-3, 2*x+s-3 if inside]
    Y[o, yx]          = epilogue(sum over crs of X'[crs, yx] * W[o, crs])

The copy has the pixels innermost where the output has, else the window. It costs memory, the image
times the size of a window over its strides, so only convolutions of few channels have it: the first
one of a network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ..expr import Apply, Expr, Load, Op, leaves, rebuild
from ..fusion.axes import merge_axes
from ..kernel import Axis, Kernel, Param, Reduce, Store

__all__ = ["Im2col", "im2col"]

_FEW_CHANNELS = 8
_LEAST_OUTPUTS = 16
"""Products of each gathered number: with fewer, its copy is estimated to take half as long as
the product.
"""


@dataclass(frozen=True, slots=True)
class Im2col:
    """The kernels.

    The parameters of ``gather`` are (X', X); those of ``product`` the direct kernel's, with X' for
    X.

    ``x`` is the place of X among the parameters.
    """

    gather: Kernel
    product: Kernel
    x: int


def im2col(kernel: Kernel) -> Im2col | None:
    """The parts of a convolution of few channels with constant weights; None for any other
    kernel.
    """
    if len(kernel.reduces) != 1 or any(s.axes or not s.valid.always for s in kernel.stores):
        return None
    reduce = kernel.reduces[0]
    loads = _factors(kernel, reduce)
    if loads is None:
        return None
    x, w = loads
    reads = set().union(*(i.names() for i in x.index), x.valid.names())
    pixels = [a for a in kernel.axes if a.name in reads]
    weights = set().union(*(i.names() for i in w.index))
    outputs = [a for a in kernel.axes if a.name in weights]
    if reads & {a.name for a in outputs} or prod(a.extent for a in outputs) < _LEAST_OUTPUTS:
        return None
    if not _windowed(x, reduce, pixels):
        return None
    uses = [
        leaf
        for s in kernel.stages
        for leaf in leaves(s.expr)
        if isinstance(leaf, Load) and leaf.param == x.param
    ]
    if len(uses) > 1:
        return None
    return _parts(kernel, reduce, loads, pixels)


def _factors(kernel: Kernel, reduce: Reduce) -> tuple[Load, Load] | None:
    """The loads of a sum of products: of an input, and of constant weights."""
    x = reduce.expr
    if reduce.op is not Op.ADD or not isinstance(x, Apply) or x.op is not Op.MUL:
        return None
    roles = {
        kernel.param(a.param).role: a
        for a in x.args
        if isinstance(a, Load) and a.dtype == reduce.dtype
    }
    return (roles["in"], roles["const"]) if {"in", "const"} == set(roles) else None


def _windowed(x: Load, reduce: Reduce, pixels: list[Axis]) -> bool:
    """True if pixels and window walk a dimension together, and the window walks few channels
    alone.
    """
    window = {a.name for a in reduce.axes}
    shared = any(a.name in i.names() and window & i.names() for i in x.index for a in pixels)
    alone = {i.key: a.extent for a in reduce.axes for i in x.index if i.key == a.name}
    return shared and len(alone) < len(window) and all(n < _FEW_CHANNELS for n in alone.values())


def _parts(
    kernel: Kernel, reduce: Reduce, factors: tuple[Load, Load], pixels: list[Axis]
) -> Im2col:
    x, w = factors
    ranked = sorted(
        reduce.axes,
        key=lambda a: next((d for d, i in enumerate(w.index) if a.name in i.names()), 0),
    )
    window = [a for a in ranked if a.extent > 1]
    last = kernel.stores[0].index[-1].names() <= {a.name for a in pixels}
    order = [*window, *pixels] if last else [*pixels, *window]
    index = tuple(a.index for a in order)
    shape = tuple(a.extent for a in order)
    gathered = Param.dense("gathered", x.dtype, shape, "out")
    gather = Kernel((gathered, kernel.param(x.param)), tuple(order), (Store("gathered", index, x),))

    def leaf(e: Expr) -> Expr:
        return Load("gathered", index, x.dtype) if isinstance(e, Load) and e.param == x.param else e

    stages = tuple(
        replace(s, expr=rebuild(s.expr, leaf), axes=tuple(ranked)) if isinstance(s, Reduce) else s
        for s in kernel.stages
    )
    params = tuple(replace(gathered, role="in") if p.name == x.param else p for p in kernel.params)
    product = merge_axes(replace(kernel, params=params, stages=stages))
    return Im2col(
        replace(merge_axes(gather).canonical(), name=f"{kernel.name} windows"),
        replace(product.canonical(), name=f"{kernel.name} of windows"),
        [p.name for p in kernel.params].index(x.param),
    )
