"""Work on whole buffers for verifying a candidate, as LLVM IR text: copy parts, fill, digest and
judge, for a team.

Each function is called like a kernel, once per thread: ``void f(ptr args, ptr results, i64 tid, ptr
team)``. ``args`` holds i64 words, the last of them the thread count; thread ``tid`` takes the
``tid``-th part of the elements, whole cache lines where that goes, and leaves what it found in its
own 64 bytes of ``results``:

    tg_fill   args to, byte, bytes, threads
    tg_judge  args got (f32), expected (f64), allowed (f64), elements, threads
              i64 1 where |got - expected| <= allowed for all, else 0;
              double, the greatest |got - expected|
    tg_digest args from, bytes (a multiple of 64), threads
              eight i64: lane l of word w after word ends as mix((l ^ w) * odd),
              which no single word leaves as it was
    tg_stride1, 2, 4, 8 by bytes of an element
              args to, from, row, to step, from step, rows, rank, dims, threads
              rows of ``row`` elements, steps in bytes; dims holds (extent, to step, from step)
              of each outer dimension
"""

from __future__ import annotations

__all__ = ["BULK_EXPORTS", "MOST_DIMS", "RESULT_BYTES", "bulk_text"]

_SIZES = (1, 2, 4, 8)
BULK_EXPORTS = ("tg_fill", "tg_judge", "tg_digest", *(f"tg_stride{size}" for size in _SIZES))
MOST_DIMS = 32
RESULT_BYTES = 64

_TEXT = r"""
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
    return _TEXT + "".join(strides).replace("@DIMS@", str(MOST_DIMS))
