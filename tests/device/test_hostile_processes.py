"""Worker processes: none is left after close, after an interrupt, or after the parent was
killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import hostile
import pytest
from hostile_programs import unguarded

from tunegrad.devices.job import Hooks, Limits
from tunegrad.devices.measurer import DeviceMeasurer
from tunegrad.trial import Policy, Status

pytestmark = pytest.mark.timing

HERE = Path(__file__).parent

# Starts workers, reports their ids, and then hangs in an endless candidate.
SCRIPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs behind it with SIGINT ignored
import hostile
from hostile_programs import unguarded
from tunegrad.devices.job import Hooks, Limits
from tunegrad.devices.measurer import DeviceMeasurer
from tunegrad.trial import Policy

def main():
    with DeviceMeasurer(unguarded(1), Hooks(reference="hostile:reference"), Limits(), compile_workers=1) as measurer:
        measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)
        print(*hostile.children(), flush=True)
        measurer.measure([hostile.candidate(hostile.ENDLESS)], Policy(timeout_s=60.0))

if __name__ == "__main__":
    main()
"""


FLOODS = """
import hostile
from hostile_programs import unguarded
from tunegrad.devices.job import Hooks, Limits
from tunegrad.devices.measurer import DeviceMeasurer

def main():
    with DeviceMeasurer(unguarded(1), Hooks(reference="hostile:reference"), Limits(), compile_workers=1) as measurer:
        batch = [hostile.candidate(hostile.flood(1)), hostile.candidate(hostile.flood(2))]
        print(*(o.measurement.status for o in measurer.measure(batch, hostile.QUICK)), flush=True)

if __name__ == "__main__":
    main()
"""


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def _path() -> str:
    return os.pathsep.join(
        [str(HERE), str(HERE.parent), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    )


def test_output_of_candidates_goes_nowhere(tmp_path):
    script = tmp_path / "floods.py"
    script.write_text(FLOODS)
    command, environ = [sys.executable, str(script)], {**os.environ, "PYTHONPATH": _path()}
    ended = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    assert (ended.stdout, ended.stderr) == ("ok ok\n", "")


def test_close_leaves_no_workers():
    before = hostile.children()
    measurer = DeviceMeasurer(
        unguarded(1), Hooks(reference="hostile:reference"), Limits(), compile_workers=2
    )
    measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)
    started = hostile.children() - before
    measurer.close()
    assert len(started) >= 3
    # multiprocessing's fork server and resource tracker live as long as this process.
    assert len(started & hostile.children()) <= 2
    assert len(started - hostile.children()) >= 3


def test_measurer_starts_again_after_close():
    measurer = DeviceMeasurer(
        unguarded(1), Hooks(reference="hostile:reference"), Limits(), compile_workers=1
    )
    for _ in range(2):
        (outcome,) = measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)
        assert outcome.measurement.status is Status.OK
        measurer.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_orphans_when_the_parent_ends_by(number, tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT)
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": _path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(workers) >= 3
        parent.send_signal(number)
        assert parent.wait(timeout=60) != 0
        assert hostile.eventually(lambda: all(map(_gone, workers)))
    finally:
        parent.kill()
        parent.wait()
        assert parent.stdout is not None
        parent.stdout.close()


def test_interrupt_stops_the_candidate_at_once_and_the_next_is_measured():
    """Waiting for the candidate until it is overdue would take longer than a test may."""
    with DeviceMeasurer(
        unguarded(1), Hooks(reference="hostile:reference"), Limits(), compile_workers=1
    ) as measurer:
        measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)
        previous = signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            measurer.measure([hostile.candidate(hostile.ENDLESS)], Policy(timeout_s=3600.0))
        signal.signal(signal.SIGALRM, previous)
        (outcome,) = measurer.measure([hostile.candidate(hostile.GOOD)], hostile.QUICK)
    assert outcome.measurement.status is Status.OK


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
