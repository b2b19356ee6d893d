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

__all__ = [
    "BULK_EXPORTS",
    "ENTRY_BYTES",
    "EXPORTS",
    "MOST_DIMS",
    "RESULT_BYTES",
    "TIMING_TEXT",
    "bulk_text",
    "runtime_text",
]


# ---- timing
#
# The CPU runtime's timing as LLVM IR text: eviction, timed launches, plans run and timed.
#
# It is a part of the module that ``team_ir`` makes, and stands on its team.


TIMING_TEXT = r"""; Drops memory from every cache of the machine, line by line: what is timed next finds it in memory only. Dirty lines
; are written back first, so that no later launch pays for them. Each thread of the team takes its part of every range,
; so that all of them are awake when what is timed begins.
define internal void @evict_part(ptr %ranges, ptr %job, i64 %tid, ptr %team) {
entry:
  %count = load i64, ptr %job
  %threadsp = getelementptr i64, ptr %job, i64 1
  %threads = load i64, ptr %threadsp
  %next_tid = add i64 %tid, 1
  br label %range
range:
  %r = phi i64 [ 0, %entry ], [ %r1, %ranged ]
  %at = shl i64 %r, 1
  %basep = getelementptr i64, ptr %ranges, i64 %at
  %base = load i64, ptr %basep
  %bytesp = getelementptr i64, ptr %basep, i64 1
  %bytes = load i64, ptr %bytesp
  %end = add i64 %base, %bytes
  %start = and i64 %base, -@LINE@
  %span = sub i64 %end, %start
  %up = add i64 %span, @LAST@
  %lines = udiv i64 %up, @LINE@
  %from_n = mul i64 %lines, %tid
  %from_l = udiv i64 %from_n, %threads
  %to_n = mul i64 %lines, %next_tid
  %to_l = udiv i64 %to_n, %threads
  %from_b = mul i64 %from_l, @LINE@
  %to_b = mul i64 %to_l, @LINE@
  %from = add i64 %start, %from_b
  %to = add i64 %start, %to_b
  br label %next
next:
  %i = phi i64 [ %from, %range ], [ %i1, %drop ]
  %more = icmp ult i64 %i, %to
  br i1 %more, label %drop, label %ranged
drop:
  %p = inttoptr i64 %i to ptr
  call void asm sideeffect "@EVICT@", "r,~{memory}"(ptr %p)
  %i1 = add i64 %i, @LINE@
  br label %next
ranged:
  %r1 = add i64 %r, 1
  %again = icmp slt i64 %r1, %count
  br i1 %again, label %range, label %fence
fence:
  fence seq_cst
  ret void
}

define internal void @evict(ptr %team, ptr %ranges, i64 %count) {
entry:
  %job = alloca [2 x i64]
  %none = icmp sle i64 %count, 0
  br i1 %none, label %out, label %share
share:
  %threads = call i64 @tg_team_size(ptr %team)
  store i64 %count, ptr %job
  %threadsp = getelementptr i64, ptr %job, i64 1
  store i64 %threads, ptr %threadsp
  call void @tg_team_run(ptr %team, ptr @evict_part, ptr %ranges, ptr %job, i64 %threads)
  br label %out
out:
  ret void
}

define void @tg_time(ptr %team, ptr %fn, ptr %buffers, ptr %workspace, i64 %threads, i64 %samples, i64 %inner,
                     ptr %ranges, i64 %count, ptr %seconds) {
entry:
  %innerf = sitofp i64 %inner to double
  %scale = fdiv double 1.0e-9, %innerf
  br label %next
next:
  %s = phi i64 [ 0, %entry ], [ %s1, %timed ]
  %more = icmp slt i64 %s, %samples
  br i1 %more, label %prepare, label %out
prepare:
  call void @evict(ptr %team, ptr %ranges, i64 %count)
  %t0 = call i64 @now()
  br label %repeat
repeat:
  %r = phi i64 [ 0, %prepare ], [ %r1, %repeat ]
  call void @tg_team_run(ptr %team, ptr %fn, ptr %buffers, ptr %workspace, i64 %threads)
  %r1 = add i64 %r, 1
  %again = icmp slt i64 %r1, %inner
  br i1 %again, label %repeat, label %timed
timed:
  %t1 = call i64 @now()
  %dt = sub i64 %t1, %t0
  %df = sitofp i64 %dt to double
  %sec = fmul double %df, %scale
  %p = getelementptr double, ptr %seconds, i64 %s
  store double %sec, ptr %p
  %s1 = add i64 %s, 1
  br label %next
out:
  ret void
}

define internal void @entry(ptr %team, ptr %record) alwaysinline {
  %bufp = getelementptr i8, ptr %record, i64 8
  %wsp = getelementptr i8, ptr %record, i64 16
  %thrp = getelementptr i8, ptr %record, i64 24
  %fn = load ptr, ptr %record
  %buffers = load ptr, ptr %bufp
  %workspace = load ptr, ptr %wsp
  %threads = load i64, ptr %thrp
  call void @tg_team_run(ptr %team, ptr %fn, ptr %buffers, ptr %workspace, i64 %threads)
  ret void
}

define void @tg_plan_run(ptr %team, ptr %entries, i64 %n) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %run ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %run, label %out
run:
  %off = mul i64 %i, @ENTRY_BYTES@
  %record = getelementptr i8, ptr %entries, i64 %off
  call void @entry(ptr %team, ptr %record)
  %i1 = add i64 %i, 1
  br label %next
out:
  ret void
}

define internal void @plan_each(ptr %team, ptr %entries, i64 %n, ptr %seconds) {
entry:
  %begin = call i64 @now()
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %run ]
  %t0 = phi i64 [ %begin, %entry ], [ %t1, %run ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %run, label %out
run:
  %off = mul i64 %i, @ENTRY_BYTES@
  %record = getelementptr i8, ptr %entries, i64 %off
  call void @entry(ptr %team, ptr %record)
  %t1 = call i64 @now()
  %dt = sub i64 %t1, %t0
  %df = sitofp i64 %dt to double
  %sec = fmul double %df, 1.0e-9
  %p = getelementptr double, ptr %seconds, i64 %i
  %old = load double, ptr %p
  %sum = fadd double %old, %sec
  store double %sum, ptr %p
  %i1 = add i64 %i, 1
  br label %next
out:
  ret void
}

define void @tg_plan_time(ptr %team, ptr %entries, i64 %n, i64 %samples, ptr %ranges, i64 %count, ptr %seconds,
                          ptr %each) {
entry:
  %total = icmp eq ptr %each, null
  br label %next
next:
  %s = phi i64 [ 0, %entry ], [ %s1, %timed ]
  %more = icmp slt i64 %s, %samples
  br i1 %more, label %prepare, label %out
prepare:
  call void @evict(ptr %team, ptr %ranges, i64 %count)
  %t0 = call i64 @now()
  br i1 %total, label %whole, label %parts
whole:
  call void @tg_plan_run(ptr %team, ptr %entries, i64 %n)
  br label %timed
parts:
  call void @plan_each(ptr %team, ptr %entries, i64 %n, ptr %each)
  br label %timed
timed:
  %t1 = call i64 @now()
  %dt = sub i64 %t1, %t0
  %df = sitofp i64 %dt to double
  %sec = fmul double %df, 1.0e-9
  %p = getelementptr double, ptr %seconds, i64 %s
  store double %sec, ptr %p
  %s1 = add i64 %s, 1
  br label %next
out:
  ret void
}
"""


