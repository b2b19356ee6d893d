"""Registers of a program are values of the LLVM text: no memory, and a phi where paths meet."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import BufferTable, Executable
from tunegrad.ir.dtypes import F32
from tunegrad.ir.expr import Op
from tunegrad.ir.index import Range, Valid, as_index, var
from tunegrad.ir.program import Buffer as Param
from tunegrad.ir.program import (
    Compute,
    For,
    If,
    Load,
    Number,
    Program,
    Read,
    Register,
    Store,
    VType,
    Write,
)
from tunegrad.render.llvm import render_llvm

ONE = VType(F32)


def added(first: int, offset) -> tuple:
    """``r += a[offset]``, with value ids from ``first`` on."""
    return (
        Read(first, "r", ONE),
        Load(first + 1, "a", offset, ONE),
        Compute(first + 2, Op.ADD, (first, first + 1), ONE),
        Write("r", first + 2, ONE),
    )


def program(*middle) -> Program:
    """``out[n] = r`` for n in 4, where r starts at 0 and ``middle`` changes it."""
    body = (
        Register("r", ONE), Number(1, 0.0, ONE), Write("r", 1, ONE), *middle,
        Read(2, "r", ONE), Store("out", var("n", 4), 2, ONE),
    )  # fmt: skip
    params = (Param("out", F32, 4, "out"), Param("a", F32, 64, "in"))
    return Program("kernel", params, (), (), (For("n", 4, (as_index(4),), body),))


def run(text: str) -> list[float]:
    """What the program gives for a = 0, 1, 2 ..."""
    out, a = Buffer(16), Buffer(256)
    a.array("f32")[:] = np.arange(64)
    table = BufferTable([out.address, a.address])
    with Executable.load(compile_llvm(text, host_target(1), 1), "kernel") as kernel:
        entry = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
        )
        entry(kernel.address)(table.address, 0, 0, None)
    return out.array("f32").tolist()


k, j = var("k", 8), var("j", 3)
n = var("n", 4)
SUM = For("k", 8, (as_index(8),), added(10, k))
MAYBE = For("k", 8, (as_index(8), n * 2), added(10, k))  # not once for n = 0
NESTED = For("j", 3, (as_index(3),), (For("k", 8, (as_index(8), j + n), added(10, k + j * 8)),))
CASES = {
    "loop": ((SUM,), lambda n: sum(range(8))),
    "loop that may not run": ((MAYBE,), lambda n: sum(range(2 * n))),
    "loops": ((NESTED,), lambda n: sum(8 * j + k for j in range(3) for k in range(j + n))),
    "branch": ((If(Valid((Range(n, 1, 3),)), added(10, n)),), lambda n: n if 1 <= n < 3 else 0),
    "two sides": (
        (If(Valid((Range(n, 1, 3),)), added(10, n), (SUM, *added(20, as_index(50)))),),
        lambda n: n if 1 <= n < 3 else 28 + 50,
    ),
    "loop in a branch": (
        (If(Valid((Range(n, 2, 4),)), (MAYBE,)), *added(20, n)),
        lambda n: n + (n > 1) * sum(range(2 * n)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_registers_hold_what_was_last_written(name):
    middle, expected = CASES[name]
    assert run(render_llvm(program(*middle))) == [expected(i) for i in range(4)]


def test_registers_take_no_memory():
    text = render_llvm(program(SUM))
    assert "alloca float" not in text
    assert "phi float" in text


def test_registers_that_a_loop_declares_need_no_phi():
    inner = (
        Register("s", ONE),
        Number(10, 1.0, ONE),
        Write("s", 10, ONE),
        Read(11, "s", ONE),
        Write("r", 11, ONE),
    )
    text = render_llvm(program(For("k", 8, (as_index(8),), inner)))
    assert text.count("phi float") == 1
    assert run(text) == [1.0] * 4


@pytest.mark.parametrize(("count", "kept"), [(8, False), (9, True)])
def test_registers_that_are_spilled_are_kept_aligned(count: int, kept: bool) -> None:
    """More than half as many as the target has: the sums before a block are as many again."""
    more = tuple(Register(f"s{i}", ONE) for i in range(count - 1))
    text = render_llvm(program(*more, SUM), replace(host_target(1), registers=16))
    assert ('"stackrealign"' in text) == kept
    assert run(text) == [28.0] * 4
