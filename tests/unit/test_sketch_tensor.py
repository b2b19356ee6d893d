"""Schedules for matrix units: what they are made for; they compute what the kernel says."""

import pytest

from tests.banks import turns
from tests.gpu_hand import gemm, image_kernel
from tests.product_kernels import KERNELS
from tests.sketch_checks import agrees, check_answers, drawn_schedule
from tests.unit.test_tensorcore import TARGET
from tunegrad.ir.looptree import LoopKind
from tunegrad.ir.program import CopyAsync, For, Pipeline, walk
from tunegrad.opts import Schedule, Space, TraceChooser


@pytest.mark.parametrize("name", KERNELS)
def test_default_schedule_multiplies_by_the_unit(name):
    kernel = KERNELS[name]()
    (schedule,) = Space(kernel, TARGET).defaults()
    assert "tensorcore(" in schedule.text
    agrees(kernel, schedule, TARGET)


@pytest.mark.parametrize("name", KERNELS)
def test_every_answer_of_the_sketch_is_legal(name):
    check_answers(KERNELS[name](), TARGET, name)


@pytest.mark.parametrize("name", KERNELS)
def test_a_random_schedule_of_the_sketch_computes_the_same(name):
    kernel = KERNELS[name]()
    agrees(kernel, drawn_schedule(kernel, TARGET, name), TARGET)


@pytest.mark.parametrize(
    "kernel",
    [
        gemm(3, 64, 64),
        gemm(64, 3, 64),
        gemm(64, 64, 40),
        gemm(64, 64, 64, "f32"),
        gemm(64, 64, 64, "f16", "f64"),
    ],
)
def test_what_no_unit_holds_is_scheduled_otherwise(kernel):
    (schedule,) = Space(kernel, TARGET).defaults()
    assert "tensorcore(" not in schedule.text


def test_long_product_has_blocks_of_warps_in_shared_memory():
    kernel = gemm(4096, 4096, 4096)
    space = Space(kernel, TARGET)
    (schedule,) = space.defaults()
    program = space.lower(schedule)
    assert (program.threads, program.local) == (32 * 32, 256)
    shared = [a for a in program.allocs if a.space == "shared"]
    assert [(a.size, a.swizzled) for a in shared] == [(128 * 64, 128), (64 * 128, 256)]
    (pipeline,) = (i for i in walk(program.body) if isinstance(i, Pipeline))
    assert pipeline.extent == 64
    assert pipeline.slots >= 2
    assert all(isinstance(i, CopyAsync | For) for i in walk(pipeline.copies))
    assert Schedule.parse(schedule.text).text == schedule.text


@pytest.mark.parametrize(("choice", "beneath"), [(1, 2), (2, 4), (3, 8)])
def test_blocks_of_rows_may_stand_beneath_each_other(choice, beneath):
    """The default's schedule but for the loop of rows: some of its blocks run inside that of
    columns.
    """
    space = Space(gemm(4096, 4096, 64), TARGET)
    plain = space.tree(space.defaults()[0])
    schedule = space.sample(TraceChooser({"order": choice}))
    tree = space.tree(schedule)
    grid = [(x.name, x.extent) for x in tree.loops if x.kind is LoopKind.THREAD]
    rows, columns = [x.extent for x in plain.loops if x.kind is LoopKind.THREAD]
    assert [extent for _, extent in grid] == [rows // beneath, columns, beneath]
    assert grid[0][0][0] == grid[2][0][0] != grid[1][0][0]
    assert space.lower(schedule).threads == rows * columns


@pytest.mark.parametrize("shape", [(256, 64, 64), (224, 72, 64)])
def test_blocks_beneath_each_other_compute_the_same(shape):
    kernel = gemm(*shape)
    chosen = {"order": 1, "m.tiles": 0, "m.warps": 0, "n.tiles": 0, "n.warps": 0}
    schedule = Space(kernel, TARGET).sample(TraceChooser(chosen))
    assert schedule.text.count("thread(") == 3
    agrees(kernel, schedule, TARGET)


def test_reductions_of_a_convolution_are_one_pipeline():
    """Of 3 x 3 x 64 terms: weights are packed block after block, and copied as they lie."""
    kernel = image_kernel(4, 64, 16)
    space = Space(kernel, TARGET)
    (schedule,) = space.defaults()
    (pipeline,) = (i for i in walk(space.lower(schedule).body) if isinstance(i, Pipeline))
    copies = [i for i in walk(pipeline.copies) if isinstance(i, CopyAsync)]
    assert {(i.source, i.vtype.lanes) for i in copies} == {("p1", 8), ("p2.load", 8)}
    assert pipeline.extent in (9, 18, 36)
    assert set(turns(space.lower(schedule)).values()) == {1}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_warp_touches_shared_tiles_without_a_bank_conflict(dtype, transposed):
    kernel = gemm(512, 512, 512, dtype, transposed=transposed)
    space = Space(kernel, TARGET)
    (schedule,) = space.defaults()
    found = turns(space.lower(schedule))
    assert {b for _, b in found} == {"p1.ra0", "p2.ra0"}
    assert {kind for kind, _ in found} >= {"matrices"}
    assert set(found.values()) == {1}, found
