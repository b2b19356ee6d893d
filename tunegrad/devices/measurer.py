"""Measuring on a device: candidates are compiled in parallel, then verified and timed one by one.

    begin_compile --> Compiling, on all cores, while the caller goes on --> wait: the code, in order
    measure_compiled, compare, machine_limits
                  --> where the device shares cores with what compiles, they wait for that

Three kinds of processes: compile workers, which run no candidate; the bench, which runs them; and
the referees, which have what they must compute, each of some kernels. A crash is tried once more,
in a fresh bench, and so is whatever failed in a bench that had run another candidate: what does not
come again was the machine's doing, or that of the candidate before. What was right, and then wrong
on the same inputs, is wrong at once: a race that another try would not lose is a race.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from tunegrad import errors
from tunegrad.config import machine_bytes
from tunegrad.devices import examine, worker
from tunegrad.devices.bench import Bench
from tunegrad.devices.device import Confinement, Device, MachineLimits
from tunegrad.devices.host.facts import usable_cores
from tunegrad.devices.job import (
    EXIT_WROTE,
    MOST_TOLD,
    Beside,
    Candidate,
    CompiledCandidate,
    Hooks,
    KernelIO,
    Limits,
)
from tunegrad.devices.processes import confine
from tunegrad.devices.processes.channel import Died, Ending, Finished, TimedOut
from tunegrad.devices.processes.isolated import IsolatedWorker, preload
from tunegrad.devices.processes.pool import Started, WorkerPool
from tunegrad.devices.verifying import referee
from tunegrad.devices.verifying.handover import Places, SharedMemory
from tunegrad.devices.verifying.referee import Referee
from tunegrad.trial import Measured, Measurement, Policy, Properties, Status

_REFEREES = 8
"""At most so many, one a core: each is a process."""

_KEPT_SHARE = 8
"""Of the machine's memory, for the inputs that the bench keeps, and for references."""

_LATE_S = 5.0
"""For what a referee works at when a deadline comes: a kernel takes it up to some seconds."""

_COPY_S = 60.0
"""For copying a kernel's inputs into the bench: far more than memory takes for that much."""

_PEAKS_S = 60.0
"""For measuring the machine's peaks, which takes some two seconds."""


class Compiling:
    """A batch that compiles in the background."""

    def __init__(self, started: Started, workers: WorkerPool) -> None:
        self._started, self._workers = started, workers
        self._made: list[CompiledCandidate | Measured] | None = None

    def wait(self) -> list[CompiledCandidate | Measured]:
        """The code of each candidate, in order; failures are Outcomes.

        Left by an interrupt, the batch is given up.

        One whose worker died is compiled once more, in another one.
        """
        if self._made is None:
            endings = self._started.wait()
            made = [_compiled(ending) for ending in endings]
            died = [
                at
                for at, e in enumerate(endings)
                if isinstance(e, Died) and e.code != confine.EXIT_MEMORY
            ]
            if died:
                self._workers.wait_idle()  # of a later batch
                calls = [self._started.calls[at] for at in died]
                again = self._workers.map(self._started.function, calls, self._started.limit_s)
                for at, ending in zip(died, again, strict=True):
                    made[at] = _compiled(ending, attempts=2)
            self._made = made
        return self._made

    def close(self) -> None:
        """Give up what was not waited for: nothing of it goes on compiling."""
        self._started.close()


