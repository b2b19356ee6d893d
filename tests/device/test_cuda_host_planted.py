"""Defects planted in CUDA text: each shows on cuda-host, in one order of threads at least."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hand_programs import arguments_of, expected, row_sum, tiled_gemm

from benchmarks.hand_schedules import row_sum as row_sums
from tests.cuda_host import build, cuda_host
from tests.gpu_hand import CONV, gemm, hgemm, image_kernel
from tests.interpreter import interpret, pack_buffers
from tests.product_kernels import residual
from tests.unit.test_tensorcore import STAGED
from tunegrad import devices
from tunegrad.errors import DeviceError, DeviceFault
from tunegrad.ir.interpret.kernel import interpret as interpret_kernel
from tunegrad.ir.variants import parts_of
from tunegrad.opts import Schedule, Space

ORDERS = ((0, False), (1, False), (2, False), (3, False), (0, True), (1, True))
"""Seeds of orders of threads, and whether copies arrive as late as they may."""


LOOSE = {"f32": 1e-4, "f16": 2e-2}


def shows(lowered, arrays, name, want):
    """Whether any order of threads faults, damages memory, or gives something else."""
    image = cuda_host().compile(lowered)
    for seed, lazy in ORDERS:
        device = cuda_host(seed, lazy)
        with device.open() as engine:
            memories = [engine.allocate(p.nbytes) for p in lowered.io.params]
            for p, memory in zip(lowered.io.params, memories, strict=True):
                engine.write(memory, arrays[p.name])
                if p.role != "out":
                    memory.protect()
            launch = engine.launch(engine.load(lowered, image), memories, ())
            try:
                engine.time(launch, 1)
            except DeviceFault:
                return True
            if any(m.damage() for m in memories):
                return True
            place = [p.name for p in lowered.io.params].index(name)
            dtype = lowered.io.params[place].dtype
            got = memories[place].read(dtype)[: want.size].astype(np.float32)
            if not np.allclose(got, want, rtol=LOOSE[dtype], atol=LOOSE[dtype]):
                return True
    return False


def product():
    program = tiled_gemm(16, 8, 4)
    arrays = arguments_of(program)
    return cuda_host().lower(program), arrays, *expected(program, arrays)


def summed():
    program = row_sum(items=32)
    arrays = arguments_of(program)
    return cuda_host().lower(program), arrays, *expected(program, arrays)


def matrices():
    target = cuda_host().target
    program = Space(gemm(64, 64, 64), target).lower(Schedule.parse(STAGED))
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(4096).astype(np.float16) for n in ("p1", "p2")}
    arrays["p0"] = np.zeros(4096, np.float32)
    done = {n: a.copy() for n, a in arrays.items()}
    interpret(program, done)
    return cuda_host().lower(program), arrays, "p0", done["p0"]


def pipelined():
    """Blocks of 128 x 128 x 32, three of them in flight, rows that are swizzled."""
    target = cuda_host().target
    program = Space(gemm(128, 128, 192), target).lower(hgemm(4))
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(128 * 192).astype(np.float16) for n in ("p1", "p2")}
    arrays["p0"] = np.zeros(128 * 128, np.float32)
    want = arrays["p1"].reshape(128, 192).astype(np.float32) @ arrays["p2"].reshape(192, 128)
    return cuda_host().lower(program), arrays, "p0", want.reshape(-1).astype(np.float32)


def exchanged():
    """Rows of 1000, shared out over eight warps each."""
    kernel = row_sums(8, 1000)
    target = cuda_host().target
    text = "tile(axis=k, size=256) thread(axis=i, count=0) group(axis=k1)"
    program = Space(kernel, target).lower(Schedule.parse(text))
    values = np.random.default_rng(0).standard_normal((8, 1000)).astype(np.float32)
    arrays = {"S": np.zeros(8, np.float32), "X": values.reshape(-1)}
    done = {n: a.copy() for n, a in arrays.items()}
    interpret(program, done)
    return cuda_host().lower(program), arrays, "S", done["S"]


def case_of(kernel, program):
    """A program of a kernel as it is lowered, its memory, its output, and what that must be."""
    rng = np.random.default_rng(0)
    arrays = {
        p.name: np.zeros(p.size, p.dtype.numpy)
        if p.role == "out"
        else rng.standard_normal(p.size).astype(p.dtype.numpy)
        for p in kernel.params
    }
    want = interpret_kernel(kernel, arrays, as_float64=True)["p0"].reshape(-1)
    return cuda_host().lower(program), pack_buffers(program, arrays), "p0", want.astype(np.float32)


def padded_image():
    """A convolution by a matrix unit, whose copies fill what lies outside with zeros."""
    kernel = image_kernel(2, 16, 8)
    target = cuda_host().target
    return case_of(kernel, Space(kernel, target).lower(Schedule.parse(CONV)))


def parted(part):
    """One of the kernels of a product whose sum is split in four."""
    kernel = parts_of(gemm(32, 64, 1024), "split_k4")[part]
    space = Space(kernel, cuda_host().target)
    (schedule,) = space.defaults()
    return case_of(kernel, space.lower(schedule))


def partial_sums():
    return parted(0)


def parts_added():
    return parted(1)


SLICED = (
    "tile(axis=a, size=32) tile(axis=a1, size=16) tile(axis=b, size=32) tile(axis=b1, size=8) "
    "tile(axis=ra, size=16) reorder(order=(a0, a1, b0, b1, a2, b2, ra0, ra1)) "
    "thread(axis=a0, count=0) local(axis=a1) local(axis=b0) upcast(axis=b1) "
    "tensorcore(unit=m16n8k16_f16_f32, m=a2, n=b2, k=ra1) "
    "stage(param=p1, at=ra0, layout=(a1, a2, a3, ra1)) "
    "stage(param=p2, at=load, layout=(ra0, b0, b1, b2, b3, ra1)) "
    "stage(param=p2, at=ra0, layout=(b0, b1, b2, b3, ra1)) pipeline(loop=ra0, slots=3) "
    "epilogue(param=p0)"
)
"""Two warps of rows and four of columns; the defects below name its places."""


def passed_on():
    """Sums of a product that go through shared memory, 40 rows of them, and a residual."""
    kernel = residual(40, 128, 48)
    target = cuda_host().target
    return case_of(kernel, Space(kernel, target).lower(Schedule.parse(SLICED)))


def nth(pattern, n, new):
    """Replaces the n-th match of a pattern, which must be there."""

    def change(text):
        found = list(re.finditer(pattern, text))
        assert -len(found) <= n < len(found), (pattern, len(found))
        made = new(found[n][0]) if callable(new) else found[n].expand(new)
        return text[: found[n].start()] + made + text[found[n].end() :]

    return change


BARRIER = r"__syncthreads\(\);"
DEFECTS = {
    "product: no barrier after the copy": (product, nth(BARRIER, 0, "")),
    "product: no barrier before the next copy": (product, nth(BARRIER, 1, "")),
    "product: a barrier that half of the threads reach": (
        product, nth(BARRIER, 0, "if (item % 2) __syncthreads();"),
    ),
    "product: a tile is read one row off": (
        product, nth(r"= b_As\[i_k1", 0, "= b_As[1 + i_k1"),
    ),
    "sum: no barrier before the shares are folded": (summed, nth(BARRIER, 0, "")),
    "sum: one share is not written": (
        summed, nth(r"(b_\w+\[[^]]*\] = v\d+;)", 0, r"if (item != 7) \1"),
    ),
    "matrices: no barrier after the copy": (matrices, nth(BARRIER, 1, "")),
    "matrices: no barrier before the next copy": (matrices, nth(BARRIER, 0, "")),
    "matrices: registers of A change places": (
        matrices, nth(r"(m\d+a\[4\] = \{)([^,]*), ([^,]*),", 0, r"\1\3, \2,"),
    ),
    "matrices: halves of B change places": (
        matrices, nth(r"(m\d+b\[2\] = \{\(unsigned int\)\(v\d+_)0", 0, r"\g<1>1"),
    ),
    "matrices: B is read by the wrong thread": (
        matrices, nth(r"(x4_trans\(m.*128 \* )\(i_a3 % 2\)", 0, r"\1(1 - i_a3 % 2)"),
    ),
    "matrices: a warp parts ways": (
        matrices, nth(r"(tg_mma_\w+\(m\d+, m\d+a, m\d+b\);)", 0, r"if (item % 32 < 16) \1"),
    ),
    "matrices: a tail that is not masked": (
        matrices, nth(r"(\(b_p0 \+ )(.*\) = tg_vec)", -1, r"\g<1>2 + \2"),
    ),
    "matrices: a sum is stored twice over": (
        matrices, nth(r"(const float v\d+ = m\d+\[)1", 0, r"\g<1>0"),
    ),
    "matrices: an input is written": (
        matrices, nth(r"(const int group = )", 0, r"((unsigned short *)b_p1)[0] = 1; \1"),
    ),
    "shuffles: one step is missing": (
        exchanged, nth(r"__shfl_xor_sync\(0xffffffffu, (v\d+), 8\)", 0, r"(0.0f * \1)"),
    ),
    "shuffles: another bit": (
        exchanged, nth(r"(__shfl_xor_sync\(0xffffffffu, v\d+, )4\)", 0, r"\g<1>2)"),
    ),
    "shuffles: half of a warp": (
        exchanged, nth(r"(__shfl_xor_sync\()0xffffffffu", 0, r"\g<1>0xffffu"),
    ),
    "shuffles: no barrier between warps": (exchanged, nth(BARRIER, 0, "")),
    "shuffles: two warps keep their totals in one place": (
        exchanged, nth(r"r_\w+ = v(\d+);\s+\}\s+\{\s+const int i_\w+_w = item / 32", 0,
                       lambda text: text.replace("item / 32", "item / 64")),
    ),
    "pipeline: waits for one copy too few": (
        pipelined, nth(r"tg_cp_wait<2>", 0, "tg_cp_wait<3>"),
    ),
    "pipeline: does not wait": (pipelined, nth(r"tg_cp_wait<2>\(\);", 0, "")),
    "pipeline: no barrier": (pipelined, nth(BARRIER, 0, "")),
    "pipeline: batches that are one": (pipelined, nth(r"tg_cp_commit\(\);", -1, "")),
    "pipeline: the ring is overwritten early": (
        pipelined, nth(r"\(\(i_ra0 \+ 3\) % 4\)", 0, "(i_ra0 % 4)"),
    ),
    "pipeline: a place is read one too far": (
        pipelined, nth(r"(tg_ldmatrix_x4\(m\d+, .*)\(i_ra0 % 4\)", 0, r"\1((i_ra0 + 1) % 4)"),
    ),
    "pipeline: A is read without its swizzle": (
        pipelined, nth(r"(tg_ldmatrix_x4\(m\d+, .*)(, 6, 3, 3\))", 0, r"\1, 6, 0, 3)"),
    ),
    "pipeline: B is copied with another swizzle": (
        pipelined, nth(r"(tg_cp_async16\(.*b_p2_ra0.*)(, 7, 7, 3\))", -1, r"\1, 7, 3, 3)"),
    ),
    "pipeline: B is not transposed": (pipelined, nth(r"(x4)_trans\(m", 0, r"\1(m")),
    "pipeline: fragments by half of a warp": (
        pipelined, nth(r"(tg_ldmatrix_x4\(m\d+, )", 0, r"if (item % 32 < 16) \1"),
    ),
    "pipeline: rows of fragments are not aligned": (
        pipelined, nth(r"(tg_ldmatrix_x4\(m\d+, )", 0, r"\g<1>8 + "),
    ),
    "pipeline: a copy is cut short": (
        pipelined, nth(r"(tg_cp_async16\(.*)16\);", 0, r"\g<1>8);"),
    ),
    "pipeline: the padding is not filled with zeros": (
        padded_image, nth(r"v\d+ \? 16 : 0", -1, "16"),
    ),
    "epilogue: no barrier before sums are read": (passed_on, nth(BARRIER, -1, "")),
    "epilogue: no barrier before the next slice": (passed_on, nth(BARRIER, -2, "")),
    "epilogue: a barrier that some rows do not reach": (
        passed_on, nth(BARRIER, -2, "if (i_a3 < 4) __syncthreads();"),
    ),
    "epilogue: rows are read with another stride": (
        passed_on, nth(r"(\(b_v0_slice \+ .*)152( \* \(i_a3 / 4\))", -1, r"\g<1>144\2"),
    ),
    "epilogue: runs are read without their gaps": (
        passed_on, nth(r"(\(b_v0_slice \+ )36( \* \(i_a3 % 4\))", -1, r"\g<1>32\2"),
    ),
    "epilogue: one pair is not put down": (
        passed_on, nth(r"\*\(tg_vec<float, 2> \*\)\(b_v0_slice[^;]*;", -1, ""),
    ),
    "epilogue: two warps put their sums in one place": (
        passed_on, nth(r"(\(b_v0_slice \+ )1216 \* i_a1( \+ 152)", -1, r"\g<1>0 * i_a1\2"),
    ),
    "epilogue: rows past the end are stored": (
        passed_on, nth(r"(\(\(i_a3 / 4\) \+ 32 \* i_a0 \+ 16 \* i_a1 \+ 2 \* i_b0\)) < 40", 0,
                       r"\1 < 64"),
    ),
    "epilogue: a row too few is stored": (
        passed_on, nth(r"(\(\(i_a3 / 4\) \+ 32 \* i_a0 \+ 16 \* i_a1 \+ 2 \* i_b0\)) < 40", 0,
                       r"\1 < 39"),
    ),
    "epilogue: the residual is of another row": (
        passed_on, nth(r"(\(b_p4 \+ .*i_b2) \+ 1024", 0, r"\1 + 896"),
    ),
    "split: all parts add the terms of the first one": (
        partial_sums, nth(r"(b_p1\[.*)256 \* i_a", -1, r"\g<1>0 * i_a"),
    ),
    "split: factors are of different parts": (
        partial_sums, nth(r"(b_p2\[)16384 \* i_a", 0, r"\g<1>16384 * (i_a ^ 1)"),
    ),
    "split: parts are stored in one place": (
        partial_sums, nth(r"(b_p0 \+ )2048 \* i_a", -1, r"\g<1>0 * i_a"),
    ),
    "split: parts overlap by a row": (
        partial_sums, nth(r"(b_p0 \+ )2048 \* i_a", 0, r"\g<1>(2048 - 64) * i_a"),
    ),
    "split: one part is not added": (parts_added, nth(r"i_ra < 4", 0, "i_ra < 3")),
    "split: a part that is not there is added": (parts_added, nth(r"i_ra < 4", 0, "i_ra < 5")),
    "split: one part is added twice": (
        parts_added, nth(r"2048 \* i_ra", 0, "2048 * (i_ra == 3 ? 2 : i_ra)"),
    ),
}  # fmt: skip


@cache
def sound(made):
    """What ``made`` makes; nothing shows without a defect."""
    found = made()
    assert not shows(*found), "it shows without the defect"
    return found


@pytest.mark.parametrize("name", DEFECTS)
def test_planted_defect_shows(name):
    made, change = DEFECTS[name]
    lowered, arrays, out, want = sound(made)
    assert shows(replace(lowered, text=change(lowered.text)), arrays, out, want)


def test_shared_memory_that_nobody_wrote_is_not_a_number():
    lowered, arrays, out, want = summed()
    text = nth(r"b_\w+\[[^]]*\] = v\d+;", 0, "")(lowered.text)
    device = cuda_host()
    changed = replace(lowered, text=text)
    with device.open() as engine:
        memories = [engine.allocate(p.nbytes) for p in lowered.io.params]
        for p, memory in zip(lowered.io.params, memories, strict=True):
            engine.write(memory, arrays[p.name])
        engine.time(engine.launch(engine.load(changed, device.compile(changed)), memories, ()), 1)
        place = [p.name for p in lowered.io.params].index(out)
        assert np.isnan(memories[place].read("f32")[: want.size]).all()


def test_a_fault_is_the_end_of_the_device_in_this_process():
    lowered, _, _, _ = summed()
    text = nth(BARRIER, 0, "if (item < 3) __syncthreads();")(lowered.text)
    device = cuda_host()
    with device.open() as engine:
        memories = [engine.allocate(p.nbytes) for p in lowered.io.params]
        changed = replace(lowered, text=text)
        launch = engine.launch(engine.load(changed, device.compile(changed)), memories, ())
        for _ in range(2):
            with pytest.raises(DeviceFault, match="thread 0 waits at __syncthreads"):
                engine.time(launch, 1)


def test_errors_name_what_is_missing(monkeypatch):
    with pytest.raises(DeviceError, match="cuda-host:late: lazy delays copies"):
        devices.open("cuda-host:late")
    build._found.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(DeviceError, match=r"no C\+\+ compiler \(CXX=no-such-compiler\)"):
        devices.open("cuda-host")
    monkeypatch.undo()
    build._found.cache_clear()
