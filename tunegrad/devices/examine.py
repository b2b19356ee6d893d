"""One candidate from its code to its row, between two processes: the bench runs it, the referee
judges what it wrote.

    bench: pack, run on the first set --> right? --> bench: time --> contends: still right?
                                             |                       |
                       in the memory of its inputs, where it may be: the same bits
                                                                     |
          on partly and on wholly other inputs at the same places, outputs as they are
                        on the other sets, one by one
                        beats the best time: after many launches

    right?  the digest of the outputs is one that was right before, or the bench hands them in
            and the referee judges; a candidate that beats the best time is judged on everything
            after the timing

Nothing is timed that was not found right. What the bench says is held against what it was asked,
since it runs candidates; what the referee says is believed, since it runs none. Neither is told
which digests were right. The same bytes come again after the timing, from candidates that sum in
the same order, and wherever results are exact.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tunegrad.devices import worker
from tunegrad.devices.bench import Bench
from tunegrad.devices.job import (
    CONTENDING,
    Beside,
    CompiledCandidate,
    Limits,
    Parameter,
    Ran,
    Timed,
    Verdict,
    digest,
    identity,
)
from tunegrad.devices.processes.channel import Died, Ending, TimedOut
from tunegrad.devices.verifying import referee
from tunegrad.devices.verifying.handover import outputs_of
from tunegrad.devices.verifying.referee import Referee
from tunegrad.errors import InternalError
from tunegrad.trial import Measurement, Policy, Status

_HOPELESS = 8.0
_HOPELESS_S = 2e-3
"""A candidate whose verified run takes this many times the best time, and this long, is not run
again. A short one may have waited for threads to wake up.
"""

_LAUNCHES, _SOAK_S = 128, 0.025
"""Limits for a candidate that beats the best time: launches on outputs as they are, and as many on
poison, and the seconds that they may take.
"""

_PACKED_PER_S = 20e6
"""Bytes of constants that are packed in a second at least, on a machine that does much else."""


class Caller(Protocol):
    """The part of ``IsolatedWorker`` that an examination needs, of the bench and the referee."""

    def call(
        self, function: Callable[..., Any], *arguments: object, limit_s: float, reply_type: Any
    ) -> Ending:
        """Run a function there."""


@dataclass(frozen=True, slots=True)
class Unprepared:
    """A process has nothing (any more) for the kernel; ``why`` may say more of it."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """A measurement.

    ``damaged``: the candidate wrote where it must not, so the bench is not to be trusted any more.
    ``unsteady``: it was right, and then wrong on the same inputs, which no other candidate caused.
    """

    measurement: Measurement
    damaged: bool = False
    unsteady: bool = False


class _Ended(Exception):
    """The bench's process ended, or said what can not be."""

    def __init__(self, ending: Died | TimedOut) -> None:
        super().__init__(ending)
        self.ending = ending


class _Missing(Exception):
    """A process has nothing for the kernel; the text is that of ``Unprepared``."""


_MOST_RIGHTS = 1 << 17
"""A bound for sessions of days: some fifty megabytes."""


@dataclass(slots=True)
class Rights:
    """Outputs that the referee found right, by their digest.

    Mutable: it learns with every verdict.

    For as long as inputs are drawn from one seed. When there are many, the oldest is forgotten for
    each new one.
    """

    verdicts: dict[tuple[str, int, tuple[Parameter, ...], str], Verdict] = field(
        default_factory=dict
    )

    def add(
        self,
        kernel_key: str,
        index: int,
        outputs: tuple[Parameter, ...],
        written: str,
        verdict: Verdict,
    ) -> None:
        """Remember a verdict without an error."""
        self.verdicts[kernel_key, index, outputs, written] = verdict
        if len(self.verdicts) > _MOST_RIGHTS:
            del self.verdicts[next(iter(self.verdicts))]


@dataclass(frozen=True, slots=True)
class _Fault:
    """The fault of a run; no error where it is right.

    The greatest error is of this run and those before it.
    """

    error: str = ""
    damaged: bool = False
    max_error: float = 0.0
    unsteady: bool = False


