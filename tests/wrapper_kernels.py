"""A kernel for each wrapper of ``render.cuda``, with what it must give, by numpy.

The same texts run on cuda-host and are compiled for GPUs. Places of elements in a warp are written
out here as PTX ISA 9.7.14.5 draws them, apart from ``MatrixUnit``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunegrad.ir.dtypes import DTYPES
from tunegrad.ir.interpret.numeric import to_memory
from tunegrad.render.cuda import WRAPPERS, wrappers_text

__all__ = ["CASES", "Case"]

Array = NDArray[Any]
LANES = np.arange(32)
G, T = LANES // 4, LANES % 4
"""Group of a lane, and its place in it."""


@dataclass(frozen=True)
class Case:
    """``uses``: the wrappers in it. One block of 32 threads, or of ``items``, runs ``body``."""

    uses: tuple[str, ...]
    parameters: str
    body: str
    arrays: Callable[[], dict[str, Array]]
    want: Callable[[dict[str, Array]], Array]
    items: int = 32
    tolerance: float = 0.0

    @property
    def text(self) -> str:
        head = f'extern "C" __global__ void __launch_bounds__({self.items}) k({self.parameters})'
        return f"{wrappers_text(self.uses)}\n{head} {{\n{self.body}\n}}\n"


# ---- numbers


def _converts(name: str, takes: str, gives: str, values: Array, want: Array) -> Case:
    body = f"""
  for (int i = threadIdx.x; i < {values.size}; i += 32) out[i] = {name}(x[i]);"""
    out = np.zeros(values.size, want.dtype)
    return Case((name,), f"{gives} *out, const {takes} *x", body,
                lambda: {"out": out, "x": values}, lambda _: want)  # fmt: skip


def _floats() -> Array:
    """Normal ones of all sizes, ends of ranges, ties, and numbers beside ties."""
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal(4000) * np.exp2(rng.integers(-30, 20, 4000))
    halves = np.arange(0x10000, dtype=np.uint16).view(np.float16).astype(np.float32)
    some = np.sort(np.abs(halves[np.isfinite(halves)]))
    middle = (some[1:] + some[:-1]) / 2
    beside = [np.nextafter(middle, np.float32(s)) for s in (-np.inf, np.inf)]
    wide = rng.integers(0, 1 << 32, 4000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ends = [0.0, -0.0, np.inf, -np.inf, 65504.0, 65519.99, 65520.0, 6e-8, 2.9e-8, 3.0e-8, 3.4e38]
    found = np.concatenate([drawn, middle, *beside, -middle, ends, wide[np.isfinite(wide)]])
    return found.astype(np.float32)


def _tf32(x: Array) -> Array:
    """To 11 bits, ties away from zero: in float64, where all of it is exact."""
    fraction, power = np.frexp(np.abs(x.astype(np.float64)))
    rounded = np.where(np.isfinite(x), np.floor(fraction * 2048 + 0.5) / 2048, 0)
    made = np.ldexp(rounded, power)
    subnormal = np.abs(x) < 2.0**-126  # of a fixed step
    step = 2.0**-136
    made = np.where(subnormal, np.floor(np.abs(x.astype(np.float64)) / step + 0.5) * step, made)
    with np.errstate(over="ignore"):
        made = np.copysign(made, x).astype(np.float32)
    return np.where(np.isfinite(x), made, x).view(np.uint32)


def _conversions() -> Iterator[Case]:
    halves = np.arange(0x10000, dtype=np.uint16)
    numbers = halves[~np.isnan(halves.view(np.float16))]
    floats = _floats()
    yield _converts("tg_from_f16", "unsigned short", "float", numbers,
                    numbers.view(np.float16).astype(np.float32))  # fmt: skip
    shorts = halves[~np.isnan((halves.astype(np.uint32) << 16).view(np.float32))]
    yield _converts("tg_from_bf16", "unsigned short", "float", shorts,
                    (shorts.astype(np.uint32) << 16).view(np.float32))  # fmt: skip
    with np.errstate(over="ignore"):
        narrow = floats.astype(np.float16)
    yield _converts("tg_to_f16", "float", "unsigned short", floats, narrow.view(np.uint16))
    some = np.append(
        floats, np.array([0x7FC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    )
    brain = np.append(
        to_memory(floats, DTYPES["bf16"]).view(np.uint16), np.array([0x7FC0] * 3, np.uint16)
    )
    yield _converts("tg_to_bf16", "float", "unsigned short", some, brain)
    yield _converts("tg_tf32_f32", "float", "float", floats, _tf32(floats).view(np.float32))


# ---- copies


def _copies(n: int) -> Case:
    """Each lane gives another number of bytes; the first half is one group, waited for alone."""
    name = f"tg_cp_async{n}"
    uses = (name, "tg_cp_commit", "tg_cp_wait", "tg_cp_wait_all", "tg_shared_address")
    body = f"""
  __shared__ __align__(16) unsigned char s[{64 * n}];
  const int i = threadIdx.x;
  {name}(tg_shared_address(s) + i * {n}, x + i * {n}, given[i]);
  tg_cp_commit();
  {name}(tg_shared_address(s + {32 * n} + i * {n}), x + {32 * n} + i * {n}, {n});
  tg_cp_commit();
  tg_cp_wait<1>();
  __syncthreads();
  for (int k = 0; k < {n}; ++k) out[i * {n} + k] = s[(31 - i) * {n} + k];
  tg_cp_wait_all();
  __syncthreads();
  for (int k = 0; k < {n}; ++k) out[{32 * n} + i * {n} + k] = s[{32 * n} + (31 - i) * {n} + k];"""

    def arrays() -> dict[str, Array]:
        x = np.random.default_rng(n).integers(1, 255, 64 * n).astype(np.uint8)
        return {"out": np.zeros_like(x), "x": x, "given": (LANES % (n + 1)).astype(np.int32)}

    def want(held: dict[str, Array]) -> Array:
        x = held["x"].reshape(64, n).copy()
        x[:32] = np.where(np.arange(n) < held["given"][:, None], x[:32], 0)
        return np.concatenate([x[:32][::-1], x[32:][::-1]]).reshape(-1)

    parameters = "unsigned char *out, const unsigned char *x, const int *given"
    return Case(uses, parameters, body, arrays, want)


# ---- matrices from shared memory


def _loads(n: int, trans: bool) -> Case:
    """The rows of all matrices lie in an order that is drawn."""
    name = f"tg_ldmatrix_x{n}{'_trans' if trans else ''}"
    body = f"""
  __shared__ __align__(16) unsigned short s[256];
  const int i = threadIdx.x;
  for (int k = 0; k < 8; ++k) s[i * 8 + k] = x[i * 8 + k];
  __syncthreads();
  unsigned int r[{n}];
  {name}(r, tg_shared_address(s + row[i] * 8));
  for (int k = 0; k < {n}; ++k) out[i * {n} + k] = r[k];"""

    def arrays() -> dict[str, Array]:
        row = np.random.default_rng(n).permutation(32).astype(np.int32)
        x = np.arange(256, dtype=np.uint16) * 251
        return {"out": np.zeros(32 * n, np.uint32), "x": x, "row": row}

    def want(held: dict[str, Array]) -> Array:
        rows = held["x"].reshape(32, 8)[held["row"]].reshape(4, 8, 8)[:n].astype(np.uint32)
        low, high = ((T * 2 + j, G) if trans else (G, T * 2 + j) for j in (0, 1))
        return (rows[:, *low] | rows[:, *high] << 16).T.reshape(-1)

    uses = (name, "tg_shared_address")
    return Case(
        uses, "unsigned int *out, const unsigned short *x, const int *row", body, arrays, want
    )


# ---- products

PLACES: dict[str, tuple[Any, ...]] = {
    # shape: (row, column) of A's elements i of a lane; (row, column) of B's; of C's
    "m16n8k16": (
        [(G + 8 * (i // 2 % 2), T * 2 + i % 2 + 8 * (i // 4)) for i in range(8)],
        [(T * 2 + i % 2 + 8 * (i // 2), G) for i in range(4)],
    ),
    "m16n8k8": (
        [(G + 8 * (i // 2), T * 2 + i % 2) for i in range(4)],
        [(T * 2 + i, G) for i in range(2)],
    ),
    "m16n8k8_tf32": (
        [(G + 8 * (i % 2), T + 4 * (i // 2)) for i in range(4)],
        [(T + 4 * i, G) for i in range(2)],
    ),
    "m16n8k4_tf32": ([(G + 8 * i, T) for i in range(2)], [(T, G)]),
    "m16n8k32": (
        [(G + 8 * (i // 4 % 2), T * 4 + i % 4 + 16 * (i // 8)) for i in range(16)],
        [(T * 4 + i % 4 + 16 * (i // 4), G) for i in range(8)],
    ),
    "m16n8k16_s8": (
        [(G + 8 * (i // 4), T * 4 + i % 4) for i in range(8)],
        [(T * 4 + i, G) for i in range(4)],
    ),
    "m8n8k4": ([(G, T)], [(T, G)]),
}
_NUMPY: dict[str, Any] = {"f16": np.float16, "s8": np.int8, "u8": np.uint8, "f64": np.float64}
_C = {"f16": "unsigned int", "f32": "float", "s32": "int", "f64": "double"}
_SUMS = {"f16": np.float16, "f32": np.float32, "s32": np.int32, "f64": np.float64}


def _operand(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Numbers of a type, as it is kept, and as float64."""
    if kind in ("s8", "u8"):
        limits = np.iinfo(_NUMPY[kind])
        kept = rng.integers(limits.min, limits.max + 1, shape).astype(_NUMPY[kind])
        return kept, kept.astype(np.float64)
    drawn = rng.standard_normal(shape)
    if kind == "bf16":
        kept = to_memory(drawn.astype(np.float32), DTYPES["bf16"]).view(np.uint16)
        return kept, (kept.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == "tf32":  # 13 bits more than the unit reads
        kept = drawn.astype(np.float32).view(np.uint32)
        return kept, (kept & 0xFFFFE000).view(np.float32).astype(np.float64)
    kept = drawn.astype(_NUMPY[kind])
    return kept, kept.astype(np.float64)


def _held(matrix: Array, places: list[tuple[Array, Array]]) -> Array:
    """Registers of lanes: elements of less than 32 bits side by side."""
    return np.stack([matrix[row, column] for row, column in places], axis=1)


def _product(name: str) -> Case:
    shape, taken, gives = name.removeprefix("tg_mma_").split("_")
    a_places, b_places = PLACES.get(f"{shape}_{taken}") or PLACES[shape]
    m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
    c_places = [(G + 8 * (i // 2), T * 2 + i % 2) for i in range(m // 4)]
    rng = np.random.default_rng(len(name))
    (a, wide_a), (b, wide_b) = _operand(rng, taken, (m, k)), _operand(rng, taken, (k, n))
    integers = gives == "s32"
    c = (rng.integers(-999, 999, (m, n)) if integers else rng.standard_normal((m, n))).astype(
        _SUMS[gives]
    )
    operand, summed = ("double" if taken == "f64" else "unsigned int"), _C[gives]
    word = np.float64 if taken == "f64" else np.uint32
    held_a, held_b = (_held(x, p).view(word) for x, p in ((a, a_places), (b, b_places)))
    held_c = _held(c, c_places)
    held_c = held_c.view(np.uint32) if gives == "f16" else held_c
    sizes = [x.shape[1] for x in (held_c, held_a, held_b)]
    body = f"""
  {summed} rd[{sizes[0]}]; {operand} ra[{sizes[1]}], rb[{sizes[2]}];
  for (int i = 0; i < {sizes[0]}; ++i) rd[i] = d[threadIdx.x * {sizes[0]} + i];
  for (int i = 0; i < {sizes[1]}; ++i) ra[i] = a[threadIdx.x * {sizes[1]} + i];
  for (int i = 0; i < {sizes[2]}; ++i) rb[i] = b[threadIdx.x * {sizes[2]} + i];
  {name}(rd, ra, rb);
  for (int i = 0; i < {sizes[0]}; ++i) d[threadIdx.x * {sizes[0]} + i] = rd[i];"""

    def want(_: dict[str, Array]) -> Array:
        full = wide_a @ wide_b + c.astype(np.float64)
        return _held(full, c_places).reshape(-1)

    tolerance = {"s32": 0.0, "f64": 1e-14, "f32": 2e-6, "f16": 2e-3}[gives]
    parameters = f"{summed} *d, const {operand} *a, const {operand} *b"
    given = {"d": held_c.reshape(-1), "a": held_a.reshape(-1), "b": held_b.reshape(-1)}
    return Case((name,), parameters, body, lambda: given, want, tolerance=tolerance)


# ---- barriers


def _handover() -> Case:
    """Two warps: one writes and arrives, the other waits and reads; twice, by two barriers."""
    body = """
  __shared__ int s[32];
  const int i = threadIdx.x % 32;
  for (int k = 0; k < 2; ++k)
    if (threadIdx.x < 32) {
      if (k) tg_bar_sync(2, 64);
      s[i] = x[i] + k;
      __threadfence_block();
      tg_bar_arrive(1, 64);
    } else {
      tg_bar_sync(1, 64);
      out[k * 32 + i] = s[31 - i];
      if (k == 0) tg_bar_arrive(2, 64);
    }"""

    def arrays() -> dict[str, Array]:
        return {"out": np.zeros(64, np.int32), "x": np.arange(32, dtype=np.int32) * 3}

    def want(held: dict[str, Array]) -> Array:
        back = held["x"][::-1]
        return np.concatenate([back, back + 1])

    uses = ("tg_bar_sync", "tg_bar_arrive")
    return Case(uses, "int *out, const int *x", body, arrays, want, items=64)


def _cases() -> dict[str, Case]:
    made = {c.uses[0]: c for c in _conversions()}
    made |= {f"tg_cp_async{n}": _copies(n) for n in (4, 8, 16)}
    made |= {c.uses[0]: c for n in (1, 2, 4) for t in (False, True) for c in [_loads(n, t)]}
    made |= {name: _product(name) for name in WRAPPERS if name.startswith("tg_mma_")}
    made["tg_bar"] = _handover()
    return made


CASES = _cases()
"""By the name of the wrapper that is looked at."""
