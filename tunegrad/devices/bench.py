"""The timing worker's workbench: load, verify and time one candidate at a time on this process's thread team."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tunegrad.devices.buffers import Buffer
from tunegrad.devices.bulk import Bulk
from tunegrad.devices.cpu import Executable
from tunegrad.devices.dataset import Dataset, DatasetCache, References, make_dataset
from tunegrad.devices.job import Candidate, CompiledCandidate, Hooks, KernelIO, Limits
from tunegrad.devices.native import BufferTable, Launch, Team
from tunegrad.devices.pulse import Pulse
from tunegrad.devices.timing import inner_repeats, sample_quietly
from tunegrad.errors import CompileFailure, InternalError
from tunegrad.ir.target import Target
from tunegrad.trial import Cache, Measurement, Policy, Status

__all__ = ["Bench", "Reply"]

_POISON = 0xFF
_READ = ("in", "const", "pack")
_REPLACED = ("in",)
_HOPELESS = 8.0
_HOPELESS_S = 2e-3
"""A candidate whose verified run takes this many times the best time, and this long, is not run again.

A short one may have waited for threads to wake up.
"""

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
    """A loaded candidate on its buffers."""

    executable: Executable
    table: BufferTable
    workspace: Buffer
    launch: Launch
    io: KernelIO
    dataset: Dataset

    def evicted(self, cache: Cache) -> tuple[tuple[int, int], ...]:
        """What is evicted before each sample, as (address, bytes). Packed constants are what is read of them."""
        if cache == "warm":
            return ()
        params, buffers = self.io.params, [self.workspace]
        if cache == "constants":
            packed = {p.source for p in self.io.packs}
            params = tuple(p for p in params if p.role == "pack" or (p.role == "const" and p.name not in packed))
            buffers = []
        buffers += [self.dataset.buffer(param, self.io) for param in params]
        return tuple((b.address, b.nbytes) for b in buffers if b.nbytes)


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why a run is wrong."""

    error: str
    damaged: bool = False
    max_error: float = 0.0


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

    def prepare(self, candidate: Candidate, io: KernelIO, known: References | None) -> References:
        """Make the kernel's inputs and references (or take the ``known`` ones); returns the references that are new."""
        dataset = make_dataset(candidate, io, self._hooks, self._limits, self._seed, known)
        self._datasets.put(candidate.kernel_key, dataset)
        return dataset.references if known is None else ()

    def measure(self, candidate: Candidate, compiled: CompiledCandidate, policy: Policy, best_s: float) -> Reply:
        """Verify, then time. ``best_s`` is the time to beat: a clear loser is not timed to the end."""
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
            return self._examine(bound, policy, best_s, start, facts)

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
            first = [min(self.team.time(b.launch, 2, 1, d)) for b, d in zip(bound, dropped, strict=True)]
            inner = [inner_repeats(s, alone=bool(d)) for s, d in zip(first, dropped, strict=True)]
            samples: tuple[list[float], list[float]] = ([], [])
            for turn in range(rounds):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    samples[side].extend(self.team.time(bound[side].launch, 1, inner[side], dropped[side]))
        finally:
            for each in bound:
                each.executable.close()
        return tuple(samples[0]), tuple(samples[1])

    def _examine(self, bound: _Bound, policy: Policy, best_s: float, start: float, facts: Measurement) -> Reply:
        max_error = 0.0
        hopeless_s = max(_HOPELESS_S, best_s * _HOPELESS) if best_s > 0 else math.inf
        count = len(bound.dataset.sets)
        for index in range(count):
            self._fill(bound, index)
            once_s = self.team.time(bound.launch, 1)[0]
            hopeless = once_s > hopeless_s
            # The next set replaces what is read; constants, and all of the last set, are looked at after the timing.
            fault = _inspect(bound, self._bulk, read=_READ if hopeless else _REPLACED if index + 1 < count else ())
            max_error = max(max_error, fault.max_error)
            if fault.error:
                spent = time.monotonic() - start
                wrong = replace(facts, status=Status.WRONG, error=fault.error, verify_s=spent, max_error=max_error)
                return Reply(wrong, damaged=fault.damaged)
            if hopeless:
                spent = time.monotonic() - start
                return Reply(replace(facts, samples_s=(once_s,), verify_s=spent, max_error=max_error))
        verified = time.monotonic()
        samples = self._time(bound, policy, best_s)
        timed = time.monotonic()
        fault = _inspect(bound, self._bulk, outputs=all(p.role != "inout" for p in bound.io.params))
        measurement = replace(
            facts,
            status=Status.WRONG if fault.error else Status.OK,
            samples_s=() if fault.error else samples,
            error=f"after {len(samples)} samples: {fault.error}" if fault.error else "",
            verify_s=verified - start + time.monotonic() - timed,
            timing_s=timed - verified,
            max_error=max(max_error, fault.max_error),
        )
        return Reply(measurement, damaged=fault.damaged)

    def _bind(self, compiled: CompiledCandidate, dataset: Dataset) -> _Bound:
        if compiled.threads > self.team.threads:
            raise InternalError(f"{compiled.name}: {compiled.threads} threads, the target has {self.team.threads}")
        buffers = [dataset.buffer(param, compiled.io) for param in compiled.io.params]
        workspace = Buffer(compiled.workspace_bytes, touched=False)
        table = BufferTable([buffer.address for buffer in buffers], buffers)
        executable = Executable.load(compiled.image, compiled.name)
        launch = Launch(executable.address, table.address, workspace.address, compiled.threads)
        return _Bound(executable, table, workspace, launch, compiled.io, dataset)

    def _fill(self, bound: _Bound, index: int) -> None:
        bound.dataset.fill(index, bound.io, self._bulk)
        self._bulk.fill(bound.workspace.bytes, _POISON)

    def _time(self, bound: _Bound, policy: Policy, best_s: float) -> tuple[float, ...]:
        dropped = bound.evicted(policy.cache)

        def sampler(samples: int, inner: int) -> Sequence[float]:
            return self.team.time(bound.launch, samples, inner, dropped)

        losing_s = best_s * self._limits.losing_factor if best_s > 0 else math.inf
        promising_s = best_s * _PROMISING if best_s > 0 else math.inf
        slowness, wait_s = self._pulse.slowness, self._limits.quiet_s
        return sample_quietly(sampler, slowness, policy, losing_s, promising_s, wait_s, alone=bool(dropped))


