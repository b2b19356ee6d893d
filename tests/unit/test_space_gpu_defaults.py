"""Default schedules of a GPU, at the sizes of models: coalesced, tiled, enough groups."""

from __future__ import annotations

from dataclasses import replace

import pytest
from best_schedules import BEST

from benchmarks.hand_schedules import GPU, conv3x3, gemm, row_sum, softmax
from tests.coalescing import SECTOR_BYTES, touched
from tunegrad.devices.cuda.device import absent
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree
from tunegrad.ir.program import Program, Store, walk
from tunegrad.ir.target import Target
from tunegrad.opts import Space
from tunegrad.opts.actions import Group

UNITS = replace(GPU, threads=132, shared_bytes=48 << 10, max_local=1024)
"""A large GPU: units to fill."""


def default(kernel: Kernel, target: Target = GPU) -> tuple[LoopTree, Program]:
    space = Space(kernel, target)
    (found,) = space.defaults()
    return space.tree(found), space.lower(found)


def last_kernel(x: Tensor) -> Kernel:
    return schedule((x.node,)).launches[-1].kernel


@pytest.mark.parametrize("target", [GPU, UNITS], ids=["least", "large"])
@pytest.mark.parametrize("name", BEST)
def test_space_gpu_default_is_coalesced(name, target):
    """Of what a warp moves it uses at least 0.4: half where a window of stride 2 skips elements."""
    tree, program = default(BEST[name].kernel, target)
    for t in touched(program):
        assert t.share >= 0.4 or t.moved_bytes == SECTOR_BYTES, f"{t}\n{tree}"


PRODUCTS = {
    "gemm": gemm(1024, 1024, 1024), "primes": gemm(127, 137, 131), "conv": conv3x3(64, 64, 56),
    "planes": BEST["conv_planes"].kernel, "batched": BEST["batched"].kernel,
    "scores": BEST["scores"].kernel,
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_space_gpu_default_of_a_product_tiles_registers_and_shared_memory(name):
    tree, program = default(PRODUCTS[name])
    assert len(tree.staged) == 2, tree
    assert sum(a.space == "shared" for a in program.allocs) == 2
    registers = [x.extent for x in tree.shared_registers]
    assert registers == [4, 4]
    assert tree.lane_loop(0) is not None
    assert program.local >= 64


def test_space_gpu_default_takes_steps_that_shared_memory_holds():
    for kbytes, step in ((48, 32), (16, 16), (8, 8), (4, 4)):
        tree, program = default(gemm(1024, 1024, 1024), replace(GPU, shared_bytes=kbytes << 10))
        assert tree.loop("k1").extent == step
        assert len(tree.staged) == 2
        assert sum(a.size * a.dtype.itemsize for a in program.allocs) <= kbytes << 10


def test_space_gpu_default_gives_every_unit_a_group():
    few, many = default(gemm(512, 512, 512))[1], default(gemm(512, 512, 512), UNITS)[1]
    assert few.threads == 64
    assert many.threads >= 132
    assert many.local == 64


def test_space_gpu_default_shares_a_row_over_work_items():
    for kernel in (softmax(1024, 1024), BEST["layer_norm"].kernel):
        tree, program = default(kernel)
        assert program.threads == 1024, "a group a row"
        assert tree.own_items == program.local >= 128
        stores = [i for i in walk(program.body) if isinstance(i, Store)]
        out = {i.vtype.lanes for i in stores if i.buffer == program.params[0].name}
        assert out == {4}


def test_space_gpu_default_puts_several_short_rows_in_a_group():
    tree, program = default(softmax(1000, 24))
    assert tree.own_items == 4
    assert program.local == 128


def test_space_gpu_default_shares_long_reductions_and_adds_up_side_by_side():
    tree, program = default(row_sum(64, 4096))
    assert (tree.own_items, program.local) == (256, 256)
    tree, program = default(BEST["column_sum"].kernel)
    assert (tree.own_items, program.local) == (8, 256)
    local = {x.name: tree.item_stride(x) for x in tree.loops if x.kind == "local"}
    assert local == {"ra0": 32, "a1": 1}, "neighbours read neighbouring columns"


@pytest.mark.parametrize(
    ("columns", "apart"), [(16, True), (1024, True), (4096, False), (65536, False)]
)
def test_space_gpu_default_shares_out_the_rows_of_few_columns(columns: int, apart: bool):
    """Where outputs are neighbours and many, each work-item has one; few of them leave it idle."""
    x = Tensor.input("x", (4096, columns), "f32")
    kernel = last_kernel(x - x.mean(0, keepdim=True))
    (found,) = Space(kernel, absent("sm_90a").target).defaults()
    assert any(isinstance(action, Group) for action in found.actions) == apart


def test_space_gpu_default_of_a_transpose_goes_through_shared_memory():
    tree, program = default(BEST["transpose"].kernel)
    assert [s.at for s in tree.staged] == ["b1"]
    assert program.allocs[0].space == "shared"


def test_space_gpu_default_of_elementwise_stores_whole_vectors():
    for size in (1 << 20, 1 << 12):
        _, program = default(last_kernel(Tensor.input("x", (size,)) + 1.0), UNITS)
        assert {i.vtype.lanes for i in walk(program.body) if isinstance(i, Store)} == {4}
        assert program.local == 256
