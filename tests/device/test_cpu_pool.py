"""The worker pool: every call ends, whatever its worker does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunegrad.devices.pool import Died, Finished, TimedOut, WorkerPool
from tunegrad.errors import InternalError


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
    start = time.monotonic()
    assert pool.call(time.sleep, 60, limit_s=0.2) == TimedOut(0.2)
    assert time.monotonic() - start < 10
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
        "from tunegrad.devices.pool import WorkerPool\nWorkerPool(1, print, (), 30.0).call(print, limit_s=5.0)\n",
        encoding="utf-8",
    )
    root = str(Path(__file__).parents[2])
    env = os.environ | {"PYTHONPATH": root}
    ended = subprocess.run([sys.executable, script], check=False, cwd=root, env=env, capture_output=True, text=True)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("tunegrad.errors.InternalError: print: the workers die while they start")
    assert last.endswith('only under `if __name__ == "__main__":`')


def test_call_behind_a_dead_idle_worker_is_not_blamed(pool):
    (pid,) = (pool.call(os.getpid, limit_s=5.0).value,)
    os.kill(pid, signal.SIGKILL)
    assert pool.call(answer, 6, limit_s=5.0) == Finished(12)


def test_close_is_idempotent():
    pool = WorkerPool(1, ready, (), 30.0)
    pool.close()
    pool.close()
