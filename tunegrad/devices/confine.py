"""What a worker process is kept from: outliving its parent, too much memory, output, files, and processes of its own.

Candidates are generated code that may be wrong in any way. Where the system refuses one of these limits the others
still hold, and the caller is not told: a worker without it measures as well.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import resource
import signal
import struct
import threading
import time
from collections.abc import Sequence
from multiprocessing import connection
from pathlib import Path

__all__ = [
    "EXIT_MEMORY", "limit_address_space", "memory_bytes", "no_files", "no_processes", "obey_parent", "physical_bytes",
    "silence", "watch_memory",
]  # fmt: skip

EXIT_MEMORY = 75
_PAGE = resource.getpagesize()
_WATCH_S = 0.05

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000
"""The bit of a call's number that makes it one of x32, which has the architecture of x86_64; no other call has it."""
_CALLS = {
    "x86_64": {"arch": 0xC000003E, "seccomp": 317, "clone": 56, "fork": 57, "vfork": 58, "clone3": 435},
    "aarch64": {"arch": 0xC00000B7, "seccomp": 277, "clone": 220, "clone3": 435},
}
"""Audit architecture and system call numbers, from the kernel's ``audit.h`` and ``unistd.h``."""


def obey_parent() -> None:
    """No orphans, whatever the parent dies of; Ctrl-C is the parent's to handle; SIGTERM ends native loops too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parent = multiprocessing.parent_process()
    if parent is not None:
        _daemon(_die_with, [parent.sentinel])


def silence(*descriptors: int) -> None:
    """Send what is written to these (1: stdout, 2: stderr) nowhere: candidates have the whole of libc."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def no_files() -> None:
    """No byte can be written to a file from now on; pipes are not files."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def no_processes() -> bool:
    """Threads, but no process, can be started from now on, in every thread; whether the system agreed.

    A seccomp filter, read from the top: the jumps skip instructions when the test holds, and when it does not. Calls
    of another architecture (on x86_64: 32-bit ones through ``int 0x80``, and x32) are refused, whatever they ask for.
    """
    calls = _CALLS.get(platform.machine())
    if calls is None:
        return False
    load, equal, bits, answer = 0x20, 0x15, 0x45, 0x06
    program = [
        (load, 0, 0, 4),  # the architecture
        (equal, 1, 0, calls["arch"]),
        (answer, 0, 0, _REFUSE | _EPERM),
        (load, 0, 0, 0),  # the number of the call
        (bits, 0, 1, _X32),
        (answer, 0, 0, _REFUSE | _EPERM),
        (equal, 0, 1, calls["clone3"]),
        (answer, 0, 0, _REFUSE | _ENOSYS),  # its flags are in memory; libc then takes clone
        *((equal, 0, 1, calls[name]) if i == 0 else (answer, 0, 0, _REFUSE | _EPERM)
          for name in ("fork", "vfork") if name in calls for i in (0, 1)),
        (equal, 1, 0, calls["clone"]),
        (answer, 0, 0, _ALLOW),
        (load, 0, 0, 16),  # the flags of clone, low half
        (bits, 0, 1, _CLONE_THREAD),
        (answer, 0, 0, _ALLOW),
        (answer, 0, 0, _REFUSE | _EPERM),
    ]  # fmt: skip
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None)
    libc.syscall.restype = ctypes.c_long
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    filtered = libc.syscall(
        ctypes.c_long(calls["seccomp"]), ctypes.c_ulong(_SET_MODE_FILTER), ctypes.c_ulong(_ALL_THREADS), header
    )
    return bool(filtered == 0)


def watch_memory(limit_bytes: int) -> None:
    """End this process with ``EXIT_MEMORY`` once it holds that much.

    LLVM aborts when an allocation fails, so too much memory is told by an exit code before the hard limit is hit.
    """
    _daemon(_watch, limit_bytes)


def memory_bytes() -> tuple[int, int]:
    """(address space, resident set) of this process."""
    size, resident, *_ = Path("/proc/self/statm").read_text().split()
    return int(size) * _PAGE, int(resident) * _PAGE


def physical_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * _PAGE


def limit_address_space(limit_bytes: int) -> None:
    """Allocations fail beyond this."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


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
