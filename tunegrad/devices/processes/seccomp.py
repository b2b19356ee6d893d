"""The filter of system calls that a confined process has: calls that are allowed, refused, or end
it.

    allowed        memory, time, futexes, signals to itself, threads, descriptors that are
                   open already
    deadly         SIGSYS: other processes, programs, files to write, sockets, the machine's state
    anything else  EPERM (opening a file to read: EACCES; calls that pass their flags in
                   memory: ENOSYS)

A filter is a list of classic BPF instructions, read from the top; it holds for every thread, and
can not be taken off. See ``seccomp(2)``.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Iterator

from tunegrad.devices.processes.syscalls import ALLOWED, AUDIT, DEADLY, READING, number

__all__ = ["filter_calls", "no_new_privileges", "rules"]

Instruction = tuple[int, int, int, int]
"""Operation, how many instructions to skip where a test holds, and where it does not, operand."""

_LOAD, _EQUAL, _ANY_BIT, _ANSWER = 0x20, 0x15, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _EAGAIN, _EACCES, _ENOSYS = 1, 11, 13, 38

_X32 = 0x40000000
"""The bit of a call's number that makes it one of x32, which has the architecture of x86_64; no
other call has it.
"""
_CLONE_THREAD = 0x00010000
_WRITES = (
    os.O_WRONLY
    | os.O_RDWR
    | os.O_CREAT
    | os.O_TRUNC
    | os.O_APPEND
    | (os.O_TMPFILE & ~os.O_DIRECTORY)
)
_MAP_ANONYMOUS = 0x20

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _ALL_THREADS = 1, 1


def filter_calls(reads: bool, threads: bool, channel: int) -> bool:
    """Filter the system calls of every thread from now on; whether the system agreed.

    ``reads``: files may be opened and mapped for reading. ``threads``: further ones may be started.
    ``channel``: the one socket that may be used.
    """
    machine = platform.machine()
    if machine not in AUDIT or not no_new_privileges():
        return False
    program = rules(machine, os.getpid(), reads, threads, channel)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    )
    libc = ctypes.CDLL(None)
    libc.syscall.restype = ctypes.c_long
    call = number(machine, "seccomp")
    done = libc.syscall(
        ctypes.c_long(call or 0),
        ctypes.c_ulong(_SET_MODE_FILTER),
        ctypes.c_ulong(_ALL_THREADS),
        header,
    )
    return bool(done == 0)


def no_new_privileges() -> bool:
    """No program that this process starts gets rights that this process lacks; whether the system
    agreed.
    """
    return bool(ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)


def rules(machine: str, pid: int, reads: bool, threads: bool, channel: int) -> list[Instruction]:
    """The filter of process ``pid``.

    Calls of another architecture (32-bit ones, x32) end the process, too.
    """
    allowed = (*ALLOWED, *READING) if reads else tuple(name for name in ALLOWED if name != "mmap")
    opening = (_REFUSE | _EACCES, _ALLOW) if reads else (_KILL, _REFUSE | _EACCES)
    return [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, 1, 0, AUDIT[machine]),
        (_ANSWER, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_ANY_BIT, 0, 1, _X32),
        (_ANSWER, 0, 0, _KILL),
        *_each(machine, allowed, _ALLOW),
        *_each(machine, DEADLY, _KILL),
        *_each(
            machine, ("clone3", "openat2"), _REFUSE | _ENOSYS
        ),  # flags in memory; libc then takes clone and openat
        *_where(
            machine,
            "clone",
            0,
            (_ANY_BIT, _CLONE_THREAD),
            _ALLOW if threads else _REFUSE | _EAGAIN,
            _KILL,
        ),
        *_where(machine, "kill", 0, (_EQUAL, pid), _ALLOW, _KILL),
        *_where(machine, "tgkill", 0, (_EQUAL, pid), _ALLOW, _KILL),
        *_where(machine, "open", 1, (_ANY_BIT, _WRITES), *opening),
        *_where(machine, "openat", 2, (_ANY_BIT, _WRITES), *opening),
        *_where(machine, "sendto", 0, (_EQUAL, channel), _ALLOW, _KILL),
        *_where(machine, "recvfrom", 0, (_EQUAL, channel), _ALLOW, _KILL),
        *_where(machine, "sched_setaffinity", 0, (_EQUAL, 0), _ALLOW, _REFUSE | _EPERM),
        *_where(machine, "mmap", 3, (_ANY_BIT, _MAP_ANONYMOUS), _ALLOW, _REFUSE | _EACCES),
        (_ANSWER, 0, 0, _REFUSE | _EPERM),
    ]


def _each(machine: str, names: Iterable[str], answer: int) -> Iterator[Instruction]:
    """One answer to each of these calls, as far as the machine has them."""
    for name in names:
        call = number(machine, name)
        if call is not None:
            yield (_EQUAL, 0, 1, call)
            yield (_ANSWER, 0, 0, answer)


def _where(
    machine: str, name: str, argument: int, test: tuple[int, int], holds: int, fails: int
) -> Iterator[Instruction]:
    """The answer to a call follows from the low half of one argument."""
    call = number(machine, name)
    if call is not None:
        yield (_EQUAL, 0, 4, call)
        yield (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument)
        yield (test[0], 0, 1, test[1])
        yield (_ANSWER, 0, 0, holds)
        yield (_ANSWER, 0, 0, fails)
