"""Rules of what work-groups do together: products, fragments, shuffles, copies that run ahead.

Whole warps run them, all of which arrive.
"""

from __future__ import annotations

from .. import program as p
from ..dtypes import BOOL, DTYPES
from ..index import Index, Valid, as_index
from ..pipelines import (
    COPY_BYTES,
    REGISTER_BYTES,
    ROW_BYTES,
    WARP,
    is_aligned,
    stored_buffers,
    without,
)
from ..program import Instr, VType
from .prove import condition_facts, within
from .rules import Rules, Scope

__all__ = ["GroupRules"]


class GroupRules(Rules):
    """The rules of the instructions that only work-groups have."""

    def _of_groups(self, i: p.MatMul | p.MatLoad | p.Shuffle | p.CopyAsync, s: Scope) -> None:
        match i:
            case p.MatMul():
                self._matrices(i, s)
            case p.MatLoad():
                self._mat_load(i, s)
            case p.Shuffle(_, arg, across, t):
                self._warps(i, s)
                self._same(i, f"%{arg}", self._use(i, arg, s), t)
                if across < 1 or across & (across - 1) or across >= WARP:
                    self._broken(i, f"across {across}: a power of two below {WARP}")
            case p.CopyAsync():
                self._copy_async(i, s)

    def _warps(self, i: Instr, s: Scope) -> None:
        """Whole warps run it together."""
        if s.alone:
            self._broken(i, f"inside {s.alone}, where not all threads arrive")
        if self.program.local % WARP:
            self._broken(i, f"groups of {self.program.local} work-items: it takes {WARP} together")

    def _matrices(self, i: p.MatMul, s: Scope) -> None:
        """Whole warps run it together, and each item holds what the unit says."""
        unit, gives = i.unit, i.unit.dtypes[1]
        self._warps(i, s)
        if self.target is not None and unit not in self.target.units:
            self._broken(i, f"target {self.target.name} has no {unit}")
        operand = VType(DTYPES[unit.held], unit.packed)
        counts = unit.highs * unit.steps, unit.steps, unit.highs * unit.pair
        for name, values, count in zip("abc", (i.a, i.b, i.c), counts, strict=True):
            if len(values) != count:
                self._broken(i, f"{len(values)} registers of {name}: {unit} takes {count}")
            for value in values:
                want = i.vtype if name == "c" else operand
                self._same(i, f"%{value}", self._use(i, value, s), want)
        self._same(i, "the result", i.vtype, VType(DTYPES[gives]))
        if len(i.ids) != len(i.c):
            self._broken(i, f"{len(i.ids)} results of {len(i.c)} sums")

    def _mat_load(self, i: p.MatLoad, s: Scope) -> None:
        self._warps(i, s)
        if self.target is not None and not self.target.loads_matrices:
            self._broken(i, f"target {self.target.name} has no such load")
        size, t = i.vtype.dtype.itemsize, i.vtype
        if len(i.ids) not in (1, 2, 4):
            self._broken(i, f"{len(i.ids)} matrices: 1, 2 or 4")
        if t.lanes * size != REGISTER_BYTES or (i.transposed and size != 2):
            self._broken(i, f"{t}: 4 bytes, of 2 each where it is transposed")
        width = self._shared_row(i, i.buffer, i.offset, s)
        if not within(i.offset + (width - 1), self.buffers[i.buffer][1], s.facts) or not within(
            i.offset, self.buffers[i.buffer][1], s.facts
        ):
            self.unproved.append(i)

    def _shared_row(self, i: p.MatLoad, name: str, offset: Index, s: Scope) -> int:
        """Elements of a row, which lies in shared memory at a multiple of its size."""
        if all(a.name != name or a.space != "shared" for a in self.program.allocs):
            self._broken(i, f"{name} is not shared memory")
        if self.buffers[name][0] != i.vtype.dtype:
            self._broken(i, f"{name} holds {self.buffers[name][0]}")
        self._names(i, offset, s)
        width = ROW_BYTES // i.vtype.dtype.itemsize
        if not is_aligned(offset, width):
            self._broken(i, f"offset {offset} is not a multiple of {width} elements")
        return width

    def _copy_async(self, i: p.CopyAsync, s: Scope) -> None:
        if not s.ahead:
            self._broken(i, "stands outside the copies of a pipeline")
        if self.target is not None and not self.target.copies_ahead:
            self._broken(i, f"target {self.target.name} has no such copy")
        t = i.vtype
        if t.lanes * t.dtype.itemsize not in COPY_BYTES:
            self._broken(i, f"{t.lanes * t.dtype.itemsize} bytes: 4, 8 or 16")
        if i.source in stored_buffers(self.program.body):
            self._broken(i, f"copies from {i.source}, which the program writes")
        if all(a.name != i.buffer or a.space != "shared" for a in self.program.allocs):
            self._broken(i, f"copies to {i.buffer}, which is not shared memory")
        if i.mask is not None:
            self._same(i, "the mask", self._use(i, i.mask, s), VType(BOOL))
        for name, index in ((i.buffer, i.into), (i.source, i.offset)):
            known = self.buffers.get(name)
            if known is None:
                self._broken(i, f"no buffer {name}; there are {', '.join(self.buffers)}")
            if known[0] != t.dtype:
                self._broken(i, f"{name} holds {known[0]}")
            self._names(i, index, s, i.lane, t.lanes)
            if t.lanes > 1 and index.coefficient(i.lane) != 1:
                self._broken(i, f"{index} is not a row of neighbours")
            first = index.substitute({i.lane: as_index(0)}) if i.lane else index
            if not is_aligned(first, t.lanes):
                self._broken(i, f"{index} is not a multiple of {t.lanes} elements")
            facts = s.facts
            if i.mask is not None and name == i.source:
                facts += condition_facts(s.tests.get(i.mask, Valid()))
            if not within(index, known[1], facts):
                self.unproved.append(i)

    def _pipeline(self, i: p.Pipeline, s: Scope) -> None:
        """Copies run ahead of other iterations: nothing else writes what they write."""
        if not self.grouped:
            self._broken(i, "copies ahead to memory that a work-group shares")
        if s.alone:
            self._broken(i, f"inside {s.alone}, where not all threads arrive")
        if i.extent < 1 or i.slots < 2:
            self._broken(i, f"{i.extent} iterations, {i.slots} slots: at least 1 and 2")
        if i.var in s.extents:
            self._broken(i, f"{i.var} is the variable of a loop around it")
        ahead = stored_buffers(i.copies)
        spaces = {a.name: a.space for a in self.program.allocs}
        for name in sorted(ahead):
            if spaces.get(name) != "shared":
                self._broken(i, f"copies to {name}, which is not shared memory")
        written = stored_buffers(without(self.program.body, i))
        for name in sorted(ahead & (written | stored_buffers(i.body))):
            self._broken(i, f"{name} is written outside its copies, too")
        read = {x.buffer for x in p.walk(i.copies) if isinstance(x, p.Load)}
        for name in sorted(read & stored_buffers(self.program.body)):
            self._broken(i, f"its copies read {name}, which the program writes")
        for x in p.walk(i.copies):
            if isinstance(x, p.Read | p.Write | p.Register | p.Barrier | p.Pipeline | p.MatMul):
                self._broken(x, "in the copies of a pipeline")
        inner = s.inner()
        inner.extents[i.var] = i.extent
        copies = inner.inner()
        copies.ahead = True
        self._block(i.copies, copies)
        self._block(i.body, inner)