def _inspect(bound: _Bound, bulk: Bulk, outputs: bool = True, read: Collection[str] = _READ) -> _Fault:
    """What the last run did wrong, if anything: guards first, then parameters of ``read`` roles, then every output.

    Where an output is wrong, all that is only read is looked at: writing to it is the worse fault.
    """
    damage = bound.workspace.check_guards()
    if damage:
        return _Fault(f"workspace: {damage}", damaged=True)
    dataset, io = bound.dataset, bound.io
    for param in io.params:
        damage = dataset.buffer(param, io).check_guards()
        if damage:
            return _Fault(f"{param.name}: {damage}", damaged=True)
    fault = _overwritten(bound, bulk, read)
    if not fault.error and outputs:
        fault = _compare_outputs(bound, bulk)
        if fault.error:
            return (
                replace(worse, max_error=fault.max_error)
                if (worse := _overwritten(bound, bulk, _READ)).error
                else fault
            )
    return fault


def _overwritten(bound: _Bound, bulk: Bulk, roles: Collection[str]) -> _Fault:
    """Whether the candidate wrote to a buffer that it may only read."""
    dataset, io = bound.dataset, bound.io
    for param in io.params:
        if param.role in roles:
            buffer = dataset.buffer(param, io)
            if not bulk.same(buffer.bytes, dataset.pristine(param, io)):
                return _Fault(f"{param.name}: the candidate wrote to this {param.role} buffer", damaged=True)
    return _Fault("")


def _compare_outputs(bound: _Bound, bulk: Bulk) -> _Fault:
    max_error = 0.0
    for param in bound.io.params:
        bar = bound.dataset.bar(param) if param.role in ("out", "inout") else None
        if bar is None:
            continue
        verdict = bulk.judge(bar, bound.dataset.buffer(param, bound.io).array(param.dtype))
        max_error = max(max_error, verdict.max_error)
        if verdict.first >= 0:
            error = (
                f"{param.name}[{verdict.first}]: got {verdict.got:.9g}, expected {verdict.expected:.9g}, "
                f"tolerance {verdict.allowed:.3g} ({verdict.bad} bad of {bar.expected.size} compared)"
            )
            return _Fault(error, max_error=max_error)
    return _Fault("", max_error=max_error)
