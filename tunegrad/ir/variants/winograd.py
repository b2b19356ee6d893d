"""Winograd: a 3x3 convolution of stride 1 as three kernels with fewer multiplications, or four.

F(m x m, 3 x 3) makes m x m outputs of a tile from (m+2) x (m+2) products per channel where the
direct form needs 9 m x m.

    Y[y, x, o] = epilogue(sum over c, r, s of X[y+r, x+s, c] * W[o, c, r, s])
        -->
    V[p, ty, tx, c]      = (B^T d B)[p]
    M[p, t, o]           = sum over c of V[p, t, c] * U[p, c, o]
    Y[m*ty+i, m*tx+j, o] = epilogue((A^T M A)[i, j])

    d  the tile of X at (m*ty, m*tx)    p  a position in the tile    U = G W G^T

U is a constant where W is one. Else the fourth kernel computes it, as for a step of training, whose
data gradient is such a convolution too: of the weights with rows and columns mirrored.

Of bytes in fours V and U are integers of 16 bits, two channels a word, M is in i32 and wraps
around, and the result is exact: see ``_EXACT_BT``. Words of the first and third bytes come first.

    V[p, t, h*C + c]     = (B^T d B)[p] of bytes h and h + 2 of X[.., c]
    M[p, t, o]           = sum over c of dot2i(V[p, t, c], U[p, c, o])
    Y                    = epilogue(900 (A^T M A)[i, j] / 900)

Of floats the products are the same in exact arithmetic; in f32 the transforms lose some bits
(docs/NUMERICS.md), so a strict setting leaves convolutions alone. Matrices: Lavin and Gray, "Fast
Algorithms for Convolutional Neural Networks", 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.errors import InternalError
from tunegrad.lazy import dataclass

from ..dtypes import F32, I8, I8X4, I32, U8, DType
from ..expr import (
    Apply,
    Const,
    Expr,
    Inside,
    Load,
    Op,
    Value,
    loads_in,
    rebuilder,
    substituting,
)
from ..fusion.axes import params_of
from ..index import ALWAYS, Index, Range, Valid, as_index
from ..kernel import Axis, Kernel, Param, Reduce, Role, Store, products_summed
from ..layout import Layout, Part

TILES = (2, 4)
"""Output tile sizes m that there are matrices for."""

EXACT_TILE = 4
"""That of bytes."""

_LINE = 16
"""Numbers of a cache line."""

_SETS = 16
"""Positions a multiple of so many tiles apart would meet in a quarter of the sets or fewer."""

_CHANNELS = 16
"""Channels whose weights are transformed at a time."""

_BT = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
    ),
}  # fmt: skip
_G = {
    2: ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
    ),
}  # fmt: skip
_G_OVER = {2: 1, 4: 3}
"""A divisor of G's numbers that is taken off weights first: what is left is exact in f32, so that
validation knows its numbers.
"""
_AT = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}


# F(4 x 4, 3 x 3) of the points 0, 1, -1, 2, -1/2 and infinity, G and so U times 30 each way. No two
# of them are congruent modulo 2 more than in pairs, so that 2 divides 30 once, and
#
#     900 Y = A^T M A modulo 2^32     -->     4 Y = 225^-1 A^T M A modulo 2^32
#
# gives Y wherever it is below 2^29; with the points of f32, where 8 divides 24, below 2^25. Of
# bytes V is at most 98 * 255, as positive numbers of a row of B^T (x) B^T add up to 98 at most, and
# negative ones to -98, and U at most 15 * 15 * 128: both fit 16 bits, and two products 32.

_EXACT_BT = (
    (
        (0, 1, 0, -1, 0, 0), (0, 0, 1, 0, -1, 0), (1, 0, -1, 0, 0, 0),
        (0, 0, 0, -1, 0, 1), (0, 0, 1, 1, 0, 0), (0, 0, 1, -1, 0, 0),
    ),
    (
        (3, -2, 2, 0, 0, 0), (2, 2, 0, 0, 3, 0), (2, -2, 0, 0, 0, 3),
        (1, 2, 0, 0, 0, 0), (2, -1, 0, 0, 0, 0), (2, 3, 0, 2, 0, 0),
    ),
)  # fmt: skip
"""B^T in two steps, the first one first: sums that several rows have in common."""

_EXACT_G = (
    (15, 0, 0), (5, 5, 5), (5, -5, 5), (-1, -2, -4), (-4, 2, -1), (0, 0, 15),
)  # fmt: skip
_EXACT_AT = ((1, 1, 1, 1, 8, 0), (0, 1, -1, 2, -4, 0), (0, 1, 1, 4, 2, 0), (0, 1, -1, 8, -1, 1))
_EXACT_OVER = 900
_EXACT_MOST = 1 << 29
"""Results are below."""


@dataclass(frozen=True, slots=True)
class Image:
    """A load of an image in a window. ``dims`` are those of its rows, columns and channels."""

    load: Load
    dims: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Conv3x3:
    """The parts of a 3x3 convolution: its axes by role, and the dimension of the weights that each
    one indexes.

    ``x`` is what is multiplied by them: an image, or several joined along their channels.
    ``window`` are the axes of the window's rows and columns, as ``x`` follows them; ``w`` may be
    read from its last row or column on, where it is not ``constant``.
    """

    rows: str
    columns: str
    outputs: str
    channels: str
    window: tuple[str, str]
    x: Expr
    images: tuple[Image, ...]
    w: Load
    w_dims: tuple[int, int, int, int]
    constant: bool
    words: bool = False
    """True where both are words of four bytes."""

    @property
    def x_params(self) -> tuple[str, ...]:
        """Parameters that it reads images of, each once."""
        return tuple(dict.fromkeys(i.load.param for i in self.images))


@dataclass(frozen=True, slots=True)
class Winograd:
    """The kernels, and how to make the transformed weights.

    Parameters of ``weights`` are (U, the direct kernel's weights); it is None where those are a
    constant. Parameters of ``transform`` are (V, *conv.x_params), of ``product`` (M, V, U), of
    ``finish`` the direct kernel's with its first image replaced by M, the others and the weights
    gone.
    """

    tile: int
    weights: Kernel | None
    transform: Kernel
    product: Kernel
    finish: Kernel
    finish_args: tuple[str, ...]
    conv: Conv3x3

    @property
    def matrix(self) -> tuple[tuple[float, ...], ...]:
        """Matrix that a window of weights, row-major, is multiplied by."""
        g = _EXACT_G if self.conv.words else _G[self.tile]
        return tuple(tuple(row) for row in _both(g).tolist())


def _both(g: Sequence[Sequence[float]]) -> NDArray[Any]:
    return np.kron(np.asarray(g), np.asarray(g))


def exact_transformed(w: NDArray[Any], dims: Sequence[int]) -> NDArray[np.int32]:
    """U of shape (36, pairs of channels, outputs), of words of weights in i8."""
    o, c, r, s = dims
    words = np.ascontiguousarray(np.transpose(w, (c, r, s, o)))[..., None].view(np.int8)
    u = [_of_windows(_both(_EXACT_G), words[..., j]).astype(np.int32) for j in range(4)]
    return np.concatenate([u[j] & 0xFFFF | u[j + 2] << 16 for j in range(2)], axis=1)


def transformed(w: NDArray[Any], dims: Sequence[int], tile: int) -> NDArray[np.float32]:
    """U of shape ((m+2)^2, channels, outputs), of weights whose outputs, channels, rows and columns
    are ``dims``.

    Computed in f64, a few channels at a time: what is wide stays in a core's cache.
    """
    o, c, r, s = dims
    return _of_windows(_both(_G[tile]), np.transpose(w, (c, r, s, o)))


def _of_windows(both: NDArray[Any], rows: NDArray[Any]) -> NDArray[np.float32]:
    """``both`` times the window of each channel and output, of rows (c, r, s, o)."""
    rows = rows.astype(np.float32, copy=False)
    u = np.empty((len(both), rows.shape[0], rows.shape[3]), np.float32)
    for first in range(0, len(rows), _CHANNELS):
        part = slice(first, first + _CHANNELS)
        wide = rows[part].astype(np.float64, order="C").reshape(-1, 9, u.shape[2])
        u[:, part] = (both @ wide).transpose(1, 0, 2)
    return u


def match_conv3x3(kernel: Kernel) -> Conv3x3 | None:
    """Match ``kernel`` as a dense 3x3 f32 convolution of stride 1; None when it is not one."""
    found = products_summed(kernel)
    if found is None or len(kernel.stores) != 1 or not kernel.stores[0].valid.always:
        return None
    r, left, right = found
    if r.dtype != F32 or len(r.axes) != 3:
        return None
    for x, w in ((left, right), (right, left)):
        if isinstance(w, Load) and w.valid.always:
            constant = kernel.param(w.param).role == "const"
            if not constant:
                if kernel.param(w.param).dtype != F32:
                    continue
                x, w = _forward(r, x, w)
            conv = _joined(kernel, r, x, w)
            if conv is not None:
                return conv
    return None


def match_bytes3x3(kernel: Kernel) -> Conv3x3 | None:
    """Match ``kernel`` as a dense 3x3 convolution of stride 1 of bytes in fours, by constant
    weights with signs, whose results are small enough for ``_EXACT_BT``; None for others.
    """
    found = products_summed(kernel, Op.DOT4)
    if found is None or len(kernel.stores) != 1 or not kernel.stores[0].valid.always:
        return None
    r, left, right = found
    terms = Op.QUAD.arity * prod(a.extent for a in r.axes)
    if len(r.axes) != 3 or terms * U8.greatest * -I8.least >= _EXACT_MOST:
        return None
    for x, w in ((left, right), (right, left)):
        if not (isinstance(x, Load) and isinstance(w, Load)) or not w.valid.always:
            continue
        if kernel.param(w.param).role == "const" and w.dtype == I8X4 and x.dtype.is_quad:
            conv = _roles(kernel, r, x, w)
            return None if conv is None else replace(conv, words=True)
    return None


def _forward(r: Reduce, x: Expr, w: Load) -> tuple[Expr, Load]:
    """The factors with axes of the window in the order in which the image is read: one that it
    follows backwards, as a gradient does, is counted from its end.
    """
    followed = [i for image in loads_in(x) for i in image.index]
    back = {
        a.name: a.extent - 1 - a.index
        for a in r.axes
        if any(i.coefficient(a.name) == -1 for i in followed)
    }
    if not back:
        return x, w
    turned = rebuilder(substituting(back))
    return turned(x), replace(w, index=tuple(i.substitute(back) for i in w.index))


def _joined(kernel: Kernel, r: Reduce, x: Expr, w: Load) -> Conv3x3 | None:
    """Of images chosen among by their channel, each of them a convolution with these weights."""
    if isinstance(x, Load):
        return _roles(kernel, r, x, w) if kernel.param(x.param).dtype == F32 else None
    if not isinstance(x, Apply) or x.op is not Op.WHERE:
        return None
    chosen, *sides = x.args
    one, other = (_joined(kernel, r, side, w) for side in sides)
    if one is None or other is None or not isinstance(chosen, Inside):
        return None
    if not chosen.valid.names() <= {one.channels}:
        return None
    both = replace(one, x=x, images=one.images + other.images)
    return both if replace(other, x=x, images=both.images) == both else None


def _roles(kernel: Kernel, r: Reduce, x: Load, w: Load) -> Conv3x3 | None:
    shared = {a.name: a.extent for a in kernel.axes}
    reduce = {a.name: a.extent for a in r.axes}
    windows: list[tuple[int, str, str]] = []
    channel = [(d, c) for d, i in enumerate(x.index) if (c := (i - i.const).key) in reduce]
    for d, i in enumerate(x.index):
        names = sorted(i.names())
        if len(names) == 2 and len(i.terms) == 2 and all(c == 1 for _, c in i.terms):
            inside = [n for n in names if reduce.get(n) == 3]
            outside = [n for n in names if n in shared]
            if len(inside) == 1 and len(outside) == 1:
                windows.append((d, outside[0], inside[0]))
    if len(windows) != 2 or len(channel) != 1:
        return None
    (dy, rows, kr), (dx, columns, ks) = windows
    if rows == columns:
        return None
    ((dc, c),) = channel
    constant = kernel.param(w.param).role == "const"
    mirrored = {} if constant else {2 - Axis(n, 3).index: n for n in (kr, ks)}
    w_names = [mirrored.get(i, i.key) for i in w.index]
    outputs = [n for n in w_names if n in shared]
    if (
        len(outputs) != 1
        or sorted(w_names) != sorted([outputs[0], c, kr, ks])
        or len({c, kr, ks}) != 3
    ):
        return None
    others = [i for d, i in enumerate(x.index) if d not in (dy, dx, dc)]
    if any(i.key not in shared or i.key in (rows, columns, outputs[0]) for i in others):
        return None
    if not _only_bounds(kernel, x, (dy, dx), c) or outputs[0] in set().union(
        *(i.names() for i in x.index)
    ):
        return None
    w_dims = (w_names.index(outputs[0]), w_names.index(c), w_names.index(kr), w_names.index(ks))
    image = Image(x, (dy, dx, dc))
    return Conv3x3(rows, columns, outputs[0], c, (kr, ks), x, (image,), w, w_dims, constant)


def _only_bounds(kernel: Kernel, x: Load, dims: tuple[int, int], channels: str) -> bool:
    """True if the load's condition says no more than that its row and column are inside the tensor,
    and which channels it is read for.
    """
    shape = kernel.param(x.param).shape
    bounds = Valid(Range(x.index[d], 0, shape[d]) for d in dims)
    return all(r in bounds.ranges or r.index.names() == {channels} for r in x.valid.ranges)


def winograd(kernel: Kernel, conv: Conv3x3, m: int) -> Winograd:
    """The kernels of F(m x m, 3 x 3) for a kernel that ``match_conv3x3`` found."""
    extents = {a.name: a.extent for a in kernel.axes}
    height, width = extents[conv.rows], extents[conv.columns]
    ty, tx = Axis("ty", -(-height // m)), Axis("tx", -(-width // m))
    batch = [a for a in kernel.axes if a.name not in (conv.rows, conv.columns, conv.outputs)]
    channels = next(a.extent for a in kernel.reduces[0].axes if a.name == conv.channels)
    wide = 2 * channels if conv.words else channels
    positions = (m + 2) ** 2
    grid = [*batch, ty, tx]
    # its own name for the channels: "c" may be a batch axis
    transform = _transform(kernel, conv, m, batch, ty, tx, Axis(conv.channels, channels))
    tiles = Axis("t", prod(a.extent for a in grid))
    c, o = Axis("c", wide), Axis("o", extents[conv.outputs])
    product = _product(positions, tiles, c, o, grid[0].extent, conv)
    finish, args = _finish(kernel, conv, m, batch, ty, tx, positions)
    weights = None if conv.constant else _weights(kernel, conv, m, c, o)
    return Winograd(m, weights, transform, product, finish, args, conv)


def least_work(kernel: Kernel, variant: str) -> tuple[int, int]:
    """Operations of the product of a variant, and bytes of what its other kernels write and read:
    tiles of the image, of the result, and weights that vary.
    """
    conv = match_conv3x3(kernel)
    if conv is None:
        raise InternalError(f"kernel {kernel.name} is no convolution that {variant} computes")
    m = int(variant.removeprefix("winograd"))
    extents = {a.name: a.extent for a in kernel.all_axes()}
    rows, columns = extents[conv.rows], extents[conv.columns]
    c, o = extents[conv.channels], extents[conv.outputs]
    tiles = kernel.points // (rows * columns * o) * -(-rows // m) * -(-columns // m)
    weights = 0 if conv.constant else c * o
    positions = (m + 2) ** 2
    return 2 * positions * tiles * c * o, 4 * positions * (tiles * (c + o) + weights)


def _transform(
    kernel: Kernel, conv: Conv3x3, m: int, batch: list[Axis], ty: Axis, tx: Axis, c: Axis
) -> Kernel:
    n, images = m + 2, {i.load: i for i in conv.images}
    names = {p: f"X{i or ''}" for i, p in enumerate(conv.x_params)}

    def tile(i: int, j: int) -> Expr:
        starts = (ty.index * m, tx.index * m, as_index(i), as_index(j))
        env = dict(zip((conv.rows, conv.columns, *conv.window), starts, strict=True))

        def leaf(x: Expr) -> Expr:
            if not isinstance(x, Load):
                return x
            index = tuple(at.substitute(env) for at in x.index)
            shape = kernel.param(x.param).shape
            bounds = (Range(index[d], 0, shape[d]) for d in images[x].dims[:2])
            chosen = (r for r in x.valid.ranges if r.index.names() == {conv.channels})
            return Load(names[x.param], index, x.dtype, Valid((*bounds, *chosen)))

        return rebuilder(leaf)(conv.x)

    d = [[tile(i, j) for j in range(n)] for i in range(n)]
    if conv.words:
        sides = [[[_together(op, x) for x in row] for row in d] for op in (Op.EVEN, Op.ODD)]
        made = [[[_apart(x) for x in row] for row in _sandwich(side, *_EXACT_BT)] for side in sides]
    else:
        made = [_sandwich(d, _BT[m])]
    axes = (*batch, ty, tx, c)
    extents = (*(a.extent for a in axes[:-1]), len(made) * c.extent)
    out = _spread("V", (n * n, *extents), "out", axes[0].extent, _number(conv))
    at = tuple(axis.index for axis in axes[:-1])
    stores = tuple(
        Store("V", (as_index(a * n + b), *at, c.index + h * c.extent), v[a][b])
        for h, v in enumerate(made)
        for a in range(n)
        for b in range(n)
    )
    size = f"{ty.extent}x{tx.extent}x{c.extent}"
    return Kernel(
        (out, *(replace(kernel.param(p), name=name) for p, name in names.items())),
        axes,
        stores,
        name=f"winograd{m} input {size}{_kind(conv)}",
        origin=kernel.origin,
    ).canonical()


def _number(conv: Conv3x3) -> DType:
    return I32 if conv.words else F32


def _kind(conv: Conv3x3) -> str:
    """A part of names."""
    return " exact" if conv.words else ""


def _together(op: Op, word: Expr) -> Expr:
    """Two bytes of a word as one number, the second one times 2^16: sums of such, and multiples,
    are those of both.
    """
    halves = Apply(op, (word,), I32)
    return halves if word.dtype.of == U8 else _carried(halves, Op.SUB)


def _apart(x: Expr) -> Expr:
    """Such a number as two of 16 bits."""
    return _carried(x, Op.ADD)


def _carried(x: Expr, op: Op) -> Expr:
    """``x`` with what a negative lower half takes from the upper one given back, or taken."""
    sign = Apply(Op.AND, (x, Const(1 << 15, I32)), I32)
    return Apply(op, (x, Apply(Op.ADD, (sign, sign), I32)), I32)


def _spread(name: str, shape: tuple[int, ...], role: Role, outer: int, dtype: DType = F32) -> Param:
    """A parameter (positions, tiles..., channels) whose positions are apart by few multiples of a
    power of two.

    A transform reads or writes every position of a tile at once: 16 or 36 places that would
    otherwise share a set of the first cache. Rows are an odd number of cache lines; where the tiles
    are a multiple of 16 there is room for one more step of their outermost dimension, whose extent
    is ``outer``.
    """
    positions, *tiles, row = shape
    if row % _LINE == 0 and row // _LINE % 2 == 0:
        row += _LINE
    if prod(tiles) % _SETS == 0:
        tiles[0] += prod(tiles) // outer if len(tiles) == 1 else 1
    parts = tuple(Part(d, 1, extent) for d, extent in enumerate((positions, *tiles, row)))
    return Param(name, dtype, shape, role, Layout(shape, parts))


def _weights(kernel: Kernel, conv: Conv3x3, m: int, c: Axis, o: Axis) -> Kernel:
    """U of weights that are no constant, which are read by windows."""
    w, n = conv.w, m + 2

    def window(i: int, j: int) -> Expr:
        at = (o.index, c.index, as_index(i), as_index(j))
        names = (conv.outputs, conv.channels, *conv.window)
        env = dict(zip(names, at, strict=True))
        x = Load("W", tuple(x.substitute(env) for x in w.index), F32)
        return x if over == 1 else Apply(Op.DIV, (x, Const(float(over * over), F32)), F32)

    over = _G_OVER[m]
    exact = tuple(tuple(round(x * over * 8) / 8 for x in g) for g in _G[m])
    u = _sandwich([[window(i, j) for j in range(3)] for i in range(3)], exact)

    def place(a: int, b: int) -> Store:
        return Store("U", (as_index(a * n + b), c.index, o.index), u[a][b])

    stores = tuple(place(a, b) for a in range(n) for b in range(n))
    params = (
        _spread("U", (n * n, c.extent, o.extent), "out", c.extent),
        replace(kernel.param(w.param), name="W"),
    )
    name = f"winograd{m} weights {c.extent}x{o.extent}"
    return Kernel(params, (c, o), stores, name=name, origin=kernel.origin).canonical()


def _product(positions: int, t: Axis, c: Axis, o: Axis, outer: int, conv: Conv3x3) -> Kernel:
    p, dtype = Axis("p", positions), _number(conv)
    out = _spread("M", (p.extent, t.extent, o.extent), "out", outer, dtype)
    v = _spread("V", (p.extent, t.extent, c.extent), "in", outer, dtype)
    shape = p.extent, c.extent, o.extent
    packed = Param.dense("U", dtype, shape, "const")
    u = packed if conv.constant else _spread("U", shape, "in", c.extent)
    terms = (
        Load("V", (p.index, t.index, c.index), dtype),
        Load("U", (p.index, c.index, o.index), dtype),
    )
    multiply = Op.DOT2I if conv.words else Op.MUL
    total = Reduce("v0", Op.ADD, (c,), Apply(multiply, terms, dtype), dtype)
    store = Store("M", (p.index, t.index, o.index), Value("v0", dtype))
    name = f"winograd product {positions}x{t.extent}x{o.extent}x{c.extent}{_kind(conv)}"
    return Kernel((out, v, u), (p, t, o), (total, store), name=name).canonical()


def _finish(
    kernel: Kernel, conv: Conv3x3, m: int, batch: list[Axis], ty: Axis, tx: Axis, positions: int
) -> tuple[Kernel, tuple[str, ...]]:
    n = m + 2
    extents = {a.name: a.extent for a in kernel.axes}
    o = Axis(conv.outputs, extents[conv.outputs])
    grid = (*batch, ty, tx, o)
    dtype = _number(conv)
    param = _spread("M", (positions, *(a.extent for a in grid)), "in", grid[0].extent, dtype)

    at = tuple(a.index for a in grid)

    def product(p: int) -> Expr:
        return Load("M", (as_index(p), *at), dtype)

    matrix = _EXACT_AT if conv.words else _AT[m]
    y = _sandwich([[product(a * n + b) for b in range(n)] for a in range(n)], matrix)
    if conv.words:
        y = [[_divided(x) for x in row] for row in y]
    direct = kernel.stores[0]
    stores = []
    for i in range(m):
        for j in range(m):
            env = {conv.rows: ty.index * m + i, conv.columns: tx.index * m + j}
            kept = Valid(Range(env[a], 0, extents[a]) for a in (conv.rows, conv.columns))
            if kept.never:
                continue
            leaf = partial(_at, env=env, kept=kept, value=y[i][j])
            expr = rebuilder(leaf)(direct.expr)
            index = tuple(x.substitute(env) for x in direct.index)
            stores.append(Store(direct.param, index, expr, (), kept))
    made = Kernel(
        (*kernel.params, param),
        tuple(grid),
        tuple(stores),
        name=f"winograd{m} output of {kernel.name}{_kind(conv)}",
        origin=kernel.origin,
    )
    used, _ = params_of(made)
    params = tuple(
        param if p.name == conv.x_params[0] and p.name not in used else p for p in kernel.params
    )
    params = tuple(p for p in params if p.name in used)
    if param not in params:
        params = (*params, param)
    return replace(made, params=params).canonical(), tuple(p.name for p in params)


def _divided(x: Expr) -> Expr:
    """A multiple of ``_EXACT_OVER``, modulo 2^32, by that."""
    odd = _EXACT_OVER // 4
    inverse = pow(odd, -1, 1 << 32)
    signed = inverse - (inverse >> 31 << 32)
    multiple = Apply(Op.MUL, (x, Const(signed, I32)), I32)
    return Apply(Op.SHR, (multiple, Const(2, I32)), I32)


def _at(x: Expr, env: dict[str, Index], kept: Valid, value: Expr) -> Expr:
    """A leaf of the epilogue at one output of the tile."""
    if isinstance(x, Value):
        return value
    if isinstance(x, Load):
        index = tuple(i.substitute(env) for i in x.index)
        moved = any(a != b for a, b in zip(index, x.index, strict=True))
        return Load(x.param, index, x.dtype, x.valid.substitute(env) & (kept if moved else ALWAYS))
    return substituting(env)(x)


def _sandwich(d: list[list[Expr]], *matrices: tuple[tuple[float, ...], ...]) -> list[list[Expr]]:
    """matrix * d * matrix^T, of a product of matrices, the first one applied first; what is on the
    left is shared.
    """
    for _ in range(2):  # columns, and the rows that were columns
        for matrix in matrices:
            columns = [*zip(*d, strict=True)]
            d = [[_combine(row, x) for x in columns] for row in matrix]
        d = [[*column] for column in zip(*d, strict=True)]
    return d


def _combine(coefficients: tuple[float, ...], terms: Sequence[Expr]) -> Expr:
    """The sum of coefficient * term, without multiplications by 0 and 1."""
    if any(x.dtype == I32 for x in terms):
        return _combine_integers(coefficients, terms)
    pairs = sorted(
        ((c, x) for c, x in zip(coefficients, terms, strict=True) if c), key=lambda t: t[0] != 1
    )
    total: Expr | None = None
    for c, x in pairs:
        if total is None:
            total = x if c == 1 else Apply(Op.MUL, (x, Const(float(c), F32)), F32)
        elif c in (1, -1):
            total = Apply(Op.ADD if c == 1 else Op.SUB, (total, x), F32)
        else:
            total = Apply(Op.FMA, (x, Const(float(c), F32), total), F32)
    return Const(0.0, F32) if total is None else total


def _combine_integers(coefficients: tuple[float, ...], terms: Sequence[Expr]) -> Expr:
    """The same by sums and shifts, the terms of one coefficient first added up."""
    total: Expr | None = None
    pairs = [*zip(map(int, coefficients), terms, strict=True)]
    for size in sorted({abs(c) for c, _ in pairs if c}):
        some = sorted((c < 0, k) for k, (c, _) in enumerate(pairs) if abs(c) == size)
        minus = some[0][0]  # of all of them
        part: Expr = terms[some[0][1]]
        for other, k in some[1:]:
            part = Apply(Op.ADD if other == minus else Op.SUB, (part, terms[k]), I32)
        part = _times(size, part)
        if total is None:
            total = Apply(Op.NEG, (part,), I32) if minus else part
        else:
            total = Apply(Op.SUB if minus else Op.ADD, (total, part), I32)
    return Const(0, I32) if total is None else total


def _times(count: int, x: Expr) -> Expr:
    """A multiple of ``x``, of which few bits are set."""
    total: Expr | None = None
    for bit in (b for b in range(count.bit_length()) if count >> b & 1):
        moved = Apply(Op.SHL, (x, Const(bit, I32)), I32) if bit else x
        total = moved if total is None else Apply(Op.ADD, (total, moved), I32)
    return Const(0, I32) if total is None else total
