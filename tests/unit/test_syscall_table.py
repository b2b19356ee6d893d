"""The table of system calls is that of the kernel's headers, where a machine has them, and each
call has one answer.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from tunegrad.devices.processes.system_calls import (
    _NUMBERS,
    ALLOWED,
    AUDIT,
    DEADLY,
    READING,
    counters_refused,
    number,
    rules,
)

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
RENAMED = {"fstatat": "newfstatat"}


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_those_of_the_headers(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"{HEADERS[machine]} is not installed")
    found = dict(re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", HEADERS[machine].read_text()))
    theirs = {RENAMED.get(name, name): int(value) for name, value in found.items()}
    differ = {
        n: (v, theirs[n]) for n, v in _NUMBERS[machine].items() if n in theirs and theirs[n] != v
    }
    assert differ == {}
    assert len(_NUMBERS[machine].keys() & theirs.keys()) > 0.95 * len(_NUMBERS[machine])


def test_no_call_is_both_allowed_and_deadly() -> None:
    assert not {*ALLOWED, *READING} & set(DEADLY)


@pytest.mark.parametrize("machine", AUDIT)
@pytest.mark.parametrize("name", ["kill", "openat", "clone", "tgkill", "sendto"])
def test_call_with_an_argument_that_matters_is_looked_at_once(machine: str, name: str) -> None:
    tests = [
        step
        for step in rules(machine, 1234, False, True, 3)
        if step[0] == 0x15 and step[3] == number(machine, name)
    ]
    assert len(tests) == 1


@pytest.mark.parametrize("machine", AUDIT)
@pytest.mark.parametrize("reads", [False, True])
def test_jumps_stay_within_the_filter_and_its_length_within_the_kernels_bound(
    machine: str, reads: bool
) -> None:
    program = rules(machine, 1234, reads, False, 3)
    assert len(program) < 4096
    assert all(
        at + 1 + max(step[1], step[2]) < len(program)
        for at, step in enumerate(program)
        if step[0] != 0x06
    )
    assert program[-1][0] == 0x06


@pytest.mark.parametrize("machine", AUDIT)
def test_everything_named_has_a_number_on_some_machine(machine: str) -> None:
    assert all(
        any(number(m, name) is not None for m in AUDIT) for name in (*ALLOWED, *READING, *DEADLY)
    )
    assert number(machine, "execve") is not None


def test_hardware_counters_are_there_or_refused_for_a_reason_of_the_system() -> None:
    """Not because of how they are asked for: that is EINVAL, E2BIG or EFAULT."""
    reasons = ("EACCES", "EPERM", "ENOENT", "ENODEV", "ENOSYS", "EOPNOTSUPP")
    assert counters_refused() in {"", *(os.strerror(getattr(errno, r)) for r in reasons)}
