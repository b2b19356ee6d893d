"""The isolated worker: every call ends, what comes back is data, and the process has nothing but
its channel.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunegrad.devices.processes import isolated, system_calls
from tunegrad.devices.processes.channel import Died, Finished, TimedOut
from tunegrad.devices.processes.isolated import IsolatedWorker
from tunegrad.devices.verifying.handover import Mapped, SharedMemory
from tunegrad.errors import DeviceError, InternalError
from tunegrad.tune.sessions import WORKER_MODULES

pytestmark = pytest.mark.timing


@dataclass(frozen=True, slots=True)
class Pair:
    number: int
    text: str


def ready() -> None:
    pass


def never_ready() -> None:
    raise RuntimeError("no device here")


def twice(number: int) -> int:
    return 2 * number


def pair(number: int) -> Pair:
    return Pair(number, "x" * number)


def leave(code: int) -> None:
    os._exit(code)


def signalled(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(10)


def on_one_core(core: int) -> None:
    os.sched_setaffinity(0, {core})


def busy_for(cpu_s: float) -> float:
    """Compute for so many seconds of processor time."""
    began_s = time.process_time()
    while time.process_time() - began_s < cpu_s:
        pass
    return time.process_time() - began_s


def busy_until(end_s: float) -> None:
    """Compute until that time of the clock that all processes share."""
    while time.monotonic() < end_s:
        pass


def fail() -> None:
    raise KeyError("a bug")


def process() -> int:
    return os.getpid()


def doubled(arrays: dict[str, Any]) -> list[tuple[str, str, list[int], float]]:
    """Name, dtype, shape and twice the sum of arrays; each that may be written to is
    overwritten.
    """
    found = [
        (name, x.dtype.str, list(x.shape), 2.0 * float(x.sum(dtype="f8")))
        for name, x in arrays.items()
    ]
    for x in arrays.values():
        if x.flags.writeable:
            x.fill(0)
    return found


def hears_interrupts() -> bool:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return (
        signal.SIGINT not in blocked
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def imported(module: str) -> bool:
    return module in sys.modules


def babble(data: bytes) -> int:
    os.write(3, data)
    return 1


def babble_later() -> int:
    threading.Timer(0.2, os.write, (3, b"later")).start()
    return 1


def heard(worker: IsolatedWorker) -> None:
    """Wait until an idle worker has said something, or its end has been seen."""
    while worker._running.channel.quiet():  # as long as the test may last
        time.sleep(0.01)


@pytest.fixture(scope="module")
def worker() -> Iterator[IsolatedWorker]:
    worker = IsolatedWorker(ready, (), 30.0)
    yield worker
    worker.close()


def test_value_comes_back_as_the_type_that_was_asked_for(worker):
    assert worker.call(pair, 3, limit_s=5.0, reply_type=Pair) == Finished(Pair(3, "xxx"))


def test_arrays_arrive_as_they_are_and_are_the_workers_own(worker):
    grid = np.arange(1 << 20, dtype="f4").reshape(1 << 10, 1 << 10)
    frozen = np.arange(3, dtype="i8")
    frozen.flags.writeable = False
    arrays = {
        "large": grid,
        "turned": np.arange(6, dtype="f4").reshape(2, 3).T,
        "part": np.arange(40, dtype="f4").reshape(8, 5)[::3, 1:5],
        "none": np.zeros((0, 4), "f8"),
        "one": np.array([7], "u2"),
        "frozen": frozen,
    }
    ending = worker.call(
        doubled, arrays, limit_s=5.0, reply_type=list[tuple[str, str, list[int], float]]
    )
    assert ending == Finished(doubled({name: x.copy() for name, x in arrays.items()}))
    assert grid[0, 1] == 1.0, "what the worker overwrote is its copy"


def test_workers_have_what_the_fork_server_was_told_to_import():
    script = """if __name__ == "__main__":
    from tunegrad.devices.processes.isolated import IsolatedWorker, start_fork_server
    from test_isolated_worker import imported, ready
    start_fork_server(["wave"])
    worker = IsolatedWorker(ready, (), 30.0)
    print(worker.call(imported, "wave", limit_s=5.0, reply_type=bool).value)
    worker.close()
