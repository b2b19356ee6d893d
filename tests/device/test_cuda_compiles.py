"""CUDA C++ of the corpus compiles for GPUs that are not here, and says what it takes.

NVRTC is a library in a wheel; skips where it is missing.
"""

import contextlib
import re
from dataclasses import replace

import numpy as np
import pytest
from hand_programs import elementwise, group_add, row_sum, tiled_gemm, together, vector_add
from kernel_corpus import NAMES, corpus_kernel
from test_opencl_schedules import random_schedule

from benchmarks.hand_schedules import row_sum as row_sums
from benchmarks.hand_schedules import softmax
from tests.banks import turns
from tests.cover import across
from tests.gpu_hand import CONV, CONV_BLOCKS, F32_GEMM, GROUPED, gemm, hgemm, image_kernel
from tests.nvrtc_builds import built, require_nvrtc
from tests.sass import instructions, listing
from tunegrad import devices
from tunegrad.devices.cuda.architectures import resident_groups, typical
from tunegrad.devices.cuda.device import absent
from tunegrad.devices.cuda.nvrtc import KINDS, build, cubin_facts
from tunegrad.devices.job import Geometry, KernelIO, Lowered
from tunegrad.errors import CompileFailure, DeviceError, OutOfResources
from tunegrad.frontend import Tensor
from tunegrad.ir.dtypes import DTYPES
from tunegrad.ir.expr import Op, result_type
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule as fuse
from tunegrad.ir.program import Alloc
from tunegrad.opts import Schedule, Space

ARCHITECTURES = ("sm_80", "sm_89", "sm_90a")
NEWEST = [*(pytest.param(a, marks=pytest.mark.slow) for a in ARCHITECTURES[:-1]), ARCHITECTURES[-1]]
"""The others are slow: all of a chip that texts differ by is asked of the newest one."""
ENDS = ("sm_80", "sm_90a")


@pytest.fixture(autouse=True, scope="module")
def _nvrtc():
    require_nvrtc()


def check(arch, name, seeds):
    device = absent(arch)
    space = Space(corpus_kernel(name), device.target)
    drawn = (random_schedule(space, f"cuda {name} {seed}") for seed in range(seeds))
    for at, schedule in enumerate((space.defaults()[0], *drawn)):
        found = built(device, space.lower(schedule))
        assert found.image[:4] == b"\x7fELF"
        assert found.warnings == ""
        assert found.registers > 0
        if at == 0:
            assert (found.spilled_bytes, found.stack_bytes) == (0, 0)


@pytest.mark.parametrize(("name", "arch"), across(NAMES, ENDS))
def test_default_schedule_of_every_kernel_compiles_and_spills_nothing(name, arch):
    check(arch, name, 0)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", NAMES)
def test_many_schedules_compile_without_a_warning(name, arch):
    check(arch, name, 20)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_hand_written_programs_spill_nothing(arch):
    device = absent(arch)
    for program in (vector_add(), group_add(), tiled_gemm(), row_sum()):
        found = built(device, program)
        assert (found.warnings, found.spilled_bytes, found.stack_bytes) == ("", 0, 0)


@pytest.mark.parametrize("dtype", [t for t in DTYPES.values() if t.is_int], ids=str)
def test_operations_on_integers_compile_without_a_warning(dtype):
    results = ((op, result_type(op, [dtype] * op.arity)) for op in Op)
    takes = [op for op, result in results if result is not None and not result.is_word]
    programs = {f"y.{op}": elementwise(op, dtype, 1, 96) for op in takes}
    found = built(absent(ARCHITECTURES[0]), together("operations", programs))
    assert (found.warnings, found.spilled_bytes, found.stack_bytes) == ("", 0, 0)


