"""The CPU runtime as LLVM IR text: a persistent thread team and its barrier, and from
``timing_ir`` timing loops and plan runners.

There is no C compiler at the users', so the few hundred instructions that must not be Python are
written here.

Memory of a team (byte offsets, each group on its own cache lines), then one 64-byte record per
thread:

      0  i64 threads          64  i32 generation (futex)     128  i32 done
    192  i32 barrier count   256  i32 barrier generation     384  i32 sleepers
    320  ptr kernel, 328 ptr buffers, 336 ptr workspace, 344 i64 active, 352 i64 stop
   1024 + 64*tid: ptr team, i64 tid, i32 cpu, i64 pthread

A launch stores the job, bumps the generation and takes part as thread 0. Every helper answers every
launch that involves more than one thread, also those with tid >= active, so a job is never
overwritten while a helper reads it. Sleeping and waking follow Dekker: the helper announces itself
in ``sleepers`` and then compares the generation (inside the kernel's futex wait); the launcher
bumps the generation and then reads ``sleepers``; both sequentially consistent, so one of them sees
the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from .timing_ir import TIMING_TEXT

__all__ = ["ENTRY_BYTES", "EXPORTS", "runtime_text"]

ENTRY_BYTES = 32
EXPORTS = (
    "tg_barrier", "tg_plan_run", "tg_plan_time", "tg_team_create", "tg_team_destroy", "tg_team_run",
    "tg_team_size", "tg_time",
)  # fmt: skip

_FUTEX = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": "pause", "aarch64": "yield"}
_EVICT = {"x86_64": "clflush ($0)", "aarch64": "dc civac, $0"}
_LINE = 64

_TEXT = r"""
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare i64 @syscall(i64, ...)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal i64 @now() alwaysinline {
  %ts = alloca [2 x i64], align 8
  %rc = call i32 @clock_gettime(i32 4, ptr %ts)
  %s = load i64, ptr %ts
  %np = getelementptr i8, ptr %ts, i64 8
  %n = load i64, ptr %np
  %sn = mul i64 %s, 1000000000
  %t = add i64 %sn, %n
  ret i64 %t
}

define internal void @pin(i32 %cpu) {
entry:
  %mask = alloca [1024 x i8], align 8
  %low = icmp slt i32 %cpu, 0
  %high = icmp sgt i32 %cpu, 8191
  %skip = or i1 %low, %high
  br i1 %skip, label %out, label %set
set:
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 1024, i1 false)
  %byte = lshr i32 %cpu, 3
  %bit = and i32 %cpu, 7
  %bit8 = trunc i32 %bit to i8
  %one = shl i8 1, %bit8
  %b64 = zext i32 %byte to i64
  %p = getelementptr i8, ptr %mask, i64 %b64
  store i8 %one, ptr %p
  %rc = call i32 @sched_setaffinity(i32 0, i64 1024, ptr %mask)
  br label %out
out:
  ret void
}

define internal ptr @helper(ptr %self) {
entry:
  %team = load ptr, ptr %self
  %tidp = getelementptr i8, ptr %self, i64 8
  %tid = load i64, ptr %tidp
  %cpup = getelementptr i8, ptr %self, i64 16
  %cpu = load i32, ptr %cpup
  call void @pin(i32 %cpu)
  %genp = getelementptr i8, ptr %team, i64 64
  %donep = getelementptr i8, ptr %team, i64 128
  %fnp = getelementptr i8, ptr %team, i64 320
  %bufp = getelementptr i8, ptr %team, i64 328
  %wsp = getelementptr i8, ptr %team, i64 336
  %actp = getelementptr i8, ptr %team, i64 344
  %stopp = getelementptr i8, ptr %team, i64 352
  %sleepp = getelementptr i8, ptr %team, i64 384
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %gen, %answered ]
  %start = call i64 @now()
  br label %spin
spin:
  %count = phi i32 [ 0, %idle ], [ %count1, %pausing ], [ %count1, %clock ]
  %g0 = load atomic i32, ptr %genp acquire, align 4
  %fresh0 = icmp ne i32 %g0, %seen
  br i1 %fresh0, label %go, label %pausing
pausing:
  call void asm sideeffect "@PAUSE@", "~{memory}"()
  %count1 = add i32 %count, 1
  %low = and i32 %count1, 63
  %check = icmp eq i32 %low, 0
  br i1 %check, label %clock, label %spin
clock:
  %t = call i64 @now()
  %spent = sub i64 %t, %start
  %tired = icmp sgt i64 %spent, @SPIN_NS@
  br i1 %tired, label %sleep, label %spin
