"""Calls that travel to a machine of the fleet, their answers, and the station that gives them.

    Call("measure", ...)  -->  Station on the machine  -->  Engine  -->  Answer(fingerprint, value)
    Call("models", ...)   -->  the same, so that one of the two runs at a time: its ModelHost

Calls and answers travel by the transport's own serialisation, between processes of one cluster that
trust each other. A hostile candidate does not reach the station: the engine runs it in processes of
its own, which can be killed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

from tunegrad.compiling import HOOKS
from tunegrad.config import Numerics
from tunegrad.devices import Device, DeviceMeasurer, Hooks, Limits, MachineLimits
from tunegrad.devices.verifying import load_hook
from tunegrad.errors import CandidateFailure, InternalError
from tunegrad.ir.kernel import Kernel
from tunegrad.opts import Schedule
from tunegrad.search import Measured
from tunegrad.trial import Fingerprint, Policy
from tunegrad.tuning.executor import CandidateMeasurer
from tunegrad.tuning.models import LocalBench, expected_of

from .host import ModelHost

Method = Literal["hello", "measure", "machine_limits", "models"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a station.

    ``key`` names the kernel, whose inputs a machine keeps once it has made them.

    After ``limit_s`` seconds the machine counts as hung. ``on`` names the only machine that may run
    it, where it names one. A call that cost ``tries`` stations is given up.
    """

    method: Method
    arguments: tuple[Any, ...] = ()
    key: str = ""
    limit_s: float = 60.0
    on: str = ""
    tries: int = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """The value of a call, and the fingerprint of the machine that gave it."""

    fingerprint: Fingerprint
    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """A candidate's failure where the call has no row for it."""

    error: str
    kind: type[CandidateFailure] = CandidateFailure


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine by its factory's name (``package.module:function``) and arguments."""

    factory: str
    arguments: tuple[Any, ...] = field(default=())


class Engine(Protocol):
    """The services of a machine. None of them raises for what a candidate does."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Of this machine, as it is now."""

    def measure(
        self, kernel: Kernel, texts: Sequence[str], best_s: float, known: Collection[str]
    ) -> list[Measured | None]:
        """Compile, verify and time schedules: a result each, in order; None for known programs."""

    def machine_limits(self, again: bool) -> MachineLimits:
        """The machine's measured peaks."""

    def models(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """A method of the machine's ``ModelHost``. Raises CandidateFailure."""

    def close(self) -> None:
        """Stop every process of the engine and wait for it."""


class DeviceEngine:
    """A machine's device."""

    def __init__(
        self,
        device: Device,
        numerics: Numerics,
        policy: Policy,
        limits: Limits,
        seed: int,
        hooks: Hooks = HOOKS,
    ) -> None:
        self._workers = DeviceMeasurer(device, hooks, limits, seed)
        self._measurer = CandidateMeasurer(self._workers, policy)
        evaluate = partial(expected_of, self._workers)
        self._bench = LocalBench(device, self._workers.compile, evaluate, limits)
        self._host = ModelHost(self._bench)
        self.fingerprint = device.fingerprint(numerics)

    def measure(
        self, kernel: Kernel, texts: Sequence[str], best_s: float, known: Collection[str]
    ) -> list[Measured | None]:
        """Compile on all cores, then verify and time each."""
        schedules = [Schedule.parse(text) for text in texts]
        return list(self._measurer.measure(kernel, schedules, best_s, known))

    def machine_limits(self, again: bool) -> MachineLimits:
        """The measured peaks of this machine."""
        return self._workers.machine_limits(again)

    def models(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """A method of the machine's ``ModelHost``. Raises CandidateFailure."""
        match method:
            case "run":
                return self._host.run(*arguments)
            case "compile":
                return self._host.compile(*arguments)
            case "put":
                return self._host.put(*arguments)
            case "expect":
                return self._host.expect(*arguments)
            case "renew":
                return self._host.renew()
        raise InternalError(f"a host of models has no method {method!r}")

    def close(self) -> None:
        """Stop the workers."""
        self._bench.close()
        self._workers.close()


class Station:
    """Answers calls on one machine; runs inside an actor.

    One call at a time, so nothing disturbs what is timed.
    """

    def __init__(self, spec: EngineSpec) -> None:
        factory = load_hook(spec.factory)
        self._engine: Engine = factory(*spec.arguments)

    def call(self, method: Method, arguments: tuple[Any, ...]) -> Answer:
        """Answer one call: see ``answered``."""
        return Answer(self._engine.fingerprint, answered(self._engine, method, arguments))

    def close(self) -> None:
        """Stop the engine."""
        self._engine.close()


def answered(engine: Engine, method: Method, arguments: tuple[Any, ...]) -> Any:
    """Answer a call by an engine; ``Failed`` where it has no row for a candidate's failure.

    Raises InternalError for a method that there is not.
    """
    try:
        match method:
            case "hello":
                return None
            case "measure":
                return engine.measure(*arguments)
            case "machine_limits":
                return engine.machine_limits(*arguments)
            case "models":
                return engine.models(arguments[0], arguments[1:])
    except CandidateFailure as error:
        return Failed(str(error), type(error))
    raise InternalError(f"a station has no method {method!r}")
