"""Guard of read-only buffers: a kernel that writes to one is stopped at once, and the exit code
says which buffer it was.

    buffers in read-only pages
        a store to one of them --> SIGSEGV --> the handler looks its address up
                                           --> _exit(EXIT_WROTE + its place in the table)
        any other bad access   --> SIGSEGV, as without a handler

The handler is native code: what faults is generated code, on any thread of the team, and Python can
not run there.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.ir_text import Functions, Value, Writer
from tunegrad.devices.host.loader import Library
from tunegrad.devices.job import EXIT_WROTE, MOST_TOLD
from tunegrad.errors import InternalError

_SA_SIGINFO = 4
_FAULT_ADDRESS = 16
"""Offset of the address in a ``siginfo_t`` of a 64-bit Linux."""

_handler = Functions()


# The table: how many entries, then (start, end) of each; 0, 0 of those that may be written.
@_handler.define("void @tg_guard(ptr %table)")
def _(f: Writer, table: Value) -> None:
    f.store(table, f.constant("ptr", "@table"))


@_handler.define("void @tg_fault(i32 %signal, ptr %info, ptr %context)")
def _(f: Writer, number: Value, info: Value, _context: Value) -> None:
    address = f.load("i64", f.field(info, _FAULT_ADDRESS))
    table, null = f.load("ptr", f.constant("ptr", "@table")), f.constant("ptr", "null")
    with f.when(table.differs("null")), f.range(0, f.load("i64", table)) as i:
        start, end = (f.load("i64", f.element("i64", table, i * 2 + k)) for k in (1, 2))
        with f.when((address >= start) & (address < end)):
            told = f.call("i64", "llvm.umin.i64", i, f.constant("i64", MOST_TOLD - 1))
            f.call("void", "_exit", f.cast("trunc", told + EXIT_WROTE, "i32"))
    # What the signal does without a handler: the access is tried again, and ends the process.
    f.call("ptr", "signal", number, null)


class _Action(ctypes.Structure):
    """libc's ``struct sigaction`` on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_byte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class ReadOnly:
    """The handler of this process.

    One per process, which from then on runs candidates and nothing else.
    """

    def __init__(self) -> None:
        text = f"@table = internal global ptr null\n{_handler.text()}"
        self._library = Library(
            compile_llvm(text, host_target(), opt_level=0), ("tg_fault", "tg_guard"), {}
        )
        self._guard = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._library.addresses["tg_guard"])
        self._table: npt.NDArray[np.uint64] = np.zeros(1, np.uint64)
        action = _Action(handler=self._library.addresses["tg_fault"], flags=_SA_SIGINFO)
        if ctypes.CDLL(None).sigaction(int(signal.SIGSEGV), ctypes.byref(action), None) != 0:
            raise InternalError("sigaction: the system refuses a handler of SIGSEGV")

    def watch(self, pages: Sequence[tuple[int, int]]) -> None:
        """From now on a fault in one of these pages, (start, end), exits with its code."""
        table = np.array([len(pages), *(word for pair in pages for word in pair)], np.uint64)
        self._guard(table.ctypes.data)
        self._table = table  # the old one may go now, and not before
