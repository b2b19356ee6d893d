"""Peaks of this machine: f32 FMA rate and memory bandwidth, by kernels written for that."""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import reduce

from tunegrad.devices.device import MachineLimits
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.ir_text import Body, Functions, Value, Writer
from tunegrad.devices.host.team import BufferTable, Executable, Launch, Team
from tunegrad.ir.target import Target

_FMA_STEPS = 100_000
"""Turns of the loop, of a few hundred microseconds together: far above what a launch takes."""
_ACCUMULATORS = 12
"""Sums that do not wait for each other: two units of a latency of four or five cycles need ten."""
_STREAM_VECTORS = 8
"""Vectors that are read or written in one turn: the loop's own instructions hide behind them."""
_SAMPLES = 9
"""The best one counts: what else runs takes some of them."""
_DRAM_BYTES = 32 << 20
"""Of an array in memory, which need not be larger than caches: it is dropped from all before."""


def measure_limits(target: Target, team: Team) -> MachineLimits:
    """Measure on ``team``, which nothing else may use meanwhile. Takes about a second."""
    counts = sorted({1, team.threads, *(n for n in (2, 4, 8, 16, 32, 64, 128) if n < team.threads)})
    lanes = target.lanes(4)
    arrays = tuple(Buffer(_DRAM_BYTES) for _ in range(3))
    level2 = max(1, target.l2_bytes // 2)
    first = [_fma(target, team, n, lanes) for n in counts]
    streams = MachineLimits(
        fma_f32=(),
        read_dram=tuple(
            (n, _stream(target, team, n, "read", arrays[:1], _DRAM_BYTES // n, True))
            for n in counts
        ),
        triad_dram=tuple(
            (n, _stream(target, team, n, "triad", arrays, _DRAM_BYTES // n, True)) for n in counts
        ),
        read_l2=tuple((n, _stream(target, team, n, "read", arrays[:1], level2)) for n in counts),
    )
    # Twice, some time apart: another process on one of the cores halves what a single look finds.
    fma = tuple(
        (n, max(f, _fma(target, team, n, lanes))) for n, f in zip(counts, first, strict=True)
    )
    return replace(streams, fma_f32=fma)


def _fma(target: Target, team: Team, threads: int, lanes: int) -> float:
    out = Buffer(threads * lanes * 4)
    table = BufferTable([out.address], out)
    with Executable.load(compile_llvm(fma_text(lanes, _FMA_STEPS), target), "peak_fma") as kernel:
        seconds = min(team.time(Launch(kernel.address, table.address, 0, threads), _SAMPLES))
    return 2.0 * lanes * _ACCUMULATORS * _FMA_STEPS * threads / seconds


def _stream(
    target: Target,
    team: Team,
    threads: int,
    kind: str,
    arrays: tuple[Buffer, ...],
    share: int,
    cold: bool = False,
) -> float:
    """Bytes per second when every thread streams ``share`` bytes of each array, cached or not."""
    lanes = target.lanes(4)
    block = 4 * lanes * _STREAM_VECTORS
    share = max(block, share // block * block)
    sink = Buffer(threads * lanes * 4)
    table = BufferTable([sink.address, *(a.address for a in arrays)], (sink, arrays))
    text = _read_text(lanes, share) if kind == "read" else _triad_text(lanes, share)
    with Executable.load(compile_llvm(text, target), f"peak_{kind}") as kernel:
        # What follows the first of several launches would come from the caches: cold ones stand
        # alone.
        inner = 1 if cold else max(1, (1 << 20) // share)
        dropped = [(a.address, a.nbytes) for a in arrays] if cold else ()
        seconds = min(
            team.time(Launch(kernel.address, table.address, 0, threads), _SAMPLES, inner, dropped)
        )
    return float(share) * len(arrays) * threads / seconds


def fma_text(lanes: int, steps: int) -> str:
    """A kernel ``peak_fma`` of ``steps`` times 12 vector FMAs a thread, whose operands never leave
    registers.

    Its accumulators are independent, and enough to cover the latency of two FMA units.
    """
    kind = f"<{lanes} x float>"

    def body(f: Writer, buffers: Value, _workspace: Value, tid: Value, _team: Value) -> None:
        out = f.element(kind, f.load("ptr", buffers), tid)
        seed = f.emit(kind, f"load volatile {kind}, ptr {out.text}, align 64")
        scale, shift = seed + 0.5, seed + 0.25
        starts = [f.constant(kind, float(i)) for i in range(_ACCUMULATORS)]
        with f.loop(f.constant("i64", 0), *starts) as loop:
            i, *sums = loop.values
            loop.only_while(i < steps)
            name = f"llvm.fma.v{lanes}f32"
            loop.again(i + 1, *(f.call(kind, name, a, scale, shift) for a in sums))
        zero = reduce(operator.add, sums) * 0.0
        f.lines.append(f"  store volatile {kind} {zero.text}, ptr {out.text}, align 64")

    return _text("peak_fma", body)


def _read_text(lanes: int, share: int) -> str:
    """Each thread sums its part of one array, in as many partial sums as vectors in flight."""
    kind, align = f"<{lanes} x i32>", f"align {4 * lanes}"

    def body(f: Writer, buffers: Value, _workspace: Value, tid: Value, _team: Value) -> None:
        (first,) = _parts(f, buffers, tid * share, 1)
        with f.loop(f.constant("i64", 0), *[f.constant(kind, 0)] * _STREAM_VECTORS) as loop:
            i, *sums = loop.values
            loop.only_while(i < share // 4)
            places = (f.element("i32", first, i + j * lanes) for j in range(_STREAM_VECTORS))
            seen = (s ^ f.load(kind, at, align) for s, at in zip(sums, places, strict=True))
            loop.again(i + lanes * _STREAM_VECTORS, *seen)
        f.store(reduce(operator.xor, sums), f.element(kind, f.load("ptr", buffers), tid))

    return _text("peak_read", body)


def _triad_text(lanes: int, share: int) -> str:
    """``a = b + s*c``, each thread its part."""
    kind, align = f"<{lanes} x float>", f"align {4 * lanes}"

    def body(f: Writer, buffers: Value, _workspace: Value, tid: Value, _team: Value) -> None:
        arrays, three = _parts(f, buffers, tid * share, 3), f.constant(kind, 3.0)
        with f.range(0, f.constant("i64", share // 4), lanes * _STREAM_VECTORS) as i:
            for j in range(_STREAM_VECTORS):
                a, *places = (f.element("float", x, i + j * lanes) for x in arrays)
                b, c = (f.load(kind, at, align) for at in places)
                f.store(f.call(kind, f"llvm.fmuladd.v{lanes}f32", c, three, b), a, align)

    return _text("peak_triad", body)


def _parts(f: Writer, buffers: Value, offset: Value, arrays: int) -> list[Value]:
    """A thread's part of each array, which follow the sink in the table of buffers."""
    places = (f.element("ptr", buffers, k + 1) for k in range(arrays))
    return [f.field(f.load("ptr", at), offset) for at in places]


def _text(name: str, body: Body) -> str:
    made = Functions()
    made.define(f"void @{name}(ptr %buffers, ptr %workspace, i64 %tid, ptr %team)")(body)
    return made.text()
