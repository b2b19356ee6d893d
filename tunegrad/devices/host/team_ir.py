"""The native code of the CPU runtime: a persistent thread team and its barrier, timing loops, runners
of plans, and work on whole buffers.

There is no C compiler at the users', so the few hundred instructions that must not be Python are
written here, as LLVM IR text (``ir_text``).

Memory of a team (byte offsets, each group on its own cache lines), then one 64-byte record per
thread, then the core of each:

      0  i64 threads          64  i32 generation (futex)     128  i32 sleepers, 132 i32 at the barrier
    192  i32 barrier count   256  i32 barrier generation (futex)
    320  ptr kernel, 328 ptr buffers, 336 ptr workspace, 344 i64 active, 352 i64 stop,
    360 i64 started, 368 i64 alone, 376 i32 late
    384  ptr GOMP_parallel, 392 ptr omp_get_thread_num, 400 ptr omp_get_num_threads,
    408 ptr omp_get_max_threads, 416 ptr plan, 424 i64 entries, 432 i32 ran, 440 i64 ns of the plan
   1024 + 64*tid: ptr team, i64 tid, i64 pthread, i32 claimed, i32 finished (futex), i32 awaited,
                  i32 lent
   then i32 core of each thread

A launch stores the job, bumps the generation and runs its own share, that of thread 0. The share of
another thread belongs to the first that writes the generation into its ``claimed``: its helper, or the
caller, when it is through with its own. So a helper that sleeps, or waits for a core that another
process has, is not waited for, unless threads of the kernel meet at barriers. Nothing of a job is
read before its share is claimed, and no job is overwritten before all shares are finished.

A helper that has claimed may lose its core as well. The thread that waits for it sees that its clock
stands still, lets it run on this core instead, and sleeps until it is through; it goes back then.

Where that happened in a run of a plan, other processes want these cores. The next runs find out
what is faster there: the team, or all shares by the caller (``alone``), which leaves its helpers
asleep. One of ``_TURNS`` runs is by the slower way, or of as many as take as long; at first one of
``_SOON`` is by the team, since most neighbours are gone by then. It ends with a run of the team in
which no helper was late.

A team may have no threads of its own: OpenMP's, where it is given that. The caller runs a plan in one
parallel region, whose other threads are helpers until the plan is over. They are never moved to
another core. One that has not come yet is late: a caller that needs it sleeps. A region ends when
all its threads have come, so that one which takes longer than its plan had late ones, too. Where it
has fewer threads than the team, nothing has run.

Sleeping and waking follow Dekker: the helper announces itself in ``sleepers`` and then compares the
generation (inside the kernel's futex wait); the launcher bumps the generation and then reads
``sleepers``; both sequentially consistent, so one of them sees the other. So do ``awaited`` and
``finished``, and the barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from tunegrad.devices.host.ir_text import Functions, Value, Writer
from tunegrad.devices.host.team import APART, MOST_DIMS, PLAN_BYTES
from tunegrad.lazy import dataclass


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
_PATIENCE = 1024
"""Pauses, some 20 to 50 us, between two looks at those that are waited for; a power of two."""
_REGION_NS = 50_000
"""Of a region of OpenMP beside its plan, at most, where its threads have cores: 1 us, and what it
takes to wake them.
"""
_STILL = 256
"""Pauses in which the clock of a thread that runs goes on."""

_SOON, _TURNS, _MOST_TURNS, _MEAN = 4, 16, 256, 4
"""Runs of a plan, beside others, of which one is by the slower way, at first, then at least, and at
most; the weight of what was before, and the most times that a run counts as, which a pause of the
process may be in.
"""

_GENERATION, _SLEEPERS, _HELD_UP, _ARRIVED, _OPENED = 64, 128, 132, 192, 256
_KERNEL, _BUFFERS, _WORKSPACE, _ACTIVE, _STOP, _STARTED = 320, 328, 336, 344, 352, 360
_ALONE, _LATE = 368, 376
_PARALLEL, _THREAD_NUM, _NUM_THREADS, _MAX_THREADS = 384, 392, 400, 408
_PLAN, _COUNT, _RAN, _PLAN_NS = 416, 424, 432, 440
_RECORDS, _RECORD_BYTES = 1024, 64
_OWN_TID, _OWN_THREAD, _CLAIMED, _FINISHED, _AWAITED, _LENT = 8, 16, 24, 28, 32, 36
_WAIT, _WAKE = 128, 129
"""Of a futex that this process alone uses."""

_ENTRY_BYTES = 32

_runtime = Functions()


def runtime_text(machine: str, features: Sequence[str] = ()) -> str:
    """The runtime's module for ``machine`` (``platform.machine()``): x86_64 or aarch64 Linux.

    ``features``: of the target, as LLVM writes them; a core with ``clflushopt`` drops cache lines
    several at a time. Raises KeyError for another architecture.
    """
    return _runtime.text(_machine(machine, features))


def _machine(machine: str, features: Sequence[str]) -> _Machine:
    evict = "clflushopt ($0)" if "+clflushopt" in features else _EVICT[machine]
    return _Machine(_FUTEX[machine], _PAUSE[machine], evict)


# ---- team


@_runtime.define("internal i64 @now() alwaysinline")
def _(f: Writer) -> None:
    time, raw = f.room("[2 x i64]"), f.constant("i32", 4)
    f.call("i32", "clock_gettime", raw, time)
    f.give(f.load("i64", time) * 1_000_000_000 + f.load("i64", f.field(time, 8)))


def _now(f: Writer) -> Value:
    return f.call("i64", "now")


@_runtime.define("internal i32 @place(i64 %thread, i32 %cpu)")
def _(f: Writer, thread: Value, cpu: Value) -> None:
    """Keep a thread, or this one (0), on a core: 0 where that is done."""
    mask, size = f.room("[1024 x i8]"), f.constant("i64", 1024)
    zero = f.constant("i32", 0)
    with f.when(cpu >= 8192):  # -1 is more
        f.give(f.constant("i32", 1))
    f.call("ptr", "memset", mask, zero, size)
    bit = f.constant("i8", 1) << f.cast("trunc", cpu & 7, "i8")
    f.store(bit, f.field(mask, f.cast("zext", cpu >> 3, "i64")))
    with f.when(thread.equals(0)):
        f.give(f.call("i32", "sched_setaffinity", zero, size, mask))
    f.give(f.call("i32", "pthread_setaffinity_np", thread, size, mask))


def _futex(f: Writer, at: Value, action: int, value: Value) -> None:
    words, null, zero = f.words, f.constant("ptr", "null"), f.constant("i64", 0)
    numbers = f.constant("i64", words.futex), at, f.constant("i64", action)
    f.system(*numbers, value, null, null, zero)


def _wake(f: Writer, at: Value, sleepers: Value) -> None:
    """Wake all that sleep at a futex, where there is one."""
    with f.when(f.load("i32", sleepers, "seq_cst").differs(0)):
        _futex(f, at, _WAKE, f.constant("i32", (1 << 31) - 1))


def _record(f: Writer, team: Value, tid: Value | int) -> Value:
    at = tid * _RECORD_BYTES if isinstance(tid, Value) else f.constant("i64", tid * _RECORD_BYTES)
    return f.field(team, at + _RECORDS)


def _home(f: Writer, team: Value, tid: Value | int) -> Value:
    """The place of the core of a thread."""
    return f.element("i32", _record(f, team, f.load("i64", team)), tid)


@_runtime.define("internal void @return_home(ptr %self)")
def _(f: Writer, self: Value) -> None:
    """Leave a core that was lent."""
    lent = f.field(self, _LENT)
    with f.when(f.load("i32", lent, "acquire").differs(0)):
        f.store(f.constant("i32", 0), lent, "monotonic")
        home = _home(f, f.load("ptr", self), f.load("i64", f.field(self, _OWN_TID)))
        with f.loop(f.constant("i32", -2)) as loop:  # the caller may change it meanwhile
            core = f.load("i32", home, "seq_cst")
            loop.only_while(core.differs(loop.values[0]))
            f.call("i32", "place", f.constant("i64", 0), core)
            loop.again(core)


@_runtime.define("internal ptr @helper(ptr %self)")
def _(f: Writer, self: Value) -> None:
    f.store(f.constant("i32", 1), f.field(self, _LENT), "monotonic")  # it begins on any core
    f.call("void", "serve", self, f.constant("i32", 0))
    f.give(f.constant("ptr", "null"))


@_runtime.define("internal void @serve(ptr %self, i32 %before)")
def _(f: Writer, self: Value, before: Value) -> None:
    """Run this thread's shares of launches after that generation, until the team stops."""
    team, tid = f.load("ptr", self), f.load("i64", f.field(self, _OWN_TID))
    generation, sleepers = f.field(team, _GENERATION), f.field(team, _SLEEPERS)
    with f.loop(before) as idle:
        (seen,) = idle.values
        f.call("void", "return_home", self)
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
                f.call("void", "return_home", self)
            spin.again(count)
        idle.only_while(f.load("i64", f.field(team, _STOP)).equals(0))
        with f.when(f.claim(f.field(self, _CLAIMED), found - 1, found)):
            with f.when(tid < f.load("i64", f.field(team, _ACTIVE))):
                job = (f.load("ptr", f.field(team, x)) for x in (_BUFFERS, _WORKSPACE))
                f.enter(f.load("ptr", f.field(team, _KERNEL)), *job, tid, team)
            finished = f.field(self, _FINISHED)
            f.store(found, finished, "seq_cst")
            _wake(f, finished, f.field(self, _AWAITED))
        idle.again(found)


