"""A confined process starts no other one through calls of another architecture either: their numbers are other ones."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tunegrad.devices import confine

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="only x86_64 has calls of other architectures in the same process"
)

ROOT = Path(__file__).parents[2]
EPERM, ENOSYS = -1, -38

# Makes one call as raw machine code before it is confined, and another one after.
SCRIPT = """
import ctypes, mmap, os, sys
from tunegrad.devices.confine import no_processes

page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex(sys.argv[1]))
call = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
print(os.getpid(), call(int(sys.argv[2])), flush=True)
confined, parent = no_processes(), os.getpid()
answer = call(int(sys.argv[3]))
if os.getpid() != parent:
    os._exit(0)
print(confined, answer)
"""

INT80 = "89f8cd804898c3"  # mov eax, edi; int 0x80; cdqe; ret
SYSCALL = "4889f80f05c3"  # mov rax, rdi; syscall; ret
X32 = 0x40000000
CALLS = {"getpid, 32-bit": (INT80, 20), "fork, 32-bit": (INT80, 2)}
CALLS |= {"getpid, x32": (SYSCALL, X32 | 39), "fork, x32": (SYSCALL, X32 | 57)}


def confined_call(code: str, asks: int, number: int) -> tuple[int, int, int]:
    """(process id, the answer to ``asks`` before the process was confined, the answer to ``number`` after)."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, code, str(asks), str(number)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if not ended.stdout and ended.returncode < 0:
        pytest.skip("this kernel was built without 32-bit calls")
    assert ended.returncode == 0, ended.stderr
    before, after = ended.stdout.splitlines()
    own, answer = before.split()
    confined, refused = after.split()
    if confined != "True":
        pytest.skip("this kernel has no seccomp filters")
    return int(own), int(answer), int(refused)


@pytest.mark.parametrize("name", CALLS)
def test_call_of_another_architecture_is_refused(name: str) -> None:
    code, number = CALLS[name]
    own, before, after = confined_call(code, 20 if code is INT80 else X32 | 39, number)
    assert before in (own, ENOSYS)  # x32 is absent from many kernels; the filter comes first all the same
    assert after == EPERM


def test_own_calls_go_on() -> None:
    own, before, after = confined_call(SYSCALL, 39, 39)
    assert before == after == own


def test_own_fork_is_refused() -> None:
    assert confined_call(SYSCALL, 39, confine._CALLS["x86_64"]["fork"])[2] == EPERM
