"""The CPU runtime's timing as LLVM IR text: eviction, timed launches, plans run and timed.

It is a part of the module that ``team_ir`` makes, and stands on its team.
"""

from __future__ import annotations

__all__ = ["TIMING_TEXT"]

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
