"""The native code of the CPU runtime: a persistent thread team and its barrier, timing loops, runners
of plans, and work on whole buffers.

There is no C compiler at the users', so the few hundred instructions that must not be Python are
written here, as LLVM IR text (``ir_text``).

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunegrad.devices.host.ir_text import Functions, Value, Writer

__all__ = [
    "BULK_EXPORTS",
    "ENTRY_BYTES",
    "EXPORTS",
    "MOST_DIMS",
    "RESULT_BYTES",
    "bulk_text",
    "runtime_text",
]


@dataclass(frozen=True, slots=True)
class _Machine:
    """The words of a machine."""

    futex: int
    pause: str
    evict: str


_FUTEX = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": "pause", "aarch64": "yield"}
_EVICT = {"x86_64": "clflush ($0)", "aarch64": "dc civac, $0"}
_LINE = 64

_SPIN_NS = 80_000
"""Of an idle helper, before it sleeps."""
_BARRIER_SPINS = 4096
"""Pauses before a waiter yields."""

_GENERATION, _DONE, _ARRIVED, _OPENED, _SLEEPERS = 64, 128, 192, 256, 384
_KERNEL, _BUFFERS, _WORKSPACE, _ACTIVE, _STOP = 320, 328, 336, 344, 352
_RECORDS, _RECORD_BYTES = 1024, 64
_OWN_TID, _OWN_CPU, _OWN_THREAD = 8, 16, 24
_WAIT, _WAKE = 128, 129
"""Of a futex that this process alone uses."""

ENTRY_BYTES = 32
EXPORTS = (
    "tg_barrier", "tg_plan_run", "tg_plan_time", "tg_team_create", "tg_team_destroy", "tg_team_run",
    "tg_team_size", "tg_time",
)  # fmt: skip

_runtime = Functions()


def runtime_text(machine: str, features: Sequence[str] = ()) -> str:
    """The runtime's module for ``machine`` (``platform.machine()``): x86_64 or aarch64 Linux.

    ``features``: of the target, as LLVM writes them; a core with ``clflushopt`` drops cache lines
    several at a time. Raises KeyError for another architecture.
    """
    evict = "clflushopt ($0)" if "+clflushopt" in features else _EVICT[machine]
    return _runtime.text(_Machine(_FUTEX[machine], _PAUSE[machine], evict))


# ---- team


@_runtime.define("internal i64 @now() alwaysinline")
def _(f: Writer) -> None:
    time, raw = f.room("[2 x i64]"), f.constant("i32", 4)
    f.call("i32", "clock_gettime", raw, time)
    f.give(f.load("i64", time) * 1_000_000_000 + f.load("i64", f.field(time, 8)))


def _now(f: Writer) -> Value:
    return f.call("i64", "now")


@_runtime.define("internal void @pin(i32 %cpu)")
def _(f: Writer, cpu: Value) -> None:
    mask, size = f.room("[1024 x i8]"), f.constant("i64", 1024)
    zero = f.constant("i32", 0)
    with f.when(cpu < 8192):  # -1 is more
        f.call("ptr", "memset", mask, zero, size)
        bit = f.constant("i8", 1) << f.cast("trunc", cpu & 7, "i8")
        f.store(bit, f.field(mask, f.cast("zext", cpu >> 3, "i64")))
        f.call("i32", "sched_setaffinity", zero, size, mask)


def _futex(f: Writer, at: Value, action: int, value: Value) -> None:
    words, null, zero = f.words, f.constant("ptr", "null"), f.constant("i64", 0)
    numbers = f.constant("i64", words.futex), at, f.constant("i64", action)
    f.system(*numbers, value, null, null, zero)


@_runtime.define("internal ptr @helper(ptr %self)")
def _(f: Writer, self: Value) -> None:
    team, tid = f.load("ptr", self), f.load("i64", f.field(self, _OWN_TID))
    f.call("void", "pin", f.load("i32", f.field(self, _OWN_CPU)))
    generation, sleepers = f.field(team, _GENERATION), f.field(team, _SLEEPERS)
    with f.loop(f.constant("i32", 0)) as idle:
        (seen,) = idle.values
        start = _now(f)
        with f.loop(f.constant("i32", 0)) as spin:
            (count,) = spin.values
            found = f.load("i32", generation, "acquire")
            spin.only_while(found.equals(seen))
            f.asm(f.words.pause)
            count += 1
            with f.when((count & 63).equals(0)), f.when(_now(f) - start > _SPIN_NS):
                f.change("add", sleepers, "seq_cst")
                _futex(f, generation, _WAIT, seen)
                f.change("sub", sleepers, "seq_cst")
            spin.again(count)
        idle.only_while(f.load("i64", f.field(team, _STOP)).equals(0))
        with f.when(tid < f.load("i64", f.field(team, _ACTIVE))):
            buffers, workspace = (f.load("ptr", f.field(team, x)) for x in (_BUFFERS, _WORKSPACE))
            f.enter(f.load("ptr", f.field(team, _KERNEL)), buffers, workspace, tid, team)
        f.change("add", f.field(team, _DONE), "release")
        idle.again(found)
    f.give(f.constant("ptr", "null"))


def _record(f: Writer, team: Value, tid: Value) -> Value:
    return f.field(team, tid * _RECORD_BYTES + _RECORDS)


@_runtime.define("ptr @tg_team_create(i64 %n, ptr %cpus)")
def _(f: Writer, n: Value, cpus: Value) -> None:
    slot, null = f.room("ptr"), f.constant("ptr", "null")
    nbytes = n * _RECORD_BYTES + _RECORDS
    failed = f.call("i32", "posix_memalign", slot, f.constant("i64", 128), nbytes)
    with f.when(failed.differs(0)):
        f.give(null)
    team, one = f.load("ptr", slot), f.constant("i64", 1)
    f.call("ptr", "memset", team, f.constant("i32", 0), nbytes)
    f.store(one, team)
    with f.loop(one) as loop:
        (tid,) = loop.values
        loop.only_while(tid < n)
        self = _record(f, team, tid)
        f.store(team, self)
        f.store(tid, f.field(self, _OWN_TID))
        f.store(f.load("i32", f.element("i32", cpus, tid)), f.field(self, _OWN_CPU))
        thread, helper = f.field(self, _OWN_THREAD), f.constant("ptr", "@helper")
        loop.only_while(f.call("i32", "pthread_create", thread, null, helper, self).equals(0))
        f.store(tid + 1, team)
        loop.again(tid + 1)
    f.give(team)


@_runtime.define("i64 @tg_team_size(ptr %team)")
def _(f: Writer, team: Value) -> None:
    f.give(f.load("i64", team))


def _publish(f: Writer, team: Value) -> None:
    """Begin a launch: see the module's text for the order."""
    generation = f.field(team, _GENERATION)
    f.change("add", generation, "seq_cst")
    with f.when(f.load("i32", f.field(team, _SLEEPERS), "seq_cst").differs(0)):
        _futex(f, generation, _WAKE, f.constant("i32", (1 << 31) - 1))