# ---- whole buffers
#
# Work on whole buffers for verifying a candidate, as LLVM IR text: copy parts, fill, digest and
# judge, for a team.
#
# Each function is called like a kernel, once per thread: ``void f(ptr args, ptr results, i64 tid,
# ptr team)``. ``args`` holds i64 words, the last of them the thread count; thread ``tid`` takes the
# ``tid``-th part of the elements, whole cache lines where that goes, and leaves what it found in
# its own 64 bytes of ``results``:
#
#     tg_fill   args to, byte, bytes, threads
#     tg_judge  args got (f32), expected (f64), allowed (f64), elements, threads
#               i64 1 where |got - expected| <= allowed for all, else 0;
#               double, the greatest |got - expected|
#     tg_digest args from, bytes (a multiple of 64), threads
#               eight i64: lane l of word w after word ends as mix((l ^ w) * odd),
#               which no single word leaves as it was
#     tg_stride1, 2, 4, 8 by bytes of an element
#               args to, from, row, to step, from step, rows, rank, dims, threads
#               rows of ``row`` elements, steps in bytes; dims holds (extent, to step, from step)
#               of each outer dimension


_SIZES = (1, 2, 4, 8)
BULK_EXPORTS = ("tg_fill", "tg_judge", "tg_digest", *(f"tg_stride{size}" for size in _SIZES))
MOST_DIMS = 32
RESULT_BYTES = 64