@pytest.mark.parametrize(("arch", "dtype"), across(ARCHITECTURES, ["f16", "bf16"]))
def test_product_of_halves_is_made_of_what_its_schedule_says(arch, dtype, tmp_path):
    """A step of 128 x 128 x 32 by 8 warps: 32 products, 12 loads of 4 matrices; 4 copies of 16
    bytes an item, 4 times over: three before the loop. Written by hand it takes 127 registers.
    """
    device = absent(arch)
    program = Space(gemm(1024, 1024, 1024, dtype), device.target).lower(hgemm(4, dtype))
    assert set(turns(program).values()) == {1}
    found = built(device, program)
    assert (found.warnings, found.spilled_bytes, found.stack_bytes) == ("", 0, 0)
    assert found.registers <= 128
    assert device.lower(program).geometry.shared_bytes == 4 * 2 * 128 * 32 * 2
    counted = instructions(found.image, tmp_path)
    assert (counted["HMMA"], counted["LDSM"], counted["LDGSTS"]) == (32, 12, 16)
    assert (counted["BAR"], counted["LDS"], counted["STS"]) == (1, 0, 0)


@pytest.mark.parametrize("arch", NEWEST)
def test_compiler_loads_the_second_half_of_a_step_while_the_first_is_multiplied(arch, tmp_path):
    """What an action for two sets of fragments would do within a step: of 12 loads, 4 stand before
    the first product, and the others between products.
    """
    device = absent(arch)
    lowered = device.lower(Space(gemm(1024, 1024, 1024), device.target).lower(hgemm(4)))
    code = listing(build(lowered.text, lowered.entry, arch).image, tmp_path)
    words = re.findall(r"\b(HMMA|LDSM)\b", code)
    first, last = words.index("HMMA"), len(words) - words[::-1].index("HMMA")
    assert words[:first].count("LDSM") == 4
    assert words[first:last].count("LDSM") == 8


