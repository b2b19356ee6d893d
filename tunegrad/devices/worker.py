"""What runs inside the worker processes: how they start, how they die with their parent, and the calls they answer.

A worker is told everything through its arguments; module state is only what one process keeps between calls.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import multiprocessing
import os
import resource
import signal
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import connection
from pathlib import Path

from tunegrad.devices.bench import Bench, Reply
from tunegrad.devices.codegen import OptLevel, compile_llvm
from tunegrad.devices.dataset import References, load_hook, make_dataset
from tunegrad.devices.job import Candidate, CompiledCandidate, Hooks, KernelIO, Limits, Lowered, Outcome
from tunegrad.devices.peak import MachineLimits, measure_limits
from tunegrad.errors import CandidateFailure, InternalError, OutOfResources, WrongResult
from tunegrad.ir.target import Target
from tunegrad.trial import Measurement, Policy, Status

__all__ = [
    "EXIT_MEMORY", "compare_pair", "compile_candidate", "machine_limits", "measure", "prepare", "refer", "retire",
    "start_compiler", "start_timer",
]  # fmt: skip

EXIT_MEMORY = 75
_PR_SET_PDEATHSIG = 1
_PAGE = resource.getpagesize()
_WATCH_S = 0.05

_bench: Bench | None = None


def start_compiler(limits: Limits) -> None:
    """Initialise a compile worker: dies with its parent, and of too much memory."""
    _obey_parent()
    size, resident = _memory_bytes()
    _limit_address_space(size + 2 * limits.compile_memory_bytes)
    _daemon(_watch_memory, resident + limits.compile_memory_bytes)


def start_timer(target: Target, hooks: Hooks, limits: Limits, seed: int) -> None:
    """Initialise the timing worker: its thread team, and a limit on what it may allocate."""
    global _bench  # noqa: PLW0603  # the one thing this process keeps
    _obey_parent()
    _bench = Bench(target, hooks, limits, seed)
    _limit_address_space(_memory_bytes()[0] + limits.run_memory_bytes)


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
    candidate: Candidate, pair: tuple[CompiledCandidate, CompiledCandidate], rounds: int, cold: bool
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Interleaved samples of two candidates; None: not prepared."""
    return _workbench().compare(candidate, pair, rounds, cold)


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


def _obey_parent() -> None:
    """No orphans, whatever the parent dies of; Ctrl-C is the parent's to handle; SIGTERM ends native loops too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parent = multiprocessing.parent_process()
    if parent is not None:
        _daemon(_die_with, [parent.sentinel])


def _die_with(sentinels: Sequence[int]) -> None:
    # PDEATHSIG watches the fork server; this watches the process that owns the search.
    connection.wait(sentinels)
    os.kill(os.getpid(), signal.SIGKILL)


def _watch_memory(limit_bytes: int) -> None:
    # LLVM aborts when an allocation fails, so too much memory is told by an exit code before the hard limit is hit.
    while _memory_bytes()[1] < limit_bytes:
        time.sleep(_WATCH_S)
    os._exit(EXIT_MEMORY)


def _memory_bytes() -> tuple[int, int]:
    """(address space, resident set) of this process."""
    size, resident, *_ = Path("/proc/self/statm").read_text().split()
    return int(size) * _PAGE, int(resident) * _PAGE


def _limit_address_space(limit_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


def _daemon(function: object, argument: object) -> None:
    threading.Thread(target=function, args=(argument,), daemon=True).start()  # type: ignore[arg-type]
