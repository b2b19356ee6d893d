"""LLVM IR of loads and stores: contiguous vectors, splats, and lanes some elements apart.

    step of the lanes  0                1           -1           2 .. 4       any other
    a load is          a scalar, splat  one vector  one, turned  vectors and  one for each lane
                                                                 shuffles

Loads whose lanes are far apart but that together read neighbours are transposed in registers
(``llvm_transpose``).
"""

from __future__ import annotations

from abc import abstractmethod

from tunegrad.ir.index import Index, as_index
from tunegrad.ir.program import Load, Store, VType
from tunegrad.ir.target import Target

from .llvm_access import Accesses
from .llvm_shuffle import shuffle_mask
from .llvm_transpose import transposition
from .llvm_values import memory_type

__all__ = ["ALIGN", "Memory"]

ALIGN = 64
"""Bytes that parameters and scratch are aligned to, at least."""

_SHUFFLED = (2, 3, 4)
"""Steps between lanes at which whole vectors and shuffles cost less than a load for each lane."""


class Memory(Accesses):
    """Turns loads and stores into text; a subclass has the lines and the addresses.

    ``streams``: some store streams.
    """

    def __init__(self, target: Target | None) -> None:
        super().__init__(target)
        self.streams = False

    @abstractmethod
    def address(self, buffer: str, offset: Index) -> str:
        """A pointer to ``buffer[offset]``."""

    def load(self, i: Load) -> None:
        dtype, lanes = i.vtype.dtype, i.vtype.lanes
        step = i.offset.coefficient(i.lane) if i.lane else 0
        if lanes == 1 or step == 0:
            self.bind(i.id, i.vtype, self._splat_load(i, lanes))
        elif step == 1:
            address = self.address(i.buffer, i.offset.at({i.lane: 0}))
            if i.prefetch:
                self._prefetch(address, i.prefetch)
            raw = self.load_vector(
                address, dtype, lanes, None if i.mask is None else self.value(i.mask)
            )
            self.bind(i.id, i.vtype, self.from_memory(raw, i.vtype))
        elif step == -1:
            self.bind(i.id, i.vtype, self.from_memory(self._backwards(i), i.vtype))
        elif step is not None and step in _SHUFFLED:
            self.bind(i.id, i.vtype, self.from_memory(self._strided(i, step), i.vtype))
        else:
            self.bind(i.id, i.vtype, self.from_memory(self._gather(i), i.vtype))

    def _prefetch(self, address: str, ahead: int) -> None:
        line = self.fresh()
        self.emit(f"{line} = getelementptr i8, ptr {address}, i64 {ahead}")
        self.declared.add("void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)")
        self.emit(f"call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 3, i32 1)")

    def _splat_load(self, i: Load, lanes: int) -> str:
        dtype = i.vtype.dtype
        offset = i.offset.at({i.lane: 0}) if i.lane else i.offset
        if lanes > 1 and i.mask is not None:
            raws = [self._lane_load(i, offset, lane) for lane in range(lanes)]
            return self.from_memory(self.assemble(raws, dtype, lanes), i.vtype)
        address = self.address(i.buffer, offset)
        raw = self.load_scalar(address, dtype, None if i.mask is None else self.value(i.mask))
        value = self.from_memory(raw, VType(dtype))
        return value if lanes == 1 else self.splat(value, i.vtype)

    def _lane_load(self, i: Load, offset: Index, lane: int) -> str:
        mask = (
            None if i.mask is None else self.extract_mask(self.value(i.mask), i.vtype.lanes, lane)
        )
        return self.load_scalar(self.address(i.buffer, offset), i.vtype.dtype, mask)

    def _gather(self, i: Load) -> str:
        offsets = [i.offset.at({i.lane: lane}) for lane in range(i.vtype.lanes)]
        raws = [self._lane_load(i, offset, lane) for lane, offset in enumerate(offsets)]
        return self.assemble(raws, i.vtype.dtype, i.vtype.lanes)

    def _backwards(self, i: Load) -> str:
        """Neighbours, the last one first."""
        dtype, lanes = i.vtype.dtype, i.vtype.lanes
        turned = list(range(lanes - 1, -1, -1))
        mask = None if i.mask is None else self.spread_mask(self.value(i.mask), list(turned))
        address = self.address(i.buffer, i.offset.at({i.lane: lanes - 1}))
        raw, kind = (
            self.load_vector(address, dtype, lanes, mask),
            f"<{lanes} x {memory_type(dtype)}>",
        )
        return self.named(f"shufflevector {kind} {raw}, {kind} poison, {shuffle_mask(turned)}")

    def _strided(self, i: Load, step: int) -> str:
        """Lanes ``step`` elements apart: whole vectors, of which a shuffle keeps what is wanted.

        The last vector ends at the last lane's element, so that nothing beyond it is read.
        """
        dtype, lanes = i.vtype.dtype, i.vtype.lanes
        kind = f"<{lanes} x {memory_type(dtype)}>"
        offset = i.offset.at({i.lane: 0})
        starts = [min(part * lanes, (lanes - 1) * (step - 1)) for part in range(step)]
        part_of = [
            next(k for k, at in enumerate(starts) if at <= lane * step < at + lanes)
            for lane in range(lanes)
        ]
        mask = None if i.mask is None else self.value(i.mask)
        total, filled = "poison", 0
        for part, start in enumerate(starts):
            wanted = {lane * step - start: lane for lane in range(lanes) if part_of[lane] == part}
            if not wanted:
                continue
            some = (
                None
                if mask is None
                else self.spread_mask(mask, [wanted.get(j) for j in range(lanes)])
            )
            raw = self.load_vector(
                self.address(i.buffer, offset + as_index(start)), dtype, lanes, some
            )
            places = [
                lane if lane < filled else lanes + lane * step - start for lane in range(lanes)
            ]
            kept = [at if lane < filled + len(wanted) else None for lane, at in enumerate(places)]
            total = self.named(f"shufflevector {kind} {total}, {kind} {raw}, {shuffle_mask(kept)}")
            filled += len(wanted)
        return total

    def transposed(self, group: tuple[Load, ...]) -> None:
        """Loads of neighbours whose lanes are far apart: a run for each lane, transposed."""
        n, dtype, lanes = len(group), group[0].vtype.dtype, group[0].vtype.lanes
        offset = group[0].offset
        rows = []
        for lane in range(lanes):
            address = self.address(group[0].buffer, offset.at({group[0].lane: lane}))
            rows.append(self.load_vector(address, dtype, n, None))
        one = memory_type(dtype)
        vectors = [
            self._joined([rows[lane] for lane in range(j, lanes, n)], one, n) for j in range(n)
        ]
        kind = f"<{lanes} x {one}>"
        for stage in transposition(n, lanes):
            vectors = [
                self.named(
                    f"shufflevector {kind} {vectors[a]}, {kind} {vectors[b]}, "
                    f"{shuffle_mask(picked)}"
                )
                for a, b, picked in stage
            ]
        for load, vector in zip(group, vectors, strict=True):
            self.bind(load.id, load.vtype, self.from_memory(vector, load.vtype))

    def _joined(self, parts: list[str], one: str, width: int) -> str:
        """Vectors of ``width``, a power of two of them, one after the other."""
        while len(parts) > 1:
            kind = f"<{width} x {one}>"
            pairs = zip(parts[::2], parts[1::2], strict=True)
            places = shuffle_mask(range(2 * width))
            parts = [
                self.named(f"shufflevector {kind} {a}, {kind} {b}, {places}") for a, b in pairs
            ]
            width *= 2
        return parts[0]

    def store(self, i: Store) -> None:
        dtype, lanes = i.vtype.dtype, i.vtype.lanes
        raw = self.to_memory(self.value(i.value), i.vtype)
        mask = None if i.mask is None else self.value(i.mask)
        if lanes == 1:
            self.store_scalar(self.address(i.buffer, i.offset), raw, dtype, mask)
        elif i.offset.coefficient(i.lane) == 1:
            base = i.offset.at({i.lane: 0})
            address = self.address(i.buffer, base)
            # parameters and scratch are 64-byte aligned, so an offset in whole vectors is aligned
            # too
            whole = base.const % lanes == 0 and all(c % lanes == 0 for _, c in base.terms)
            if (
                i.stream
                and mask is None
                and whole
                and not dtype.is_bool
                and lanes * dtype.itemsize <= ALIGN
            ):
                self.streams = True
                t = f"<{lanes} x {memory_type(dtype)}>"
                self.emit(
                    f"store {t} {raw}, ptr {address}, align {lanes * dtype.itemsize}, "
                    "!nontemporal !0"
                )
            else:
                self.store_vector(address, raw, dtype, lanes, mask)
        else:
            for lane in range(lanes):
                address = self.address(i.buffer, i.offset.at({i.lane: lane}))
                piece = self.fresh()
                self.emit(
                    f"{piece} = extractelement <{lanes} x {memory_type(dtype)}> {raw}, i32 {lane}"
                )
                held = None if mask is None else self.extract_mask(mask, lanes, lane)
                self.store_scalar(address, piece, dtype, held)
