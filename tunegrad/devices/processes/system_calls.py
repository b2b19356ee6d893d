"""System calls by what a confined process may do with them, and their numbers."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterable, Iterator
from errno import ENOSYS

_ALLOWED = """
    futex read write readv writev poll ppoll select pselect6 mmap munmap mprotect madvise mremap brk
    clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time sched_yield sched_getaffinity
    getcpu futex_waitv rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack exit exit_group
    restart_syscall getrandom rseq membarrier set_robust_list set_tid_address arch_prctl getpid gettid
    getppid getuid geteuid getgid getegid uname sysinfo getrlimit getrusage times close close_range
    fstat lseek
"""

ALLOWED: tuple[str, ...] = tuple(_ALLOWED.split())
"""Calls for memory, time, threads, signals to itself and descriptors that are open already."""

_READING = """
    stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat getdents getdents64
    pread64 getcwd fcntl dup
"""

READING: tuple[str, ...] = tuple(_READING.split())
"""Calls for finding, opening and mapping files for reading."""

_DEADLY = """
    execve execveat fork vfork ptrace process_vm_readv process_vm_writev process_madvise
    process_mrelease kcmp tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal
    pidfd_getfd socket socketpair connect bind listen accept accept4 sendmsg sendmmsg recvmsg recvmmsg
    creat unlink unlinkat rmdir rename renameat renameat2 truncate ftruncate fallocate mkdir mkdirat
    chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat link linkat symlink symlinkat mknod
    mknodat setxattr lsetxattr fsetxattr removexattr utime utimes futimesat utimensat name_to_handle_at
    open_by_handle_at mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount
    fspick mount_setattr setns unshare bpf io_uring_setup io_uring_enter io_uring_register io_setup
    io_submit keyctl add_key request_key perf_event_open userfaultfd fanotify_init quotactl syslog acct
    swapon swapoff reboot init_module finit_module delete_module kexec_load kexec_file_load iopl ioperm
    settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname setuid setgid setreuid
    setregid setresuid setresgid setgroups setfsuid setfsgid capset shmget shmat shmctl semget semctl
    msgget msgsnd msgctl mq_open mq_unlink memfd_create move_pages migrate_pages
"""

DEADLY: tuple[str, ...] = tuple(_DEADLY.split())
"""Calls that no honest kernel makes: for other processes, other programs, files, the network, the
machine's own state.
"""

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The architecture of a call as a filter is told it: ``AUDIT_ARCH_*`` in the kernel's ``audit.h``."""

_X86_64 = """
    futex=202 read=0 write=1 readv=19 writev=20 poll=7 ppoll=271 select=23 pselect6=270 mmap=9 munmap=11
    mprotect=10 madvise=28 mremap=25 brk=12 clock_gettime=228 clock_getres=229 clock_nanosleep=230
    nanosleep=35 gettimeofday=96 time=201 sched_yield=24 sched_getaffinity=204 getcpu=309
    futex_waitv=449 rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 sigaltstack=131 exit=60
    exit_group=231 restart_syscall=219 getrandom=318 rseq=334 membarrier=324 set_robust_list=273
    set_tid_address=218 arch_prctl=158 getpid=39 gettid=186 getppid=110 getuid=102 geteuid=107
    getgid=104 getegid=108 uname=63 sysinfo=99 getrlimit=97 getrusage=98 times=100 close=3
    close_range=436 fstat=5 lseek=8 stat=4 lstat=6 newfstatat=262 statx=332 access=21 faccessat=269
    faccessat2=439 readlink=89 readlinkat=267 getdents=78 getdents64=217 pread64=17 getcwd=79 fcntl=72
    dup=32 clone=56 clone3=435 kill=62 tgkill=234 open=2 openat=257 openat2=437 sendto=44 recvfrom=45
    sched_setaffinity=203 execve=59 execveat=322 fork=57 vfork=58 ptrace=101 process_vm_readv=310
    process_vm_writev=311 process_madvise=440 process_mrelease=448 kcmp=312 tkill=200
    rt_sigqueueinfo=129 rt_tgsigqueueinfo=297 pidfd_open=434 pidfd_send_signal=424 pidfd_getfd=438
    socket=41 socketpair=53 connect=42 bind=49 listen=50 accept=43 accept4=288 sendmsg=46 sendmmsg=307
    recvmsg=47 recvmmsg=299 creat=85 unlink=87 unlinkat=263 rmdir=84 rename=82 renameat=264
    renameat2=316 truncate=76 ftruncate=77 fallocate=285 mkdir=83 mkdirat=258 chmod=90 fchmod=91
    fchmodat=268 fchmodat2=452 chown=92 fchown=93 lchown=94 fchownat=260 link=86 linkat=265 symlink=88
    symlinkat=266 mknod=133 mknodat=259 setxattr=188 lsetxattr=189 fsetxattr=190 removexattr=197
    utime=132 utimes=235 futimesat=261 utimensat=280 name_to_handle_at=303 open_by_handle_at=304
    mount=165 umount2=166 pivot_root=155 chroot=161 move_mount=429 open_tree=428 fsopen=430 fsconfig=431
    fsmount=432 fspick=433 mount_setattr=442 setns=308 unshare=272 bpf=321 io_uring_setup=425
    io_uring_enter=426 io_uring_register=427 io_setup=206 io_submit=209 keyctl=250 add_key=248
    request_key=249 perf_event_open=298 userfaultfd=323 fanotify_init=300 quotactl=179 syslog=103
    acct=163 swapon=167 swapoff=168 reboot=169 init_module=175 finit_module=313 delete_module=176
    kexec_load=246 kexec_file_load=320 iopl=172 ioperm=173 settimeofday=164 clock_settime=227
    adjtimex=159 clock_adjtime=305 sethostname=170 setdomainname=171 setuid=105 setgid=106 setreuid=113
    setregid=114 setresuid=117 setresgid=119 setgroups=116 setfsuid=122 setfsgid=123 capset=126
    shmget=29 shmat=30 shmctl=31 semget=64 semctl=66 msgget=68 msgsnd=69 msgctl=71 mq_open=240
    mq_unlink=241 memfd_create=319 move_pages=279 migrate_pages=256 landlock_create_ruleset=444
    landlock_add_rule=445 landlock_restrict_self=446 seccomp=317 prctl=157
"""
"""From the kernel's ``arch/x86/entry/syscalls/syscall_64.tbl``."""

_AARCH64 = """
    futex=98 read=63 write=64 readv=65 writev=66 ppoll=73 pselect6=72 mmap=222 munmap=215 mprotect=226
    madvise=233 mremap=216 brk=214 clock_gettime=113 clock_getres=114 clock_nanosleep=115 nanosleep=101
    gettimeofday=169 sched_yield=124 sched_getaffinity=123 getcpu=168 futex_waitv=449 rt_sigaction=134
    rt_sigprocmask=135 rt_sigreturn=139 sigaltstack=132 exit=93 exit_group=94 restart_syscall=128
    getrandom=278 rseq=293 membarrier=283 set_robust_list=99 set_tid_address=96 getpid=172 gettid=178
    getppid=173 getuid=174 geteuid=175 getgid=176 getegid=177 uname=160 sysinfo=179 getrlimit=163
    getrusage=165 times=153 close=57 close_range=436 fstat=80 lseek=62 newfstatat=79 statx=291
    faccessat=48 faccessat2=439 readlinkat=78 getdents64=61 pread64=67 getcwd=17 fcntl=25 dup=23
    clone=220 clone3=435 kill=129 tgkill=131 openat=56 openat2=437 sendto=206 recvfrom=207
    sched_setaffinity=122 execve=221 execveat=281 ptrace=117 process_vm_readv=270 process_vm_writev=271
    process_madvise=440 process_mrelease=448 kcmp=272 tkill=130 rt_sigqueueinfo=138
    rt_tgsigqueueinfo=240 pidfd_open=434 pidfd_send_signal=424 pidfd_getfd=438 socket=198 socketpair=199
    connect=203 bind=200 listen=201 accept=202 accept4=242 sendmsg=211 sendmmsg=269 recvmsg=212
    recvmmsg=243 unlinkat=35 renameat=38 renameat2=276 truncate=45 ftruncate=46 fallocate=47 mkdirat=34
    fchmod=52 fchmodat=53 fchmodat2=452 fchown=55 fchownat=54 linkat=37 symlinkat=36 mknodat=33
    setxattr=5 lsetxattr=6 fsetxattr=7 removexattr=14 utimensat=88 name_to_handle_at=264
    open_by_handle_at=265 mount=40 umount2=39 pivot_root=41 chroot=51 move_mount=429 open_tree=428
    fsopen=430 fsconfig=431 fsmount=432 fspick=433 mount_setattr=442 setns=268 unshare=97 bpf=280
    io_uring_setup=425 io_uring_enter=426 io_uring_register=427 io_setup=0 io_submit=2 keyctl=219
    add_key=217 request_key=218 perf_event_open=241 userfaultfd=282 fanotify_init=262 quotactl=60
    syslog=116 acct=89 swapon=224 swapoff=225 reboot=142 init_module=105 finit_module=273
    delete_module=106 kexec_load=104 kexec_file_load=294 settimeofday=170 clock_settime=112 adjtimex=171
    clock_adjtime=266 sethostname=161 setdomainname=162 setuid=146 setgid=144 setreuid=145 setregid=143
    setresuid=147 setresgid=149 setgroups=159 setfsuid=151 setfsgid=152 capset=91 shmget=194 shmat=196
    shmctl=195 semget=190 semctl=191 msgget=186 msgsnd=189 msgctl=187 mq_open=180 mq_unlink=181
    memfd_create=279 move_pages=239 migrate_pages=238 landlock_create_ruleset=444 landlock_add_rule=445
    landlock_restrict_self=446 seccomp=277 prctl=167
"""
"""From the kernel's ``include/uapi/asm-generic/unistd.h``."""

_NUMBERS = {
    machine: {
        name: int(value) for name, _, value in (entry.partition("=") for entry in table.split())
    }
    for machine, table in (("x86_64", _X86_64), ("aarch64", _AARCH64))
}


def number(machine: str, name: str) -> int | None:
    """The number of a system call on ``machine`` (as ``platform.machine``), or None."""
    return _NUMBERS[machine].get(name)


# ---- seccomp
#
# The filter of system calls that a confined process has: calls that are allowed, refused, or end
# it.
#
#     allowed        memory, time, futexes, signals to itself, threads, descriptors that are
#                    open already
#     deadly         SIGSYS: other processes, programs, files to write, sockets, the machine's state
#     anything else  EPERM (opening a file to read: EACCES; calls that pass their flags in
#                    memory: ENOSYS)
#
# A filter is a list of classic BPF instructions, read from the top; it holds for every thread, and
# can not be taken off. See ``seccomp(2)``.


Instruction = tuple[int, int, int, int]
"""Operation, how many instructions to skip where a test holds, and where it does not, operand."""

_LOAD, _EQUAL, _ANY_BIT, _ANSWER = 0x20, 0x15, 0x45, 0x06

_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16

_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000

_EPERM, _EAGAIN, _EACCES, _ENOSYS = 1, 11, 13, 38

_X32 = 0x40000000
"""The bit of a call's number that makes it one of x32, of the architecture of x86_64."""

_CLONE_THREAD = 0x00010000

_ONLY_OUR_CODE = 1 << 5 | 1 << 6
"""Of ``perf_event_attr``: ``exclude_kernel`` and ``exclude_hv``."""

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
    """Keep programs that this process starts from gaining rights; True if the system agreed."""
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


# ---- landlock
#
# Landlock, the kernel's way to let a process give up files and sockets for good, without being
# root.
#
# A rule set names what is handled (all kinds of access that this kernel knows) and what is still
# allowed (nothing, or reading). It holds for the thread that asks and for those that it starts
# afterwards. See ``landlock(7)``.


_VERSION_FLAG = 1

_PATH_BENEATH = 1

_EXECUTE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 2, 1 << 3

_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Kinds of access to files by version: 2 adds moves between folders, 3 truncating, 5 ioctl."""

_NETWORK = 3
"""Binding and connecting TCP sockets, from version 4 on."""

_SCOPES = 3
"""Abstract Unix sockets and signals of processes outside, from version 6 on."""


def landlock_version() -> int:
    """Of this kernel's Landlock; 0 where it has none, or it is switched off."""
    return max(0, _call("landlock_create_ruleset", None, 0, _VERSION_FLAG))


def give_up_files(reads: bool) -> bool:
    """Let this thread, and what it starts, open no file any more, or, with ``reads``, read and map
    them only.

    From version 4 on it also takes TCP, from 6 on signals to processes outside. What is open stays
    open. False where the kernel refuses; privileges have to be given up before.
    """
    known = landlock_version()
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


def counters_refused() -> str:
    """Return why ``perf``'s call counts no cycles of this process in hardware, or ""."""
    event = struct.pack("=IIQQQQQ16x", 0, 64, 0, 0, 0, 0, _ONLY_OUR_CODE)  # cycles
    file = _call("perf_event_open", event, 0, -1, -1, 0)
    if file < 0:
        return os.strerror(ctypes.get_errno() or ENOSYS)
    os.close(file)
    return ""


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
