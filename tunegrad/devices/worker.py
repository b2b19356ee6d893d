"""Functions that run inside the compile workers and the bench's process: how they start, and the
calls they answer.

A worker is told everything through its arguments; module state is only what one process keeps
between calls.
"""

from __future__ import annotations

import gc
import logging
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

from tunegrad.devices.bench import Bench
from tunegrad.devices.device import Device
from tunegrad.devices.job import (
    Candidate,
    CompiledCandidate,
    Limits,
    Lowered,
)
from tunegrad.devices.lowered import program_hash
from tunegrad.devices.processes.confine import (
    limit_address_space,
    memory_bytes,
    obey_parent,
    silence,
    watch_memory,
)
from tunegrad.devices.verifying.dataset import load_hook
from tunegrad.devices.verifying.handover import Mapped
from tunegrad.errors import CandidateFailure, InternalError, OutOfResources, WrongResult
from tunegrad.trial import Measured, Measurement, Properties, Status

T = TypeVar("T")

_STDOUT = 1

_COLLECT = 100_000
"""New objects between two collections in a compile worker: lowering makes few cycles."""

_bench: Bench | None = None


def start_compiler(limits: Limits, driver: bool = False) -> None:
    """Initialise a compile worker: dies with its parent, and of too much memory.

    The address space of a ``driver`` is its own affair; what it takes of it is watched.
    """
    obey_parent()
    silence(_STDOUT)
    size, resident = memory_bytes()
    if not driver:
        limit_address_space(size + 2 * limits.compile_memory_bytes)
    watch_memory(resident + limits.compile_memory_bytes)
    gc.freeze()  # what was imported stays
    gc.set_threshold(_COLLECT)


def start_bench(device: Device, limits: Limits, memory: Mapped) -> None:
    """Make this process the bench: it opens the device before it is confined.

    Its memory is limited by address space alone: a watching thread would run on a core that is
    timed.
    """
    global _bench  # noqa: PLW0603  # the one thing this process keeps
    _bench = Bench(device, limits, memory.bytes, watching=True)


def compile_candidate(
    candidate: Candidate,
    device: Device,
    lower: str,
    limits: Limits,
    known: frozenset[str],
) -> CompiledCandidate | Measured:
    """Lower and compile one candidate; its failure, bugs of lowering too, is a Measured."""
    program, lower_s = "", 0.0
    facts: Properties = ()
    start = time.monotonic()
    try:
        lowered = load_hook(lower)(candidate.payload) if lower else candidate.payload
        if not isinstance(lowered, Lowered):
            raise InternalError(
                f"{lower or 'candidate'}: {type(lowered).__name__} is not a Lowered"
            )
        lower_s = time.monotonic() - start
        program = program_hash(lowered)
        image, compile_s = b"", 0.0
        if program not in known:
            if len(lowered.text) > limits.text_bytes:
                raise OutOfResources(
                    f"program of {len(lowered.text)} bytes of text: at most {limits.text_bytes}"
                )
            start = time.monotonic()
            image = device.compile(lowered, killable=True)
            compile_s = time.monotonic() - start
            facts = device.facts(lowered, image)
        return CompiledCandidate(
            image,
            lowered.entry,
            lowered.io,
            lowered.scratch_bytes,
            lowered.geometry,
            program,
            lower_s,
            compile_s,
            facts,
        )
    except MemoryError:
        error, status = (
            f"compiling needs more than {limits.compile_memory_bytes} bytes",
            Status.OUT_OF_RESOURCES,
        )
    except CandidateFailure as failure:
        error, status = str(failure), _status(failure)
    except Exception as bug:  # a bug in one candidate's lowering must cost that candidate only
        logging.getLogger(__name__).exception("lowering failed")
        where = "".join(traceback.format_exception(bug, limit=-3)).strip()
        error, status = f"{type(bug).__name__}: {bug}\n{where}", Status.COMPILE_ERROR
    return Measured(
        program,
        Measurement(status, error=error, lower_s=lower_s, compile_s=time.monotonic() - start),
    )


def counted_code(candidate: Candidate, device: Device, lower: str) -> Properties:
    """Properties from the compiler's listing of a candidate, compiled once more; or ()."""
    try:
        lowered = load_hook(lower)(candidate.payload) if lower else candidate.payload
        found = device.inspect(lowered) if isinstance(lowered, Lowered) else None
    except CandidateFailure:
        return ()
    return () if found is None else found.counted


def on_bench(method: Callable[..., T], *arguments: object) -> T:
    """A method of this process's ``Bench``."""
    if _bench is None:
        raise InternalError("bench: called before it was started")
    return method(_bench, *arguments)


def _status(failure: CandidateFailure) -> Status:
    if isinstance(failure, OutOfResources):
        return Status.OUT_OF_RESOURCES
    return Status.WRONG if isinstance(failure, WrongResult) else Status.COMPILE_ERROR