"""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, env=here, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == "True\n"


def test_ctrl_c_while_the_fork_server_imports_is_not_its_own(tmp_path):
    """As a terminal sends it: to every process. Processes that others fork from it hear theirs."""
    began, go = tmp_path / "began", tmp_path / "go"
    (tmp_path / "imports_slowly.py").write_text(
        "import pathlib, time\n"
        f"pathlib.Path({str(began)!r}).touch()\n"
        f"while not pathlib.Path({str(go)!r}).exists():\n    time.sleep(0.01)\n"
    )
    script = f"""if __name__ == "__main__":
    import multiprocessing, os, pathlib, signal, time
    from multiprocessing import forkserver
    from tunegrad.devices.processes.isolated import IsolatedWorker, start_fork_server
    from test_isolated_worker import hears_interrupts, imported, ready
    start_fork_server(["imports_slowly"])
    while not pathlib.Path({str(began)!r}).exists():
        time.sleep(0.01)
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGINT)
    pathlib.Path({str(go)!r}).touch()
    worker = IsolatedWorker(ready, (), 30.0)
    print(worker.call(imported, "imports_slowly", limit_s=5.0, reply_type=bool).value)
    worker.close()
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.apply(hears_interrupts))
"""
    found = [str(tmp_path), str(Path(__file__).parent), *sys.path]
    run = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.pathsep.join(found)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (run.stdout, run.stderr) == ("True\nTrue\n", "")


def test_value_of_another_type_ends_the_worker(worker):
    ending = worker.call(pair, 3, limit_s=5.0, reply_type=list[int])
    assert isinstance(ending, Died)
    assert ending.why == "a reply that is none: Expected `array`, got `object`"
    assert worker.call(twice, 1, limit_s=5.0, reply_type=int) == Finished(2)


def test_reply_longer_than_its_bound_is_not_read(worker):
    ending = worker.call(pair, 2 << 20, limit_s=5.0, reply_type=Pair)
    assert isinstance(ending, Died)
    assert ending.why.endswith("at most 1048576")


def test_process_lives_from_call_to_call_and_is_replaced_when_it_ends(worker):
    first = worker.call(process, limit_s=5.0, reply_type=int)
    assert worker.call(process, limit_s=5.0, reply_type=int) == first
    assert worker.call(leave, 75, limit_s=5.0, reply_type=None) == Died(75)
    assert worker.call(process, limit_s=5.0, reply_type=int) != first


def test_signal_is_told_by_its_name(worker):
    ending = worker.call(signalled, int(signal.SIGSEGV), limit_s=5.0, reply_type=None)
    assert ending == Died(-signal.SIGSEGV)
    assert ending.text == "SIGSEGV"


def test_overdue_call_is_stopped_at_its_limit(worker):
    pid = worker.call(process, limit_s=5.0, reply_type=int).value
    assert worker.call(time.sleep, 60, limit_s=0.2, reply_type=None) == TimedOut(0.2)
    assert _gone(pid)
    assert worker.call(twice, 3, limit_s=5.0, reply_type=int) == Finished(6)


def test_time_that_a_call_waits_for_a_core_does_not_count():
    schedstat = Path("/proc/self/schedstat")
    if not (schedstat.exists() and int(schedstat.read_text(encoding="ascii").split()[1])):
        pytest.skip("this kernel does not say how long threads wait for a core")
    core = min(os.sched_getaffinity(0))
    others = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile 1: pass",
            ],
            start_new_session=True,
        )
        for _ in range(4)
    ]
    crowded = IsolatedWorker(on_one_core, (core,), 60.0)
    try:
        assert crowded.call(busy_for, 0.1, limit_s=60.0, reply_type=float).value >= 0.1
        ending = crowded.call(busy_until, time.monotonic() + 1.1, limit_s=1.0, reply_type=None)
    finally:
        for other in others:
            other.kill()
            other.wait()
        crowded.close()
    assert isinstance(ending, Finished), "late for its limit, by less than it waited for the core"


def test_fault_of_the_function_is_told_and_ends_the_worker(worker):
    ending = worker.call(fail, limit_s=5.0, reply_type=None)
    assert isinstance(ending, Died)
    assert ending.why.startswith("KeyError: 'a bug'\n")


@pytest.mark.parametrize("data", [b"x", b"x" * 100, b"\x09" + bytes(7) + b"\xc1" * 9, b"\xff" * 8])
def test_bytes_that_are_no_reply_end_the_worker_and_nothing_else(worker, data):
    assert not isinstance(worker.call(babble, data, limit_s=1.0, reply_type=int), Finished)
    assert worker.call(twice, 3, limit_s=5.0, reply_type=int) == Finished(6)


def test_what_was_said_after_a_reply_is_not_the_next_calls_reply(worker):
    first = worker.call(process, limit_s=5.0, reply_type=int)
    assert worker.call(babble_later, limit_s=5.0, reply_type=int) == Finished(1)
    heard(worker)
    second = worker.call(process, limit_s=5.0, reply_type=int)
    assert isinstance(second, Finished)
    assert second != first, "who speaks without being asked is replaced"


def test_call_behind_a_dead_idle_worker_is_not_blamed(worker):
    os.kill(worker.call(process, limit_s=5.0, reply_type=int).value, signal.SIGKILL)
    heard(worker)
    assert worker.call(twice, 6, limit_s=5.0, reply_type=int) == Finished(12)


def test_worker_that_can_not_start_is_an_internal_error():
    worker = IsolatedWorker(never_ready, (), 10.0)
    with pytest.raises(InternalError, match="twice: the workers die while they start"):
        worker.call(twice, 1, limit_s=0.1, reply_type=int)


def test_worker_that_can_not_start_within_a_limit_names_the_limit(monkeypatch):
    """One of 4 GB is too little for the bench's guarded memory."""
    monkeypatch.setattr(isolated.resource, "getrlimit", lambda _: (4 << 30, 4 << 30))
    assert "4096 MB of addresses (ulimit -v)" in str(isolated.no_start(twice))
    assert isinstance(isolated.no_start(twice), DeviceError)


