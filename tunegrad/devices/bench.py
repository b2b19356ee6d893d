"""The timing worker's workbench: load, verify and time one candidate at a time on this process's thread team."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from tunegrad.devices.buffers import Buffer
from tunegrad.devices.bulk import Bulk
from tunegrad.devices.cpu import Executable
from tunegrad.devices.dataset import Dataset, DatasetCache, References, make_dataset
from tunegrad.devices.job import CONTENDING, Candidate, CompiledCandidate, Hooks, KernelIO, Limits
from tunegrad.devices.native import BufferTable, Launch, Team
from tunegrad.devices.pulse import Pulse
from tunegrad.devices.readonly import ReadOnly
from tunegrad.devices.timing import inner_repeats, sample_quietly
from tunegrad.errors import CompileFailure, InternalError
from tunegrad.ir.target import Target
from tunegrad.trial import Cache, Measurement, Policy, Status

__all__ = ["Bench", "Reply"]

_POISON = 0xFF
_READ = ("in", "const", "pack")
_HOPELESS = 8.0
_HOPELESS_S = 2e-3
"""A candidate whose verified run takes this many times the best time, and this long, is not run again.

A short one may have waited for threads to wake up.
"""

_LATE_S = 0.1e-3
"""What threads that have to wake up may add to a run, at most."""

_PROMISING = 1.1
"""Where a candidate would, undisturbed, take at most this much of the best time, a quiet moment is waited for."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A measurement, or ``prepared=False``: this worker has no inputs for the kernel yet.

    ``damaged``: the candidate wrote where it must not, so this process's memory is not to be trusted any more.
    """

    measurement: Measurement | None = None
    damaged: bool = False
    prepared: bool = True


@dataclass(frozen=True, slots=True)
class _Bound:
    """A loaded candidate, and for each input set the buffers it runs on and its launch."""

    executable: Executable
    workspace: Buffer
    io: KernelIO
    dataset: Dataset
    buffers: tuple[list[Buffer], ...]
    launches: tuple[Launch, ...]
    tables: tuple[BufferTable, ...]

    def evicted(self, cache: Cache) -> tuple[tuple[int, int], ...]:
        """What is evicted before each sample, as (address, bytes). Packed constants are what is read of them."""
        if cache == "warm":
            return ()
        packed = {p.source for p in self.io.packs}
        found = [] if cache == "constants" else [(self.workspace.address, self.workspace.nbytes)]
        for param, buffer in zip(self.io.params, self.buffers[0], strict=True):
            constant = param.role == "pack" or (param.role == "const" and param.name not in packed)
            if constant or cache != "constants":
                found.append((buffer.address, param.nbytes))
        return tuple((address, nbytes) for address, nbytes in found if nbytes)


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why a run is wrong; no error where it is not."""

    error: str = ""
    damaged: bool = False
    max_error: float = 0.0

    def after(self, samples: int) -> _Fault:
        """The same, found after the timing."""
        return replace(self, error=f"after {samples} samples: {self.error}") if self.error else self


_NONE = _Fault()


