"""The referee: it draws what kernels read, knows what they must give, and judges what the bench put before it.

    prepare   inputs and references of a kernel   --> inputs to the shared memory, references stay here
    judge     the outputs in the shared memory    --> a verdict

It runs in a process of its own, which never runs a candidate: no candidate can reach what it must compute.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunegrad.devices.bulk import Bulk
from tunegrad.devices.dataset import Dataset, DatasetCache, InputSet, References, make_dataset
from tunegrad.devices.handover import Bytes, Places, hand_over, output_places
from tunegrad.devices.job import Candidate, Hooks, KernelIO, Limits
from tunegrad.devices.native import Team
from tunegrad.devices.replies import Verdict
from tunegrad.devices.shared import Mapped
from tunegrad.errors import InternalError
from tunegrad.ir.target import Target

__all__ = ["Referee", "judge", "prepare_kernel", "start_referee"]


class Referee:
    """References of the latest kernels. ``memory`` is shared with the bench."""

    def __init__(self, hooks: Hooks, limits: Limits, seed: int, team: Team, memory: Bytes) -> None:
        self._hooks, self._limits, self._seed, self._memory = hooks, limits, seed, memory
        self._bulk = Bulk(team)
        self._kernels = DatasetCache(limits.cache_bytes)

    def prepare(self, candidate: Candidate, io: KernelIO, known: References | None) -> Places:
        """Draw a kernel's inputs and hand them over; compute its references, or take the ``known`` ones."""
        made = make_dataset(candidate, io, self._hooks, self._limits, self._seed, known)
        places = hand_over([s.inputs for s in made.sets], self._memory)
        self._kernels.put(candidate.kernel_key, Dataset(tuple(InputSet({}, s.references) for s in made.sets)))
        return places

    def judge(self, kernel_key: str, io: KernelIO, index: int) -> Verdict:
        """Compare the outputs that lie in the shared memory with what set ``index`` must give."""
        kernel = self._kernels.get(kernel_key)
        if kernel is None:
            return Verdict()
        max_error = 0.0
        for param, got in output_places(io, self._memory):
            bar = kernel.bar(param, index)
            if bar is None:
                continue
            found = self._bulk.judge(bar, got)
            max_error = max(max_error, found.max_error)
            if found.first >= 0:
                error = (
                    f"{param.name}[{found.first}]: got {found.got:.9g}, expected {found.expected:.9g}, "
                    f"tolerance {found.allowed:.3g} ({found.bad} bad of {bar.expected.size} compared)"
                )
                return Verdict(len(kernel.sets), error, max_error)
        return Verdict(len(kernel.sets), "", max_error)


# ---- in the referee's process


@dataclass(slots=True)
class _Process:
    """The one thing that this process keeps. Mutable: empty until it was started."""

    referee: Referee | None = None


_process = _Process()


def start_referee(target: Target, hooks: Hooks, limits: Limits, seed: int, memory: Mapped) -> None:
    """Make this process the referee."""
    _process.referee = Referee(hooks, limits, seed, Team(target.threads, pin_caller=True), memory.bytes)


def prepare_kernel(candidate: Candidate, io: KernelIO, known: References | None) -> Places:
    """``Referee.prepare``."""
    return _referee().prepare(candidate, io, known)


def judge(kernel_key: str, io: KernelIO, index: int) -> Verdict:
    """``Referee.judge``."""
    return _referee().judge(kernel_key, io, index)


def _referee() -> Referee:
    if _process.referee is None:
        raise InternalError("referee: called before it was started")
    return _process.referee
