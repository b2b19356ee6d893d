"""The hand-written schedules are legal, replay to the same bytes anywhere, and compute what their
kernels say.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.hand import entries, main, worst_error
from benchmarks.hand_schedules import FULL, GPU, SMALL
from benchmarks.single_kernel import SingleKernel, draw_arrays
from tests.schedule_checks import assert_agrees
from tests.verifiers.program import verify_program
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.team import Team
from tunegrad.frontend import Tensor
from tunegrad.ir.fusion import schedule
from tunegrad.ir.program import Load
from tunegrad.ir.verify.kernel import verify_kernel
from tunegrad.opts import Schedule, Space, parse_actions, print_actions
from tunegrad.render.llvm import render_llvm
from tunegrad.render.opencl import render_opencl

ROOT = Path(__file__).parents[2]
X = Tensor.input("x", (9,))
EVERY = [
    pytest.param(e, id=f"{e.name}-{size}")
    for size, t in (("full", FULL), ("small", SMALL))
    for e in t.values()
]


def digest(entry):
    render = render_opencl if entry.target is GPU else render_llvm
    return hashlib.sha256(
        render(Space(entry.kernel, entry.target).lower(entry.schedule)).encode()
    ).hexdigest()


def digests():
    return "\n".join(f"{n} {digest(t[n])}" for t in (FULL, SMALL) for n in t)


@pytest.mark.parametrize("entry", EVERY)
def test_hand_schedule_is_legal(entry):
    verify_kernel(entry.kernel)
    program = Space(entry.kernel, entry.target).lower(entry.schedule)
    assert verify_program(program) == (), "every access is proved in bounds"


def _window() -> Tensor:
    image = Tensor.input("x", (6, 7))
    parts = [image[i : i + 4, j : j + 5] for i in range(3) for j in range(3)]
    return sum(parts[1:], parts[0])


@pytest.mark.parametrize(
    ("y", "elements"),
    [
        pytest.param(X[:-1] + X[1:], 9, id="two views"),
        pytest.param(X[:-2] + X[1:-1] * X[2:], 9, id="three views"),
        pytest.param(X + X.flip(0), 9, id="reversed"),
        pytest.param(_window(), 42, id="a window"),
    ],
)
def test_registers_load_each_element_once_however_many_views_read_it(
    y: Tensor, elements: int
) -> None:
    (launch,) = schedule((y.node,)).launches
    space = Space(launch.kernel, GPU)
    upcast = " ".join(f"upcast(axis={a.name})" for a in launch.kernel.canonical().axes)
    program = space.lower(Schedule.parse(upcast))
    loads = [i for i in program.body if isinstance(i, Load)]
    assert len({(i.buffer, str(i.offset)) for i in loads}) == len(loads) == elements


@pytest.mark.parametrize("entry", EVERY)
def test_hand_schedule_text_parses_back(entry):
    assert parse_actions(print_actions(entry.schedule.actions)) == entry.schedule.actions


@pytest.mark.parametrize("entry", SMALL.values(), ids=SMALL)
def test_hand_schedule_agrees_with_the_interpreter(entry):
    assert_agrees(
        entry.kernel, Space(entry.kernel, entry.target).lower(entry.schedule), entry.actions
    )


def test_hand_schedules_replay_to_the_same_bytes_in_another_process():
    code = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/tests', sys.argv[1] + "
        "'/tests/unit']\n"
        "from test_lowering_hand_schedules import digests; print(digests())"
    )
    env = {**os.environ, "PYTHONHASHSEED": "31337"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], env=env, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == digests()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["packed_gemm", "direct_conv"])
def test_hand_schedule_is_right_at_full_size(name, threads):
    target, team = host_target(threads), Team(threads)
    entry = next(e for e in entries(threads) if e.name == name)
    program = Space(entry.kernel, entry.target).lower(entry.schedule)
    assert program.threads == threads
    with SingleKernel(program, target, team, draw_arrays(entry.kernel, 0)) as loaded:
        assert worst_error(entry, loaded, points=40) < 1e-5
    team.close()


def test_hand_benchmark_refuses_a_wrong_result(monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.hand.worst_error", lambda *_: 0.5)
    assert main(["--rounds", "1"]) == 1
    assert "packed_gemm: wrong by 0.5" in capsys.readouterr().err