_BULK = r"""
declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
declare double @llvm.fabs.f64(double)
declare <8 x double> @llvm.fabs.v8f64(<8 x double>)
declare i1 @llvm.vector.reduce.and.v8i1(<8 x i1>)
declare double @llvm.vector.reduce.fmax.v8f64(<8 x double>)
declare i64 @llvm.umin.i64(i64, i64)

define internal i64 @word(ptr %args, i64 %n) alwaysinline {
  %p = getelementptr i64, ptr %args, i64 %n
  %x = load i64, ptr %p
  ret i64 %x
}

; The extent of an outer dimension, and its steps in what is written and read.
define internal [3 x i64] @dim(ptr %dims, i64 %d) alwaysinline {
  %p = getelementptr [3 x i64], ptr %dims, i64 %d
  %x = load [3 x i64], ptr %p
  ret [3 x i64] %x
}

; Where part %k of %n starts, in parts of whole multiples of 64, but for the last.
define internal i64 @part(i64 %n, i64 %k, i64 %threads) alwaysinline {
  %less = sub i64 %threads, 1
  %up = add i64 %n, %less
  %each = udiv i64 %up, %threads
  %more = add i64 %each, 63
  %whole = and i64 %more, -64
  %at = mul i64 %whole, %k
  %start = call i64 @llvm.umin.i64(i64 %at, i64 %n)
  ret i64 %start
}

define internal ptr @result(ptr %results, i64 %tid) alwaysinline {
  %off = mul i64 %tid, 64
  %p = getelementptr i8, ptr %results, i64 %off
  ret ptr %p
}

define void @tg_fill(ptr %args, ptr %results, i64 %tid, ptr %team) {
  %to = call i64 @word(ptr %args, i64 0)
  %byte = call i64 @word(ptr %args, i64 1)
  %n = call i64 @word(ptr %args, i64 2)
  %threads = call i64 @word(ptr %args, i64 3)
  %next = add i64 %tid, 1
  %start = call i64 @part(i64 %n, i64 %tid, i64 %threads)
  %stop = call i64 @part(i64 %n, i64 %next, i64 %threads)
  %length = sub i64 %stop, %start
  %to1 = add i64 %to, %start
  %pt = inttoptr i64 %to1 to ptr
  %byte32 = trunc i64 %byte to i32
  %rc = call ptr @memset(ptr %pt, i32 %byte32, i64 %length)
  ret void
}

; Each step is one to one in the lane, so that words which differ leave lanes that differ; the shift lets high bits,
; which a product passes on upwards alone, take part in the low ones.
define void @tg_digest(ptr %args, ptr %results, i64 %tid, ptr %team) {
entry:
  %from = call i64 @word(ptr %args, i64 0)
  %n = call i64 @word(ptr %args, i64 1)
  %threads = call i64 @word(ptr %args, i64 2)
  %next = add i64 %tid, 1
  %start = call i64 @part(i64 %n, i64 %tid, i64 %threads)
  %stop = call i64 @part(i64 %n, i64 %next, i64 %threads)
  %bytes = inttoptr i64 %from to ptr
  br label %head
head:
  %i = phi i64 [ %start, %entry ], [ %i1, %step ]
  %lanes = phi <8 x i64> [ splat (i64 -3750763034362895579), %entry ], [ %lanes1, %step ]
  %more = icmp ult i64 %i, %stop
  br i1 %more, label %step, label %out
step:
  %p = getelementptr i8, ptr %bytes, i64 %i
  %words = load <8 x i64>, ptr %p, align 1
  %x = xor <8 x i64> %lanes, %words
  %y = mul <8 x i64> %x, splat (i64 -7046029254386353131)
  %z = lshr <8 x i64> %y, splat (i64 32)
  %lanes1 = xor <8 x i64> %y, %z
  %i1 = add i64 %i, 64
  br label %head
out:
  %at = call ptr @result(ptr %results, i64 %tid)
  store <8 x i64> %lanes, ptr %at, align 8
  ret void
}

define void @tg_judge(ptr %args, ptr %results, i64 %tid, ptr %team) {
entry:
  %gotw = call i64 @word(ptr %args, i64 0)
  %expectedw = call i64 @word(ptr %args, i64 1)
  %allowedw = call i64 @word(ptr %args, i64 2)
  %n = call i64 @word(ptr %args, i64 3)
  %threads = call i64 @word(ptr %args, i64 4)
  %got = inttoptr i64 %gotw to ptr
  %expected = inttoptr i64 %expectedw to ptr
  %allowed = inttoptr i64 %allowedw to ptr
  %next = add i64 %tid, 1
  %start = call i64 @part(i64 %n, i64 %tid, i64 %threads)
  %stop = call i64 @part(i64 %n, i64 %next, i64 %threads)
  %length = sub i64 %stop, %start
  %vectors = and i64 %length, -8
  %middle = add i64 %start, %vectors
  br label %wide
wide:
  %i = phi i64 [ %start, %entry ], [ %i8, %eight ]
  %good = phi <8 x i1> [ splat (i1 true), %entry ], [ %good1, %eight ]
  %most = phi <8 x double> [ zeroinitializer, %entry ], [ %most1, %eight ]
  %left = icmp ult i64 %i, %middle
  br i1 %left, label %eight, label %reduce
eight:
  %gp = getelementptr float, ptr %got, i64 %i
  %ep = getelementptr double, ptr %expected, i64 %i
  %ap = getelementptr double, ptr %allowed, i64 %i
  %g = load <8 x float>, ptr %gp, align 4
  %e = load <8 x double>, ptr %ep, align 8
  %a = load <8 x double>, ptr %ap, align 8
  %w = fpext <8 x float> %g to <8 x double>
  %d = fsub <8 x double> %w, %e
  %error = call <8 x double> @llvm.fabs.v8f64(<8 x double> %d)
  %ok = fcmp ole <8 x double> %error, %a
  %good1 = and <8 x i1> %good, %ok
  %larger = fcmp ogt <8 x double> %error, %most
  %most1 = select <8 x i1> %larger, <8 x double> %error, <8 x double> %most
  %i8 = add i64 %i, 8
  br label %wide
reduce:
  %all = call i1 @llvm.vector.reduce.and.v8i1(<8 x i1> %good)
  %top = call double @llvm.vector.reduce.fmax.v8f64(<8 x double> %most)
  br label %narrow
narrow:
  %j = phi i64 [ %middle, %reduce ], [ %j1, %one ]
  %sofar = phi i1 [ %all, %reduce ], [ %sofar1, %one ]
  %max = phi double [ %top, %reduce ], [ %max1, %one ]
  %rest = icmp ult i64 %j, %stop
  br i1 %rest, label %one, label %out
one:
  %gp1 = getelementptr float, ptr %got, i64 %j
  %ep1 = getelementptr double, ptr %expected, i64 %j
  %ap1 = getelementptr double, ptr %allowed, i64 %j
  %g1 = load float, ptr %gp1
  %e1 = load double, ptr %ep1
  %a1 = load double, ptr %ap1
  %w1 = fpext float %g1 to double
  %d1 = fsub double %w1, %e1
  %error1 = call double @llvm.fabs.f64(double %d1)
  %ok1 = fcmp ole double %error1, %a1
  %sofar1 = and i1 %sofar, %ok1
  %larger1 = fcmp ogt double %error1, %max
  %max1 = select i1 %larger1, double %error1, double %max
  %j1 = add i64 %j, 1
  br label %narrow
out:
  %verdict = zext i1 %sofar to i64
  %at = call ptr @result(ptr %results, i64 %tid)
  store i64 %verdict, ptr %at
  %maxp = getelementptr i8, ptr %at, i64 8
  store double %max, ptr %maxp
  ret void
}
"""


