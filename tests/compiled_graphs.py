"""Many small graphs compiled together: kernels of equal text once, a few hundred in one module.

A graph whose compiled values are not numpy's is cut down to a small one that still fails, and
printed as a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from tests.graph_builders import held
from tests.interpreter import pack_buffers
from tunegrad.devices.host.codegen import OptLevel, compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.loader import Library
from tunegrad.devices.host.team import BufferTable, Team, barrier_address
from tunegrad.ir import graph as g
from tunegrad.ir.expr import Op
from tunegrad.ir.fusion import LaunchPlan, schedule
from tunegrad.ir.graph import GraphOp, Node
from tunegrad.ir.interpret.evaluate import evaluate
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import Program
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.opts import Schedule, Space
from tunegrad.render.llvm import render_llvm, workspace_bytes

__all__ = ["Case", "CompiledKernels", "agrees", "as_test", "check_cases", "shrunk"]

Array = NDArray[np.generic]
TARGET = host_target(2)
GUARD, POISON = 64, 0x7E
DEFINED = re.compile(r"^define [^\n]*\{\n.*?^\}$|^[^\n]+$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Case:
    """A graph and the values of its inputs."""

    outputs: tuple[Node, ...]
    inputs: dict[str, Array]


def joined(texts: Sequence[str], name: str) -> str:
    """One module of many that each define the kernel ``name``: as ``name.0``, ``name.1`` and so on.

    What all of them define alike (functions of arithmetic, constants) stands there once; each has
    the zeros that its own padding reads.
    """
    parts: dict[str, None] = {}
    for i, text in enumerate(texts):
        own = re.sub(rf"@({name}|tg\.zero)\b", rf"@\1.{i}", text)
        parts.update(dict.fromkeys(DEFINED.findall(own)))
    return "\n".join(parts) + "\n"


class CompiledKernels:
    """Programs of kernels, and their code, each compiled once: by default schedules, or all by the
    one that ``actions`` says.
    """

    def __init__(self, level: OptLevel, actions: str = "") -> None:
        self.level, self.actions = level, actions
        self.programs: dict[str, Program] = {}
        self.addresses: dict[str, int] = {}
        self.loaded: list[Library] = []

    def add(self, kernels: Sequence[Kernel]) -> None:
        """Compile those that are new, in one module."""
        new = {k.key: k for k in kernels if k.key not in self.programs}
        if not new:
            return
        programs = []
        for kernel in new.values():
            space = Space(kernel, TARGET)
            asked = [Schedule.parse(self.actions)] if self.actions else space.defaults()
            programs.append(space.lower(next(iter(asked))))
        name = programs[0].name
        assert all(p.name == name for p in programs)
        image = compile_llvm(
            joined([render_llvm(p, TARGET) for p in programs], name), TARGET, self.level
        )
        symbols = [f"{name}.{i}" for i in range(len(programs))]
        library = Library(image, symbols, {"tg_barrier": barrier_address()})
        self.loaded.append(library)
        for key, program, symbol in zip(new, programs, symbols, strict=True):
            self.programs[key] = program
            self.addresses[key] = library.addresses[symbol]

    def launch(self, kernel: Kernel, arrays: dict[str, Array]) -> dict[str, Array]:
        """The outputs of a kernel; they begin poisoned, and nothing beside them is written."""
        program = self.programs[kernel.key]
        outs = {p.name: np.zeros(p.size, p.dtype.numpy) for p in kernel.params if p.role == "out"}
        given = pack_buffers(program, {**arrays, **outs})
        held = [guarded(given[b.name].nbytes) for b in program.params]
        for b, memory in zip(program.params, held, strict=True):
            if b.role != "out":
                memory[GUARD:-GUARD] = given[b.name].view(np.uint8).reshape(-1)
        scratch = guarded(workspace_bytes(program))
        table = BufferTable([m.ctypes.data + GUARD for m in held])
        address = self.addresses[kernel.key]
        team().run(address, table.address, scratch.ctypes.data + GUARD, program.threads)
        for m in (*held, scratch):
            assert (m[:GUARD] == POISON).all(), kernel
            assert (m[-GUARD:] == POISON).all(), kernel
        inside = {b.name: m[GUARD:-GUARD] for b, m in zip(program.params, held, strict=True)}
        return {name: inside[name].view(want.dtype) for name, want in outs.items()}

    def run(self, plan: LaunchPlan, inputs: dict[str, Array]) -> list[Array]:
        """The outputs of a plan whose kernels were added."""
        memory: dict[int, Array] = {}
        for b in plan.buffers:
            if b.role == "input":
                memory[b.id] = b.layout.pack(inputs[b.name])
            elif b.data is not None:
                memory[b.id] = b.layout.pack(b.data.array)
            elif not b.layout.size:
                memory[b.id] = np.zeros(0, b.dtype.numpy)
        for launch in plan.launches:
            params = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
            reads = {
                p.name: held(plan, memory, params[p.name])
                for p in launch.kernel.params
                if p.role != "out"
            }
            for name, flat in self.launch(launch.kernel, reads).items():
                memory[params[name]] = flat
        return [plan.buffers[i].layout.unpack(memory[i]) for i in plan.outputs]


@cache
def team() -> Team:
    return Team(TARGET.threads)


def guarded(nbytes: int) -> NDArray[np.uint8]:
    """Poisoned bytes between two guards, aligned as buffers of models are."""
    memory = np.full(nbytes + 2 * GUARD + 64, POISON, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + nbytes + 2 * GUARD]


def same(code: CompiledKernels, plan: LaunchPlan, case: Case) -> bool:
    """True if the outputs are right. Elements that jump where inputs move by some units in the last
    place, as a comparison of equal numbers, may be any of those that they jump between; a number
    that is not whole may lie between them, where a small difference of large ones is scaled up.
    """
    near: list[Sequence[Array]] = []
    wanted = evaluate(case.outputs, case.inputs)
    for place, (got, want) in enumerate(zip(code.run(plan, case.inputs), wanted, strict=True)):
        if got.dtype != want.dtype or got.shape != want.shape:
            return False
        if not (right := _close(got, want)).all():
            near = near or [evaluate(case.outputs, moved) for moved in _moved(case.inputs)]
            if not (right | _among(got, [want, *(n[place] for n in near)])).all():
                return False
    return True


def _close(a: Array, b: Array) -> NDArray[np.bool_]:
    return np.isclose(a.astype(np.float64), b.astype(np.float64), 2e-5, 2e-5, equal_nan=True)


def _among(got: Array, results: Sequence[Array]) -> NDArray[np.bool_]:
    """Where elements are those of a result, or of floats between the least and the largest."""
    found = np.logical_or.reduce([_close(got, r) for r in results])
    if got.dtype.kind != "f":
        return np.asarray(found)
    return np.asarray(found | (got >= np.fmin.reduce(results)) & (got <= np.fmax.reduce(results)))


def _moved(inputs: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """The inputs, each time moved by up to eight units."""
    for seed in range(8):
        draw = np.random.default_rng(seed)
        yield {
            name: x * (1 + draw.uniform(-(2.0**-20), 2.0**-20, x.shape)).astype(x.dtype)
            if x.dtype.kind == "f"
            else x
            for name, x in inputs.items()
        }


def agrees(case: Case, level: OptLevel = 1) -> bool:
    """Whether a graph, compiled by itself, computes what it means."""
    plan, code = schedule(case.outputs), CompiledKernels(level)
    code.add([x.kernel for x in plan.launches])
    return same(code, plan, case)


def check_cases(cases: Sequence[Case], code: CompiledKernels) -> int:
    """Compile the cases' kernels together, and compare each case: how many launches ran.

    Raises AssertionError with a small failing test.
    """
    plans = [schedule(c.outputs) for c in cases]
    kernels = [x.kernel for p in plans for x in p.launches]
    for kernel in kernels:
        verify_kernel(kernel)
    code.add(kernels)
    for plan, case in zip(plans, cases, strict=True):
        if not same(code, plan, case):
            raise AssertionError(as_test(shrunk(case, lambda c: not agrees(c, code.level))))
    return len(kernels)


def cut(case: Case, at: Node) -> Case:
    """``at`` as an input that holds its values."""
    (values,) = evaluate((at,), case.inputs)
    taken = {str(n.arg) for n in g.topological(case.outputs) if n.op is GraphOp.INPUT}
    name = next(c for i in count(len(case.inputs)) if (c := f"cut{i}") not in taken)
    new: dict[Node, Node] = {}
    for n in g.topological(case.outputs):
        srcs = tuple(new[s] for s in n.srcs)
        new[n] = (
            g.graph_input(name, n.shape, n.dtype)
            if n is at
            else Node(n.op, srcs, n.arg, n.shape, n.dtype)
        )
    outputs = tuple(new[o] for o in case.outputs)
    named = {str(n.arg) for n in g.topological(outputs) if n.op is GraphOp.INPUT}
    inputs = {**case.inputs, name: values}
    return Case(outputs, {k: v for k, v in inputs.items() if k in named})


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """A smaller graph that fails as well: one output, then from earlier nodes, then with values in
    place of nodes.
    """
    smaller = True
    while smaller:
        nodes = g.topological(case.outputs)
        tried = [Case((n,), case.inputs) for n in nodes if case.outputs != (n,)]
        tried += [cut(case, n) for n in reversed(nodes) if n.srcs and n not in case.outputs]
        size = len(nodes)
        found = (c for c in tried if len(g.topological(c.outputs)) < size and fails(c))
        best = next(found, None)
        smaller = best is not None
        case = best or case
    return case


def as_test(case: Case) -> str:
    """The case as Python that can be pasted beside the fuzzers."""
    nodes = g.topological(case.outputs)
    names = {n: f"n{i}" for i, n in enumerate(nodes)}
    lines = ["def test_compiled_graph_agrees() -> None:"]
    for n in nodes:
        srcs = "".join(f"{names[s]}, " for s in n.srcs)
        arg = f"Op.{n.arg.name}" if isinstance(n.arg, Op) else repr(n.arg)
        dtype = n.dtype.name.upper()
        made = f"Node(GraphOp.{n.op.name}, ({srcs}), {arg}, {n.shape}, {dtype})"
        lines.append(f"    {names[n]} = {made}")
    used = [str(n.arg) for n in nodes if n.op is GraphOp.INPUT]
    lines.append("    inputs = {")
    for name in used:
        v = case.inputs[name]
        flat = f"np.array({v.reshape(-1).tolist()}, np.{v.dtype}).reshape{v.shape}"
        lines.append(f"        {name!r}: {flat},")
    outputs = "".join(f"{names[o]}, " for o in case.outputs)
    return "\n".join([*lines, "    }", f"    assert agrees(Case(({outputs}), inputs))"])