@dataclass(slots=True)
class Examination:
    """One candidate. Mutable: it learns how many input sets there are once the referee has told.

    ``end_s`` and ``code`` are of its one run: when the candidate's time is over, and the digest of
    its code. ``trusted``: the digest that the bench reports is taken as that of its outputs.
    ``beside`` is the reference that it is timed in turns with.
    """

    bench: Caller
    referee: Caller
    limits: Limits
    kernel_key: str
    compiled: CompiledCandidate
    policy: Policy
    best_s: float
    beside: Beside | None = None
    rights: Rights = field(default_factory=Rights)
    end_s: float = 0.0
    sets: int = 0
    code: bytes = b""
    trusted: bool = True

    def run(self) -> Result | Unprepared | Died | TimedOut:
        """Examine the candidate; an ending of the bench's process stands for itself."""
        start = time.monotonic()
        self.end_s, self.code = start + self.policy.timeout_s, digest(self.compiled.image)
        facts = Measurement(
            Status.OK, lower_s=self.compiled.lower_s, compile_s=self.compiled.compile_s
        )
        try:
            beside = None if self.beside is None else self.beside.compiled
            first = self._packed(beside)
            if first.state == "ran":
                first = self._ask(
                    Bench.load, self.kernel_key, self.compiled, beside, reply=Ran, index=0
                )
            if first.state == "unprepared":
                return Unprepared()
            if first.state != "ran":
                return Result(replace(facts, status=Status(first.state), error=first.damage))
            return self._examine(first, start, facts)
        except _Missing as missing:
            return Unprepared(str(missing))
        except _Ended as ended:
            return ended.ending

    def _packed(self, beside: CompiledCandidate | None) -> Ran:
        """The bench packs the constants, in time that is not the candidate's."""
        ios = (self.compiled.io, *([] if beside is None else [beside.io]))
        nbytes = sum(p.nbytes for io in ios for p in io.params if p.role == "pack")
        if not nbytes:
            return Ran("")
        began, end_s = time.monotonic(), self.end_s
        self.end_s += nbytes / _PACKED_PER_S
        ran: Ran = self._ask(Bench.pack, self.kernel_key, self.code, ios, reply=Ran, index=0)
        self.end_s = end_s + time.monotonic() - began
        return ran

    def _examine(self, first: Ran, start: float, facts: Measurement) -> Result:
        best_s = self.best_s or math.inf
        found = facts
        fault = self._in_place(first.written, 0, self._judge(first, 0, _Fault()))
        if first.once_s > max(_HOPELESS_S, best_s * _HOPELESS):
            found = replace(facts, samples_s=(first.once_s,))
        elif not fault.error:
            timed, found = self._timed(best_s, facts)
            if timed.damage or found.seconds <= CONTENDING * best_s:
                self.trusted = found.seconds > best_s
                fault = self._moved(self.sets - 1, self._after(timed, fault))
                fault = self._others(self._moved(1, fault) if self.sets > 2 else fault)
                if not self.trusted:
                    fault = self._in_place(first.written, 0, self._soaked(first.written, fault))
        took_s = time.monotonic() - start - found.timing_s
        found = replace(found, verify_s=took_s, max_error=fault.max_error)
        if fault.error:
            ended = replace(facts, status=Status.WRONG, error=fault.error, timing_s=found.timing_s)
            found = replace(ended, verify_s=took_s, max_error=fault.max_error)
        return Result(found, damaged=fault.damaged, unsteady=fault.unsteady)

    def _timed(self, best_s: float, facts: Measurement) -> tuple[Timed, Measurement]:
        """Time it on the bench, in turns with what stands beside it; that as a measurement."""
        began = time.monotonic()
        standing_s = 0.0 if self.beside is None else self.beside.seconds
        timed: Timed = self._ask(Bench.time, self.policy, best_s, standing_s, reply=Timed, index=0)
        timing_s = time.monotonic() - began
        self._hold_against((*timed.samples_s, *timed.reference_samples_s), timing_s)
        if len(timed.reference_samples_s) != (0 if self.beside is None else len(timed.samples_s)):
            raise _Ended(
                Died(0, f"{len(timed.reference_samples_s)} samples of what it was timed beside")
            )
        state = tuple(sorted((n, v) for n, v in dict(timed.state).items() if math.isfinite(v)))
        found = replace(facts, samples_s=timed.samples_s, timing_s=timing_s, state=state)
        if self.beside is None:
            return timed, found
        beside, program = timed.reference_samples_s, self.beside.compiled.program_hash
        return timed, replace(
            found, reference_samples_s=beside, reference_program=program, reference_s=standing_s
        )

    def _after(self, timed: Timed, before: _Fault) -> _Fault:
        """Judge the outputs that the timed launches left.

        An inout is another value after each of them.
        """
        if not timed.damage and any(p.role == "inout" for p in self.compiled.io.params):
            return before
        fault = self._judge(timed, 0, before)
        return (
            replace(fault, error=f"after {len(timed.samples_s)} samples: {fault.error}")
            if fault.error
            else fault
        )

    def _moved(self, index: int, fault: _Fault) -> _Fault:
        """Another set where the first one lay, unpoisoned: what keeps results is wrong. The last
        one, which comes first, is the first one itself in every place but some.
        """
        if fault.error or self.sets < 2:
            return fault
        ran = self._ask(Bench.moved, index, reply=Ran, index=index)
        found = self._judge(ran, index, fault)
        why = "on other inputs at the same addresses, where its outputs were not poisoned"
        return replace(found, error=f"{why}: {found.error}") if found.error else found

    def _soaked(self, written: str, fault: _Fault) -> _Fault:
        """Many launches on the first input set, which leave the bits that it has ``written`` at
        first: for a candidate that may be the best. An inout is another value after each of them.
        """
        if fault.error or any(p.role == "inout" for p in self.compiled.io.params):
            return fault
        ran = self._ask(Bench.soak, _LAUNCHES, _SOAK_S, reply=Ran, index=0)
        found = self._judge(ran, 0, fault)
        if not found.error and ran.written != written:
            found = replace(found, error="its outputs are other bits")
        if not found.error:
            return found
        return replace(found, error=f"launched often: {found.error}", unsteady=True)

    def _others(self, fault: _Fault) -> _Fault:
        """The input sets after the first: for a candidate that may win."""
        for index in range(1, self.sets):
            if not fault.error:
                ran: Ran = self._ask(Bench.run, index, reply=Ran, index=index)
                fault = self._in_place(ran.written, index, self._judge(ran, index, fault))
        return fault

    def _in_place(self, written: str, index: int, fault: _Fault) -> _Fault:
        """Run it with outputs in the memory of the inputs that they may replace: the bits are those
        that it has ``written`` beside them.
        """
        if fault.error or not self.compiled.io.overwritten:
            return fault
        ran: Ran = self._ask(Bench.in_place, index, reply=Ran, index=index)
        found = self._judge(ran, index, fault) if ran.damage or not self.trusted else fault
        if not found.error and ran.written != written:
            found = replace(found, error="its outputs are other bits")
        if not found.error:
            return found
        return replace(found, error=f"in the memory of its inputs: {found.error}")

    def _judge(self, ran: Ran | Timed, index: int, before: _Fault) -> _Fault:
        """Judge the last run: damage first, then its outputs."""
        if ran.damage:
            return _Fault(ran.damage, True, before.max_error)
        outputs = outputs_of(self.compiled.io)
        verdict = self.rights.verdicts.get((self.kernel_key, index, outputs, ran.written))
        if verdict is None or not self.trusted:
            self._ask(Bench.hand_in, index, reply=Ran, index=index)
            verdict = self._verdict(outputs, index)
            if not verdict.error:
                self.rights.add(self.kernel_key, index, outputs, ran.written, verdict)
        self.sets = verdict.sets
        return _Fault(verdict.error, max_error=max(before.max_error, verdict.max_error))

    def _verdict(self, outputs: tuple[Parameter, ...], index: int) -> Verdict:
        """The referee's verdict on the outputs that were handed in."""
        began, limit_s = time.monotonic(), self.limits.reference_s
        ending = self.referee.call(
            referee.on_referee,
            Referee.judge,
            self.kernel_key,
            outputs,
            index,
            limit_s=limit_s,
            reply_type=Verdict,
        )
        self.end_s += time.monotonic() - began  # the referee's time is not the candidate's
        if isinstance(ending, Died):  # of nothing that a candidate did: another one starts
            raise _Missing(f"referee: {ending.text}")
        if isinstance(ending, TimedOut):
            raise InternalError(f"referee of kernel {self.kernel_key}: {ending.text}")
        verdict: Verdict = ending.value
        if not verdict.sets:
            raise _Missing
        return verdict

    def _ask(self, method: Callable[..., Any], *arguments: object, reply: Any, index: int) -> Any:
        """A reply of the bench to what was asked; anything else is its end."""
        began_s = time.monotonic()
        left_s = max(0.0, self.end_s - began_s)
        ending = self.bench.call(
            worker.on_bench, method, *arguments, limit_s=left_s, reply_type=reply
        )
        # The bench gives back what it waited for a core: so does the deadline of what follows.
        self.end_s += max(0.0, time.monotonic() - began_s - left_s)
        if isinstance(ending, TimedOut):
            raise _Ended(replace(ending, limit_s=self.policy.timeout_s))
        if isinstance(ending, Died):
            raise _Ended(ending)
        if ending.value.measured != identity(self.code, self.kernel_key, index):
            raise _Ended(Died(0, "a reply about another candidate"))
        return ending.value

    def _hold_against(self, samples: tuple[float, ...], timing_s: float) -> None:
        """No process has had more samples, or longer ones, than there was time for."""
        if not samples or sum(samples) > timing_s:
            raise _Ended(
                Died(0, f"{len(samples)} samples of {sum(samples):.3g} s within {timing_s:.3g} s")
            )
