"""Compile, load and launch on the CPU: the thread team, its barrier, its clock, and plans."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import assembly, compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.loader import Library
from tunegrad.devices.host.team import BufferTable, Executable, Launch, LaunchTable, Team
from tunegrad.errors import CompileFailure, DeviceError, InternalError

pytestmark = pytest.mark.timing

TARGET = host_target(2)

ADD = """
define void @add(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) {
entry:
  %x = load ptr, ptr %buffers
  %yp = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %yp
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %p = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %p
  %w = fadd float %v, 1.0
  %q = getelementptr float, ptr %y, i64 %i
  store float %w, ptr %q
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 64
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""

# Each thread writes its number, all meet, each thread then copies what its neighbour wrote;
# `rounds` times.
NEIGHBOUR = """
declare void @tg_barrier(ptr)
define void @neighbour(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) {
entry:
  %a = load ptr, ptr %buffers
  %bp = getelementptr ptr, ptr %buffers, i64 1
  %b = load ptr, ptr %bp
  %other = xor i64 %tid, 1
  br label %round
round:
  %r = phi i64 [ 0, %entry ], [ %r1, %round ]
  %mine = getelementptr i64, ptr %a, i64 %tid
  %v = add i64 %r, %tid
  store i64 %v, ptr %mine
  call void @tg_barrier(ptr %team)
  %theirs = getelementptr i64, ptr %a, i64 %other
  %w = load i64, ptr %theirs
  %expected = add i64 %r, %other
  %good = icmp eq i64 %w, %expected
  %one = zext i1 %good to i64
  %out = getelementptr i64, ptr %b, i64 %tid
  %old = load i64, ptr %out
  %sum = add i64 %old, %one
  store i64 %sum, ptr %out
  call void @tg_barrier(ptr %team)
  %r1 = add i64 %r, 1
  %more = icmp slt i64 %r1, 500
  br i1 %more, label %round, label %done
done:
  ret void
}
"""


@pytest.fixture
def team():
    team = Team(2)
    yield team
    team.close()


def _table(*buffers: Buffer) -> BufferTable:
    return BufferTable([buffer.address for buffer in buffers], buffers)


def test_kernel_runs_after_compile_and_load(team):
    x, y = Buffer(256), Buffer(256)
    x.array("f32")[:] = np.arange(64)
    table = _table(x, y)
    with Executable.load(compile_llvm(ADD, TARGET), "add") as kernel:
        team.run(kernel.address, table.address, threads=1)
    np.testing.assert_array_equal(y.array("f32"), np.arange(64) + 1)


def test_compile_is_deterministic():
    assert compile_llvm(ADD, TARGET) == compile_llvm(ADD, TARGET)


def test_compiling_tells_when_each_stage_is_over():
    stages = []
    compile_llvm(ADD, TARGET, 1, stages.append)
    assert stages == ["parse", "passes", "emit"]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_every_level_compiles_a_loadable_object(level):
    with Executable.load(compile_llvm(ADD, TARGET, level), "add") as kernel:
        assert kernel.address > 0


def test_bad_text_is_a_compile_failure_with_llvms_words():
    with pytest.raises(CompileFailure, match="expected"):
        compile_llvm("define void @add( {", TARGET)


def test_ill_typed_module_is_a_compile_failure():
    text = "define void @k(ptr %b, ptr %w, i64 %t, ptr %m) {\n  br label %gone\n}"
    with pytest.raises(CompileFailure, match="gone"):
        compile_llvm(text, TARGET)


def test_missing_symbol_is_a_compile_failure():
    text = "declare void @nobody_has_this()\n" + ADD.replace(
        "ret void", "call void @nobody_has_this()\n  ret void"
    )
    image = compile_llvm(text, TARGET)
    with pytest.raises(CompileFailure, match="linking add: illegal: it calls nobody_has_this"):
        Executable.load(image, "add")
    missing = "linking add: symbol nobody_has_this: defined neither here nor in this process"
    with pytest.raises(CompileFailure, match=missing):
        Library(image, ("add",), {})


def test_closed_executable_refuses_its_address():
    kernel = Executable.load(compile_llvm(ADD, TARGET), "add")
    kernel.close()
    with pytest.raises(InternalError, match="after close"):
        _ = kernel.address


def test_barrier_orders_writes_of_two_threads(team):
    a, b = Buffer(16), Buffer(16)
    table = _table(a, b)
    with Executable.load(compile_llvm(NEIGHBOUR, TARGET), "neighbour") as kernel:
        team.run(kernel.address, table.address, threads=2)
    assert b.array("i64").tolist() == [500, 500]


def test_sleeping_helpers_wake_for_a_launch(team):
    a, b = Buffer(16), Buffer(16)
    table = _table(a, b)
    with Executable.load(compile_llvm(NEIGHBOUR, TARGET), "neighbour") as kernel:
        for _ in range(20):
            time.sleep(0.002)
            team.run(kernel.address, table.address, threads=2)
    assert b.array("i64").tolist() == [10000, 10000]


def test_launch_mixes_thread_counts(team):
    a, b, x, y = Buffer(16), Buffer(16), Buffer(256), Buffer(256)
    both, single = _table(a, b), _table(x, y)
    pair = Executable.load(compile_llvm(NEIGHBOUR, TARGET), "neighbour")
    alone = Executable.load(compile_llvm(ADD, TARGET), "add")
    entries = [
        Launch(pair.address, both.address, threads=2),
        Launch(alone.address, single.address, threads=1),
    ]
    team.run_plan(LaunchTable(entries * 50))
    assert b.array("i64").tolist() == [25000, 25000]
    assert y.array("f32").tolist() == [1.0] * 64
    pair.close()
    alone.close()


def test_idle_helpers_do_not_burn_a_core(team):
    table = _table(Buffer(16), Buffer(16))
    with Executable.load(compile_llvm(NEIGHBOUR, TARGET), "neighbour") as kernel:
        team.run(kernel.address, table.address, threads=2)
        burnt_s, wall_s = time.process_time(), time.monotonic()
        time.sleep(0.3)
        burnt_s, wall_s = time.process_time() - burnt_s, time.monotonic() - wall_s
    assert burnt_s < wall_s / 3  # one helper that spins burns all of it


def test_more_threads_than_the_team_has_is_refused(team):
    with pytest.raises(InternalError, match="3 threads: the team has 2"):
        team.run(0, 0, threads=3)


def test_team_of_no_threads_is_refused():
    with pytest.raises(DeviceError, match="at least 1"):
        Team(0)


def test_closed_team_refuses_a_launch():
    team = Team(1)
    team.close()
    with pytest.raises(InternalError, match="after close"):
        team.run(0, 0)


def test_team_survives_a_fork(team):
    a, b = Buffer(16), Buffer(16)
    table = _table(a, b)
    with Executable.load(compile_llvm(NEIGHBOUR, TARGET), "neighbour") as kernel:
        pid = os.fork()
        if pid == 0:
            team.run(kernel.address, table.address, threads=2)
            os._exit(0 if b.array("i64").tolist() == [500, 500] else 1)
        assert os.waitpid(pid, 0)[1] == 0


def test_clock_agrees_with_the_wall_around_it(team):
    x, y = Buffer(256), Buffer(256)
    table = _table(x, y)
    with Executable.load(compile_llvm(ADD, TARGET), "add") as kernel:
        launch = Launch(kernel.address, table.address)
        once = min(team.time(launch, 5, 100))
        inner = max(1, int(5e-3 / once))
        shares = []
        for _ in range(
            20
        ):  # a busy machine takes the core between samples; a wrong clock is wrong every time
            start = time.perf_counter()
            samples = team.time(launch, 5, inner)
            shares.append(sum(samples) * inner / (time.perf_counter() - start))
    assert len(samples) == 5
    assert 0.95 < max(shares) <= 1.0


def test_plan_times_every_entry(team):
    table = _table(Buffer(256), Buffer(256))
    with Executable.load(compile_llvm(ADD, TARGET), "add") as kernel:
        plan = LaunchTable([Launch(kernel.address, table.address)] * 3)
        totals, each = team.time_plan(plan, 4, each=True)
    assert len(totals) == 4
    assert len(each) == 3
    assert 0 < sum(each) <= 1.05 * sum(totals) / 4


def test_empty_plan_runs(team):
    team.run_plan(LaunchTable([]))
    assert len(team.time_plan(LaunchTable([]), 2)[0]) == 2


def test_assembly_shows_the_kernel():
    assert "add:" in assembly(ADD, TARGET)


def test_cold_samples_start_with_the_memory_out_of_every_cache(team):
    size = 4 * 64
    x, y = Buffer(size), Buffer(size)
    table = _table(x, y)
    with Executable.load(compile_llvm(ADD, TARGET), "add") as kernel:
        launch = Launch(kernel.address, table.address)
        warm = team.time(launch, 99, 1)
        cold = team.time(launch, 99, 1, [(x.address, size), (y.address, size)])
    assert len(cold) == 99
    # The least of many samples: five cache lines from memory or from the first level.
    assert min(cold) > min(warm) > 0
    assert not y.check_guards()
    assert (y.array("f32") == 1.0).all()


def test_near_memory_is_in_the_caches_again():
    x, y = Buffer(4 * 64), Buffer(4 * 64)
    x.array("f32")[:] = 1.0
    table = _table(x, y)
    cold = [(x.address, x.nbytes), (y.address, y.nbytes)]
    with Executable.load(compile_llvm(ADD, TARGET), "add") as kernel:
        launch, alone = Launch(kernel.address, table.address), Team(1)
        far = alone.time(launch, 99, 1, cold)
        near = alone.time(launch, 99, 1, (), cold)
        alone.close()
    # The least of many samples, as above: one thread has all of it.
    assert 0 < min(near) < min(far)
    assert (y.array("f32") == 2.0).all()