sleep:
  %s0 = atomicrmw add ptr %sleepp, i32 1 seq_cst
  %rc = call i64 (i64, ...) @syscall(i64 @FUTEX@, ptr %genp, i64 128, i32 %seen, ptr null, ptr null, i64 0)
  %s1 = atomicrmw sub ptr %sleepp, i32 1 seq_cst
  %g1 = load atomic i32, ptr %genp acquire, align 4
  %fresh1 = icmp ne i32 %g1, %seen
  br i1 %fresh1, label %go, label %sleep
go:
  %gen = phi i32 [ %g0, %spin ], [ %g1, %sleep ]
  %stop = load i64, ptr %stopp
  %stopping = icmp ne i64 %stop, 0
  br i1 %stopping, label %out, label %work
work:
  %active = load i64, ptr %actp
  %mine = icmp slt i64 %tid, %active
  br i1 %mine, label %run, label %answered
run:
  %fn = load ptr, ptr %fnp
  %buffers = load ptr, ptr %bufp
  %workspace = load ptr, ptr %wsp
  call void %fn(ptr %buffers, ptr %workspace, i64 %tid, ptr %team)
  br label %answered
answered:
  %d = atomicrmw add ptr %donep, i32 1 release
  br label %idle
out:
  ret ptr null
}

define ptr @tg_team_create(i64 %n, ptr %cpus) {
entry:
  %slot = alloca ptr
  %records = shl i64 %n, 6
  %bytes = add i64 %records, 1024
  %rc = call i32 @posix_memalign(ptr %slot, i64 128, i64 %bytes)
  %failed = icmp ne i32 %rc, 0
  br i1 %failed, label %none, label %fill
none:
  ret ptr null
fill:
  %team = load ptr, ptr %slot
  call void @llvm.memset.p0.i64(ptr %team, i8 0, i64 %bytes, i1 false)
  store i64 1, ptr %team
  br label %next
next:
  %tid = phi i64 [ 1, %fill ], [ %tid1, %created ]
  %more = icmp slt i64 %tid, %n
  br i1 %more, label %create, label %out
create:
  %off = shl i64 %tid, 6
  %off1 = add i64 %off, 1024
  %self = getelementptr i8, ptr %team, i64 %off1
  %tidp = getelementptr i8, ptr %self, i64 8
  %cpup = getelementptr i8, ptr %self, i64 16
  %thrp = getelementptr i8, ptr %self, i64 24
  %cp = getelementptr i32, ptr %cpus, i64 %tid
  %cpu = load i32, ptr %cp
  store ptr %team, ptr %self
  store i64 %tid, ptr %tidp
  store i32 %cpu, ptr %cpup
  %rc2 = call i32 @pthread_create(ptr %thrp, ptr null, ptr @helper, ptr %self)
  %bad = icmp ne i32 %rc2, 0
  br i1 %bad, label %out, label %created
created:
  %tid1 = add i64 %tid, 1
  store i64 %tid1, ptr %team
  br label %next
out:
  ret ptr %team
}

define i64 @tg_team_size(ptr %team) {
  %n = load i64, ptr %team
  ret i64 %n
}

define internal void @publish(ptr %team) {
entry:
  %genp = getelementptr i8, ptr %team, i64 64
  %sleepp = getelementptr i8, ptr %team, i64 384
  %g = atomicrmw add ptr %genp, i32 1 seq_cst
  %s = load atomic i32, ptr %sleepp seq_cst, align 4
  %asleep = icmp ne i32 %s, 0
  br i1 %asleep, label %wake, label %out
wake:
  %rc = call i64 (i64, ...) @syscall(i64 @FUTEX@, ptr %genp, i64 129, i32 2147483647, ptr null, ptr null, i64 0)
  br label %out
out:
  ret void
}

define void @tg_team_destroy(ptr %team) {
entry:
  %n = load i64, ptr %team
  %stopp = getelementptr i8, ptr %team, i64 352
  store i64 1, ptr %stopp
  call void @publish(ptr %team)
  br label %next
next:
  %tid = phi i64 [ 1, %entry ], [ %tid1, %join ]
  %more = icmp slt i64 %tid, %n
  br i1 %more, label %join, label %out
join:
  %off = shl i64 %tid, 6
  %off1 = add i64 %off, 1048
  %thrp = getelementptr i8, ptr %team, i64 %off1
  %thr = load i64, ptr %thrp
  %rc = call i32 @pthread_join(i64 %thr, ptr null)
  %tid1 = add i64 %tid, 1
  br label %next
out:
  call void @free(ptr %team)
  ret void
}

