"""Peaks of a CUDA device, measured by kernels written for nothing else: f32 FMA, the products of
each matrix unit, read and triad.

On an emulated GPU they are what fibers of a CPU do by turns, and rates of no GPU.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tunegrad.devices.device import MachineLimits
from tunegrad.devices.job import Geometry, KernelIO, Lowered
from tunegrad.ir.target import MatrixUnit
from tunegrad.render.c_family import product_wrapper
from tunegrad.render.cuda import wrappers_text

if TYPE_CHECKING:
    from tunegrad.devices.cuda.engine import CudaEngine

__all__ = ["measure_limits", "products_text"]

_SAMPLES, _ITEMS = 5, 256
_GROUPS = 8
"""Groups a unit."""
_CHAINS, _STEPS = 32, 1024
_SUMS = 4
"""Products of a warp that do not wait for each other; a unit has many warps besides."""
_LEAST_S = 1e-3
_PRODUCT_STEPS = (16, 128, 1024, 8192)
"""Of a launch, as many as take ``_LEAST_S`` or the most; an emulator takes it for the fewest."""
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


_C_TYPES = {"f32": "float", "i32": "int", "f64": "double"}


def products_text(unit: MatrixUnit, steps: int) -> str:
    """A kernel of ``steps`` times ``_SUMS`` products a warp, all of the same factors."""
    name, total = f"tg_{product_wrapper(unit)}", _C_TYPES[unit.dtypes[1]]
    word = "double" if unit.held == "f64" else "unsigned int"
    sizes = unit.highs * unit.steps, unit.steps
    a, b = (f"{x}[{n}] = {{{', '.join(['s'] * n)}}}" for x, n in zip("ab", sizes, strict=True))
    sums = [f"d{c}" for c in range(_SUMS)]
    declared = ", ".join(f"{d}[{unit.highs * unit.pair}] = {{}}" for d in sums)
    return f"""{wrappers_text([name])}
extern "C" __global__ void __launch_bounds__({_ITEMS}) peak_products({total} *out) {{
  const int at = blockIdx.x * {_ITEMS} + threadIdx.x;
  const {word} s = at;
  const {word} {a}, {b};
  {total} {declared};
  for (int i = 0; i < {steps}; ++i) {{
    {" ".join(f"{name}({d}, a, b);" for d in sums)}
  }}
  out[at] = {" + ".join(f"{d}[0]" for d in sums)};
}}
"""


def measure_limits(engine: CudaEngine) -> MachineLimits:
    """By the device's own clock; one figure for the whole device, under the number of its units.

    Arrays in memory have four times the bytes of the last cache.
    """
    target = engine.device.target
    units, floats = target.threads, target.l3_bytes
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
    out = engine.allocate(8 * grid * _ITEMS)
    arrays = [engine.allocate(4 * floats) for _ in range(3)]

    def best_s(name: str, text: str, *memories: object) -> float:
        lowered = Lowered(text, name, KernelIO(()), (), Geometry(grid, _ITEMS))
        code = engine.load(lowered, engine.device.compile(lowered))
        launch = engine.launch(code, memories, ())  # type: ignore[arg-type]
        return max(1e-9, min(engine.time(launch, _SAMPLES)))

    def products(unit: MatrixUnit) -> float:
        """Operations a second."""
        flops = 2.0 * prod(unit.shape) * _SUMS * grid * _ITEMS / unit.items
        for steps in _PRODUCT_STEPS:
            seconds = best_s("peak_products", products_text(unit, steps), out)
            if seconds >= _LEAST_S:
                break
        return flops * steps / seconds

    fma = 2.0 * _CHAINS * _STEPS * grid * _ITEMS / best_s("peak_fma", head + _FMA, out)
    read = 4.0 * floats / best_s("peak_read", head + _READ, out, arrays[0])
    triad = 12.0 * floats / best_s("peak_triad", head + _TRIAD, *arrays)
    found = tuple((u.name, products(u)) for u in target.units if isinstance(u, MatrixUnit))
    return MachineLimits(((units, fma),), ((units, read),), ((units, triad),), (), (), found)
