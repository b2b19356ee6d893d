"""LLVM IR of tile registers (AMX): one table of primitives.

    primitive      arguments
    ldtilecfg      pointer to a configuration        rows and bytes of every register; all are zero
    tilerelease                                      no register is set up
    tilezero       register
    tileloadd64    register, pointer, bytes between rows
    tilestored64   register, pointer, bytes between rows
    tdpbf16ps      registers C, A, B                 C += A * B, of pairs of bf16
    tdpbusd ..     registers C, A, B                 C += A * B, of four bytes: A's have no sign
                                                     (u) or one (s), then B's

LLVM names its intrinsics so (``llvm.x86.NAME``), with registers as constants: they are chosen
already, so nothing is left to allocate, spill or set up for its code generation. See Intel SDM,
volume 1, chapter 18. ``tests/amx_twins.py`` has the same functions as plain code, for processors
without AMX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tunegrad.errors import InternalError
from tunegrad.ir.index import Index
from tunegrad.ir.program import (
    Program,
    TileConfig,
    TileLoad,
    TileMul,
    TileStore,
    TileZero,
    walk,
)
from tunegrad.ir.target import Target

from .llvm_values import LlvmValues

_IMMEDIATES: Final = {
    "ldtilecfg": ("ptr",),
    "tilerelease": (),
    "tilezero": ("i8",),
    "tileloadd64": ("i8", "ptr", "i64"),
    "tilestored64": ("i8", "ptr", "i64"),
    "tdpbf16ps": ("i8", "i8", "i8"),
    "tdpbusd": ("i8", "i8", "i8"),
    "tdpbuud": ("i8", "i8", "i8"),
    "tdpbssd": ("i8", "i8", "i8"),
    "tdpbsud": ("i8", "i8", "i8"),
}
"""The primitives, and the types of their arguments: an i8 is the number of a register."""

_PRODUCTS: Final = {
    ("bf16x2", "bf16x2"): "tdpbf16ps",
    ("u8x4", "i8x4"): "tdpbusd",
    ("u8x4", "u8x4"): "tdpbuud",
    ("i8x4", "i8x4"): "tdpbssd",
    ("i8x4", "u8x4"): "tdpbsud",
}
"""The primitive of a product, by the factors of its unit."""


class Tiles:
    """Instructions of tile registers of one program as text. ``address`` gives a pointer to an
    element of a buffer. Raises InternalError where the target has no AMX.
    """

    def __init__(
        self,
        program: Program,
        target: Target | None,
        values: LlvmValues,
        address: Callable[[str, Index], str],
    ) -> None:
        self.amx = target is not None and target.amx
        self.values, self.address = values, address
        self.configurations: dict[tuple[int, ...], str] = {}
        for i in walk(program.body):
            if isinstance(i, TileConfig):
                found = self.configurations
                found.setdefault(i.rows, f"@tg.tiles.{len(found)}")

    def config(self, i: TileConfig) -> None:
        """Load a configuration; where there is only one, the prologue has loaded it."""
        if len(self.configurations) != 1:
            self._emit("ldtilecfg", self.configurations[i.rows])

    def zero(self, i: TileZero) -> None:
        self._emit("tilezero", str(i.tile))

    def load(self, i: TileLoad) -> None:
        address, step = self._move("tileloadd64", i)
        for row in range(i.rows if i.prefetch else 0):
            self.values.prefetch(address, i.prefetch + row * step)

    def store(self, i: TileStore) -> None:
        self._move("tilestored64", i)

    def multiply(self, i: TileMul) -> None:
        self._emit(_PRODUCTS[i.unit.factors], *map(str, (i.tile, i.a, i.b)))

    def _move(self, name: str, i: TileLoad | TileStore) -> tuple[str, int]:
        """Move the rows of a register; the address of the first, and bytes from one to the next."""
        step = (i.offset.coefficient(i.row) or 0) * i.vtype.dtype.itemsize
        address = self.address(i.buffer, i.offset.at({i.row: 0, i.lane: 0}))
        self._emit(name, str(i.tile), address, str(step))
        return address, step

    def _emit(self, name: str, *values: str) -> None:
        self.values.emit(self._code(name, *values))

    def _code(self, name: str, *values: str) -> str:
        if not self.amx:
            raise InternalError(f"{name}: the target has no tile registers (AMX)")
        types = _IMMEDIATES[name]
        args = ", ".join(f"{t} {v}" for t, v in zip(types, values, strict=True))
        shown = ", ".join(f"{t} immarg" if t == "i8" else t for t in types)
        self.values.declared.add(f"void @llvm.x86.{name}({shown})")
        return f"call void @llvm.x86.{name}({args})"

    # around the body

    def prologue(self) -> list[str]:
        """Lines before a body that uses tiles: their configuration, where there is only one."""
        if len(self.configurations) != 1:
            return []
        (name,) = self.configurations.values()
        return [f"  {self._code('ldtilecfg', name)}"]

    def epilogue(self) -> list[str]:
        """Lines after such a body: the registers are given back, so that none is saved any more."""
        return [f"  {self._code('tilerelease')}"] if self.configurations else []

    def constants(self) -> list[str]:
        """The configurations that the body loads."""
        return [
            f"{name} = private unnamed_addr constant [64 x i8] "
            f"[{', '.join(f'i8 {b}' for b in _configuration(rows))}], align 64"
            for rows, name in self.configurations.items()
        ]


def _configuration(rows: tuple[int, ...]) -> bytes:
    """The 64 bytes of ``ldtilecfg``: palette 1; bytes of a row, 2 each from 16 on; rows from 48."""
    made = bytearray(64)
    made[0] = 1
    for t, count in enumerate(rows):
        made[16 + 2 * t] = 64 if count else 0
        made[48 + t] = count
    return bytes(made)
