"""What verifying a candidate does to whole buffers, as LLVM IR text: compare, copy, fill and judge, shared by a team.

Each function is called like a kernel, once per thread: ``void f(ptr args, ptr results, i64 tid, ptr team)``. ``args``
holds i64 words, the last of them the thread count; thread ``tid`` takes the ``tid``-th part of the elements, whole
cache lines where that goes, and leaves what it found in its own 64 bytes of ``results``:

    tg_same   args a, b, bytes, threads                     i64 1 where the bytes are equal, else 0
    tg_copy   args to, from, bytes, threads
    tg_fill   args to, byte, bytes, threads
    tg_judge  args got (f32), expected (f64), allowed (f64), elements, threads
              i64 1 where |got - expected| <= allowed for all, else 0; double, the greatest |got - expected|
"""

from __future__ import annotations

__all__ = ["BULK_EXPORTS", "RESULT_BYTES", "bulk_text"]

BULK_EXPORTS = ("tg_copy", "tg_fill", "tg_judge", "tg_same")
RESULT_BYTES = 64

_TEXT = r"""
declare i32 @memcmp(ptr, ptr, i64)
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

define void @tg_same(ptr %args, ptr %results, i64 %tid, ptr %team) {
  %a = call i64 @word(ptr %args, i64 0)
  %b = call i64 @word(ptr %args, i64 1)
  %n = call i64 @word(ptr %args, i64 2)
  %threads = call i64 @word(ptr %args, i64 3)
  %next = add i64 %tid, 1
  %start = call i64 @part(i64 %n, i64 %tid, i64 %threads)
  %stop = call i64 @part(i64 %n, i64 %next, i64 %threads)
  %length = sub i64 %stop, %start
  %a1 = add i64 %a, %start
  %b1 = add i64 %b, %start
  %pa = inttoptr i64 %a1 to ptr
  %pb = inttoptr i64 %b1 to ptr
  %rc = call i32 @memcmp(ptr %pa, ptr %pb, i64 %length)
  %equal = icmp eq i32 %rc, 0
  %word = zext i1 %equal to i64
  %out = call ptr @result(ptr %results, i64 %tid)
  store i64 %word, ptr %out
  ret void
}

define void @tg_copy(ptr %args, ptr %results, i64 %tid, ptr %team) {
  %to = call i64 @word(ptr %args, i64 0)
  %from = call i64 @word(ptr %args, i64 1)
  %n = call i64 @word(ptr %args, i64 2)
  %threads = call i64 @word(ptr %args, i64 3)
  %next = add i64 %tid, 1
  %start = call i64 @part(i64 %n, i64 %tid, i64 %threads)
  %stop = call i64 @part(i64 %n, i64 %next, i64 %threads)
  %length = sub i64 %stop, %start
  %to1 = add i64 %to, %start
  %from1 = add i64 %from, %start
  %pt = inttoptr i64 %to1 to ptr
  %pf = inttoptr i64 %from1 to ptr
  %rc = call ptr @memcpy(ptr %pt, ptr %pf, i64 %length)
  ret void
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


def bulk_text() -> str:
    """The module; it names no architecture."""
    return _TEXT
