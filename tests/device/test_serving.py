"""Loaded models in a process that serves: threads side by side, and forks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

import tunegrad as tg
from tunegrad.devices.host.team import Cores, LaunchTable, OpenMP, Team, Teams

pytestmark = pytest.mark.timing

WAIT_S = 60.0


def product(n: int, threads: int) -> tuple[tg.inference.LoadedModel, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    a = rng.standard_normal((n, n), np.float32)
    model = tg.compile(lambda x: x @ tg.Tensor(a), a, threads=threads, store=False)
    return model, a, a @ a


def in_child(run: Callable[[], bool]) -> int:
    """The exit code of a forked child that runs this; 0 where it says True; -14 where it hangs."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(WAIT_S))
        os._exit(0 if run() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def compiles(n: int) -> bool:
    model, a, aa = product(n, 1)
    return bool(np.allclose(model(a), aa, rtol=1e-4, atol=1e-2))


@contextmanager
def lent(of: Cores | Teams, *count: int) -> Iterator[Any]:
    """What ``take`` gives, given back at the end."""
    found = of.take(*count)
    try:
        yield found
    finally:
        of.give(found)


# ---- cores


def taken(cores: Cores, count: int, got: list[tuple[int, ...]], go_on: threading.Event) -> None:
    with lent(cores, count) as mine:
        got.append(mine)
        go_on.wait(WAIT_S)


def test_cores_are_lent_to_one_borrower_at_a_time() -> None:
    cores, used = Cores(range(4)), [0] * 4
    faults: list[int] = []

    def borrow(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(200):
            with lent(cores, int(rng.integers(1, 5))) as mine:
                for core in mine:
                    used[core] += 1
                    if used[core] != 1:
                        faults.append(core)
                for core in mine:
                    used[core] -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(borrow, range(6)))
    assert not faults
    with lent(cores, 9) as everything:
        assert everything == (0, 1, 2, 3)


def test_who_wants_all_cores_is_not_passed_by_those_who_want_one() -> None:
    cores, got, go_on = Cores(range(2)), list[tuple[int, ...]](), threading.Event()
    first = threading.Thread(target=taken, args=(cores, 1, got, go_on))
    first.start()
    while not got:
        time.sleep(0.001)
    order: list[str] = []

    def ask(name: str, count: int) -> None:
        with lent(cores, count):
            order.append(name)

    both = threading.Thread(target=ask, args=("both", 2))
    both.start()
    while not cores._queue:
        time.sleep(0.001)
    one = threading.Thread(target=ask, args=("one", 1))  # a core is free, and somebody is in front
    one.start()
    while len(cores._queue) < 2:
        time.sleep(0.001)
    assert order == []
    go_on.set()
    for thread in (first, both, one):
        thread.join(WAIT_S)
    assert order == ["both", "one"]


def test_who_leaves_the_queue_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = Cores(range(2))

    def interrupted(_: threading.Event) -> None:
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(cores.take, 1).result()
    monkeypatch.setattr(threading.Event, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), lent(cores, 2):
        pass
    monkeypatch.undo()
    assert not cores._queue
    cores.give(theirs)
    with lent(cores, 2) as everything:
        assert everything == (0, 1)


@pytest.mark.parametrize("again", [1, 2])
def test_cores_that_an_interrupt_left_with_a_thread_come_back_when_it_asks(again: int) -> None:
    cores, got, go_on = Cores(range(2)), list[tuple[int, ...]](), threading.Event()
    lost = cores.take(2)  # and nothing is given back
    other = threading.Thread(target=taken, args=(cores, 1, got, go_on))
    other.start()
    while not cores._queue:
        time.sleep(0.001)
    go_on.set()
    mine = cores.take(again)
    assert len(mine) == again
    other.join(WAIT_S)
    assert len(got) == 1
    cores.give(mine)
    cores.give(lost)  # twice is once
    with lent(cores, 2) as everything:
        assert everything == (0, 1)


def test_teams_are_of_other_cores_and_kept() -> None:
    teams = Teams(1)
    teams._cores = Cores(range(2))
    with lent(teams) as first, lent(teams) as second:
        assert first is not second
    with lent(teams) as again:
        assert again is first
    teams.close()


# ---- threads


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Barrier]:
    """Plans of two threads meet before they run: a call that waits for another one breaks it."""
    barrier = threading.Barrier(2, timeout=WAIT_S)
    run = Team.run_plan

    def met(self: Team, plan: object) -> None:
        barrier.wait()
        run(self, plan)  # type: ignore[arg-type]

    def met_alone(
        self: Teams, plan: LaunchTable, openmp: OpenMP | None = None
    ) -> Callable[[], None]:
        alone = runner(self, plan, openmp)

        def met() -> None:
            barrier.wait()
            alone()

        return met if plan.threads == 1 else alone

    runner = Teams.runner
    monkeypatch.setattr(Team, "run_plan", met)
    monkeypatch.setattr(Teams, "runner", met_alone)
    yield barrier
    barrier.abort()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: models take turns")
