"""Landlock, the kernel's way to let a process give up files and sockets for good, without being
root.

A rule set names what is handled (all kinds of access that this kernel knows) and what is still
allowed (nothing, or reading). It holds for the thread that asks and for those that it starts
afterwards. See ``landlock(7)``.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

from tunegrad.devices.processes.syscalls import AUDIT, number

__all__ = ["give_up_files", "version"]

_VERSION_FLAG = 1
_PATH_BENEATH = 1
_EXECUTE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 2, 1 << 3
_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Kinds of access to files by version: 2 adds moving between folders, 3 truncating, 5 the
control of devices.
"""
_NETWORK = 3
"""Binding and connecting TCP sockets, from version 4 on."""
_SCOPES = 3
"""Abstract Unix sockets and signals of processes outside, from version 6 on."""


def version() -> int:
    """Of this kernel's Landlock; 0 where it has none, or it is switched off."""
    return max(0, _call("landlock_create_ruleset", None, 0, _VERSION_FLAG))


def give_up_files(reads: bool) -> bool:
    """Let this thread, and what it starts, open no file any more, or, with ``reads``, read and map
    them only.

    From version 4 on it also takes TCP, from 6 on signals to processes outside. What is open stays
    open. False where the kernel refuses; privileges have to be given up before.
    """
    known = version()
    if not known:
        return False
    attributes = struct.pack("Q", _FILES[min(known, 5)])
    attributes += struct.pack("Q", _NETWORK) if known >= 4 else b""
    attributes += struct.pack("Q", _SCOPES) if known >= 6 else b""
    rules = _call("landlock_create_ruleset", attributes, len(attributes), 0)
    if rules < 0:
        return False
    try:
        if reads and not _allow_reading(rules):
            return False
        return _call("landlock_restrict_self", rules, 0) == 0
    finally:
        os.close(rules)


def _allow_reading(rules: int) -> bool:
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        beneath = struct.pack("=Qi", _EXECUTE | _READ_FILE | _READ_DIRECTORY, root)
        return _call("landlock_add_rule", rules, _PATH_BENEATH, beneath, 0) == 0
    finally:
        os.close(root)


def _call(name: str, *arguments: bytes | int | None) -> int:
    """The kernel's answer; below zero where it refuses, or has no such call."""
    machine = platform.machine()
    call = number(machine, name) if machine in AUDIT else None
    if call is None:
        return -1
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    words = [ctypes.c_long(a) if isinstance(a, int) else ctypes.c_char_p(a) for a in arguments]
    return int(libc.syscall(ctypes.c_long(call), *words))
