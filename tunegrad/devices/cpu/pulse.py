"""How fast this machine is at this moment: a fixed piece of arithmetic on every thread of a team, timed.

    beat --> among the latest beats --> slowness: 1.0 where one in ten was as fast, 2.0 where it took twice as long

Other programs on the cores, or on the other threads of the same cores, slow arithmetic down for a millisecond or for
minutes; inside a virtual machine nothing else tells.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from tunegrad.devices.cpu.peak import fma_text
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.executable import Executable
from tunegrad.devices.host.team import BufferTable, Launch, Team
from tunegrad.ir.target import Target

__all__ = ["Pulse"]

_STEPS = 16_000
"""About 25 us: much longer than it takes to start the threads, and short next to what is timed."""

_LATEST = 512
_USUAL = 0.1
"""The part of the latest beats that are taken to be undisturbed: the fastest one alone may have had a turbo clock."""


class Pulse:
    """The pulse of a team's cores. Mutable: it remembers the latest beats. The team runs nothing else meanwhile."""

    def __init__(self, target: Target, team: Team) -> None:
        lanes = target.lanes(4)
        out = Buffer(team.threads * lanes * 4)
        self._team = team
        self._memory = BufferTable([out.address], out)
        self._kernel = Executable.load(compile_llvm(fma_text(lanes, _STEPS), target), "peak_fma")
        self._launch = Launch(self._kernel.address, self._memory.address, 0, team.threads)
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []
        for seconds in team.time(self._launch, 64):
            self._note(seconds)

    def slowness(self) -> float:
        """What a beat takes now, over what it takes undisturbed; below 1 in a lucky moment.

        The second of two beats is what counts: the first one may have had to wake the threads.
        """
        seconds = self._team.time(self._launch, 2)[1]
        self._note(seconds)
        return seconds / self._sorted[int(_USUAL * len(self._sorted))]

    def _note(self, seconds: float) -> None:
        self._latest.append(seconds)
        insort(self._sorted, seconds)
        if len(self._latest) > _LATEST:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
