"""HIP C++ of the corpus compiles for AMD's GPUs that are not here.

Skips without clang and AMD's device library.
"""

import pytest
from hand_programs import elementwise, group_add, row_sum, tiled_gemm, together, vector_add
from kernel_corpus import NAMES, corpus_kernel
from test_opencl_schedules import random_schedule

from benchmarks.hand_schedules import row_sum as row_sums
from tests.gpu_hand import gemm
from tests.hip import ARCHITECTURES, TARGETS, compiled, lowered
from tests.product_kernels import KERNELS, MORE
from tunegrad.ir.dtypes import DTYPES
from tunegrad.ir.expr import Op, result_type
from tunegrad.opts import Space

PRODUCTS = {f"product: {name}": make for name, make in (KERNELS | MORE).items()}


def built(arch, program):
    """The assembly of a program that compiles without a warning."""
    found = compiled(lowered(program).text, arch)
    assert found.warnings == ""
    assert found.number("vgpr_count") > 0
    return found


def spilled(found):
    """Vector registers, and bytes of the stack. Scalar registers that are spilled are not among
    them: they go to lanes of vector registers, which three convolutions of the corpus do.
    """
    return [found.number(name) for name in ("vgpr_spill_count", "private_segment_fixed_size")]


def kernel_of(name):
    return PRODUCTS[name]() if name in PRODUCTS else corpus_kernel(name)


def by_default(arch, kernel):
    space = Space(kernel, TARGETS[arch])
    return space.lower(space.defaults()[0])


def check_random(arch, name, seeds):
    space = Space(kernel_of(name), TARGETS[arch])
    for seed in range(seeds):
        built(arch, space.lower(random_schedule(space, f"hip {name} {seed}")))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", [*NAMES, *PRODUCTS])
def test_default_schedule_of_every_kernel_compiles_and_needs_no_stack(name, arch):
    assert spilled(built(arch, by_default(arch, kernel_of(name)))) == [0, 0]


@pytest.mark.parametrize("name", [*NAMES, *PRODUCTS][::4])
def test_a_random_schedule_compiles_without_a_warning(name):
    check_random(ARCHITECTURES[len(name) % 2], name, 1)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", [*NAMES, *PRODUCTS])
def test_many_schedules_compile_without_a_warning(name, arch):
    check_random(arch, name, 10)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_hand_written_programs_share_what_they_say_and_need_no_stack(arch):
    for program in (vector_add(), group_add(), tiled_gemm(), row_sum()):
        found = built(arch, program)
        assert spilled(found) == [0, 0]
        shared = sum(a.size * a.dtype.itemsize for a in program.allocs if a.space == "shared")
        assert found.number("group_segment_fixed_size") == shared


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("dtype", [t for t in DTYPES.values() if t.is_int], ids=str)
def test_operations_on_integers_compile_without_a_warning(dtype, arch):
    results = ((op, result_type(op, [dtype] * op.arity)) for op in Op)
    takes = [op for op, result in results if result is not None and not result.is_word]
    programs = {f"y.{op}": elementwise(op, dtype, 1, 96) for op in takes}
    built(arch, together("operations", programs))


FUNCTIONS = (Op.EXP, Op.LOG, Op.LOG2, Op.LOG10, Op.SQRT, Op.TANH, Op.ERF, Op.SIN, Op.TAN,
             Op.FLOOR, Op.ROUND, Op.POW, Op.MOD, Op.FLOORDIV, Op.ABS, Op.MAX)  # fmt: skip


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_functions_of_floats_are_the_device_librarys_and_leave_nothing_undefined(name, arch):
    programs = {f"y.{op}": elementwise(op, DTYPES[name], 1, 96) for op in FUNCTIONS}
    found = built(arch, together("functions", programs))
    assert "@rel32" not in found.text, "a call of what is not there"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_products_and_sums_are_fused_where_the_program_says_so(arch):
    """The options are what a device would give: clang's default for HIP fuses both."""
    kernel = (
        'extern "C" __global__ void k(float *y, const float *x) {{ const float '
        "a = x[threadIdx.x], b = x[threadIdx.x + 64], p = a * b; y[threadIdx.x] = {}; }}"
    )
    counts = [
        compiled(kernel.format(sum_), arch).count("v_(dual_)?fma")
        for sum_ in ("p + x[0]", "fmaf(a, b, x[0])")
    ]
    assert counts == [0, 1]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_product_in_f32_loads_little_for_what_it_multiplies(arch):
    """An item holds several rows and columns; operands are read in wide loads."""
    found = built(arch, by_default(arch, gemm(4096, 4096, 4096, "f32")))
    assert found.count("v_(pk_|dual_)?fma") > 4 * found.count("ds_(read|load)") > 0
    assert found.count("s_barrier") > 0


@pytest.mark.parametrize(
    ("arch", "wide", "narrow"),
    [("gfx90a", r"global_load_dwordx4", r"global_load_dword$"),
     ("gfx1100", r"global_load_b128", r"global_load_b32")],
)  # fmt: skip
def test_aligned_neighbours_are_one_load_of_16_bytes(arch, wide, narrow):
    found = built(arch, by_default(arch, row_sums(1 << 16, 16)))
    assert (found.count(wide), found.count(narrow)) == (4, 0)


def test_sums_of_rows_are_folded_by_shuffles_in_waves_of_32():
    """256 items: five rounds in each 32 of them, and three for the eight totals. Lowering knows no
    warp of 64.
    """
    counts = [
        built(arch, by_default(arch, row_sums(4096, 4096))).count("ds_bpermute")
        for arch in ("gfx1100", "gfx90a")
    ]
    assert counts == [8, 0]


SHUFFLED = """
extern "C" __global__ void __launch_bounds__(64) k(double *y, float *x) {
  y[threadIdx.x] = __shfl_xor(y[threadIdx.x], 4);
  x[threadIdx.x] = __shfl_xor(x[threadIdx.x], 16);
}
"""


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_shuffle_moves_4_bytes_and_one_of_8_is_two(arch):
    assert compiled(SHUFFLED, arch).count("ds_bpermute") == 3
