"""Products of matrix units: of the work-items of a warp, and of a thread's tile registers.

registers of items  -->  A, B, C of each warp  -->  C + A @ B  -->  registers of items
tiles A, B, C       -->  C + (even sums + odd sums of pairs), C + sums of products of bytes
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes import DTYPES, buffer_dtype
from ..expr import Op
from ..program import VType
from ..target import MatrixUnit, TileUnit
from .numeric import compute, to_compute

__all__ = ["load_matrices", "multiply", "multiply_tiles"]

Array = NDArray[Any]


_WARP, _ROW_BYTES = 32, 16
_TF32_BITS = np.uint32(0xFFFFE000)
"""Bits of an f32 that a unit reads as tf32."""


def load_matrices(offset: Array, count: int, vtype: VType, transposed: bool) -> Array:
    """The elements (item, matrix, lane) that items get, of the ``offset`` that each item gives."""
    width, held = _ROW_BYTES // vtype.dtype.itemsize, vtype.lanes
    rows = offset.reshape(-1, _WARP)[:, : 8 * count].reshape(-1, count, 8, 1)
    matrices = rows + np.arange(width)  # warp, matrix, row, column
    if transposed:
        matrices = matrices.transpose(0, 1, 3, 2)
    lies = matrices.reshape(-1, count, 8, width // held, held)
    made: Array = lies.reshape(-1, count, _WARP, held).transpose(0, 2, 1, 3)
    return made.reshape(-1, count, held)


def multiply(unit: MatrixUnit, a: Array, b: Array, c: Array) -> Array:
    """The results (item, register) of operands (item, register, packed) and sums (item, register).

    Products are exact in the type of the sums, which are added in some order. Of tf32 the unit
    reads 19 bits, whatever the others are.
    """
    warps, u = c.shape[0] // unit.items, unit
    lanes = (warps, u.rows, u.columns)
    taken = DTYPES[u.held]
    if u.rounds:
        a, b = ((x.view(np.uint32) & _TF32_BITS).view(np.float32) for x in (a, b))
    wide_a, wide_b = (to_compute(x, taken).astype(c.dtype, copy=False) for x in (a, b))
    rows = wide_a.reshape(*lanes, u.steps, u.highs, u.packed)
    columns = wide_b.reshape(*lanes, u.steps, u.packed)
    sums = c.reshape(*lanes, u.highs, u.pair)
    m, n, k = u.shape
    # A[high, row; step, column, packed], B[step, column, packed; row], C[high, row; column, pair]
    left = rows.transpose(0, 4, 1, 3, 2, 5).reshape(warps, m, k)
    right = columns.transpose(0, 3, 2, 4, 1).reshape(warps, k, n)
    held = sums.transpose(0, 3, 1, 2, 4).reshape(warps, m, n)
    made = held + np.matmul(left, right)
    back = made.reshape(warps, u.highs, u.rows, u.columns, u.pair).transpose(0, 2, 3, 1, 4)
    result: Array = back.reshape(c.shape)
    return result


def multiply_tiles(unit: TileUnit, a: Array, b: Array, c: Array) -> Array:
    """C + A * B of tiles of words: A (m, k), B (k, n), C (m, n) f32 of pairs, i32 of bytes.

    Sums of bytes wrap around. Of pairs, as hardware does it: the first numbers of pairs are added
    up along k by FMA, so are the second ones, then both sums are added, and that to C; a rounding
    each (Intel SDM, volume 2, TDPBF16PS). Subnormal numbers are kept.
    """
    if unit.takes_bytes:
        kinds = (buffer_dtype(name).numpy for name in unit.factors)
        left, right = (x.view(kind) for x, kind in zip((a, b), kinds, strict=True))
        sums = compute(Op.DOT4, left[:, :, None], right).sum(axis=1, dtype=np.int32)
        wrapped: Array = c + sums
        return wrapped
    halves = [np.zeros(c.shape, np.float32), np.zeros(c.shape, np.float32)]
    for at, half in enumerate((Op.LOW, Op.HIGH)):
        left, right = (compute(half, x).astype(np.float64) for x in (a, b))
        for k in range(unit.shape[2]):
            exact = left[:, k, None] * right[k]
            halves[at] = (exact + halves[at]).astype(np.float32)
    total: Array = c + (halves[0] + halves[1])
    return total
