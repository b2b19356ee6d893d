"""A matrix product on an OpenCL device: our default schedule against OpenCL C written by hand.

    python -m benchmarks.opencl_gemm --platform Portable 256 512 1024

The hand-written kernels are what one finds in tutorials and what one would write for a CPU: one
result an item from tiles of 16 x 16, a register tile of 4 x 4 from tiles of 64 x 64, and register
tiles of whole vectors with no local memory. All contestants run in turns, on the device's clock;
the best of all turns counts, and every result is compared with numpy's in f64.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.hand_schedules import GPU, gemm
from tunegrad.ir.program import Program
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.render.c_family import arguments, kernel_name
from tunegrad.render.opencl import OPENCL, render_opencl

__all__ = ["BY_HAND", "hand_texts", "ours", "target_of"]

_TILED = """
__kernel void tiled(__global float *C, __global const float *A, __global const float *B) {
  __local float As[16][16], Bs[16][16];
  const int x = get_local_id(0), y = get_local_id(1);
  const int column = get_group_id(0) * 16 + x, row = get_group_id(1) * 16 + y;
  float sum = 0;
  for (int k = 0; k < N; k += 16) {
    As[y][x] = A[row * N + k + x];
    Bs[y][x] = B[(k + y) * N + column];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 16; i++) sum = fma(As[y][i], Bs[i][x], sum);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  C[row * N + column] = sum;
}
"""

_REGISTERS = """
__kernel void registers(__global float *C, __global const float *A, __global const float *B) {
  __local float As[16][64], Bs[16][64];
  const int x = get_local_id(0), y = get_local_id(1), t = y * 16 + x;
  const int column = get_group_id(0) * 64, row = get_group_id(1) * 64;
  float4 sum[4] = {0, 0, 0, 0};
  for (int k = 0; k < N; k += 16) {
    const float4 a = vload4(0, A + (row + t / 4) * N + k + (t % 4) * 4);
    As[(t % 4) * 4][t / 4] = a.s0;
    As[(t % 4) * 4 + 1][t / 4] = a.s1;
    As[(t % 4) * 4 + 2][t / 4] = a.s2;
    As[(t % 4) * 4 + 3][t / 4] = a.s3;
    vstore4(vload4(0, B + (k + t / 16) * N + column + x * 4), 0, &Bs[t / 16][x * 4]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 16; i++) {
      const float4 b = vload4(0, &Bs[i][x * 4]);
      for (int j = 0; j < 4; j++) sum[j] = fma((float4)(As[i][y * 4 + j]), b, sum[j]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int j = 0; j < 4; j++) vstore4(sum[j], 0, C + (row + y * 4 + j) * N + column + x * 4);
}
"""

_VECTORS = """
__kernel void vectors_W(
    __global float *restrict C,
    __global const float *restrict A,
    __global const float *restrict B) {
  const int column = get_global_id(0) * W, row = get_global_id(1) * 8;
  floatW sum[8];
  for (int j = 0; j < 8; j++) sum[j] = (floatW)(0);
  for (int k = 0; k < N; k++) {
    const floatW b = vloadW(0, B + k * N + column);
    for (int j = 0; j < 8; j++) sum[j] = fma((floatW)(A[(row + j) * N + k]), b, sum[j]);
  }
  for (int j = 0; j < 8; j++) vstoreW(sum[j], 0, C + (row + j) * N + column);
}
"""


@dataclass(frozen=True, slots=True)
class Hand:
    """A kernel written by hand: results of an item, items of a group, by columns and rows."""

    name: str
    each: tuple[int, int]
    group: tuple[int, int]


BY_HAND = (
    Hand("tiled", (1, 1), (16, 16)),
    Hand("registers", (4, 4), (16, 16)),
    Hand("vectors_4", (4, 8), (8, 4)),
    Hand("vectors_8", (8, 8), (8, 1)),
    Hand("vectors_16", (16, 8), (2, 8)),
)


def hand_texts() -> str:
    """OpenCL C of all kernels written by hand, for matrices of N x N."""
    vectors = [_VECTORS.replace("W", str(w)) for w in (4, 8, 16)]
    return "\n".join([_TILED, _REGISTERS, *vectors])


def target_of(device: Any) -> Target:
    """Target of the device by its own description; its vectors are native ones, as wide as the
    renderer's.
    """
    native = 4 * int(device.native_vector_width_float)
    return Target(
        name="opencl",
        kind="gpu",
        arch=device.name,
        vector_bytes=max(GPU.vector_bytes, min(OPENCL.vector_bytes, native)),
        registers=64,
        threads=int(device.max_compute_units),
        shared_bytes=int(device.local_mem_size),
        max_local=int(device.max_work_group_size),
    )


def ours(size: int, target: Target, text: str = "") -> Program:
    """Our program: of an action text, or by default."""
    space = Space(gemm(size, size, size), target)
    return space.lower(Schedule.parse(text) if text else space.defaults()[0])


class _Bench:
    """The matrices of one size on the device, and the kernels that multiply them."""

    def __init__(self, cl: Any, device: Any, size: int) -> None:
        self.cl, self.size = cl, size
        self.context = cl.Context([device])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(self.context, properties=profiling)
        rng = np.random.default_rng(0)
        self.a, self.b = (rng.standard_normal((size, size), dtype=np.float32) for _ in "ab")
        self.want = self.a.astype(np.float64) @ self.b
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        made = (np.zeros_like(self.a), self.a, self.b)
        buffers = [cl.Buffer(self.context, flags, hostbuf=m) for m in made]
        self.memory = dict(zip("CAB", buffers, strict=True))
        self.runs: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], list[Any]]] = {}

    def by_hand(self) -> None:
        built = self.cl.Program(self.context, hand_texts())
        built = built.build(options=[f"-DN={self.size}"], cache_dir=False)
        for h in BY_HAND:
            count = tuple(self.size // e for e in h.each)
            if all(c % g == 0 and c for c, g in zip(count, h.group, strict=True)):
                kernel = self.cl.Kernel(built, h.name)
                self.runs[f"by hand: {h.name}"] = kernel, count, h.group, list(self.memory.values())

    def add(self, name: str, program: Program) -> None:
        built = self.cl.Program(self.context, render_opencl(program))
        built = built.build(options=["-cl-std=CL1.2"], cache_dir=False)
        given = [self.memory[a.name] for a in arguments(program)]
        count = (program.threads * program.local,)
        kernel = self.cl.Kernel(built, kernel_name(program))
        self.runs[name] = kernel, count, (program.local,), given

    def best_s(self, rounds: int) -> dict[str, float]:
        """The shortest run of each, in turns. AssertionError where a result is wrong."""
        best = dict.fromkeys(self.runs, float("inf"))
        for _ in range(rounds):
            for name, (kernel, count, group, given) in self.runs.items():
                event = kernel(self.queue, count, group, *given)
                event.wait()
                best[name] = min(best[name], (event.profile.end - event.profile.start) * 1e-9)
        for name, (kernel, count, group, given) in self.runs.items():
            got = np.zeros_like(self.a)
            self.cl.enqueue_copy(self.queue, self.memory["C"], got)
            kernel(self.queue, count, group, *given)
            self.cl.enqueue_copy(self.queue, got, self.memory["C"])
            assert abs(got - self.want).max() < 1e-3, name
        return best


def main() -> int:
    parser = argparse.ArgumentParser(description="a matrix product, ours and by hand")
    parser.add_argument("sizes", nargs="*", type=int, default=[256, 512, 1024])
    parser.add_argument("--platform", default="", help="part of the platform's name")
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    import pyopencl as cl

    platform = next(p for p in cl.get_platforms() if given.platform in p.name)
    device = platform.get_devices()[0]
    target = target_of(device)
    vectors = f"vectors of {target.vector_bytes} bytes"
    sys.stdout.write(f"{platform.name}: {device.name}, {vectors}\n")
    for size in given.sizes:
        bench = _Bench(cl, device, size)
        bench.by_hand()
        bench.add("ours: default", ours(size, target))
        bench.add("ours: default of a GPU", ours(size, GPU))
        best = bench.best_s(given.rounds)
        rates = {name: 2 * size**3 / s / 1e9 for name, s in best.items()}
        top = max(rate for name, rate in rates.items() if name.startswith("by hand"))
        for name, rate in rates.items():
            sys.stdout.write(f"{size:5} {name:24} {rate:7.1f} GFLOP/s  {top / rate:5.2f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
