"""One call of a measurer: schedules of a kernel that compile together and are timed one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tunegrad.devices import CompiledCandidate, Compiling, Outcome
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule
from tunegrad.search import Measured
from tunegrad.trial import Measurement

__all__ = ["Batch", "BatchMaker", "Making"]


@dataclass(frozen=True, slots=True)
class Making:
    """The code of a batch of a kernel: what is ready by text, and what compiles."""

    kernel: Kernel
    ready: dict[str, CompiledCandidate | Outcome]
    fresh: list[Schedule]
    compiling: Compiling


class BatchMaker(Protocol):
    """The part of a measurer that its batches need."""

    def begin(
        self, kernel: Kernel, schedules: Sequence[Schedule], known: Collection[str]
    ) -> Making:
        """Compile in the background what is not there; programs that are known are left out."""

    def made(self, making: Making) -> dict[str, CompiledCandidate | Outcome]:
        """The code of a batch by text, waited for."""

    def timed(
        self, kernel: Kernel, schedule: Schedule, code: CompiledCandidate, best_s: float
    ) -> Measurement:
        """Verify and time one candidate; every batch of its kernel learns of it."""

    def leave(self, batch: Batch) -> None:
        """A batch is over, or given up."""

    def go_on(self) -> None:
        """Let the batch that is read next compile."""


class Batch:
    """The results of one call of ``measure``, in order. Mutable: what was read is gone.

        begun --start--> compiling --first result--> timed, one after the other
                                                       --last result--> the next one starts

    A batch that is closed starts nothing, since those behind it are given up with it; one that is
    read all the same compiles then.
    """

    def __init__(
        self,
        maker: BatchMaker,
        kernel: Kernel,
        schedules: Sequence[Schedule],
        best_s: float,
        known: Collection[str],
    ) -> None:
        self._maker, self._kernel, self._schedules = maker, kernel, tuple(schedules)
        self._best_s, self._seen = best_s, set(known)
        self._making: Making | None = None
        self._left: deque[tuple[Schedule, CompiledCandidate | Outcome]] | None = None

    def __iter__(self) -> Iterator[Measured | None]:
        return self

    def __next__(self) -> Measured | None:
        try:
            left = self._compiled()
            if not left:
                raise StopIteration
            found = self._result(*left.popleft())
        except BaseException:
            self.close()
            raise
        if not left:
            self._maker.leave(self)
            self._maker.go_on()
        return found

    def start(self) -> Making:
        """Compile in the background, unless it does already."""
        if self._making is None:
            self._making = self._maker.begin(self._kernel, self._schedules, self._seen)
        return self._making

    def learn(self, key: str, program: str, seconds: float) -> None:
        """A program of a kernel was measured since this batch was begun."""
        if key == self._kernel.key:
            self._seen.add(program)
            self._best_s = min(self._best_s, seconds)

    def close(self) -> None:
        """Give up what was not read; nothing of it goes on compiling."""
        self._maker.leave(self)
        if self._making is not None and self._left is None:
            self._making.compiling.close()
        self._left = deque()

    def _compiled(self) -> deque[tuple[Schedule, CompiledCandidate | Outcome]]:
        """Candidates that are left to read, once all of the batch has compiled."""
        if self._left is None:
            code = self._maker.made(self.start())
            self._left = deque((s, code[s.text]) for s in self._schedules)
        return self._left

    def _result(self, schedule: Schedule, code: CompiledCandidate | Outcome) -> Measured | None:
        if isinstance(code, Outcome):
            return Measured(code.program_hash, code.measurement)
        if code.program_hash in self._seen:
            return None
        measurement = self._maker.timed(self._kernel, schedule, code, self._best_s)
        return Measured(code.program_hash, measurement)
