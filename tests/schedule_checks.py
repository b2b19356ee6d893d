"""Schedules against their kernels: the program in the interpreter, and compiled on a real team of
threads.

Nothing is passed over silently: ``check`` says what was done, and ``TOTALS`` counts it for the end
of the test run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np

from tests.interpreter import interpret as interpret_program
from tests.interpreter import pack_buffers
from tests.verifiers.program import verify_program
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import BufferTable, Executable, Team
from tunegrad.ir.dtypes import DType
from tunegrad.ir.interpret.kernel import interpret as interpret_kernel
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import For, If, Instr, Program, size
from tunegrad.ir.target import Target
from tunegrad.opts import MAX_INSTRUCTIONS
from tunegrad.render.llvm import render_llvm, workspace_bytes

__all__ = [
    "COMPILED", "INTERPRETED", "TOO_LARGE", "TOTALS", "Arrays", "assert_agrees", "assert_close",
    "buffers_of", "check",
    "expected", "is_small", "run_compiled",
]  # fmt: skip

Arrays = dict[str, np.ndarray]
MOST_WORK = 2_000_000
INTERPRETED, COMPILED = "compared in the interpreter", "compiled, run and compared"
TOO_LARGE = "too large for the interpreter"
UNPROVED = "with accesses that are not proved in bounds: what checks them is the interpreter"
TOTALS: Counter[str] = Counter()
"""What the schedules of this test run came to."""


def data(dtype: DType, count: int, rng: np.random.Generator) -> np.ndarray:
    if dtype.is_float:
        return rng.standard_normal(count).astype(dtype.numpy)
    return rng.integers(-5, 6, count).astype(dtype.numpy)


def buffers_of(kernel: Kernel, program: Program, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    arrays = {
        p.name: np.zeros(p.size, p.dtype.numpy) if p.role == "out" else data(p.dtype, p.size, rng)
        for p in kernel.params
    }
    return pack_buffers(program, arrays)


def expected(kernel: Kernel, buffers: Arrays) -> Arrays:
    """The outputs, by the kernel's own interpreter."""
    return interpret_kernel(kernel, {k: v.copy() for k, v in buffers.items()})


def assert_close(got: Arrays, want: Arrays, what: str) -> None:
    for name, values in want.items():
        np.testing.assert_allclose(
            got[name].astype(np.float64),
            values.astype(np.float64),
            rtol=3e-5,
            atol=3e-5,
            err_msg=what,
        )


def assert_agrees(kernel: Kernel, program: Program, what: str, seed: int = 0) -> None:
    """The program does what its kernel says: in the interpreter, or compiled where it is too large
    for that.
    """
    assert check(kernel, program, what, seed) != (TOO_LARGE,), (
        f"{kernel.name}: nothing compared it: {what}"
    )


def check(
    kernel: Kernel, program: Program, what: str, seed: int = 0, *, compiled: bool = False
) -> tuple[str, ...]:
    """Compare a program with its kernel, and say how.

    Where it is small, in the interpreter, which stops at whatever the verifier could not prove.
    Compiled, on request or where it is large, is only what the interpreter ran, or what is proved
    to stay within its buffers.
    """
    unproved = verify_program(program)
    buffers = buffers_of(kernel, program, seed)
    want = expected(kernel, buffers)
    done: tuple[str, ...] = ()
    if is_small(program):
        ran = {name: values.copy() for name, values in buffers.items()}
        interpret_program(program, ran)
        assert_close(ran, want, f"{kernel}\n{what}")
        if program.overwritten:
            over = {name: values.copy() for name, values in buffers.items()}
            over.update({out: over[source] for source, out in program.overwritten.items()})
            interpret_program(program, over)
            _assert_same(over, ran, program, f"in place: {kernel}\n{what}")
        done = (INTERPRETED,)
    else:
        done = (TOO_LARGE,)
    if (compiled and INTERPRETED in done) or (
        TOO_LARGE in done and not unproved and program.local == 1
    ):
        assert size(program.body) <= MAX_INSTRUCTIONS, what
        apart = run_compiled(program, buffers)
        assert_close(apart, want, f"compiled: {kernel}\n{what}")
        if program.overwritten:
            over = run_compiled(program, buffers, in_place=True)
            _assert_same(over, apart, program, f"compiled, in place: {kernel}\n{what}")
        done += (COMPILED,)
    TOTALS.update((*done, UNPROVED) if unproved else done)
    return done


def _assert_same(got: Arrays, want: Arrays, program: Program, what: str) -> None:
    """Outputs have the same bits."""
    for b in program.params:
        if b.role == "out":
            same = got[b.name].view(np.uint8), want[b.name].view(np.uint8)
            np.testing.assert_array_equal(*same, err_msg=what)


def run_compiled(program: Program, given: Arrays, *, in_place: bool = False) -> Arrays:
    """The buffers after a run on this machine, on a team of as many threads as the program has.

    Outputs and scratch begin poisoned, and nothing may be written beside a buffer or to an input.
    ``in_place``: outputs are the memory of the inputs that they may lie over.
    """
    over = program.overwritten if in_place else {}
    held = {b.name: Buffer(b.size * b.dtype.numpy.itemsize) for b in program.params}
    held.update({out: held[source] for source, out in over.items()})
    for b in sorted(program.params, key=lambda b: b.role != "out"):  # what is poisoned goes first
        to = held[b.name].array(b.dtype.name)
        to[:] = given[b.name]
        if b.role == "out":
            to.view(np.uint8)[:] = 0x7E
    scratch = Buffer(workspace_bytes(program) + 64)
    scratch.bytes.fill(0x7E)
    image = compile_llvm(render_llvm(program), _host(), 1)
    table = BufferTable([held[b.name].address for b in program.params])
    with Executable.load(image, program.name) as code:
        _team(program.threads).run(code.address, table.address, scratch.address, program.threads)
    after = {b.name: held[b.name].array(b.dtype.name).copy() for b in program.params}
    for b in program.params:
        assert not held[b.name].check_guards(), b.name
        if b.role != "out" and b.name not in over:
            np.testing.assert_array_equal(after[b.name], given[b.name])
    return after


@cache
def _host() -> Target:
    return host_target(2)


@cache
def _team(threads: int) -> Team:
    return Team(threads)


def work(body: Sequence[Instr]) -> int:
    """Instructions that one thread runs at most."""
    total = 0
    for i in body:
        if isinstance(i, For):
            total += (1 if i.kind == "local" else i.extent) * (1 + work(i.body))
        else:
            total += 1 + (work(i.body) + work(i.orelse) if isinstance(i, If) else 0)
    return total


def is_small(program: Program) -> bool:
    """Whether the interpreter is through with it in seconds; copies staged in an innermost loop can
    take minutes.
    """
    return work(program.body) * program.local < MOST_WORK
