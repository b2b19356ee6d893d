"""CUDA C++ by hand on cuda-host, against numpy: in three orders of threads, copies eager and lazy;
and a defect planted in each, which one of the orders must show.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from tests.cuda_texts import ORDERS, launch
from tunegrad.devices.cuda import nvrtc
from tunegrad.devices.job import Geometry
from tunegrad.errors import DeviceError
from tunegrad.render.cuda import wrappers_text

N = 1000
ADD = """
extern "C" __global__ void add(float *out, const float *a, const float *b) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 1000) out[i] = a[i] + b[i];
}
"""

TILED = """
// 48 x 80 x 36 by tiles of 16 x 16, two steps of k to a tile of 8; the last one is not full
extern "C" __global__ void __launch_bounds__(256) tiled(float *C, const float *A, const float *B) {
  __shared__ float a[16][8], b[8][16];
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  const int m = blockIdx.x / 5 * 16, n = blockIdx.x % 5 * 16;
  float sum = 0.0f;
  for (int k = 0; k < 36; k += 8) {
    const int i = threadIdx.x % 128;
    const int ka = k + i % 8, kb = k + i / 16;
    if (threadIdx.x < 128) a[i / 8][i % 8] = ka < 36 ? A[(m + i / 8) * 36 + ka] : 0.0f;
    else b[i / 16][i % 16] = kb < 36 ? B[kb * 80 + n + i % 16] : 0.0f;
    __syncthreads();
    for (int kk = 0; kk < 8; ++kk) sum = fmaf(a[row][kk], b[kk][column], sum);
    __syncthreads();
  }
  C[(m + row) * 80 + n + column] = sum;
}
"""

REDUCE = """
// The sum of each 1024 by 256 threads: shuffles in a warp, shared memory between warps
extern "C" __global__ void reduce(float *out, const float *x) {
  __shared__ float shares[8];
  float s = 0.0f;
  for (int k = 0; k < 4; ++k) s += x[blockIdx.x * 1024 + k * 256 + threadIdx.x];
  for (int by = 16; by; by /= 2) s += __shfl_xor_sync(0xffffffff, s, by);
  if (threadIdx.x % 32 == 0) shares[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = threadIdx.x < 8 ? shares[threadIdx.x] : 0.0f;
    for (int by = 4; by; by /= 2) s += __shfl_down_sync(0xffffffff, s, by, 8);
    if (threadIdx.x == 0) out[blockIdx.x] = s;
  }
}
"""

RING = (
    wrappers_text(("tg_shared_address", "tg_cp_async4", "tg_cp_commit", "tg_cp_wait"))
    + """
