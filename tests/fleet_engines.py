"""Engines that answer from recordings or from nothing, for fleets whose machines are only
processes.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

from search_surface import MACHINE

from benchmarks.recorded import Recording, ReplayMeasurer, read_recording
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.host.facts import host_target
from tunegrad.ir.target import Target
from tunegrad.trial import Fingerprint
from tunegrad.tuning.fleet import DeviceEngine
from tunegrad.tuning.fleet.cluster import RELEASE

SPACES = Path(__file__).parent / "data" / "spaces"


_WIDE = ("+avx512", "+avx10", "+amx")


def narrow_target(threads: int) -> Target:
    """A machine that this one can play: without its widest units, with half of its last cache."""
    target = host_target(threads)
    features = tuple(f"-{f[1:]}" if f.startswith(_WIDE) else f for f in target.features)
    vector_bytes, registers = min(32, target.vector_bytes), min(16, target.registers)
    return replace(
        target,
        features=features,
        vector_bytes=vector_bytes,
        registers=registers,
        l3_bytes=target.l3_bytes // 2,
    )


def narrow(device, threads, numerics):
    """``cluster.survey`` of such a machine; no other node of this host is it."""
    assert device == "cpu"
    there = CpuDevice(narrow_target(threads))
    return RELEASE, "another machine", there, there.fingerprint(numerics)


class Recorded:
    """Gives recorded measurements back, each after ``delay_s``.

    ``marker``: the file that says who measured what. ``together``: how many engines must have
    measured before one goes on, and after how many measurements of its own it asks. So a process
    that starts late finds work left.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        delay_s: float = 0.0,
        marker: str = "",
        together: tuple[int, int] = (0, 0),
    ) -> None:
        self.replays = {r.kernel_key: r for r in (replay(name) for name in names)}
        self.delay_s, self.marker, self.together = delay_s, marker, together
        self.measured = 0
        self.fingerprint: Fingerprint = MACHINE

    def measure(self, kernel, texts, best_s, known):
        if self.measured >= self.together[1]:
            self._wait_for_others()
        self.measured += len(texts)
        found = []
        for text in texts:
            time.sleep(self.delay_s)
            found.append(self.replays[kernel.key].take(text, set()))
            if self.marker:
                with Path(self.marker).open("a", encoding="utf-8") as log:
                    log.write(f"{os.getpid()} {kernel.key} {text}\n")
        return found

    def _wait_for_others(self, within_s=300.0):
        deadline_s = time.monotonic() + within_s
        while len(who_measured(self.marker)) < self.together[0] and time.monotonic() < deadline_s:
            time.sleep(0.02)

    def machine_limits(self, again):
        raise NotImplementedError

    def close(self):
        pass


@cache
def recording(name: str) -> Recording:
    return read_recording(SPACES / f"{name}.jsonl.gz").recording


@cache
def replay(name: str) -> ReplayMeasurer:
    return ReplayMeasurer(recording(name))


def with_pid(path, *arguments):
    """A machine's own engine; the file says which process it is in."""
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    return DeviceEngine(*arguments)


def recorded(names, delay_s=0.0, marker="", together=(0, 0)):
    return Recorded(tuple(names), delay_s, marker, together)


def who_measured(marker) -> set[str]:
    """The processes that a marker names; none where there is no marker."""
    path = Path(marker) if marker else None
    if path is None or not path.exists():
        return set()
    return {line.split()[0] for line in path.read_text(encoding="utf-8").splitlines()}