class DeviceMeasurer:
    """Measures candidates on a device in processes that can be killed. Use it as a context manager.

    Workers start with the first call and are gone after ``close``, also when this process is
    killed. Calls are not to be made from two threads at once, and all but ``begin_compile`` block.
    On an exclusive device no compile runs while something is timed: what is under way is waited for
    first.
    """

    def __init__(
        self,
        device: Device,
        hooks: Hooks | None = None,
        limits: Limits | None = None,
        seed: int = 0,
        compile_workers: int | None = None,
    ) -> None:
        self.device = device
        self.hooks = Hooks() if hooks is None else hooks
        limits = Limits() if limits is None else limits
        kept_bytes = min(limits.cache_bytes, machine_bytes() // _KEPT_SHARE)
        self.limits = replace(limits, cache_bytes=kept_bytes)
        preload(self.hooks.modules)
        self._seed = seed
        start_s = self.limits.worker_start_s
        count = usable_cores() if compile_workers is None else compile_workers
        confinement = device.confinement
        self._compilers = WorkerPool(
            count, worker.start_compiler, (self.limits, confinement.driver), start_s
        )
        self._memory = SharedMemory(min(self.limits.run_memory_bytes, machine_bytes() // 2))
        self._bench = IsolatedWorker(
            worker.start_bench,
            (device, self.limits, self._memory),
            start_s,
            replace(confinement, memory_bytes=self.limits.run_memory_bytes),
        )
        referees, secret = max(1, min(count, _REFEREES)), secrets.randbits(32)
        self._referees = tuple(
            IsolatedWorker(
                referee.start_referee,
                (self.hooks, self.limits, seed, self._memory, secret, referees),
                start_s,
                Confinement(reads=True),
            )
            for _ in range(referees)
        )
        self._referee_of: dict[str, IsolatedWorker] = {}
        self._referring: dict[IsolatedWorker, Callable[[], Ending]] = {}
        self._peaks: MachineLimits | None = None
        self._rights = examine.Rights()
        self._used = 0

    def begin_compile(
        self,
        candidates: Sequence[Candidate],
        known: Iterable[str] = (),
        limit_s: float | None = None,
    ) -> Compiling:
        """Begin to lower and compile a batch on all cores, after what is under way.

        Each candidate has ``limit_s`` seconds, ``limits.compile_s`` where none is given.

        Programs whose hash is in ``known`` are lowered and not compiled: their ``image`` is empty.
        """
        self.wait_idle()
        seen = frozenset(known)
        calls = [(c, self.device, self.hooks.lower, self.limits, seen) for c in candidates]
        started = self._compilers.start(
            worker.compile_candidate, calls, limit_s or self.limits.compile_s
        )
        return Compiling(started, self._compilers)

    def compile(
        self,
        candidates: Sequence[Candidate],
        known: Iterable[str] = (),
        limit_s: float | None = None,
    ) -> list[CompiledCandidate | Measured]:
        """Lower and compile a batch as ``begin_compile`` does, and wait for it."""
        return self.begin_compile(candidates, known, limit_s).wait()

    def begin(
        self, function: Callable[..., Any], calls: Sequence[Sequence[object]], limit_s: float
    ) -> Started:
        """Begin to run a function of tunegrad's own in the compile workers, once per argument list.

        It begins after what is under way; what is compiled or measured next waits until it has
        ended.
        """
        self.wait_idle()
        return self._compilers.start(function, calls, limit_s)

    def counted_code(self, candidates: Sequence[Candidate]) -> list[Properties]:
        """Properties from the compiler's listings of candidates, on all cores: as dear as compiling
        them.

        Empty for one that fails, and on devices that show none.
        """
        calls = [(c, self.device, self.hooks.lower) for c in candidates]
        endings = self.begin(worker.counted_code, calls, self.limits.compile_s).wait()
        return [e.value if isinstance(e, Finished) else () for e in endings]

    def wait_idle(self) -> None:
        """Return once nothing compiles, and no referee works at what it was left with."""
        self._compilers.wait_idle()
        self._settle()

    def _settle(self) -> None:
        """Wait for the referees that were left at work by a deadline; end those that are not done
        after ``_LATE_S`` seconds, with all that they have worked out.
        """
        end_s = time.monotonic() + _LATE_S
        while self._referring:
            left_s = max(0.0, end_s - time.monotonic())
            judge = IsolatedWorker.first_to_answer(self._referring, left_s)
            answer = self._referring.pop(judge)
            if time.monotonic() < end_s:
                answer()
            else:
                judge.close()

    def _quiet(self) -> None:
        """Return once nothing runs beside what is timed next."""
        if self.device.exclusive:
            self.wait_idle()

    def refer(self, kernels: Sequence[tuple[Candidate, KernelIO]]) -> None:
        """Let the referees compute what kernels' outputs must be, on all cores, ahead of their
        measuring.

        Where that fails it is computed once more when the kernel is measured, and fails for that
        kernel alone. Left by a deadline, the referees go on with the kernel that each is at.
        """
        self.wait_idle()
        left, under_way, limit_s = list(kernels), self._referring, self.limits.reference_s
        try:
            while left or under_way:
                for judge in self._referees:
                    if judge not in under_way and (mine := self._next(left, judge)):
                        under_way[judge] = judge.begin(
                            referee.on_referee,
                            Referee.refer,
                            *mine,
                            limit_s=limit_s,
                            reply_type=None,
                        )
                under_way.pop(IsolatedWorker.first_to_answer(under_way, limit_s))()
        except KeyboardInterrupt:
            self._end_referees()
            raise

    def _next(
        self, left: list[tuple[Candidate, KernelIO]], judge: IsolatedWorker
    ) -> tuple[Candidate, KernelIO] | None:
        """The next kernel for a referee, which keeps it from then on: kernels are as dear as
        their expressions are long, so none is set apart for one that is busy.
        """
        for at, (candidate, _) in enumerate(left):
            if self._referee_of.setdefault(candidate.kernel_key, judge) is judge:
                return left.pop(at)
        return None

    def _referee(self, kernel_key: str) -> IsolatedWorker:
        """The referee of a kernel: kernels that were not referred ahead take turns."""
        turn = len(self._referee_of) % len(self._referees)
        judge = self._referee_of.setdefault(kernel_key, self._referees[turn])
        if judge in self._referring:
            self._settle()
        return judge

    def measure_compiled(
        self,
        candidate: Candidate,
        compiled: CompiledCandidate,
        policy: Policy,
        best_s: float = math.inf,
        beside: Beside | None = None,
    ) -> Measurement:
        """Verify and time one candidate.

        ``best_s`` is the time to beat, in seconds; clear losers are stopped early.

        It is timed in turns with ``beside``, a program of the kernel that was measured OK before.
        """
        if compiled.duplicate:
            raise errors.InternalError(f"{compiled.entry}: a known program has no code to measure")
        self._quiet()
        ended, alone = self._examine(candidate, compiled, policy, best_s, beside)
        attempts = 1
        if _failed(ended) and (not alone or _crashed(ended)):
            attempts = 2
            self._bench.close()
            ended, _ = self._examine(candidate, compiled, policy, best_s, beside)
        if isinstance(ended, examine.Result):
            return replace(ended.measurement, attempts=attempts, facts=compiled.facts)
        row = _ended(ended, "running", compiled.lower_s, compiled.compile_s, compiled.io)
        return replace(row, attempts=attempts, facts=compiled.facts)

    def measure(
        self,
        candidates: Sequence[Candidate],
        policy: Policy,
        best_s: float = math.inf,
        known: Iterable[str] = (),
    ) -> list[Measured | None]:
        """Compile a batch, then verify and time each: one Measured per candidate, None for a known
        program.

        A program that occurs twice in the batch is measured once; the second is None. The time to
        beat falls as the batch goes on.
        """
        seen = set(known)
        outcomes: list[Measured | None] = []
        for candidate, compiled in zip(candidates, self.compile(candidates, seen), strict=True):
            if isinstance(compiled, Measured):
                outcomes.append(compiled)
            elif compiled.program_hash in seen:
                outcomes.append(None)
            else:
                seen.add(compiled.program_hash)
                measurement = self.measure_compiled(candidate, compiled, policy, best_s)
                best_s = min(best_s, measurement.seconds)
                outcomes.append(Measured(compiled.program_hash, measurement))
        return outcomes

    def machine_limits(self, again: bool = False) -> MachineLimits:
        """This machine's measured peaks; measured once, with nothing else of ours running.

        ``again`` measures them once more and keeps the better of each: one look may fall into a
        busy moment. Raises DeviceError where the machine is too busy, or has too little memory.
        """
        if self._peaks is None or again:
            self._quiet()
            ending = self._bench.call(
                worker.on_bench, Bench.limits, limit_s=_PEAKS_S, reply_type=MachineLimits
            )
            if isinstance(ending, Finished):
                found: MachineLimits = ending.value
                self._peaks = found if self._peaks is None else self._peaks.best(found)
            elif self._peaks is None:
                why = ", others keep it busy" if isinstance(ending, TimedOut) else ""
                raise errors.DeviceError(
                    f"the machine's peaks can not be measured: {ending.text}{why}"
                )
        return self._peaks

    def protections(self) -> confine.Protections:
        """Protections that keep a candidate from harming what is outside its process here."""
        return self._bench.protections()

    def close(self) -> None:
        """Stop the workers and wait for them."""
        self._compilers.close()
        self._bench.close()
        self._end_referees()
        self._memory.clear()

    def _end_referees(self) -> None:
        """Stop the referees, at work or not."""
        self._referring.clear()
        for judge in self._referees:
            judge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _examine(
        self,
        candidate: Candidate,
        compiled: CompiledCandidate,
        policy: Policy,
        best_s: float,
        beside: Beside | None,
    ) -> tuple[examine.Result | Died | TimedOut, bool]:
        """One try, and whether the bench's process had run no other candidate.

        A damaged bench is gone afterwards.
        """
        for missed in range(3):  # one may have nothing yet, and one may die of the machine's doing
            if missed:
                self._prepare(candidate, compiled)
            examination = examine.Examination(
                self._bench, self._referee(candidate.kernel_key), self.limits,
                candidate.kernel_key, compiled, policy, best_s, beside, self._rights,
            )  # fmt: skip
            found = examination.run()
            if not isinstance(found, examine.Unprepared):
                break
        if isinstance(found, examine.Unprepared):
            why = found.why or "the bench or the referee keeps nothing of it"
            raise errors.InternalError(f"{candidate.kernel_key}: {why}")
        alone, self._used = self._used != self._bench.started, self._bench.started
        if isinstance(found, examine.Result) and found.damaged:
            self._bench.close()
        return found, alone

    def _prepare(self, candidate: Candidate, compiled: CompiledCandidate) -> None:
        """Let the referee draw inputs and know what they must give, and the bench copy the inputs.

        Neither runs a candidate meanwhile: a process that dies of something else is replaced, once.
        """
        if self._try_to_prepare(candidate, compiled) and (
            failed := self._try_to_prepare(candidate, compiled)
        ):
            raise errors.InternalError(failed)

    def _try_to_prepare(self, candidate: Candidate, compiled: CompiledCandidate) -> str:
        """Prepare the kernel's inputs and references; returns what failed, '' for nothing."""
        key, limit_s = candidate.kernel_key, self.limits.reference_s
        drawn = self._referee(key).call(
            referee.on_referee,
            Referee.prepare,
            candidate,
            compiled.io,
            limit_s=limit_s,
            reply_type=Places,
        )
        if not isinstance(drawn, Finished):
            return f"reference of kernel {key}: {drawn.text}"
        copied = self._bench.call(
            worker.on_bench, Bench.prepare, key, drawn.value, limit_s=_COPY_S, reply_type=None
        )
        self._memory.clear()
        return "" if isinstance(copied, Finished) else f"inputs of kernel {key}: {copied.text}"


def _compiled(ending: Ending, attempts: int = 1) -> CompiledCandidate | Measured:
    if isinstance(ending, Finished):
        compiled: CompiledCandidate | Measured = ending.value
        return compiled
    return Measured("", replace(_ended(ending, "compiling"), attempts=attempts))


def _failed(ended: examine.Result | Died | TimedOut) -> bool:
    """True when another try may end otherwise."""
    if not isinstance(ended, examine.Result):
        return True
    return ended.measurement.status is not Status.OK and not ended.unsteady


def _crashed(ended: examine.Result | Died | TimedOut) -> bool:
    """True when it died of what no handler explains."""
    return isinstance(ended, Died) and not _wrote(ended.code)


def _wrote(code: int) -> bool:
    """True for an exit code that says which buffer was written to."""
    return EXIT_WROTE <= code < EXIT_WROTE + MOST_TOLD


def _ended(
    ending: Died | TimedOut,
    doing: Literal["compiling", "running"],
    lower_s: float = 0.0,
    compile_s: float = 0.0,
    io: KernelIO | None = None,
) -> Measurement:
    timing_s = 0.0
    if isinstance(ending, TimedOut):
        status, error = Status.TIMED_OUT, f"{doing}: {ending.text}"
        # What it cost is part of its row: a search reckons with it.
        if doing == "compiling":
            compile_s = ending.limit_s
        else:
            timing_s = ending.limit_s
    elif ending.code == confine.EXIT_MEMORY:
        status, error = Status.OUT_OF_RESOURCES, f"{doing}: over the memory limit"
    elif io is not None and _wrote(ending.code):
        param = io.params[(ending.code - EXIT_WROTE) % len(io.params)]
        status, error = (
            Status.WRONG,
            f"{param.name}: the candidate wrote to this {param.role} buffer",
        )
    else:
        status, error = (
            Status.CRASHED,
            f"{doing}: {ending.why or f'the worker ended with {ending.text}'}",
        )
    return Measurement(status, error=error, lower_s=lower_s, compile_s=compile_s, timing_s=timing_s)
