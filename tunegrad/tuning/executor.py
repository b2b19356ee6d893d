"""The executor of a session: this machine, or a fleet of machines.

An executor says what is compiled for, what its rows are tagged with, how many machines measure at
once and how many proposals they keep busy. Everything else of a session is the same on all of them.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Protocol

from tunegrad import devices
from tunegrad.compiling import Payload
from tunegrad.config import TuneSettings
from tunegrad.devices import (
    CONTENDING,
    Beside,
    Candidate,
    CompiledCandidate,
    Compiling,
    DeviceMeasurer,
    Hooks,
    Limits,
    MachineLimits,
    usable_cores,
)
from tunegrad.ir.kernel import Kernel
from tunegrad.ir.target import Target
from tunegrad.opts import Schedule, Space
from tunegrad.search import Measurer, Results
from tunegrad.trial import Fingerprint, Measured, Measurement, Policy, Properties, Status, Trial

from . import models
from .budget import Costs, Window, compiling
from .interrupt import Interrupt
from .roofline import Roofline

_RENEWED = 0.5
"""A reference is timed as often as candidates: of twice the time, two thirds of timing."""


@dataclass(slots=True)
class References:
    """The reference of each kernel, by key. Mutable: it learns from every measurement."""

    _found: dict[str, Beside] = field(default_factory=dict)

    def of(self, key: str) -> Beside | None:
        """The reference that a candidate of a kernel is timed beside; None for the first one."""
        return self._found.get(key)

    def stand(self, key: str, compiled: CompiledCandidate, seconds: float) -> None:
        """A program that was found sound before stands for what it took then."""
        self._found[key] = Beside(compiled, seconds)

    def learn(self, key: str, compiled: CompiledCandidate, measurement: Measurement) -> None:
        """A candidate was measured."""
        held = self._found.get(key)
        if measurement.ran and (held is None or measurement.seconds <= _RENEWED * held.seconds):
            self._found[key] = Beside(compiled, measurement.seconds)


def standing(trials: Sequence[Trial]) -> Trial | None:
    """The reference that the rows of a kernel ended with: its own row says what it stands for.

    Of rows that were timed alone the first one that ran, which is a default's as a rule; None where
    nothing ran.
    """
    ran = [t for t in trials if t.measurement.ran]
    beside = [t.measurement.reference_program for t in ran if t.measurement.reference_samples_s]
    held = [t for t in ran if beside and t.program_hash == beside[-1]]
    return next(iter(held or ran), None)


_TIMEOUT_S = 0.5

_TIMEOUT_FACTOR = 50.0

_PATIENT = 20.0
"""Of a second compile of what is awaited: a driver's first compile may take half a minute."""

_SLOWEST_BYTES_PER_S, _SLOWEST_FLOPS_PER_S = 3e9, 1e10
"""Less than the peaks of any machine: what is slower needs no look at them."""

_KEPT = 512
"""Fast candidates whose code is kept for races."""


class SessionMeasurer(Measurer, Protocol):
    """The part of a measurer that a session needs."""

    def prime(self, work: Sequence[tuple[Kernel, Schedule]]) -> None:
        """These will be asked for soon."""

    def stand(self, work: Sequence[tuple[Kernel, Schedule, float]]) -> None:
        """Sound in earlier sessions, of so many seconds: candidates are timed beside these."""

    def counted_code(self, work: Sequence[tuple[Kernel, Schedule]]) -> list[Properties]:
        """Properties from the compiler's listing of each, () where none is to be had."""

    def wait_idle(self) -> None:
        """Return once nothing of this session works on this machine in the background."""


