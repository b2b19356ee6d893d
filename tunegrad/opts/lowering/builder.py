"""Collects instructions: value ids, nested blocks, and what each block already computed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from tunegrad.errors import InternalError
from tunegrad.ir.dtypes import BOOL, DType
from tunegrad.ir.expr import Op
from tunegrad.ir.index import Index, Valid
from tunegrad.ir.program import (
    Compute,
    Convert,
    Fold,
    Instr,
    Load,
    Number,
    Position,
    Read,
    Register,
    Select,
    Splat,
    Store,
    Test,
    VType,
    Write,
)

_LINE = 64
"""Bytes of a cache line."""

Known = tuple[int, int]
"""A value id and its lanes."""


class Builder:
    """A stack of open blocks.

    Values computed in a block are known in the blocks inside it, and nowhere else.
    """

    def __init__(self) -> None:
        self.next_id = 0
        self.blocks: list[list[Instr]] = [[]]
        self.known: dict[Hashable, Known] = {}
        self.added: list[list[Hashable]] = [[]]

    def open(self) -> None:
        self.blocks.append([])
        self.added.append([])

    def close(self) -> tuple[Instr, ...]:
        for key in self.added.pop():
            del self.known[key]
        return tuple(self.blocks.pop())

    def add(self, instr: Instr) -> None:
        self.blocks[-1].append(instr)

    def extend(self, body: Iterable[Instr]) -> None:
        self.blocks[-1].extend(body)

    def read(self, register: str, vtype: VType) -> Known:
        """The value of a register now."""
        i = self.new()
        self.add(Read(i, register, vtype))
        return i, vtype.lanes

    def register(self, name: str, vtype: VType, value: float | int | bool) -> None:
        """Declare a register that holds a number in every lane."""
        self.add(Register(name, vtype))
        self.add(Write(name, self.number(value, vtype.dtype, vtype.lanes), vtype))

    def new(self) -> int:
        self.next_id += 1
        return self.next_id

    def find(self, key: Hashable) -> Known | None:
        return self.known.get(key)

    def remember(self, key: Hashable, value: Known) -> Known:
        """Keep a value for this block and those inside it; ``key`` must not be known yet."""
        self.known[key] = value
        self.added[-1].append(key)
        return value

    def number(self, value: float | int | bool, dtype: DType, lanes: int = 1) -> int:
        value = bool(value) if dtype.is_bool else value
        key = ("number", repr(value), dtype, lanes)
        found = self.find(key)
        if found is not None:
            return found[0]
        i = self.new()
        self.add(Number(i, value, VType(dtype, lanes)))
        return self.remember(key, (i, lanes))[0]

    def splat(self, value: Known, dtype: DType, lanes: int) -> int:
        """The value with ``lanes`` lanes."""
        i, have = value
        if have == lanes:
            return i
        if have != 1:
            raise InternalError(f"value %{i} has {have} lanes where {lanes} are needed")
        key = ("splat", i, lanes)
        found = self.find(key)
        if found is not None:
            return found[0]
        new = self.new()
        self.add(Splat(new, i, VType(dtype, lanes)))
        return self.remember(key, (new, lanes))[0]

    def test(self, valid: Valid, lane: str, lanes: int) -> Known:
        """A bool that is true where ``valid`` holds; per lane when it depends on ``lane``."""
        per_lane = bool(lane) and lane in valid.names()
        width = lanes if per_lane else 1
        key = ("test", valid, width)
        found = self.find(key)
        if found is not None:
            return found
        i = self.new()
        self.add(Test(i, valid, width, lane if per_lane else ""))
        return self.remember(key, (i, width))

    def load(
        self,
        buffer: str,
        offset: Index,
        valid: Valid,
        dtype: DType,
        lane: str,
        lanes: int,
        ahead: int = 0,
    ) -> Known:
        """``buffer[offset]``, a vector when the offset or the condition depends on the lane.

        ``ahead``: the bytes behind which a line is asked for, once for the loads of a line.
        """
        if valid.never:
            return self.number(0.0 if dtype.is_float else 0, dtype), 1
        key = ("load", buffer, offset, valid)
        found = self.find(key)
        if found is not None:
            return found
        wide = bool(lane) and (lane in offset.names() or lane in valid.names())
        width = lanes if wide else 1
        mask = None
        if not valid.always:
            mask = self.splat(self.test(valid, lane, lanes), BOOL, width)
        i, t = self.new(), VType(dtype, width)
        if ahead:
            line = ("ahead", buffer, offset.terms, offset.const * dtype.itemsize // _LINE)
            ahead = 0 if self.find(line) else ahead
            if ahead:
                self.remember(line, (i, width))
        self.add(Load(i, buffer, offset, t, lane if wide else "", mask, ahead))
        return self.remember(key, (i, width))

    def store(
        self,
        buffer: str,
        offset: Index,
        valid: Valid,
        value: Known,
        dtype: DType,
        lane: str,
        lanes: int,
        stream: bool = False,
    ) -> None:
        """``buffer[offset] = value``; a vector store when there is a lane loop."""
        if valid.never:
            return
        mask = None if valid.always else self.splat(self.test(valid, lane, lanes), BOOL, lanes)
        wide = lanes > 1
        whole, t = self.splat(value, dtype, lanes), VType(dtype, lanes)
        self.add(Store(buffer, offset, whole, t, lane if wide else "", mask, stream and wide))

    def compute(self, op: Op, args: list[Known], dtypes: list[DType], dtype: DType) -> Known:
        lanes = max([w for _, w in args])
        ids = tuple(
            [
                a[0] if a[1] == lanes else self.splat(a, t, lanes)
                for a, t in zip(args, dtypes, strict=True)
            ]
        )
        i = self.new()
        self.add(Compute(i, op, ids, VType(dtype, lanes)))
        return i, lanes

    def convert(self, value: Known, dtype: DType) -> Known:
        i = self.new()
        self.add(Convert(i, value[0], VType(dtype, value[1])))
        return i, value[1]

    def position(self, index: Index, dtype: DType, lane: str, lanes: int) -> Known:
        wide = bool(lane) and lane in index.names()
        i = self.new()
        self.add(Position(i, index, VType(dtype, lanes if wide else 1), lane if wide else ""))
        return i, lanes if wide else 1

    def select(self, mask: Known, yes: Known, no: Known, dtype: DType) -> Known:
        lanes = max(mask[1], yes[1], no[1])
        i = self.new()
        chosen = self.splat(mask, BOOL, lanes)
        sides = self.splat(yes, dtype, lanes), self.splat(no, dtype, lanes)
        self.add(Select(i, chosen, *sides, VType(dtype, lanes)))
        return i, lanes

    def fold(self, op: Op, value: Known, dtype: DType) -> Known:
        i = self.new()
        self.add(Fold(i, op, value[0], VType(dtype)))
        return i, 1
