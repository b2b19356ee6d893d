"""The device as a search sees it: schedules of a kernel in, one result each out, lazily.

    schedules --compile in a batch, all cores--> code --one by one, alone--> verified, timed

``prime`` compiles schedules of several kernels in one batch ahead of their measuring, so that short batches do not leave
cores idle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tunegrad.candidate import Payload
from tunegrad.devices import Candidate, CompiledCandidate, CpuMeasurer, Outcome
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule
from tunegrad.search.protocols import Measured
from tunegrad.trial import Policy

from .interrupt import Interrupt

__all__ = ["CandidateMeasurer"]

_SLOWER_S = 0.5
_SLOWER = 100.0


class CandidateMeasurer:
    """``search.Measurer`` on a ``CpuMeasurer``.

    A candidate may run for ``policy.timeout_s``; once a kernel has a best time, for 100 times that, at least half a
    second.
    """

    def __init__(self, device: CpuMeasurer, policy: Policy, interrupt: Interrupt | None = None) -> None:
        self.device, self.policy = device, policy
        self._interrupt = interrupt or Interrupt()
        self._ready: dict[tuple[str, str], CompiledCandidate | Outcome] = {}

    def candidate(self, kernel: Kernel, schedule: Schedule) -> Candidate:
        """The candidate as the device takes it."""
        return Candidate(kernel.key, Payload(kernel, schedule.text, self.device.target))

    def prime(self, work: Sequence[tuple[Kernel, Schedule]]) -> None:
        """Compile ahead what will be measured soon; of any kernels."""
        with self._interrupt.breakable():
            compiled = self.device.compile([self.candidate(kernel, schedule) for kernel, schedule in work])
        for (kernel, schedule), result in zip(work, compiled, strict=True):
            self._ready[kernel.key, schedule.text] = result

    def measure(
        self, kernel: Kernel, schedules: Sequence[Schedule], best_s: float, known: Collection[str]
    ) -> Iterator[Measured | None]:
        """One result per schedule, in order; None where its program is known or came earlier in the batch."""
        seen = set(known)
        compiled = self._compile(kernel, schedules, seen)
        for schedule, result in zip(schedules, compiled, strict=True):
            if isinstance(result, Outcome):
                yield Measured(result.program_hash, result.measurement)
                continue
            if result.program_hash in seen:
                yield None
                continue
            seen.add(result.program_hash)
            candidate = self.candidate(kernel, schedule)
            with self._interrupt.breakable():
                measurement = self.device.measure_compiled(candidate, result, self._policy(best_s), best_s)
            best_s = min(best_s, measurement.seconds)
            yield Measured(result.program_hash, measurement)

    def compiled(self, kernel: Kernel, schedule: Schedule) -> CompiledCandidate | Outcome:
        """The code of one schedule, kept for the next time it is asked for; how it failed, where it did."""
        key = kernel.key, schedule.text
        if key not in self._ready:
            self.prime([(kernel, schedule)])
        return self._ready[key]

    def compare(
        self, kernel: Kernel, a: CompiledCandidate, b: CompiledCandidate, rounds: int
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Interleaved, cold samples of two schedules that were verified before, in seconds.

        Raises CandidateFailure when one of them fails after all.
        """
        with self._interrupt.breakable():
            return self.device.compare(self.candidate(kernel, Schedule(())), a, b, rounds)

    def _compile(
        self, kernel: Kernel, schedules: Sequence[Schedule], known: Collection[str]
    ) -> list[CompiledCandidate | Outcome]:
        fresh = [s for s in schedules if (kernel.key, s.text) not in self._ready]
        with self._interrupt.breakable():
            made = self.device.compile([self.candidate(kernel, s) for s in fresh], known)
        by_text = {s.text: result for s, result in zip(fresh, made, strict=True)}
        return [self._ready.pop((kernel.key, s.text), None) or by_text[s.text] for s in schedules]

    def _policy(self, best_s: float) -> Policy:
        limit_s = min(self.policy.timeout_s, max(_SLOWER_S, _SLOWER * best_s))
        return replace(self.policy, timeout_s=limit_s)