@_runtime.define("ptr @tg_team_create(i64 %n, ptr %cpus, ptr %openmp)")
def _(f: Writer, n: Value, cpus: Value, openmp: Value) -> None:
    slot, null = f.room("ptr"), f.constant("ptr", "null")
    nbytes = n * (_RECORD_BYTES + 4) + _RECORDS
    failed = f.call("i32", "posix_memalign", slot, f.constant("i64", 128), nbytes)
    with f.when(failed.differs(0)):
        f.give(null)
    team, one = f.load("ptr", slot), f.constant("i64", 1)
    f.call("ptr", "memset", team, f.constant("i32", 0), nbytes)
    f.store(n, team)
    f.store(n, f.field(team, _STARTED))
    f.call("ptr", "memcpy", _home(f, team, 0), cpus, n * 4)
    with f.range(1, n) as tid:
        self = _record(f, team, tid)
        f.store(team, self)
        f.store(tid, f.field(self, _OWN_TID))
    with f.when(openmp.differs("null")):
        f.call("ptr", "memcpy", f.field(team, _PARALLEL), openmp, f.constant("i64", 32))
        f.give(team)
    with f.loop(one) as loop:
        (tid,) = loop.values
        loop.only_while(tid < n)
        self = _record(f, team, tid)
        thread, helper = f.field(self, _OWN_THREAD), f.constant("ptr", "@helper")
        loop.only_while(f.call("i32", "pthread_create", thread, null, helper, self).equals(0))
        loop.again(tid + 1)
    f.store(tid, f.field(team, _STARTED))
    f.give(team)


@_runtime.define("i64 @tg_team_size(ptr %team)")
def _(f: Writer, team: Value) -> None:
    f.give(f.load("i64", f.field(team, _STARTED)))


def _publish(f: Writer, team: Value) -> Value:
    """Begin a launch: see the module's text for the order; its generation."""
    generation = f.field(team, _GENERATION)
    before = f.change("add", generation, "seq_cst")
    _wake(f, generation, f.field(team, _SLEEPERS))
    return before + 1


def _stop(f: Writer, team: Value) -> None:
    """Let helpers leave; they look for that where a launch begins."""
    f.store(f.constant("i64", 1), f.field(team, _STOP))
    _publish(f, team)


@_runtime.define("void @tg_team_destroy(ptr %team)")
def _(f: Writer, team: Value) -> None:
    started = f.load("i64", f.field(team, _STARTED))
    _stop(f, team)
    own = f.load("ptr", f.field(team, _PARALLEL)).equals("null")
    with f.when(own), f.range(1, started) as tid:
        thread = f.load("i64", f.field(_record(f, team, tid), _OWN_THREAD))
        f.call("i32", "pthread_join", thread, f.constant("ptr", "null"))
    f.call("void", "free", team)


@_runtime.define("internal void @part(ptr %team)")
def _(f: Writer, team: Value) -> None:
    """Let the helper on the caller's core change places with the caller, which is not pinned: the
    system may leave them together for a second.
    """
    f.store(f.call("i64", "pthread_self"), f.field(_record(f, team, 0), _OWN_THREAD))
    cpu, mine = f.call("i32", "sched_getcpu"), _home(f, team, 0)
    with f.range(1, f.load("i64", team)) as tid:
        home = _home(f, team, tid)
        with f.when(f.load("i32", home).equals(cpu)):
            other = f.load("i32", mine)
            f.store(other, home, "monotonic")
            f.store(cpu, mine, "monotonic")
            self = _record(f, team, tid)
            moved = f.call("i32", "place", f.load("i64", f.field(self, _OWN_THREAD)), other)
            with f.when(moved.differs(0)):  # a confined process places itself alone
                f.store(f.constant("i32", 1), f.field(self, _LENT), "release")


@_runtime.define("internal i64 @clock(ptr %self)")
def _(f: Writer, self: Value) -> None:
    """The processor time of a thread, in ns; 0 where the system does not say, or it has not come."""
    which, time = f.room("i32"), f.room("[2 x i64]")
    thread = f.load("i64", f.field(self, _OWN_THREAD))
    f.store(f.constant("i64", 0), time)
    f.store(f.constant("i64", 0), f.field(time, 8))
    with f.when(thread.equals(0)):
        f.give(f.constant("i64", 0))
    with f.when(f.call("i32", "pthread_getcpuclockid", thread, which).equals(0)):
        f.call("i32", "clock_gettime", f.load("i32", which), time)
    f.give(f.load("i64", time) * 1_000_000_000 + f.load("i64", f.field(time, 8)))


@_runtime.define("internal i1 @late(ptr %self)")
def _(f: Writer, self: Value) -> None:
    """True if a thread does not run; a helper that has a core may run on this one from now on."""
    before = f.call("i64", "clock", self)
    with f.range(0, f.constant("i64", _STILL)):
        f.asm(f.words.pause)
    thread, tid = (f.load("i64", f.field(self, at)) for at in (_OWN_THREAD, _OWN_TID))
    still = f.call("i64", "clock", self).equals(before) & (before.differs(0) ^ thread.equals(0))
    with f.when(still & tid.differs(0)):
        team = f.load("ptr", self)
        f.store(f.constant("i32", 1), f.field(team, _LATE), "monotonic")
        with f.when(f.load("i32", _home(f, team, tid)).differs(-1)):
            moved = f.call("i32", "place", thread, f.call("i32", "sched_getcpu"))
            with f.when(moved.equals(0)):
                f.store(f.constant("i32", 1), f.field(self, _LENT), "release")
    f.give(still)


@_runtime.define("internal void @wait_for(ptr %self, i32 %generation)")
def _(f: Writer, self: Value, generation: Value) -> None:
    """Wait until a helper has finished: awake while it runs."""
    finished, awaited = f.field(self, _FINISHED), f.field(self, _AWAITED)
    with f.loop(f.constant("i32", 0)) as loop:
        loop.only_while(f.load("i32", finished, "acquire").differs(generation))
        f.asm(f.words.pause)
        count = loop.values[0] + 1
        with f.when((count & (_PATIENCE - 1)).equals(0)), f.when(f.call("i1", "late", self)):
            f.store(f.constant("i32", 1), awaited, "seq_cst")
            found = f.load("i32", finished, "seq_cst")
            with f.when(found.differs(generation)):
                _futex(f, finished, _WAIT, found)
            f.store(f.constant("i32", 0), awaited, "monotonic")
        loop.again(count)


