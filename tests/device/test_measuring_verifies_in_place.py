"""A candidate that may write over an input is run so, too, and gives the bits that it gives beside
it.
"""

from __future__ import annotations

import hostile
import pytest
from local_bench import LocalBench

from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.job import Candidate, CompiledCandidate, Geometry, KernelIO, Parameter
from tunegrad.trial import Measurement, Status

N = hostile.N
IO = KernelIO((*hostile.IO.params[:2], Parameter("out", "f32", N, "out", over="x")))

_LOAD = "  %a = load float, ptr %xi\n"
_CLEARED = f"""\
  %oz = getelementptr float, ptr %out, i64 %i
  store float 0.0, ptr %oz
{_LOAD}"""
_CLEARED_AHEAD = f"""\
{_LOAD}  %n = add i64 %i, 1
  %last = icmp eq i64 %n, {N}
  %at = select i1 %last, i64 %i, i64 %n
  %oz = getelementptr float, ptr %out, i64 %at
  store float 0.0, ptr %oz
"""
_TWICE = f"""\
  %xl = getelementptr float, ptr %x, i64 {N - 1}
  %al = load float, ptr %xl
  %yl = getelementptr float, ptr %y, i64 {N - 1}
  %bl = load float, ptr %yl
  %sl = fadd float %al, %bl
  %ol = getelementptr float, ptr %out, i64 {N - 1}
  store float %sl, ptr %ol
"""

FAULTS = {
    "accumulates in its output before it reads": hostile.GOOD.replace(_LOAD, _CLEARED),
    "stores to a lane that another point reads": hostile.GOOD.replace(_LOAD, _CLEARED_AHEAD),
    "computes the last point twice": hostile.text(tail=_TWICE),
}


def _measured(ir: str, io: KernelIO) -> Measurement:
    image = compile_llvm(ir, host_target(2))
    with LocalBench("hostile:reference") as local:
        local.prepare(Candidate("kernel", None), io)
        made = CompiledCandidate(image, "k", io, (), Geometry(1), "hash")
        return local.measure(Candidate("kernel", None), made, hostile.QUICK)


def test_a_right_candidate_is_right_over_its_input():
    assert _measured(hostile.GOOD, IO).status is Status.OK


@pytest.mark.parametrize("fault", FAULTS)
def test_a_candidate_is_wrong_that_is_right_beside_its_input_alone(fault: str):
    assert FAULTS[fault] != hostile.GOOD
    assert _measured(FAULTS[fault], hostile.IO).status is Status.OK
    row = _measured(FAULTS[fault], IO)
    assert row.status is Status.WRONG
    assert "in the memory of its inputs" in row.error
