"""A fleet as a search sees it: batches are handed out at the call, and read in the order of the
calls.

    schedules of    --> jobs of a few --> the dispatcher --> results, in order;
    one kernel                                               programs that repeat are left out

A job that costs several machines is tried schedule by schedule; a schedule that does it alone costs
one row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from tunegrad.devices import Limits, MachineLimits
from tunegrad.errors import DeviceError
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule
from tunegrad.search import Measured, Results
from tunegrad.trial import Measurement, Policy, Properties, Status
from tunegrad.tuning.budget import Costs
from tunegrad.tuning.interrupt import Interrupt

from .dispatch import Dispatcher, Job, JobLost
from .work import Call

_MOST_JOB = 8
_LEAST_JOB = 4
_ENOUGH = 64
_AHEAD = 2
_LIMITS_S = 120.0


def job_size(machines: int) -> int:
    """Schedules that travel together: eight where machines are few, four for 16 or more."""
    return max(_LEAST_JOB, min(_MOST_JOB, _ENOUGH // machines))


def in_flight(machines: int) -> int:
    """Proposals to keep unanswered: every machine has a job at work and one waiting."""
    return _AHEAD * machines * job_size(machines)


class FleetMeasurer:
    """``search.Measurer`` on many machines."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        job: int,
        limits: Limits,
        policy: Policy,
        interrupt: Interrupt | None = None,
        costs: Costs | None = None,
    ) -> None:
        self._dispatcher, self._size, self._limits, self._policy = dispatcher, job, limits, policy
        self._interrupt, self._costs = interrupt or Interrupt(), costs or Costs()

    def prime(self, work: Sequence[tuple[Kernel, Schedule]]) -> None:
        """Nothing: a machine compiles what it measures."""

    def stand(self, work: Sequence[tuple[Kernel, Schedule, float]]) -> None:
        """Nothing: each machine times beside what it measured first itself."""

    def counted_code(self, work: Sequence[tuple[Kernel, Schedule]]) -> list[Properties]:
        """Nothing: listings are read where candidates are compiled, and stay there."""
        return [()] * len(work)

    def wait_idle(self) -> None:
        """Nothing: the batches of a fleet are measured by its machines."""

    def measure(
        self, kernel: Kernel, schedules: Sequence[Schedule], best_s: float, known: Collection[str]
    ) -> _Results:
        """Begin now; a result per schedule, in order, None where the program is known."""
        programs = frozenset(known)
        parts = [schedules[i : i + self._size] for i in range(0, len(schedules), self._size)]
        jobs = [self._submit(kernel, [s.text for s in part], best_s, programs) for part in parts]
        return _Results(self, jobs, programs)

    def machine_limits(self, again: bool = False) -> MachineLimits:
        """The measured peaks of one of the machines; they are all of one kind.

        Raises DeviceError.
        """
        job = self._dispatcher.submit(Call("machine_limits", (again,), limit_s=_LIMITS_S))
        try:
            with self._interrupt.breakable():
                found: MachineLimits = self._dispatcher.answer(job)
        except JobLost as error:
            raise DeviceError(f"the machines' peaks could not be measured: {error}") from error
        finally:
            self._dispatcher.drop(job)
        return found

    def answers(self, job: Job) -> list[Measured | None]:
        """The results of one job, waited for. Raises JobLost."""
        with self._costs.part("waiting"), self._interrupt.breakable():
            found: list[Measured | None] = self._dispatcher.answer(job)
        return found

    def singly(self, job: Job) -> list[Job]:
        """Begin the schedules of a job that was lost, each alone."""
        kernel, texts, best_s, known = job.call.arguments
        return [self._submit(kernel, [text], best_s, known) for text in texts]

    def collect(self) -> None:
        """Take the answers that are there, without waiting."""
        self._dispatcher.collect()

    def drop(self, job: Job) -> None:
        """Drop a job whose results are not needed any more."""
        self._dispatcher.drop(job)

    def _submit(
        self, kernel: Kernel, texts: list[str], best_s: float, known: frozenset[str]
    ) -> Job:
        each_s = self._limits.compile_s + self._policy.timeout_s + 1.0
        limit_s = self._limits.worker_start_s + self._limits.reference_s + each_s * len(texts)
        arguments = (kernel, texts, best_s, known)
        return self._dispatcher.submit(Call("measure", arguments, kernel.key, limit_s))


class _Results(Results):
    """The results of one batch, in order. Mutable: what was read is gone."""

    at_once = True

    def __init__(self, fleet: FleetMeasurer, jobs: Sequence[Job], known: frozenset[str]) -> None:
        super().__init__(())
        self._fleet, self._jobs, self._seen = fleet, deque(jobs), set(known)
        self._ready: deque[Measured | None] = deque()

    def wait(self) -> None:
        """Return once every result is there.

        A job that cost several machines is tried schedule by schedule.
        """
        while self._jobs:
            job = self._jobs[0]
            try:
                found = self._fleet.answers(job)
            except JobLost as error:
                if len(_texts(job)) > 1:
                    self._jobs.popleft()
                    self._jobs.extendleft(reversed(self._fleet.singly(job)))
                    continue
                lost = f"{len(job.losses)} machines were lost over it: {error}"
                found = [Measured("", Measurement(Status.CRASHED, error=lost))]
            self._ready.extend(found)
            self._jobs.popleft()

    def arrived(self) -> tuple[Measured | None, ...]:
        """Results that can be read without waiting, in order; None for those not there."""
        self._fleet.collect()
        found = list(self._ready)
        for job in self._jobs:
            found += job.answer.value if job.answer is not None else [None] * len(_texts(job))
        return tuple(found)

    def __next__(self) -> Measured | None:
        if not self._ready:
            self.wait()
        if not self._ready:
            raise StopIteration
        found = self._ready.popleft()
        if found is None or (found.program_hash and found.program_hash in self._seen):
            return None
        self._seen.add(found.program_hash)
        return found

    def close(self) -> None:
        """Give up what was not read."""
        for job in self._jobs:
            self._fleet.drop(job)
        self._jobs.clear()
        self._ready.clear()


def _texts(job: Job) -> Sequence[str]:
    _, texts, _, _ = job.call.arguments
    found: Sequence[str] = texts
    return found
