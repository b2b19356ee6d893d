"""Peaks of a CUDA device, measured by kernels written for nothing else: f32 FMA, read and triad."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunegrad.devices.job import Geometry, KernelIO, Lowered
from tunegrad.devices.limits import MachineLimits

if TYPE_CHECKING:
    from tunegrad.devices.cuda.engine import CudaEngine

__all__ = ["measure_limits"]

_SAMPLES, _ITEMS = 5, 256
_GROUPS = 8
"""Groups a unit."""
_CHAINS, _STEPS = 32, 1024
_HEAD = """
struct __align__(16) tg_four { float x, y, z, w; };
"""

_FMA = """
extern "C" __global__ void __launch_bounds__(ITEMS) peak_fma(float *out) {
  const int at = blockIdx.x * ITEMS + threadIdx.x;
  const float s = out[at];
  float CHAINS;
  for (int i = 0; i < STEPS; ++i) {
    UPDATES
  }
  out[at] = SUM;
}
"""
"""Chains are variables: no compiler has to see that an array is none."""

_READ = """
extern "C" __global__ void __launch_bounds__(ITEMS) peak_read(float *out, const tg_four *a) {
  const long long n = GRID * (long long)ITEMS, at = blockIdx.x * (long long)ITEMS + threadIdx.x;
  float sum = 0.0f;
  for (long long i = at; i < FLOATS / 4; i += n) sum += a[i].x + a[i].y + a[i].z + a[i].w;
  out[at] = sum;
}
"""

_TRIAD = """
extern "C" __global__ void __launch_bounds__(ITEMS) peak_triad(tg_four *a, const tg_four *b,
    const tg_four *c) {
  const long long n = GRID * (long long)ITEMS, at = blockIdx.x * (long long)ITEMS + threadIdx.x;
  for (long long i = at; i < FLOATS / 4; i += n) {
    tg_four x = b[i], y = c[i];
    a[i] = tg_four{x.x + 3.0f * y.x, x.y + 3.0f * y.y, x.z + 3.0f * y.z, x.w + 3.0f * y.w};
  }
}
"""


def measure_limits(engine: CudaEngine) -> MachineLimits:
    """By the device's own clock; one figure for the whole device, under the number of its units.

    Arrays in memory have four times the bytes of the last cache.
    """
    units, floats = engine.device.target.threads, engine.device.target.l3_bytes
    grid = units * _GROUPS
    chains = [f"a{c}" for c in range(_CHAINS)]
    words = {
        "ITEMS": _ITEMS,
        "GRID": grid,
        "FLOATS": floats,
        "STEPS": _STEPS,
        "CHAINS": ", ".join(f"{a} = s + {c}" for c, a in enumerate(chains)),
        "UPDATES": " ".join(f"{a} = fmaf({a}, s, s);" for a in chains),
        "SUM": " + ".join(chains),
    }
    head = "".join(f"#define {k} {v}\n" for k, v in words.items()) + _HEAD
    out = engine.allocate(4 * grid * _ITEMS)
    arrays = [engine.allocate(4 * floats) for _ in range(3)]

    def best_s(name: str, text: str, *memories: object) -> float:
        lowered = Lowered(head + text, name, KernelIO(()), (), Geometry(grid, _ITEMS))
        code = engine.load(lowered, engine.device.compile(lowered))
        launch = engine.launch(code, memories, ())  # type: ignore[arg-type]
        return max(1e-9, min(engine.time(launch, _SAMPLES)))

    fma = 2.0 * _CHAINS * _STEPS * grid * _ITEMS / best_s("peak_fma", _FMA, out)
    read = 4.0 * floats / best_s("peak_read", _READ, out, arrays[0])
    triad = 12.0 * floats / best_s("peak_triad", _TRIAD, *arrays)
    return MachineLimits(((units, fma),), ((units, read),), ((units, triad),), (), ())
