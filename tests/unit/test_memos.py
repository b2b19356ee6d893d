"""What schedules, kernels and loop trees remember of themselves: never stale, and no part of what
they are.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import fields, replace

from tunegrad.devices.host.facts import host_target
from tunegrad.errors import IllegalAction
from tunegrad.ir.kernel import Kernel, loads
from tunegrad.ir.looptree import Loop, LoopKind, LoopTree, Staged, loop_tree
from tunegrad.ir.parse_kernel import parse_kernel
from tunegrad.opts import DefaultChooser, Schedule, Space
from tunegrad.opts.actions import Stage
from tunegrad.opts.staging import check_copy, staged_copy
from tunegrad.search import CostModel

GEMM = """kernel
  param p0 f32[64,96] out row
  param p1 f32[64,128] in row
  param p2 f32[128,96] const row
  axis a:64 b:96
  v0 = add over ra:128 in f32: mul(p1[a, ra], p2[ra, b])
  store p0[a, b] = v0"""


def gemm() -> Kernel:
    return parse_kernel(GEMM)


def gemm_tree() -> LoopTree:
    space = Space(gemm(), host_target(2))
    return space.tree(space.sample(DefaultChooser()))


def refusal(
    rule: Callable[[LoopTree, Staged], object], tree: LoopTree, staged: Staged
) -> str | None:
    try:
        rule(tree, staged)
    except IllegalAction as error:
        return str(error)
    return None


def test_schedule_with_other_actions_prints_anew() -> None:
    schedule = Schedule.parse("tile(axis=a, size=4)")
    assert schedule.text == "tile(axis=a, size=4)"
    assert (
        replace(schedule, actions=Schedule.parse("unroll(axis=b)").actions).text == "unroll(axis=b)"
    )


def test_what_sketches_find_for_one_target_is_not_taken_for_another() -> None:
    small = replace(host_target(1), vector_bytes=16, registers=16)
    large = replace(host_target(2), vector_bytes=64, registers=32)
    kernel = gemm()
    found = [Space(kernel, target).defaults()[0].text for target in (small, large, small)]
    alone = [Space(gemm(), target).defaults()[0].text for target in (small, large, small)]
    assert found == alone
    assert found[0] != found[1]


def test_schedule_that_has_printed_is_still_the_same_value() -> None:
    fresh, printed = Schedule.parse("tile(axis=a, size=4)"), Schedule.parse("tile(axis=a, size=4)")
    assert printed.text
    assert (fresh, hash(fresh), repr(fresh)) == (printed, hash(printed), repr(printed))
    assert pickle.loads(pickle.dumps(printed)) == fresh


def test_kernel_with_other_stages_counts_anew() -> None:
    kernel = gemm()
    assert (len(loads(kernel)), kernel.flops) == (2, 2 * 64 * 96 * 128)
    halved = replace(kernel, axes=tuple(replace(a, extent=a.extent // 2) for a in kernel.axes))
    assert halved.flops == kernel.flops // 4
    assert loads(replace(kernel, stages=())) == ()
    assert kernel == gemm()


def test_unpickled_kernel_loads_in_its_own_stages() -> None:
    kernel = gemm()
    loads(kernel)
    again = pickle.loads(pickle.dumps(kernel))
    assert all(any(s is stage for stage in again.stages) for s, _ in loads(again))


def test_tree_with_other_loops_finds_its_region_anew() -> None:
    tree = loop_tree(gemm(), host_target(2))
    assert tree.region == 2
    assert tree.with_loop(tree.loop("b"), tree.loop("b").run_as(LoopKind.VECTOR)).region == 1


def test_with_loops_keeps_all_else() -> None:
    tree = replace(
        gemm_tree(),
        staged=(Staged("p1", ""),),
        padded=("a",),
        kept=(0,),
        streamed=("p0",),
        prefetched=(("p1", 64),),
    )
    assert tree.with_loops(tree.loops) == tree
    other = tree.with_loops(tree.loops[::-1], tree.index[::-1])
    assert (other.loops, other.index) == (tree.loops[::-1], tree.index[::-1])
    kept = [f.name for f in fields(tree) if f.compare and f.name not in ("loops", "index")]
    assert all(getattr(other, name) == getattr(tree, name) for name in kept)


def test_loop_made_from_another_differs_only_where_asked() -> None:
    loop = Loop("a0", 8, ("a",), 1, True, LoopKind.THREAD, 2)
    assert loop.renamed("a1") == replace(loop, name="a1")
    assert loop.resized("a1", 4) == replace(loop, name="a1", extent=4)
    assert loop.run_as(LoopKind.LOCAL, 3) == replace(loop, kind=LoopKind.LOCAL, count=3)


def test_copy_is_legal_where_its_plan_can_be_made() -> None:
    tree = replace(gemm_tree(), staged=())
    asked = [a for a in Stage.options(tree) if isinstance(a, Stage)]
    assert asked
    copies = [Staged(a.param, a.at, a.layout) for a in asked]
    wrong = [replace(c, layout=(*c.layout[1:], "a")) for c in copies] + [
        replace(c, at="nowhere") for c in copies
    ]
    wrong += [replace(c, param="p9") for c in copies] + [Staged("p1", "load")]
    for staged in (*copies, *wrong):
        grown = replace(tree, staged=(staged,))
        assert refusal(check_copy, grown, staged) == refusal(staged_copy, grown, staged)
        assert (refusal(staged_copy, grown, staged) is None) == (staged in copies)


def test_rows_without_a_column_are_not_a_number_there() -> None:
    model = CostModel()
    model.fit([{"a": float(i)} for i in range(30)], [0.1 * i for i in range(30)])
    unknown = model.predict([{"a": 3.0, "other": 1.0}, {"a": 3.0}])
    assert unknown[0] == unknown[1]
