"""Program to WGSL: a workgroup for each iteration of the thread loops, an invocation for each of
the local ones.

    for m0 in 8 thread(8,1):  -->  let i_m0: i32 = group % 8; if (...) {
    %3 = x[4*n0+n1] f32x4     -->  let v3_0: f32 = b_x[4 * i_n0]; ... one a lane

Buffers are module-scope variables of group 0, bound in the order of ``c_family.arguments``. Memory
holds f32, i32 and u32, which every WebGPU has. There are no vectors: what is declared as scalars
can not be read as one. A load that a mask forbids reads element 0 instead, and drops it.

Integers wrap around by the language's own rules. Of floats it promises less than
docs/NUMERICS.md: a compiler may fuse, reorder, and assume that there is no NaN and no infinity.
"""

from __future__ import annotations

import numpy as np

from tunegrad.errors import CompileFailure, OutOfResources
from tunegrad.ir import program as p
from tunegrad.ir.dtypes import DType
from tunegrad.ir.expr import Op
from tunegrad.ir.pipelines import expand_pipelines
from tunegrad.ir.program import Alloc, Program
from tunegrad.ir.target import Target

from .c_dialect import Dialect
from .c_family import CPrinter, arguments, fixed, kernel_name
from .c_index import fits_32_bits, passes_32_bits
from .wgsl_helpers import helpers

__all__ = ["WEBGPU", "render_wgsl"]

WEBGPU = Target(
    name="webgpu",
    kind="gpu",
    arch="wgsl",
    vector_bytes=4,
    registers=64,
    shared_bytes=16 << 10,
    max_local=256,
    view_bytes=256,
    max_buffers=8,
    max_groups=65535,
    max_buffer_bytes=128 << 20,
)
"""Limits that every WebGPU device has: the defaults (W3C WebGPU, "Limits")."""

_VALUES = {"bool": "bool", "i32": "i32", "u32": "u32", "f32": "f32"}
_STORED = {name: name for name in ("i32", "u32", "f32")}

_WGSL = Dialect(
    name="wgsl",
    kernel="@compute @workgroup_size(ITEMS)\nfn",
    global_space="storage",
    shared_space="workgroup",
    group_id="tg_group.x",
    local_id="tg_item",
    int_type="i32",
    truth=("false", "true"),
    wraps=True,
    values=_VALUES,
    stored=_STORED,
    helpers=helpers(),
    barrier=lambda global_too: f"{'storageBarrier(); ' if global_too else ''}workgroupBarrier();",
    function=lambda name, _: "abs" if name == "fabs" else str(name),
)


def render_wgsl(program: Program, target: Target = WEBGPU) -> str:
    """The program as one WGSL module; ``c_family`` says its ``kernel_name`` and ``arguments``.

    Raises CompileFailure for a dtype that WGSL has not and for an index that passes i32,
    OutOfResources for what is over a limit of the target.
    """
    expanded = expand_pipelines(program)
    _check_types(expanded)
    _check_limits(expanded, target)
    return _Printer(expanded, _WGSL).text()


def _check_types(program: Program) -> None:
    """Names the parameter where one is at fault, else the value."""

    def refuse(what: str, rule: str) -> None:
        raise CompileFailure(f"kernel {program.name}: {what}: {rule}")

    for b in (*arguments(program), *(a for a in program.allocs if a.space != "team")):
        if b.dtype.name not in _STORED:
            what = "scratch" if isinstance(b, Alloc) else "parameter"
            refuse(f"{what} {b.name} is {b.dtype}", f"memory of WGSL holds {', '.join(_STORED)}")
    for i in p.walk(program.body):
        if isinstance(i, p.Load | p.Store) and passes_32_bits(i.offset):
            refuse(f"an index of {i.buffer} passes 2**31", "indices of WGSL are i32")
        if isinstance(i, p.Test) or not isinstance(i, p.Valued):
            continue
        if i.vtype.dtype.name not in _VALUES:
            refuse(f"%{i.id} is {i.vtype.dtype}", f"values of WGSL are {', '.join(_VALUES)}")
    if not fits_32_bits(program):
        refuse("an index passes 2**31", "indices of WGSL are i32")


def _check_limits(program: Program, target: Target) -> None:
    given = arguments(program)
    shared = sum(a.size * a.dtype.itemsize for a in program.allocs if a.space == "shared")
    for have, most, what in (
        (len(given), target.max_buffers, "storage buffers"),
        (program.local, target.max_local, "work-items in a group"),
        (program.threads, target.max_groups, "groups"),
        (shared, target.shared_bytes, "bytes of shared memory"),
        *((b.size * b.dtype.itemsize, target.max_buffer_bytes, f"bytes of {b.name}")
          for b in given),
    ):  # fmt: skip
        if most and have > most:
            raise OutOfResources(
                f"kernel {program.name}: {have} {what}, target {target.name} has up to {most}"
            )


