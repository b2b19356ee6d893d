"""What ``options`` offers is legal, printable, in a fixed order, and not empty where there is
something to do.
"""

from __future__ import annotations

import random

import pytest
from kernel_corpus import NAMES, corpus_kernel

from benchmarks.hand_schedules import AVX512, GPU, gemm, softmax
from tunegrad.errors import IllegalAction
from tunegrad.ir.looptree import loop_tree
from tunegrad.opts import Schedule, Space, parse_actions
from tunegrad.opts.actions import ACTIONS

CHECKED = 12


def trees(name, target):
    """The unscheduled tree, and a later one."""
    space = Space(corpus_kernel(name), target)
    yield space.tree(Schedule(()))
    yield space.tree(space.defaults()[0])


@pytest.mark.parametrize("target", [AVX512, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", NAMES)
def test_actions_options_are_legal(name, target):
    rng = random.Random(name)
    for tree in trees(name, target):
        for action in ACTIONS.values():
            offered = list(action.options(tree))
            assert len(offered) == len(set(offered)), "an option is offered twice"
            for option in rng.sample(offered, min(CHECKED, len(offered))):
                option.check(tree)
                assert parse_actions(str(option)) == (option,)


@pytest.mark.parametrize(
    "action",
    sorted(
        set(ACTIONS)
        - {"group", "local", "keep", "stream", "prefetch", "tensorcore", "pipeline", "epilogue"}
    ),
)
def test_actions_options_of_a_gemm_are_many(action):
    tree = Space(gemm(37, 48, 60), AVX512).tree(
        Schedule.parse("tile(axis=n, size=16) tile(axis=m, size=4)")
    )
    assert list(ACTIONS[action].options(tree)), action


def test_actions_options_about_memory_are_for_what_caches_do_not_hold():
    small, large = loop_tree(gemm(8, 8, 16), AVX512), loop_tree(gemm(1024, 1024, 1024), AVX512)
    assert not list(ACTIONS["stream"].options(small))
    assert not list(ACTIONS["prefetch"].options(small))
    assert [str(a) for a in ACTIONS["stream"].options(large)] == ["stream(param=C)"]
    assert {a.param for a in ACTIONS["prefetch"].options(large)} == {"A", "B"}
    assert [str(a) for a in ACTIONS["keep"].options(loop_tree(softmax(8, 64), AVX512))] == [
        "keep(stage=1)"
    ]


def test_actions_options_of_a_reduction_group():
    assert [str(a) for a in ACTIONS["group"].options(loop_tree(gemm(8, 8, 16), AVX512))] == [
        "group(axis=k)"
    ]


def test_actions_options_of_work_items_are_for_gpus():
    tree = loop_tree(gemm(8, 8, 16), AVX512)
    assert not list(ACTIONS["local"].options(tree))
    assert [str(a) for a in ACTIONS["local"].options(loop_tree(gemm(8, 8, 16), GPU))] == [
        "local(axis=m)",
        "local(axis=n)",
    ]


def test_actions_options_come_in_the_same_order_every_time():
    tree = loop_tree(corpus_kernel("conv3x3"), AVX512)
    for action in ACTIONS.values():
        assert list(action.options(tree)) == list(action.options(tree))


@pytest.mark.parametrize("action", ["tile", "fuse", "reorder"])
def test_actions_options_stop_where_something_is_staged(action):
    tree = Space(gemm(16, 16, 16), AVX512).tree(Schedule.parse("stage(param=B, at=(), layout=())"))
    for option in ACTIONS[action].options(tree):
        with pytest.raises(IllegalAction):
            option.check(tree)
        raise AssertionError(f"{option} was offered")