@_runtime.define(
    "internal void @launch(ptr %team, ptr %fn, ptr %buffers, ptr %workspace, i64 %how)"
)
def _(f: Writer, team: Value, fn: Value, buffers: Value, workspace: Value, how: Value) -> None:
    zero, threads, n = f.constant("i64", 0), how & (APART - 1), f.load("i64", team)
    f.store(threads, f.field(team, _ACTIVE))
    with f.when(threads <= 1):
        f.enter(fn, buffers, workspace, zero, team)
        f.give()
    with f.when((how >= APART) & f.load("i64", f.field(team, _ALONE)).differs(0)):
        with f.range(0, threads) as tid:
            f.enter(fn, buffers, workspace, tid, team)
        f.give()
    for value, place in ((fn, _KERNEL), (buffers, _BUFFERS), (workspace, _WORKSPACE)):
        f.store(value, f.field(team, place))
    generation = _publish(f, team)
    f.enter(fn, buffers, workspace, zero, team)
    with f.range(f.select(how < APART, threads, f.constant("i64", 1)), n) as tid:
        self = _record(f, team, tid)
        claimed = f.field(self, _CLAIMED)
        open_ = f.load("i32", claimed, "acquire").differs(generation)
        with f.when(open_), f.when(f.claim(claimed, generation - 1, generation)):
            with f.when(tid < threads):
                f.call("void", "part", team)
                f.enter(fn, buffers, workspace, tid, team)
            f.store(generation, f.field(self, _FINISHED), "monotonic")
    with f.range(1, n) as tid:
        self = _record(f, team, tid)
        f.call("void", "wait_for", self, generation)


@_runtime.define("void @tg_team_run(ptr %team, ptr %fn, ptr %buffers, ptr %workspace, i64 %how)")
def _(f: Writer, team: Value, fn: Value, buffers: Value, workspace: Value, how: Value) -> None:
    f.call("void", "part", team)
    f.call("void", "launch", team, fn, buffers, workspace, how)


@_runtime.define("void @tg_barrier(ptr %team)")
def _(f: Writer, team: Value) -> None:
    active = f.load("i64", f.field(team, _ACTIVE))
    with f.when(active <= 1):
        f.give()
    arrived, opened = f.field(team, _ARRIVED), f.field(team, _OPENED)
    sleepers = f.field(team, _HELD_UP)
    generation = f.load("i32", opened, "acquire")
    before = f.change("add", arrived, "acq_rel")
    with f.when(before.equals(f.cast("trunc", active, "i32") - 1)):
        f.store(f.constant("i32", 0), arrived, "monotonic")
        f.store(generation + 1, opened, "seq_cst")
        _wake(f, opened, sleepers)
        f.give()
    with f.loop(f.constant("i32", 0)) as loop:
        loop.only_while(f.load("i32", opened, "acquire").equals(generation))
        f.asm(f.words.pause)
        count = loop.values[0] + 1
        with f.when((count & (_PATIENCE - 1)).equals(0)), f.when(f.call("i1", "any_late", team)):
            f.change("add", sleepers, "seq_cst")
            _futex(f, opened, _WAIT, generation)
            f.change("sub", sleepers, "seq_cst")
        loop.again(count)


@_runtime.define("internal i1 @any_late(ptr %team)")
def _(f: Writer, team: Value) -> None:
    """True if a thread of the launch does not run, at least for now."""
    active = f.load("i64", f.field(team, _ACTIVE))
    with f.range(0, active) as tid, f.when(f.call("i1", "late", _record(f, team, tid))):
        f.give(f.constant("i1", 1))
    f.give(f.constant("i1", 0))


# ---- timing
#
# Eviction drops memory from every cache of the machine, line by line: what is timed next finds it in
# memory only. Dirty lines are written back first, so that no later launch pays for them. Each thread
# of the team takes its part of every range, so that all of them are awake when what is timed begins.


