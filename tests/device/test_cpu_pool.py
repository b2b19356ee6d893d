"""The worker pool: every call ends, whatever its worker does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tunegrad.devices.processes.channel import Died, Finished, TimedOut
from tunegrad.devices.processes.pool import WorkerPool
from tunegrad.errors import InternalError

pytestmark = pytest.mark.timing


def ready() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def never_ready() -> None:
    raise RuntimeError("no device here")


def answer(number: int) -> int:
    return number * 2


def leave(code: int) -> None:
    os._exit(code)


def kill(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(10)


def fail() -> None:
    raise KeyError("a bug")


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(1, ready, (), 30.0)
    yield pool
    pool.close()


def test_calls_come_back_in_order(pool):
    assert pool.map(answer, [(n,) for n in range(20)], 5.0) == [Finished(2 * n) for n in range(20)]


def test_no_calls_need_no_workers():
    assert WorkerPool(1, ready, (), 30.0).map(answer, [], 1.0) == []


def test_exit_is_told_by_its_code_and_the_batch_goes_on(pool):
    assert pool.call(leave, 75, limit_s=5.0) == Died(75)
    assert pool.call(answer, 1, limit_s=5.0) == Finished(2)


def test_signal_is_told_by_its_name(pool):
    ending = pool.call(kill, int(signal.SIGKILL), limit_s=5.0)
    assert isinstance(ending, Died)
    assert ending.text == "SIGKILL"


def test_overdue_call_is_stopped_at_its_limit(pool):
    start, nap_s = time.monotonic(), 60.0
    assert pool.call(time.sleep, nap_s, limit_s=0.2) == TimedOut(0.2)
    assert time.monotonic() - start < nap_s / 2  # not waited for until it ends by itself
    assert pool.call(answer, 3, limit_s=5.0) == Finished(6)


def test_fault_of_the_function_is_raised(pool):
    with pytest.raises(KeyError, match="a bug"):
        pool.call(fail, limit_s=5.0)
    assert pool.call(answer, 4, limit_s=5.0) == Finished(8)


def test_unpicklable_argument_is_raised(pool):
    with pytest.raises((AttributeError, TypeError)):
        pool.call(answer, lambda: 0, limit_s=5.0)
    assert pool.call(answer, 5, limit_s=5.0) == Finished(10)


def test_worker_that_can_not_start_is_an_internal_error():
    pool = WorkerPool(1, never_ready, (), 2.0)
    with pytest.raises(InternalError, match="answer: "):
        pool.call(answer, 1, limit_s=0.1)
    pool.close()


def test_script_without_a_guard_is_told_what_to_do(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from tunegrad.devices.processes.pool import WorkerPool\n"
        "WorkerPool(1, print, (), 30.0).call(print, limit_s=5.0)\n",
        encoding="utf-8",
    )
    root = str(Path(__file__).parents[2])
    env = os.environ | {"PYTHONPATH": root}
    ended = subprocess.run(
        [sys.executable, script], check=False, cwd=root, env=env, capture_output=True, text=True
    )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("tunegrad.errors.InternalError: print: the workers die while they start")
    assert last.endswith('only under `if __name__ == "__main__":`')
    assert ended.stderr.count("Traceback") == 1


def test_call_behind_a_dead_idle_worker_is_not_blamed(pool):
    (pid,) = (pool.call(os.getpid, limit_s=5.0).value,)
    os.kill(pid, signal.SIGKILL)
    assert pool.call(answer, 6, limit_s=5.0) == Finished(12)


def test_call_that_no_worker_takes_gets_another_pool():
    """As when a worker is killed from outside while it holds the lock of the pool's pipe."""
    pool = WorkerPool(1, ready, (), start_s=3.0)
    stalled = pool.call(os.getpid, limit_s=1.0).value
    os.kill(stalled, signal.SIGSTOP)
    try:
        ending = pool.call(os.getpid, limit_s=1.0)
    finally:
        pool.close()
    assert isinstance(ending, Finished)
    assert ending.value != stalled
    assert pool.rebuilt == 1


def test_close_is_idempotent():
    pool = WorkerPool(1, ready, (), 30.0)
    pool.close()
    pool.close()


# ---- calls in the background