// Sums of neighbours of the 64 numbers of each step, from a ring of three
extern "C" __global__ void ring(float *out, const float *x) {
  __shared__ float s[3][64];
  const int i = threadIdx.x;
  float sum = 0.0f;
  for (int k = 0; k < 2; ++k) {
    tg_cp_async4(tg_shared_address(&s[k][i]), x + k * 64 + i, 4);
    tg_cp_commit();
  }
  for (int k = 0; k < 10; ++k) {
    tg_cp_wait<1>();
    __syncthreads();
    if (k + 2 < 10) tg_cp_async4(tg_shared_address(&s[(k + 2) % 3][i]), x + (k + 2) * 64 + i, 4);
    tg_cp_commit();
    sum += s[k % 3][i] + 2.0f * s[k % 3][(i + 17) % 64];
  }
  out[i] = sum;
}
"""
)


def rng(shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Kernel:
    """``given``: its arguments, the first of which it gives back. ``error`` is of what it gave."""

    text: str
    entry: str
    geometry: Geometry
    given: dict
    error: object
    tolerance: float

    def find(self, text):
        """What is wrong with a text in each order: '' for nothing."""
        found = []
        for seed, lazy in ORDERS:
            ran = launch(text, self.entry, self.geometry, self.given, seed, lazy)
            if ran.fault or ran.damaged:
                found.append(ran.fault or f"damaged {ran.damaged}")
                continue
            error = self.error(next(iter(ran.arrays.values())))
            found.append("" if error <= self.tolerance else f"error {error}")
        return found


def farthest(want):
    return lambda got: np.abs(got - want).max()


def kernels():
    a, b = rng((2, N))
    made = [
        Kernel(
            ADD,
            "add",
            Geometry(8, 128),
            {"out": np.full(N, np.nan, np.float32), "a": a, "b": b},
            farthest(a + b),
            0.0,
        )
    ]
    a, b = rng((48, 36)), rng((36, 80))
    made.append(
        Kernel(
            TILED,
            "tiled",
            Geometry(15, 256),
            {"C": np.full((48, 80), np.nan, np.float32), "A": a, "B": b},
            farthest(a.astype(np.float64) @ b),
            1e-5,
        )
    )
    x = rng((5, 1024))
    made.append(
        Kernel(
            REDUCE,
            "reduce",
            Geometry(5, 256),
            {"out": np.full(5, np.nan, np.float32), "x": x},
            farthest(x.astype(np.float64).sum(axis=1)),
            1e-4,
        )
    )
    x = rng((10, 64))
    want = (x + 2.0 * np.roll(x, -17, axis=1)).sum(axis=0)
    made.append(
        Kernel(
            RING,
            "ring",
            Geometry(1, 64),
            {"out": np.full(64, np.nan, np.float32), "x": x},
            farthest(want),
            1e-5,
        )
    )
    return {k.entry: k for k in made}


KERNELS = kernels()


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_by_hand_gives_what_numpy_gives_in_every_order(name):
    assert KERNELS[name].find(KERNELS[name].text) == [""] * len(ORDERS)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_by_hand_is_cuda(name):
    try:
        built = nvrtc.build(KERNELS[name].text, name, "sm_80")
    except DeviceError as error:
        pytest.skip(str(error))
    assert (built.warnings, built.spilled_bytes) == ("", 0)


EVERY, SOME = "in every order", "in one order"
LAZY, EAGER = "when copies are lazy", "when copies are eager"
DEFECTS = {
    # kernel, what stands there, what is planted, where it shows, what is told
    "tail not masked": ("add", "if (i < 1000) ", "", EVERY, "damaged ('out',)"),
    "tail masked one too few": ("add", "i < 1000", "i < 999", EVERY, "error nan"),
    "reads where nothing is": ("add", "+ b[i]", "+ b[i - (1ll << 40)]", EVERY, "illegal address"),
    "no barrier after the copy": (
        "tiled", "    __syncthreads();\n    for", "    for", EVERY, "error nan",
    ),
    "no barrier before the next copy": (
        "tiled", "sum);\n    __syncthreads();", "sum);", SOME, "error",
    ),
    "a barrier that some do not reach": (
        "tiled", "    __syncthreads();\n    for", "    if (row < 15) __syncthreads();\n    for",
        EVERY, "waits at __syncthreads, where ",
    ),
    "shared memory that is not written": (
        "tiled", "ka < 36 ? A", "i % 8 == 7 ? a[i / 8][7] : ka < 36 ? A", EVERY,
        "error nan",
    ),
    "past the end of shared memory": (
        "tiled", "else b[i / 16]", "a[i / 8 + (i == 127)][7] = b[i / 16 + (i == 127)]", EVERY,
        "past the end of 1024 bytes of shared memory",
    ),
    "far past the end of shared memory": (
        "tiled", "else b[i / 16]", "else b[i / 16 + 100]", EVERY,
        "illegal address, beside the shared memory of its block",
    ),
    "a shuffle of another width": ("reduce", "by, 8)", "by, 4)", EVERY, "error"),
    "a shuffle that lacks lanes": (
        "reduce", "s += __shfl_xor_sync(0xffffffff, s, by)", "s += __shfl_xor_sync(0xffff, s, by)",
        EVERY, "__shfl_xor_sync: its own lane ",
    ),
    "a shuffle of lanes that do not come": (
        "reduce", "if (threadIdx.x < 32) {", "if (threadIdx.x < 8) {", EVERY,
        "waits at __shfl_down_sync, where 8 of 32 are, for ever: thread 8 has ended",
    ),
    "a shuffle of a number that is gone": (
        "reduce", "s += __shfl_down_sync(0xffffffff, s, by, 8);",
        "if (threadIdx.x < 8) s += __shfl_xor_sync(0xff, s, 2 * by);", EVERY, "error nan",
    ),
    "no barrier between warps": ("reduce", "  __syncthreads();\n", "", SOME, "error nan"),
    "ring: waits for one copy too few": (
        "ring", "tg_cp_wait<1>", "tg_cp_wait<2>", LAZY, "error nan",
    ),
    "ring: overwritten early": (
        "ring", "s[(k + 2) % 3][i]), x + (k + 2) * 64", "s[k % 3][i]), x + (k + 2) * 64", EVERY,
        "error",
    ),
    "ring: no barrier": ("ring", "    __syncthreads();\n", "", SOME, "error"),
    "ring: a copy that is not committed": (
        "ring", "    tg_cp_commit();\n  }\n  for", "  }\n  for", LAZY, "error nan",
    ),
    "ring: a copy from a misaligned place": (
        "ring", "x + k * 64 + i, 4)", "(const char *)(x + k * 64 + i) + 2, 4)", EVERY,
        "tg_cp_async4: global address",
    ),
    "ring: a copy of more bytes than there are": (
        "ring", "x + k * 64 + i, 4)", "x + k * 64 + i, 5)", EVERY, "tg_cp_async4: 5 bytes of 4",
    ),
    "ring: a copy to where no shared memory is": (
        "ring", "&s[k][i]), x", "&s[k][i]) + 768, x", EVERY, "is outside the 768 bytes",
    ),
    "ring: a copy to memory that is not shared": (
        "ring", "tg_shared_address(&s[k][i])", "tg_shared_address(out + i)", EVERY,
        "is no address of shared memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_shows(name):
    kernel, old, new, where, told = DEFECTS[name]
    kernel = KERNELS[kernel]
    assert kernel.text.count(old) == 1, kernel.text.count(old)
    found = kernel.find(kernel.text.replace(old, new))
    lazies = [f for f, (_, lazy) in zip(found, ORDERS, strict=True) if lazy]
    eagers = [f for f, (_, lazy) in zip(found, ORDERS, strict=True) if not lazy]
    looked = {EVERY: found, SOME: [f for f in found if f], LAZY: lazies, EAGER: eagers}[where]
    assert looked, "it does not show"
    assert all(told in f for f in looked), found
    if where in (LAZY, EAGER):
        assert not any(eagers if where == LAZY else lazies), found