@_runtime.define("void @tg_team_destroy(ptr %team)")
def _(f: Writer, team: Value) -> None:
    n = f.load("i64", team)
    f.store(f.constant("i64", 1), f.field(team, _STOP))
    _publish(f, team)
    with f.range(1, n) as tid:
        thread = f.load("i64", f.field(_record(f, team, tid), _OWN_THREAD))
        f.call("i32", "pthread_join", thread, f.constant("ptr", "null"))
    f.call("void", "free", team)


def _wait(f: Writer, at: Value, going: Callable[[Value], Value]) -> None:
    """Spin while an i32 is ``going``; after many pauses other threads have the core in between."""
    with f.loop(f.constant("i32", 0)) as loop:
        loop.only_while(going(f.load("i32", at, "acquire")))
        f.asm(f.words.pause)
        count = loop.values[0] + 1
        with f.when(count > _BARRIER_SPINS):
            f.call("i32", "sched_yield")
        loop.again(count)


@_runtime.define(
    "void @tg_team_run(ptr %team, ptr %fn, ptr %buffers, ptr %workspace, i64 %threads)"
)
def _(f: Writer, team: Value, fn: Value, buffers: Value, workspace: Value, threads: Value) -> None:
    mine = buffers, workspace, f.constant("i64", 0), team
    f.store(threads, f.field(team, _ACTIVE))
    with f.when(threads <= 1):
        f.enter(fn, *mine)
        f.give()
    helpers = f.cast("trunc", f.load("i64", team) - 1, "i32")
    done = f.field(team, _DONE)
    for value, place in ((fn, _KERNEL), (buffers, _BUFFERS), (workspace, _WORKSPACE)):
        f.store(value, f.field(team, place))
    f.store(f.constant("i32", 0), done, "monotonic")
    _publish(f, team)
    f.enter(fn, *mine)
    _wait(f, done, lambda found: found.differs(helpers))


