"""A candidate of several outputs is right where each of them is: what lies in one is no excuse for
another.
"""

from __future__ import annotations

from typing import Any

import hostile
import numpy as np
import pytest
from local_bench import LocalBench

from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.job import (
    Candidate,
    CompiledCandidate,
    Geometry,
    KernelIO,
    Parameter,
    Reference,
)
from tunegrad.trial import Measurement, Status

N = hostile.N
IO = KernelIO((*hostile.IO.params, Parameter("small", "f32", N, "out")))

_SECOND = """\
  store float %sum, ptr %oi
  %small = fmul float %sum, 0x3F50000000000000
  %si = getelementptr float, ptr %least, i64 %i
  store float %small, ptr %si
"""
GOOD = hostile.GOOD.replace("  store float %sum, ptr %oi\n", _SECOND).replace(
    "  br label %loop\nloop:",
    "  %sp = getelementptr ptr, ptr %buffers, i64 3\n  %least = load ptr, ptr %sp\n"
    "  br label %loop\nloop:",
)

FAULTS = {
    "one element is a thousandth off": GOOD.replace(
        "tail:\n",
        "tail:\n  %w = getelementptr float, ptr %least, i64 7\n  %old = load float, ptr %w\n"
        "  %off = fmul float %old, 0x3FF0040000000000\n  store float %off, ptr %w\n",
    ),
    "it is not written": GOOD.replace("  store float %small, ptr %si\n", ""),
    "its last element is not written": GOOD.replace(
        "  store float %small, ptr %si\n",
        f"  %last = icmp eq i64 %i, {N - 1}\n  %kept = select i1 %last, i64 0, i64 %i\n"
        "  %sk = getelementptr float, ptr %least, i64 %kept\n  store float %small, ptr %sk\n",
    ),
    "it is the other output": GOOD.replace("store float %small", "store float %sum"),
}


def reference(_: object, inputs: dict[str, np.ndarray[Any, Any]]) -> dict[str, Reference]:
    total = inputs["x"].astype(np.float64) + inputs["y"]
    return {"out": Reference(total), "small": Reference(total / 1024)}


def _measured(ir: str) -> Measurement:
    image = compile_llvm(ir, host_target(2))
    with LocalBench(f"{__name__.rpartition('.')[2]}:reference") as local:
        local.prepare(Candidate("kernel", None), IO)
        made = CompiledCandidate(image, "k", IO, (), Geometry(1), "hash")
        return local.measure(Candidate("kernel", None), made, hostile.QUICK)


def test_a_candidate_with_two_right_outputs_is_right():
    assert _measured(GOOD).status is Status.OK


@pytest.mark.parametrize("fault", FAULTS)
def test_a_candidate_is_wrong_whose_second_output_is(fault: str):
    assert FAULTS[fault] != GOOD
    row = _measured(FAULTS[fault])
    assert row.status is Status.WRONG
    assert "small" in row.error
