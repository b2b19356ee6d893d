"""Program to LLVM IR text, for a CPU.

    define void @NAME(ptr %buffers, ptr %workspace, i64 %tid, ptr %team)    one call a thread

loads the buffer pointers, carves the scratch out of the workspace and calls the body, whose
pointers are all ``noalias``. Vectors are explicit. Addresses are built outside in: the part of an
offset that an outer loop decides is computed in that loop, so LLVM has nothing to hoist. A register
is the value last written to it, or a phi where paths meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tunegrad.ir.program import (
    Alloc,
    Barrier,
    Buffer,
    Compute,
    Convert,
    Fold,
    For,
    If,
    Instr,
    Load,
    Number,
    Position,
    Program,
    Read,
    Register,
    Select,
    Splat,
    Store,
    Test,
    TileConfig,
    TileLoad,
    TileMul,
    TileStore,
    TileZero,
    Write,
    walk,
)
from tunegrad.ir.target import Target

from .llvm_access import ZEROS
from .llvm_flow import Flow, Held
from .llvm_index import Scope
from .llvm_memory import ALIGN
from .llvm_transpose import runs_of
from .llvm_values import literal, ltype, mask_type

__all__ = ["render_llvm", "workspace_bytes"]

_STAGGER = 192
"""Bytes between scratch buffers, so that equal offsets of two of them do not share a cache set."""


def _alloc_bytes(a: Alloc) -> int:
    return -(-a.size * a.dtype.itemsize // ALIGN) * ALIGN + _STAGGER


def workspace_bytes(program: Program) -> int:
    """Bytes of scratch that one launch needs: team buffers once, thread buffers per thread."""
    return sum(
        _alloc_bytes(a) * (program.threads if a.space == "thread" else 1) for a in program.allocs
    )


def render_llvm(program: Program, target: Target | None = None) -> str:
    """The LLVM IR module of a program; deterministic.

    Without a target it is one that every target can compile.
    """
    return _Renderer(program, target).module()


class _Renderer(Flow):
    def __init__(self, program: Program, target: Target | None) -> None:
        super().__init__(program, target)
        self.read_only = frozenset(b.name for b in program.params if b.role != "out")
        for i in walk(program.body):
            if isinstance(i, TileConfig):
                found = self.configurations
                found.setdefault(i.rows, f"@tg.tiles.{len(found)}")
        self._handlers = self._handled()

    # -- module

    def module(self) -> str:
        p = self.program
        name = p.name
        buffers: list[Buffer | Alloc] = [*p.params, *p.allocs]
        pre: list[str] = []
        self.scopes.append(Scope(pre, {}))
        self.out.append(pre)
        self.block(p.body)
        body = "\n".join([x if isinstance(x, str) else "\n".join(x) for x in self.out if x])
        args = ", ".join(
            [
                *(f"ptr noalias nocapture {self.pointer[b.name]}" for b in buffers),
                "i64 %tid",
                "ptr %team",
            ]
        )
        text = [
            f"define internal void @{name}.body({args}) noinline nounwind {{",
            "entry:",
            "  %sink = alloca <64 x i8>, align 64",
            *self.prologue(),
            body,
            *self.epilogue(),
            *(["  fence seq_cst"] if self.streams else []),
            "  ret void",
            "}",
            *self._wrapper(buffers),
            "declare void @tg_barrier(ptr)",
            f"@tg.zero = private unnamed_addr constant {ZEROS}, align {ALIGN}",
            *self.constants(),
            *(f"declare {d}" for d in sorted(self.declared)),
            *(self.defined[k] for k in sorted(self.defined)),
            *(["!0 = !{i32 1}"] if self.streams else []),
        ]
        return "\n".join(text) + "\n"

    def _wrapper(self, buffers: list[Buffer | Alloc]) -> list[str]:
        p = self.program
        lines = [
            f"define void @{p.name}(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) nounwind {{",
        ]
        names, offset = [], 0
        for i, b in enumerate(buffers):
            if isinstance(b, Buffer):
                lines.append(f"  %a{i} = getelementptr ptr, ptr %buffers, i64 {i}")
                lines.append(f"  %p{i} = load ptr, ptr %a{i}")
            elif b.space == "thread":
                lines.append(f"  %o{i} = mul i64 %tid, {_alloc_bytes(b)}")
                lines.append(f"  %q{i} = add i64 %o{i}, {offset}")
                lines.append(f"  %p{i} = getelementptr i8, ptr %workspace, i64 %q{i}")
                offset += _alloc_bytes(b) * p.threads
            else:
                lines.append(f"  %p{i} = getelementptr i8, ptr %workspace, i64 {offset}")
                offset += _alloc_bytes(b)
            names.append(f"ptr %p{i}")
        args = ", ".join([*names, "i64 %tid", "ptr %team"])
        return [*lines, f"  call void @{p.name}.body({args})", "  ret void", "}"]

    def block(self, body: tuple[Instr, ...]) -> None:
        groups = runs_of(body, self.read_only)
        if not groups:
            handlers = self._handlers
            for i in body:
                handlers[type(i)](i)
            return
        together = {load.id: group for group in groups for load in group}
        for i in body:
            if isinstance(i, Load) and i.id in together:
                if i.id not in self.names:
                    self.transposed(together[i.id])
            else:
                self.instr(i)

    def instr(self, i: Instr) -> None:
        self._handlers[type(i)](i)

    def _handled(self) -> dict[type, Callable[[Any], None]]:
        """The method that emits each type of instruction."""
        return {
            Compute: self.compute, Load: self.load, Read: self._read, Write: self._write,
            Splat: self._splat,
            Store: self.store, Register: self._register, Number: self._number, For: self.loop,
            If: self.branch,
            Convert: self.convert, Fold: self.fold, Select: self._select, Position: self.position,
            Test: self.test,
            Barrier: self._barrier, TileConfig: self.tile_config, TileZero: self.tile_zero,
            TileLoad: self.tile_load, TileMul: self.tile_mul, TileStore: self.tile_store,
        }  # fmt: skip

    def _read(self, i: Read) -> None:
        self.names[i.id], self.types[i.id] = self.registers[i.name].value, i.vtype

    def _write(self, i: Write) -> None:
        self.registers[i.name] = Held(ltype(i.vtype), self.names[i.value])

    def _splat(self, i: Splat) -> None:
        self.bind(i.id, i.vtype, self.splat(self.value(i.arg), i.vtype))

    def _register(self, i: Register) -> None:
        self.registers[i.name] = Held(ltype(i.vtype), "poison")

    def _number(self, i: Number) -> None:
        self.bind(i.id, i.vtype, literal(i.value, i.vtype))

    def _select(self, i: Select) -> None:
        kind, mask = ltype(i.vtype), f"{mask_type(i.vtype.lanes)} {self.value(i.mask)}"
        self.define(
            i.id, i.vtype, f"select {mask}, {kind} {self.value(i.yes)}, {kind} {self.value(i.no)}"
        )

    def _barrier(self, _: Barrier) -> None:
        if self.program.threads > 1:
            self.emit("call void @tg_barrier(ptr %team)")
