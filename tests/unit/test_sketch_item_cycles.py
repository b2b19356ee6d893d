"""Products by work-items: blocks by the model of cycles, and schedules that compute the same."""

import pytest

from tests.gpu_hand import gemm
from tests.sketch_checks import agrees, check_answers, drawn_schedule
from tunegrad.devices.cuda.architectures import typical
from tunegrad.frontend import Tensor
from tunegrad.ir.folding import fold_constants
from tunegrad.ir.fusion import schedule as fuse
from tunegrad.opts import Space
from tunegrad.opts.sketches.cycles import Problem, best_item_block

TARGET = typical("sm_80")
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")


def block(arch, m, n, k, batch=1):
    nbytes = 4 * batch * (m * k + k * n + m * n)
    return best_item_block(Problem(batch, m, n, k, 4, 4), nbytes, typical(arch))


def conv(channels, filters, size, stride=1):
    x = Tensor.input("x", (2, channels, size, size), "f32")
    w = Tensor.input("w", (filters, channels, 3, 3), "f32")
    y = x.conv2d(w, stride=stride, padding=1).relu()
    (launch,) = fuse(fold_constants((y.node,))).launches
    return launch.kernel


KERNELS = {
    "gemm": lambda: gemm(256, 256, 64, "f32"),
    "gemm transposed": lambda: gemm(192, 128, 96, "f32", transposed=True),
    "gemm with tails": lambda: gemm(150, 77, 40, "f32"),
    "gemm of 39 columns": lambda: gemm(128, 39, 12, "f32"),
    "gemm of 22 rows transposed": lambda: gemm(22, 192, 8, "f32", transposed=True),
    "gemm of few terms": lambda: gemm(64, 64, 4, "f32"),
    "gemm of few rows": lambda: gemm(8, 256, 64, "f32"),
    "conv": lambda: conv(8, 32, 20),
    "conv s2": lambda: conv(5, 16, 9, stride=2),
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_an_item_of_a_large_product_holds_eight_by_eight(arch):
    """4 x 4 is 16 multiply-adds for 8 loads, which shared memory can not bring fast enough."""
    found = block(arch, 4096, 4096, 4096)
    assert (found.rows, found.columns) == (8, 8)
    assert min(found.extents) >= 64
    assert found.items >= 64


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_small_product_has_enough_groups_for_the_units(arch):
    found = block(arch, 512, 512, 512)
    rows, columns = found.extents
    assert (512 // rows) * (512 // columns) >= typical(arch).threads // 2


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_block_fits(arch):
    target = typical(arch)
    assert block(arch, 3, 3, 3) is None
    for shape in ((4096, 4096, 4096), (16, 4096, 4096), (7, 99, 5000), (1024, 16, 64)):
        b = block(arch, *shape)
        assert b.registers <= target.regs_per_item
        assert b.registers * b.items <= target.unit_registers
        assert 4 * b.slots * b.depth * sum(b.extents) <= target.shared_bytes
        assert b.slots == 1 or target.copies_ahead


@pytest.mark.parametrize("name", KERNELS)
def test_default_schedule_computes_the_same(name):
    kernel = KERNELS[name]()
    (schedule,) = Space(kernel, TARGET).defaults()
    agrees(kernel, schedule, TARGET)


@pytest.mark.parametrize("name", KERNELS)
def test_every_answer_of_the_sketch_is_legal(name):
    check_answers(KERNELS[name](), TARGET, name)


@pytest.mark.parametrize("name", KERNELS)
def test_a_random_schedule_of_the_sketch_computes_the_same(name):
    kernel = KERNELS[name]()
    agrees(kernel, drawn_schedule(kernel, TARGET, name), TARGET)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
@pytest.mark.parametrize("shape", [(3, 2599, 8), (4, 1441, 6), (9, 768, 5), (22, 768, 5)])
def test_default_of_a_product_of_few_terms_is_free_of_races(shape, arch):
    """That is not proved of copies that have fewer elements than a group has items."""
    for transposed in (False, True):
        kernel = gemm(*shape, "f32", transposed=transposed)
        space = Space(kernel, typical(arch))
        assert space.lower(space.defaults()[0]).local > 1
