"""Peaks of an OpenCL device, measured by kernels written for nothing else: f32 FMA, read and
triad.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tunegrad.devices.device import MachineLimits

if TYPE_CHECKING:
    from tunegrad.devices.opencl.engine import OpenClEngine

__all__ = ["measure_limits"]

_SAMPLES, _ITEMS = 5, 64
_CHAINS, _STEPS = 8, 4096
_FLOATS = 8 << 20
"""Of an array in memory, 32 MB: more than the caches of most devices hold."""

_TEXT = """
__kernel void peak_fma(__global float4 *out) {
  const float4 s = out[get_global_id(0)];
  float4 a0 = s, a1 = s + 1, a2 = s + 2, a3 = s + 3, a4 = s + 4, a5 = s + 5, a6 = s + 6, a7 = s + 7;
  for (int i = 0; i < STEPS; ++i) {
    a0 = fma(a0, s, s); a1 = fma(a1, s, s); a2 = fma(a2, s, s); a3 = fma(a3, s, s);
    a4 = fma(a4, s, s); a5 = fma(a5, s, s); a6 = fma(a6, s, s); a7 = fma(a7, s, s);
  }
  out[get_global_id(0)] = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7;
}
__kernel void peak_read(__global float4 *out, __global const float4 *a, int steps) {
  float4 sum = 0;
  const int n = get_global_size(0);
  for (int i = 0; i < steps; ++i) sum += a[i * n + get_global_id(0)];
  out[get_global_id(0)] = sum;
}
__kernel void peak_triad(__global float4 *a, __global const float4 *b, __global const float4 *c) {
  const size_t i = get_global_id(0);
  a[i] = b[i] + 3.0f * c[i];
}
"""


def measure_limits(engine: OpenClEngine) -> MachineLimits:
    """By the device's own clock; one figure for the whole device, under the number of its units."""
    cl, units = engine.cl, engine.device.target.threads
    options = ["-cl-std=CL1.2", f"-DSTEPS={_STEPS}"]
    built = cl.Program(engine.context, _TEXT).build(options=options, cache_dir=False)
    flags, items = cl.mem_flags.READ_WRITE, units * 16 * _ITEMS
    out = cl.Buffer(engine.context, flags, size=16 * items)
    arrays = [cl.Buffer(engine.context, flags, size=4 * _FLOATS) for _ in range(3)]
    for buffer, nbytes in ((out, 16 * items), *((a, 4 * _FLOATS) for a in arrays)):
        cl.enqueue_fill_buffer(engine.queue, buffer, np.float32(0.5), 0, nbytes)

    def best_s(name: str, size: int, *arguments: Any) -> float:
        kernel = cl.Kernel(built, name)
        kernel.set_args(*arguments)
        events = [
            cl.enqueue_nd_range_kernel(engine.queue, kernel, (size,), (_ITEMS,))
            for _ in range(_SAMPLES)
        ]
        engine.queue.finish()
        return min(float(e.profile.end - e.profile.start) * 1e-9 for e in events)

    fma = 2.0 * 4 * _CHAINS * _STEPS * items / best_s("peak_fma", items, out)
    steps = _FLOATS // 4 // items
    read = 16.0 * steps * items / best_s("peak_read", items, out, arrays[0], np.int32(steps))
    triad = 12.0 * _FLOATS / best_s("peak_triad", _FLOATS // 4, *arrays)
    at = ((units, read),)
    return MachineLimits(((units, fma),), at, ((units, triad),), (), ())
