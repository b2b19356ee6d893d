"""What actions and passes changed, as texts; who does not ask is not told, nothing is kept."""

from __future__ import annotations

import gc

import pytest

from benchmarks.hand_schedules import AVX512
from tests.kernel_corpus import NAMES, corpus_kernel
from tunegrad.compiling import build
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.errors import IllegalAction
from tunegrad.ir.looptree import LoopTree, loop_tree
from tunegrad.ir.program import Program
from tunegrad.opts import Schedule, Space, Trace, apply_actions
from tunegrad.pipeline import KERNEL_PASSES

DEVICE = CpuDevice(AVX512)
TILED = Schedule.parse("tile(axis=b, size=4) thread(axis=a, count=2)")


def traced(name: str, schedule: Schedule) -> Trace:
    trace = Trace()
    build(corpus_kernel(name), schedule, DEVICE, trace.passed, trace.acted)
    return trace


def test_every_action_and_pass_has_a_step_in_order() -> None:
    steps = [(s.kind, s.name) for s in traced("gemm", TILED).steps]
    assert steps == [
        ("pass", "loops"),
        ("action", "tile(axis=b, size=4)"),
        ("action", "thread(axis=a, count=2)"),
        *(("pass", p.name) for p in KERNEL_PASSES[2:]),
    ]


def test_an_action_shows_the_lines_that_went_and_came() -> None:
    tile = traced("gemm", TILED).steps[1]
    assert tile.change == "difference"
    gone = [x[1:].strip() for x in tile.text.splitlines() if x.startswith("-")]
    came = [x[1:].strip() for x in tile.text.splitlines() if x.startswith("+")]
    assert gone[0] == "for b in 21:"
    assert came[:2] == ["for b0 in 6:", "for b1 in 4:"]


def test_new_forms_are_whole_and_checks_change_nothing() -> None:
    changes = {s.name: s.change for s in traced("gemm", TILED).steps if s.kind == "pass"}
    assert changes == {
        "loops": "new", "lower": "new", "races": "same", "limit": "same", "render": "new",
    }  # fmt: skip


def test_schedule_without_actions_is_a_pass_that_changed_nothing() -> None:
    trace = traced("gemm", Schedule(()))
    assert [(s.name, s.change) for s in trace.steps[:2]] == [("loops", "new"), ("schedule", "same")]


@pytest.mark.parametrize("name", NAMES)
def test_traced_text_is_the_text(name: str) -> None:
    kernel = corpus_kernel(name)
    schedule = Space(kernel, AVX512).defaults()[0]
    trace = traced(name, schedule)
    made = build(kernel, schedule, DEVICE)
    assert trace.steps[-1].text.rstrip() == made.text.rstrip()
    assert len([s for s in trace.steps if s.kind == "action"]) == len(schedule.actions)


def test_an_action_that_is_illegal_is_not_told() -> None:
    tree, told = loop_tree(corpus_kernel("gemm"), AVX512), []
    actions = Schedule.parse("tile(axis=b, size=4) tile(axis=nothing, size=4)").actions
    with pytest.raises(IllegalAction):
        apply_actions(tree, actions, lambda action, *_: told.append(str(action)))
    assert told == ["tile(axis=b, size=4)"]


def test_a_trace_keeps_no_form_alive() -> None:
    traced("gemm", TILED)
    gc.collect()
    gc.freeze()  # what lives by now is looked at no more
    traces = [traced("gemm", TILED) for _ in range(20)]
    gc.collect()
    assert not [x for x in gc.get_objects() if isinstance(x, LoopTree | Program)]
    assert all(isinstance(s.text, str) for t in traces for s in t.steps)
