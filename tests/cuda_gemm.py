"""A product of halves by hand, as CUDA C++ for sm_80: what cuda-host must run, and find faults in.

    global --cp.async, a ring of STAGES tiles--> shared, swizzled --ldmatrix--> registers --mma-->
    f32 sums --> f16, global

A block of 256 threads, 4 x 2 warps, makes 128 x 128 of C; a warp 32 x 64. Tiles are 128 x 32 of A
and 32 x 128 of B. Chunks of 16 bytes lie where no two of the eight rows that one ldmatrix reads
share a bank: chunk q of row r at q ^ (r / 2 % 4) in rows of 64 bytes, at q ^ (r % 8) in those of
256.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tunegrad.devices.job import Geometry
from tunegrad.render.cuda import wrappers_text

__all__ = ["gemm_arrays", "gemm_geometry", "gemm_text", "relative_error"]

_USES = ("tg_shared_address", "tg_cp_async16", "tg_cp_commit", "tg_cp_wait", "tg_ldmatrix_x4",
         "tg_ldmatrix_x4_trans", "tg_mma_m16n8k16_f16_f32", "tg_to_f16")  # fmt: skip
_TILE = 128

_BODY = """
#ifndef TG_HOST
#define TG_SHARED extern __shared__ __align__(1024) char tg_shared[]
#endif
typedef unsigned int u32;
typedef unsigned short u16;

__device__ __forceinline__ u32 place_a(int r, int q) { return r * 64 + ((q ^ (r >> 1 & 3)) << 4); }
__device__ __forceinline__ u32 place_b(int r, int q) { return r * 256 + ((q ^ (r & 7)) << 4); }

// Tile k of A and of B, to slot k % STAGES of the ring.
__device__ __forceinline__ void start(u32 a, u32 b, const u16 *A, const u16 *B, int k) {
  const u32 slot = k % STAGES * 8192;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int c = threadIdx.x + 256 * i;
    tg_cp_async16(a + slot + place_a(c / 4, c % 4), A + c / 4 * K + k * 32 + c % 4 * 8, 16);
    tg_cp_async16(b + slot + place_b(c / 16, c % 16), B + (k * 32 + c / 16) * N + c % 16 * 8, 16);
  }
  tg_cp_commit();
}

extern "C" __global__ void __launch_bounds__(256) hgemm(u16 *C, const u16 *A, const u16 *B) {
  TG_SHARED;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wm = warp / 2, wn = warp % 2;
  const int m0 = blockIdx.x / (N / 128) * 128, n0 = blockIdx.x % (N / 128) * 128;
  const u32 a0 = tg_shared_address(tg_shared), b0 = a0 + STAGES * 8192;
  const int steps = K / 32;
  A += m0 * K;
  B += n0;
  float sums[2][8][4];
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) sums[i][j][q] = 0.0f;
#pragma unroll
  for (int k = 0; k < STAGES - 1; ++k)
    if (k < steps) start(a0, b0, A, B, k);
    else tg_cp_commit();
  for (int k = 0; k < steps; ++k) {
    tg_cp_wait<STAGES - 2>();
    __syncthreads();
    if (k + STAGES - 1 < steps) start(a0, b0, A, B, k + STAGES - 1);
    else tg_cp_commit();
    const u32 slot = k % STAGES * 8192;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      u32 a[2][4], b[4][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        tg_ldmatrix_x4(a[i], a0 + slot + place_a(wm * 32 + i * 16 + lane % 16, s * 2 + lane / 16));
#pragma unroll
      for (int j = 0; j < 4; ++j)
        tg_ldmatrix_x4_trans(b[j],
                             b0 + slot + place_b(s * 16 + lane % 16, wn * 8 + j * 2 + lane / 16));
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
          tg_mma_m16n8k16_f16_f32(sums[i][j], a[i], &b[j / 2][j % 2 * 2]);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const int row = m0 + wm * 32 + i * 16 + lane / 4 + q * 8;
        const int column = n0 + wn * 64 + j * 8 + lane % 4 * 2;
        const float *two = sums[i][j] + q * 2;
        *(u32 *)(C + row * N + column) = (u32)tg_to_f16(two[0]) | (u32)tg_to_f16(two[1]) << 16;
      }
}
"""


def gemm_text(n: int, k: int, stages: int = 4) -> str:
    """``hgemm(C, A, B)`` for n a multiple of 128, k of 32."""
    sizes = f"#define N {n}\n#define K {k}\n#define STAGES {stages}\n"
    return wrappers_text(_USES) + "\n" + sizes + _BODY


def gemm_geometry(m: int, n: int, stages: int = 4) -> Geometry:
    return Geometry(m // _TILE * (n // _TILE), 256, stages * 16384)


def gemm_arrays(m: int, n: int, k: int) -> dict[str, NDArray[np.float16]]:
    """C, which is no number yet, A and B."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n)))
    return {"C": np.full((m, n), np.nan, np.float16), "A": a, "B": b}


def relative_error(
    got: NDArray[np.float16], a: NDArray[np.float16], b: NDArray[np.float16]
) -> float:
    """Of the largest result; NaN where one is."""
    want = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.abs(got.astype(np.float64) - want).max() / np.abs(want).max())
