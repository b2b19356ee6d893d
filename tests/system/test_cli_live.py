"""The live display of a real search on a pseudo terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
LIMIT_S = 60.0


class Screen:
    """What a program writes to a terminal of 80 x 24, as it comes."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.text = ""

    def until(self, pattern: str) -> float:
        """Read until the text has this; seconds that it took."""
        began_s = time.monotonic()
        while re.search(pattern, self.text) is None:
            left_s = LIMIT_S - (time.monotonic() - began_s)
            if left_s <= 0.0 or not select.select([self._master], [], [], left_s)[0]:
                pytest.fail(f"no {pattern!r} in {self.text[-2000:]!r}")
            try:
                self.text += os.read(self._master, 65536).decode("utf-8", "replace")
            except OSError:  # the other end was closed
                pytest.fail(f"no {pattern!r} in {self.text[-2000:]!r}")
        return time.monotonic() - began_s


def test_search_ticks_through_its_phases_and_acknowledges_ctrl_c(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    process = subprocess.Popen(
        [sys.executable, "-m", "tunegrad", "tune", "mlp", "--budget", "60s", "--store", "s.db"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=slave, text=True,
        env={**os.environ, "PYTHONPATH": str(TREE), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    os.close(slave)
    screen = Screen(master)
    try:
        screen.until("limits")
        screen.until("ms expected, default")
        screen.text = ""
        clocks = [screen.until(f"0:{n:02} of 1:00") for n in range(*_coming(screen, 3))]
        assert max(clocks) < 3.0, "the clock stands still"
        screen.text = ""
        process.send_signal(signal.SIGINT)
        told_s = screen.until("stopping, keeping the best so far")
        out, _ = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        os.close(master)
    assert process.returncode == 130
    assert "matmul 10x512" in out
    assert told_s < 15.0, "a quarter of the budget: it does not wait for what it measures"


def _coming(screen: Screen, count: int) -> tuple[int, int]:
    """The seconds that the clock shows next."""
    screen.until("0:[0-9]{2} of 1:00")
    found = re.findall("0:([0-9]{2}) of 1:00", screen.text)
    return int(found[-1]) + 1, int(found[-1]) + 1 + count