define void @tg_team_run(ptr %team, ptr %fn, ptr %buffers, ptr %workspace, i64 %threads) {
entry:
  %actp = getelementptr i8, ptr %team, i64 344
  store i64 %threads, ptr %actp
  %alone = icmp sle i64 %threads, 1
  br i1 %alone, label %single, label %launch
single:
  call void %fn(ptr %buffers, ptr %workspace, i64 0, ptr %team)
  ret void
launch:
  %n = load i64, ptr %team
  %helpers64 = sub i64 %n, 1
  %helpers = trunc i64 %helpers64 to i32
  %donep = getelementptr i8, ptr %team, i64 128
  %fnp = getelementptr i8, ptr %team, i64 320
  %bufp = getelementptr i8, ptr %team, i64 328
  %wsp = getelementptr i8, ptr %team, i64 336
  store ptr %fn, ptr %fnp
  store ptr %buffers, ptr %bufp
  store ptr %workspace, ptr %wsp
  store atomic i32 0, ptr %donep monotonic, align 4
  call void @publish(ptr %team)
  call void %fn(ptr %buffers, ptr %workspace, i64 0, ptr %team)
  br label %wait
wait:
  %count = phi i32 [ 0, %launch ], [ %count1, %pausing ], [ %count1, %yielding ]
  %d = load atomic i32, ptr %donep acquire, align 4
  %all = icmp eq i32 %d, %helpers
  br i1 %all, label %out, label %pausing
pausing:
  call void asm sideeffect "@PAUSE@", "~{memory}"()
  %count1 = add i32 %count, 1
  %long = icmp ugt i32 %count1, @BARRIER_SPINS@
  br i1 %long, label %yielding, label %wait
yielding:
  %rc = call i32 @sched_yield()
  br label %wait
out:
  ret void
}

define void @tg_barrier(ptr %team) {
entry:
  %actp = getelementptr i8, ptr %team, i64 344
  %n = load i64, ptr %actp
  %alone = icmp sle i64 %n, 1
  br i1 %alone, label %out, label %arrive
arrive:
  %countp = getelementptr i8, ptr %team, i64 192
  %genp = getelementptr i8, ptr %team, i64 256
  %g = load atomic i32, ptr %genp acquire, align 4
  %before = atomicrmw add ptr %countp, i32 1 acq_rel
  %n32 = trunc i64 %n to i32
  %lastid = sub i32 %n32, 1
  %last = icmp eq i32 %before, %lastid
  br i1 %last, label %release, label %wait
release:
  store atomic i32 0, ptr %countp monotonic, align 4
  %g1 = add i32 %g, 1
  store atomic i32 %g1, ptr %genp release, align 4
  ret void
wait:
  %count = phi i32 [ 0, %arrive ], [ %count1, %pausing ], [ %count1, %yielding ]
  %now = load atomic i32, ptr %genp acquire, align 4
  %opened = icmp ne i32 %now, %g
  br i1 %opened, label %out, label %pausing
pausing:
  call void asm sideeffect "@PAUSE@", "~{memory}"()
  %count1 = add i32 %count, 1
  %long = icmp ugt i32 %count1, @BARRIER_SPINS@
  br i1 %long, label %yielding, label %wait
yielding:
  %rc = call i32 @sched_yield()
  br label %wait
out:
  ret void
}

"""


def runtime_text(
    machine: str, features: Sequence[str] = (), spin_us: int = 80, barrier_spins: int = 4096
) -> str:
    """The runtime's module for ``machine`` (``platform.machine()``): x86_64 or aarch64 Linux.

    ``features``: of the target, as LLVM writes them; a core with ``clflushopt`` drops cache lines
    several at a time. ``spin_us``: how long an idle helper spins before it sleeps;
    ``barrier_spins``: pauses before a waiter yields. Raises KeyError for another architecture.
    """
    values = {
        "@FUTEX@": str(_FUTEX[machine]),
        "@PAUSE@": _PAUSE[machine],
        "@EVICT@": "clflushopt ($0)" if "+clflushopt" in features else _EVICT[machine],
        "@LINE@": str(_LINE),
        "@LAST@": str(_LINE - 1),
        "@SPIN_NS@": str(spin_us * 1000),
        "@BARRIER_SPINS@": str(barrier_spins),
        "@ENTRY_BYTES@": str(ENTRY_BYTES),
    }
    text = _TEXT + TIMING_TEXT
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text
