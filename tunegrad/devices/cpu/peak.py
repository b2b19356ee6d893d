"""Peaks of this machine: f32 FMA rate and memory bandwidth, measured by kernels written for nothing
else.
"""

from __future__ import annotations

from dataclasses import replace

from tunegrad.devices.device import MachineLimits
from tunegrad.devices.host.buffers import Buffer
from tunegrad.devices.host.codegen import compile_llvm
from tunegrad.devices.host.team import BufferTable, Executable, Launch, Team
from tunegrad.ir.target import Target

__all__ = ["fma_text", "measure_limits"]

_FMA_STEPS = 100_000
_ACCUMULATORS = 12
_STREAM_VECTORS = 8
_SAMPLES = 9
_DRAM_BYTES = 32 << 20
"""Of an array in memory: it is dropped from all caches before it is read, so it need not be
larger than they are.
"""


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
        triad_l2=tuple((n, _stream(target, team, n, "triad", arrays, level2 // 3)) for n in counts),
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
    """Bytes per second when every thread streams ``share`` bytes of each array, from memory or from
    its caches.
    """
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
    vector = f"<{lanes} x float>"
    names = range(_ACCUMULATORS)
    phis = "\n".join(
        f"  %a{i} = phi {vector} [ {_splat(lanes, i)}, %entry ], [ %b{i}, %loop ]" for i in names
    )
    fmas = "\n".join(
        f"  %b{i} = call {vector} @llvm.fma({vector} %a{i}, {vector} %scale, {vector} %shift)"
        for i in names
    )
    sums = "\n".join(
        f"  %s{i + 1} = fadd {vector} %{'b0' if i == 0 else f's{i}'}, %b{i + 1}"
        for i in range(_ACCUMULATORS - 1)
    )
    intrinsic = f"@llvm.fma.v{lanes}f32"
    return f"""
declare {vector} {intrinsic}({vector}, {vector}, {vector})
define void @peak_fma(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) {{
entry:
  %base = load ptr, ptr %buffers
  %out = getelementptr {vector}, ptr %base, i64 %tid
  %seed = load volatile {vector}, ptr %out, align 64
  %scale = fadd {vector} %seed, {_splat(lanes, 0.5)}
  %shift = fadd {vector} %seed, {_splat(lanes, 0.25)}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
{phis}
{fmas.replace("@llvm.fma(", intrinsic + "(")}
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {steps}
  br i1 %more, label %loop, label %done
done:
{sums}
  %zero = fmul {vector} %s{_ACCUMULATORS - 1}, zeroinitializer
  store volatile {vector} %zero, ptr %out, align 64
  ret void
}}
"""


def _read_text(lanes: int, share: int) -> str:
    """Each thread sums its part of one array, in as many partial sums as vectors in flight."""
    vector, step = f"<{lanes} x i32>", lanes * _STREAM_VECTORS
    names = range(_STREAM_VECTORS)
    phis = "\n".join(
        f"  %a{j} = phi {vector} [ zeroinitializer, %entry ], [ %b{j}, %loop ]" for j in names
    )
    body = "\n".join(
        f"  %o{j} = add i64 %i, {j * lanes}\n  %p{j} = getelementptr i32, ptr %first, i64 %o{j}\n"
        f"  %v{j} = load {vector}, ptr %p{j}, align {4 * lanes}\n  %b{j} = xor {vector} "
        f"%a{j}, %v{j}"
        for j in names
    )
    sums = "\n".join(
        f"  %s{j + 1} = xor {vector} %{'b0' if j == 0 else f's{j}'}, %b{j + 1}"
        for j in range(_STREAM_VECTORS - 1)
    )
    return _loop(
        "peak_read",
        share,
        step,
        phis,
        body,
        f"{sums}\n  store {vector} %s{_STREAM_VECTORS - 1}, ptr %out",
        1,
    )


def _triad_text(lanes: int, share: int) -> str:
    """``a = b + s*c``, each thread its part."""
    vector, step = f"<{lanes} x float>", lanes * _STREAM_VECTORS
    align = 4 * lanes
    body = "\n".join(
        f"  %o{j} = add i64 %i, {j * lanes}\n"
        f"  %p{j} = getelementptr float, ptr %first, i64 %o{j}\n"
        f"  %q{j} = getelementptr float, ptr %second, i64 %o{j}\n"
        f"  %r{j} = getelementptr float, ptr %third, i64 %o{j}\n"
        f"  %v{j} = load {vector}, ptr %q{j}, align {align}\n  %w{j} = load {vector}, ptr "
        f"%r{j}, align {align}\n"
        f"  %x{j} = fmul contract {vector} %w{j}, {_splat(lanes, 3)}\n"
        f"  %y{j} = fadd contract {vector} %v{j}, %x{j}\n"
        f"  store {vector} %y{j}, ptr %p{j}, align {align}"
        for j in range(_STREAM_VECTORS)
    )
    return _loop("peak_triad", share, step, "", body, "", 3)


def _loop(name: str, share: int, step: int, phis: str, body: str, end: str, arrays: int) -> str:
    words = ("first", "second", "third")[:arrays]
    loads = "\n".join(
        f"  %{word}.at = getelementptr ptr, ptr %buffers, i64 {k + 1}\n  %{word}.all = load "
        f"ptr, ptr %{word}.at\n"
        f"  %{word} = getelementptr i8, ptr %{word}.all, i64 %offset"
        for k, word in enumerate(words)
    )
    return f"""
define void @{name}(ptr %buffers, ptr %workspace, i64 %tid, ptr %team) {{
entry:
  %sink = load ptr, ptr %buffers
  %slot = mul i64 %tid, {4 * step // _STREAM_VECTORS}
  %out = getelementptr i8, ptr %sink, i64 %slot
  %offset = mul i64 %tid, {share}
{loads}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
{phis}
{body}
  %i1 = add i64 %i, {step}
  %more = icmp ult i64 %i1, {share // 4}
  br i1 %more, label %loop, label %done
done:
{end}
  ret void
}}
"""


def _splat(lanes: int, value: float) -> str:
    return f"<{', '.join([f'float {float(value)}'] * lanes)}>"
