"""What threads of a warp and of a block do together on cuda-host, as CUDA says; faults of it."""

import numpy as np
import pytest

from tests.cuda_texts import ORDERS, launch
from tunegrad.devices.job import Geometry
from tunegrad.render.cuda import wrappers_text

LANES = np.arange(32)
COPIES = wrappers_text(
    ("tg_cp_async4", "tg_cp_commit", "tg_cp_wait", "tg_cp_wait_all", "tg_shared_address")
)


def kernel(body, parameters="int *out, const int *x", head="", bounds=""):
    return f'{head}\nextern "C" __global__ void {bounds} k({parameters}) {{\n{body}\n}}\n'


def run(body, items=32, groups=1, x=None, out=None, order=(0, False), **more):
    given = {
        "out": np.zeros(items * groups, np.int32) if out is None else out,
        "x": np.zeros(1, np.int32) if x is None else x,
    }
    return launch(kernel(body, **more), "k", Geometry(groups, items), given, *order)


def shuffled(kind, by, width):
    """The lane that each lane reads, by the words of CUDA's guide."""
    first = LANES // width * width
    if kind == "":
        return first + by % width
    if kind == "_up":
        return np.where(LANES - by >= first, LANES - by, LANES)
    if kind == "_down":
        return np.where(LANES + by < first + width, LANES + by, LANES)
    other = LANES ^ by
    return np.where(other < first + width, other, LANES)


@pytest.mark.parametrize("kind", ["", "_up", "_down", "_xor"])
@pytest.mark.parametrize(("c", "dtype"), [("int", np.int32), ("double", np.float64)])
def test_shuffles_read_the_lane_that_cuda_says(kind, c, dtype):
    cases = [(by, width) for width in (2, 4, 8, 16, 32) for by in range(0, 32, 3)]
    calls = [
        f"out[{n} * 32 + i] = __shfl{kind}_sync(0xffffffffu, x[i], {by}, {width});"
        for n, (by, width) in enumerate(cases)
    ]
    x = (LANES * 7 + 1).astype(dtype)
    text = kernel("const int i = threadIdx.x;\n" + "\n".join(calls), f"{c} *out, const {c} *x")
    out = np.zeros(32 * len(cases), dtype)
    for order in ORDERS[:3]:
        got = launch(text, "k", Geometry(1, 32), {"out": out, "x": x}, *order)["out"]
        for n, (by, width) in enumerate(cases):
            want = x[shuffled(kind, by, width)]
            np.testing.assert_array_equal(got[n * 32 : n * 32 + 32], want, err_msg=f"{by} {width}")


def test_a_shuffle_may_ask_for_another_lane_in_each_lane():
    x = np.random.default_rng(0).permutation(32).astype(np.int32)
    got = run("out[threadIdx.x] = __shfl_sync(~0u, 100 + (int)threadIdx.x, x[threadIdx.x]);", x=x)
    np.testing.assert_array_equal(got["out"], 100 + x)


def test_halves_of_a_warp_meet_by_themselves():
    body = """
  const int i = threadIdx.x;
  const unsigned mine = i < 16 ? 0xffffu : 0xffff0000u;
  int s = i;
  for (int k = 0; k < (i < 16 ? 3 : 5); ++k) s = __shfl_xor_sync(mine, s, 1) + 1;
  __syncwarp();
  out[i] = s;"""
    times = np.where(LANES < 16, 3, 5)
    for order in ORDERS[:3]:
        np.testing.assert_array_equal(run(body, order=order)["out"], (LANES ^ 1) + times)