def test_started_calls_run_while_the_caller_goes_on(pool, tmp_path):
    started = pool.start(answer_once_asked, [(7, tmp_path / "go")], 60.0)
    (tmp_path / "go").touch()  # a start that waited for its call would end at its limit
    wait_until(lambda: all(future.done() for future in started.futures))
    assert started.wait() == started.wait() == [Finished(14)]


def test_second_start_while_one_is_under_way_is_refused(pool):
    started = pool.start(answer, [(1,)], 5.0)
    for again in (pool.start, pool.map):
        with pytest.raises(InternalError, match="answer: answer is still under way"):
            again(answer, [(2,)], 5.0)
    assert started.wait() == [Finished(2)]
    assert pool.call(answer, 2, limit_s=5.0) == Finished(4)


def test_settled_pool_has_nothing_under_way_and_the_endings_are_kept(pool):
    pool.wait_idle()
    started = pool.start(slow_answer, [(1,), (2,)], 5.0)
    pool.wait_idle()
    assert pool.call(answer, 3, limit_s=5.0) == Finished(6)
    assert started.wait() == [Finished(2), Finished(4)]


def test_started_call_has_its_limit_from_its_own_start(pool):
    started = pool.start(
        time.sleep, [(600,), (0.05,)], 4.0
    )  # one worker: the second starts when the first is stopped
    assert started.wait() == [TimedOut(4.0), Finished(None)]


def test_worker_that_dies_in_the_background_costs_its_own_call_only(pool):
    started = pool.start(maybe_kill, [(0,), (int(signal.SIGKILL),), (0,)], 5.0)
    time.sleep(0.5)
    assert [type(ending) for ending in started.wait()] == [Finished, Died, Finished]


def test_fault_in_the_background_is_raised_by_the_wait_and_the_pool_goes_on(pool):
    started = pool.start(fail, [()], 5.0)
    with pytest.raises(KeyError, match="a bug"):
        started.wait()
    with pytest.raises(InternalError, match="fail: its calls were given up"):
        started.wait()
    assert pool.call(answer, 4, limit_s=5.0) == Finished(8)


def test_started_calls_that_are_closed_do_not_go_on(pool, tmp_path):
    started = pool.start(write_then_sleep, [(tmp_path / "a",), (tmp_path / "b",)], 60.0)
    wait_until((tmp_path / "a").exists)
    started.close()
    started.close()
    assert gone(int((tmp_path / "a").read_text()))
    assert not (tmp_path / "b").exists()
    with pytest.raises(InternalError, match="given up"):
        started.wait()
    assert pool.call(answer, 4, limit_s=5.0) == Finished(8)


def test_closing_calls_that_have_ended_costs_no_worker(pool):
    pid = pool.call(os.getpid, limit_s=5.0).value
    started = pool.start(answer, [(1,)], 5.0)
    wait_until(lambda: all(future.done() for future in started.futures))
    started.close()
    assert pool.call(os.getpid, limit_s=5.0).value == pid


def test_interrupted_wait_leaves_nothing_running(pool, tmp_path):
    started = pool.start(write_then_sleep, [(tmp_path / "a",)], 60.0)
    wait_until((tmp_path / "a").exists)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            started.wait()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert gone(int((tmp_path / "a").read_text()))
    started.close()
    assert pool.call(answer, 4, limit_s=5.0) == Finished(8)


def test_closed_pool_gives_up_what_is_under_way(tmp_path):
    pool = WorkerPool(1, ready, (), 30.0)
    started = pool.start(write_then_sleep, [(tmp_path / "a",)], 60.0)
    wait_until((tmp_path / "a").exists)
    pool.close()
    assert gone(int((tmp_path / "a").read_text()))
    with pytest.raises(InternalError, match="given up"):
        started.wait()


def slow_answer(number: int) -> int:
    time.sleep(0.4)
    return answer(number)


def answer_once_asked(number: int, asked: Path) -> int:
    wait_until(asked.exists)
    return answer(number)


def maybe_kill(number: int) -> None:
    if number:
        kill(number)


def write_then_sleep(path: Path) -> None:
    part = path.with_suffix(".part")
    part.write_text(str(os.getpid()))
    part.rename(path)
    time.sleep(60)


def wait_until(done: Callable[[], bool]) -> None:
    while not done():  # as long as the test may last
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt
