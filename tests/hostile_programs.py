"""Programs that try to harm something outside their process, each as a function to be called from
within a kernel.

    row = PROGRAMS["unlinks"] text = planted(lowered.text, lowered.name, row.body(victims), after=3)
    does it from its third launch on

A row says how a measurement of the kernel ends: the status, and what its error says. ``Victims``
are what it aims at; ``Victims.make`` makes them, and ``unharmed`` says whether they are as they
were.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tunegrad.devices import CompiledCandidate, Lowered
from tunegrad.devices.cpu.device import CpuDevice
from tunegrad.devices.cpu.engine import CpuEngine
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.facts import host_target
from tunegrad.devices.host.loader import Library
from tunegrad.devices.host.team import Executable, barrier_address
from tunegrad.devices.processes.system_calls import number
from tunegrad.trial import Status

__all__ = ["PROGRAMS", "Hostile", "Unguarded", "Victims", "planted", "unguarded"]


class _Engine(CpuEngine):
    """Links any object."""

    def load(self, compiled: CompiledCandidate | Lowered, image: bytes) -> Executable:
        library = Library(image, (compiled.entry,), {"tg_barrier": barrier_address()})
        return Executable(library, compiled.entry, compiled.geometry.groups)


class Unguarded(CpuDevice):
    """The CPU without the refusal of code that keeps something, or calls the system: what stands
    behind that refusal is tested on it.
    """

    __slots__ = ()

    def compile(self, lowered: Lowered, killable: bool = False) -> bytes:
        return bytes(compile_llvm(lowered.text, self.target, self.opt_level, killable=killable))

    def open(self, pin: bool = False) -> CpuEngine:
        return _Engine(self, pin)


def unguarded(threads: int) -> Unguarded:
    """This machine's CPU, for kernels of so many threads."""
    return Unguarded(host_target(threads))


_CONTENT = "what nobody may change\n"
_AT_CWD = -100
_DIRECTORY_RIGHTS = 0o700


@dataclass(frozen=True)
class Victims:
    """A folder with a file in it, and the process that owns the session."""

    folder: Path
    session: int

    @staticmethod
    def make(folder: Path) -> Victims:
        folder.mkdir(exist_ok=True)
        folder.chmod(_DIRECTORY_RIGHTS)
        victims = Victims(folder, os.getpid())
        victims.file.write_text(_CONTENT)
        return victims

    @property
    def file(self) -> Path:
        return self.folder / "victim"

    def unharmed(self) -> bool:
        there = [entry.name for entry in self.folder.iterdir()] == ["victim"]
        rights = self.folder.stat().st_mode & 0o777
        return there and self.file.read_text() == _CONTENT and rights == _DIRECTORY_RIGHTS


@dataclass(frozen=True)
class Hostile:
    """``body``: the instructions of ``void @hostile(ptr %buffers)``; ``status`` and ``error``: how
    its row ends.

    ``globals`` are constants and declarations that it needs.
    """

    write: Callable[[Victims], str]
    status: Status
    error: str = ""
    globals: Callable[[Victims], str] = lambda _: ""

    def body(self, victims: Victims) -> str:
        """The module's further text: the function ``@hostile``, and what it needs."""
        head = "define internal void @hostile(ptr %buffers) noinline {"
        return "\n".join((self.globals(victims), head, self.write(victims), "}", ""))


def planted(text: str, name: str, body: str, after: int = 0) -> str:
    """A kernel's module that calls ``@hostile`` at the start of each launch from number ``after``
    on, on thread 0.
    """
    head = re.compile(
        rf"(define [^\n]*@{re.escape(name)}\(ptr (%[\w.]+), ptr [^,]*, i64 "
        rf"(%[\w.]+),[^\n]*{{\n)((?:[\w.]+:\n)?)"
    )
    found = head.search(text)
    assert found is not None, f"no kernel {name} in the text"
    call = f"  call void @hostile_from(ptr {found[2]}, i64 {found[3]})\n"
    counted = f"""
@hostile_launches = internal global i64 0
define internal void @hostile_from(ptr %buffers, i64 %tid) noinline {{
entry:
  %first = icmp eq i64 %tid, 0
  br i1 %first, label %count, label %out
count:
  %seen = load i64, ptr @hostile_launches
  %seen1 = add i64 %seen, 1
  store i64 %seen1, ptr @hostile_launches
  %due = icmp sge i64 %seen, {after}
  br i1 %due, label %now, label %out
now:
  call void @hostile(ptr %buffers)
  br label %out
out:
  ret void
}}
declare i64 @syscall(i64, ...)
"""
    known = set(re.findall(r"^declare [^@]*@([\w.]+)", text, re.MULTILINE))
    more = [line for line in (counted + body).splitlines() if not _declares(line, known)]
    return "\n".join((text[: found.end()] + call + text[found.end() :], *more, ""))


def _declares(line: str, known: set[str]) -> bool:
    """Whether it declares one of these functions, which must not be declared again."""
    found = re.match(r"declare [^@]*@([\w.]+)", line)
    return found is not None and found[1] in known


# ---- how they are written


def _number(name: str) -> int:
    found = number(platform.machine(), name)
    assert found is not None, name
    return found


def _call(name: str, *arguments: str, to: str = "r") -> str:
    """One system call; arguments are typed IR values."""
    rest = "".join(f", {a}" for a in arguments)
    return f"  %{to} = call i64 (i64, ...) @syscall(i64 {_number(name)}{rest})\n"


def _calls(name: str, *arguments: str) -> Callable[[Victims], str]:
    return lambda _: _call(name, *arguments) + "  ret void"


def _bytes(name: str, data: bytes) -> str:
    letters = "".join(f"\\{c:02x}" for c in data)
    return f'@{name} = internal constant [{len(data)} x i8] c"{letters}"\n'


def _string(name: str, value: str) -> str:
    return _bytes(name, os.fsencode(value) + b"\0")


def _paths(victims: Victims) -> str:
    return _string("victim", str(victims.file)) + _string("folder", str(victims.folder)) + _string(
        "other", str(victims.folder / "other")
    )  # fmt: skip


def _on_path(name: str, *arguments: str) -> Hostile:
    return Hostile(_calls(name, *arguments), Status.CRASHED, _SIGSYS, _paths)


def _deadly(name: str, *arguments: str) -> Hostile:
    return Hostile(_calls(name, *arguments), Status.CRASHED, _SIGSYS)


def _raw(text: str) -> Callable[[Victims], str]:
    return lambda _: text


_SIGSYS = "running: the worker ended with SIGSYS"
_SIGSEGV = "running: the worker ended with SIGSEGV"
_O_RDONLY, _O_RDWR_CREAT, _O_WRONLY_TRUNC = 0, 0o102, 0o1001
_SIGKILL, _SIGSTOP = 9, 19
_CWD = f"i64 {_AT_CWD}"

# What is true only where something could be reached that must not be: the kernel's first output is
# spoilt then.
_SPOIL_IF_SUCCEEDED = """
  %worked = icmp sge i64 %r, 0
  br i1 %worked, label %spoil, label %out
spoil:
  call void @_exit(i32 99)
  br label %out
out:
  ret void"""

_EVERY_DESCRIPTOR = """entry:
  br label %next
next:
  %fd = phi i64 [ 0, %entry ], [ %fd1, %next ]
%CALL%  %fd1 = add i64 %fd, 1
  %more = icmp slt i64 %fd1, 64
  br i1 %more, label %next, label %out
out:
  ret void"""


def _every_descriptor(name: str, *arguments: str) -> Callable[[Victims], str]:
    return lambda _: _EVERY_DESCRIPTOR.replace("%CALL%", _call(name, *arguments))


def _write_shared(_: Victims) -> str:
    """Maps each descriptor shared and writable, and writes to it where that worked."""
    return _EVERY_DESCRIPTOR.replace(
        "%CALL%",
        _call("mmap", "i64 0", "i64 4096", "i64 3", "i64 1", "i64 %fd", "i64 0")
        + """  %bad = icmp slt i64 %r, 0
  br i1 %bad, label %go_on, label %write
write:
  %there = inttoptr i64 %r to ptr
  store volatile i64 0, ptr %there
  br label %go_on
go_on:
""",
    ).replace("[ %fd1, %next ]", "[ %fd1, %go_on ]")


_BODY = b"\x93\xa4none\xa5value\xc0"
_FRAME = len(_BODY).to_bytes(8, "little") + _BODY
"""A well-formed reply to a request that was never made."""

_IOVEC = (
    "@iov = internal global [2 x i64] zeroinitializer\n@into = internal global [64 x i8] "
    "zeroinitializer\n"
)
_SHELL = (
    '@shell = internal constant [8 x i8] c"/bin/sh\\00"\n@flag = internal constant [3 x '
    'i8] c"-c\\00"\n'
)  # fmt: skip


def _shell(victims: Victims) -> str:
    command = _string("command", f"echo harmed > {victims.file}")
    arguments = (
        "@argv = internal constant [4 x ptr] [ptr @shell, ptr @flag, ptr @command, ptr null]\n"
    )
    return _SHELL + command + arguments


_ENDLESS = (
    "entry:\n  br label %again\nagain:\n  %b = load volatile i64, ptr %buffers\n  br label %again"
)

_DEEP = """entry:
  call void @deeper(ptr %buffers)
  ret void"""
_DEEPER = """
define internal void @deeper(ptr %buffers) noinline {
  %room = alloca [65536 x i8]
  store volatile i8 1, ptr %room
  call void @deeper(ptr %room)
  store volatile i8 2, ptr %room
  ret void
}
"""

_FORKS = """entry:
  br label %again
again:
  %pid = call i32 @fork()
  br label %again"""

_THREADS = """entry:
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %rc = call i32 @pthread_create(ptr @thread, ptr null, ptr @spinning, ptr null)
  %n1 = add i64 %n, 1
  %more = icmp slt i64 %n1, 100
  br i1 %more, label %next, label %out
out:
  ret void"""
_SPINNING = """
@thread = internal global i64 0
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
define internal ptr @spinning(ptr %x) {
entry:
  br label %again
again:
  %b = load volatile i64, ptr @thread
  br label %again
}
"""

_BEFORE = "  %first = load ptr, ptr %buffers\n  %before = getelementptr i8, ptr %first, i64 -64\n"


def _kill(pid: Callable[[Victims], int], signal: int) -> Callable[[Victims], str]:
    return lambda v: _call("kill", f"i64 {pid(v)}", f"i64 {signal}") + "  ret void"


_KILL_FORK_SERVER = (
    _call("getppid", to="server") + _call("kill", "i64 %server", f"i64 {_SIGKILL}") + "  ret void"
)
_STOP_ITSELF = _call("getpid", to="me") + _call("kill", "i64 %me", f"i64 {_SIGSTOP}") + "  ret void"


def _read_parent(v: Victims) -> str:
    return (
        "  store i64 ptrtoint (ptr @into to i64), ptr @iov\n  %l = getelementptr i64, ptr "
        "@iov, i64 1\n"
        "  store i64 64, ptr %l\n"
        + _call(
            "process_vm_readv",
            f"i64 {v.session}",
            "ptr @iov",
            "i64 1",
            "ptr @iov",
            "i64 1",
            "i64 0",
        )
        + "  ret void"
    )


def _opens(flags: int) -> Callable[[Victims], str]:
    return lambda _: (
        _call("openat", _CWD, "ptr @memory", f"i64 {flags}", "i64 0") + _SPOIL_IF_SUCCEEDED
    )


def _memory_file(v: Victims) -> str:
    return _string("memory", f"/proc/{v.session}/mem") + "declare void @_exit(i32)\n"