def test_interrupt_leaves_no_process(worker):
    pid = worker.call(process, limit_s=5.0, reply_type=int).value
    before = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            worker.call(time.sleep, 60, limit_s=60.0, reply_type=None)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert _gone(pid)


# ---- what the process has


def test_process_has_its_channel_and_nowhere_and_no_other_descriptor(worker):
    pid = worker.call(process, limit_s=5.0, reply_type=int).value
    where = {int(fd.name): str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    assert sorted(where) == [0, 1, 2, 3]
    assert {where[n] for n in (0, 1, 2)} == {"/dev/null"}
    assert where[3].startswith("socket:")


def test_process_has_a_session_and_a_group_of_its_own(worker):
    pid = worker.call(process, limit_s=5.0, reply_type=int).value
    assert (os.getsid(pid), os.getpgid(pid)) == (pid, pid)
    assert worker.protections().session


def test_shared_memory_is_seen_on_both_sides_and_given_back():
    memory = SharedMemory(1 << 30)
    one, other = IsolatedWorker(keep, (memory,), 30.0), IsolatedWorker(keep, (memory,), 30.0)
    try:
        assert one.call(put, 5, 77, limit_s=5.0, reply_type=None) == Finished(None)
        assert other.call(get, 5, limit_s=5.0, reply_type=int) == Finished(77)
        memory.clear()
        assert other.call(get, 5, limit_s=5.0, reply_type=int) == Finished(0)
    finally:
        one.close()
        other.close()


_kept: list[Any] = []


def keep(memory: Mapped) -> None:
    _kept.append(memory.bytes)


def put(at: int, value: int) -> None:
    _kept[0][at] = value


def get(at: int) -> int:
    return int(_kept[0][at])


def test_shared_memory_can_not_be_cut(tmp_path):
    memory = SharedMemory(1 << 20)
    with pytest.raises(PermissionError):
        os.ftruncate(memory._descriptor, 4096)
    with pytest.raises(PermissionError):
        os.ftruncate(memory._descriptor, 2 << 20)


# ---- each protection for itself, where the others are missing


def no_seccomp(*_: object) -> bool:
    return False


def without_seccomp() -> None:
    from tunegrad.devices.processes import confine

    confine.filter_calls = no_seccomp


def attempt(name: str, *arguments: Any) -> int:
    """The error number of something that a candidate may try; 0 where it worked."""
    try:
        {"open": os.open, "kill": os.kill, "fork": os.fork, "unlink": os.unlink, "mkdir": os.mkdir}[
            name
        ](*arguments)
    except OSError as error:
        return error.errno or -1
    return 0


@pytest.mark.skipif(system_calls.landlock_version() == 0, reason="this kernel has no Landlock")
def test_landlock_alone_keeps_files_from_it(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("content")
    worker = IsolatedWorker(without_seccomp, (), 30.0)
    try:
        assert not worker.protections().seccomp
        for tried in (("open", str(victim), os.O_RDONLY), ("open", str(victim), os.O_WRONLY),
            ("unlink", str(victim)),
                      ("mkdir", str(tmp_path / "new"))):  # fmt: skip
            ending = worker.call(attempt, *tried, limit_s=5.0, reply_type=int)
            assert ending.value > 0, tried
    finally:
        worker.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["victim"]
    assert victim.read_text() == "content"


@pytest.mark.skipif(
    system_calls.landlock_version() < 6, reason="this kernel's Landlock knows no signals"
)
def test_landlock_alone_keeps_signals_in():
    worker = IsolatedWorker(without_seccomp, (), 30.0)
    try:
        assert worker.call(attempt, "kill", os.getpid(), 0, limit_s=5.0, reply_type=int).value > 0
    finally:
        worker.close()


def test_empty_root_stands_in_for_landlock():
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", ROOTLESS]
    ended = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    if "no user namespace" in ended:
        pytest.skip("this system lets nobody make a user namespace")
    assert ended.splitlines() == ["True", "[]", "denied"]


ROOTLESS = """
import os
from tunegrad.devices.processes import isolated, system_calls
system_calls.landlock_version = lambda: 0
from tunegrad.devices.processes import confine
beginning = confine.begin(confine.Confinement(), 2)
if not beginning.protections.user_namespace:
    print("no user namespace")
    raise SystemExit
found = beginning.protections.user_namespace and confine._enter_empty_root()
print(found)
print(os.listdir("/"))
try:
    os.open("/new", os.O_CREAT | os.O_WRONLY)
    print("worked")
except OSError:
    print("denied")
"""


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", WORKER_MODULES)
def test_a_module_that_workers_of_a_session_are_forked_with_exists(name):
    """The fork server passes over a name that it can not import."""
    assert importlib.util.find_spec(name) is not None
