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
from tunegrad.devices.host.loader import Library
from tunegrad.devices.replies import EXIT_WROTE, MOST_TOLD
from tunegrad.errors import InternalError

__all__ = ["ReadOnly"]

_SA_SIGINFO = 4
_FAULT_ADDRESS = 16
"""Offset of the address in a ``siginfo_t`` of a 64-bit Linux."""

_TEXT = f"""
declare void @_exit(i32)
declare ptr @signal(i32, ptr)
declare i64 @llvm.umin.i64(i64, i64)

@table = internal global ptr null

; The table: how many entries, then (start, end) of each; 0, 0 of those that may be written.
define void @tg_guard(ptr %table) {{
  store ptr %table, ptr @table
  ret void
}}

define void @tg_fault(i32 %signal, ptr %info, ptr %context) {{
entry:
  %addressp = getelementptr i8, ptr %info, i64 {_FAULT_ADDRESS}
  %address = load i64, ptr %addressp
  %table = load ptr, ptr @table
  %none = icmp eq ptr %table, null
  br i1 %none, label %other, label %begin
begin:
  %count = load i64, ptr %table
  br label %next
next:
  %i = phi i64 [ 0, %begin ], [ %i1, %miss ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %look, label %other
look:
  %twice = shl i64 %i, 1
  %first = add i64 %twice, 1
  %second = add i64 %twice, 2
  %startp = getelementptr i64, ptr %table, i64 %first
  %endp = getelementptr i64, ptr %table, i64 %second
  %start = load i64, ptr %startp
  %end = load i64, ptr %endp
  %after = icmp uge i64 %address, %start
  %before = icmp ult i64 %address, %end
  %inside = and i1 %after, %before
  br i1 %inside, label %hit, label %miss
miss:
  %i1 = add i64 %i, 1
  br label %next
hit:
  %told = call i64 @llvm.umin.i64(i64 %i, i64 {MOST_TOLD - 1})
  %code = add i64 %told, {EXIT_WROTE}
  %code32 = trunc i64 %code to i32
  call void @_exit(i32 %code32)
  unreachable
other:
  ; What the signal does without a handler: the access is tried again, and ends the process.
  %old = call ptr @signal(i32 %signal, ptr null)
  ret void
}}
"""


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
        self._library = Library(
            compile_llvm(_TEXT, host_target(), opt_level=0), ("tg_fault", "tg_guard"), {}
        )
        self._guard = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._library.addresses["tg_guard"])
        self._table: npt.NDArray[np.uint64] = np.zeros(1, np.uint64)
        action = _Action(handler=self._library.addresses["tg_fault"], flags=_SA_SIGINFO)
        if ctypes.CDLL(None).sigaction(int(signal.SIGSEGV), ctypes.byref(action), None) != 0:
            raise InternalError("sigaction: the system refuses a handler of SIGSEGV")

    def watch(self, pages: Sequence[tuple[int, int]]) -> None:
        """From now on a fault in one of these pages, as (start, end), ends the process with the
        code of its place.
        """
        table = np.array([len(pages), *(word for pair in pages for word in pair)], np.uint64)
        self._guard(table.ctypes.data)
        self._table = table  # the old one may go now, and not before