class Bench:
    """Everything a timing worker keeps between candidates. One per process; nothing here survives a crash."""

    def __init__(self, target: Target, hooks: Hooks, limits: Limits, seed: int) -> None:
        self._target = target
        self._hooks = hooks
        self._limits = limits
        self._seed = seed
        self.team = Team(target.threads, pin_caller=True)
        self._pulse = Pulse(target, self.team)
        self._bulk = Bulk(self.team)
        self._datasets = DatasetCache(limits.cache_bytes)
        self._read_only: ReadOnly | None = None

    def tell_writers(self) -> None:
        """From now on who writes to what may only be read ends this process with an exit code of its own."""
        self._read_only = ReadOnly()

    def prepare(self, candidate: Candidate, io: KernelIO, known: References | None) -> References:
        """Make the kernel's inputs and references (or take the ``known`` ones); returns the references that are new."""
        dataset = make_dataset(candidate, io, self._hooks, self._limits, self._seed, known)
        self._datasets.put(candidate.kernel_key, dataset)
        return dataset.references if known is None else ()

    def measure(self, candidate: Candidate, compiled: CompiledCandidate, policy: Policy, best_s: float) -> Reply:
        """Verify, then time. ``best_s``, where not 0, is the time to beat: a clear loser is not timed to the end."""
        dataset = self._datasets.get(candidate.kernel_key)
        if dataset is None:
            return Reply(prepared=False)
        start = time.monotonic()
        facts = Measurement(Status.OK, lower_s=compiled.lower_s, compile_s=compiled.compile_s)
        try:
            dataset.pack([compiled.io], self._bulk)
            bound = self._bind(compiled, dataset)
        except CompileFailure as error:
            return Reply(replace(facts, status=Status.COMPILE_ERROR, error=str(error)))
        except MemoryError as error:
            return Reply(replace(facts, status=Status.OUT_OF_RESOURCES, error=f"buffers: {error}"))
        with bound.executable:
            return self._examine(bound, policy, best_s or math.inf, start, facts)

    def compare(
        self, candidate: Candidate, pair: tuple[CompiledCandidate, CompiledCandidate], rounds: int, cache: Cache
    ) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Seconds of two verified candidates of one kernel, sampled in turns (ABBA); None: not prepared."""
        dataset = self._datasets.get(candidate.kernel_key)
        if dataset is None:
            return None
        dataset.pack([compiled.io for compiled in pair], self._bulk)
        bound = tuple(self._bind(compiled, dataset) for compiled in pair)
        dropped = [each.evicted(cache) for each in bound]
        try:
            for each in bound:
                dataset.fill(0, each.io, self._bulk)
            first = [min(self.team.time(b.launches[0], 2, 1, d)) for b, d in zip(bound, dropped, strict=True)]
            inner = [inner_repeats(s, alone=bool(d)) for s, d in zip(first, dropped, strict=True)]
            samples: tuple[list[float], list[float]] = ([], [])
            for turn in range(rounds):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    samples[side].extend(self.team.time(bound[side].launches[0], 1, inner[side], dropped[side]))
        finally:
            for each in bound:
                each.executable.close()
        return tuple(samples[0]), tuple(samples[1])

    def _examine(self, bound: _Bound, policy: Policy, best_s: float, start: float, facts: Measurement) -> Reply:
        """Compare on the first input set, time, compare again; and who may win on the other input sets, too."""
        samples: tuple[float, ...] = ()
        timing_s = 0.0
        once_s, fault = self._verify(bound, 0, _NONE)
        if once_s > max(_HOPELESS_S, best_s * _HOPELESS):
            samples = (once_s,)
        elif not fault.error:
            began = time.monotonic()
            samples = self._time(bound, policy, best_s, once_s)
            timing_s = time.monotonic() - began
            # What is updated in place is another value after each launch.
            outputs = all(p.role != "inout" for p in bound.io.params)
            fault = _inspect(bound, 0, self._bulk, fault, outputs).after(len(samples))
            if median(samples) <= CONTENDING * best_s:
                for index in range(1, len(bound.launches)):
                    if not fault.error:
                        _, fault = self._verify(bound, index, fault)
        measurement = replace(
            facts,
            status=Status.WRONG if fault.error else Status.OK,
            samples_s=() if fault.error else samples,
            error=fault.error,
            verify_s=time.monotonic() - start - timing_s,
            timing_s=timing_s,
            max_error=fault.max_error,
        )
        return Reply(measurement, damaged=fault.damaged)

    def _verify(self, bound: _Bound, index: int, before: _Fault) -> tuple[float, _Fault]:
        """Run once on an input set: the seconds that it took, and what was wrong."""
        bound.dataset.fill(index, bound.io, self._bulk)
        self._bulk.fill(bound.workspace.bytes, _POISON)
        once_s = self.team.time(bound.launches[index], 1)[0]
        return once_s, _inspect(bound, index, self._bulk, before)

    def _bind(self, compiled: CompiledCandidate, dataset: Dataset) -> _Bound:
        if compiled.threads > self.team.threads:
            raise InternalError(f"{compiled.name}: {compiled.threads} threads, the target has {self.team.threads}")
        workspace = Buffer(compiled.workspace_bytes, touched=False)
        buffers = tuple(dataset.buffers(compiled.io, index) for index in range(len(dataset.sets)))
        tables = tuple(BufferTable([b.address for b in each], each) for each in buffers)
        executable = Executable.load(compiled.image, compiled.name)
        launches = tuple(
            Launch(executable.address, table.address, workspace.address, compiled.threads) for table in tables
        )
        if self._read_only is not None:
            roles = [p.role for p in compiled.io.params]
            self._read_only.watch(
                [b.pages if role in _READ else (0, 0) for each in buffers for role, b in zip(roles, each, strict=True)]
            )
        return _Bound(executable, workspace, compiled.io, dataset, buffers, launches, tables)

    def _time(self, bound: _Bound, policy: Policy, best_s: float, once_s: float) -> tuple[float, ...]:
        """Samples in seconds of what took ``once_s`` when it was verified."""
        dropped, wait_s = bound.evicted(policy.cache), self._limits.quiet_s

        def sampler(samples: int, inner: int) -> Sequence[float]:
            return self.team.time(bound.launches[0], samples, inner, dropped)

        losing_s = self._limits.losing_factor * best_s
        slow_s = losing_s + _LATE_S
        if once_s > slow_s:
            before = self._pulse.slowness()
            samples = tuple(sampler(1, 1))
            if samples[0] > slow_s * max(1.0, before, self._pulse.slowness()):
                return samples
        return sample_quietly(
            sampler, self._pulse.slowness, policy, losing_s, best_s * _PROMISING, wait_s, alone=bool(dropped)
        )


def _inspect(bound: _Bound, index: int, bulk: Bulk, before: _Fault, outputs: bool = True) -> _Fault:
    """What the last run, on input set ``index``, did wrong, if anything: guard zones first, then every output.

    What may only be read can not have been written to: see ``readonly``. The greatest error is of ordinary inputs.
    """
    damage = bound.workspace.check_guards()
    if damage:
        return _Fault(f"workspace: {damage}", True, before.max_error)
    written = [(p, b) for p, b in zip(bound.io.params, bound.buffers[index], strict=True) if p.role not in _READ]
    for param, buffer in written:
        damage = buffer.check_guards()
        if damage:
            return _Fault(f"{param.name}: {damage}", True, before.max_error)
    max_error = before.max_error
    for param, buffer in written if outputs else ():
        bar = bound.dataset.bar(param, index)
        if bar is None:
            continue
        verdict = bulk.judge(bar, buffer.array(param.dtype))
        if index == 0:  # errors of special numbers are as large as these are
            max_error = max(max_error, verdict.max_error)
        if verdict.fault:
            return _Fault(f"{param.name}: {verdict.fault}", max_error=max_error)
        if verdict.first >= 0:
            error = (
                f"{param.name}[{verdict.first}]: got {verdict.got:.9g}, expected {verdict.expected:.9g}, "
                f"tolerance {verdict.allowed:.3g} ({verdict.bad} bad of {bar.expected.size} compared)"
            )
            return _Fault(error, max_error=max_error)
    return _Fault("", max_error=max_error)
