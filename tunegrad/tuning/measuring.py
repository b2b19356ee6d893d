"""The device as a search sees it: schedules of a kernel in, one result each out, lazily.

    schedules --compile in a batch, all cores--> code --one by one, alone--> verified, timed

``prime`` compiles schedules of several kernels in one batch ahead of their measuring, and computes their references, so
that short batches leave no core idle. The code of each kernel's first and fastest few is kept for the finals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from tunegrad.candidate import Payload
from tunegrad.devices import Candidate, CompiledCandidate, CpuMeasurer, Outcome, default_threads
from tunegrad.errors import CandidateFailure
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule
from tunegrad.search import Measured, Measurer
from tunegrad.trial import Cache, Measurement, Policy, Status

from .costs import Costs, Window, compiling
from .interrupt import Interrupt

__all__ = ["CandidateMeasurer", "Samples", "SessionMeasurer"]

Samples = tuple[tuple[float, ...], tuple[float, ...]]

_TIMEOUT_S = 0.5
_TIMEOUT_FACTOR = 50.0
_KEPT = 4


class SessionMeasurer(Measurer, Protocol):
    """What a session asks of a place where candidates are measured."""

    def prime(self, work: Sequence[tuple[Kernel, Schedule]]) -> None:
        """These will be asked for soon."""

    def compare(self, kernel: Kernel, a: Schedule, b: Schedule, rounds: int, cache: Cache) -> Samples:
        """Interleaved samples of two schedules, in seconds. Raises CandidateFailure."""

    def renew(self) -> None:
        """Compare in a fresh process from now on, where there is one to be had."""


class CandidateMeasurer:
    """``search.Measurer`` on a ``CpuMeasurer``.

    A candidate may run for ``policy.timeout_s``; once a kernel has a best time, for 50 times that, at least half a
    second. What it spends goes into ``costs``.
    """

    def __init__(
        self, device: CpuMeasurer, policy: Policy, interrupt: Interrupt | None = None, costs: Costs | None = None
    ) -> None:
        self.device, self.policy = device, policy
        self._interrupt, self._costs = interrupt or Interrupt(), costs or Costs()
        self._referenced: set[str] = set()
        self._primed: dict[tuple[str, str], CompiledCandidate | Outcome] = {}
        self._first: dict[str, tuple[str, CompiledCandidate]] = {}
        self._fastest: dict[str, list[tuple[float, str, CompiledCandidate]]] = {}

    def prime(self, work: Sequence[tuple[Kernel, Schedule]]) -> None:
        """Compile in one batch what will be asked for soon, and what it must compute; what is there is left alone."""
        fresh = [(k, s) for k, s in work if self._found(k.key, s.text) is None]
        candidates = [self._candidate(kernel, schedule) for kernel, schedule in fresh]
        compiled = self._compile(candidates, ())
        pairs = zip(candidates, compiled, strict=True)
        with self._costs.part("verifying"), self._interrupt.breakable():
            self.device.refer([(c, code.io) for c, code in pairs if isinstance(code, CompiledCandidate)])
        for (kernel, schedule), result in zip(fresh, compiled, strict=True):
            self._primed[kernel.key, schedule.text] = result

    def measure(
        self, kernel: Kernel, schedules: Sequence[Schedule], best_s: float, known: Collection[str]
    ) -> Iterator[Measured | None]:
        """One result per schedule, in order; None where its program is known or came earlier in the batch."""
        seen = set(known)
        for schedule, code in zip(schedules, self._compiled(kernel, schedules, seen), strict=True):
            if isinstance(code, Outcome):
                yield Measured(code.program_hash, code.measurement)
                continue
            if code.program_hash in seen:
                yield None
                continue
            seen.add(code.program_hash)
            candidate = self._candidate(kernel, schedule)
            with self._costs.part("waiting") as window, self._interrupt.breakable():
                measurement = self.device.measure_compiled(candidate, code, self._limited(best_s), best_s)
            self._charge(window, kernel.key, measurement)
            self._keep(kernel.key, schedule.text, code, measurement)
            best_s = min(best_s, measurement.seconds)
            yield Measured(code.program_hash, measurement)

    def compile(
        self, kernel: Kernel, schedules: Sequence[Schedule], known: Collection[str]
    ) -> list[CompiledCandidate | Outcome]:
        """The code of each schedule, for another machine to measure; none for programs that are known."""
        return self._compile([self._candidate(kernel, s) for s in schedules], known)

    def take(self, kernel: Kernel, schedules: Sequence[Schedule], code: Sequence[CompiledCandidate | Outcome]) -> None:
        """Keep code that another machine compiled, until it is measured."""
        for schedule, result in zip(schedules, code, strict=True):
            self._primed[kernel.key, schedule.text] = result

    def compare(self, kernel: Kernel, a: Schedule, b: Schedule, rounds: int, cache: Cache) -> Samples:
        """Interleaved samples, in seconds, of two schedules that were measured before.

        Raises CandidateFailure when one of them fails after all.
        """
        self.prime([(kernel, a), (kernel, b)])
        pair = self._code(kernel, a), self._code(kernel, b)
        with self._costs.part("timing"), self._interrupt.breakable():
            return self.device.compare(self._candidate(kernel, a), *pair, rounds=rounds, cache=cache)

    def renew(self) -> None:
        """Let what follows run in a fresh process: other memory, code at other addresses."""
        self.device.renew()

    def _code(self, kernel: Kernel, schedule: Schedule) -> CompiledCandidate:
        found = self._found(kernel.key, schedule.text)
        if isinstance(found, CompiledCandidate):
            return found
        raise CandidateFailure(f"{schedule.text}: {found.measurement.error if found else 'not compiled'}")

    def _compiled(
        self, kernel: Kernel, schedules: Sequence[Schedule], known: Collection[str]
    ) -> list[CompiledCandidate | Outcome]:
        """The code of each schedule: primed, or compiled now in one batch, programs that are known left out."""
        ready = {s.text: r for s in schedules if (r := self._primed.pop((kernel.key, s.text), None)) is not None}
        fresh = [s for s in schedules if s.text not in ready]
        candidates = [self._candidate(kernel, s) for s in fresh]
        made = self._compile(candidates, known)
        ready.update((s.text, result) for s, result in zip(fresh, made, strict=True))
        return [ready[s.text] for s in schedules]

    def _compile(self, candidates: Sequence[Candidate], known: Collection[str]) -> list[CompiledCandidate | Outcome]:
        with self._costs.part("waiting") as window, self._interrupt.breakable():
            made = self.device.compile(candidates, known)
        took = [m.measurement if isinstance(m, Outcome) else m for m in made]
        window.divide(compiling([(t.lower_s, t.compile_s) for t in took], default_threads()))
        return made

    def _charge(self, window: Window, key: str, measurement: Measurement) -> None:
        """What the timing worker did; the first time of a kernel it also draws inputs and computes references."""
        window.divide({"timing": measurement.timing_s, "verifying": measurement.verify_s})
        if key not in self._referenced:
            self._referenced.add(key)
            window.divide({"verifying": window.seconds})

    def _found(self, key: str, text: str) -> CompiledCandidate | Outcome | None:
        """Code that is at hand: primed, or kept."""
        primed = self._primed.get((key, text))
        if primed is not None:
            return primed
        first = self._first.get(key)
        if first is not None and first[0] == text:
            return first[1]
        return next((code for _, name, code in self._fastest.get(key, ()) if name == text), None)

    def _keep(self, key: str, text: str, code: CompiledCandidate, measurement: Measurement) -> None:
        if measurement.status is not Status.OK:
            return
        self._first.setdefault(key, (text, code))
        kept = [*self._fastest.get(key, ()), (measurement.seconds, text, code)]
        self._fastest[key] = sorted(kept, key=lambda entry: entry[0])[:_KEPT]

    def _candidate(self, kernel: Kernel, schedule: Schedule) -> Candidate:
        return Candidate(kernel.key, Payload(kernel, schedule.text, self.device.target))

    def _limited(self, best_s: float) -> Policy:
        limit_s = min(self.policy.timeout_s, max(_TIMEOUT_S, _TIMEOUT_FACTOR * best_s))
        return replace(self.policy, timeout_s=limit_s)