@_runtime.define("void @tg_barrier(ptr %team)")
def _(f: Writer, team: Value) -> None:
    active = f.load("i64", f.field(team, _ACTIVE))
    with f.when(active <= 1):
        f.give()
    arrived, opened = f.field(team, _ARRIVED), f.field(team, _OPENED)
    generation = f.load("i32", opened, "acquire")
    before = f.change("add", arrived, "acq_rel")
    with f.when(before.equals(f.cast("trunc", active, "i32") - 1)):
        f.store(f.constant("i32", 0), arrived, "monotonic")
        f.store(generation + 1, opened, "release")
        f.give()
    _wait(f, opened, lambda found: found.equals(generation))


# ---- timing
#
# Eviction drops memory from every cache of the machine, line by line: what is timed next finds it in
# memory only. Dirty lines are written back first, so that no later launch pays for them. Each thread
# of the team takes its part of every range, so that all of them are awake when what is timed begins.


@_runtime.define("internal void @evict_part(ptr %ranges, ptr %job, i64 %tid, ptr %team)")
def _(f: Writer, ranges: Value, job: Value, tid: Value, _: Value) -> None:
    count, threads = f.load("i64", job), f.load("i64", f.field(job, 8))
    with f.range(0, count) as r:
        pair = f.element("[2 x i64]", ranges, r)
        base, nbytes = f.load("i64", pair), f.load("i64", f.field(pair, 8))
        first = base & -_LINE
        lines = (base + nbytes - first + (_LINE - 1)) // _LINE
        start, stop = (first + lines * t // threads * _LINE for t in (tid, tid + 1))
        with f.range(start, stop, _LINE) as at:
            f.asm(f.words.evict, f.pointer(at))
    f.lines.append("  fence seq_cst")


@_runtime.define("internal void @evict(ptr %team, ptr %ranges, i64 %count)")
def _(f: Writer, team: Value, ranges: Value, count: Value) -> None:
    job = f.room("[2 x i64]")
    with f.when(count.differs(0)):
        threads = f.load("i64", team)
        f.store(count, job)
        f.store(threads, f.field(job, 8))
        f.call("void", "tg_team_run", team, f.constant("ptr", "@evict_part"), ranges, job, threads)


def _seconds(f: Writer, ns: Value) -> Value:
    return f.cast("uitofp", ns, "double") * 1e-9


@_runtime.define(
    "void @tg_time(ptr %team, ptr %fn, ptr %buffers, ptr %workspace, i64 %threads, "
    "i64 %samples, i64 %inner, ptr %ranges, i64 %count, ptr %seconds)"
)
def _(f: Writer, team: Value, fn: Value, buffers: Value, workspace: Value, threads: Value,
      samples: Value, inner: Value, ranges: Value, count: Value, seconds: Value) -> None:  # fmt: skip
    each = f.cast("uitofp", inner, "double")
    with f.range(0, samples) as s:
        f.call("void", "evict", team, ranges, count)
        start = _now(f)
        with f.range(0, inner):
            f.call("void", "tg_team_run", team, fn, buffers, workspace, threads)
        took = _seconds(f, _now(f) - start)
        f.store(f.emit("double", f"fdiv double {took.text}, {each.text}"),
                f.element("double", seconds, s))  # fmt: skip


def _entry(f: Writer, team: Value, entries: Value, n: Value) -> None:
    """Launch a plan's entry ``n``."""
    record = f.field(entries, n * ENTRY_BYTES)
    fn, buffers, workspace = (f.load("ptr", f.field(record, at)) for at in (0, 8, 16))
    threads = f.load("i64", f.field(record, 24))
    f.call("void", "tg_team_run", team, fn, buffers, workspace, threads)


@_runtime.define("void @tg_plan_run(ptr %team, ptr %entries, i64 %n)")
def _(f: Writer, team: Value, entries: Value, n: Value) -> None:
    with f.range(0, n) as i:
        _entry(f, team, entries, i)


@_runtime.define("internal void @plan_each(ptr %team, ptr %entries, i64 %n, ptr %seconds)")
def _(f: Writer, team: Value, entries: Value, n: Value, seconds: Value) -> None:
    with f.loop(f.constant("i64", 0), _now(f)) as loop:
        i, start = loop.values
        loop.only_while(i < n)
        _entry(f, team, entries, i)
        end, total = _now(f), f.element("double", seconds, i)
        took = _seconds(f, end - start)
        f.store(f.load("double", total) + took, total)
        loop.again(i + 1, end)


@_runtime.define(
    "void @tg_plan_time(ptr %team, ptr %entries, i64 %n, i64 %samples, ptr %ranges, i64 %count, "
    "ptr %seconds, ptr %each)"
)
def _(f: Writer, team: Value, entries: Value, n: Value, samples: Value, ranges: Value,
      count: Value, seconds: Value, each: Value) -> None:  # fmt: skip
    with f.range(0, samples) as s:
        f.call("void", "evict", team, ranges, count)
        start = _now(f)
        with f.when(each.equals("null")):
            f.call("void", "tg_plan_run", team, entries, n)
        with f.when(each.differs("null")):
            f.call("void", "plan_each", team, entries, n, each)
        f.store(_seconds(f, _now(f) - start), f.element("double", seconds, s))


# ---- whole buffers
#
# Work on whole buffers for verifying a candidate: copy parts, fill, digest and judge, for a team.
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

_HEAD = "void @{}(ptr %args, ptr %results, i64 %tid, ptr %team)"
_bulk = Functions()


def bulk_text() -> str:
    """The module; it names no architecture."""
    return _bulk.text()


def _words(f: Writer, args: Value, count: int) -> list[Value]:
    return [f.load("i64", f.element("i64", args, n)) for n in range(count)]


def _part(f: Writer, n: Value, tid: Value, threads: Value) -> tuple[Value, Value]:
    """The start and the end of a thread's part of ``n``: whole multiples of 64, but for the last."""
    whole = ((n + threads - 1) // threads + 63) & -64
    start, stop = (f.call("i64", "llvm.umin.i64", whole * t, n) for t in (tid, tid + 1))
    return start, stop


@_bulk.define(_HEAD.format("tg_fill"))
def _(f: Writer, args: Value, _results: Value, tid: Value, _team: Value) -> None:
    to, byte, n, threads = _words(f, args, 4)
    start, stop = _part(f, n, tid, threads)
    f.call("ptr", "memset", f.pointer(to + start), f.cast("trunc", byte, "i32"), stop - start)


# Each step is one to one in the lane, so that words which differ leave lanes that differ; the shift
# lets high bits, which a product passes on upwards alone, take part in the low ones.
@_bulk.define(_HEAD.format("tg_digest"))
def _(f: Writer, args: Value, results: Value, tid: Value, _team: Value) -> None:
    source, n, threads = _words(f, args, 3)
    start, stop = _part(f, n, tid, threads)
    base, seed = f.pointer(source), f.constant("<8 x i64>", -3750763034362895579)
    with f.loop(start, seed) as loop:
        at, lanes = loop.values
        loop.only_while(at < stop)
        mixed = (lanes ^ f.load("<8 x i64>", f.field(base, at), "align 1")) * -7046029254386353131
        loop.again(at + 64, mixed ^ (mixed >> 32))
    f.store(lanes, f.element("[8 x i64]", results, tid), "align 8")


def _judged(
    f: Writer, lanes: int, arrays: Sequence[Value], stop: Value, *starts: Value
) -> list[Value]:
    """Elements up to ``stop``, ``lanes`` at a time: the next one, True where all so far are right,
    the greatest error; ``starts`` are the first of these.
    """
    number = "double" if lanes == 1 else f"<{lanes} x double>"
    single = number.replace("double", "float")
    with f.loop(*starts) as loop:
        i, good, most = loop.values
        loop.only_while(i < stop)
        got = f.load(single, f.element("float", arrays[0], i), "align 4")
        expected, allowed = (
            f.load(number, f.element("double", a, i), "align 8") for a in arrays[1:]
        )
        name = "llvm.fabs.f64" if lanes == 1 else f"llvm.fabs.v{lanes}f64"
        error = f.call(number, name, f.cast("fpext", got, number) - expected)
        most_now = f.select(error > most, error, most)
        loop.again(i + lanes, good & (error <= allowed), most_now)
    return loop.values


@_bulk.define(_HEAD.format("tg_judge"))
def _(f: Writer, args: Value, results: Value, tid: Value, _team: Value) -> None:
    *places, n, threads = _words(f, args, 5)
    start, stop = _part(f, n, tid, threads)
    arrays = [f.pointer(p) for p in places]
    right, none = f.constant("<8 x i1>", "splat (i1 true)"), f.constant("<8 x double>", 0.0)
    middle = start + ((stop - start) & -8)
    _, good, most = _judged(f, 8, arrays, middle, start, right, none)
    all_good = f.call("i1", "llvm.vector.reduce.and.v8i1", good)
    greatest = f.call("double", "llvm.vector.reduce.fmax.v8f64", most)
    _, one_good, one_most = _judged(f, 1, arrays, stop, middle, all_good, greatest)
    at = f.element("[8 x i64]", results, tid)
    f.store(f.cast("zext", one_good, "i64"), at)
    f.store(one_most, f.field(at, 8))


def _stride(f: Writer, size: int, args: Value, tid: Value) -> None:
    counts = f.room(f"[{MOST_DIMS} x i64]")
    to0, from0, row, to_step, from_step, rows, rank, table, threads = _words(f, args, 9)
    dims, zero = f.pointer(table), f.constant("i64", 0)

    def dim(d: Value) -> tuple[Value, Value, Value, Value]:
        """The place of its counter, its extent, and its steps in what is written and read."""
        at = f.element("[3 x i64]", dims, d)
        extent, to_by, from_by = (f.load("i64", f.field(at, 8 * k)) for k in range(3))
        return f.element("i64", counts, d), extent, to_by, from_by

    first, last = (rows * t // threads for t in (tid, tid + 1))
    with f.loop(rank, first, to0, from0) as loop:  # the counters and addresses of the first row
        d, left, to, source = loop.values
        loop.only_while(d > 0)
        counter, extent, to_by, from_by = dim(d - 1)
        count = left % extent
        f.store(count, counter)
        loop.again(d - 1, left // extent, to + count * to_by, source + count * from_by)
    dense = to_step.equals(size) & from_step.equals(size)
    apart = f.select(dense, zero, row)
    with f.loop(first, to, source) as loop:
        r, to, source = loop.values
        loop.only_while(r < last)
        with f.when(dense):
            f.call("ptr", "memcpy", f.pointer(to), f.pointer(source), row * size)
        with f.loop(zero, to, source) as each:
            n, at, taken = each.values
            each.only_while(n < apart)
            f.store(f.load(f"i{8 * size}", f.pointer(taken), "align 1"), f.pointer(at), "align 1")
            each.again(n + 1, at + to_step, taken + from_step)
        loop.only_while(r + 1 < last)
        with f.loop(rank - 1, to, source) as odometer:  # on to the next row
            d, at, taken = odometer.values
            counter, extent, to_by, from_by = dim(d)
            count, most = f.load("i64", counter) + 1, extent - 1
            odometer.only_while(count > most)
            f.store(zero, counter)
            odometer.again(d - 1, at - most * to_by, taken - most * from_by)
        f.store(count, counter)
        loop.again(r + 1, at + to_by, taken + from_by)


for _size in _SIZES:

    @_bulk.define(_HEAD.format(f"tg_stride{_size}"))
    def _(
        f: Writer, args: Value, _results: Value, tid: Value, _team: Value, size: int = _size
    ) -> None:
        _stride(f, size, args, tid)
