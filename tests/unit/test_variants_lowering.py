"""Lowered transforms: no conditions where the image is interior, the border's in another body
(decision 0004).
"""

from __future__ import annotations

import pytest
from kernel_corpus import corpus_kernel
from variant_builders import Conv

from benchmarks.hand_schedules import AVX512, GPU
from tests.schedule_checks import assert_agrees
from tests.verifiers.program import verify_program
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.program import If, Load, Program, Store, walk
from tunegrad.ir.program import Test as Condition
from tunegrad.ir.variants import parts_of
from tunegrad.opts import Schedule, Space


def lowered(kernel: Kernel, text: str, target=AVX512) -> Program:
    program = Space(kernel, target).lower(Schedule.parse(text))
    assert verify_program(program) == (), "every access is proved in bounds"
    assert_agrees(kernel, program, text)
    return program


def conditions(body: object) -> int:
    return sum(
        isinstance(i, Condition | If) or (isinstance(i, Load | Store) and i.mask is not None)
        for i in walk(body)
    )


def asked(body: object) -> set[str]:
    """The loops that masks and tests depend on."""
    tests = (i for i in walk(body) if isinstance(i, Condition))
    return {n for i in tests for r in i.valid.ranges for n in r.index.names()}


@pytest.mark.parametrize("tile", [2, 4])
def test_a_transform_is_one_branch_with_no_condition_inside(tile: int) -> None:
    transform = parts_of(
        Conv(channels=16, height=12, width=12, last=True).kernel(), f"winograd{tile}"
    )[0]
    program = lowered(transform, "vectorize(axis=c)")
    (branch, *_) = (i for i in walk(program.body) if isinstance(i, If))
    assert conditions(branch.body) == 0
    assert conditions(branch.orelse) > 0


def test_an_output_transform_writes_whole_tiles_without_masks() -> None:
    finish = parts_of(Conv(outputs=16, height=7, width=7, last=True).kernel(), "winograd4")[2]
    program = lowered(finish, "vectorize(axis=c)")
    (branch, *_) = (i for i in walk(program.body) if isinstance(i, If))
    assert conditions(branch.body) == 0
    assert sum(isinstance(i, Store) for i in walk(branch.body)) == 16


def test_where_tiles_fit_and_nothing_is_padded_there_is_no_branch() -> None:
    transform, _, finish = parts_of(Conv(height=10, width=10, padding=0).kernel(), "winograd2")
    assert [conditions(lowered(k, "").body) for k in (transform, finish)] == [0, 0]


def test_a_condition_that_never_holds_for_the_whole_region_stays_in_it_alone() -> None:
    """All columns of tiles in registers: some of them are always at the border; rows are not."""
    transform = parts_of(Conv(channels=4, height=12, width=8).kernel(), "winograd2")[0]
    tiled = lowered(transform, "reorder(order=(a, c, b)) upcast(axis=b)")
    (branch,) = (i for i in walk(tiled.body) if isinstance(i, If) and i.orelse)
    assert asked(branch.body) == set()
    assert asked(branch.orelse) == {"a"}


@pytest.mark.parametrize("size", [14, 28, 56])
def test_interior_of_a_padded_image_in_rows_tests_nothing_that_changes(size: int) -> None:
    """Masks of the lanes at the two ends of a row stay; they are constants."""
    kernel = Conv(channels=16, outputs=16, height=size, width=size).kernel()
    space = Space(kernel, AVX512)
    program = space.lower(space.defaults()[0])
    assert verify_program(program) == ()
    branch = next(i for i in walk(program.body) if isinstance(i, If) and i.orelse)
    lanes = {x.name for x in space.tree(space.defaults()[0]).loops if x.kind.is_register}
    assert asked(branch.body) <= lanes
    assert asked(branch.orelse) - lanes


def test_a_gpu_gets_no_branch() -> None:
    program = lowered(corpus_kernel("winograd_input"), "", GPU)
    assert not any(isinstance(i, If) for i in walk(program.body))


# ---- partial sums of kernels with masked stores


def test_partial_sums_live_in_the_store_that_runs_at_every_point() -> None:
    for text in (
        "reorder(order=(ra, a, b))",
        (
            "tile(axis=ra, size=4) tile(axis=b, size=8) vectorize(axis=b1) reorder(order=(ra0, "
            "a, b0, ra1))"
        ),
    ):
        kernel = corpus_kernel("masked_sums").canonical()
        lowered(kernel, text)


def test_partial_sums_without_such_a_store_are_refused() -> None:
    kernel = corpus_kernel("masked_sums").canonical()
    (reduce,), (masked, _) = kernel.reduces, kernel.stores
    alone = Kernel(kernel.params, kernel.axes, (reduce, masked))
    with pytest.raises(IllegalAction, match="or it is not stored at every point"):
        Space(alone, AVX512).tree(Schedule.parse("reorder(order=(ra, a, b))"))
