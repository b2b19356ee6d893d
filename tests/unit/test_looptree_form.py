"""The loop tree: names, positions, the region, partial sums, lanes, text, pickles."""

from __future__ import annotations

import pickle

import pytest
from kernel_corpus import NAMES, corpus_kernel

from benchmarks.hand_schedules import AVX512, FULL, conv3x3, gemm, softmax
from tunegrad.errors import IllegalAction
from tunegrad.ir.looptree import LoopKind, Staged, accumulators, loop_tree, operand
from tunegrad.opts import Schedule, Space, lower

GEMM = gemm(64, 96, 32)
TILED = (
    "tile(axis=m, size=4) tile(axis=n, size=16) reorder(order=(m0, n0, k, m1, n1)) "
    "upcast(axis=m1) vectorize(axis=n1)"
)


def tree(kernel, text=""):
    return Space(kernel, AVX512).tree(Schedule.parse(text))


@pytest.mark.parametrize("name", NAMES)
def test_looptree_unscheduled_has_every_axis_once(name):
    kernel = corpus_kernel(name)
    found = loop_tree(kernel, AVX512)
    assert [(x.name, x.extent) for x in found.loops] == [
        (a.name, a.extent) for a in kernel.all_axes()
    ]
    assert all(x.kind is LoopKind.SERIAL for x in found.loops)
    assert found.checked() is found


@pytest.mark.parametrize("name", NAMES)
def test_looptree_loops_cover_each_axis_exactly(name):
    space = Space(corpus_kernel(name), AVX512)
    found = space.tree(space.defaults()[0])
    for axis, index in found.index:
        assert index.lo == 0
        assert found.nominal(axis) >= found.extent(axis)
        extents = {x.name: x.extent for x in found.loops}
        assert all(v.hi + 1 == extents[v.name] for v in index.variables())


def test_looptree_survives_a_pickle():
    found = tree(FULL["packed_gemm"].kernel, FULL["packed_gemm"].actions)
    copy = pickle.loads(pickle.dumps(found))
    assert copy == found
    assert (str(copy), lower(copy).hash) == (str(found), lower(found).hash)


def test_looptree_unknown_loop_lists_the_known_ones():
    with pytest.raises(
        IllegalAction, match="no loop 'q' in kernel gemm 64x96x32; its loops are m, n, k"
    ):
        tree(GEMM).loop("q")


def test_looptree_region_begins_after_the_last_shared_serial_loop():
    found = tree(GEMM, TILED)
    assert [x.name for x in found.outer] == ["m0", "n0"]
    assert [x.name for x in found.own(0)] == ["k"]
    assert [x.name for x in found.shared_registers] == ["m1", "n1"]
    assert found.partial == ()


def test_looptree_reduce_loops_outside_the_region_make_partial_sums():
    found = tree(GEMM, "tile(axis=k, size=8) reorder(order=(k0, m, n))")
    assert [x.name for x in found.partial] == ["k0"]
    assert [x.name for x in found.own(0)] == ["k1"]


def test_looptree_reduce_loop_of_one_step_makes_no_partial_sums():
    found = tree(GEMM, "tile(axis=k, size=32) reorder(order=(k0, m, n))")
    assert found.loop("k0").extent == 1
    assert found.partial == ()
    assert "or C" not in str(found)


def test_looptree_lane_loop_is_the_stages_own_or_a_shared_one():
    found = tree(
        softmax(8, 64),
        "tile(axis=p, size=16) group(axis=p1) tile(axis=t, size=16) vectorize(axis=t1)",
    )
    lanes = [found.lane_loop(i) for i in range(3)]
    assert [x.name if x else None for x in lanes] == ["p1", None, "t1"]
    shared = tree(GEMM, TILED).lane_loop(0)
    assert shared is not None
    assert shared.name == "n1"


def test_looptree_accumulators_count_registers_one_vector_wide():
    assert accumulators(tree(GEMM, TILED), 0) == 4
    assert accumulators(tree(GEMM, f"{TILED} tile(axis=k, size=2) upcast(axis=k1)"), 0) == 8
    full = FULL["packed_gemm"]
    assert accumulators(tree(full.kernel, full.actions), 0) == 24


def test_looptree_inside_has_later_loops_and_all_registers():
    found = tree(GEMM, TILED)
    assert [x.name for x in found.inside("m0")] == ["n0", "k", "m1", "n1"]
    assert [x.name for x in found.inside("k")] == ["m1", "n1"]
    assert found.inside("") == found.loops


def test_looptree_buffer_of_a_copy_is_named_after_its_place():
    assert [Staged("B", at).buffer for at in ("k0", "", "load")] == ["B.k0", "B.root", "B.load"]


def test_looptree_operand_is_the_one_load_of_a_stage():
    stage, load = operand(tree(conv3x3(3, 4, 5)), "X")
    assert (stage, load.param, load.valid.always) == (0, "X", False)
    assert operand(tree(softmax(4, 8)), "X")[0] == 0
    with pytest.raises(IllegalAction, match="loads it in 0 places; needs one"):
        operand(tree(GEMM), "C")


def test_looptree_tail_shows_in_nominal_extents():
    found = tree(GEMM, "tile(axis=m, size=12)")
    assert (found.extent("m"), found.nominal("m")) == (64, 72)
    assert str(found.axis_index("m")) == "12*m0+m1"
