"""LLVM IR of words of four bytes: how they are put together, and sums of their products.

    dot4_add p q c    p u8x4, q i8x4     -->    vpdpbusd, where vectors of the target have it
                      others             -->    each pair of bytes widened, multiplied and added

``vpdpbusds``, which saturates, would be another sum; ``vpmaddubsw`` saturates on the way.
"""

from __future__ import annotations

from tunegrad.ir.dtypes import I32, U8X4, DType
from tunegrad.ir.program import VType

from .llvm_values import LlvmValues, literal, ltype

__all__ = ["dot_of_quads", "quad_of"]


def quad_of(to: LlvmValues, a: list[str], s: VType) -> str:
    """Four bytes, the first the lowest."""
    word = VType(I32, s.lanes)
    total = ""
    for i, x in enumerate(a):
        wide = to.named(f"zext {ltype(s)} {x} to {ltype(word)}")
        moved = to.named(f"shl {ltype(word)} {wide}, {literal(8 * i, word)}") if i else wide
        total = to.named(f"or {ltype(word)} {total}, {moved}") if total else moved
    return total


def dot_of_quads(to: LlvmValues, a: list[str], types: tuple[DType, DType], lanes: int) -> str:
    """The sum of four products of bytes, and of ``a[2]`` where that is given."""
    word = VType(I32, lanes)
    ty, total = ltype(word), a[2] if len(a) == 3 else literal(0, word)
    widths = (4, 8, 16) if to.avx512 else (4, 8)
    if to.vnni and lanes in widths and types[0] != types[1]:
        x, y = a[:2] if types[0] == U8X4 else (a[1], a[0])
        arguments = [(ty, total), (ty, x), (ty, y)]
        return to.named(to.call(ty, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", arguments))
    for i in range(4):
        x, y = (_byte(to, v, t, i, word) for v, t in zip(a[:2], types, strict=True))
        product = to.named(f"mul {ty} {x}, {y}")
        total = to.named(f"add {ty} {total}, {product}")
    return total


def _byte(to: LlvmValues, v: str, dtype: DType, i: int, word: VType) -> str:
    """Byte ``i`` of words, as i32."""
    up = to.named(f"shl {ltype(word)} {v}, {literal(24 - 8 * i, word)}") if i < 3 else v
    kind = "ashr" if dtype.signed else "lshr"
    return to.named(f"{kind} {ltype(word)} {up}, {literal(24, word)}")