class _Printer(CPrinter):
    """C's printer with WGSL's syntax."""

    def text(self) -> str:
        d = self.dialect
        declared = [
            f"@group(0) @binding({n}) var<{d.global_space}, {_access(a)}> "
            f"{self._array(a.name, a.dtype, a.size)}"
            for n, a in enumerate(arguments(self.program))
        ]
        for a in self.program.allocs:
            if a.space == "shared":
                words = f"var<{d.shared_space}> {self._array(a.name, a.dtype, a.size)}"
                declared.append(words)
            elif a.space == "thread":
                self.line(f"var {self._array(a.name, a.dtype, a.size)}")
        self.line(self.constant(self.index_type, "group", f"i32({d.group_id})"))
        self.line(self.constant(self.index_type, "item", f"i32({d.local_id})"))
        self.block(self.program.body)
        kernel = d.kernel.replace("ITEMS", str(self.program.local))
        builtins = (
            "@builtin(workgroup_id) tg_group: vec3<u32>, "
            "@builtin(local_invocation_index) tg_item: u32"
        )
        head = f"{kernel} {kernel_name(self.program)}({builtins}) {{"
        return "\n".join([*declared, *self.helpers(), head, *self.lines, "}", ""])

    def _array(self, name: str, dtype: DType, size: int) -> str:
        return f"{self.buffers[name]}: array<{self.dialect.stored[dtype.name]}, {size}>;"

    # syntax

    def constant(self, kind: str, name: str, text: str) -> str:
        return f"let {name}: {kind} = {text};"

    def variables(self, kind: str, names: list[str]) -> str:
        return " ".join(f"var {name}: {kind};" for name in names)

    def choice(self, condition: str, yes: str, no: str) -> str:
        return f"select({no}, {yes}, {condition})"

    def cast(self, dtype: DType, text: str) -> str:
        return f"{self.dialect.values[dtype.name]}({text})"

    def loop(self, v: str, first: str, stop: str) -> str:
        return f"for (var {v}: i32 = {first}; {v} < {stop}; {v}++) {{"

    def literal(self, value: float | int | bool, dtype: DType) -> str:
        """Floats as f32 has them, since a text of more digits is refused; so is one that is no
        number, unless it is worked out when the program runs.
        """
        if not dtype.is_float:
            return super().literal(value, dtype)
        with np.errstate(over="ignore"):
            narrow = np.float32(value)
        if not np.isfinite(narrow):
            self.used.add("bits")
            return f"tg_bits({int(narrow.view(np.uint32)):#x}u)"
        return super().literal(float(narrow), dtype)

    # accesses

    def load(self, i: p.Load) -> None:
        buffer = self.buffers[i.buffer]

        def lane(k: int) -> str:
            at = self.place(i.buffer, fixed(i.offset, i.lane, k))
            if i.mask is None:
                return f"{buffer}[{at}]"
            mask = self.lane(i.mask, k)
            found = f"{buffer}[{self.choice(mask, at, '0')}]"
            return self.choice(mask, found, self.literal(0, i.vtype.dtype))

        self.define(i.id, i.vtype, lane)

    def store(self, i: p.Store) -> None:
        for k in range(i.vtype.lanes):
            at = self.place(i.buffer, fixed(i.offset, i.lane, k))
            text = f"{self.buffers[i.buffer]}[{at}] = {self.lane(i.value, k)};"
            self.line(text if i.mask is None else f"if ({self.lane(i.mask, k)}) {{ {text} }}")

    # operations

    def scalar(self, op: Op, args: list[str], dtype: DType, lanes: int = 1) -> str:
        """Truth values have no order and no exclusive or of their own, numbers without a sign no
        minus; erf is no function of the language, and its pow has no negative bases.
        """
        if dtype.is_bool and op is Op.XOR:
            return f"({args[0]} != {args[1]})"
        if dtype.is_bool and op is Op.LT:
            return f"(!{args[0]} & {args[1]})"
        if op is Op.NEG and not dtype.signed:
            return f"(0u - {args[0]})"
        if op is Op.ERF or (op is Op.POW and dtype.is_float):
            self.used.add(f"{op}_{dtype}")
            return f"tg_{op}_{dtype}({', '.join(args)})"
        return super().scalar(op, args, dtype, lanes)


def _access(a: p.Buffer | p.Pack | Alloc) -> str:
    writes = isinstance(a, Alloc) or (isinstance(a, p.Buffer) and a.role == "out")
    return "read_write" if writes else "read"