def test_votes_and_sums_of_a_warp():
    body = """
  const int i = threadIdx.x, odd = i % 2;
  const unsigned low = 0xffu;
  int s = 0;
  s += (__ballot_sync(~0u, odd) == 0xaaaaaaaau) << 0;
  s += (__any_sync(~0u, i == 31) != 0) << 1;
  s += (__all_sync(~0u, i < 31) == 0) << 2;
  s += (__reduce_add_sync(~0u, i - 20) == 496 - 640) << 3;
  s += (__reduce_min_sync(~0u, i - 20) == -20) << 4;
  s += (__reduce_max_sync(~0u, (unsigned)(i - 20)) == 0xffffffffu) << 5;
  if (i < 8) s += (__ballot_sync(low, i > 2) == 0xf8u) << 6; else s += 1 << 6;
  if (i < 8) s += (__all_sync(low, i < 8) == 1) << 7; else s += 1 << 7;
  s += (__all_sync(~0u, i >= 0) == 1 && __any_sync(~0u, i < 0) == 0) << 8;
  out[i] = s;"""
    for order in ORDERS[:3]:
        np.testing.assert_array_equal(run(body, order=order)["out"], 511)


def test_a_block_that_is_no_multiple_of_a_warp_has_a_short_one():
    body = """
  out[blockIdx.x * 40 + threadIdx.x] = __popc(__ballot_sync(~0u, 1));
  __syncthreads();"""
    got = run(body, items=40, groups=2)["out"].reshape(2, 40)
    np.testing.assert_array_equal(got, [[32] * 32 + [8] * 8] * 2)


def test_atomics_of_all_threads_come_to_one_sum():
    body = """
  __shared__ int s;
  if (threadIdx.x == 0) s = 0;
  __syncthreads();
  atomicAdd(&s, (int)threadIdx.x);
  atomicMax(out + 1, (int)threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out, s);"""
    for order in ORDERS[:3]:
        got = run(body, items=100, groups=3, out=np.zeros(2, np.int32), order=order)["out"]
        np.testing.assert_array_equal(got, [3 * 4950, 99])


def test_a_lock_that_is_waited_for_is_given():
    body = """
  __shared__ int lock, count;
  if (threadIdx.x == 0) lock = count = 0;
  __syncthreads();
  while (atomicCAS(&lock, 0, 1)) ;
  const int old = count;
  __nanosleep(10);
  count = old + 1;
  atomicExch(&lock, 0);
  __syncthreads();
  out[threadIdx.x] = count;"""
    for order in ORDERS[:3]:
        np.testing.assert_array_equal(run(body, items=64, order=order)["out"], 64)