BY_HAND = {
    "product": lambda: (gemm(1024, 1024, 1024), hgemm(4)),
    "grouped": lambda: (gemm(3000, 1024, 1024), Schedule.parse(GROUPED)),
    "convolution": lambda: (image_kernel(2, 64, 16), Schedule.parse(CONV)),
    "convolution in blocks": lambda: (image_kernel(2, 64, 16), Schedule.parse(CONV_BLOCKS)),
    "convolution, results through shared memory": lambda: (
        image_kernel(2, 64, 16), Schedule.parse(f"{CONV} epilogue(param=p0)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arch"), across([*BY_HAND], (*ARCHITECTURES, "sm_86", "sm_100a", "sm_120a"))
)
def test_schedules_by_hand_spill_nothing_and_multiply_by_the_unit(name, arch, tmp_path):
    kernel, schedule = BY_HAND[name]()
    device = absent(arch)
    program = Space(kernel, device.target).lower(schedule)
    found = built(device, program)
    assert (found.warnings, found.spilled_bytes, found.stack_bytes) == ("", 0, 0)
    counted = instructions(found.image, tmp_path)
    assert min(counted["HMMA"], counted["LDSM"], counted["LDGSTS"]) > 0
    assert set(turns(program).values()) == {1}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_bytes_that_lie_along_k_are_loaded_and_multiplied_by_the_unit(arch, tmp_path):
    device = absent(arch)
    kernel = gemm(1024, 1024, 1024, "i8", "i32", transposed=True)
    (schedule,) = Space(kernel, device.target).defaults()
    program = Space(kernel, device.target).lower(schedule)
    assert set(turns(program).values()) == {1}
    found = built(device, program)
    assert (found.warnings, found.spilled_bytes, found.stack_bytes) == ("", 0, 0)
    counted = instructions(found.image, tmp_path)
    assert min(counted["IMMA"], counted["LDSM"], counted["LDGSTS"]) > 0


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_product_of_f32_by_hand_keeps_its_sums_in_registers(arch, tmp_path):
    """A step of 16 terms: 64 sums an item, whose operands are read 16 bytes at a time."""
    device = absent(arch)
    lowered = device.lower(
        Space(gemm(1024, 1024, 1024, "f32"), device.target).lower(Schedule.parse(F32_GEMM))
    )
    found = build(lowered.text, lowered.entry, arch)
    assert (found.warnings, found.spilled_bytes, found.stack_bytes) == ("", 0, 0)
    assert found.registers <= 128
    assert lowered.geometry.shared_bytes >= 3 * 2 * 128 * 16 * 4
    counted = instructions(found.image, tmp_path)
    assert counted["FFMA"] >= 16 * 64
    assert counted["LDS"] <= 16 * 4 * 2


def kernel_of(tensor):
    """The one kernel of a tensor."""
    (launch,) = fuse(fold_constants((tensor.node,))).launches
    return launch.kernel


def normed(rows, columns):
    x = Tensor.input("x", (rows, columns), "f32")
    w, b = (Tensor.input(n, (columns,), "f32") for n in "wb")
    return kernel_of(x.layer_norm(w, b))


def added(n):
    return kernel_of(Tensor.input("x", (n,), "f32") + Tensor.input("y", (n,), "f32"))


ROWS = {
    "row sums": (row_sums(4096, 4096), {"LDG": 4, "STG": 1, "SHFL": 8, "BAR": 1}),
    "softmax": (softmax(4096, 4096), {"LDG": 4, "STG": 4, "SHFL": 16, "BAR": 2}),
    "softmax of a warp a row": (softmax(4096, 1024), {"SHFL": 12, "BAR": 2}),
    "softmax of long rows": (softmax(64, 16384), {"LDG": 4, "STG": 4, "SHFL": 20, "BAR": 2}),
    "layer norm": (normed(4096, 1024), {"LDG": 12, "STG": 4}),
    "add": (added(1 << 24), {"LDG": 2, "STG": 1, "SHFL": 0, "BAR": 0}),
    "short rows": (row_sums(4096, 128), {"LDG": 1, "STG": 1, "SHFL": 5, "BAR": 0}),
}


@pytest.mark.parametrize(("name", "arch"), across([*ROWS], ARCHITECTURES))
def test_rows_are_read_once_in_wide_loads_and_folded_by_shuffles(name, arch, tmp_path):
    """16 elements an item are four loads of 16 bytes, all in flight, also where three stages want
    them: the compiler keeps them in registers.
    """
    kernel, want = ROWS[name]
    device = absent(arch)
    (schedule,) = Space(kernel, device.target).defaults()
    found = built(device, Space(kernel, device.target).lower(schedule))
    assert (found.warnings, found.spilled_bytes) == ("", 0)
    counted = instructions(found.image, tmp_path)
    assert {word: counted[word] for word in want} == want


@pytest.mark.parametrize("arch", NEWEST)
def test_rounds_of_a_copy_that_divides_do_not_fill_the_registers(arch):
    """The first convolution of a ResNet at batch 32: all seven rounds at once spilled 48 bytes."""
    values = np.random.default_rng(0).standard_normal((64, 3, 7, 7)).astype(np.float32)
    image = Tensor.input("x", (32, 3, 224, 224), "f32")
    w = Tensor.constant(values).cast("f16").cast("f32")
    kernel = kernel_of(image.conv2d(w, stride=2, padding=3).relu().cast("f16"))
    device = absent(arch)
    lowered = device.lower(by_default(device, kernel))
    assert lowered.text.count("#pragma unroll 4") >= 1
    found = build(lowered.text, lowered.entry, arch)
    assert (found.warnings, found.spilled_bytes, found.stack_bytes) == ("", 0, 0)


@pytest.mark.parametrize(
    ("arch", "items", "registers", "shared", "groups"),
    [
        ("sm_80", 256, 95, 64 << 10, 2),  # 64 KiB and 1 of 164
        ("sm_80", 256, 128, 0, 2),  # 65,536 registers
        ("sm_80", 256, 32, 0, 8),  # 2,048 items
        ("sm_80", 32, 32, 0, 32),  # groups
        ("sm_89", 256, 32, 0, 6),  # 1,536 items
        ("sm_89", 32, 32, 0, 24),
        ("sm_90a", 256, 200, 48 << 10, 1),
        ("sm_90a", 1024, 64, 0, 1),
        ("sm_90a", 96, 33, 0, 17),  # registers of a warp come in 256
        ("sm_80", 1024, 128, 0, 0),
    ],
)
def test_groups_of_a_unit_are_those_of_the_occupancy_tables(arch, items, registers, shared, groups):
    assert resident_groups(typical(arch), items, registers, shared) == groups


def test_what_a_compiled_kernel_takes_is_told_with_its_occupancy():
    device = absent("sm_80")
    program = Space(gemm(1024, 1024, 1024), device.target).lower(hgemm(4))
    found = device.inspect(device.lower(program)).resources
    assert (found.spilled_bytes, found.shared_bytes, found.unit_groups) == (0, 64 << 10, 2)
    assert found.occupancy == 2 * 256 / 2048


def test_compiler_tells_what_a_group_shares():
    found = built(absent("sm_80"), tiled_gemm(16, 8, 4))
    assert found.shared_bytes == sum(4 * a.size for a in tiled_gemm(16, 8, 4).allocs)


def gemm_space():
    return Space(corpus_kernel("gemm_square"), typical("sm_80"))


def test_aligned_neighbours_are_one_access():
    """16 floats in a row of 16 are four accesses of 16 bytes, and one row begins where it may."""
    text = "thread(axis=a) vectorize(axis=b)"
    names = [x.name for x in gemm_space().tree(Schedule(())).loops]
    axes = [n for n in names if not n.startswith("r")]
    schedule = Schedule.parse(text.replace("=a)", f"={axes[0]})").replace("=b)", f"={axes[1]})"))
    lowered = absent("sm_80").lower(gemm_space().lower(schedule))
    assert re.search(r"\*\(tg_vec<float, 4> \*\)\(b_", lowered.text)
    assert re.search(r"= \*\(const tg_vec<float, 4> \*\)\(b_", lowered.text)


def test_more_than_48_kib_are_given_by_the_launch():
    program = tiled_gemm()
    big = Alloc("tile", program.allocs[0].dtype, 16 << 10, "shared")  # 64 KiB
    lowered = absent("sm_90a").lower(replace(program, allocs=(*program.allocs, big)))
    assert lowered.geometry.shared_bytes == (64 << 10) + sum(4 * a.size for a in program.allocs)
    assert "TG_SHARED;" in lowered.text
    assert build(lowered.text, lowered.entry, "sm_90a").warnings == ""
    small = absent("sm_90a").lower(program)
    assert small.geometry.shared_bytes == 0


def test_what_is_too_large_is_refused_before_it_is_compiled():
    program = tiled_gemm()
    huge = Alloc("tile", program.allocs[0].dtype, 60 << 10, "shared")
    with pytest.raises(OutOfResources, match="bytes shared, sm_80 has 166912"):
        absent("sm_80").lower(replace(program, allocs=(huge,)))


def test_errors_name_the_thing_and_the_rule():
    with pytest.raises(CompileFailure, match=r"program broken for sm_80.*error"):
        build("nonsense", "broken", "sm_80")
    with pytest.raises(DeviceError, match=r"'sm_12345' is not known.*valid: .*sm_80"):
        devices.open("null:sm_12345")
    with pytest.raises(DeviceError, match="does not compile for sm_35; valid: "):
        build("", "k", "sm_35")
    with pytest.raises(DeviceError, match="runs nothing"):
        devices.open("null:sm_80").open()


SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) k(double *x, const int n) {
  __shared__ double s[64];
  double a[100];
  for (int i = 0; i < 100; ++i) a[i] = x[i * 4096 + threadIdx.x];
  s[threadIdx.x % 64] = a[3];
  __syncthreads();
  for (int j = 0; j < 4096; ++j)
    for (int i = 0; i < 100; ++i) a[i] = fma(a[i], a[(i + 7) % 100], s[j % 64]);
  for (int i = 0; i < 100; ++i) x[i * 4096 + threadIdx.x] = __expf(a[i]);
}
"""
MIXED = {
    "async_copies": ("LDGSTS",), "barriers": ("BAR",), "fmas": ("FFMA", "DFMA"),
    "global_loads": ("LDG",), "global_stores": ("STG",), "matrix_loads": ("LDSM",),
    "matrix_products": ("HMMA", "IMMA", "DMMA"), "shared_loads": ("LDS",),
    "shared_stores": ("STS",), "shuffles": ("SHFL",), "special": ("MUFU",),
    "spills": ("LDL", "STL"),
}  # fmt: skip


def by_default(device, kernel):
    space = Space(kernel, device.target)
    return space.lower(space.defaults()[0])


def lowered_texts(device):
    """Programs with every kind of instruction among them."""
    made = [Space(gemm(1024, 1024, 1024, "f16"), device.target).lower(hgemm(4))]
    for unit in device.target.units:
        m, n, k = unit.shape
        kernel = gemm(8 * m, 8 * n, 8 * k, *unit.dtypes)
        made.append(by_default(device, kernel))
    others = softmax(4096, 4096), added(1 << 20), corpus_kernel("gemm_square")
    made += [by_default(device, kernel) for kernel in others]
    yield from map(device.lower, made)
    yield Lowered(SPILLING, "k", KernelIO(()), (), Geometry(1, 1024))


@pytest.mark.parametrize("arch", NEWEST)
def test_an_image_says_what_ptxas_and_the_disassembler_say(arch, tmp_path):
    """The numbers of instructions, and where registers and shared memory stand, are NVIDIA's own
    affair: this is what they are held against.
    """
    device, seen = absent(arch), set()
    for lowered in lowered_texts(device):
        found = build(lowered.text, lowered.entry, arch)
        facts = dict(device.facts(lowered, found.image))
        assert list(facts) == sorted(facts)
        assert facts["registers"] == found.registers
        assert facts["stack_bytes"] == found.stack_bytes
        assert facts["shared_bytes"] == found.shared_bytes + lowered.geometry.shared_bytes
        items, shared = lowered.geometry.items, int(facts["shared_bytes"])
        groups = resident_groups(device.target, items, found.registers, shared)
        assert facts["unit_groups"] == groups
        assert facts["occupancy"] == groups * items / device.target.unit_items
        assert bool(facts["spills"]) == bool(found.spilled_bytes)
        counted = instructions(found.image, tmp_path)
        for kind, words in MIXED.items():
            assert facts.get(kind, 0) == sum(counted[w] for w in words), (lowered.entry, kind)
            seen |= {kind} if facts.get(kind) else set()
        assert facts["instructions"] == sum(counted.values()) - counted["NOP"], lowered.entry
    assert seen == set(MIXED) == set(KINDS)


def test_facts_are_read_without_compiling_again(monkeypatch):
    device = absent("sm_90a")
    lowered = device.lower(Space(gemm(512, 512, 512, "f16"), device.target).lower(hgemm(4)))
    image = device.compile(lowered)
    monkeypatch.setattr(type(device), "compile", None)
    assert dict(device.facts(lowered, image))["registers"] > 0


@pytest.mark.parametrize("image", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 200, b"MZ" * 99])
def test_what_is_no_cubin_is_one_clear_line(image):
    with pytest.raises(CompileFailure, match=f"cubin of {len(image)} bytes: damaged"):
        cubin_facts(image, Geometry(1, 32), typical("sm_80"))


def test_a_cubin_cut_anywhere_is_refused_or_read():
    device = absent("sm_80")
    lowered = device.lower(tiled_gemm())
    image = device.compile(lowered)
    for length in range(0, len(image), 97):
        with contextlib.suppress(CompileFailure):
            cubin_facts(image[:length], lowered.geometry, device.target)


@pytest.mark.parametrize(
    ("outside", "inside"),
    [("__device__ int kept;", ""), ("", "static int kept;"), ("__device__ int kept = 3;", "")],
)
def test_a_kernel_that_keeps_something_is_refused(outside, inside):
    text = f'{outside}\nextern "C" __global__ void k(float *a) {{ {inside} a[0] = ++kept; }}'
    with pytest.raises(CompileFailure, match=r"illegal: section .nv.global.* can be written"):
        absent("sm_90a").compile(Lowered(text, "k", KernelIO(())))
