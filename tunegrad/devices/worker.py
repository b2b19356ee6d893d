"""What runs inside the worker processes: how they start, how they die with their parent, and the calls they answer.

A worker is told everything through its arguments; module state is only what one process keeps between calls.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import time
import traceback
from dataclasses import replace

from tunegrad.devices.bench import Bench, Reply
from tunegrad.devices.codegen import OptLevel, compile_llvm
from tunegrad.devices.confine import (
    EXIT_MEMORY,
    limit_address_space,
    memory_bytes,
    obey_parent,
    physical_bytes,
    silence,
    watch_memory,
)
from tunegrad.devices.dataset import References, load_hook, make_dataset
from tunegrad.devices.job import Candidate, CompiledCandidate, Hooks, KernelIO, Limits, Lowered, Outcome
from tunegrad.devices.peak import MachineLimits, measure_limits
from tunegrad.errors import CandidateFailure, InternalError, OutOfResources, WrongResult
from tunegrad.ir.target import Target
from tunegrad.trial import Cache, Measurement, Policy, Status

__all__ = [
    "EXIT_MEMORY", "compare_pair", "compile_candidate", "machine_limits", "measure", "prepare", "refer", "retire",
    "start_compiler", "start_timer",
]  # fmt: skip

_STDOUT, _STDERR = 1, 2

_COLLECT = 100_000
"""New objects between two collections in a compile worker: lowering makes many, and hardly any cycle."""

_bench: Bench | None = None


def start_compiler(limits: Limits) -> None:
    """Initialise a compile worker: dies with its parent, and of too much memory."""
    obey_parent()
    silence(_STDOUT)
    size, resident = memory_bytes()
    limit_address_space(size + 2 * limits.compile_memory_bytes)
    watch_memory(resident + limits.compile_memory_bytes)
    gc.freeze()  # what was imported stays
    gc.set_threshold(_COLLECT)


def start_timer(target: Target, hooks: Hooks, limits: Limits, seed: int) -> None:
    """Initialise the timing worker: its thread team, and what candidates may not do.

    Its memory is limited by address space alone: a watching thread would run on a core that is timed.
    """
    global _bench  # noqa: PLW0603  # the one thing this process keeps
    obey_parent()
    _bench = Bench(target, hooks, limits, seed)
    _bench.tell_writers()
    limit_address_space(memory_bytes()[0] + min(limits.run_memory_bytes, physical_bytes() // 2))
    silence(_STDOUT, _STDERR)


def compile_candidate(
    candidate: Candidate,
    target: Target,
    lower: str,
    opt_level: OptLevel,
    limits: Limits,
    known: frozenset[str],
) -> CompiledCandidate | Outcome:
    """Lower and compile one candidate; its failure comes back as an Outcome, also where lowering has a bug."""
    program_hash, lower_s = "", 0.0
    start = time.monotonic()
    try:
        lowered = load_hook(lower)(candidate.payload) if lower else candidate.payload
        if not isinstance(lowered, Lowered):
            raise InternalError(f"{lower or 'candidate'}: {type(lowered).__name__} is no Lowered")
        lower_s = time.monotonic() - start
        program_hash = _program_hash(lowered)
        image, compile_s = b"", 0.0
        if program_hash not in known:
            if len(lowered.text) > limits.text_bytes:
                raise OutOfResources(f"program of {len(lowered.text)} bytes of IR: at most {limits.text_bytes}")
            start = time.monotonic()
            image = compile_llvm(lowered.text, target, opt_level)
            compile_s = time.monotonic() - start
        return CompiledCandidate(
            image, lowered.name, lowered.io, lowered.workspace_bytes, lowered.threads, program_hash, lower_s, compile_s
        )
    except MemoryError:
        error, status = f"compiling needs more than {limits.compile_memory_bytes} bytes", Status.OUT_OF_RESOURCES
    except CandidateFailure as failure:
        error, status = str(failure), _status(failure)
    except Exception as bug:  # a bug in one candidate's lowering must cost that candidate only
        logging.getLogger(__name__).exception("lowering failed")
        where = "".join(traceback.format_exception(bug, limit=-3)).strip()
        error, status = f"{type(bug).__name__}: {bug}\n{where}", Status.COMPILE_ERROR
    return Outcome(program_hash, Measurement(status, error=error, lower_s=lower_s, compile_s=time.monotonic() - start))


def refer(candidate: Candidate, io: KernelIO, hooks: Hooks, limits: Limits, seed: int) -> References:
    """A kernel's references, in a compile worker: the timing worker then only draws the inputs."""
    return make_dataset(candidate, io, hooks, limits, seed, None).references


def prepare(candidate: Candidate, io: KernelIO, known: References | None) -> References:
    """Make a kernel's inputs and references in this worker."""
    return _workbench().prepare(candidate, io, known)


def measure(candidate: Candidate, compiled: CompiledCandidate, policy: Policy, best_s: float) -> Reply:
    """Verify and time one candidate."""
    try:
        return _workbench().measure(candidate, compiled, policy, best_s)
    except MemoryError as error:
        short = Measurement(Status.OUT_OF_RESOURCES, error=f"memory: {error}", lower_s=compiled.lower_s)
        return Reply(replace(short, compile_s=compiled.compile_s))


def compare_pair(
    candidate: Candidate, pair: tuple[CompiledCandidate, CompiledCandidate], rounds: int, cache: Cache
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Interleaved samples of two candidates; None: not prepared."""
    return _workbench().compare(candidate, pair, rounds, cache)


def machine_limits(target: Target) -> MachineLimits:
    """Measure the machine's peaks on this worker's team."""
    return measure_limits(target, _workbench().team)


def retire() -> None:
    """End this worker, whose memory is not trusted; the pool starts another."""
    os._exit(0x4D)


def _workbench() -> Bench:
    if _bench is None:
        raise InternalError("timing worker: called before it was started")
    return _bench


def _program_hash(lowered: Lowered) -> str:
    text = f"{lowered.name} {lowered.workspace_bytes} {lowered.threads} {lowered.io.packs}\n{lowered.text}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _status(failure: CandidateFailure) -> Status:
    if isinstance(failure, OutOfResources):
        return Status.OUT_OF_RESOURCES
    return Status.WRONG if isinstance(failure, WrongResult) else Status.COMPILE_ERROR
