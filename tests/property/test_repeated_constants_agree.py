"""Constants that repeat along an axis, as ``w[b % 32]``, are packed whatever the axis is tiled by.

A default of a pitch tracker's kernel named a loop that its constant does not depend on.
"""

from __future__ import annotations

import pytest

from benchmarks.hand_schedules import AVX512
from tests.schedule_checks import check
from tunegrad.devices.host.facts import host_target
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Space

TEXT = """kernel
  param p0 f32[{rows},{extent}] out row
  param p1 f32[{rows},{period},16] in row
  param p2 f32[{period},16] const row
  param p3 f32[16,{times}] const row
  axis a:{rows} b:{extent}
  v0 = add over ra:16 in f32: mul(mul(p1[a, (b)%{period}, ra], p2[(b)%{period}, ra]), p3[ra, (b)//{period}])
  store p0[a, b] = v0
"""  # noqa: E501


@pytest.mark.parametrize("target", [AVX512, host_target()], ids=["avx512", "host"])
@pytest.mark.parametrize(("period", "extent"), [(32, 257), (32, 288), (48, 200), (16, 97)])
def test_defaults_pack_a_constant_that_repeats(target: Target, period: int, extent: int) -> None:
    times = -(-extent // period)
    kernel = parse_kernel(TEXT.format(rows=6, period=period, extent=extent, times=times).strip())
    space = Space(kernel, target)
    for found in space.defaults():
        check(kernel, space.lower(found), str(found))
