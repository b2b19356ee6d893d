"""The passes of a kernel: their order, their observers, the corpus verified between every two."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from benchmarks.hand_schedules import AVX512, GPU
from tests.cover import each_once
from tests.hand_programs import row_sum
from tests.kernel_corpus import NAMES, corpus_kernel, kernels_of
from tests.null_device import NullDevice
from tests.verifiers import verify_program, verifying
from tunegrad.compiling import build
from tunegrad.devices import Lowered
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.errors import IllegalAction, OutOfResources, VerifyError
from tunegrad.ir.dtypes import F32
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.looptree import LoopTree
from tunegrad.ir.program import Alloc, Program
from tunegrad.opts import Schedule, Space, dump_to_folder
from tunegrad.pipeline import KERNEL_PASSES
from tunegrad.search import RandomChooser

DEVICES = {"cpu": CpuDevice(AVX512), "gpu": NullDevice(GPU)}
TILED = Schedule.parse("tile(axis=b, size=4) thread(axis=a, count=2)")
DRAWS = 3


def _drawn(space: Space) -> list[Schedule]:
    found = []
    for seed in range(DRAWS):
        try:
            found.append(space.sample(RandomChooser(Random(seed))))
        except IllegalAction:  # answers that do not go together
            continue
    return found


def _verified(kernel: Kernel, schedule: Schedule, name: str) -> bool:
    """Whether it came to text, every form on the way verified; False for no candidate."""
    device = DEVICES[name]
    try:
        build(kernel, schedule, device, verifying(device.target))
    except (IllegalAction, OutOfResources):
        return False
    return True


def test_passes_run_in_this_order() -> None:
    seen = []
    kernel = corpus_kernel("gemm")
    build(kernel, TILED, DEVICES["cpu"], lambda name, _, after: seen.append((name, type(after))))
    assert seen == [
        ("loops", LoopTree),
        ("schedule", LoopTree),
        ("lower", Program),
        ("races", Program),
        ("limit", Program),
        ("render", Lowered),
    ]
    assert [name for name, _ in seen] == [p.name for p in KERNEL_PASSES]


def test_passes_hand_each_other_what_they_made() -> None:
    seen: list[tuple[object, object]] = []
    kernel = corpus_kernel("gemm")
    made = build(kernel, TILED, DEVICES["cpu"], lambda _, *forms: seen.append(forms))
    assert seen[0][0] is kernel
    assert seen[-1][1] is made
    assert all(after is before for (_, after), (before, _) in pairwise(seen))


def test_passes_make_the_same_text_when_nobody_looks() -> None:
    kernel = corpus_kernel("gemm")
    device = DEVICES["cpu"]
    assert build(kernel, TILED, device, lambda *_: None) == build(kernel, TILED, device)


@pytest.mark.parametrize(("name", "device"), each_once(NAMES, [*DEVICES]))
def test_passes_of_the_corpus_verify_between_every_two(name: str, device: str) -> None:
    for kernel in kernels_of(name):
        space = Space(kernel, DEVICES[device].target)
        assert all(_verified(kernel, s, device) for s in (Schedule(()), *space.defaults()))
        for schedule in _drawn(space):
            _verified(kernel, schedule, device)


def test_passes_of_the_corpus_leave_no_access_unproved() -> None:
    programs = 0
    for target in (AVX512, replace(AVX512, vector_bytes=32, registers=16), GPU):
        for kernel in (k for name in NAMES for k in kernels_of(name)):
            space = Space(kernel, target)
            for schedule in (Schedule(()), *space.defaults()):
                programs += 1
                assert verify_program(space.lower(schedule)) == (), (kernel.name, schedule.text)
    assert programs > 400


@pytest.mark.parametrize("device", DEVICES)
def test_passes_verify_drawn_schedules_to_their_text(device: str) -> None:
    spaces = [Space(k, DEVICES[device].target) for name in NAMES[::6] for k in kernels_of(name)]
    drawn = [(space.kernel, s) for space in spaces for s in _drawn(space)]
    assert sum(_verified(kernel, s, device) for kernel, s in drawn) > len(drawn) / 2


def test_passes_refuse_an_access_that_is_not_proved_in_bounds() -> None:
    program = row_sum()
    observe = verifying(GPU)
    observe("races", program, program)
    (x,) = (b for b in program.params if b.name == "x")
    short = replace(x, size=x.size - 1)
    params = tuple(short if b is x else b for b in program.params)
    with pytest.raises(VerifyError, match="not proved to stay inside its buffer"):
        observe("races", program, replace(program, params=params))


def test_passes_a_broken_form_is_named_where_it_is_made() -> None:
    observe = verifying(AVX512)
    seen: list[tuple[str, object, object]] = []
    build(corpus_kernel("gemm"), TILED, DEVICES["cpu"], lambda *told: seen.append(told))
    forms = {name: after for name, _, after in seen}
    tree, program = forms["schedule"], forms["races"]
    assert isinstance(tree, LoopTree)
    assert isinstance(program, Program)
    with pytest.raises(VerifyError, match="loop tree of kernel"):
        observe("schedule", tree, replace(tree, loops=(*tree.loops, tree.loops[0])))
    twice = (Alloc("s", F32, 4, "thread"),) * 2
    with pytest.raises(VerifyError, match="program kernel"):
        observe("races", program, replace(program, allocs=twice))


def test_passes_dump_every_form_to_a_folder(tmp_path) -> None:
    kernel, device = corpus_kernel("gemm"), DEVICES["cpu"]
    made = build(kernel, TILED, device, dump_to_folder(tmp_path / "forms"))
    space = Space(kernel, device.target)
    assert {p.name: p.read_text() for p in (tmp_path / "forms").iterdir()} == {
        "0-kernel.txt": f"{kernel.text.rstrip()}\n",
        "1-loops.txt": f"{space.tree(Schedule(()))!s}".rstrip() + "\n",
        "2-schedule.txt": f"{space.tree(TILED)!s}".rstrip() + "\n",
        "3-lower.txt": f"{space.lower(TILED).text.rstrip()}\n",
        "6-render.txt": f"{made.text.rstrip()}\n",
    }


def test_passes_dump_what_was_made_before_one_refused(tmp_path) -> None:
    with pytest.raises(IllegalAction, match="nothing"):
        build(
            corpus_kernel("gemm"), Schedule.parse("upcast(axis=nothing)"), DEVICES["cpu"],
            dump_to_folder(tmp_path),
        )  # fmt: skip
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0-kernel.txt", "1-loops.txt"]
