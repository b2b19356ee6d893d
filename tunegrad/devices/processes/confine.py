"""Confinement of a worker process: it can not outlive its parent, nor harm anything outside itself.

    process starts --> begin: session, namespaces,   --> it imports, its threads start
                       no file to be written
                   --> Beginning.confine: no file,   --> the first candidate
                       no process, no socket

Candidates are generated code that may be wrong in any way. Where the system refuses one of these
protections the others still hold; ``Protections`` says which there are, and docs/ISOLATION.md what
is left without one.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import connection
from pathlib import Path

from tunegrad.config import machine_bytes
from tunegrad.devices.device import Confinement
from tunegrad.devices.processes import system_calls
from tunegrad.devices.processes.system_calls import filter_calls, no_new_privileges

EXIT_MEMORY = 75
"""The exit code of a process that took too much memory; no other code of ours is that."""
_PAGE = resource.getpagesize()
_WATCH_S = 0.05
"""Seconds between two looks at the memory: time for half a gigabyte of new pages."""
_STDIN, _STDOUT, _STDERR = 0, 1, 2

_PR_SET_PDEATHSIG = 1
_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x40000000
_SHUT = 1 | 2 | 4 | 8
"""Of a mount: read only, no privileged programs, no devices, no programs."""
_PRIVATE = 1 << 18 | 1 << 14
"""Of a mount and those under it: what changes here is seen nowhere else."""
_EMPTY_ROOT = "/sys"
"""A folder that every Linux has and a confined process does not need: an empty root."""
_READING_FILES = 64
"""Descriptors of a process that may read files: what imports and threads of BLAS open."""


@dataclass(frozen=True, slots=True)
class Protections:
    """The protections that a process has. ``landlock`` is the kernel's version of it, 0 without."""

    seccomp: bool
    landlock: int
    user_namespace: bool
    network_namespace: bool
    empty_root: bool
    session: bool


@dataclass(frozen=True, slots=True)
class Beginning:
    """A process cut off from its session, that opens files for reading only, if the kernel can."""

    confinement: Confinement
    channel: int
    nowhere: int
    protections: Protections

    def confine(self) -> Protections:
        """Give up the rest, in every thread, for good.

        What is imported later can not be found any more.
        """
        if self.confinement.driver:
            if self.confinement.memory_bytes:
                watch_memory(
                    memory_bytes()[1] + min(self.confinement.memory_bytes, machine_bytes() // 2)
                )
            for descriptor in (_STDIN, _STDOUT, _STDERR):
                os.dup2(self.nowhere, descriptor)
            return self.protections
        os.environ.pop("TUNEGRAD_PERF_MAP", None)  # a file, which would end this process
        reads = self.confinement.reads
        if self.confinement.memory_bytes:
            limit_address_space(
                memory_bytes()[0] + min(self.confinement.memory_bytes, machine_bytes() // 2)
            )
        for descriptor in (_STDIN, _STDOUT, _STDERR):
            os.dup2(self.nowhere, descriptor)
        os.closerange(self.channel + 1, _most_descriptors())
        empty = (
            not reads
            and not self.protections.landlock
            and self.protections.user_namespace
            and _enter_empty_root()
        )
        if not reads and self.protections.landlock:
            system_calls.give_up_files(reads=False)
        _limit(resource.RLIMIT_FSIZE, 0)
        _limit(resource.RLIMIT_NOFILE, _READING_FILES if reads else self.channel + 1)
        filtered = filter_calls(reads, self.confinement.threads, self.channel)
        if not filtered:
            _limit(resource.RLIMIT_NPROC, 0)
        return replace(self.protections, seccomp=filtered, empty_root=empty)


def begin(confinement: Confinement, channel: int) -> Beginning:
    """Cut this process off, while it has one thread, and close every descriptor above ``channel``.

    It dies with the one that started it, and Ctrl-C is for that one to handle.
    """
    sys.dont_write_bytecode = True
    session = os.getpid() == os.getsid(0) or _quietly(os.setsid)
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere > channel:
        os.closerange(channel + 1, nowhere)
    os.closerange(max(channel, nowhere) + 1, _most_descriptors())
    if confinement.driver:
        _die_with_parent()
        no_new_privileges()
        return Beginning(
            confinement, channel, nowhere, Protections(False, 0, False, False, False, session)
        )
    mounts = 0 if system_calls.landlock_version() else _NEW_MOUNTS
    user = not confinement.reads and _unshare(_NEW_USER | mounts)
    network = user and _unshare(_NEW_NETWORK | _NEW_IPC)
    _die_with_parent()
    known = (
        system_calls.landlock_version()
        if no_new_privileges() and system_calls.give_up_files(reads=True)
        else 0
    )
    return Beginning(
        confinement, channel, nowhere, Protections(False, known, user, network, False, session)
    )


def _die_with_parent() -> None:
    """End this process with its parent, which has Ctrl-C; SIGTERM ends native loops too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _limit(resource.RLIMIT_CORE, 0)


def obey_parent() -> None:
    """No orphans, whatever the parent dies of: for a worker of a pool."""
    _die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None:
        _daemon(_die_with, [parent.sentinel])


def silence(*descriptors: int) -> None:
    """Discard what is written to these (1: stdout, 2: stderr): candidates have all of libc."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def watch_memory(limit_bytes: int) -> None:
    """End this process with ``EXIT_MEMORY`` once it holds that much.

    LLVM aborts when an allocation fails, so too much memory is told by an exit code before the hard
    limit is hit.
    """
    _daemon(_watch, limit_bytes)


def memory_bytes() -> tuple[int, int]:
    """(address space, resident set) of this process."""
    size, resident, *_ = Path("/proc/self/statm").read_text().split()
    return int(size) * _PAGE, int(resident) * _PAGE


def limit_address_space(limit_bytes: int) -> None:
    """Allocations fail beyond this."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


def _limit(what: int, most: int) -> None:
    """Lower a limit of this process, for good."""
    _, hard = resource.getrlimit(what)
    lower = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (lower, lower))


def _most_descriptors() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _unshare(kinds: int) -> bool:
    """Leave namespaces of these kinds for fresh ones; whether the system let us."""
    return bool(ctypes.CDLL(None).unshare(kinds) == 0)


def _enter_empty_root() -> bool:
    """Make an empty, read-only folder the root of this process's files; True if it is now."""
    libc = ctypes.CDLL(None)
    folder = _EMPTY_ROOT.encode()
    return bool(
        libc.mount(b"none", b"/", None, ctypes.c_ulong(_PRIVATE), None) == 0
        and libc.mount(b"none", folder, b"tmpfs", ctypes.c_ulong(_SHUT), None) == 0
        and libc.chroot(folder) == 0
        and libc.chdir(b"/") == 0
    )


def _quietly(change: Callable[[], None]) -> bool:
    try:
        change()
    except OSError:
        return False
    return True


def _die_with(sentinels: Sequence[int]) -> None:
    # PDEATHSIG watches the fork server; this watches the process that owns the search.
    connection.wait(sentinels)
    os.kill(os.getpid(), signal.SIGKILL)


def _watch(limit_bytes: int) -> None:
    while memory_bytes()[1] < limit_bytes:
        time.sleep(_WATCH_S)
    os._exit(EXIT_MEMORY)


def _daemon(function: object, argument: object) -> None:
    threading.Thread(target=function, args=(argument,), daemon=True).start()  # type: ignore[arg-type]
