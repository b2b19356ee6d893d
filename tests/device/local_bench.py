"""A bench and a referee in this process, for tests that look inside: what they answer goes through
the same types.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np

from tunegrad.devices import host_device, worker
from tunegrad.devices.bench import Bench
from tunegrad.devices.examine import Examination, Result, Rights
from tunegrad.devices.job import Candidate, CompiledCandidate, Hooks, KernelIO, Limits
from tunegrad.devices.processes.channel import Ending, Finished
from tunegrad.devices.verifying import referee
from tunegrad.devices.verifying.referee import Referee
from tunegrad.trial import Measurement, Policy


class LocalBench:
    """Use it as a context manager: at its end the team is gone, and this process runs on all its
    cores again.
    """

    def __init__(
        self, reference: str, limits: Limits | None = None, memory_bytes: int = 1 << 20
    ) -> None:
        self.limits = limits or Limits()
        self._cpus = os.sched_getaffinity(0)
        self.rights = Rights()
        memory = np.zeros(memory_bytes, np.uint8)
        self.bench = Bench(host_device(2), self.limits, memory)
        self.referee = Referee(
            Hooks(reference=reference), self.limits, 0, self.bench.engine.team, memory
        )

    def call(
        self, function: Callable[..., Any], *arguments: object, limit_s: float, reply_type: Any
    ) -> Ending:
        """``IsolatedWorker.call``, here."""
        worker._bench, referee._referee = self.bench, self.referee
        try:
            answer = msgspec.msgpack.encode(function(*arguments))
        finally:
            worker._bench, referee._referee = None, None
        return Finished(msgspec.msgpack.decode(answer, type=reply_type))

    def prepare(self, candidate: Candidate, io: KernelIO) -> None:
        self.bench.prepare(candidate.kernel_key, self.referee.prepare(candidate, io))

    def examine(
        self,
        candidate: Candidate,
        code: CompiledCandidate,
        policy: Policy,
        best_s: float = float("inf"),
    ) -> object:
        return Examination(
            self, self, self.limits, candidate.kernel_key, code, policy, best_s, None, self.rights
        ).run()

    def measure(
        self,
        candidate: Candidate,
        code: CompiledCandidate,
        policy: Policy,
        best_s: float = float("inf"),
    ) -> Measurement:
        found = self.examine(candidate, code, policy, best_s)
        assert isinstance(found, Result), found
        return found.measurement

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.bench.release()
        self.bench.engine.close()
        os.sched_setaffinity(0, self._cpus)
