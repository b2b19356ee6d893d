"""The CPU measurer: candidates are compiled in parallel, then verified and timed one by one, alone on the machine.

begin_compile  -->  Compiling, on all cores, while the caller does something else  -->  wait: the code, in order
measure_compiled, compare, machine_limits: first wait for what still compiles, then run alone
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from tunegrad.devices import worker
from tunegrad.devices.bench import Reply
from tunegrad.devices.codegen import OptLevel
from tunegrad.devices.dataset import References
from tunegrad.devices.host import default_threads, host_target
from tunegrad.devices.job import Candidate, CompiledCandidate, Hooks, KernelIO, Limits, Outcome
from tunegrad.devices.peak import MachineLimits
from tunegrad.devices.pool import Died, Ending, Finished, Started, TimedOut, WorkerPool
from tunegrad.devices.readonly import EXIT_WROTE, MOST_TOLD
from tunegrad.errors import CandidateCrashed, CandidateTimeout, InternalError
from tunegrad.ir.target import Target
from tunegrad.trial import Cache, Measurement, Policy, Status

__all__ = ["Compiling", "CpuMeasurer"]


class Compiling:
    """A batch that compiles in the background."""

    def __init__(self, started: Started) -> None:
        self._started = started

    def wait(self) -> list[CompiledCandidate | Outcome]:
        """The code of each candidate, in order; failures are Outcomes. Left by an interrupt, the batch is given up."""
        return [_compiled(ending) for ending in self._started.wait()]

    def close(self) -> None:
        """Give up what was not waited for: nothing of it goes on compiling."""
        self._started.close()


class CpuMeasurer:
    """Measures candidates on this machine's CPU in processes that can be killed. Use it as a context manager.

    Workers start with the first call and are gone after ``close``, also when this process is killed. Calls are not to
    be made from two threads at once, and all but ``begin_compile`` block. A compile never runs while something is
    timed: what is under way is waited for first.
    """

    def __init__(
        self,
        target: Target | None = None,
        hooks: Hooks | None = None,
        limits: Limits | None = None,
        seed: int = 0,
        compile_workers: int | None = None,
        opt_level: OptLevel = 2,
    ) -> None:
        self.target = host_target() if target is None else target
        self.hooks = Hooks() if hooks is None else hooks
        self.limits = Limits() if limits is None else limits
        self._opt_level: OptLevel = opt_level
        self._seed = seed
        start_s = self.limits.worker_start_s
        count = default_threads() if compile_workers is None else compile_workers
        self._compilers = WorkerPool(count, worker.start_compiler, (self.limits,), start_s)
        self._timer = WorkerPool(1, worker.start_timer, (self.target, self.hooks, self.limits, seed), start_s)
        self._references: OrderedDict[str, References] = OrderedDict()
        self._peaks: MachineLimits | None = None

    def begin_compile(self, candidates: Sequence[Candidate], known: Iterable[str] = ()) -> Compiling:
        """Begin to lower and compile a batch on all cores, after what is under way.

        Programs whose hash is in ``known`` are lowered and not compiled: their ``image`` is empty.
        """
        self.settle()
        seen = frozenset(known)
        calls = [(c, self.target, self.hooks.lower, self._opt_level, self.limits, seen) for c in candidates]
        return Compiling(self._compilers.start(worker.compile_candidate, calls, self.limits.compile_s))

    def compile(self, candidates: Sequence[Candidate], known: Iterable[str] = ()) -> list[CompiledCandidate | Outcome]:
        """Lower and compile a batch as ``begin_compile`` does, and wait for it."""
        return self.begin_compile(candidates, known).wait()

    def run(self, function: Callable[..., Any], calls: Sequence[Sequence[object]], limit_s: float) -> list[Ending]:
        """Run a function of tunegrad's own in the compile workers, which run no candidate; once per argument list."""
        self.settle()
        return self._compilers.map(function, calls, limit_s)

    def settle(self) -> None:
        """Return once nothing compiles."""
        self._compilers.settle()

    def refer(self, kernels: Sequence[tuple[Candidate, KernelIO]]) -> None:
        """Compute what kernels' outputs must be on all cores, ahead of their measuring.

        A kernel that was referred before is left out; one whose reference fails here is referred when it is measured.
        """
        fresh = {c.kernel_key: (c, io) for c, io in kernels if c.kernel_key not in self._references}
        calls = [(c, io, self.hooks, self.limits, self._seed) for c, io in fresh.values()]
        self.settle()
        endings = self._compilers.map(worker.refer, calls, self.limits.reference_s)
        for key, ending in zip(fresh, endings, strict=True):
            if isinstance(ending, Finished):
                self._remember(key, ending.value)

    def measure_compiled(
        self, candidate: Candidate, compiled: CompiledCandidate, policy: Policy, best_s: float = math.inf
    ) -> Measurement:
        """Verify and time one candidate. ``best_s`` is the time to beat, in seconds; clear losers are stopped early."""
        if compiled.duplicate:
            raise InternalError(f"{compiled.name}: a known program has no code to measure")
        self.settle()
        ending = self._timer.call(worker.measure, candidate, compiled, policy, best_s, limit_s=policy.timeout_s)
        if isinstance(ending, Finished) and not ending.value.prepared:
            self._prepare(candidate, compiled)
            ending = self._timer.call(worker.measure, candidate, compiled, policy, best_s, limit_s=policy.timeout_s)
        if isinstance(ending, Finished):
            reply: Reply = ending.value
            if reply.measurement is None:
                raise InternalError(f"{candidate.kernel_key}: the timing worker keeps no inputs")
            if reply.damaged:
                self._timer.call(worker.retire, limit_s=policy.timeout_s)
            return reply.measurement
        return _ended(ending, "running", compiled.lower_s, compiled.compile_s, compiled.io)

    def measure(
        self,
        candidates: Sequence[Candidate],
        policy: Policy,
        best_s: float = math.inf,
        known: Iterable[str] = (),
    ) -> list[Outcome | None]:
        """Compile a batch, then verify and time each: one Outcome per candidate, None for a known program.

        A program that occurs twice in the batch is measured once; the second is None. The time to beat falls as the
        batch goes on.
        """
        seen = set(known)
        outcomes: list[Outcome | None] = []
        for candidate, compiled in zip(candidates, self.compile(candidates, seen), strict=True):
            if isinstance(compiled, Outcome):
                outcomes.append(compiled)
            elif compiled.program_hash in seen:
                outcomes.append(None)
            else:
                seen.add(compiled.program_hash)
                measurement = self.measure_compiled(candidate, compiled, policy, best_s)
                best_s = min(best_s, measurement.seconds)
                outcomes.append(Outcome(compiled.program_hash, measurement))
        return outcomes

    def compare(
        self, candidate: Candidate, a: CompiledCandidate, b: CompiledCandidate, rounds: int = 15, cache: Cache = "cold"
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Interleaved samples in seconds of two candidates of one kernel that were both measured OK before.

        Raises CandidateTimeout or CandidateCrashed when one of them fails after all.
        """
        self.settle()
        limit_s = 10.0 + rounds * 2.0
        for _ in range(2):
            ending = self._timer.call(worker.compare_pair, candidate, (a, b), rounds, cache, limit_s=limit_s)
            if isinstance(ending, TimedOut):
                raise CandidateTimeout(f"{a.name} against {b.name}: over {limit_s:g} s")
            if isinstance(ending, Died):
                raise CandidateCrashed(f"{a.name} against {b.name}: {ending.text}")
            if ending.value is not None:
                samples: tuple[tuple[float, ...], tuple[float, ...]] = ending.value
                return samples
            self._prepare(candidate, a)
        raise InternalError(f"{candidate.kernel_key}: the timing worker keeps no inputs")

    def machine_limits(self, again: bool = False) -> MachineLimits:
        """This machine's measured peaks; measured once, with nothing else of ours running.

        ``again`` measures them once more and keeps the better of each: one look may fall into a busy moment.
        """
        if self._peaks is None or again:
            self.settle()
            ending = self._timer.call(worker.machine_limits, self.target, limit_s=60.0)
            if not isinstance(ending, Finished):
                raise InternalError(f"measuring the machine's limits: {ending}")
            found: MachineLimits = ending.value
            self._peaks = found if self._peaks is None else self._peaks.best(found)
        return self._peaks

    def renew(self) -> None:
        """End the timing worker; the next call starts another, with other memory and the same inputs."""
        self._timer.close()

    def close(self) -> None:
        """Stop the workers and wait for them."""
        self._compilers.close()
        self._timer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self, candidate: Candidate, compiled: CompiledCandidate) -> None:
        known = self._references.get(candidate.kernel_key)
        limit_s = self.limits.reference_s
        ending = self._timer.call(worker.prepare, candidate, compiled.io, known, limit_s=limit_s)
        if not isinstance(ending, Finished):
            raise InternalError(f"reference of kernel {candidate.kernel_key}: {ending}")
        self._remember(candidate.kernel_key, ending.value if known is None else known)

    def _remember(self, kernel_key: str, references: References) -> None:
        self._references[kernel_key] = references
        self._references.move_to_end(kernel_key)
        while len(self._references) > 1 and self._reference_bytes() > self.limits.cache_bytes:
            self._references.popitem(last=False)

    def _reference_bytes(self) -> int:
        return sum(r.nbytes for sets in self._references.values() for one in sets for r in one.values())


def _compiled(ending: Ending) -> CompiledCandidate | Outcome:
    if isinstance(ending, Finished):
        compiled: CompiledCandidate | Outcome = ending.value
        return compiled
    return Outcome("", _ended(ending, "compiling"))


def _ended(
    ending: Died | TimedOut,
    doing: Literal["compiling", "running"],
    lower_s: float = 0.0,
    compile_s: float = 0.0,
    io: KernelIO | None = None,
) -> Measurement:
    timing_s = 0.0
    if isinstance(ending, TimedOut):
        status, error = Status.TIMED_OUT, f"{doing}: over {ending.limit_s:g} s"
        # What it cost is part of its row: a search reckons with it.
        if doing == "compiling":
            compile_s = ending.limit_s
        else:
            timing_s = ending.limit_s
    elif ending.code == worker.EXIT_MEMORY:
        status, error = Status.OUT_OF_RESOURCES, f"{doing}: over the memory limit"
    elif io is not None and EXIT_WROTE <= ending.code < EXIT_WROTE + MOST_TOLD:
        param = io.params[(ending.code - EXIT_WROTE) % len(io.params)]
        status, error = Status.WRONG, f"{param.name}: the candidate wrote to this {param.role} buffer"
    else:
        status, error = Status.CRASHED, f"{doing}: the worker ended with {ending.text}"
    return Measurement(status, error=error, lower_s=lower_s, compile_s=compile_s, timing_s=timing_s)
