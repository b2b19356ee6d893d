"""LLVM IR of loads and stores of one address."""

from __future__ import annotations

from tunegrad.ir.dtypes import DType
from tunegrad.ir.program import VType

from .llvm_ops import Ops
from .llvm_values import ltype, memory_type, suffix_of

__all__ = ["ZEROS", "Accesses"]

_ZERO_BYTES = 64
ZEROS = f"[{_ZERO_BYTES} x i8] zeroinitializer"
"""The contents of ``@tg.zero``."""


class Accesses(Ops):
    """Turns accesses of one element, or of neighbours, into text."""

    def load_scalar(self, address: str, dtype: DType, mask: str | None) -> str:
        """One element; where the mask is false, the zero that stands at a fixed address."""
        if mask is not None:
            address = self._or_zero(address, mask)
        name = self.fresh()
        self.emit(f"{name} = load {memory_type(dtype)}, ptr {address}, align {dtype.itemsize}")
        return name

    def _or_zero(self, address: str, mask: str) -> str:
        return self.named(f"select i1 {mask}, ptr {address}, ptr @tg.zero")

    def load_vector(self, address: str, dtype: DType, lanes: int, mask: str | None) -> str:
        """Neighbours; where the mask is false, zeros.

        A mask that is one condition for all lanes chooses the address: of a masked load without
        lanes beyond a buffer, where no page is, the processor takes hundreds of cycles.
        """
        t = f"<{lanes} x {memory_type(dtype)}>"
        if mask in self.splatted and lanes * dtype.itemsize <= _ZERO_BYTES:
            address, mask = self._or_zero(address, self.splatted[mask]), None
        name = self.fresh()
        if mask is None:
            self.emit(f"{name} = load {t}, ptr {address}, align {dtype.itemsize}")
        else:
            suffix = suffix_of(memory_type(dtype), lanes)
            args = [
                ("ptr", address),
                ("i32", str(dtype.itemsize)),
                (f"<{lanes} x i1>", mask),
                (t, "zeroinitializer"),
            ]
            self.declared.add(
                f"{t} @llvm.masked.load.{suffix}.p0(ptr, i32 immarg, <{lanes} x i1>, {t})"
            )
            listed = ", ".join(f"{a} {v}" for a, v in args)
            self.emit(f"{name} = call {t} @llvm.masked.load.{suffix}.p0({listed})")
        return name

    def store_scalar(self, address: str, raw: str, dtype: DType, mask: str | None) -> None:
        if mask is not None:
            chosen = self.fresh()
            self.emit(f"{chosen} = select i1 {mask}, ptr {address}, ptr %sink")
            address = chosen
        self.emit(f"store {memory_type(dtype)} {raw}, ptr {address}, align {dtype.itemsize}")

    def store_vector(
        self, address: str, raw: str, dtype: DType, lanes: int, mask: str | None
    ) -> None:
        t = f"<{lanes} x {memory_type(dtype)}>"
        if mask is None:
            self.emit(f"store {t} {raw}, ptr {address}, align {dtype.itemsize}")
            return
        single = _single_lane(mask)
        if (
            single is not None
        ):  # LLVM 22 stores too many bytes of a truncated vector under a constant mask of one lane
            one = memory_type(dtype)
            piece = self.named(f"extractelement {t} {raw}, i32 {single}")
            self.emit(
                f"store {one} {piece}, ptr {self._lane_address(address, one, single)}, align "
                f"{dtype.itemsize}"
            )
            return
        suffix = suffix_of(memory_type(dtype), lanes)
        self.declared.add(
            f"void @llvm.masked.store.{suffix}.p0({t}, ptr, i32 immarg, <{lanes} x i1>)"
        )
        self.emit(
            f"call void @llvm.masked.store.{suffix}.p0({t} {raw}, ptr {address}, i32 "
            f"{dtype.itemsize}, "
            f"<{lanes} x i1> {mask})"
        )

    def _lane_address(self, address: str, one: str, lane: int) -> str:
        return (
            address if lane == 0 else self.named(f"getelementptr {one}, ptr {address}, i64 {lane}")
        )

    def from_memory(self, raw: str, t: VType) -> str:
        """A loaded element as a value: bytes become bools."""
        if not t.dtype.is_bool:
            return raw
        name = self.fresh()
        kind = "i8" if t.lanes == 1 else f"<{t.lanes} x i8>"
        zero = "0" if t.lanes == 1 else "zeroinitializer"
        self.emit(f"{name} = icmp ne {kind} {raw}, {zero}")
        return name

    def to_memory(self, value: str, t: VType) -> str:
        if not t.dtype.is_bool:
            return value
        name = self.fresh()
        kind = "i8" if t.lanes == 1 else f"<{t.lanes} x i8>"
        self.emit(f"{name} = zext {ltype(t)} {value} to {kind}")
        return name


def _single_lane(mask: str) -> int | None:
    """The only lane of a constant mask."""
    lanes = mask.removeprefix("<").removesuffix(">").split(", ") if mask.startswith("<") else []
    held = [i for i, lane in enumerate(lanes) if lane == "i1 true"]
    return held[0] if len(held) == 1 and lanes.count("i1 false") == len(lanes) - 1 else None