class Batch(Results):
    """The results of one call of ``measure``, in order. Mutable: what was read is gone.

        begun --start--> compiling --first result--> timed, one after the other
                                                       --last result--> the next one starts

    A batch that is closed starts nothing, since those behind it are given up with it; one that is
    read all the same compiles then. ``ready`` is code that was there, by text; ``fresh`` are the
    schedules that compile. ``left`` are the schedules that are not read yet, once all have
    compiled.
    """

    def __init__(
        self,
        measurer: CandidateMeasurer,
        kernel: Kernel,
        schedules: Sequence[Schedule],
        best_s: float,
        known: Collection[str],
    ) -> None:
        super().__init__(())
        self._measurer, self.kernel, self.schedules = measurer, kernel, tuple(schedules)
        self.best_s, self.seen = best_s, set(known)
        self.ready: dict[str, CompiledCandidate | Measured] = {}
        self.fresh: list[Schedule] = []
        self.compiling: Compiling | None = None
        self.left: deque[tuple[Schedule, CompiledCandidate | Measured]] | None = None

    def __next__(self) -> Measured | None:
        return self._measurer.read(self)

    def close(self) -> None:
        """Give up what was not read; nothing of it goes on compiling."""
        self._measurer.give_up(self)


class CandidateMeasurer:
    """``search.Measurer`` on a ``DeviceMeasurer``.

    A candidate may run for ``policy.timeout_s``; once a kernel has a best time, for 50 times that,
    at least half a second. What it spends goes into ``costs``.

        schedules --compile in a batch, all cores--> code --one by one, alone--> verified, timed

        measure(A)  A compiles while the caller asks for B
        measure(B)  B waits; A is read: the rest of it compiles, then each is timed, alone
                    after A's last result B compiles while the caller asks for C

    Nothing compiles while something is timed. ``prime`` compiles schedules of several kernels in
    one batch ahead of their measuring, and computes their references, so that short batches leave
    no core idle. Candidates are timed in turns with what ``references`` says.
    """

    def __init__(
        self,
        device: DeviceMeasurer,
        policy: Policy,
        interrupt: Interrupt | None = None,
        costs: Costs | None = None,
    ) -> None:
        self.device, self.policy = device, policy
        self._interrupt, self._costs = interrupt or Interrupt(), costs or Costs()
        self._queue: list[Batch] = []
        self.references = References()
        self._referenced: set[str] = set()
        self._primed: dict[tuple[str, str], CompiledCandidate | Measured] = {}
        self._near: OrderedDict[tuple[str, str], CompiledCandidate] = OrderedDict()

    def prime(self, work: Sequence[tuple[Kernel, Schedule]]) -> None:
        """Compile in one batch what will be asked for soon, and what that must compute."""
        fresh = [(k, s) for k, s in work if (k.key, s.text) not in self._primed]
        candidates = [self._candidate(kernel, schedule) for kernel, schedule in fresh]
        compiled = self._compile(candidates, ())
        pairs = zip(candidates, compiled, strict=True)
        with self._costs.part("verifying"), self._interrupt.breakable():
            self.device.refer(
                [(c, code.io) for c, code in pairs if isinstance(code, CompiledCandidate)]
            )
        for (kernel, schedule), result in zip(fresh, compiled, strict=True):
            self._primed[kernel.key, schedule.text] = result

    def measure(
        self, kernel: Kernel, schedules: Sequence[Schedule], best_s: float, known: Collection[str]
    ) -> Batch:
        """One result per schedule, in order; None where its program is known, or came to light
        since.

        The batch compiles from now on, or once those that were begun before it have been read.
        """
        batch = Batch(self, kernel, schedules, best_s, known)
        self._queue.append(batch)
        self._start(self._queue[0])
        return batch

    def code(self, candidates: Sequence[Candidate]) -> list[CompiledCandidate | Measured]:
        """The code of candidates for models to come: at hand where measured fast, else compiled, in
        the time that they need: they were compiled before.
        """
        at = [(c.kernel_key, _actions(c)) for c in candidates]
        fresh = [c for c, name in zip(candidates, at, strict=True) if name not in self._near]
        made = iter(self._late_again(fresh, self.device.compile(fresh, ()), lambda _: True))
        return [self._near[name] if name in self._near else next(made) for name in at]

    def stand(self, work: Sequence[tuple[Kernel, Schedule, float]]) -> None:
        """See ``SessionMeasurer``; nothing for a schedule that does not compile any more, nor for
        a kernel that has a reference already.
        """
        fresh = [(k, s, seconds) for k, s, seconds in work if self.references.of(k.key) is None]
        self.prime([(kernel, schedule) for kernel, schedule, _ in fresh])
        for kernel, schedule, seconds in fresh:
            code = self._primed.pop((kernel.key, schedule.text), None)
            if isinstance(code, CompiledCandidate):
                self.references.stand(kernel.key, code, seconds)

    def counted_code(self, work: Sequence[tuple[Kernel, Schedule]]) -> list[Properties]:
        with self._costs.part("waiting"), self._interrupt.breakable():
            return self.device.counted_code([self._candidate(k, s) for k, s in work])

    def wait_idle(self) -> None:
        """Return once nothing compiles."""
        with self._costs.part("waiting"), self._interrupt.breakable():
            self.device.wait_idle()

    # ---- a batch

    def read(self, batch: Batch) -> Measured | None:
        """The next result of a batch. Raises StopIteration after the last one."""
        try:
            if batch.left is None:
                code = self._made(batch)
                batch.left = deque((s, code[s.text]) for s in batch.schedules)
            if not batch.left:
                raise StopIteration
            found = self._result(batch, *batch.left.popleft())
        except BaseException:
            self.give_up(batch)
            raise
        if not batch.left:
            self._leave(batch)
            if self._queue:
                self._start(self._queue[0])
        return found

    def give_up(self, batch: Batch) -> None:
        """End a batch; nothing of it goes on compiling."""
        self._leave(batch)
        if batch.compiling is not None and batch.left is None:
            batch.compiling.close()
        batch.left = deque()

    def _leave(self, batch: Batch) -> None:
        if batch in self._queue:
            self._queue.remove(batch)

    def _start(self, batch: Batch) -> Compiling:
        """Compile unprimed code in the background; known programs are left out."""
        if batch.compiling is None:
            for s in batch.schedules:
                code = self._primed.pop((batch.kernel.key, s.text), None)
                if code is not None:
                    batch.ready[s.text] = code
            batch.fresh = [s for s in batch.schedules if s.text not in batch.ready]
            with self._costs.part("waiting"):
                candidates = [self._candidate(batch.kernel, s) for s in batch.fresh]
                batch.compiling = self.device.begin_compile(candidates, batch.seen)
        return batch.compiling

    def _made(self, batch: Batch) -> dict[str, CompiledCandidate | Measured]:
        """The code of a batch by text, waited for."""
        under_way = self._start(batch)
        with self._costs.part("waiting") as window, self._interrupt.breakable():
            made = under_way.wait()
        self._charge_compiling(window, made)
        candidates = [self._candidate(batch.kernel, s) for s in batch.fresh]
        made = self._late_again(candidates, made, _is_default)
        return batch.ready | {s.text: code for s, code in zip(batch.fresh, made, strict=True)}

    def _result(
        self, batch: Batch, schedule: Schedule, code: CompiledCandidate | Measured
    ) -> Measured | None:
        """Verify and time one candidate; every batch of its kernel learns of it."""
        if isinstance(code, Measured):
            return code
        if code.program_hash in batch.seen:
            return None
        kernel, best_s = batch.kernel, batch.best_s
        candidate = self._candidate(kernel, schedule)
        with self._costs.part("waiting") as window, self._interrupt.breakable():
            beside = self.references.of(kernel.key)
            measurement = self.device.measure_compiled(
                candidate, code, self._limited(best_s), best_s, beside
            )
            measurement = self._possible(kernel, measurement)
        self.references.learn(kernel.key, code, measurement)
        if measurement.ran and (measurement.seconds <= CONTENDING * best_s or best_s == inf):
            self._keep((kernel.key, schedule.text), code)
        self._charge(window, kernel.key, measurement)
        for other in self._queue:
            if other.kernel.key == kernel.key:
                other.seen.add(code.program_hash)
                other.best_s = min(other.best_s, measurement.seconds)
        return Measured(code.program_hash, measurement)

    def _possible(self, kernel: Kernel, found: Measurement) -> Measurement:
        """The same; wrong where no program is as fast as that, whatever its outputs were.

        The machine's peaks are measured once more before that is said.
        """
        slow_s = max(
            kernel.unique_bytes / _SLOWEST_BYTES_PER_S, kernel.flops / _SLOWEST_FLOPS_PER_S
        )
        if not found.ran or found.seconds >= slow_s:
            return found
        for again in (False, True):
            peaks = self.device.machine_limits(again)
            why = Roofline(peaks, self.device.device.target).refusal(kernel, found.seconds)
            if not why:
                return found
        return replace(found, status=Status.WRONG, samples_s=(), reference_samples_s=(), error=why)

    # ---- code

    def _compile(
        self, candidates: Sequence[Candidate], known: Collection[str]
    ) -> list[CompiledCandidate | Measured]:
        with self._costs.part("waiting") as window, self._interrupt.breakable():
            made = self.device.compile(candidates, known)
        self._charge_compiling(window, made)
        return self._late_again(candidates, made, _is_default)

    def _late_again(
        self,
        candidates: Sequence[Candidate],
        made: Sequence[CompiledCandidate | Measured],
        awaited: Callable[[Candidate], bool],
    ) -> list[CompiledCandidate | Measured]:
        """The same, with the ``awaited`` ones that could not be compiled in time compiled once
        more, in ``_PATIENT`` times as much. Nothing can win that did not meet a default.
        """
        found = list(made)
        late = [
            at
            for at, (c, code) in enumerate(zip(candidates, made, strict=True))
            if isinstance(code, Measured) and code.measurement.uncompiled and awaited(c)
        ]
        if late:
            calls = [candidates[at] for at in late]
            limit_s = _PATIENT * self.device.limits.compile_s
            with self._costs.part("waiting") as window, self._interrupt.breakable():
                again = self.device.compile(calls, (), limit_s)
            self._charge_compiling(window, again)
            for at, code in zip(late, again, strict=True):
                found[at] = code
        return found

    def _charge_compiling(
        self, window: Window, made: Sequence[CompiledCandidate | Measured]
    ) -> None:
        """Charge what the compile workers did, as far as it was waited for."""
        took = [m.measurement if isinstance(m, Measured) else m for m in made]
        window.divide(compiling([(t.lower_s, t.compile_s) for t in took], usable_cores()))

    def _charge(self, window: Window, key: str, measurement: Measurement) -> None:
        """Charge what the bench and the referee did; a kernel's first time draws inputs."""
        window.divide({"timing": measurement.timing_s, "verifying": measurement.verify_s})
        if key not in self._referenced:
            self._referenced.add(key)
            window.divide({"verifying": window.seconds})

    def _candidate(self, kernel: Kernel, schedule: Schedule) -> Candidate:
        return Candidate(kernel.key, Payload(kernel, schedule.text, self.device.device))

    def _keep(self, name: tuple[str, str], code: CompiledCandidate) -> None:
        """Code of what may be raced; the oldest goes first."""
        self._near[name] = code
        while len(self._near) > _KEPT:
            self._near.popitem(last=False)

    def _limited(self, best_s: float) -> Policy:
        limit_s = min(self.policy.timeout_s, max(_TIMEOUT_S, _TIMEOUT_FACTOR * best_s))
        return replace(self.policy, timeout_s=limit_s)


