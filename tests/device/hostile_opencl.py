"""Candidates as OpenCL text, one good and many bad: out[i] = x[i] + y[i] over 1000 floats."""

from __future__ import annotations

import hostile

from tunegrad.devices.job import Candidate, Geometry, Lowered

_TEXT = """
__kernel void k(__global const float *x, __global const float *y, __global float *out,
                __global float *scratch) {{
  {head}
  for (int i = 0; i < {count}; ++i) out[i] = x[i] + y[i];
  {tail}
}}
"""


def text(tail: str = "", count: int = hostile.N, head: str = "") -> str:
    return _TEXT.format(tail=tail, count=count, head=head)


GOOD = text()
PAST_THE_END = text(count=hostile.N + 1)
BEFORE_THE_START = text("out[-1] = 1.0f;")
WRITES_INPUT = text("((__global float *)x)[0] = 1.0f;")
WRITES_CONSTANT = text("((__global float *)y)[7] = 1.0f;")
WRONG = text("out[7] = 1e6f;")
UNWRITTEN = text(count=hostile.N - 1)
FAR_AWAY = text("((volatile __global float *)out)[1l << 44] = 1.0f;")
ENDLESS = text("volatile int more = 1; while (more) scratch[0] += 1.0f;")
MUCH_LOCAL = text(
    "barrier(CLK_LOCAL_MEM_FENCE); out[0] = s[0];",
    head=f"__local volatile float s[{1 << 26}]; s[0] = x[0] + y[0];",
)
"""Asks for 256 MiB of local memory, and is right otherwise."""
BAD_TEXT = text("no_such_function(out);")
NO_SYMBOL = GOOD.replace(" k(", " other(")


def candidate(body: str, name: str = "k", groups: int = 1, items: int = 1) -> Candidate:
    lowered = Lowered(body, name, hostile.IO, (64,), Geometry(groups, items))
    return Candidate("add", lowered)