def test_models_of_one_thread_run_side_by_side(meeting: threading.Barrier) -> None:
    (f, a, aa), (g, b, bb) = product(64, 1), product(48, 1)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(f, a), pool.submit(g, b)
        np.testing.assert_allclose(first.result(), aa, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(second.result(), bb, rtol=1e-4, atol=1e-3)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: models take turns")
def test_calls_of_one_model_run_side_by_side(meeting: threading.Barrier) -> None:
    model, a, aa = product(64, 1)
    before = model._constants.nbytes
    with ThreadPoolExecutor(2) as pool:
        for out in (pool.submit(model, a), pool.submit(model, a)):
            np.testing.assert_allclose(out.result(), aa, rtol=1e-4, atol=1e-3)
    assert model._constants.nbytes == before > 0


def test_models_of_all_threads_take_turns(meeting: threading.Barrier) -> None:
    meeting._timeout = 1.0  # type: ignore[attr-defined]
    threads = len(os.sched_getaffinity(0))
    (f, a, _), (g, b, _) = product(64, threads), product(48, threads)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(f, a), pool.submit(g, b)]
        assert all(isinstance(c.exception(), threading.BrokenBarrierError) for c in calls)


def test_many_threads_get_their_own_results() -> None:
    models = [product(n, 1 + n % 2) for n in (17, 32, 48, 65)]

    def ask(i: int) -> None:
        model, a, aa = models[i % len(models)]
        scale = np.float32(1 + i)
        np.testing.assert_allclose(model(a * scale), aa * scale, rtol=1e-4, atol=1e-2 * scale)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(200)))


# ---- forks


@pytest.mark.parametrize("threads", [1, 2])
def test_a_child_of_a_process_whose_other_thread_runs_a_model_runs_it_too(threads: int) -> None:
    model, a, aa = product(512, threads)
    over = threading.Event()

    def busy() -> None:
        while not over.is_set():
            model(a)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        codes = [
            in_child(lambda: bool(np.allclose(model(a), aa, rtol=1e-4, atol=1e-2)))
            for _ in range(10)
        ]
    finally:
        over.set()
        thread.join()
    assert codes == [0] * 10
    np.testing.assert_allclose(model(a), aa, rtol=1e-4, atol=1e-2)


def test_a_child_of_a_process_whose_other_thread_compiles_compiles_too() -> None:
    product(7, 1)  # a fork while Python itself imports would hang
    over = threading.Event()

    def busy() -> None:
        n = 8
        while not over.is_set():
            product(n, 1)
            n += 1

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        codes = [in_child(partial(compiles, 200 + i)) for i in range(5)]
    finally:
        over.set()
        thread.join()
    assert codes == [0] * 5


# ---- inputs


@pytest.mark.parametrize("offset", [0, 4, 16, 60])
def test_inputs_are_read_where_they_lie(offset: int) -> None:
    model, a, aa = product(33, 2)
    raw = np.empty(a.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    x = raw[start : start + a.nbytes].view(np.float32).reshape(a.shape)
    x[...] = a
    before = model.memory_bytes
    np.testing.assert_allclose(model(x), aa, rtol=1e-4, atol=1e-3)
    assert model.memory_bytes == before
    np.testing.assert_array_equal(x, a)


def test_inputs_between_elements_are_copied() -> None:
    model, a, aa = product(33, 2)
    raw = np.empty(a.nbytes + 128, np.uint8)
    x = np.ndarray(a.shape, np.float32, raw.data, offset=1)
    x[...] = a
    np.testing.assert_allclose(model(x), aa, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(model(x.T), a.T @ a, rtol=1e-4, atol=1e-3)