def _is_default(candidate: Candidate) -> bool:
    """True for a candidate with the schedule of a default of its kernel."""
    payload = candidate.payload
    if not isinstance(payload, Payload):
        return False
    defaults = Space(payload.kernel, payload.device.target).defaults()
    return payload.actions in {s.text for s in defaults}


def _actions(candidate: Candidate) -> str:
    """The text of its schedule; empty where it came lowered."""
    payload = candidate.payload
    return payload.actions if isinstance(payload, Payload) else ""


@dataclass(frozen=True, slots=True)
class Executor:
    """The place where candidates are measured.

    ``here`` is the fingerprint of the machines that measure, and of every row.

    ``policy`` is how they time. ``in_flight`` says how many proposals to keep unanswered with
    batches of so many. ``bench`` runs whole models, on one of those machines. ``close`` stops every
    worker; calling it again does nothing.
    """

    target: Target
    here: Fingerprint
    policy: Policy
    measurer: SessionMeasurer
    bench: models.ModelBench
    machine_limits: Callable[[], MachineLimits]
    close: Callable[[], None]
    in_flight: Callable[[int], int]
    machines: int = 1


@contextmanager
def open_executor(
    settings: TuneSettings,
    policy_of: Callable[[Target], Policy],
    limits: Limits,
    hooks: Hooks,
    interrupt: Interrupt,
    costs: Costs,
    warn: Callable[[str], None],
) -> Iterator[Executor]:
    """The executor that the settings name, closed however this ends.

    Raises UserError where there is none, or it can not be used; ``warn`` is told what is
    left out or lost.
    """
    if settings.ray is None:
        device = devices.running(settings.device, settings.threads)
        here = device.fingerprint(settings.numerics)
        with DeviceMeasurer(device, hooks, limits, settings.seed) as workers:
            policy = policy_of(device.target)
            measurer = CandidateMeasurer(workers, policy, interrupt, costs)
            with _bench_on(workers, measurer, limits, interrupt) as bench:
                yield Executor(
                    device.target,
                    here,
                    policy,
                    measurer,
                    bench,
                    workers.machine_limits,
                    workers.close,
                    lambda batch: batch + 1,  # one is under way, the next one was asked for
                )
        return
    from . import fleet as ray_fleet
    from .fleet.cluster import RayCluster

    with RayCluster(settings.ray, settings.device, settings.threads, settings.numerics) as cluster:
        crew = cluster.crew(settings.ray_kind)
        for line in crew.left_out:
            warn(f"left out: {line}")
        policy = policy_of(crew.device.target)
        engine = ray_fleet.EngineSpec(
            "tunegrad.tuning.fleet:DeviceEngine",
            (crew.device, settings.numerics, policy, limits, settings.seed, hooks),
        )
        dispatcher = ray_fleet.Dispatcher(
            cluster.open(crew, engine, warn), crew.fingerprint, time.monotonic, warn
        )
        count = len(crew.measuring)
        fleet = ray_fleet.FleetMeasurer(
            dispatcher, ray_fleet.job_size(count), limits, policy, interrupt, costs
        )
        # With one machine, and the search on it, asking must not disturb what is timed.
        alone = count == 1 and cluster.is_here(crew.measuring[0])
        ahead = 1 if alone else ray_fleet.in_flight(count)
        yield Executor(
            crew.device.target,
            crew.fingerprint,
            policy,
            fleet,
            ray_fleet.FleetBench(dispatcher, interrupt),
            fleet.machine_limits,
            cluster.close,
            lambda _: ahead,
            count,
        )


def _bench_on(
    workers: DeviceMeasurer, measurer: CandidateMeasurer, limits: Limits, interrupt: Interrupt
) -> closing[models.LocalBench]:
    """A bench whose code and expectations the compile workers of a device compute."""
    return closing(
        models.LocalBench(
            workers.device, measurer.code, partial(models.expected_of, workers), limits, interrupt
        )
    )