def _own_lines(
    f: Writer, ranges: Value, r: Value, tid: Value, threads: Value
) -> AbstractContextManager[Value]:
    """The cache lines of a thread's part of a range, one by one."""
    pair = f.element("[2 x i64]", ranges, r)
    base, nbytes = f.load("i64", pair), f.load("i64", f.field(pair, 8))
    first = base & -_LINE
    lines = (base + nbytes - first + (_LINE - 1)) // _LINE
    start, stop = (first + lines * t // threads * _LINE for t in (tid, tid + 1))
    return f.range(start, stop, _LINE)


@_runtime.define("internal void @place_part(ptr %ranges, ptr %job, i64 %tid, ptr %team)")
def _(f: Writer, ranges: Value, job: Value, tid: Value, _: Value) -> None:
    """Drop a thread's part of each range from all caches, then read that of those left near."""
    count, threads, near = (f.load("i64", f.field(job, at)) for at in (0, 8, 16))
    with f.range(0, count) as r, _own_lines(f, ranges, r, tid, threads) as at:
        f.asm(f.words.evict, f.pointer(at))
    f.lines.append("  fence seq_cst")
    with f.range(near, count) as r, _own_lines(f, ranges, r, tid, threads) as at:
        f.load("i32", f.pointer(at), "monotonic")


@_runtime.define("internal void @arrange(ptr %team, ptr %ranges, i64 %count, i64 %near)")
def _(f: Writer, team: Value, ranges: Value, count: Value, near: Value) -> None:
    job = f.room("[3 x i64]")
    with f.when(count.differs(0)):
        threads = f.load("i64", team)
        for value, at in ((count, 0), (threads, 8), (near, 16)):
            f.store(value, f.field(job, at))
        f.call("void", "launch", team, f.constant("ptr", "@place_part"), ranges, job, threads)


def _seconds(f: Writer, ns: Value) -> Value:
    return f.cast("uitofp", ns, "double") * 1e-9


@_runtime.define(
    "void @tg_time(ptr %team, ptr %fn, ptr %buffers, ptr %workspace, i64 %threads, "
    "i64 %samples, i64 %inner, ptr %ranges, i64 %count, i64 %near, ptr %seconds)"
)
def _(f: Writer, team: Value, *given: Value) -> None:
    fn, buffers, workspace, threads, samples, inner, ranges, count, near, seconds = given
    f.call("void", "part", team)
    each = f.cast("uitofp", inner, "double")
    with f.range(0, samples) as s:
        f.call("void", "arrange", team, ranges, count, near)
        start = _now(f)
        with f.range(0, inner):
            f.call("void", "launch", team, fn, buffers, workspace, threads)
        took = _seconds(f, _now(f) - start)
        f.store(f.emit("double", f"fdiv double {took.text}, {each.text}"),
                f.element("double", seconds, s))  # fmt: skip


def _entry(f: Writer, team: Value, plan: Value, n: Value) -> None:
    """Launch a plan's entry ``n``."""
    record = f.field(plan, n * _ENTRY_BYTES + PLAN_BYTES)
    fn, buffers, workspace = (f.load("ptr", f.field(record, at)) for at in (0, 8, 16))
    how = f.load("i64", f.field(record, 24))
    f.call("void", "launch", team, fn, buffers, workspace, how)


@_runtime.define("void @tg_plan_alone(ptr %plan, i64 %n)")
def _(f: Writer, plan: Value, n: Value) -> None:
    """Run a plan of launches of one thread, which need no team."""
    with f.range(0, n) as i:
        record = f.field(plan, i * _ENTRY_BYTES + PLAN_BYTES)
        fn, buffers, workspace = (f.load("ptr", f.field(record, at)) for at in (0, 8, 16))
        f.enter(fn, buffers, workspace, f.constant("i64", 0), f.constant("ptr", "null"))


@_runtime.define("internal void @plan_all(ptr %team, ptr %plan, i64 %n)")
def _(f: Writer, team: Value, plan: Value, n: Value) -> None:
    with f.range(0, n) as i:
        _entry(f, team, plan, i)


@_runtime.define("internal void @region(ptr %team)")
def _(f: Writer, team: Value) -> None:
    """The part of each thread of a parallel region."""
    n = f.load("i64", team)
    many, tid = (
        f.cast("zext", f.enter(f.load("ptr", f.field(team, at)), kind="i32"), "i64")
        for at in (_NUM_THREADS, _THREAD_NUM)
    )
    with f.when(many < n):
        f.give()
    with f.when(tid.equals(0)):
        plan, count = f.load("ptr", f.field(team, _PLAN)), f.load("i64", f.field(team, _COUNT))
        start = _now(f)
        f.call("void", "plan_all", team, plan, count)
        f.store(_now(f) - start, f.field(team, _PLAN_NS))
        f.store(f.constant("i32", 1), f.field(team, _RAN))
        _stop(f, team)
        f.give()
    with f.when(tid < n):
        self = _record(f, team, tid)
        f.store(f.call("i64", "pthread_self"), f.field(self, _OWN_THREAD))
        f.call("void", "serve", self, f.load("i32", f.field(self, _CLAIMED), "acquire"))


@_runtime.define("internal i32 @plan_by(ptr %team, ptr %plan, i64 %n)")
def _(f: Writer, team: Value, plan: Value, n: Value) -> None:
    """Run a plan by the team's threads, or by OpenMP's; 0 where these are too few.

    A region of its usual number of threads keeps them; another number ends some, or makes some.
    """
    parallel, alone = f.load("ptr", f.field(team, _PARALLEL)), f.load("i64", f.field(team, _ALONE))
    by_caller = alone.differs(0) & f.load("i64", f.field(plan, 32)).equals(0)
    with f.when(f.select(by_caller, by_caller, parallel.equals("null"))):
        f.call("void", "plan_all", team, plan, n)
        f.give(f.constant("i32", 1))
    zero, none, threads = f.constant("i64", 0), f.constant("i32", 0), f.load("i64", team)
    for value, at in ((plan, _PLAN), (n, _COUNT), (zero, _STOP), (none, _RAN)):
        f.store(value, f.field(team, at))
    with f.range(1, threads) as tid:
        f.store(zero, f.field(_record(f, team, tid), _OWN_THREAD))
    usual = f.enter(f.load("ptr", f.field(team, _MAX_THREADS)), kind="i32")
    wanted = f.cast("trunc", threads, "i32")
    asked = f.select(usual < wanted, wanted, 0)
    start = _now(f)
    f.enter(parallel, f.constant("ptr", "@region"), team, asked, none)
    waited = _now(f) - start - f.load("i64", f.field(team, _PLAN_NS))
    done, generation = f.load("i32", f.field(team, _RAN)), f.field(team, _GENERATION)
    with f.when(done.differs(0) & (waited > _REGION_NS)):
        f.store(f.constant("i32", 1), f.field(team, _LATE), "monotonic")
    f.store(f.load("i32", generation) - done, generation)  # the one of ``_stop`` had no launch
    f.give(done)


@_runtime.define("i32 @tg_plan_run(ptr %team, ptr %plan, i64 %n)")
def _(f: Writer, team: Value, plan: Value, n: Value) -> None:
    """Run a plan, by the caller alone where that is faster beside other processes; see ``plan_by``
    for the result.
    """
    f.call("void", "part", team)
    late, turns, by_team, by_caller = (f.field(plan, at) for at in (0, 8, 16, 24))
    team_late, team_alone = f.field(team, _LATE), f.field(team, _ALONE)
    zero, none = f.constant("i64", 0), f.constant("i32", 0)
    with f.when(f.load("i32", late).equals(0)):
        ran = f.call("i32", "plan_by", team, plan, n)
        f.store(f.load("i32", team_late, "monotonic"), late)
        f.store(none, team_late, "monotonic")
        f.give(ran)
    turn = f.load("i64", turns) + 1
    f.store(turn, turns)
    means = f.load("i64", by_team), f.load("i64", by_caller)
    most, least = (f.call("i64", f"llvm.{x}.i64", *means) for x in ("umax", "umin"))
    slower = means[0] > means[1]
    fewest = f.select(slower & (turn < _TURNS), f.constant("i64", _SOON), _TURNS)
    every = f.call("i64", "llvm.umax.i64", most // (least + 1), fewest)
    every = f.call("i64", "llvm.umin.i64", every, f.constant("i64", _MOST_TURNS))
    alone = slower ^ (turn % every).equals(0)
    f.store(f.cast("zext", alone, "i64"), team_alone)
    start = _now(f)
    ran = f.call("i32", "plan_by", team, plan, n)
    took, mean = _now(f) - start, f.select(alone, by_caller, by_team)
    f.store(zero, team_alone)
    with f.when(ran.equals(0)):
        f.give(ran)
    before = f.load("i64", mean)
    counted = f.call("i64", "llvm.umin.i64", took, before * _MEAN)
    known = (before * (_MEAN - 1) + counted) // _MEAN
    known = f.call("i64", "llvm.umin.i64", known, took * _MEAN)
    f.store(f.select(before.equals(0), took, known), mean)
    with f.when(alone.equals(0)):
        again = f.load("i32", team_late, "monotonic")
        f.store(again, late)
        f.store(none, team_late, "monotonic")
        f.store(f.select(again.equals(0), zero, turn), turns)
    f.give(ran)


@_runtime.define("internal void @plan_each(ptr %team, ptr %plan, i64 %n, ptr %seconds)")
def _(f: Writer, team: Value, plan: Value, n: Value, seconds: Value) -> None:
    with f.loop(f.constant("i64", 0), _now(f)) as loop:
        i, start = loop.values
        loop.only_while(i < n)
        _entry(f, team, plan, i)
        end, total = _now(f), f.element("double", seconds, i)
        took = _seconds(f, end - start)
        f.store(f.load("double", total) + took, total)
        loop.again(i + 1, end)


@_runtime.define(
    "void @tg_plan_time(ptr %team, ptr %plan, i64 %n, i64 %samples, ptr %seconds, ptr %each)"
)
def _(f: Writer, team: Value, plan: Value, *given: Value) -> None:
    n, samples, seconds, each = given
    with f.range(0, samples) as s:
        start = _now(f)
        with f.when(each.equals("null")):
            f.call("i32", "tg_plan_run", team, plan, n)
        with f.when(each.differs("null")):
            f.call("void", "plan_each", team, plan, n, each)
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
#     tg_clock  args so many steps that take four cycles each, one after the other
#     tg_control  no args; how its processor computes: on x86-64 MXCSR, at 8 x87's environment,
#               at 40 the flags; on aarch64 FPCR
#     tg_stride1, 2, 4, 8 by bytes of an element
#               args to, from, row, to step, from step, rows, rank, dims, threads
#               rows of ``row`` elements, steps in bytes; dims holds (extent, to step, from step)
#               of each outer dimension


_SIZES = (1, 2, 4, 8)

_HEAD = "void @{}(ptr %args, ptr %results, i64 %tid, ptr %team)"
_bulk = Functions()


def bulk_text(machine: str) -> str:
    """The module for ``machine``, as ``runtime_text``."""
    return _bulk.text(machine)


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


@_bulk.define(_HEAD.format("tg_clock"))
def _(f: Writer, args: Value, results: Value, tid: Value, _team: Value) -> None:
    (steps,) = _words(f, args, 1)
    with f.loop(steps, tid) as loop:  # a product of integers takes three cycles, a sum one
        left, x = loop.values
        loop.only_while(left > 0)
        loop.again(left - 1, x * 6364136223846793005 + left)
    f.store(x, f.element("[8 x i64]", results, tid))


@_bulk.define(_HEAD.format("tg_control"))
def _(f: Writer, _args: Value, results: Value, tid: Value, _team: Value) -> None:
    at = f.element("[8 x i64]", results, tid)
    if f.words == "aarch64":
        f.store(f.call("i64", "llvm.aarch64.get.fpcr"), at)
        return
    f.call("void", "llvm.x86.sse.stmxcsr", at)
    f.asm("fnstenv ($0); fldenv ($0)", f.field(at, 8))  # the first masks exceptions
    f.store(f.call("i64", "llvm.x86.flags.read.u64"), f.field(at, 40))


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