def test_a_seed_draws_another_order_of_threads_and_blocks_and_draws_it_again():
    body = "out[atomicAdd(out + 256, 1)] = blockIdx.x * 16 + threadIdx.x;"
    orders = []
    for seed in (0, 1, 1, 2):
        out = np.zeros(257, np.int32)
        got = run(body, items=16, groups=16, out=out, order=(seed, False))["out"][:256]
        np.testing.assert_array_equal(np.sort(got), np.arange(256))
        orders.append(got.tolist())
    assert orders[0] == list(range(256))
    assert orders[1] == orders[2]
    blocks, threads = ([[n // 16 for n in o[::16]] for o in orders], [o[:16] for o in orders])
    assert blocks[1] != blocks[0] != blocks[3]
    assert all(sorted(t) != t for t in (threads[1], threads[3]))
    assert orders[1] != orders[3]


def test_a_drawn_order_shows_a_race_that_the_order_of_indices_hides():
    body = """
  __shared__ int s[64];
  const int i = threadIdx.x;
  s[i] = i + 1;
  out[i] = i ? s[i - 1] : 0;"""
    found = [(run(body, items=64, order=(seed, False))["out"] == np.arange(64)).all()
             for seed in (0, 1, 2)]  # fmt: skip
    assert found == [True, False, False]


@pytest.mark.parametrize("lazy", [False, True])
def test_a_lazy_copy_is_there_no_sooner_than_its_group_is_waited_for(lazy):
    body = """
  __shared__ __align__(16) int s[4][32];
  const int i = threadIdx.x;
  for (int k = 0; k < 4; ++k) {
    tg_cp_async4(tg_shared_address(&s[k][i]), x + i, 4);
    if (k < 3) tg_cp_commit();
  }
  for (int k = 0; k < 4; ++k) out[k * 32 + i] = s[k][i];
  tg_cp_wait<2>();
  for (int k = 0; k < 4; ++k) out[128 + k * 32 + i] = s[k][i];
  tg_cp_wait<0>();
  for (int k = 0; k < 4; ++k) out[256 + k * 32 + i] = s[k][i];
  tg_cp_wait_all();
  for (int k = 0; k < 4; ++k) out[384 + k * 32 + i] = s[k][i];"""
    x, out = LANES.astype(np.int32) + 5, np.zeros(16 * 32, np.int32)
    got = run(body, x=x, out=out, order=(0, lazy), head=COPIES)["out"].reshape(4, 4, 32)
    for stage, there in enumerate((0, 1, 3, 4)):
        for k in range(4):
            want = x if k < there or not lazy else np.full(32, -1)
            np.testing.assert_array_equal(got[stage, k], want, err_msg=f"{stage} {k}")


FAULTS = {
    "early end": (
        "if (i < 40) return; __syncthreads();", 64,
        "thread 40 waits at __syncthreads, where 24 of 64 are, for ever: thread 0 has ended",
    ),
    "two places": (
        "if (i < 32) __syncthreads(); else tg_bar_sync(3, 64);", 64,
        "0 waits at __syncthreads, where 32 of 64 are, for ever: thread 32 waits at tg_bar_sync",
    ),
    "part of a warp": (
        "if (i % 2) __syncwarp();", 32,
        "thread 1 waits at __syncwarp, where 16 of 32 are, for ever: thread 0 has ended",
    ),
    "different instructions": (
        "if (i % 2) __shfl_xor_sync(~0u, i, 1); else __shfl_up_sync(~0u, i, 1);", 32,
        "at __shfl_xor_sync, while others of its warp are at __shfl_up_sync",
    ),
    "width": ("__shfl_xor_sync(~0u, i, 1, 12);", 32, "width 12 is no power of two"),
    "own mask": ("__ballot_sync(1u, i);", 32, "__ballot_sync: its own lane 1 is not in the mask"),
    "count of a barrier": ("tg_bar_sync(1, 48);", 64, "tg_bar_sync: 48 threads, of a block of 64"),
    "counts of a barrier": (
        "tg_bar_sync(1, i < 32 ? 64 : 96);", 96,
        "tg_bar_sync: barrier 1 for 96 threads, others came for 64",
    ),
    "number of a barrier": ("tg_bar_sync(16, 32);", 32, "tg_bar_sync: barrier 16, there are 16"),
    "trap": ("if (i == 5) __trap();", 32, "block 0, thread 5: trap"),
    "division": ("out[i] = 7 / (i - 3);", 32, "block 0, thread 3: a division by zero"),
    "null": ("if (i == 9) *(volatile int *)nullptr = 1;", 32, "thread 9: illegal address (nil)"),
    "wide address": ("*(volatile int *)(1ull << 60) = 1;", 32, "thread 0: illegal address"),
    "stack": (
        "volatile char wide[400000]; wide[i] = 1; out[i] = wide[i];", 32,
        "thread 0: its stack of 262144 bytes is full",
    ),
    "stack of calls": ("out[i] = deep(i + 1);", 32, "thread 0: its stack of 262144 bytes is full"),
    "matrices of a short warp": (
        "float d[4]; unsigned a[4], b[2]; tg_mma_m16n8k16_f16_f32(d, a, b);", 16,
        "tg_mma_m16n8k16_f16_f32: its warp has less than 32 threads",
    ),
}  # fmt: skip
HEAD = (
    wrappers_text(("tg_bar_sync", "tg_mma_m16n8k16_f16_f32"))
    + "\n__device__ __noinline__ int deep(volatile int n) "
    "{ volatile char here[1000]; here[n % 1000] = 1; return n ? deep(n + 1) + here[7] : 0; }"
)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_says_which_thread_and_why(name):
    body, items, told = FAULTS[name]
    ran = run(f"const int i = threadIdx.x; {body}", items=items, head=HEAD)
    assert told in ran.fault


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows_in_a_drawn_order_too_and_the_next_launch_is_well(name):
    body, items, _ = FAULTS[name]
    text = f"const int i = threadIdx.x; {body}"
    assert run(text, items=items, head=HEAD, order=(5, True)).fault
    np.testing.assert_array_equal(run("out[threadIdx.x] = 3;", order=(5, True))["out"], 3)
