"""Matrix units and copies that run on, through the wrappers of a dialect that has them."""

from __future__ import annotations

from tunegrad.ir import program as p
from tunegrad.ir.index import Index
from tunegrad.ir.program import Instr
from tunegrad.ir.target import MatrixUnit

from .c_memory import CMemory, fixed

__all__ = ["CUnits", "product_wrapper"]

_PTX = {"i8": "s8", "i32": "s32"}
"""Names of integers in wrappers of instructions."""


def product_wrapper(unit: MatrixUnit) -> str:
    """The wrapper of a unit's instruction, without its prefix: ``mma_m16n8k32_s8_s32``."""
    shape, *types = unit.name.split("_")
    return "_".join(["mma", shape, *(_PTX.get(t, t) for t in types)])


class CUnits(CMemory):
    """Prints what is an instruction of its own."""

    def matrices(self, i: p.MatMul) -> None:
        """A product of a matrix unit: registers of operands in, sums in and out of an array."""
        d, word = self.dialect, f"m{i.ids[0]}"
        call = self.wrapper(product_wrapper(i.unit), i)
        stored = d.stored[self.types[i.a[0]].dtype.name]
        for name, values in (("a", i.a), ("b", i.b)):
            lanes = ([self.lane(v, k) for k in range(i.unit.packed)] for v in values)
            kinds, held = zip(*(d.register(stored, x) for x in lanes), strict=True)
            self.line(f"const {kinds[0]} {word}{name}[{len(held)}] = {{{', '.join(held)}}};")
        sums = ", ".join(f"v{c}" for c in i.c)
        self.line(f"{self.c_type(i.vtype)} {word}[{len(i.c)}] = {{{sums}}};")
        self.line(f"{call}({word}, {word}a, {word}b);")
        for k, new in enumerate(i.ids):
            self.define(new, i.vtype, lambda _, k=k: f"{word}[{k}]")  # type: ignore[misc]

    def _address(self, buffer: str, at: Index, i: Instr) -> str:
        """Of an element in shared memory, in 32 bits."""
        address = self.wrapper("shared_address", i)
        return f"{address}(&{self.buffers[buffer]}[{self.place(buffer, at)}])"

    def copy_async(self, i: p.CopyAsync) -> None:
        nbytes = i.vtype.lanes * i.vtype.dtype.itemsize
        call = self.wrapper(f"cp_async{nbytes}", i)
        to = self._address(i.buffer, fixed(i.into, i.lane, 0), i)
        source = f"&{self.buffers[i.source]}[{self.at.sum(fixed(i.offset, i.lane, 0))}]"
        given = str(nbytes) if i.mask is None else f"{self.lane(i.mask, 0)} ? {nbytes} : 0"
        self.line(f"{call}({to}, {source}, {given});")

    def mat_load(self, i: p.MatLoad) -> None:
        n, word = len(i.ids), f"m{i.ids[0]}"
        call = self.wrapper(f"ldmatrix_x{n}{'_trans' if i.transposed else ''}", i)
        self.line(f"unsigned int {word}[{n}];")
        self.line(f"{call}({word}, {self._address(i.buffer, i.offset, i)});")
        kind, bits = self.dialect.values[i.vtype.dtype.name], i.vtype.dtype.bits
        for j, new in enumerate(i.ids):

            def part(k: int, j: int = j) -> str:
                return self.dialect.part(kind, f"{word}[{j}]", bits * k)

            self.define(new, i.vtype, part)
