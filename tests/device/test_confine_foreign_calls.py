"""A call of another architecture ends a confined process, whatever it asks: the numbers of its
calls are other ones.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tunegrad.devices.processes.system_calls import number

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64",
    reason="only x86_64 has calls of other architectures in the same process",
)

ROOT = Path(__file__).parents[2]
ENOSYS = -38

# Makes one call as raw machine code before it is confined, and another one after.
SCRIPT = """
import ctypes, mmap, os, sys
from tunegrad.devices.processes.system_calls import filter_calls

page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex(sys.argv[1]))
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
call = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)(at)
print(os.getpid(), call(int(sys.argv[2])), flush=True)
confined, parent = filter_calls(False, True, 3), os.getpid()
print(confined, flush=True)
answer = call(int(sys.argv[3]))
if os.getpid() != parent:
    os._exit(0)
print(answer)
"""

INT80 = "89f8cd804898c3"  # mov eax, edi; int 0x80; cdqe; ret
SYSCALL = "4889f80f05c3"  # mov rax, rdi; syscall; ret
X32 = 0x40000000
CALLS = {"getpid, 32-bit": (INT80, 20), "fork, 32-bit": (INT80, 2)}
CALLS |= {"getpid, x32": (SYSCALL, X32 | 39), "fork, x32": (SYSCALL, X32 | 57)}


def confined_call(code: str, asks: int, asked: int) -> tuple[int, int, int | None]:
    """(process id, the answer to ``asks`` before it was confined, the answer to ``asked`` after;
    None: SIGSYS).
    """
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, code, str(asks), str(asked)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    if not ended.stdout and ended.returncode < 0:
        pytest.skip("this kernel was built without 32-bit calls")
    before, confined, *after = ended.stdout.splitlines()
    if confined != "True":
        pytest.skip("this kernel has no seccomp filters")
    assert ended.returncode in (0, -signal.SIGSYS), ended.stderr
    assert bool(after) == (ended.returncode == 0)
    own, answer = before.split()
    return int(own), int(answer), int(after[0]) if after else None


@pytest.mark.parametrize("name", CALLS)
def test_call_of_another_architecture_ends_the_process(name: str) -> None:
    code, asked = CALLS[name]
    own, before, after = confined_call(code, 20 if code is INT80 else X32 | 39, asked)
    assert before in (
        own,
        ENOSYS,
    )  # x32 is absent from many kernels; the filter comes first all the same
    assert after is None


def test_own_calls_go_on() -> None:
    own, before, after = confined_call(SYSCALL, 39, 39)
    assert before == after == own


def test_own_fork_ends_the_process() -> None:
    assert confined_call(SYSCALL, 39, number("x86_64", "fork") or 0)[2] is None
