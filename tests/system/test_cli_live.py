"""The live display of a real search on a pseudo terminal."""

from __future__ import annotations

import json
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

from tunegrad.db import open_store
from tunegrad.devices.host.facts import fingerprint, host_target

pytestmark = pytest.mark.timing

TREE = Path(__file__).parents[2]
LIMIT_S = 60.0


class Screen:
    """What a program writes to a terminal of 80 x 24, as it comes."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.text = ""

    def until(self, pattern: str) -> None:
        """Read until the text has this."""
        began_s = time.monotonic()
        while re.search(pattern, self.text) is None:
            left_s = LIMIT_S - (time.monotonic() - began_s)
            if left_s <= 0.0 or not select.select([self._master], [], [], left_s)[0]:
                pytest.fail(f"no {pattern!r} in {self.text[-2000:]!r}")
            try:
                self.text += os.read(self._master, 65536).decode("utf-8", "replace")
            except OSError:  # the other end was closed
                pytest.fail(f"no {pattern!r} in {self.text[-2000:]!r}")

    def rest(self) -> None:
        """Read what comes until the other end is closed."""
        try:
            while select.select([self._master], [], [], LIMIT_S)[0]:
                self.text += os.read(self._master, 65536).decode("utf-8", "replace")
        except OSError:
            pass

    def clock_after(self) -> int:
        """The seconds that the clock shows next, once it shows others than now."""
        self.until("0:[0-9]{2} of 1:00")
        now = re.findall("0:([0-9]{2}) of 1:00", self.text)[-1]
        self.text = ""
        self.until(f"0:(?!{now})[0-9]{{2}} of 1:00")
        return int(re.findall("0:([0-9]{2}) of 1:00", self.text)[-1])


def test_search_ticks_through_its_phases_and_keeps_the_best_after_ctrl_c(tmp_path: Path) -> None:
    """That SIGTERM and SIGHUP are held back alike is a test of the handler."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    process = subprocess.Popen(
        [sys.executable, "-m", "tunegrad", "tune", "mlp", "--budget", "60s", "--patience", "0",
         "--store", "s.db", "--threads", "1", "--json"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=slave, text=True,
        env={**os.environ, "PYTHONPATH": str(TREE), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    os.close(slave)
    screen = Screen(master)
    try:
        screen.until("limits")
        screen.until("ms expected, default")
        clocks = [screen.clock_after(), screen.clock_after(), screen.clock_after()]
        screen.text = ""
        process.send_signal(signal.SIGINT)
        screen.until("stopping, keeping the best so far")
        out, _ = process.communicate(timeout=LIMIT_S)
        screen.rest()
    finally:
        process.kill()
        os.close(master)
    assert process.returncode == 130, "it was stopped, and did not use up its minute"
    assert "interrupted: the best so far is kept" in screen.text
    assert "leaked" not in screen.text
    assert [p.name for p in tmp_path.iterdir()] == ["s.db"]
    report = json.loads(out)
    assert report["interrupted"] is True
    here = fingerprint(host_target(1))
    with open_store(tmp_path / "s.db") as store:
        (session,) = store.sessions()
        assert session.ended_s is not None
        promoted = {
            row["key"]: found[-1][0].actions
            for row in report["rows"]
            if (found := store.promotions(row["key"], here))
        }
    shown = {row["key"]: row["actions"] for row in report["rows"]}
    # What follows Ctrl-C has three seconds. On a busy machine they may not settle every winner;
    # then it says so.
    if "interrupted before every winner was settled" not in " ".join(screen.text.split()):
        assert promoted == shown
    assert clocks == sorted(set(clocks)), "the clock goes on"