PROGRAMS: dict[str, Hostile] = {
    # other processes
    "kills its group": _deadly("kill", "i64 0", f"i64 {_SIGKILL}"),
    "kills the fork server": Hostile(_raw(_KILL_FORK_SERVER), Status.CRASHED, _SIGSYS),
    "kills the session": Hostile(_kill(lambda v: v.session, _SIGKILL), Status.CRASHED, _SIGSYS),
    "signals the session's thread": Hostile(
        lambda v: _call("tgkill", f"i64 {v.session}", f"i64 {v.session}", "i64 9") + "  ret void",
        Status.CRASHED, _SIGSYS,
    ),
    "traces the session": Hostile(
        lambda v: _call("ptrace", "i64 16", f"i64 {v.session}", "i64 0", "i64 0") + "  ret void",
        Status.CRASHED, _SIGSYS,
    ),
    "reads the session's memory": Hostile(_read_parent, Status.CRASHED, _SIGSYS, _raw(_IOVEC)),
    "opens the session's memory": Hostile(_opens(_O_RDONLY), Status.OK, "", _memory_file),
    "opens the session's memory to write": Hostile(_opens(2), Status.CRASHED, _SIGSYS,
        _memory_file),
    "starts a program": Hostile(
        _calls("execve", "ptr @shell", "ptr @argv", "ptr null"), Status.CRASHED, _SIGSYS, _shell
    ),
    "forks for ever": Hostile(_raw(_FORKS), Status.CRASHED, _SIGSYS, _raw("declare i32 @fork()\n")),
    "starts threads": Hostile(_raw(_THREADS), Status.OK, "", _raw(_SPINNING)),
    # files
    "unlinks": _on_path("unlinkat", _CWD, "ptr @victim", "i64 0"),
    "renames": _on_path("renameat2", _CWD, "ptr @victim", _CWD, "ptr @other", "i64 0"),
    "truncates": _on_path("truncate", "ptr @victim", "i64 0"),
    "makes a folder": _on_path("mkdirat", _CWD, "ptr @other", "i64 511"),
    "changes rights": _on_path("fchmodat", _CWD, "ptr @folder", "i64 511"),
    "links": _on_path("linkat", _CWD, "ptr @victim", _CWD, "ptr @other", "i64 0"),
    "links by name": _on_path("symlinkat", "ptr @victim", _CWD, "ptr @other"),
    "overwrites": _on_path("openat", _CWD, "ptr @victim", f"i64 {_O_WRONLY_TRUNC}", "i64 420"),
    "creates": _on_path("openat", _CWD, "ptr @other", f"i64 {_O_RDWR_CREAT}", "i64 420"),
    "mounts": _on_path("mount", "ptr @folder", "ptr @folder", "ptr null", "i64 4096", "ptr null"),
    "writes through shared mappings": Hostile(_write_shared, Status.OK),
    # the network, the kernel
    "opens an internet socket": _deadly("socket", "i64 2", "i64 1", "i64 0"),
    "opens a unix socket": _deadly("socket", "i64 1", "i64 1", "i64 0"),
    "uses io_uring": _deadly("io_uring_setup", "i64 1", "ptr %buffers"),
    "loads a bpf program": _deadly("bpf", "i64 5", "ptr %buffers", "i64 8"),
    "shares memory": _deadly("shmget", "i64 0", "i64 4096", "i64 896"),
    "outlives its parent": Hostile(_calls("prctl", "i64 1", "i64 0", "i64 0", "i64 0", "i64 0"),
        Status.OK),
    # what it says
    "writes to every descriptor": Hostile(
        _every_descriptor("write", "i64 %fd", "ptr %buffers", "i64 24"), Status.CRASHED,
        "running: a reply of "
    ),
    "forges a reply": Hostile(
        _every_descriptor("write", "i64 %fd", "ptr @frame", f"i64 {len(_FRAME)}"),
        Status.CRASHED, "running: a reply to something else", _raw(_bytes("frame", _FRAME)),
    ),
    "sends on every descriptor": Hostile(
        _every_descriptor("sendto", "i64 %fd", "ptr %buffers", "i64 24", "i64 0", "ptr null", "i64 "
            "0"),
        Status.CRASHED, _SIGSYS,
    ),
    "closes its descriptors": Hostile(
        _calls("close_range", "i64 0", "i64 4294967295", "i64 0"), Status.CRASHED,
        "running: the worker ended with "
    ),
    # itself
    "never ends": Hostile(_raw(_ENDLESS), Status.TIMED_OUT, "running: over "),
    "stops itself": Hostile(_raw(_STOP_ITSELF), Status.TIMED_OUT, "running: over "),
    "overflows its stack": Hostile(_raw(_DEEP), Status.CRASHED, _SIGSEGV, _raw(_DEEPER)),
    "takes too much memory": Hostile(
        _raw("  %m = call ptr @malloc(i64 35184372088832)\n  store volatile i8 1, ptr %m\n  "
             "ret void"),
        Status.CRASHED, _SIGSEGV, _raw("declare ptr @malloc(i64)\n"),
    ),
    "writes to null": Hostile(_raw("  store volatile i32 1, ptr null\n  ret void"), Status.CRASHED,
        _SIGSEGV),
    "writes before a buffer": Hostile(
        _raw(_BEFORE + "  store volatile i8 1, ptr %before\n  ret void"), Status.WRONG, ""
    ),
    "aborts": Hostile(
        _raw("  call void @abort()\n  ret void"),
        Status.CRASHED, "running: the worker ended with SIGABRT", _raw("declare void @abort()\n"),
    ),
    "exits": Hostile(
        _raw("  call void @exit(i32 0)\n  ret void"),
        Status.CRASHED, "running: the worker ended with exit code 0", _raw("declare void "
            "@exit(i32)\n"),
    ),
}  # fmt: skip
"""What a candidate may do to what is outside it, and how its row ends. What is refused and goes
on is measured.
"""
