"""Partial sums: where a serial loop around the region goes over a reduced axis, sums go on in
memory.

    if not the first partial sum: registers op= out
    if the last one: out = epilogue(registers)   else: out = registers
"""

from __future__ import annotations

from math import prod

from tunegrad.ir.dtypes import F64, DType
from tunegrad.ir.index import Range, Valid, as_index, var
from tunegrad.ir.kernel import Reduce, Store
from tunegrad.ir.program import Alloc, Read, Register, VType, Write

from .builder import Known
from .chains import has_wide_partials
from .stage_loops import Limits
from .stores import Stores
from .values import Point, known

__all__ = ["Partials"]


class Partials(Stores):
    """Adds what earlier iterations left, and keeps or finishes what there is."""

    def _ends(self) -> tuple[Valid, Valid]:
        """Conditions under which this is the first partial sum, and the last."""
        tree = self.tree
        inside = {x.name for x in tree.loops} - {x.name for x in tree.outer}
        first: list[Range] = []
        last: list[Range] = []
        for axis in dict.fromkeys(a for x in tree.partial for a in x.axes):
            base = tree.axis_index(axis).substitute({n: as_index(0) for n in inside})
            first.append(Range(base, 0, 1))
            if self._stops(axis):
                span = prod(x.extent for x in tree.loops if axis in x.axes and x.name in inside)
                last.append(Range(base, tree.extent(axis) - span, tree.nominal(axis)))
        static = [x for x in tree.partial if not any(self._stops(a) for a in x.axes)]
        last += [Range(var(x.name, x.extent), x.extent - 1, x.extent) for x in static]
        return Valid(first), Valid(last)

    def _stops(self, axis: str) -> bool:
        """True if loops of the axis stop before its nominal extent."""
        return axis in self.shapes and self.shapes[axis].mode != "mask"

    def partial_sums(self, i: int, s: Reduce, limits: Limits, points: list[Point]) -> None:
        """Sums go on in the output, or in f64 scratch of its form where many are added."""
        tree, b = self.tree, self.b
        first, last = self._ends()
        whole = (x for x in tree.kernel.stores if x.valid.always)
        store = next(x for x in whole if tree.kernel.param(x.param).dtype == s.dtype)
        at = tree.kernel.stages.index(store)
        dtype, buffer = s.dtype, store.param
        if has_wide_partials(tree, i):
            dtype, buffer = F64, f"{s.name}.partial"
            self.allocs.append(Alloc(buffer, F64, tree.kernel.param(store.param).size, "team"))
        kept: dict[Point, str] = {}
        lanes = tree.lane_loop(at)
        vtype = VType(dtype, lanes.extent if lanes else 1)
        for p in points:
            kept[p] = f"{s.name}.sum{len(kept)}"
            b.add(Register(kept[p], vtype))
            found = self.results[(s.name, p)]
            part = self._as(known(found), s.dtype, dtype)
            b.add(Write(kept[p], b.splat(part, dtype, vtype.lanes), vtype))

        def add_earlier() -> None:
            values = self.values(at, {})
            target = self.target(values, store)
            for p in points:
                old = b.new()
                b.add(Read(old, kept[p], vtype))
                offset, valid = self.target_at(values, target, p, self.active(lanes, p, limits))
                earlier = b.load(buffer, offset, valid, dtype, values.lane, values.lanes)
                b.add(
                    Write(
                        kept[p],
                        b.compute(s.op, [earlier, (old, vtype.lanes)], [dtype] * 2, dtype)[0],
                        vtype,
                    )
                )

        def keep() -> None:
            values = self.values(at, {})
            target = self.target(values, store)
            for p in points:
                old = b.new()
                b.add(Read(old, kept[p], vtype))
                offset, valid = self.target_at(values, target, p, self.active(lanes, p, limits))
                b.store(buffer, offset, valid, (old, vtype.lanes), dtype, values.lane, values.lanes)

        def finish() -> None:
            for p in points:
                total = b.new()
                b.add(Read(total, kept[p], vtype))
                self.results[(s.name, p)] = self._as((total, vtype.lanes), dtype, s.dtype)
            for j, x in enumerate(tree.kernel.stages):
                if isinstance(x, Store):
                    self.store_stage(j, x, limits)

        self.branch(first, lambda: None, add_earlier)
        self.branch(last, finish, keep)

    def _as(self, value: Known, have: DType, dtype: DType) -> Known:
        return value if have == dtype else self.b.convert(value, dtype)