_STRIDE = r"""
define void @tg_stride@SIZE@(ptr %args, ptr %results, i64 %tid, ptr %team) {
entry:
  %counts = alloca [@DIMS@ x i64]
  %tow = call i64 @word(ptr %args, i64 0)
  %fromw = call i64 @word(ptr %args, i64 1)
  %row = call i64 @word(ptr %args, i64 2)
  %to_step = call i64 @word(ptr %args, i64 3)
  %from_step = call i64 @word(ptr %args, i64 4)
  %rows = call i64 @word(ptr %args, i64 5)
  %rank = call i64 @word(ptr %args, i64 6)
  %dimsw = call i64 @word(ptr %args, i64 7)
  %threads = call i64 @word(ptr %args, i64 8)
  %dims = inttoptr i64 %dimsw to ptr
  %to_step_is = icmp eq i64 %to_step, @SIZE@
  %from_step_is = icmp eq i64 %from_step, @SIZE@
  %dense = and i1 %to_step_is, %from_step_is
  %row_bytes = mul i64 %row, @SIZE@
  %next_tid = add i64 %tid, 1
  %first_n = mul i64 %rows, %tid
  %first = udiv i64 %first_n, %threads
  %last_n = mul i64 %rows, %next_tid
  %last = udiv i64 %last_n, %threads
  br label %place
place:  ; the counters and addresses of the first row
  %d = phi i64 [ %rank, %entry ], [ %d1, %placing ]
  %left = phi i64 [ %first, %entry ], [ %left1, %placing ]
  %to_at = phi i64 [ %tow, %entry ], [ %to_at1, %placing ]
  %from_at = phi i64 [ %fromw, %entry ], [ %from_at1, %placing ]
  %outer = icmp sgt i64 %d, 0
  br i1 %outer, label %placing, label %begin
placing:
  %d1 = sub i64 %d, 1
  %dim = call [3 x i64] @dim(ptr %dims, i64 %d1)
  %extent = extractvalue [3 x i64] %dim, 0
  %ts = extractvalue [3 x i64] %dim, 1
  %fs = extractvalue [3 x i64] %dim, 2
  %count = urem i64 %left, %extent
  %left1 = udiv i64 %left, %extent
  %cp = getelementptr i64, ptr %counts, i64 %d1
  store i64 %count, ptr %cp
  %tm = mul i64 %count, %ts
  %fm = mul i64 %count, %fs
  %to_at1 = add i64 %to_at, %tm
  %from_at1 = add i64 %from_at, %fm
  br label %place
begin:
  br label %next
next:
  %r = phi i64 [ %first, %begin ], [ %r1, %moved ]
  %to = phi i64 [ %to_at, %begin ], [ %to1, %moved ]
  %from = phi i64 [ %from_at, %begin ], [ %from1, %moved ]
  %more = icmp ult i64 %r, %last
  br i1 %more, label %copy, label %out
copy:
  br i1 %dense, label %whole, label %element
whole:
  %pt = inttoptr i64 %to to ptr
  %pf = inttoptr i64 %from to ptr
  %rc = call ptr @memcpy(ptr %pt, ptr %pf, i64 %row_bytes)
  br label %copied
element:
  %j = phi i64 [ 0, %copy ], [ %j1, %element ]
  %te = phi i64 [ %to, %copy ], [ %te1, %element ]
  %fe = phi i64 [ %from, %copy ], [ %fe1, %element ]
  %pe = inttoptr i64 %fe to ptr
  %x = load @TYPE@, ptr %pe, align 1
  %qe = inttoptr i64 %te to ptr
  store @TYPE@ %x, ptr %qe, align 1
  %te1 = add i64 %te, %to_step
  %fe1 = add i64 %fe, %from_step
  %j1 = add i64 %j, 1
  %again = icmp ult i64 %j1, %row
  br i1 %again, label %element, label %copied
copied:
  %r1 = add i64 %r, 1
  br label %move
move:  ; on to the next row, as an odometer counts
  %m = phi i64 [ %rank, %copied ], [ %m1, %carry ]
  %tv = phi i64 [ %to, %copied ], [ %tv2, %carry ]
  %fv = phi i64 [ %from, %copied ], [ %fv2, %carry ]
  %inside = icmp sgt i64 %m, 0
  br i1 %inside, label %moving, label %moved
moving:
  %m1 = sub i64 %m, 1
  %mdim = call [3 x i64] @dim(ptr %dims, i64 %m1)
  %mextent = extractvalue [3 x i64] %mdim, 0
  %mt = extractvalue [3 x i64] %mdim, 1
  %mf = extractvalue [3 x i64] %mdim, 2
  %mcp = getelementptr i64, ptr %counts, i64 %m1
  %mc = load i64, ptr %mcp
  %mc1 = add i64 %mc, 1
  %tv1 = add i64 %tv, %mt
  %fv1 = add i64 %fv, %mf
  %over = icmp uge i64 %mc1, %mextent
  br i1 %over, label %carry, label %stay
stay:
  store i64 %mc1, ptr %mcp
  br label %moved
carry:
  store i64 0, ptr %mcp
  %tback = mul i64 %mt, %mextent
  %fback = mul i64 %mf, %mextent
  %tv2 = sub i64 %tv1, %tback
  %fv2 = sub i64 %fv1, %fback
  br label %move
moved:
  %to1 = phi i64 [ %tv, %move ], [ %tv1, %stay ]
  %from1 = phi i64 [ %fv, %move ], [ %fv1, %stay ]
  br label %next
out:
  ret void
}
"""


def bulk_text() -> str:
    """The module; it names no architecture."""
    strides = (_STRIDE.replace("@SIZE@", str(n)).replace("@TYPE@", f"i{8 * n}") for n in _SIZES)
    return _BULK + "".join(strides).replace("@DIMS@", str(MOST_DIMS))


# ---- team ir


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
