"""Candidates as LLVM IR text, one good and many bad: out[i] = x[i] + y[i] over 1000 floats."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tunegrad.devices.job import Candidate, Geometry, KernelIO, Lowered, Parameter, Reference
from tunegrad.trial import Policy

N = 1000
QUICK = Policy(min_samples=3, max_samples=5, budget_s=0.02, timeout_s=10.0)
SHORT = replace(QUICK, timeout_s=1.0)
"""For a candidate that never ends; another one may wait longer for a core of a busy machine."""

IO = KernelIO(
    (Parameter("x", "f32", N, "in"), Parameter("y", "f32", N, "const"),
        Parameter("out", "f32", N, "out"))
)  # fmt: skip

_TEXT = """
declare void @abort()
declare ptr @malloc(i64)
declare i64 @write(i32, ptr, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @tg_barrier(ptr)
define void @k(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) {{
entry:
  %x = load ptr, ptr %buffers
  %yp = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %yp
  %op = getelementptr ptr, ptr %buffers, i64 2
  %out = load ptr, ptr %op
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %xi = getelementptr float, ptr %x, i64 %i
  %a = load float, ptr %xi
  %yi = getelementptr float, ptr %y, i64 %i
  %b = load float, ptr %yi
  %sum = fadd float %a, %b
  %oi = getelementptr float, ptr %out, i64 %i
  store float %sum, ptr %oi
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {count}
  br i1 %more, label %loop, label %tail
tail:
{tail}
  ret void
}}
"""


def text(tail: str = "", count: int = N) -> str:
    return _TEXT.format(tail=tail, count=count)


GOOD = text()
ENDLESS = _TEXT.format(count=N, tail="").replace(
    "%more, label %loop, label %tail", "true, label %loop, label %tail"
)
for _name in ("x", "y", "out"):  # stay on the first element
    ENDLESS = ENDLESS.replace(f"float, ptr %{_name}, i64 %i", f"float, ptr %{_name}, i64 0")
CRASH = text("  store volatile i32 1, ptr null")
ABORT = text("  call void @abort()")
PAST_THE_END = text(count=N + 1)
BEFORE_THE_START = text(
    "  %before = getelementptr float, ptr %out, i64 -1\n  store float 1.0, ptr %before"
)
WRITES_INPUT = text("  store float 1.0, ptr %x")
WRITES_CONSTANT = text("  store float 1.0, ptr %y")
WRONG = text("  %w = getelementptr float, ptr %out, i64 7\n  store float 1.0e6, ptr %w")
NAN = text("  %w = getelementptr float, ptr %out, i64 9\n  store float 0x7FF8000000000000, ptr %w")
UNWRITTEN = text(count=N - 1)
BAD_IR = text("  %z = fadd float %sum, %nothing")
NO_SYMBOL = GOOD.replace("@k(", "@other(")
# Sums the garbage it finds in its workspace into the result: only fresh, poisoned scratch memory
# shows it.
UNINITIALISED = text(
    "  %g = load float, ptr %workspace\n  %first = load float, ptr %out\n"
    "  %gg = fadd float %first, %g\n  store float %gg, ptr %out"
)


# Gives itself the right to write to x, and spoils it for its next launch, and for who comes after
# it.
OPENS_ITS_INPUT = "declare i32 @mprotect(ptr, i64, i32)\n" + text(
    "  %at = ptrtoint ptr %x to i64\n  %page = and i64 %at, -4096\n  %where = inttoptr "
    "i64 %page to ptr\n"
    "  %may = call i32 @mprotect(ptr %where, i64 4096, i32 3)\n  store float 1.0e6, ptr %x"
)
# Takes and touches 64 MiB at a time, to the end of the world.
HOARD = text(
    "  br label %more2\nmore2:\n  %m = call ptr @malloc(i64 67108864)\n"
    "  call void @llvm.memset.p0.i64(ptr %m, i8 1, i64 67108864, i1 true)\n  br label "
    "%more2\nnever:"
)


def flood(descriptor: int, lines: int = 20_000) -> str:
    """Writes that many times 4,000 bytes of its input to a descriptor, and is right otherwise."""
    return text(
        "  br label %again\nagain:\n  %n = phi i64 [ 0, %tail ], [ %n1, %again ]\n"
        f"  %w = call i64 @write(i32 {descriptor}, ptr %x, i64 4000)\n  %n1 = add i64 %n, 1\n"
        f"  %on = icmp slt i64 %n1, {lines}\n  br i1 %on, label %again, label %done\ndone:"
    )


def huge(lines: int) -> str:
    """A straight line of dependent scalar code that takes LLVM many seconds."""
    body = ["  %s0 = load float, ptr %x"]
    for i in range(lines):
        body.append(f"  %h{i} = getelementptr float, ptr %x, i64 {i % N}")
        body.append(f"  %l{i} = load volatile float, ptr %h{i}")
        body.append(f"  %s{i + 1} = fadd float %s{i}, %l{i}")
    body.append(f"  store float %s{lines}, ptr %out")
    return text("\n".join(body))


def candidate(ir: str, name: str = "k", workspace_bytes: int = 64, threads: int = 1) -> Candidate:
    return Candidate("add", Lowered(ir, name, IO, (workspace_bytes,), Geometry(threads)))


def reference(payload: object, inputs: dict[str, np.ndarray[Any, Any]]) -> dict[str, Reference]:
    return {"out": Reference(inputs["x"].astype(np.float64) + inputs["y"])}


def lower(payload: object) -> Lowered:
    """A lowering hook: the payload is the name of a text above, 'bug', or 'memory'."""
    if payload == "bug":
        raise KeyError("no such axis")
    if payload == "memory":
        hoard = [np.ones(4 << 20) for _ in range(1000)]
        raise AssertionError(len(hoard))
    if payload == "sleep":
        time.sleep(60)
    return Lowered(str(globals()[str(payload)]), "k", IO, (64,))


def children() -> set[int]:
    """Living processes, zombies excepted, that descend from this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found, frontier = set[int](), {os.getpid()}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        found |= frontier
    return found


def eventually(claim: Callable[[], bool], limit_s: float = 60.0) -> bool:
    """Whether ``claim`` becomes true within the limit."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if claim():
            return True
        time.sleep(0.02)
    return claim()
